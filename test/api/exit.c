/* SPDX-License-Identifier: MIT */
/* weft_at_exit: when, in which order, for whom. */
#include "api/panic.h"

/* What has happened, a letter each. With several workers each test writes from one task at a time. */
static char events[64];

static void note(void *arg) {
    size_t n = strlen(events);
    events[n] = *(char *)arg;
    events[n + 1] = 0;
}

static int check_events(const char *want) {
    CHECK_STR(events, want);
    events[0] = 0;
    return 0;
}

static int three(void *arg) {
    for (const char *p = arg; p && *p; p++) CHECK_EQ(weft_at_exit(note, (void *)p), 0);
    note("f");
    return 5;
}

static int in_order(void *arg) {
    (void)arg;
    CHECK_EQ(in_task(three, "abc"), 5);
    check_events("fcba");
    CHECK_EQ(in_child(three, "abc"), 0);
    check_events("fcba");
    return 0;
}

TEST(exit, functions_run_last_first) { run_each(in_order); }

static int opener(void *arg) {
    (void)arg;
    CHECK_EQ(weft_at_exit(note, "o"), 0);
    CHECK_EQ(in_child(three, "ab"), 0);
    note("O");
    CHECK_EQ(in_child(three, "c"), 0);
    return 0;
}

static int own(void *arg) {
    (void)arg;
    CHECK_EQ(in_task(opener, NULL), 0);
    check_events("fbaOfco");
    CHECK_EQ(in_child(opener, NULL), 0);
    return check_events("fbaOfco");
}

TEST(exit, a_child_that_runs_inside_has_functions_of_its_own) { run_each(own); }

static int cancelled(void *arg) {
    CHECK_EQ(weft_at_exit(note, "c"), 0);
    atomic_store((atomic_int *)arg, 1);
    return weft_sleep(WEFT_FOREVER);
}

static int cancels(void *arg) {
    atomic_int there = 0;
    weft_task *t;
    int result;
    (void)arg;
    CHECK_EQ(weft_task_start(&t, cancelled, &there, NULL), 0);
    task_wait_parked(&there, 1);
    weft_task_cancel(t);
    CHECK_EQ(weft_task_join(t, &result, WEFT_FOREVER), 0);
    CHECK_EQ(result, WEFT_ECANCELED);
    return check_events("c"); /* before the joiner is told */
}

TEST(exit, functions_run_after_cancellation) { run_each(cancels); }

static int panics(void *arg) {
    three(arg);
    weft_panic("x");
}

static int after_panic(void *arg) {
    (void)arg;
    CHECK_EQ(in_task(panics, "ab"), WEFT_EPANIC);
    check_events("fba");
    CHECK_EQ(in_child(panics, "ab"), WEFT_EPANIC);
    return check_events("fba");
}

TEST(exit, functions_run_after_a_panic) { run_each_quietly(after_panic); }

static void panic_in_exit(void *arg) {
    note(arg);
    weft_panic("in an exit");
}

static int with_bad_exit(void *arg) {
    CHECK_EQ(weft_at_exit(note, "a"), 0);
    CHECK_EQ(weft_at_exit(panic_in_exit, "p"), 0);
    CHECK_EQ(weft_at_exit(note, "b"), 0);
    return (int)(intptr_t)arg;
}

static int panics_with_bad_exit(void *arg) {
    with_bad_exit(arg);
    weft_panic("first");
}

static int bad_exits(void *arg) {
    (void)arg;
    CHECK_EQ(in_task(with_bad_exit, NULL), WEFT_EPANIC);
    check_events("bpa");
    CHECK_STR(last_report.message, "in an exit");
    CHECK_EQ(in_child(with_bad_exit, NULL), WEFT_EPANIC);
    check_events("bpa");
    CHECK_EQ(in_task(with_bad_exit, as_arg(-7)), -7); /* the first error counts */
    check_events("bpa");
    CHECK_EQ(in_task(panics_with_bad_exit, NULL), WEFT_EPANIC);
    check_events("bpa");
    CHECK_EQ(atomic_load(&reported), 5);
    return 0;
}

