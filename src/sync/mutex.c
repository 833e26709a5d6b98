/* SPDX-License-Identifier: MIT */
#include "sync/mutex.h"

#include "time/clock.h"

/* Measured in the prototype: a few tries of about 2 us before parking, 12 -> 5.6 ns a pair with two workers. */
enum { TRIES = 4, PAUSES = 64 };

enum { WOKEN_UP = WEFT_SYNC_SERVED, HANDED_OVER = 1 }; /* results of a wait */

/* One locked instruction, whatever else the state says. acquire: sees what the last holder did; pairs with the releases in try_release and
 * release_slow. */
WEFT_INLINE bool try_take(weft__mutex *m) {
    return !(weft__or(&m->state, WEFT_LOCKED, acquire) & WEFT_LOCKED);
}

WEFT_INLINE void own(weft__mutex *m, uint64_t id) {
    weft__store(&m->owner, id, relaxed); /* the holder's own */
}

/* ---- lock ---- */

/* Is it worth while to spin? Not if the holder cannot run meanwhile. */
static bool spin(weft__mutex *m) {
    if (weft__lock_is_strict() || (weft__self() != &weft__nobody && !weft__rt.many)) return false;
    for (int i = 0; i < TRIES; i++) {
        for (int k = 0; k < PAUSES; k++) weft__cpu_relax();
        uint32_t s = weft__or(&m->state, WEFT_LOCKED, acquire); /* as in try_take */
        if (!(s & WEFT_LOCKED)) return true;
        if (s & WEFT_HANDED) return false;
    }
    return false;
}

/* Under the object's lock: takes the mutex (true), or, seeing it locked, leaves word that somebody waits, unless `quit`. */
static bool take_or_announce(weft__mutex *m, bool woken, bool quit) {
    uint32_t s = weft__load(&m->state, relaxed), n; /* the CAS decides */
    do {
        n = woken ? s & ~(uint32_t)WEFT_WOKEN : s; /* M3 */
        if (s & WEFT_LOCKED)
            n = quit ? n : n | WEFT_WAITERS;
        else
            n = (m->waiters.head ? n : n & ~(uint32_t)WEFT_WAITERS) | WEFT_LOCKED;
    } while (!weft__cas(&m->state, &s, n, acquire)); /* as in try_take */
    return !(s & WEFT_LOCKED);
}

static WEFT_COLD WEFT_NORETURN void recursive(weft__mutex *m, uint64_t id) {
    weft__die("weft_mutex_lock: %s locks mutex %p, which it holds already", weft__sync_who(id).s, (void *)m);
}

/* Waits until it has the mutex, or has to give up. */
static int wait_for(weft__mutex *m, weft__sync_wait *w) {
    bool woken = false;
    w->since = weft__clock_now();
    for (;;) {
        weft__sync_take(w);
        bool inherited = weft__sync_inherited(&m->waiters, &m->forks);
        int err = weft__sync_ask(w);
        if (take_or_announce(m, woken || inherited, err != 0))
            err = 0;
        else if (!err) {
            if (woken)
                weft__queue_add_first(&m->waiters, &w->x);
            else
                weft__queue_add(&m->waiters, &w->x);
            err = weft__sync_park(w, WEFT_WAIT_MUTEX);
            if (err == WOKEN_UP) {
                woken = true;
                continue;
            }
            if (err == HANDED_OVER) {
                weft__add(&m->state, -(uint32_t)WEFT_HANDED, relaxed); /* a hint to spinners; M1: nobody else does */
                weft__san_acquire(&m->state);
                return 0;
            }
            return err;
        }
        weft__lock_leave(w->lock);
        return err;
    }
}

static WEFT_NOINLINE void lock_contended(weft__mutex *m, uint64_t id) {
    if (unlikely(weft__load(&m->owner, relaxed) == id)) recursive(m, id); /* only we could have written it */
    if (!spin(m)) {
        weft__sync_wait w;
        weft__sync_begin_deaf(&w, m);
        (void)wait_for(m, &w);
        weft__sync_end(&w);
    }
    own(m, id);
}

void weft__mutex_lock(weft__mutex *m) {
    uint64_t id = weft__sync_id(weft__self());
    if (try_take(m))
        own(m, id);
    else
        lock_contended(m, id);
}

/* A plain thread, somebody whose turn is over, or locks are checked. */
static WEFT_NOINLINE void lock_slow(weft_mutex *m, bool step_back, void *place) {
    if (step_back) weft__sync_step_back();
    weft__mutex_lock(weft__mutex_of(m));
    if (weft__held_on()) weft__held_add(m, "mutex", place);
}

void weft_mutex_lock(weft_mutex *mutex) {
    weft__mutex *m = weft__mutex_of(mutex);
    weft__worker *w = weft__self();
    weft__task *t = weft__cur(w);
    bool turn_over = t && weft__sync_turn_over(w, t);
    if (unlikely(!t || turn_over || weft__held_on())) {
        lock_slow(mutex, turn_over, __builtin_return_address(0));
        return;
    }
    uint64_t id = weft__sync_task_id(t);
    if (unlikely(!try_take(m))) {
        lock_contended(m, id);
        return;
    }
    t->locks++;
    own(m, id);
}

static int try_lock(weft_mutex *mutex, void *place) {
    weft__mutex *m = weft__mutex_of(mutex);
    if (!try_take(m)) return WEFT_EAGAIN;
    own(m, weft__sync_id(weft__self()));
    if (unlikely(weft__held_on())) weft__held_add(m, "mutex", place);
    return 0;
}

