/* SPDX-License-Identifier: MIT */
/* Waiting for one of several objects that have locks of their own: what select and weft_task_any share. The state of the block
 * decides who wins (park.h). All objects are locked, in the order of their addresses, while they are looked at and queued on, so none
 * can become ready unseen in between.
 *
 * What waiting needs (the order, the queues' entries, a deadline) is prepared only by who has to wait: callers look at the objects one
 * by one first. The functions of weft__many_kind are constants of each caller, so they are compiled into its copy of the wait. */
#ifndef WEFT_SRC_MANY_H
#define WEFT_SRC_MANY_H

#include "park/park.h"
#include "sched/switch.h"
#include "task/task.h"

enum { WEFT_MANY_ON_STACK = 16 }; /* objects that need no allocation */

typedef struct weft__many {
    weft__block *block;
    weft__lock **order; /* the objects' locks by address, each once; type-stable: P4 */
    size_t locks;
    bool apart; /* the objects have not been looked at together yet: who must not wait does, too */
} weft__many;

typedef struct weft__many_kind {
    int reason; /* WEFT_WAIT_… */
    /* With all locks held. Looks whether one is ready: true, *result is what to return, *wake is to be resumed (or NULL). */
    bool (*look)(weft__many *m, weft__slot *s, int *result, weft__block **wake);
    /* Likewise: a waiter, marked `many`, on each object's queue. */
    void (*queue)(weft__many *m, weft__slot *s);
    /* Without locks: takes off, under its object's lock, every waiter that is still on a queue. `result` is the winner's; the waiter
     * that it took off needs no look, nor the lock: see weft__many_post. */
    void (*withdraw)(weft__many *m, int32_t result, weft__slot *s);
} weft__many_kind;

/* Sorts the first n of `order` and drops what is there twice. */
void weft__many_sort_all(weft__many *m, size_t n);
WEFT_INLINE void weft__many_sort(weft__many *m, size_t n) {
    weft__lock **order = m->order;
    if (unlikely(n > 2)) {
        weft__many_sort_all(m, n);
        return;
    }
    m->locks = n;
    if (n < 2 || (uintptr_t)order[0] < (uintptr_t)order[1]) return;
    weft__lock *first = order[1];
    order[1] = order[0];
    order[0] = first;
    if (first == order[1]) m->locks = 1;
}

WEFT_INLINE void weft__many_lock(weft__many *m, weft__slot *s) {
    for (size_t i = 0; i < m->locks; i++) weft__lock_take_on(m->order[i], s);
}
WEFT_INLINE void weft__many_unlock(weft__lock **order, size_t n) {
    for (size_t i = 0; i < n; i++) weft__lock_leave(order[i]);
}

/* Behind the waiter. Once PARKED is stored, a cancellation may resume it at any time; it then takes every one of these locks before its
 * frame goes. A partner may resume it as soon as its own object's lock is left; the waiter then takes the others. Either way the frame
 * is there until the last lock is left, and not touched after that. */
void weft__many_post(weft__slot *s, void *many);
/* What the waiter has done is seen by those who take the locks next (context/sanitize.h). */
WEFT_INLINE void weft__many_san_parks(weft__many *m) {
    for (size_t i = 0; weft__san_tasks && i < m->locks; i++) weft__san_release(m->order[i]);
}

/* One attempt. False: it did not park. `refused`: it must not, and this is why; or 0. */
WEFT_INLINE bool weft__many_park(weft__many *m, weft__many_kind kind, weft__wait *wait, weft_deadline deadline, int refused,
                                 int *result, weft__slot **s) {
    weft__block *b = m->block, *wake = NULL;
    weft__many_begin(b);
    weft__many_lock(m, *s);
    if (unlikely(m->locks == 0))
        atomic_thread_fence(memory_order_seq_cst); /* P3, with no object at all */
    else
        weft__lock_fence(m->order[m->locks - 1]); /* P3: behind the last one */
    if (kind.look(m, *s, result, &wake) || (*result = refused) != 0 ||
        (*result = wait->armed ? weft__wait_check(wait) : weft__cancel_check(b)) != 0) {
        weft__many_unlock(m->order, m->locks);
        weft__many_end(b);
        if (wake) weft__resume(wake, *s);
        return false;
    }
    kind.queue(m, *s);
    *s = weft__wait_many(b, *s, deadline, kind.reason, weft__many_post, m);
    *result = b->result;
    kind.withdraw(m, *result, *s);
    weft__many_end(b);
    return true;
}

/* Waits; to be called after a look has found nothing, or with `apart` instead of one. With WEFT_POLL
 * or a past deadline, and `apart`, it looks at all objects at one moment, and does not wait. *result is what `look` gave, or what the winner wrote into the block (an error: a
 * deadline or a cancellation, or nothing was waited for). True: the winner's. *s is the slot we are on then. */
WEFT_INLINE bool weft__many_wait(weft__many *m, weft__many_kind kind, weft_deadline deadline, int *result, weft__slot **s) {
    weft__wait wait;
    bool parked, plain = deadline.ns == 0 && m->block->linked != WEFT_LINK_NONE; /* then there is nothing to prepare */
    wait.armed = false;
    int refused = *result = plain ? 0 : weft__wait_prepare(&wait, m->block, deadline, *s);
    if (refused && !m->apart) return false;
    do {
        parked = weft__many_park(m, kind, &wait, deadline, refused, result, s);
    } while (parked && unlikely(*result == WEFT_AWAIT_AGAIN));
    if (wait.armed) weft__wait_finish(&wait);
    return parked;
}

#endif
