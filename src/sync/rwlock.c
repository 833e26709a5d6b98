/* SPDX-License-Identifier: MIT */
/* The rwlock.
 *
 *   state   WRITER   a writer has it; `owner` says who
 *           WAITERS  somebody may be on the queue: newcomers queue up, whatever they want, so writers do not starve
 *           READER   one unit for each reader that has it
 *
 * Without WAITERS everything is one CAS. With WAITERS the only step without the object's lock is that of a reader who leaves
 * and is not the last (L1). Whoever lets it go as the last, under the lock, lets in who is first: a writer, or all readers before the
 * next writer; they have it when they are resumed. One who gave up may have held others back, and looks after them. */
#include "sync/sync.h"

enum { WRITER = 1, WAITERS = 2, READER = 4 };

typedef struct weft__rwlock {
    _Atomic uint32_t state;
    uint32_t forks;         /* weft__sync_inherited; under the object's lock */
    _Atomic uint64_t owner; /* weft__sync_id of the writer; under the object's lock or the writer's own */
    weft__queue waiters;    /* under the object's lock */
} weft__rwlock;
_Static_assert(sizeof(weft__rwlock) <= sizeof(weft_rwlock), "an rwlock fits its storage");

enum { TRIES = 4, PAUSES = 64 }; /* as in mutex.c */

static weft__rwlock *lock_of(weft_rwlock *l) {
    return (weft__rwlock *)(void *)l;
}

/* The state that it becomes for one more; false: it cannot be had now. */
WEFT_INLINE bool enters(uint32_t s, bool writes, uint32_t *n) {
    *n = writes ? s | WRITER : s + READER;
    return writes ? s < READER && !(s & WRITER) : !(s & WRITER);
}

/* acquire: sees what the last holders did; pairs with the releases in the unlocks. */
static bool try_enter(weft__rwlock *l, bool writes) {
    uint32_t s = weft__load(&l->state, relaxed), n; /* the CAS decides */
    while (!(s & WAITERS) && enters(s, writes, &n))
        if (weft__cas(&l->state, &s, n, acquire)) return true;
    return false;
}

static bool spin(weft__rwlock *l, bool writes) {
    if (weft__lock_is_strict() || (weft__self() != &weft__nobody && !weft__rt.many)) return false;
    for (int i = 0; i < TRIES && !(weft__load(&l->state, relaxed) & WAITERS); i++) { /* a hint */
        for (int k = 0; k < PAUSES; k++) weft__cpu_relax();
        if (try_enter(l, writes)) return true;
    }
    return false;
}

/* Under the lock, with WAITERS set: lets in whoever can be, from the head of the queue. */
static void admit(weft__rwlock *l, weft__queue *woken) {
    for (weft__waiter *x; (x = l->waiters.head);) {
        weft__sync_wait *w = weft__container(x, weft__sync_wait, x);
        uint32_t s = weft__load(&l->state, relaxed), n; /* readers may be leaving: the CAS decides */
        do {
            if (!enters(s, w->writes, &n)) return;
        } while (!weft__cas(&l->state, &s, n, acq_rel));       /* pairs with the unlocks */
        if (w->writes) weft__store(&l->owner, w->id, relaxed); /* published with its resumption */
        (void)weft__sync_claim(&l->waiters, woken);
    }
    uint32_t s = weft__load(&l->state, relaxed);                                 /* as above */
    while (!weft__cas(&l->state, &s, s & ~(uint32_t)WAITERS, release)) continue; /* L2 */
}

/* Under the lock: it is ours, or word is left that we wait. */
static bool enter_or_announce(weft__rwlock *l, bool writes) {
    uint32_t s = weft__load(&l->state, relaxed), n; /* the CAS decides */
    bool in;
    do {
        in = !l->waiters.head && enters(s, writes, &n);
        n = in ? n & ~(uint32_t)WAITERS : s | WAITERS;
    } while (!weft__cas(&l->state, &s, n, acquire)); /* as in try_enter */
    return in;
}

/* One who waited is off the queue: those behind it may be able to go in. */
static void look_after(weft__rwlock *l, weft__sync_wait *w) {
    weft__queue woken = {NULL, NULL};
    weft__lock_take(w->lock);
    if (weft__load(&l->state, relaxed) & WAITERS) admit(l, &woken); /* under the lock */
    weft__lock_leave(w->lock);
    weft__sync_resume(&woken, w->slot);
}

static int wait_for(weft__rwlock *l, weft__sync_wait *w, bool writes) {
    w->writes = writes;
    weft__sync_take(w);
    (void)weft__sync_inherited(&l->waiters, &l->forks);
    if (enter_or_announce(l, writes)) {
        weft__lock_leave(w->lock);
        if (writes) weft__store(&l->owner, w->id, relaxed); /* the writer's own */
        return 0;
    }
    int err = weft__sync_wait_on(w, &l->waiters, WEFT_WAIT_RWLOCK);
    if (err) look_after(l, w);
    return err;
}

static void entered(weft__rwlock *l, bool writes, void *place) {
    if (writes) weft__store(&l->owner, weft__sync_id(weft__self()), relaxed); /* the writer's own */
    if (unlikely(weft__held_on())) weft__held_add(l, writes ? "rwlock (to write)" : "rwlock (to read)", place);
}

