/* SPDX-License-Identifier: MIT */
/* Scopes: what weft_scope_end returns, who is cancelled when, and that everything accepted runs exactly once. */
#include "api/common.h"

static atomic_int ran, cancelled_children;

static int count_run(void *arg) {
    (void)arg;
    atomic_fetch_add(&ran, 1);
    return 0;
}

/* Waits until cancelled, counts that, and returns its argument, or what the wait gave if that is NULL. */
static int wait_and_return(void *arg) {
    atomic_fetch_add(&ran, 1);
    int rc = weft_sleep(WEFT_FOREVER);
    CHECK_EQ(rc, WEFT_ECANCELED);
    atomic_fetch_add(&cancelled_children, 1);
    return arg ? (int)(intptr_t)arg : rc;
}

static void reset(void) {
    atomic_store(&ran, 0);
    atomic_store(&cancelled_children, 0);
}

static void spawn_waiters(weft_scope *s, int n) {
    for (int i = 0; i < n; i++) CHECK_EQ(weft_spawn(s, wait_and_return, NULL), 0);
}

/* The same in a scope whose deadline may pass at any moment: returns how many were accepted. */
static int spawn_while_open(weft_scope *s, int n) {
    int accepted = 0;
    for (int i = 0; i < n; i++) {
        int rc = weft_spawn(s, wait_and_return, NULL);
        CHECK(rc == 0 || rc == WEFT_ECANCELED);
        accepted += rc == 0;
    }
    return accepted;
}

static const weft_scope_opts keep_going = {.deadline = {0}, .on_error = WEFT_KEEP_GOING};

/* ---- joining ---- */

static int join_all(void *arg) {
    (void)arg;
    static const int counts[] = {0, 1, 2, 10, 1000};
    for (size_t k = 0; k < COUNT(counts); k++) {
        weft_scope s;
        reset();
        weft_scope_begin(&s, NULL);
        for (int i = 0; i < counts[k]; i++) CHECK_EQ(weft_spawn(&s, count_run, NULL), 0);
        CHECK_EQ(weft_scope_end(&s), 0);
        CHECK_EQ(atomic_load(&ran), counts[k]);
    }
    return 0;
}

TEST(scope, end_joins_every_child) { run_each(join_all); }

static int work_slowly(void *arg) {
    for (int i = 0; i < 50; i++) weft_yield();
    CHECK_EQ(weft_sleep_for(100 * WEFT_US), 0);
    return count_run(arg);
}

static int join_slow(void *arg) {
    (void)arg;
    weft_scope s;
    reset();
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 100; i++) CHECK_EQ(weft_spawn(&s, work_slowly, NULL), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(atomic_load(&ran), 100);
    return 0;
}

TEST(scope, end_waits_for_children_that_park) { run_each(join_slow); }

static int scopes_in_a_row(void *arg) {
    (void)arg;
    weft_scope s; /* the same storage each time, never cleared */
    for (int i = 0; i < 1000; i++) {
        weft_scope_begin(&s, NULL);
        CHECK_EQ(weft_spawn(&s, return_int, as_arg(i % 2 ? -9 : 3)), 0);
        CHECK_EQ(weft_scope_end(&s), i % 2 ? -9 : 0);
    }
    return 0;
}

TEST(scope, storage_can_be_used_again) { run_each(scopes_in_a_row); }

/* ---- what scope_end returns ---- */

static int end_with_child_error(void *arg) {
    (void)arg;
    weft_scope s;
    reset();
    weft_scope_begin(&s, NULL);
    spawn_waiters(&s, 10);
    CHECK_EQ(weft_spawn(&s, return_int, as_arg(-42)), 0);
    /* The opener's own code is inside: the child's failure ends this wait. */
    CHECK_EQ(weft_sleep(WEFT_FOREVER), WEFT_ECANCELED);
    CHECK_EQ(weft_cancel_cause(), -42);
    CHECK_EQ(weft_spawn(&s, count_run, NULL), WEFT_ECANCELED);
    CHECK_EQ(weft_scope_end(&s), -42);
    CHECK_EQ(atomic_load(&cancelled_children), 10);
    CHECK_EQ(weft_cancelled(), 0);
    CHECK_EQ(weft_sleep_for(0), 0);
    return 0;
}

TEST(scope, a_childs_error_cancels_the_scope_and_is_its_result) { run_each(end_with_child_error); }

static int fail_second(void *arg) {
    task_wait(arg, 1);
    return -2;
}

