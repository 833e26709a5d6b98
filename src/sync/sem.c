/* SPDX-License-Identifier: MIT */
/* The semaphore: units, or waiters, never both.
 *
 *   state   the units, and WAITERS: somebody may be on the queue. With WAITERS there are no units, and the state changes under the
 *           object's lock only (L1); without it, by one CAS.
 * A unit that is released goes straight to the first waiter: first come, first served. */
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

/* acquire: sees what was done before the unit was released; pairs with the releases in give. */
static bool try_take(weft__sem *m) {
    uint32_t s = weft__load(&m->state, relaxed); /* the CAS decides */
    while (s && !(s & WAITERS))
        if (weft__cas(&m->state, &s, s - 1, acquire)) return true;
    return false;
}

/* Under the lock: takes a unit, or leaves word that somebody waits. */
static bool take_or_announce(weft__sem *m) {
    uint32_t s = weft__load(&m->state, relaxed), n; /* the CAS decides */
    do {
        if (s & WAITERS) return false;
        n = s ? s - 1 : WAITERS;
    } while (!weft__cas(&m->state, &s, n, acquire)); /* as in try_take */
    return s != 0;
}

int weft_sem_acquire(weft_sem *sem, weft_deadline deadline) {
    weft__sem *m = sem_of(sem);
    int err = weft__sync_check(deadline);
    if (err) return err;
    if (try_take(m)) return 0;
    weft__sync_wait w;
    err = weft__sync_begin(&w, m, deadline);
    if (!err) {
        weft__sync_take(&w);
        (void)weft__sync_inherited(&m->waiters, &m->forks);
        if (take_or_announce(m))
            weft__lock_leave(w.lock);
        else
            err = weft__sync_wait_on(&w, &m->waiters, WEFT_WAIT_SEM);
    }
    weft__sync_end(&w);
    return err;
}

int weft_sem_try(weft_sem *sem) {
    weft__sync_pause(weft__self());
    return try_take(sem_of(sem)) ? 0 : WEFT_EAGAIN;
}

static void too_many(weft__sem *m, uint32_t have, uint32_t units) {
    if (have > WEFT_SEM_MAX || units > WEFT_SEM_MAX - have)
        weft__die("weft_sem_release: semaphore %p has %u units, and %u more are too many", (void *)m, have, units);
}

/* Somebody waits: under the lock the units are theirs first. */
static WEFT_NOINLINE void give(weft__sem *m, uint32_t units) {
    weft__slot *slot = weft__enter();
    weft__lock *l = weft__sync_lock_of(m);
    weft__queue woken = {NULL, NULL};
    weft__lock_take(l);
    (void)weft__sync_inherited(&m->waiters, &m->forks);
    while (units && weft__sync_claim(&m->waiters, &woken)) units--;
    uint32_t s = weft__load(&m->state, relaxed), n; /* the CAS decides */
    do {
        uint32_t have = s & ~WAITERS;
        too_many(m, have, units);
        n = m->waiters.head ? WAITERS : have + units;
    } while (!weft__cas(&m->state, &s, n, release)); /* pairs with try_take; L2 */
    weft__lock_leave(l);
    weft__sync_resume(&woken, slot);
    if (slot) weft__leave();
}

void weft_sem_release_n(weft_sem *sem, uint32_t units) {
    weft__sem *m = sem_of(sem);
    uint32_t s = weft__load(&m->state, relaxed); /* the CAS decides */
    while (units && !(s & WAITERS)) {
        too_many(m, s, units);
        if (weft__cas(&m->state, &s, s + units, release)) return; /* pairs with try_take; L2 */
    }
    if (units) give(m, units);
}

void weft_sem_release(weft_sem *s) {
    weft_sem_release_n(s, 1);
}

void weft_sem_destroy(weft_sem *sem) {
    if (!sem) return;
    weft__sem *m = sem_of(sem);
    weft__sync_destroy("sem", m, sizeof *m, &m->waiters, &m->forks);
}
