/* SPDX-License-Identifier: MIT */
/* What tasks and threads of a stress test do by chance. */
#ifndef WEFT_TEST_ACTOR_H
#define WEFT_TEST_ACTOR_H

#include <sched.h>

#include "api/common.h"

/* A stream of chance for each, from the seed of all. */
static inline uint64_t actor_seed(uint64_t seed, int who) {
    uint64_t s = seed + (uint64_t)who * 7919;
    return test_random_from(&s);
}

static inline weft_deadline random_deadline(uint64_t *rnd) {
    switch (test_below(rnd, 6)) {
    case 0:
        return WEFT_POLL;
    case 1:
        return weft_at(1);
    case 2:
    case 3:
        return weft_after((int64_t)test_below(rnd, 100) * WEFT_US);
    default:
        return WEFT_FOREVER;
    }
}

static inline void let_others(void) { weft_self() ? weft_yield() : (void)sched_yield(); }

static inline void random_pause(uint64_t *rnd) {
    uint64_t kind = test_below(rnd, 20);
    if (kind < 6)
        let_others();
    else if (kind == 6)
        weft_sleep_for((int64_t)test_below(rnd, 60) * WEFT_US);
}

#endif