static int end_with_first_error(void *arg) {
    (void)arg;
    weft_scope s;
    atomic_int go = 0;
    reset();
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, fail_second, &go), 0);
    CHECK_EQ(weft_spawn(&s, wait_and_return, as_arg(-3)), 0);
    CHECK_EQ(weft_spawn(&s, return_int, as_arg(-1)), 0);
    CHECK_EQ(weft_sleep(WEFT_FOREVER), WEFT_ECANCELED);
    atomic_store(&go, 1);
    CHECK_EQ(weft_scope_end(&s), -1);
    return 0;
}

TEST(scope, the_first_error_is_the_result) { run_each(end_with_first_error); }

static int end_with_positive(void *arg) {
    (void)arg;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 1; i < 50; i++) CHECK_EQ(weft_spawn(&s, return_int, as_arg(i)), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    return 0;
}

TEST(scope, positive_results_are_success) { run_each(end_with_positive); }

static int end_after_own_cancel(void *arg) {
    (void)arg;
    weft_scope s;
    reset();
    weft_scope_begin(&s, NULL);
    spawn_waiters(&s, 20);
    weft_scope_cancel(&s);
    CHECK_EQ(weft_cancelled(), 1);
    CHECK_EQ(weft_cancel_cause(), WEFT_ECANCELED);
    CHECK_EQ(weft_sleep_for(0), WEFT_ECANCELED);
    CHECK_EQ(weft_spawn(&s, count_run, NULL), WEFT_ECANCELED);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(atomic_load(&ran), 20); /* accepted before: called, once each */
    CHECK_EQ(atomic_load(&cancelled_children), 20);
    CHECK_EQ(weft_cancelled(), 0);
    CHECK_EQ(weft_cancel_cause(), 0);
    return 0;
}

TEST(scope, its_own_cancel_gives_zero) { run_each(end_after_own_cancel); }

static int cancel_from_child(void *arg) {
    weft_scope_cancel(arg);
    return 0;
}

static int end_after_childs_cancel(void *arg) {
    (void)arg;
    weft_scope s;
    reset();
    weft_scope_begin(&s, NULL);
    spawn_waiters(&s, 5);
    CHECK_EQ(weft_spawn(&s, cancel_from_child, &s), 0);
    CHECK_EQ(weft_sleep(WEFT_FOREVER), WEFT_ECANCELED);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(atomic_load(&cancelled_children), 5);
    return 0;
}

TEST(scope, a_child_may_cancel_it) { run_each(end_after_childs_cancel); }

static int end_at_deadline(void *arg) {
    (void)arg;
    weft_scope s;
    weft_scope_opts o = {.deadline = weft_after(3 * WEFT_MS), .on_error = WEFT_CANCEL_ALL};
    int64_t before = weft_now();
    reset();
    weft_scope_begin(&s, &o);
    int accepted = spawn_while_open(&s, 20);
    CHECK_EQ(weft_sleep(WEFT_FOREVER), WEFT_ECANCELED); /* not ETIMEDOUT: that is an operation's own deadline */
    CHECK_GE(weft_now() - before, 3 * WEFT_MS);
    CHECK_EQ(weft_cancelled(), 1);
    CHECK_EQ(weft_cancel_cause(), WEFT_ETIMEDOUT);
    CHECK_EQ(weft_scope_end(&s), WEFT_ETIMEDOUT);
    CHECK_EQ(atomic_load(&cancelled_children), accepted);
    CHECK_EQ(weft_sleep_for(0), 0);
    return 0;
}

TEST(scope, its_deadline_cancels_it_and_is_its_result) { run_each(end_at_deadline); }

static int end_in_time(void *arg) {
    (void)arg;
    for (int i = 0; i < 200; i++) {
        weft_scope s;
        weft_scope_opts o = {.deadline = weft_after(HOUR), .on_error = 0};
        weft_scope_begin(&s, &o);
        CHECK_EQ(weft_spawn(&s, return_int, as_arg(1)), 0);
        CHECK_EQ(weft_scope_end(&s), 0);
    }
    weft_scope s;
    weft_scope_opts o = {.deadline = weft_after(HOUR), .on_error = 0};
    weft_scope_begin(&s, &o);
    CHECK_EQ(weft_spawn(&s, return_int, as_arg(-8)), 0);
    CHECK_EQ(weft_scope_end(&s), -8);
    return 0;
}

TEST(scope, a_deadline_that_is_not_reached_changes_nothing) { run_each(end_in_time); }

