/* SPDX-License-Identifier: MIT */
/* Panics that are contained by the library itself, on plain threads and in weft_once_run: each is reported once, to the hook if a runtime runs. */
#include "api/panic.h"

static int panics(void *arg) {
    weft_panic("%s", (const char *)arg);
    return 0;
}

static void panics_deferred(void *arg) { (void)panics(arg); }

static weft_config hooked(int workers) { return (weft_config){.workers = workers, .on_panic = count_report}; }

/* ---- deferred functions ---- */

static void defer_panics(const char *what) {
    weft_scope s;
    int before = atomic_load(&reported);
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 3; i++) CHECK_EQ(weft_scope_defer(&s, panics_deferred, (void *)(uintptr_t)what), 0);
    CHECK_EQ(weft_scope_end(&s), WEFT_EPANIC);
    CHECK_EQ(atomic_load(&reported), before + 3);
    CHECK_STR(last_report.message, what);
    CHECK_EQ(last_report.task, weft_self());
}

static int defer_in_task(void *arg) {
    (void)arg;
    defer_panics("in a task");
    return 0;
}

TEST(panic_thread, of_deferred_functions_reach_the_hook) {
    EACH_WORKERS(w) {
        weft_config cfg = hooked(w);
        CHECK_EQ(weft_start(&cfg), 0);
        atomic_store(&reported, 0);
        defer_panics("in a plain thread");
        CHECK_EQ(weft_block_on(defer_in_task, NULL), 0);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    }
}

/* Without a runtime the hook is none: it may be gone. */
static int defer_after_stop(void *arg) {
    weft_config cfg = hooked(1);
    weft_scope s;
    (void)arg;
    CHECK_EQ(weft_start(&cfg), 0);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_scope_defer(&s, panics_deferred, "too late for the hook"), 0);
    CHECK_EQ(weft_scope_end(&s), WEFT_EPANIC);
    CHECK_EQ(atomic_load(&reported), 0);
    return 0;
}

TEST(panic_thread, without_a_runtime_it_is_printed) {
    struct test_child c;
    test_child(defer_after_stop, NULL, &c);
    CHECK_EQ(c.exit_code, 0);
    CHECK_MSG(strstr(c.out, "panic in a plain thread"), "%s", c.out);
    CHECK_MSG(strstr(c.out, "too late for the hook"), "%s", c.out);
}

static int abort_in_deferred(void *arg) {
    weft_scope s;
    (void)arg;
    CHECK_EQ(weft_start(&(weft_config){.workers = 1, .flags = WEFT_PANIC_ABORT}), 0);
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_scope_defer(&s, panics_deferred, "where it happens"), 0);
    (void)weft_scope_end(&s);
    return 0;
}

TEST(panic_thread, aborts_where_the_configuration_says_so) { CHECK_DIES(abort_in_deferred, "where it happens"); }

/* ---- once ---- */

static void run_once(const char *what) {
    weft_once o = {0};
    int before = atomic_load(&reported);
    for (int i = 0; i < 3; i++) CHECK_EQ(weft_once_run(&o, panics, (void *)(uintptr_t)what), WEFT_EPANIC);
    CHECK_EQ(atomic_load(&reported), before + 1);
    CHECK_STR(last_report.message, what);
    CHECK_EQ(last_report.task, weft_self());
}

static int once_in_task(void *arg) {
    run_once(arg);
    return 0;
}

static int once_everywhere(void *arg) {
    (void)arg;
    run_once("in a task");
    CHECK_EQ(weft_try(once_in_task, "in a try", NULL), 0);
    CHECK_EQ(in_child(once_in_task, "in a child"), 0);
    return 0;
}

TEST(panic_thread, in_once_is_reported_once) {
    EACH_WORKERS(w) {
        weft_config cfg = hooked(w);
        CHECK_EQ(weft_start(&cfg), 0);
        atomic_store(&reported, 0);
        run_once("in a plain thread");
        CHECK_EQ(weft_block_on(once_everywhere, NULL), 0);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    }
}
