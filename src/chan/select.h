/* SPDX-License-Identifier: MIT */
/* What the two selects share: one case of channels or tasks, under its lock. Inlined, with `tasks` a constant: the fast path knows that no case is one. */
#ifndef WEFT_SRC_SELECT_H
#define WEFT_SRC_SELECT_H

#include "chan/chan.h"
#include "park/many.h"
#include "sched/handoff.h"

#include <weft/select.h>

enum { WEFT_SELECT_MAX = 0xffff };           /* cases: index and closed flag share a word */
#define WEFT_SELECT_NONE (INT32_MIN + 1)     /* of a look: no case can be done */
#define WEFT_SELECT_WITH_FDS (INT32_MIN + 2) /* of a look: some cases are descriptors, and nothing was done */

/* The select whose cases may be descriptors (select_fd.c). */
WEFT_COLD int weft__select_fds(weft_case *cases, size_t n, bool ordered, weft_deadline deadline);
/* A case that can be done, but not under the lock alone; another may have been faster. */
WEFT_COLD int weft__select_aided(weft_case *cases, size_t n, bool ordered, weft_deadline deadline, uint32_t index);

/* A descriptor's, by its number or as a connection. */
WEFT_INLINE bool weft__case_is_fd(const weft_case *k) {
    return k->op == WEFT_CASE_FD || k->op == WEFT_CASE_CONN;
}

WEFT_INLINE weft__lock *weft__case_lock(const weft_case *k, bool tasks) {
    return tasks && k->op == WEFT_CASE_TASK ? &k->task->lock : &k->chan->lock;
}
WEFT_INLINE weft__queue *weft__case_queue(const weft_case *k, bool tasks) {
    if (tasks && k->op == WEFT_CASE_TASK) return &k->task->joiners;
    return k->op == WEFT_CASE_SEND ? &k->chan->senders : &k->chan->receivers;
}

/* The decisive step of one case, under its lock: the result of a look, or WEFT_SELECT_NONE. `tasks`: some cases may be tasks'. */
WEFT_INLINE int32_t weft__case_try_locked(weft_case *k, uint32_t index, bool tasks, weft__block **wake) {
    if (tasks && k->op == WEFT_CASE_TASK) return k->task->ended ? (int32_t)index : WEFT_SELECT_NONE;
    weft_chan *c = k->chan;
    bool small = c->elem <= WEFT_CHAN_SMALL;
    int r = k->op == WEFT_CASE_RECV ? weft__chan_recv_locked(c, k->elem, wake, small)
                                    : weft__chan_send_locked(c, k->elem, wake, small);
    if (r == 0) return (int32_t)index;
    if (r == WEFT_CHAN_WAIT) return WEFT_SELECT_NONE;
    return (int32_t)(index | (r == WEFT_CHAN_AID ? WEFT_SELECT_AIDED : WEFT_SELECT_CLOSED));
}
/* The same with the lock taken for it, from inside the runtime on the slot s (NULL: from outside), unless it is held. */
WEFT_INLINE int32_t weft__case_try(weft_case *k, uint32_t index, bool locked, bool tasks, weft__slot *s, weft__block **wake) {
    if (unlikely(!k->chan)) return WEFT_SELECT_NONE;
    if (locked) return weft__case_try_locked(k, index, tasks, wake);
    weft__lock_take_on(weft__case_lock(k, tasks), s);
    int32_t r = weft__case_try_locked(k, index, tasks, wake);
    weft__lock_leave(weft__case_lock(k, tasks));
    return r;
}

WEFT_INLINE uint32_t weft__select_index(int32_t result) {
    return result < 0 ? UINT32_MAX : (uint32_t)result & WEFT_SELECT_MAX;
}

/* In [0, n), without a division. */
WEFT_INLINE uint32_t weft__random_below(uint32_t *random, uint32_t n) {
    return (uint32_t)(((uint64_t)weft__random(random) * n) >> 32);
}
/* Where the caller's random numbers come from. */
uint32_t *weft__select_random(weft__slot *s);
/* A random order of n cases: `turn` has those whose turn has not come. weft__turn_next takes one of the first n of them. */
WEFT_INLINE void weft__turn_all(uint16_t *turn, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) turn[i] = (uint16_t)i;
}
WEFT_INLINE uint32_t weft__turn_next(uint16_t *turn, uint32_t n, uint32_t *random) {
    uint32_t at = weft__random_below(random, n), i = turn[at];
    turn[at] = turn[n - 1];
    return i;
}

/* What a case that happened means for the caller. */
WEFT_INLINE int weft__select_outcome(weft_case *cases, size_t n, bool ordered, weft_deadline deadline, int32_t result,
                                     bool tasks) {
    if (unlikely(result < 0))
        return tasks && result == WEFT_SELECT_WITH_FDS ? weft__select_fds(cases, n, ordered, deadline) : result;
    uint32_t index = weft__select_index(result);
    weft_case *k = &cases[index];
    if (unlikely(result & (WEFT_SELECT_CLOSED | WEFT_SELECT_AIDED))) {
        if (result & WEFT_SELECT_AIDED) return weft__select_aided(cases, n, ordered, deadline, index);
        if (!k->open) return WEFT_ECLOSED;
        *k->open = false;
    } else if (tasks && k->op == WEFT_CASE_TASK) {
        int r = weft__handle_take(k->task);
        if (k->elem) *(int *)k->elem = r;
    } else if (k->open) {
        *k->open = true;
    }
    return (int)index;
}

#endif