static int end_too_late(void *arg) {
    (void)arg;
    weft_scope s;
    weft_scope_opts o = {.deadline = weft_at(1), .on_error = 0};
    reset();
    weft_scope_begin(&s, &o);
    CHECK_EQ(weft_sleep_for(HOUR), WEFT_ECANCELED);
    CHECK_EQ(weft_cancel_cause(), WEFT_ETIMEDOUT);
    CHECK_EQ(weft_spawn(&s, count_run, NULL), WEFT_ECANCELED);
    CHECK_EQ(weft_scope_end(&s), WEFT_ETIMEDOUT);
    CHECK_EQ(atomic_load(&ran), 0);
    return 0;
}

TEST(scope, a_deadline_in_the_past_has_passed_at_once) { run_each(end_too_late); }

static int inner_waits(void *arg) {
    int *result = arg;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    spawn_waiters(&s, 3);
    *result = weft_scope_end(&s);
    return 0;
}

static int end_after_outer_cancel(void *arg) {
    (void)arg;
    weft_scope s;
    int inner[4] = {1, 1, 1, 1};
    reset();
    weft_scope_begin(&s, NULL);
    for (size_t i = 0; i < COUNT(inner); i++) CHECK_EQ(weft_spawn(&s, inner_waits, &inner[i]), 0);
    task_wait_parked(&ran, 3 * COUNT(inner));
    weft_scope_cancel(&s);
    CHECK_EQ(weft_scope_end(&s), 0);
    for (size_t i = 0; i < COUNT(inner); i++) CHECK_EQ(inner[i], WEFT_ECANCELED);
    CHECK_EQ(atomic_load(&cancelled_children), 12);
    return 0;
}

TEST(scope, an_outer_cancellation_is_the_result_of_inner_scopes) { run_each(end_after_outer_cancel); }

static int end_after_outer_deadline(void *arg) {
    (void)arg;
    weft_scope outer, s;
    weft_scope_opts o = {.deadline = weft_after(2 * WEFT_MS), .on_error = 0};
    reset();
    weft_scope_begin(&outer, &o);
    weft_scope_begin(&s, NULL);
    spawn_while_open(&s, 3);
    CHECK_EQ(weft_sleep(WEFT_FOREVER), WEFT_ECANCELED);
    CHECK_EQ(weft_cancel_cause(), WEFT_ETIMEDOUT);
    CHECK_EQ(weft_scope_end(&s), WEFT_ECANCELED);
    CHECK_EQ(weft_scope_end(&outer), WEFT_ETIMEDOUT);
    return 0;
}

TEST(scope, an_outer_deadline_is_a_cancellation_to_inner_scopes) { run_each(end_after_outer_deadline); }

static int begin_inside_cancelled(void *arg) {
    (void)arg;
    weft_scope outer, s;
    reset();
    weft_scope_begin(&outer, NULL);
    weft_scope_cancel(&outer);
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_cancelled(), 1);
    CHECK_EQ(weft_sleep(WEFT_FOREVER), WEFT_ECANCELED);
    CHECK_EQ(weft_spawn(&s, count_run, NULL), WEFT_ECANCELED);
    CHECK_EQ(weft_scope_end(&s), WEFT_ECANCELED);
    CHECK_EQ(weft_scope_end(&outer), 0);
    CHECK_EQ(atomic_load(&ran), 0);
    return 0;
}

TEST(scope, opened_in_a_cancelled_scope_it_is_cancelled_too) { run_each(begin_inside_cancelled); }

static int inner_cancel_only(void *arg) {
    (void)arg;
    weft_scope outer, s;
    atomic_int stop = 0;
    reset();
    weft_scope_begin(&outer, NULL);
    CHECK_EQ(weft_spawn(&outer, fail_second, &stop), 0); /* waits for the flag; would fail the outer scope if cancelled */
    weft_scope_begin(&s, NULL);
    spawn_waiters(&s, 3);
    weft_scope_cancel(&s);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(weft_cancelled(), 0);
    CHECK_EQ(weft_sleep_for(1), 0); /* the outer one goes on */
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, return_int, as_arg(-5)), 0);
    CHECK_EQ(weft_scope_end(&s), -5); /* the inner error goes no further by itself */
    CHECK_EQ(weft_cancelled(), 0);
    atomic_store(&stop, 1);
    CHECK_EQ(weft_scope_end(&outer), -2);
    return 0;
}

TEST(scope, an_inner_cancellation_stays_inside) { run_each(inner_cancel_only); }

/* ---- KEEP_GOING ---- */