static void check_recursion(weft__rwlock *l) {
    uint64_t id = weft__sync_id(weft__self());
    if (weft__load(&l->owner, relaxed) == id) /* only we could have written it, or whoever gave it to us */
        weft__die("weft_rwlock: %s locks rwlock %p, which it holds already, to write", weft__sync_who(id).s, (void *)l);
}

static void lock(weft_rwlock *rw, bool writes, void *place) {
    weft__rwlock *l = lock_of(rw);
    weft__sync_pause(weft__self());
    if (!try_enter(l, writes)) {
        check_recursion(l);
        if (!spin(l, writes)) {
            weft__sync_wait w;
            weft__sync_begin_deaf(&w, l);
            (void)wait_for(l, &w, writes);
            weft__sync_end(&w);
        }
    }
    entered(l, writes, place);
}

static int try_lock(weft_rwlock *rw, bool writes, void *place) {
    weft__rwlock *l = lock_of(rw);
    weft__sync_pause(weft__self());
    if (!try_enter(l, writes)) return WEFT_EAGAIN;
    entered(l, writes, place);
    return 0;
}

static int lock_until(weft_rwlock *rw, bool writes, weft_deadline deadline, void *place) {
    weft__rwlock *l = lock_of(rw);
    int err = weft__sync_check(deadline);
    if (err) return err;
    if (!try_enter(l, writes)) {
        weft__sync_wait w;
        err = weft__sync_begin(&w, l, deadline);
        if (!err) check_recursion(l);
        if (!err && !spin(l, writes)) err = wait_for(l, &w, writes);
        weft__sync_end(&w);
        if (err) return err;
    }
    entered(l, writes, place);
    return 0;
}

void weft_rwlock_rdlock(weft_rwlock *l) {
    lock(l, false, __builtin_return_address(0));
}
void weft_rwlock_wrlock(weft_rwlock *l) {
    lock(l, true, __builtin_return_address(0));
}
int weft_rwlock_tryrdlock(weft_rwlock *l) {
    return try_lock(l, false, __builtin_return_address(0));
}
int weft_rwlock_trywrlock(weft_rwlock *l) {
    return try_lock(l, true, __builtin_return_address(0));
}
int weft_rwlock_rdlock_until(weft_rwlock *l, weft_deadline deadline) {
    return lock_until(l, false, deadline, __builtin_return_address(0));
}
int weft_rwlock_wrlock_until(weft_rwlock *l, weft_deadline deadline) {
    return lock_until(l, true, deadline, __builtin_return_address(0));
}

/* ---- unlock ---- */

/* Lets it go, unless somebody has to be let in: false. */
static bool try_leave(weft__rwlock *l, uint32_t mine) {
    uint32_t s = weft__load(&l->state, relaxed); /* the CAS decides */
    do {
        if ((s & WAITERS) && s - mine < READER) return false;
    } while (!weft__cas(&l->state, &s, s - mine, release)); /* pairs with try_enter; L2 */
    return true;
}

static WEFT_NOINLINE void leave_slow(weft__rwlock *l, uint32_t mine) {
    weft__slot *slot = weft__enter();
    weft__lock *k = weft__sync_lock_of(l);
    weft__queue woken = {NULL, NULL};
    weft__lock_take(k);
    (void)weft__sync_inherited(&l->waiters, &l->forks);
    if (!try_leave(l, mine)) {
        weft__sub(&l->state, mine, release); /* WAITERS stays: nobody gets in before those that admit lets in */
        admit(l, &woken);
    }
    weft__lock_leave(k);
    weft__sync_resume(&woken, slot);
    if (slot) weft__leave();
}

static void unlock(weft__rwlock *l, bool writes) {
    uint64_t id = weft__sync_id(weft__self());
    if (writes) {
        uint64_t owner = weft__load(&l->owner, relaxed); /* only we could have written ours */
        if (owner != id)
            weft__die("weft_rwlock_wrunlock: rwlock %p is held to write by %s, not by %s", (void *)l, weft__sync_who(owner).s,
                      weft__sync_who(id).s);
        weft__store(&l->owner, 0, relaxed);
    } else if (weft__load(&l->state, relaxed) < READER) { /* if it is ours, it stays above */
        weft__die("weft_rwlock_rdunlock: nobody holds rwlock %p to read (%s)", (void *)l, weft__sync_who(id).s);
    }
    if (unlikely(weft__held_on())) weft__held_remove(l, id);
    uint32_t mine = writes ? WRITER : READER;
    if (!try_leave(l, mine)) leave_slow(l, mine);
}

void weft_rwlock_rdunlock(weft_rwlock *l) {
    unlock(lock_of(l), false);
}
void weft_rwlock_wrunlock(weft_rwlock *l) {
    unlock(lock_of(l), true);
}
void weft_rwlock_unlock(weft_rwlock *l) {
    unlock(lock_of(l), weft__load(&lock_of(l)->state, relaxed) & WRITER); /* if it is ours, this does not change */
}

void weft_rwlock_destroy(weft_rwlock *rw) {
    if (!rw) return;
    weft__rwlock *l = lock_of(rw);
    uint32_t s = weft__load(&l->state, acquire); /* pairs with the last unlock */
    if (s & ~(uint32_t)WAITERS)
        weft__die("weft_rwlock_destroy: rwlock %p is destroyed while %s holds it", (void *)l,
                  s & WRITER ? weft__sync_who(weft__load(&l->owner, relaxed)).s : "a reader"); /* for people */
    weft__sync_destroy("rwlock", l, sizeof *l, &l->waiters, &l->forks);
}
