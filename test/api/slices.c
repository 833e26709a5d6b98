/* SPDX-License-Identifier: MIT */
/* Who computes lets others have the CPU first: the kernel is told so (H11 in src/sched/handoff.h), until the task calls the runtime again. Nothing
 * here looks at a clock: where the kernel is not told, or not told again, these wait for ever. */
#include "api/common.h"
#include "sched/handoff.h"
#include "sched/idle.h"
#include "slices.h"

#include <weft/debug.h>

enum { COMPUTES = WEFT_SLICE_COMPUTES, OWN = 500 * 1000 }; /* ns */

static atomic_int tid, go_on, at_end;
static int64_t usual, later;

static void prepare(void) {
    if (!slices_are_known()) test_skip("the kernel does not say how long a thread may run at a time");
    if (weft__thread_waits(weft__thread_id()) < 0) test_skip("the kernel does not say how often a thread has waited");
    atomic_store(&tid, 0);
    atomic_store(&go_on, 0);
    atomic_store(&at_end, 0);
    usual = slice_of(0);
    CHECK(usual != COMPUTES);
}

static void compute_until(atomic_int *told) {
    atomic_store(&tid, (int)syscall(SYS_gettid));
    while (!atomic_load_explicit(told, memory_order_relaxed)) __asm__ volatile("");
}

/* Computes until it is told to go on. Its first call after that is weft_yield. */
static int compute(void *arg) {
    (void)arg;
    compute_until(&go_on);
    int mine = (int)syscall(SYS_gettid);
    weft_yield();
    later = slice_of(mine); /* of the thread that computed, wherever we are now */
    atomic_store(&at_end, 1);
    return 0;
}

static atomic_int stop_computing;
static int compute_for_now(void *arg) {
    (void)arg;
    compute_until(&stop_computing);
    return 0;
}

static void wait_for_slice(int64_t slice) {
    while (!atomic_load(&tid) || slice_of(atomic_load(&tid)) != slice) CHECK_EQ(weft_sleep_for(WEFT_MS), 0);
}

static int beside(void *fn) {
    weft_scope s;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, *(weft_fn **)fn, NULL), 0);
    wait_for_slice(COMPUTES);
    atomic_store(&go_on, 1);
    CHECK_EQ(weft_scope_end(&s), 0);
    return 0;
}

static void check_computing(int workers) {
    weft_fn *fn = compute;
    prepare();
    CHECK_EQ(weft_run(beside, &fn, &(weft_config){.workers = workers}), 0);
    CHECK(atomic_load(&at_end));
    CHECK_EQ(later, usual);
    CHECK_EQ(slice_of(0), usual);
}

/* Nobody needs its slot: there is another. */
TEST(slices, who_computes_and_keeps_its_slot_lets_others_run_first) { check_computing(2); }
TEST(slices, and_so_does_who_has_lost_it) { check_computing(1); }
TEST(slices, also_among_more_slots_than_are_looked_at_closely) { check_computing(12); }

/* The same, but it blocks without having called the runtime again. */
static int compute_and_block(void *arg) {
    char c;
    (void)arg;
    compute_until(&go_on);
    CHECK_EQ(read(at_end, &c, 1), 1);
    return 0;
}

static int block_beside(void *arg) {
    int *ends = arg;
    weft_scope s;
    atomic_store(&at_end, ends[0]);
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, compute_and_block, NULL), 0);
    wait_for_slice(COMPUTES);
    atomic_store(&go_on, 1);
    wait_for_slice(usual);
    CHECK_EQ(write(ends[1], "x", 1), 1);
    CHECK_EQ(weft_scope_end(&s), 0);
    return 0;
}

static void check_blocking(int workers) {
    int ends[2];
    prepare();
    CHECK_EQ(pipe(ends), 0);
    CHECK_EQ(weft_run(block_beside, ends, &(weft_config){.workers = workers}), 0);
    for (int i = 0; i < 2; i++) close(ends[i]);
}

TEST(slices, who_blocks_afterwards_computes_no_more) { check_blocking(2); }
TEST(slices, nor_does_who_has_lost_its_slot_and_blocks) { check_blocking(1); }