static int go_on(void *arg) {
    (void)arg;
    weft_scope s;
    atomic_int go = 0;
    reset();
    weft_scope_begin(&s, &keep_going);
    CHECK_EQ(weft_spawn(&s, fail_second, &go), 0);
    CHECK_EQ(weft_spawn(&s, return_int, as_arg(-1)), 0);
    for (int i = 0; i < 100; i++) weft_yield();
    CHECK_EQ(weft_cancelled(), 0);
    CHECK_EQ(weft_sleep_for(1), 0);
    for (int i = 0; i < 10; i++) CHECK_EQ(weft_spawn(&s, count_run, NULL), 0);
    task_wait(&ran, 10);
    atomic_store(&go, 1);
    int rc = weft_scope_end(&s);
    CHECK_MSG(rc == -1 || rc == -2, "%d", rc); /* with several workers the first to end is not the first to be spawned */
    CHECK_EQ(atomic_load(&ran), 10);
    return rc;
}

TEST(scope, keep_going_remembers_the_error_and_goes_on) {
    EACH_WORKERS(w) {
        int rc = run_on(w, go_on, NULL);
        CHECK(w > 1 || rc == -1);
    }
}

static int keep_going_cancelled(void *arg) {
    (void)arg;
    weft_scope s;
    reset();
    weft_scope_begin(&s, &keep_going);
    spawn_waiters(&s, 5);
    weft_scope_cancel(&s);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(atomic_load(&cancelled_children), 5);
    return 0;
}

TEST(scope, keep_going_can_be_cancelled) { run_each(keep_going_cancelled); }

/* ---- refused spawns ---- */

static int refuse(void *arg) {
    (void)arg;
    weft_scope s;
    weft_task_opts huge = {.name = NULL, .stack_size = (size_t)1 << 40};
    reset();
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn_opts(&s, count_run, NULL, &huge), WEFT_EINVAL);
    CHECK_EQ(weft_sleep_for(0), WEFT_ECANCELED); /* as any failed child, it cancels the scope */
    CHECK_EQ(weft_cancel_cause(), WEFT_EINVAL);
    CHECK_EQ(weft_spawn(&s, count_run, NULL), WEFT_ECANCELED);
    CHECK_EQ(weft_scope_end(&s), WEFT_EINVAL);
    weft_scope_begin(&s, &keep_going);
    CHECK_EQ(weft_spawn_opts(&s, count_run, NULL, &huge), WEFT_EINVAL);
    CHECK_EQ(weft_spawn(&s, count_run, NULL), 0);
    CHECK_EQ(weft_scope_end(&s), WEFT_EINVAL);
    CHECK_EQ(atomic_load(&ran), 1);
    return 0;
}

TEST(scope, a_refused_spawn_counts_as_a_failed_child) { run_each(refuse); }

/* ---- exactly once ---- */

static int cancel_before_start(void *arg) {
    (void)arg;
    for (int i = 0; i < 200; i++) {
        weft_scope s;
        int accepted = 0;
        reset();
        weft_scope_begin(&s, NULL);
        for (int k = 0; k < 30; k++) {
            if (k == i % 31) weft_scope_cancel(&s);
            accepted += weft_spawn(&s, wait_and_return, NULL) == 0;
        }
        if (i % 31 == 30) weft_scope_cancel(&s);
        CHECK_EQ(weft_scope_end(&s), 0);
        CHECK_EQ(accepted, i % 31);
        CHECK_EQ(atomic_load(&ran), accepted);
        CHECK_EQ(atomic_load(&cancelled_children), accepted);
    }
    return 0;
}

TEST(scope, accepted_children_run_once_even_if_cancelled_before_they_start) { run_each(cancel_before_start); }

/* ---- children that spawn ---- */

struct grow {
    weft_scope *s;
    int depth;
};

static int grow(void *arg) {
    struct grow *g = arg;
    atomic_fetch_add(&ran, 1);
    if (g->depth == 0) return 0;
    CHECK_EQ(weft_spawn_with(g->s, grow, (struct grow){g->s, g->depth - 1}), 0);
    if (g->depth % 3 == 0) weft_yield();
    CHECK_EQ(weft_spawn_with(g->s, grow, (struct grow){g->s, g->depth - 1}), 0);
    return 0;
}

static int grow_tree(void *arg) {
    (void)arg;
    weft_scope s;
    reset();
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn_with(&s, grow, (struct grow){&s, 11}), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(atomic_load(&ran), (1 << 12) - 1);
    return 0;
}

TEST(scope, children_may_spawn_into_it) { run_each(grow_tree); }
