/* SPDX-License-Identifier: MIT */
/* Panics: who is told, what is contained, what is left behind (nothing), and what aborts. */
#include "api/panic.h"

#include "context/sanitize.h"

/* Deep enough that there are frames to unwind. */
static WEFT_NO_RETURN __attribute__((noinline)) void panic_below(int depth, const char *what) {
    volatile int keep[16] = {depth};
    if (depth > 0) panic_below(depth - 1, what);
    weft_panic("%s %d", what, keep[0]);
}

static int panics(void *arg) {
    (void)arg;
    panic_below(5, "at");
}

static int yields_and_panics(void *arg) {
    weft_yield();
    return panics(arg);
}

/* ---- who is told ---- */

static int joined_with_epanic(void *arg) {
    (void)arg;
    CHECK_EQ(in_task(panics, NULL), WEFT_EPANIC);
    CHECK_EQ(in_task(yields_and_panics, NULL), WEFT_EPANIC);
    CHECK_EQ(in_child(panics, NULL), WEFT_EPANIC);
    CHECK_EQ(in_child(yields_and_panics, NULL), WEFT_EPANIC);
    CHECK_EQ(atomic_load(&reported), 4);
    CHECK_STR(last_report.message, "at 0");
    return 0;
}

TEST(panic, whoever_joins_the_task_sees_it) { EACH_WORKERS(w) CHECK_EQ(run_quietly(w, joined_with_epanic, NULL), 0); }

TEST(panic, of_the_first_task_is_what_run_returns) {
    EACH_WORKERS(w) CHECK_EQ(run_quietly(w, panics, NULL), WEFT_EPANIC);
    CHECK_EQ(atomic_load(&reported), 1);
}

static int told(void *arg) {
    int rc = weft_sleep(WEFT_FOREVER);
    *(int *)arg = weft_cancel_cause();
    return rc;
}

static int cancels_siblings(void *arg) {
    int cause = 0;
    weft_scope s;
    (void)arg;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, told, &cause), 0);
    weft_yield();
    CHECK_EQ(weft_spawn(&s, panics, NULL), 0);
    CHECK_EQ(weft_scope_end(&s), WEFT_EPANIC);
    CHECK_EQ(cause, WEFT_EPANIC);
    CHECK_EQ(weft_cancelled(), 0);
    return 0;
}

TEST(panic, of_a_child_cancels_its_scope) { run_each_quietly(cancels_siblings); }

/* Everything that lives across the call in registers must be the same afterwards: the boundary takes them out of the tables. */
static int opener_survives(void *arg) {
    (void)arg;
    uint64_t a = test_random(), b = a * 3, c = a * 5, d = a * 7, e = a * 11, f = a * 13, g = a * 17;
    for (int i = 0; i < 100; i++) {
        int rc = in_child(panics, NULL);
        CHECK_EQ(rc, WEFT_EPANIC);
        a++, b += 3, c += 5, d += 7, e += 11, f += 13, g += 17;
    }
    CHECK(b == a * 3 && c == a * 5 && d == a * 7 && e == a * 11 && f == a * 13 && g == a * 17);
    CHECK_EQ(weft_cancelled(), 0);
    return 0;
}

TEST(panic, of_a_child_that_runs_inside_leaves_its_opener_alone) { run_each_quietly(opener_survives); }

static int child_tree(void *arg) {
    intptr_t depth = (intptr_t)arg;
    if (depth == 0) weft_panic("leaf");
    weft_scope s;
    weft_scope_begin(&s, &(weft_scope_opts){.on_error = WEFT_KEEP_GOING});
    for (int i = 0; i < 3; i++) CHECK_EQ(weft_spawn(&s, child_tree, as_arg(depth - 1)), 0);
    CHECK_EQ(weft_scope_end(&s), depth == 1 ? WEFT_EPANIC : 0);
    return 0;
}

static int tree(void *arg) {
    CHECK_EQ(child_tree(as_arg(5)), 0);
    CHECK_EQ(atomic_load(&reported), 243);
    (void)arg;
    return 0;
}