/* As the watch would, always long after the last time. */
TEST(slices, who_sleeps_is_asked_for_more_and_more_seldom) {
    static weft__slot s;
    static weft__worker w;
    int64_t now = weft__os_now(), every = 0;
    prepare();
    weft__store(&w.tid, weft__thread_id(), relaxed);
    for (int i = 0; i < 200; i++) {
        int64_t before = every;
        weft__slices_look(&s, &w, now, false);
        every = weft__load(&s.slices_next, relaxed) - now;
        CHECK_GE(every, i < 2 ? 10 * WEFT_MS : before);
        CHECK_LE(every, 100 * WEFT_MS);
        weft__store(&s.slices_next, 0, relaxed);
        weft__store(&s.slices_at, now - WEFT_SECOND * 1000, relaxed); /* in which it has used next to nothing */
    }
    CHECK_EQ(every, 100 * WEFT_MS);
    weft__slices_moved(&s, now);
    CHECK_EQ(weft__load(&s.slices_next, relaxed), now + 10 * WEFT_MS);
}

/* It ends without another call: its worker goes to look for work. */
static int compute_and_end(void *arg) {
    (void)arg;
    compute_until(&go_on);
    return 0;
}

static int end_beside(void *arg) {
    weft_fn *fn = compute_and_end;
    (void)arg;
    CHECK_EQ(beside(&fn), 0);
    while (slices_that_differ()) CHECK_EQ(weft_sleep_for(WEFT_MS), 0);
    return 0;
}

TEST(slices, nothing_of_it_is_left_when_the_task_has_ended) {
    prepare();
    CHECK_EQ(weft_run(end_beside, NULL, &(weft_config){.workers = 2}), 0);
}

/* It works, and sleeps a moment, again and again, without a call: some library's event loop. Until the watch has looked often enough at somebody who computes
 * beside it. */
static int work_now_and_then(void *arg) {
    (void)arg;
    atomic_store(&at_end, (int)syscall(SYS_gettid));
    while (!atomic_load(&go_on)) {
        for (volatile int i = 0; i < 20000; i++) {
        }
        usleep(100);
    }
    return 0;
}

static int now_and_then_beside(void *arg) {
    weft_scope s;
    (void)arg;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, work_now_and_then, NULL), 0);
    for (int i = 0; i < 5; i++) {
        atomic_store(&tid, 0);
        atomic_store(&stop_computing, 0);
        CHECK_EQ(weft_spawn(&s, compute_for_now, NULL), 0);
        wait_for_slice(COMPUTES);
        CHECK_EQ(slice_of(atomic_load(&at_end)), usual);
        atomic_store(&stop_computing, 1);
    }
    atomic_store(&go_on, 1);
    return weft_scope_end(&s);
}

TEST(slices, who_works_now_and_then_does_not_compute) {
    prepare();
    CHECK_EQ(weft_run(now_and_then_beside, NULL, &(weft_config){.workers = 8}), 0);
}

/* Its own, which it has set itself. */
static int compute_with_its_own(void *arg) {
    slice_set(OWN);
    CHECK_EQ(compute(arg), 0);
    slice_set(0);
    return 0;
}

TEST(slices, what_a_thread_had_before_it_gets_back) {
    weft_fn *fn = compute_with_its_own;
    prepare();
    CHECK_EQ(weft_run(beside, &fn, &(weft_config){.workers = 2}), 0);
    CHECK_EQ(later, OWN);
}

static int compute_unknown(void *arg) {
    weft_scope s;
    weft_stats st = {0};
    (void)arg;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, compute, NULL), 0);
    while (!st.strays) { /* then the kernel would have been told */
        CHECK_EQ(weft_sleep_for(WEFT_MS), 0);
        weft_stats_get(&st);
    }
    CHECK_EQ(slice_of(atomic_load(&tid)), usual);
    atomic_store(&go_on, 1);
    return weft_scope_end(&s);
}

TEST(slices, nobody_is_told_of_if_that_is_not_wanted) {
    prepare();
    setenv("WEFT_NO_SCHED_SETATTR", "1", 1);
    CHECK_EQ(weft_run(compute_unknown, NULL, &(weft_config){.workers = 1}), 0);
}

/* What the task starts meanwhile does not compute. */
static void *ask(void *slice) {
    *(int64_t *)slice = slice_of(0);
    return NULL;
}

static int compute_and_start_a_thread(void *arg) {
    pthread_t t;
    (void)arg;
    compute_until(&go_on);
    CHECK_EQ(pthread_create(&t, NULL, ask, &later), 0);
    CHECK_EQ(pthread_join(t, NULL), 0);
    return 0;
}

TEST(slices, a_thread_that_is_started_meanwhile_does_not_inherit_them) {
    weft_fn *fn = compute_and_start_a_thread;
    prepare();
    CHECK_EQ(weft_run(beside, &fn, &(weft_config){.workers = 2}), 0);
    CHECK_EQ(later, usual);
}