int weft_mutex_trylock(weft_mutex *m) {
    weft__sync_pause(weft__self());
    return try_lock(m, __builtin_return_address(0));
}

int weft_mutex_lock_until(weft_mutex *mutex, weft_deadline deadline) {
    weft__mutex *m = weft__mutex_of(mutex);
    int err = weft__sync_check(deadline);
    if (err) return err;
    err = try_lock(mutex, __builtin_return_address(0));
    if (!err) return 0;
    uint64_t id = weft__sync_id(weft__self());
    weft__sync_wait w;
    err = weft__sync_begin(&w, m, deadline);
    if (!err && unlikely(weft__load(&m->owner, relaxed) == id)) recursive(m, id); /* as in lock_contended */
    if (!err && !spin(m)) err = wait_for(m, &w);
    weft__sync_end(&w);
    if (err) return err;
    own(m, id);
    if (unlikely(weft__held_on())) weft__held_add(m, "mutex", __builtin_return_address(0));
    return 0;
}

/* ---- unlock ---- */

/* Somebody waits and nobody was woken: under the object's lock, with the mutex still held (M4). */
static WEFT_NOINLINE void release_slow(weft__mutex *m, weft__slot *s) {
    weft__lock *l = weft__sync_lock_of(m);
    weft__block *wake = NULL;
    weft__lock_take(l);
    uint32_t n = weft__load(&m->state, relaxed) & WEFT_WOKEN; /* M1: it does not change */
    if (weft__sync_inherited(&m->waiters, &m->forks)) n = 0;  /* M3 */
    weft__waiter *x = n ? NULL : weft__queue_claim(&m->waiters);
    if (m->waiters.head) n |= WEFT_WAITERS;
    if (x) {
        weft__sync_wait *w = weft__container(x, weft__sync_wait, x);
        bool fair = weft__clock_now() - w->since >= WEFT_MUTEX_FAIR;
        n |= fair ? WEFT_LOCKED | WEFT_HANDED : WEFT_WOKEN;
        if (fair) own(m, w->id);
        wake = x->block;
        wake->result = fair ? HANDED_OVER : WOKEN_UP;
    }
    weft__store(&m->state, n, release); /* pairs with the acquires of whoever takes it; M4 */
    weft__lock_leave(l);
    if (wake) weft__resume(wake, s);
}

/* release: publishes what the holder did; pairs with the acquire in try_take. False: somebody has to be woken. A look first, because a CAS that
 * fails costs as much as one that succeeds, and while somebody waits it would fail each time. The common case has a CAS of its own, which does not
 * have to wait for what was loaded (0.4 ns). */
WEFT_INLINE bool try_release(weft__mutex *m) {
    uint32_t s = weft__load(&m->state, relaxed); /* the CAS decides */
    if (likely(s == WEFT_LOCKED) && likely(weft__cas(&m->state, &s, 0, release))) return true;
    while ((s & (WEFT_WAITERS | WEFT_WOKEN)) != WEFT_WAITERS)
        if (weft__cas(&m->state, &s, s & ~(uint32_t)WEFT_LOCKED, release)) return true;
    return false;
}

void weft__mutex_release(weft__mutex *m, weft__slot *s) {
    if (!try_release(m)) release_slow(m, s);
}

static WEFT_COLD WEFT_NORETURN void not_mine(weft__mutex *m, const char *what, uint64_t id) {
    uint64_t owner = weft__load(&m->owner, relaxed);     /* for people */
    if (!(weft__load(&m->state, relaxed) & WEFT_LOCKED)) /* likewise */
        weft__die("%s: mutex %p is not locked (%s)", what, (void *)m, weft__sync_who(id).s);
    weft__die("%s: mutex %p is held by %s, not by %s", what, (void *)m, weft__sync_who(owner).s, weft__sync_who(id).s);
}

void weft__mutex_mine(weft__mutex *m, const char *what) {
    uint64_t id = weft__sync_id(weft__self());
    if (unlikely(weft__load(&m->owner, relaxed) != id)) not_mine(m, what, id); /* only we could have written it */
}

static WEFT_NOINLINE void unlock_slow(weft__mutex *m) {
    weft__slot *s = weft__enter();
    release_slow(m, s);
    if (s) weft__leave();
}

void weft_mutex_unlock(weft_mutex *mutex) {
    weft__mutex *m = weft__mutex_of(mutex);
    uint64_t id = weft__sync_id(weft__self());
    if (unlikely(weft__load(&m->owner, relaxed) != id)) not_mine(m, "weft_mutex_unlock", id); /* as in weft__mutex_mine */
    if (unlikely(weft__held_on())) weft__held_remove(m, id);
    own(m, 0);
    if (unlikely(!try_release(m))) unlock_slow(m);
}

void weft_mutex_destroy(weft_mutex *mutex) {
    if (!mutex) return;
    weft__mutex *m = weft__mutex_of(mutex);
    if (weft__load(&m->state, acquire) & WEFT_LOCKED) /* acquire: pairs with the last unlock */
        weft__die("weft_mutex_destroy: mutex %p is destroyed while %s holds it", (void *)m,
                  weft__sync_who(weft__load(&m->owner, relaxed)).s); /* for people */
    weft__sync_destroy("mutex", m, sizeof *m, &m->waiters, &m->forks);
}
