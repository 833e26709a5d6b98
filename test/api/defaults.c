/* SPDX-License-Identifier: MIT */
/* The defaults that the documentation promises. A change of one of them is a change for users, and has to be made here, too. */
#include "api/common.h"
#include "sched/sched.h"

#include <weft/block.h>
#include <weft/debug.h>

/* The environment fills in what the configuration leaves out. */
static void forget_environment(void) {
    static const char *const names[] = {"WEFT_WORKERS", "WEFT_STACK_SIZE",        "WEFT_MAX_THREADS",       "WEFT_SEARCH",
                                        "WEFT_SLICE",   "WEFT_BOUND_THREADS_MAX", "WEFT_BLOCK_THREADS_MAX", "WEFT_BLOCK_IDLE"};
    for (size_t i = 0; i < COUNT(names); i++) CHECK_EQ(unsetenv(names[i]), 0);
}

static int look(void *arg) {
    (void)arg;
    CHECK_EQ(weft__rt.max_threads, 10000);
    CHECK_EQ(weft__rt.slice, 10 * WEFT_MS);
    CHECK_EQ(weft__rt.search, 20 * WEFT_US);
    CHECK_EQ(weft__rt.block_threads_max, 512);
    CHECK_EQ(weft__rt.block_idle, 60 * WEFT_SECOND);
    CHECK_EQ(weft__rt.bound_threads_max, 1000);
    CHECK_EQ(weft__rt.default_class, weft__stack_class(256 << 10));
    CHECK_NE(weft__rt.default_class, weft__stack_class((256 << 10) + 1));
    CHECK_EQ(weft_workers(), weft__cpu_count());
    return 0;
}

TEST(defaults, of_the_configuration_are_those_of_the_documentation) {
    weft_config zero = {.workers = 0};
    forget_environment();
    CHECK_EQ(weft_run(look, NULL, NULL), 0);
    CHECK_EQ(weft_run(look, NULL, &zero), 0);
}

TEST(defaults, of_the_queues_are_those_of_the_documentation) {
    weft__slot *s = NULL;
    CHECK_EQ(COUNT(s->ring), 256);
    CHECK_EQ(WEFT_RING, 256);
    CHECK_EQ(WEFT_DEQUE, 256);
    CHECK_EQ(WEFT_GLOBAL_EVERY, 61);
}

static int block_threads(void) {
    weft_stats st;
    weft_stats_get(&st);
    return (int)st.block_threads;
}

/* One thread for one call. */
static int use_pool(void *arg) {
    (void)arg;
    CHECK_EQ(block_threads(), 0);
    CHECK_EQ(weft_block(return_int, as_arg(7), WEFT_FOREVER), 7);
    CHECK_EQ(block_threads(), 1);
    return 0;
}

TEST(defaults, the_blocking_pool_starts_without_threads) { run_each_watched(use_pool); }
