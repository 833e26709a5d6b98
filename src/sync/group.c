/* SPDX-License-Identifier: MIT */
/* The wait group: a count, and those who wait for it to become 0.
 *
 *   state   the count, and WAITERS: somebody may be on the queue. The step to 0 with WAITERS is made under the object's lock (L2),
 *           every other one by a CAS. */
#include "sync/sync.h"

#define WAITERS (INT64_C(1) << 40)
#define COUNT(s) ((s) & (WAITERS - 1))
#define MOST INT32_MAX

typedef struct weft__group {
    _Atomic int64_t state;
    weft__queue waiters; /* under the object's lock */
    uint32_t forks;      /* weft__sync_inherited; likewise */
} weft__group;
_Static_assert(sizeof(weft__group) <= sizeof(weft_waitgroup), "a wait group fits its storage");

static weft__group *group_of(weft_waitgroup *g) {
    return (weft__group *)(void *)g;
}

static void check(weft__group *g, int64_t count, int n) {
    if (count + n < 0)
        weft__die("weft_waitgroup_%s: wait group %p has %lld to wait for, and %d more are done", n == -1 ? "done" : "add",
                  (void *)g, (long long)count, -n);
    if (count + n > MOST) weft__die("weft_waitgroup_add: wait group %p has more than %d to wait for", (void *)g, MOST);
}

/* Adds, unless that wakes somebody. */
static bool try_add(weft__group *g, int n) {
    int64_t s = weft__load(&g->state, relaxed); /* the CAS decides */
    do {
        check(g, COUNT(s), n);
        if ((s & WAITERS) && COUNT(s) + n == 0) return false;
    } while (!weft__cas(&g->state, &s, s + n, acq_rel)); /* whoever waits sees what all did; pairs with itself and with wait */
    return true;
}

/* The last one is done: all who wait go on, under the lock. WAITERS stays until they are off the queue, so that nobody takes the group
 * for over, and frees it, before (L2). */
static WEFT_NOINLINE void add_slow(weft__group *g, int n) {
    weft__slot *slot = weft__enter();
    weft__lock *l = weft__sync_lock_of(g);
    weft__queue woken = {NULL, NULL};
    weft__lock_take(l);
    (void)weft__sync_inherited(&g->waiters, &g->forks);
    int64_t s = weft__load(&g->state, relaxed); /* the CAS decides */
    do check(g, COUNT(s), n);
    while (!weft__cas(&g->state, &s, s + n, acq_rel)); /* as in try_add */
    if (s + n == WAITERS) {
        while (weft__sync_claim(&g->waiters, &woken)) continue;
        weft__sub(&g->state, WAITERS, release); /* pairs with weft_waitgroup_wait; the last touch */
    }
    weft__lock_leave(l);
    weft__sync_resume(&woken, slot);
    if (slot) weft__leave();
}

void weft_waitgroup_add(weft_waitgroup *group, int n) {
    weft__group *g = group_of(group);
    if (n && !try_add(g, n)) add_slow(g, n);
}

void weft_waitgroup_done(weft_waitgroup *g) {
    weft_waitgroup_add(g, -1);
}

/* Under the lock: it is over, or word is left that somebody waits. */
static bool over_or_announce(weft__group *g) {
    int64_t s;
    /* Pairs with the last CAS of try_add. Each time: a CAS that fails acquires nothing. */
    while (COUNT(s = weft__load(&g->state, acquire)))
        if ((s & WAITERS) || weft__cas(&g->state, &s, s | WAITERS, acquire)) return false; /* as above */
    return true;
}

int weft_waitgroup_wait(weft_waitgroup *group, weft_deadline deadline) {
    weft__group *g = group_of(group);
    int err = weft__sync_check(deadline);
    if (err) return err;
    if (weft__load(&g->state, acquire) == 0) return 0; /* pairs with the last CAS of try_add, or the end of add_slow */
    weft__sync_wait w;
    err = weft__sync_begin(&w, g, deadline);
    if (!err) {
        weft__sync_take(&w);
        (void)weft__sync_inherited(&g->waiters, &g->forks);
        if (over_or_announce(g))
            weft__lock_leave(w.lock);
        else
            err = weft__sync_wait_on(&w, &g->waiters, WEFT_WAIT_GROUP);
    }
    weft__sync_end(&w);
    return err;
}

void weft_waitgroup_destroy(weft_waitgroup *group) {
    if (!group) return;
    weft__group *g = group_of(group);
    weft__sync_destroy("waitgroup", g, sizeof *g, &g->waiters, &g->forks);
}