TEST(panic, of_every_leaf_stops_at_the_leaf) { run_each_quietly(tree); }

/* ---- weft_try ---- */

static int returns_epanic(void *arg) {
    (void)arg;
    return WEFT_EPANIC;
}

static int tries(void *arg) {
    weft_panic_info info;
    (void)arg;
    CHECK_EQ(weft_try(return_int, as_arg(7), &info), 7);
    CHECK(info.site == NULL);
    CHECK_EQ(weft_try(return_int, as_arg(-7), NULL), -7);
    CHECK_EQ(weft_try(returns_epanic, NULL, &info), WEFT_EPANIC);
    CHECK(info.site == NULL);
    CHECK_EQ(weft_try(panics, NULL, &info), WEFT_EPANIC);
    CHECK(info.site != NULL);
    CHECK_STR(info.message, "at 0");
    CHECK(info.file && strstr(info.file, "panic.c") && info.line > 0);
    CHECK_EQ(info.task, weft_self());
    CHECK(info.frames > 5 && info.frame[0] == info.site);
    CHECK_EQ(weft_try(panics, NULL, NULL), WEFT_EPANIC);
    CHECK_EQ(atomic_load(&reported), 0); /* whoever tries knows */
    return 0;
}

TEST(panic, is_contained_by_try) { run_each_quietly(tries); }

static int inner_then_outer(void *arg) {
    weft_panic_info info;
    CHECK_EQ(weft_try(panics, NULL, &info), WEFT_EPANIC);
    *(int *)arg = 1;
    weft_yield();
    weft_panic("outer");
}

static int nested_tries(void *arg) {
    weft_panic_info info;
    int inner = 0;
    (void)arg;
    CHECK_EQ(weft_try(inner_then_outer, &inner, &info), WEFT_EPANIC);
    CHECK_EQ(inner, 1);
    CHECK_STR(info.message, "outer");
    CHECK_EQ(weft_try(panics, NULL, NULL), WEFT_EPANIC);
    return 0;
}

TEST(panic, tries_nest) { run_each_quietly(nested_tries); }

static int child_of_try(void *arg) {
    (void)arg;
    return in_child(panics, NULL) == WEFT_EPANIC ? 3 : 4;
}

static int try_is_not_for_children(void *arg) {
    weft_panic_info info;
    (void)arg;
    CHECK_EQ(weft_try(child_of_try, NULL, &info), 3);
    CHECK_EQ(atomic_load(&reported), 1);
    return 0;
}

TEST(panic, of_a_child_is_not_caught_by_its_openers_try) { run_each_quietly(try_is_not_for_children); }

static int long_message(void *arg) {
    char text[1000];
    memset(text, 'x', sizeof text);
    (void)arg;
    weft_panic("%.*s", (int)sizeof text, text);
}

static int message_is_cut(void *arg) {
    weft_panic_info info;
    (void)arg;
    CHECK_EQ(weft_try(long_message, NULL, &info), WEFT_EPANIC);
    CHECK_EQ(strlen(info.message), sizeof info.message - 1);
    return 0;
}

TEST(panic, message_is_cut_off) { run_each_quietly(message_is_cut); }

static int through_pointer(void *arg) {
    void (*volatile f)(const char *, ...) = weft_panic;
    (void)arg;
    f("by pointer");
    return 0;
}

static int pointer_works(void *arg) {
    weft_panic_info info;
    (void)arg;
    CHECK_EQ(weft_try(through_pointer, NULL, &info), WEFT_EPANIC);
    CHECK(info.file == NULL && info.site != NULL);
    return 0;
}

TEST(panic, function_can_be_called_through_a_pointer) { run_each_quietly(pointer_works); }

/* ---- scopes that are open ---- */

static atomic_int begun, ended;