TEST(exit, a_panic_in_one_does_not_keep_the_others_from_running) { run_each_quietly(bad_exits); }

static int just_panics(void *arg) {
    (void)arg;
    weft_panic("contained");
}

static void try_in_exit(void *arg) {
    weft_panic_info info;
    CHECK_EQ(weft_try(just_panics, NULL, &info), WEFT_EPANIC);
    CHECK_STR(info.message, "contained");
    note(arg);
}

static int with_trying_exit(void *arg) {
    CHECK_EQ(weft_at_exit(try_in_exit, "t"), 0);
    if (arg) weft_panic("the task");
    return 0;
}

static int trying_exits(void *arg) {
    (void)arg;
    CHECK_EQ(in_task(with_trying_exit, NULL), 0);
    CHECK_EQ(in_child(with_trying_exit, NULL), 0);
    CHECK_EQ(atomic_load(&reported), 0);
    CHECK_EQ(in_task(with_trying_exit, "panic"), WEFT_EPANIC);
    CHECK_EQ(in_child(with_trying_exit, "panic"), WEFT_EPANIC);
    return check_events("tttt");
}

TEST(exit, a_try_in_one_contains_its_panic) { run_each_quietly(trying_exits); }

static void open_and_panic(void *arg) {
    weft_scope s;
    (void)arg;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, wait_for_ever, NULL), 0);
    weft_panic("with a scope");
}

static int with_opening_exit(void *arg) {
    (void)arg;
    return weft_at_exit(open_and_panic, NULL);
}

static int opening_exits(void *arg) {
    (void)arg;
    CHECK_EQ(in_task(with_opening_exit, NULL), WEFT_EPANIC);
    CHECK_EQ(in_child(with_opening_exit, NULL), WEFT_EPANIC);
    return 0;
}

TEST(exit, a_panic_in_one_ends_the_scopes_it_opened) { run_each_quietly(opening_exits); }

static void waits_and_adds(void *arg) {
    CHECK_EQ(weft_sleep_for(WEFT_US), 0);
    note(arg);
    CHECK_EQ(weft_at_exit(note, "l"), 0);
    CHECK_EQ(in_child(three, "x"), 0);
}

static int with_adding_exit(void *arg) {
    (void)arg;
    CHECK_EQ(weft_at_exit(note, "z"), 0);
    return weft_at_exit(waits_and_adds, "w");
}

static int adding_exits(void *arg) {
    (void)arg;
    CHECK_EQ(in_task(with_adding_exit, NULL), 0);
    check_events("wfxlz");
    CHECK_EQ(in_child(with_adding_exit, NULL), 0);
    return check_events("wfxlz");
}

TEST(exit, functions_may_wait_and_add_others) { run_each(adding_exits); }

static int refuses(void *arg) {
    (void)arg;
    CHECK_EQ(weft_at_exit(NULL, NULL), WEFT_EINVAL);
    return 0;
}

TEST(exit, on_a_plain_thread_is_refused) {
    CHECK_EQ(weft_at_exit(note, "x"), WEFT_EINVAL);
    run_each(refuses);
}

static int detached_exits(void *arg) {
    CHECK_EQ(weft_at_exit(note, "d"), 0);
    atomic_fetch_add((atomic_int *)arg, 1);
    return 0;
}

static int goes(void *arg) {
    static atomic_int n;
    atomic_store(&n, 0);
    (void)arg;
    CHECK_EQ(weft_go(detached_exits, &n), 0);
    task_wait(&n, 1);
    return 0;
}

TEST(exit, functions_of_detached_tasks_have_run_when_the_runtime_has_stopped) {
    EACH_WORKERS(w) {
        CHECK_EQ(run_on(w, goes, NULL), 0);
        check_events("d");
    }
}
