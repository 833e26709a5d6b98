/* SPDX-License-Identifier: MIT */
/* The semaphore.
 *
 *   state   the units, and WAITERS: somebody may be on the queue. With WAITERS the units are the first waiter's, which wants more than there
 *           are, and the state changes under the object's lock only (L1); without it, by one CAS.
 * Units that are released go straight to the first waiter, as soon as there are enough for it: first come, first served, and nobody gets part of
 * what it wants. A waiter that gives up may leave units that are enough for the next one: it serves the queue itself. */
#include "sync/sync.h"

#define WAITERS (UINT32_C(1) << 31)

typedef struct weft__sem {
    _Atomic uint32_t state;
    uint32_t forks;      /* weft__sync_inherited; under the object's lock */
    weft__queue waiters; /* under the object's lock */
} weft__sem;
_Static_assert(sizeof(weft__sem) <= sizeof(weft_sem), "a semaphore fits its storage");

static weft__sem *sem_of(weft_sem *s) {
    return (weft__sem *)(void *)s;
}

int weft_sem_init(weft_sem *sem, uint32_t units) {
    if (units > WEFT_SEM_MAX) return WEFT_EINVAL;
    memset(sem, 0, sizeof *sem);
    weft__store(&sem_of(sem)->state, units, relaxed); /* nobody else uses it yet */
    return 0;
}

static WEFT_COLD WEFT_NORETURN void too_many(weft__sem *m, uint32_t have, uint32_t units) {
    weft__die("weft_sem_release: semaphore %p has %u units, and %u more are too many", (void *)m, have, units);
}

/* Releases units that nobody waits for. False: somebody does. */
WEFT_INLINE bool add(weft__sem *m, uint32_t units) {
    uint32_t s = weft__load(&m->state, relaxed); /* the CAS decides */
    while (!(s & WAITERS)) {
        if (unlikely(units > WEFT_SEM_MAX - s)) too_many(m, s, units);
        if (weft__cas(&m->state, &s, s + units, release)) return true; /* pairs with try_take; L2 */
    }
    return false;
}

/* acquire: sees what was done before the units were released; pairs with the releases in give. */
WEFT_INLINE bool try_take(weft__sem *m, uint32_t units) {
    uint32_t s = weft__load(&m->state, relaxed); /* the CAS decides */
    while ((int32_t)s >= (int32_t)units)         /* with WAITERS it is negative */
        if (weft__cas(&m->state, &s, s - units, acquire)) return true;
    return false;
}

/* Takes the units, or leaves word that somebody waits. Caller holds the lock. */
static bool take_or_announce(weft__sem *m, uint32_t units) {
    bool first = !m->waiters.head, enough;
    uint32_t s = weft__load(&m->state, relaxed), n; /* the CAS decides */
    do {
        enough = first && (s & ~WAITERS) >= units;
        n = enough ? (s & ~WAITERS) - units : s | WAITERS;
    } while (!weft__cas(&m->state, &s, n, acquire)); /* as in try_take */
    return enough;
}

/* Gives the waiters what there is and `more`, in their order. Caller holds the lock, and WAITERS is set. */
static void serve(weft__sem *m, uint32_t more, weft__queue *woken) {
    uint32_t had = weft__load(&m->state, acquire) & ~WAITERS; /* pairs with the releases */
    uint64_t have = (uint64_t)had + more;
    for (weft__waiter *x; (x = m->waiters.head) && x->index <= have; have -= x->index)
        (void)weft__sync_claim(&m->waiters, woken);
    if (unlikely(have > WEFT_SEM_MAX)) too_many(m, had, more);
    weft__store(&m->state, (uint32_t)have | (m->waiters.head ? WAITERS : 0), release); /* pairs with try_take; L2 */
}

/* A waiter has given up, and may have been the first. Caller is inside the runtime, or a plain thread. */
static WEFT_COLD void pass_on(weft__sem *m, weft__lock *l, weft__slot *slot) {
    weft__queue woken = {NULL, NULL};
    weft__lock_take(l);
    (void)weft__sync_inherited(&m->waiters, &m->forks);
    if (weft__load(&m->state, relaxed) & WAITERS) serve(m, 0, &woken); /* under the lock */
    weft__lock_leave(l);
    weft__sync_resume(&woken, slot);
}

static WEFT_NOINLINE int acquire_slow(weft__sem *m, uint32_t units, weft_deadline deadline) {
    weft__sync_wait w;
    int err = weft__sync_begin(&w, m, deadline);
    if (!err) {
        w.x.index = units;
        weft__sync_take(&w);
        (void)weft__sync_inherited(&m->waiters, &m->forks);
        if (take_or_announce(m, units))
            weft__lock_leave(w.lock);
        else if ((err = weft__sync_wait_on(&w, &m->waiters, WEFT_WAIT_SEM)))
            pass_on(m, w.lock, w.slot);
    }
    weft__sync_end(&w);
    return err;
}

WEFT_INLINE int acquire(weft_sem *sem, uint32_t units, weft_deadline deadline) {
    weft__sem *m = sem_of(sem);
    int err = weft__sync_check(deadline);
    if (err) return err;
    return likely(try_take(m, units)) ? 0 : acquire_slow(m, units, deadline);
}

int weft_sem_acquire(weft_sem *sem, weft_deadline deadline) {
    return acquire(sem, 1, deadline);
}

int weft_sem_acquire_n(weft_sem *sem, uint32_t units, weft_deadline deadline) {
    if (units > WEFT_SEM_MAX) return WEFT_EINVAL;
    return units ? acquire(sem, units, deadline) : 0;
}

int weft_sem_try(weft_sem *sem) {
    weft__sync_pause(weft__self());
    return try_take(sem_of(sem), 1) ? 0 : WEFT_EAGAIN;
}

uint32_t weft_sem_available(weft_sem *sem) {
    uint32_t s = weft__load(&sem_of(sem)->state, relaxed); /* it may be another number by the time it is looked at */
    return s & WAITERS ? 0 : s;
}

/* Somebody waits: under the lock the units are theirs first. */
static WEFT_NOINLINE void give(weft__sem *m, uint32_t units) {
    weft__slot *slot = weft__enter();
    weft__lock *l = weft__sync_lock_of(m);
    weft__queue woken = {NULL, NULL};
    weft__lock_take(l);
    (void)weft__sync_inherited(&m->waiters, &m->forks);
    if (!add(m, units)) serve(m, units, &woken);
    weft__lock_leave(l);
    weft__sync_resume(&woken, slot);
    if (slot) weft__leave();
}

void weft_sem_release_n(weft_sem *sem, uint32_t units) {
    if (units && !add(sem_of(sem), units)) give(sem_of(sem), units);
}

void weft_sem_release(weft_sem *s) {
    weft_sem_release_n(s, 1);
}

void weft_sem_destroy(weft_sem *sem) {
    if (!sem) return;
    weft__sem *m = sem_of(sem);
    weft__sync_destroy("sem", m, sizeof *m, &m->waiters, &m->forks);
}