static int waits(void *arg) {
    (void)arg;
    atomic_fetch_add(&begun, 1);
    CHECK_EQ(weft_sleep(WEFT_FOREVER), WEFT_ECANCELED);
    CHECK_EQ(weft_cancel_cause(), WEFT_EPANIC);
    weft_yield();
    atomic_fetch_add(&ended, 1);
    return WEFT_ECANCELED;
}

static int panics_with_scopes(void *arg) {
    weft_scope a, b, c;
    (void)arg;
    weft_scope_begin(&a, NULL);
    for (int i = 0; i < 5; i++) CHECK_EQ(weft_spawn(&a, waits, NULL), 0);
    weft_scope_begin(&b, &(weft_scope_opts){.deadline = weft_after(HOUR)});
    for (int i = 0; i < 5; i++) CHECK_EQ(weft_spawn(&b, waits, NULL), 0);
    task_wait(&begun, 10);
    weft_scope_begin(&c, NULL);
    CHECK_EQ(weft_spawn(&c, waits, NULL), 0); /* not started: it runs all the same, inside the panic */
    panic_below(3, "scopes");
}

static int scopes_are_ended(void *arg) {
    weft_scope around;
    (void)arg;
    weft_scope_begin(&around, NULL);
    for (int i = 0; i < 20; i++) {
        atomic_store(&begun, 0);
        atomic_store(&ended, 0);
        weft_panic_info info;
        int rc = i % 3 == 0   ? weft_try(panics_with_scopes, NULL, &info)
                 : i % 3 == 1 ? in_task(panics_with_scopes, NULL)
                              : in_child(panics_with_scopes, NULL);
        CHECK_EQ(rc, WEFT_EPANIC);
        CHECK_EQ(atomic_load(&ended), 11);
        CHECK_EQ(weft_cancelled(), 0);
    }
    CHECK_EQ(weft_scope_end(&around), 0);
    return 0;
}

TEST(panic, cancels_and_joins_the_scopes_it_passes) { run_each_quietly(scopes_are_ended); }

static int panics_too(void *arg) {
    (void)arg;
    CHECK_EQ(weft_sleep(WEFT_FOREVER), WEFT_ECANCELED);
    weft_panic("after cancellation");
}

static int panics_with_panicking_children(void *arg) {
    weft_scope s;
    (void)arg;
    weft_scope_begin(&s,
                     &(weft_scope_opts){.on_error = WEFT_KEEP_GOING}); /* the first of them must not have the others refused */
    for (int i = 0; i < 10; i++) CHECK_EQ(weft_spawn(&s, panics_too, NULL), 0);
    weft_yield();
    for (int i = 0; i < 10; i++) CHECK_EQ(weft_spawn(&s, panics, NULL), 0);
    weft_panic("first");
}

static int children_panic_in_panic(void *arg) {
    weft_panic_info info;
    (void)arg;
    CHECK_EQ(weft_try(panics_with_panicking_children, NULL, &info), WEFT_EPANIC);
    CHECK_STR(info.message, "first");
    CHECK_GE(atomic_load(&reported), 20);
    return 0;
}

TEST(panic, of_children_that_a_panic_waits_for_is_theirs) { run_each_quietly(children_panic_in_panic); }

/* ---- plain threads ---- */

static int panic_on_thread(void *arg) {
    (void)arg;
    weft_panic("on %s", "a thread");
}

TEST(panic, on_a_plain_thread_aborts) {
    CHECK_DIES(panic_on_thread, "panic in a plain thread");
    CHECK_DIES(panic_on_thread, "on a thread");
}

TEST(panic, on_a_plain_thread_is_contained_by_try) {
    weft_panic_info info;
    CHECK_EQ(weft_try(panic_on_thread, NULL, &info), WEFT_EPANIC);
    CHECK_STR(info.message, "on a thread");
    CHECK_EQ(info.task, 0);
    CHECK_EQ(set_up(2), 0);
    for (int i = 0; i < 10; i++) {
        atomic_store(&begun, 0);
        atomic_store(&ended, 0);
        weft_scope around;
        weft_scope_begin(&around, NULL);
        CHECK_EQ(weft_try(panics_with_scopes, NULL, &info), WEFT_EPANIC);
        CHECK_EQ(atomic_load(&ended), 11);
        CHECK_EQ(weft_scope_end(&around), 0);
    }
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
}

