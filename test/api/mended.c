/* SPDX-License-Identifier: MIT */
/* Bugs that were found, each with the test that would have found it. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "common.h"
#include "sched/handoff.h"

/* ---- stacks ---- */

static int use_100_kib(void *arg) {
    (void)arg;
    volatile char big[100 << 10];
    for (size_t i = 0; i < sizeof big; i += 1024) big[i] = 1;
    return big[1024] == 1 ? 0 : -1;
}

static int open_on_a_small_stack(void *arg) {
    (void)arg;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, use_100_kib, NULL), 0);
    return weft_scope_end(&s);
}

static int spawn_small_opener(void *arg) {
    (void)arg;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    weft_task_opts o = {.name = "small", .stack_size = 16 << 10};
    CHECK_EQ(weft_spawn_opts(&s, open_on_a_small_stack, NULL, &o), 0);
    return weft_scope_end(&s);
}

TEST(mended, a_child_does_not_run_inside_an_opener_with_a_smaller_stack) { run_each(spawn_small_opener); }

/* ---- stopping against plain threads ---- */

static int nothing(void *arg) {
    (void)arg;
    return 0;
}

static atomic_bool over;
static atomic_long accepted, ran;

static int count_run(void *arg) {
    (void)arg;
    atomic_fetch_add(&ran, 1);
    return 0;
}

static void *spawn_all_the_time(void *arg) {
    (void)arg;
    while (!atomic_load(&over))
        if (weft_go(count_run, NULL) == 0) atomic_fetch_add(&accepted, 1);
    return NULL;
}

static void *look_all_the_time(void *arg) {
    (void)arg;
    weft_stats s;
    while (!atomic_load(&over)) weft_stats_get(&s);
    return NULL;
}

static void start_and_stop_beside(void *(*fn)(void *)) {
    pthread_t t;
    atomic_store(&over, false);
    atomic_store(&accepted, 0);
    atomic_store(&ran, 0);
    CHECK_EQ(pthread_create(&t, NULL, fn, NULL), 0);
    for (long i = test_scale(300, 20); i > 0; i--) {
        CHECK_EQ(weft_start(&(weft_config){.workers = 2}), 0);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    }
    atomic_store(&over, true);
    pthread_join(t, NULL);
    CHECK_EQ(atomic_load(&ran), atomic_load(&accepted));
}

TEST(mended, threads_spawn_while_the_runtime_starts_and_stops) { start_and_stop_beside(spawn_all_the_time); }
TEST(mended, statistics_are_read_while_the_runtime_starts_and_stops) { start_and_stop_beside(look_all_the_time); }

TEST(mended, a_threads_scope_with_a_deadline_may_outlive_the_runtime) {
    weft_scope s;
    CHECK_EQ(weft_start(NULL), 0);
    weft_scope_begin(&s, &(weft_scope_opts){.deadline = weft_after(HOUR)});
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    CHECK(weft_cancelled()); /* the root was cancelled around it, and it stays so */
    (void)weft_scope_end(&s);
    weft_scope_begin(&s, NULL); /* but a new one is not born cancelled */
    CHECK(!weft_cancelled());
    CHECK_EQ(weft_scope_end(&s), 0);
}

static void *stop_too(void *arg) {
    (void)arg;
    int r = weft_stop(WEFT_FOREVER);
    CHECK(r == 0 || r == WEFT_ETERMINATED);
    return NULL;
}

static void *open_timed_scopes(void *arg) {
    (void)arg;
    while (!atomic_load(&over)) {
        weft_scope s;
        weft_scope_begin(&s, &(weft_scope_opts){.deadline = weft_after(HOUR)});
        (void)weft_scope_end(&s);
    }
    return NULL;
}

TEST(mended, two_threads_stop_at_once) {
    for (long i = test_scale(300, 20); i > 0; i--) {
        pthread_t t;
        CHECK_EQ(weft_start(&(weft_config){.workers = 2}), 0);
        CHECK_EQ(weft_go(wait_for_ever, NULL), 0);
        CHECK_EQ(pthread_create(&t, NULL, stop_too, NULL), 0);
        stop_too(NULL);
        pthread_join(t, NULL);
    }
}

TEST(mended, threads_open_scopes_with_deadlines_while_the_runtime_starts_and_stops) {
    start_and_stop_beside(open_timed_scopes);
}

static int run_inside_until_stopped(void *arg) {
    (void)arg;
    while (!weft_cancelled()) weft_yield();
    CHECK_EQ(weft_run(nothing, NULL, NULL), WEFT_EALREADY);
    return 0;
}

TEST(mended, weft_run_in_a_task_that_is_being_stopped_is_refused) {
    CHECK_EQ(weft_start(NULL), 0);
    CHECK_EQ(weft_go(run_inside_until_stopped, NULL), 0);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
}

static void *spawn_into(void *scope) {
    CHECK_EQ(weft_spawn(scope, count_run, NULL), 0);
    return NULL;
}

static int let_a_thread_spawn(void *arg) {
    (void)arg;
    weft_scope s;
    pthread_t t;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(pthread_create(&t, NULL, spawn_into, &s), 0);
    pthread_join(t, NULL);
    return weft_scope_end(&s);
}

TEST(mended, a_thread_may_spawn_into_a_tasks_open_scope) {
    atomic_store(&ran, 0);
    run_each(let_a_thread_spawn);
    CHECK_GT(atomic_load(&ran), 0);
}

/* ---- block_on in a cancelled scope ---- */

