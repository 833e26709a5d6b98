/* SPDX-License-Identifier: MIT */
/* Timers without memory: what is due is called late, never not at all. */
#include "fault/common.h"

enum { N = 50 };

static void count(void *arg) { atomic_fetch_add((atomic_int *)arg, 1); }

/* Whatever fails between start and firing, each is called once. */
static int each_call_fails(void *arg) {
    (void)arg;
    for (long nth = 1; nth <= 40; nth++) {
        static weft_timer t[N];
        atomic_int n = 0;
        weft__fault_arm(nth, false);
        for (int i = 0; i < N; i++) CHECK_EQ(weft_timer_start(&t[i], weft_after(i % 5 * WEFT_US), 0, count, &n), 0);
        task_wait(&n, N);
        weft__fault_arm(0, false);
        for (int i = 0; i < N; i++) CHECK_EQ(weft_timer_stop_wait(&t[i]), 0);
        CHECK_EQ(atomic_load(&n), N);
    }
    return 0;
}

TEST(fault_timer, a_failed_allocation_loses_no_call) { run_each(each_call_fails); }

static int no_memory_for_a_while(void *arg) {
    (void)arg;
    static weft_timer t[N];
    atomic_int n = 0;
    weft__fault_arm(1, true);
    for (int i = 0; i < N; i++) CHECK_EQ(weft_timer_start(&t[i], weft_after(0), i % 2 ? 0 : HOUR, count, &n), 0);
    long seen = weft__fault_calls();
    while (weft__fault_calls() < seen + 3) weft_yield(); /* tried more than once */
    CHECK_EQ(atomic_load(&n), 0);
    CHECK_EQ(weft_timer_stop(&t[0]), 1); /* due, but not called yet */
    weft__fault_arm(0, false);
    task_wait(&n, N - 1);
    for (int i = 0; i < N; i++) CHECK_EQ(weft_timer_stop_wait(&t[i]), i && i % 2 == 0);
    CHECK_EQ(atomic_load(&n), N - 1);
    return 0;
}

TEST(fault_timer, without_memory_what_is_due_waits_for_it) { CHECK_EQ(run_on(1, no_memory_for_a_while, NULL), 0); }

/* A deadline needs no memory that might be missing. */
static int sleep_without_memory(void *arg) {
    (void)arg;
    weft__fault_arm(1, true);
    for (int i = 0; i < 100; i++) CHECK_EQ(weft_sleep_for(WEFT_US), 0);
    weft__fault_arm(0, false);
    return 0;
}

TEST(fault_timer, a_sleep_needs_no_memory) { CHECK_EQ(run_on(1, sleep_without_memory, NULL), 0); }