static int block_on_panics(void *arg) {
    (void)arg;
    CHECK_EQ(set_up(1), 0);
    CHECK_EQ(weft_block_on(panics, NULL), WEFT_EPANIC);
    return weft_stop(WEFT_FOREVER);
}

TEST(panic, of_a_task_that_a_thread_waits_for_is_its_result) { CHECK_CHILD(block_on_panics); }

/* ---- reports, hooks, policy ---- */

static int unnoticed(void *arg) {
    CHECK_EQ(weft_spawnf(arg, panics, NULL, "the %s", "culprit"), 0);
    return 0;
}

static int reports_by_default(void *arg) {
    weft_scope s;
    (void)arg;
    weft_scope_begin(&s, NULL);
    unnoticed(&s);
    return weft_scope_end(&s) == WEFT_EPANIC ? 0 : 1;
}

static int run_default(void *arg) {
    (void)arg;
    return run_on(2, reports_by_default, NULL);
}

TEST(panic, is_reported_on_stderr) {
    struct test_child c;
    test_child(run_default, NULL, &c);
    CHECK_EQ(c.exit_code, 0);
    CHECK(strstr(c.out, "panic in task "));
    CHECK(strstr(c.out, "\"the culprit\" at "));
    CHECK(strstr(c.out, "panic.c:"));
    CHECK(strstr(c.out, ": at 0\n"));
    CHECK(strstr(c.out, "function: "));
    CHECK(strstr(c.out, "spawned at: "));
    CHECK(strstr(c.out, "backtrace, innermost first:"));
}

static int on_small_stack(void *arg) {
    weft_task *t;
    int result;
    (void)arg;
    CHECK_EQ(weft_task_start(&t, panics, NULL, &(weft_task_opts){.name = "small", .stack_size = 16 << 10}), 0);
    CHECK_EQ(weft_task_join(t, &result, WEFT_FOREVER), 0);
    return result == WEFT_EPANIC ? 0 : 1;
}

static int run_on_small_stack(void *arg) {
    (void)arg;
    return run_on(2, on_small_stack, NULL);
}

TEST(panic, is_reported_on_the_smallest_stack) {
    if (test_slow_tools() > 1) test_skip("the tools need stack of their own");
    struct test_child c;
    test_child(run_on_small_stack, NULL, &c);
    CHECK_MSG(c.exit_code == 0, "%s", c.out);
    CHECK(strstr(c.out, "\"small\""));
}

static int run_with_abort(void *arg) {
    weft_config cfg = {.workers = 1, .flags = WEFT_PANIC_ABORT};
    (void)arg;
    return weft_run(joined_with_epanic, NULL, &cfg);
}

static int run_tries_with_abort(void *arg) {
    weft_config cfg = {.workers = 1, .flags = WEFT_PANIC_ABORT};
    (void)arg;
    return weft_run(tries, NULL, &cfg);
}

TEST(panic, aborts_where_the_configuration_says_so) {
    CHECK_DIES(run_with_abort, "panic in task");
    CHECK_CHILD(run_tries_with_abort);
    weft_config cfg = {.workers = 1, .flags = 1u << 31};
    CHECK_EQ(weft_run(return_int, NULL, &cfg), WEFT_EINVAL);
}

static atomic_int exited;

static void on_exit_count(void *arg) {
    (void)arg;
    atomic_fetch_add(&exited, 1);
}

static void before_unwinding(const weft_panic_info *info, void *arg) {
    CHECK_STR((char *)arg, "the argument");
    CHECK_EQ(info->task, weft_self());
    CHECK_EQ(atomic_load(&exited), 0);
    weft_yield(); /* it may wait */
    atomic_fetch_add(&reported, 1);
}

