/* SPDX-License-Identifier: MIT */
/* Running on the fake clock, where nothing depends on how fast this machine is. */
#ifndef WEFT_TEST_FAKE_H
#define WEFT_TEST_FAKE_H

#include "api/common.h"
#include "sched/sched.h"
#include "time/clock.h"

#define START (5 * WEFT_SECOND) /* the fake clock's first moment */

static inline void run_fake_on(int workers, weft_fn *fn) {
    weft__clock_fake(START);
    CHECK_EQ(run_on(workers, fn, NULL), 0);
    weft__clock_fake(0);
}

/* fn on the fake clock, where nothing but the order of events counts (common.h). */
static inline void run_fake_alone(weft_fn *fn) {
    weft__clock_fake(START);
    CHECK_EQ(weft_run(fn, NULL, &alone), 0);
    weft__clock_fake(0);
}

/* fn on the fake clock, for each number of workers. */
static inline void run_fake(weft_fn *fn) { EACH_WORKERS(w) run_fake_on(w, fn); }

/* Nothing that is due still hangs in the wheel, and nobody is taking things out of it. */
static inline bool nothing_is_due(weft__wheel *w) {
    weft__wheel_enter(w);
    bool quiet = !weft__due_first(w) && weft__wheel_next(w) > weft__clock_now();
    weft__wheel_leave(w);
    return quiet;
}

static inline bool clock_is_served(void *arg) {
    (void)arg;
    if (!nothing_is_due(&weft__rt.outside)) return false;
    for (int i = 0; i < weft__rt.slots; i++)
        if (!nothing_is_due(&weft__rt.slot[i].wheel)) return false;
    return true;
}

/* Returns when the runtime has done all that the clock asks for, and those it woke had their turns: with one worker for certain. The
 * global queue has its turn every 61 rounds. */
static inline void let_others_run(void) {
    test_task_until(clock_is_served, NULL);
    for (int i = 0; i < 3 * WEFT_GLOBAL_EVERY; i++) weft_yield();
}

#endif
