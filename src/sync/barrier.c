/* SPDX-License-Identifier: MIT */
/* The barrier: all under the object's lock. `come` is at least the number of those on the queue: one who gives up is taken off by whoever ends
 * its wait, who knows nothing of a barrier. So the queue is counted when `come` says that all are there. */
#include "sync/sync.h"

typedef struct weft__barrier {
    uint32_t parties; /* fixed */
    uint32_t come;    /* under the object's lock, as the queue */
    weft__queue waiters;
    uint32_t forks; /* weft__sync_inherited; likewise */
} weft__barrier;
_Static_assert(sizeof(weft__barrier) <= sizeof(weft_barrier), "a barrier fits its storage");

static weft__barrier *barrier_of(weft_barrier *b) {
    return (weft__barrier *)(void *)b;
}

int weft_barrier_init(weft_barrier *barrier, uint32_t parties) {
    if (parties == 0) return WEFT_EINVAL;
    *barrier_of(barrier) = (weft__barrier){.parties = parties};
    return 0;
}

static uint32_t waiting(const weft__barrier *b) {
    uint32_t n = 0;
    for (const weft__waiter *x = b->waiters.head; x; x = x->next) n++;
    return n;
}

/* The caller has come. True: as the last. */
static bool arrive(weft__barrier *b) {
    if (b->come + 1 < b->parties) return false;
    b->come = waiting(b);
    return b->come + 1 == b->parties;
}

static int meet(weft__barrier *b, weft__sync_wait *w, int poll) {
    weft__queue woken = {NULL, NULL};
    weft__sync_take(w);
    if (weft__sync_inherited(&b->waiters, &b->forks)) b->come = 0;
    if (arrive(b)) {
        b->come = 0;
        while (weft__sync_claim(&b->waiters, &woken)) continue;
        weft__lock_leave(w->lock);
        weft__sync_resume(&woken, w->slot);
        return 1;
    }
    if (poll) {
        weft__lock_leave(w->lock);
        return poll;
    }
    b->come++;
    return weft__sync_wait_on(w, &b->waiters, WEFT_WAIT_BARRIER);
}

int weft_barrier_wait(weft_barrier *barrier, weft_deadline deadline) {
    weft__barrier *b = barrier_of(barrier);
    if (b->parties == 0) weft__die("weft_barrier_wait: barrier %p was not initialised", (void *)b);
    int err = weft__sync_check(deadline);
    if (err) return err;
    weft__sync_wait w;
    err = weft__sync_begin(&w, b, deadline);
    err = meet(b, &w, err); /* also if it is not to wait: it may be the last */
    weft__sync_end(&w);
    return err;
}

void weft_barrier_destroy(weft_barrier *barrier) {
    if (!barrier) return;
    weft__barrier *b = barrier_of(barrier);
    weft__sync_destroy("barrier", b, sizeof *b, &b->waiters, &b->forks);
}