static int exits_and_panics(void *arg) {
    CHECK_EQ(weft_at_exit(on_exit_count, NULL), 0);
    return panics(arg);
}

static int hooked(void *arg) {
    (void)arg;
    CHECK_EQ(in_child(exits_and_panics, NULL), WEFT_EPANIC);
    CHECK_EQ(atomic_load(&exited), 1);
    atomic_store(&exited, 0);
    CHECK_EQ(in_task(exits_and_panics, NULL), WEFT_EPANIC);
    CHECK_EQ(atomic_load(&exited), 1);
    CHECK_EQ(atomic_load(&reported), 2);
    return 0;
}

TEST(panic, hook_runs_before_anything_is_unwound) {
    EACH_WORKERS(w) {
        weft_config cfg = {.workers = w, .on_panic = before_unwinding, .hook_arg = "the argument"};
        atomic_store(&exited, 0);
        atomic_store(&reported, 0);
        CHECK_EQ(weft_run(hooked, NULL, &cfg), 0);
    }
}

static void hook_panics(const weft_panic_info *info, void *arg) {
    (void)info, (void)arg;
    weft_panic("second");
}

static int run_panicking_hook(void *arg) {
    weft_config cfg = {.workers = 1, .on_panic = hook_panics};
    (void)arg;
    return weft_run(panics, NULL, &cfg);
}

TEST(panic, in_the_hook_aborts) {
    CHECK_DIES(run_panicking_hook, "second");
    CHECK_DIES(run_panicking_hook, "while it was unwinding from \"at 0\"");
}

static void hook_tries(const weft_panic_info *info, void *arg) {
    weft_panic_info inner;
    CHECK_EQ(weft_try(panic_on_thread, NULL, &inner), WEFT_EPANIC);
    count_report(info, arg);
}

TEST(panic, in_a_try_in_the_hook_is_contained) {
    weft_config cfg = {.workers = 1, .on_panic = hook_tries};
    atomic_store(&reported, 0);
    CHECK_EQ(weft_run(panics, NULL, &cfg), WEFT_EPANIC);
    CHECK_EQ(atomic_load(&reported), 1);
    CHECK_STR(last_report.message, "at 0");
}

/* ---- detached tasks ---- */

static atomic_int failures, failed_with;

static void on_task_error(uint64_t id, const char *name, int result, void *arg) {
    CHECK(id != 0 && id == weft_self());
    CHECK_STR(name, "");
    CHECK_PTR(arg, &failures);
    atomic_fetch_add(&failed_with, result);
    atomic_fetch_add(&failures, 1);
}

static int go_wrong(void *arg) {
    (void)arg;
    CHECK_EQ(weft_go(return_int, as_arg(-3)), 0);
    CHECK_EQ(weft_go(return_int, as_arg(3)), 0);
    CHECK_EQ(weft_go(panics, NULL), 0);
    task_wait(&failures, 2);
    CHECK_EQ(atomic_load(&failed_with), -3 + WEFT_EPANIC);
    CHECK_EQ(in_child(return_int, as_arg(-3)), -3); /* somebody joins these */
    CHECK_EQ(in_task(return_int, as_arg(-3)), -3);
    CHECK_EQ(weft_go(wait_for_ever, NULL), 0); /* cancelled by the end */
    weft_yield();
    return 0;
}

TEST(panic, errors_of_detached_tasks_reach_the_hook) {
    EACH_WORKERS(w) {
        weft_config cfg = {.workers = w, .on_panic = count_report, .on_task_error = on_task_error, .hook_arg = &failures};
        atomic_store(&failures, 0);
        atomic_store(&failed_with, 0);
        CHECK_EQ(weft_run(go_wrong, NULL, &cfg), 0);
        CHECK_EQ(atomic_load(&failures), 2);
    }
}

static void error_hook_panics(uint64_t id, const char *name, int result, void *arg) {
    (void)id, (void)name, (void)result, (void)arg;
    atomic_fetch_add(&failures, 1);
    weft_panic("in the error hook");
}

