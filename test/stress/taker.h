/* SPDX-License-Identifier: MIT */
/* Slots are taken away at random, from workers that are outside the runtime at that moment: as the watch does, and much more often. A thread
 * does so all the time; but where two threads seldom run at once, on a machine with other things to do, it finds hardly anybody outside. So the
 * tasks do it too, between their calls, to each other and to themselves. */
#ifndef WEFT_TEST_TAKER_H
#define WEFT_TEST_TAKER_H

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "sched/handoff.h"
#include "sched/idle.h"
#include "task/task.h"
#include "test.h"

enum { IN_VAIN = 256 }; /* attempts before it lets others run */

static struct {
    pthread_t thread;
    _Atomic bool stop;
    _Atomic long taken, tried;
} taker;

/* Most slots go to the idle list, where the task that lost its slot finds it again at its next call: so the same few threads go through the
 * protocol thousands of times, however long a woken thread would be in coming. The others go to another worker, as the watch gives
 * them, and some as from a task that was found computing: its worker is a stray then. Others keep theirs, and are said to compute (H11). */
static inline bool take_a_slot(uint64_t *rnd) {
    bool took = false;
    atomic_fetch_add(&taker.tried, 1);
    (void)weft__runtime_phase(); /* in the child of a fork, forgets who was inside */
    weft__foreign_enter();       /* the slots stay meanwhile */
    int phase = weft__runtime_phase();
    if (phase == WEFT_PHASE_RUNNING || phase == WEFT_PHASE_STOPPING) {
        weft__slot *s = &weft__rt.slot[test_below(rnd, (uint64_t)weft__rt.slots)];
        if (test_below(rnd, 16) == 0) weft__store(&s->watch_finds, WEFT_FOUND_COMPUTING, relaxed); /* the watch's own hint */
        weft__worker *w = test_below(rnd, 16) ? NULL : weft__load(&s->owner, acquire);             /* H6 */
        if (w) weft__worker_yield_cpu(s, w);
        if (test_below(rnd, 32) == 0)
            took = weft__slot_take(s);
        else if ((took = weft__slots_seize(&s, 1) == 1))
            weft__idle_return(s);
    }
    weft__foreign_leave();
    if (took) atomic_fetch_add(&taker.taken, 1);
    return took;
}

static inline void *taker_main(void *seed) {
    uint64_t rnd = (uint64_t)(uintptr_t)seed;
    for (int in_vain = 0; !atomic_load(&taker.stop); in_vain++) {
        if (take_a_slot(&rnd)) in_vain = 0;
        if (in_vain == IN_VAIN) {
            sched_yield(); /* the slots are on their way to somebody who needs a CPU */
            in_vain = 0;
        }
        for (uint64_t i = test_below(&rnd, 20); i > 0; i--) weft__cpu_relax();
    }
    return NULL;
}

static inline void taker_start(void) {
    atomic_store(&taker.taken, 0);
    atomic_store(&taker.tried, 0);
    atomic_store(&taker.stop, false);
    CHECK_EQ(pthread_create(&taker.thread, NULL, taker_main, (void *)(uintptr_t)(test_seed() | 1)), 0);
}

static inline void taker_stop(int slots, long least) {
    atomic_store(&taker.stop, true);
    pthread_join(taker.thread, NULL);
    printf("%d slots: %ld of %ld attempts took a slot\n", slots, atomic_load(&taker.taken), atomic_load(&taker.tried));
    CHECK_GE(atomic_load(&taker.taken), least);
}

#endif
