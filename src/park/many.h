/* SPDX-License-Identifier: MIT */
/* Waiting for one of several objects that have locks of their own: what select and weft_task_any share. The state of the block
 * decides who wins (park.h). All objects are locked, in the order of their addresses, while they are looked at and queued on, so none
 * can become ready unseen in between. */
#ifndef WEFT_SRC_MANY_H
#define WEFT_SRC_MANY_H

#include "park/park.h"

enum { WEFT_MANY_ON_STACK = 16 }; /* objects that need no allocation */

typedef struct weft__many weft__many;
struct weft__many {
    weft__block *block;
    weft__lock **order; /* the objects' locks by address, each once; type-stable: P4 */
    size_t locks;
    /* With all locks held. Looks whether one is ready: true, *result is what to return, *wake is to be resumed (or NULL). */
    bool (*look)(weft__many *m, weft__slot *s, int *result, weft__block **wake);
    /* Likewise: a waiter, marked `many`, on each object's queue. */
    void (*queue)(weft__many *m);
    /* Without locks: takes off, under its object's lock, every waiter that is still on a queue. */
    void (*withdraw)(weft__many *m);
};

/* Sorts the first n of `order` and drops what is there twice. */
void weft__many_sort(weft__many *m, size_t n);

WEFT_INLINE void weft__many_lock(weft__many *m) {
    for (size_t i = 0; i < m->locks; i++) weft__lock_take(m->order[i]);
}
WEFT_INLINE void weft__many_unlock(weft__lock **order, size_t n) {
    for (size_t i = 0; i < n; i++) weft__lock_leave(order[i]);
}

/* Waits; to be called after a look has found nothing. *result is what `look` gave, or what the winner wrote into the block (an error: a
 * deadline or a cancellation, or nothing was waited for). True: the winner's. *s is the slot we are on then. */
bool weft__many_wait(weft__many *m, weft_deadline deadline, int reason, int *result, weft__slot **s);

#endif