static int go_and_wait(void *arg) {
    (void)arg;
    CHECK_EQ(weft_go(return_int, as_arg(-3)), 0);
    task_wait(&failures, 1);
    task_wait(&reported, 1);
    return 0;
}

TEST(panic, in_the_error_hook_is_contained) {
    weft_config cfg = {.workers = 2, .on_panic = count_report, .on_task_error = error_hook_panics};
    atomic_store(&failures, 0);
    atomic_store(&reported, 0);
    CHECK_EQ(weft_run(go_and_wait, NULL, &cfg), 0);
}

/* ---- what cannot be unwound ---- */

static int ends_thread(void *arg) {
    (void)arg;
    pthread_exit(NULL);
}

static int run_ends_thread(void *arg) {
    (void)arg;
    return run_on(1, ends_thread, NULL);
}

TEST(panic, a_task_that_ends_its_thread_is_told) {
#ifdef WEFT_TSAN
    test_skip("ThreadSanitizer dies of it by itself");
#endif
#ifndef __GLIBC__
    test_skip("this C library's pthread_exit unwinds nothing, so that nobody can notice");
#endif
    CHECK_DIES(run_ends_thread, "a task ended the thread it runs on");
}

#if defined(__x86_64__)
#define CALL_WITHOUT_TABLES "sub $8, %rsp\nxor %eax, %eax\ncall *%rdi\nadd $8, %rsp\nret\n"
#else
#define CALL_WITHOUT_TABLES "stp x29, x30, [sp, #-16]!\nmov x9, x0\nmov x0, xzr\nblr x9\nldp x29, x30, [sp], #16\nret\n"
#endif
int call_without_tables(weft_fn *fn);
__asm__(".text\n.type call_without_tables, %function\ncall_without_tables:\n" CALL_WITHOUT_TABLES
        ".size call_without_tables, .-call_without_tables\n");

static int panics_without_tables(void *arg) {
    (void)arg;
    return call_without_tables(panics);
}

static int run_without_tables(void *arg) {
    (void)arg;
    return run_quietly(1, panics_without_tables, NULL);
}

TEST(panic, through_code_without_unwind_tables_aborts) {
    CHECK_DIES(run_without_tables, "code without unwind tables");
    CHECK_DIES(run_without_tables, "at 0");
}

/* ---- in the function of a timer ---- */

static void tick_badly(void *ticks) {
    if (atomic_fetch_add((atomic_int *)ticks, 1) % 2 == 0) weft_panic("a bad tick");
}
static void tick_well(void *ticks) { atomic_fetch_add((atomic_int *)ticks, 1); }
static int parks_soon(void *arg) {
    (void)arg;
    return weft_sleep_for(WEFT_MS);
}

/* Two are due at the same moment, and the first panics: the second is called, the first is not running any more, and goes on. Whoever gets the runner's
 * stack may wait. */
static int panic_in_timers(void *arg) {
    (void)arg;
    weft_timer bad = {0}, good = {0};
    atomic_int of_bad = 0, of_good = 0;
    weft_deadline at = weft_after(2 * WEFT_MS);
    CHECK_EQ(weft_timer_start(&bad, at, WEFT_MS, tick_badly, &of_bad), 0);
    CHECK_EQ(weft_timer_start(&good, at, 0, tick_well, &of_good), 0);
    task_wait(&of_good, 1);
    task_wait(&of_bad, 4);
    int before = atomic_load(&of_bad);
    CHECK_EQ(weft_timer_start(&bad, weft_after(0), 0, tick_well, &of_bad), 0);
    task_wait(&of_bad, before + 1);
    (void)weft_timer_stop_wait(&bad);
    CHECK_GT(atomic_load(&reported), 1);
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 100; i++) CHECK_EQ(weft_spawn(&s, parks_soon, NULL), 0);
    return weft_scope_end(&s);
}

TEST(panic, in_a_timers_function_counts_as_its_return) { run_each_quietly(panic_in_timers); }
