/* SPDX-License-Identifier: MIT */
/* Tasks that are not like the others: of high or low priority, or pinned to their worker.
 *
 * They never enter a slot's own queues, so that choosing among the others costs nothing more. Their blocks are WEFT_BLOCK_SPECIAL, which
 * every fast path that makes a task ready tells from WEFT_BLOCK_TASK anyway.
 *
 * Lanes. One global queue for each priority but normal. Whoever makes a high task ready has its own slot attend to it at its next round
 * (weft__attend_soon), or wakes an idle worker; busy slots look every WEFT_GLOBAL_EVERY rounds, and the watch (watch.c) sends them there when
 * that takes too long. So that a flood of high tasks leaves the others a quarter of the time, a slot that ran one for d ns owes the others
 * d/3 before it takes the next, if there are others. Low tasks run when a slot has nothing else to do, and one of them when none has run for
 * WEFT_LOW_EVERY.
 *
 * Pinned tasks wait in their worker's inbox, under the idle lock (idle.c): a worker that sleeps with something in there gets the next slot that
 * anybody gives up; one that holds a slot attends to it two rounds later (one round for others in between). */
#ifndef WEFT_SRC_LANE_H
#define WEFT_SRC_LANE_H

#include "sched/sched.h"

enum {
    WEFT_LANE_NORMAL,
    WEFT_LANE_HIGH,
    WEFT_LANE_LOW,
    WEFT_LANE_SHARE = 3, /* what high tasks ran, divided by this, is owed to the others: a quarter of all */
};
#define WEFT_LANE_CREDIT WEFT_MS      /* what may be owed before it is paid, so that short tasks do not alternate */
#define WEFT_LOW_EVERY (50 * WEFT_MS) /* a low task runs at least so often, if one waits */

/* A special task is ready. `s`: the caller's slot, NULL outside. */
void weft__special_ready(weft__slot *s, weft__task *t);
/* A fresh task of a lane. */
void weft__lane_spawn(weft__slot *s, weft__fresh *f, int lane);
/* The first of the lane; 0: empty. */
weft__work weft__lane_take(int lane);
bool weft__lane_waits(int lane);
/* A low task has waited for too long, by the clock that tests may move. */
bool weft__low_starves(void);

/* Something special is to be looked at. False: go on with the others. True: *k is to run now, or, 0, the worker's own stack is to decide. */
bool weft__lane_attend(weft__slot *s, weft__work *k);
/* High tasks, as far as the others' share allows. */
weft__work weft__lane_high(weft__slot *s);

#endif