TEST(mended, block_on_in_a_cancelled_scope_waits_for_its_task_and_forgets_nothing) {
    weft_scope s;
    CHECK_EQ(weft_start(NULL), 0);
    weft_scope_begin(&s, NULL);
    weft_scope_cancel(&s);
    atomic_store(&ran, 0);
    CHECK_EQ(weft_block_on(count_run, NULL), 0);
    CHECK_EQ(atomic_load(&ran), 1);
    CHECK(weft_cancelled());
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
}

/* ---- starvation ---- */

static int open_scopes_until_cancelled(void *arg) {
    (void)arg;
    weft_scope outer, s;
    weft_scope_begin(&outer, &(weft_scope_opts){.deadline = weft_after(5 * WEFT_MS)});
    while (!weft_cancelled()) {
        weft_scope_begin(&s, NULL);
        (void)weft_spawn(&s, nothing, NULL);
        (void)weft_scope_end(&s);
    }
    CHECK_EQ(weft_scope_end(&outer), WEFT_ETIMEDOUT);
    return 0;
}

TEST(mended, children_that_run_inside_do_not_keep_deadlines_from_passing) {
    CHECK_EQ(run_on(1, open_scopes_until_cancelled, NULL), 0);
}

/* ---- nesting ---- */

enum { DEEP = 5000 };

static int nest(void *arg) {
    (void)arg;
    weft_scope *s = calloc(DEEP, sizeof *s);
    weft_chan *c = weft_chan_new(0, 0);
    CHECK(s && c);
    for (int i = 0; i < DEEP; i++) weft_scope_begin(&s[i], NULL);
    CHECK_EQ(weft_spawn(&s[DEEP - 1], wait_for_ever, NULL), 0);
    CHECK_EQ(weft_chan_recv(c, NULL, weft_after(WEFT_MS)), WEFT_ETIMEDOUT); /* the child parks, and lists all scopes */
    weft_scope_cancel(&s[0]);
    for (int i = DEEP - 1; i >= 0; i--) (void)weft_scope_end(&s[i]);
    weft_chan_unref(c);
    free(s);
    return 0;
}

static int nest_on_a_small_stack(void *arg) {
    (void)arg;
    weft_task *t;
    weft_task_opts o = {.name = NULL, .stack_size = 16 << 10};
    CHECK_EQ(weft_task_start(&t, nest, NULL, &o), 0);
    return weft_task_join(t, NULL, WEFT_FOREVER);
}

TEST(mended, thousands_of_nested_scopes_need_no_stack) { run_each(nest_on_a_small_stack); }

/* ---- select ---- */

static int choose_often(void *arg) {
    (void)arg;
    weft_chan *c[4];
    long hits[4] = {0};
    for (int i = 0; i < 4; i++) CHECK((c[i] = weft_chan_new(0, 1)) != NULL);
    CHECK_EQ(weft_chan_send(c[1], NULL, WEFT_POLL), 0);
    CHECK_EQ(weft_chan_send(c[2], NULL, WEFT_POLL), 0);
    long n = test_scale(20000, 2000);
    for (long i = 0; i < n; i++) {
        int k = weft_select(WEFT_POLL, weft_on_recv(c[0], NULL, NULL), weft_on_recv(c[1], NULL, NULL),
                            weft_on_recv(c[2], NULL, NULL), weft_on_recv(c[3], NULL, NULL));
        CHECK(k == 1 || k == 2);
        hits[k]++;
        CHECK_EQ(weft_chan_send(c[k], NULL, WEFT_POLL), 0);
    }
    CHECK_NEAR((double)hits[1] / (double)n, 0.5, 0.08);
    for (int i = 0; i < 4; i++) weft_chan_unref(c[i]);
    return 0;
}

TEST(mended, select_is_even_among_neighbours_too) { CHECK_EQ(run_on(1, choose_often, NULL), 0); }

/* ---- handles ---- */

static int join_twice(void *arg) {
    (void)arg;
    weft_task *t;
    CHECK_EQ(weft_task_start(&t, nothing, NULL, NULL), 0);
    CHECK_EQ(weft_task_join(t, NULL, WEFT_FOREVER), 0);
    return weft_task_join(t, NULL, WEFT_FOREVER);
}

static int run_join_twice(void *arg) {
    (void)arg;
    return run_on(1, join_twice, NULL);
}

TEST(mended, joining_a_task_twice_is_told) { CHECK_DIES(run_join_twice, "joined twice"); }

/* ---- slots without a watcher ---- */

static atomic_bool woken, computing;

static int compute_until_woken(void *arg) {
    weft_chan *c = arg;
    CHECK_EQ(weft_chan_send(c, NULL, WEFT_FOREVER), 0); /* readies the receiver into our `next` */
    atomic_store(&computing, true);
    while (!atomic_load(&woken)) __asm__ volatile("");
    return 0;
}

static int wake_into_next(void *arg) {
    (void)arg;
    weft_chan *c = weft_chan_new(0, 0);
    weft_scope s;
    atomic_store(&woken, false);
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, compute_until_woken, c), 0);
    CHECK_EQ(weft_chan_recv(c, NULL, WEFT_FOREVER), 0);
    atomic_store(&woken, true);
    int r = weft_scope_end(&s);
    weft_chan_unref(c);
    return r;
}

TEST(mended, a_task_in_a_computing_ones_next_is_found) {
    for (int w = 2; w <= 8; w *= 2) CHECK_EQ(run_on(w, wake_into_next, NULL), 0);
}
