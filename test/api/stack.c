/* SPDX-License-Identifier: MIT */
/* Stacks: how deep they go, what happens below, and that there can be many. */
#include <signal.h>
#include <unistd.h>

#include "api/common.h"

/* Uses about `bytes` of stack in frames of 1 KiB, and checks them on the way back. */
static __attribute__((noinline)) int use_stack(size_t bytes) {
    volatile unsigned char frame[1024];
    frame[0] = (unsigned char)(bytes >> 10);
    frame[1023] = (unsigned char)(bytes >> 11);
    int below = bytes > 1100 ? use_stack(bytes - 1100) : (weft_yield(), 0); /* 1 KiB and the frame around it */
    CHECK_EQ(frame[0], (unsigned char)(bytes >> 10));
    CHECK_EQ(frame[1023], (unsigned char)(bytes >> 11));
    return below + 1;
}

static atomic_int ran;

static int use_bytes(void *arg) {
    CHECK_GT(use_stack((size_t)(intptr_t)arg), 0);
    atomic_fetch_add(&ran, 1);
    return 0;
}

static int deep_by_default(void *arg) {
    (void)arg;
    weft_scope s;
    atomic_store(&ran, 0);
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 50; i++) CHECK_EQ(weft_spawn(&s, use_bytes, as_arg(180 * 1000)), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(atomic_load(&ran), 50);
    return 0;
}

TEST(stack, a_default_task_has_room_for_180_kb) { run_each(deep_by_default); }

static int deep_main(void *arg) { return use_bytes(arg); }

TEST(stack, so_has_the_first_task) {
    EACH_WORKERS(w)
    CHECK_EQ(run_on(w, deep_main, as_arg(180 * 1000)), 0);
}

/* scope_end may run children on the waiting task's stack; nobody's room may shrink by that. */
static __attribute__((noinline)) int join_below(size_t bytes, weft_scope *s) {
    volatile unsigned char frame[1024];
    frame[bytes & 1023] = 1;
    if (bytes > 1100) return join_below(bytes - 1100, s) + frame[bytes & 1023] - 1;
    CHECK_EQ(weft_spawn(s, use_bytes, as_arg(180 * 1000)), 0);
    return weft_scope_end(s);
}

static int join_at_depth(void *arg) {
    (void)arg;
    for (int used = 1; used <= 180; used += 20) {
        weft_scope s;
        weft_scope_begin(&s, NULL);
        CHECK_EQ(join_below((size_t)used * 1000, &s), 0);
    }
    return 0;
}

TEST(stack, a_child_has_its_room_however_deep_its_parent_is) { run_each(join_at_depth); }

static int nest_and_use(void *arg) {
    int depth = (int)(intptr_t)arg;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    if (depth > 0) CHECK_EQ(weft_spawn(&s, nest_and_use, as_arg(depth - 1)), 0);
    CHECK_EQ(weft_spawn(&s, use_bytes, as_arg(180 * 1000)), 0);
    return weft_scope_end(&s);
}

static int deep_nested(void *arg) {
    (void)arg;
    for (int i = 0; i < 5; i++) CHECK_EQ(nest_and_use(as_arg(200)), 0);
    return 0;
}

TEST(stack, a_child_has_its_room_in_nested_scopes_too) { run_each(deep_nested); }

static int sizes_by_option(void *arg) {
    (void)arg;
    static const size_t sizes[] = {64 << 10, 256 << 10, 1 << 20, 10 << 20, 100 << 20};
    size_t n = COUNT(sizes) - (test_slow_tools() > 1); /* tools keep a list of frames, and not for so many */
    weft_scope s;
    atomic_store(&ran, 0);
    weft_scope_begin(&s, NULL);
    for (int round = 0; round < 3; round++)
        for (size_t i = 0; i < n; i++) {
            weft_task_opts o = {.name = "sized", .stack_size = sizes[i]};
            CHECK_EQ(weft_spawn_opts(&s, use_bytes, as_arg((intptr_t)(sizes[i] / 100 * 70)), &o), 0);
        }
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(atomic_load(&ran), 3 * n);
    return 0;
}

TEST(stack, its_size_is_an_option) { run_each(sizes_by_option); }

TEST(stack, the_default_is_a_setting) {
    EACH_WORKERS(w) {
        weft_config cfg = {.workers = w, .stack_size = 4 << 20, .max_threads = 0, .search = 0};
        CHECK_EQ(weft_run(deep_main, as_arg(3 << 20), &cfg), 0);
        cfg.stack_size = 64 << 10;
        CHECK_EQ(weft_run(deep_main, as_arg(32 << 10), &cfg), 0);
    }
}

/* ---- overflow ---- */

static volatile int never; /* keeps the compiler from seeing that it does not end */

static __attribute__((noinline)) int fall(int n) {
    volatile char frame[512];
    frame[n & 511] = 1;
    if (never) return 0;
    return fall(n + 1) + frame[n & 255];
}

static int overflow(void *arg) {
    (void)arg;
    weft_yield();
    return fall(0);
}

static int read_nowhere(void *arg) {
    volatile int *p = arg;
    return *p;
}

struct overflow {
    int workers;
    size_t stack_size;
    const char *name;
    weft_fn *fn; /* NULL: overflow */
};

static int spawn_overflow(void *arg) {
    struct overflow *o = arg;
    weft_task_opts opts = {.name = o->name, .stack_size = o->stack_size};
    weft_scope s;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn_opts(&s, o->fn ? o->fn : overflow, as_arg(16), &opts), 0);
    return weft_scope_end(&s);
}

static int run_overflow(void *arg) {
    struct overflow *o = arg;
    return run_on(o->workers, spawn_overflow, o);
}

static bool mentions(const char *text, const char *a, const char *b) { return strstr(text, a) || strstr(text, b); }

TEST(stack, an_overflow_is_reported_and_ends_the_process) {
    test_needs_guards();
    test_skip_under("the tools report it themselves", NULL);
    EACH_WORKERS(w) {
        struct test_child c;
        struct overflow o = {w, 0, "icarus", NULL};
        test_child(run_overflow, &o, &c);
        CHECK_MSG(!c.hung && c.exit_code != 0, "exit %d, signal %d:\n%s", c.exit_code, c.signal, c.out);
        CHECK_MSG(strstr(c.out, "overflow"), "no report:\n%s", c.out);
        CHECK_MSG(strstr(c.out, "icarus"), "no name:\n%s", c.out);
        CHECK_MSG(mentions(c.out, "262144", "256 Ki"), "no limit:\n%s", c.out);
    }
}

TEST(stack, an_overflow_report_names_the_tasks_own_limit) {
    test_needs_guards();
    test_skip_under("the tools report it themselves", NULL);
    struct test_child c;
    struct overflow o = {2, 1 << 20, "daedalus", NULL};
    test_child(run_overflow, &o, &c);
    CHECK_MSG(!c.hung && c.exit_code != 0, "exit %d, signal %d:\n%s", c.exit_code, c.signal, c.out);
    CHECK_MSG(strstr(c.out, "daedalus"), "no name:\n%s", c.out);
    CHECK_MSG(mentions(c.out, "1048576", "1024 Ki") || strstr(c.out, "1 Mi"), "no limit:\n%s", c.out);
}

static int overflow_main(void *arg) { return run_on((int)(intptr_t)arg, overflow, NULL); }

TEST(stack, an_overflow_of_the_first_task_is_reported_too) {
    test_needs_guards();
    test_skip_under("the tools report it themselves", NULL);
    CHECK_DIES_ARG(overflow_main, as_arg(1), "overflow");
    CHECK_DIES_ARG(overflow_main, as_arg(2), "overflow");
}

TEST(stack, another_fault_names_the_task_too) {
    test_skip_under("the tools report it themselves", NULL);
    EACH_WORKERS(w) {
        struct test_child c;
        struct overflow o = {w, 0, "icarus", read_nowhere};
        test_child(run_overflow, &o, &c);
        CHECK_EQ(c.signal, SIGSEGV);
        CHECK_MSG(strstr(c.out, "weft: SIGSEGV in task "), "no report:\n%s", c.out);
        CHECK_MSG(strstr(c.out, "\"icarus\": bad access to address 0x10.\n"), "no name or address:\n%s", c.out);
        CHECK_MSG(strstr(c.out, "backtrace, innermost first:\n"), "no backtrace:\n%s", c.out);
    }
}

static int raise_it(void *arg) {
    (void)arg;
    return raise(SIGSEGV);
}

TEST(stack, a_signal_that_was_sent_is_not_reported_as_a_fault) {
    test_skip_under("the tools report it themselves", NULL);
    struct test_child c;
    struct overflow o = {2, 0, "icarus", raise_it};
    test_child(run_overflow, &o, &c);
    CHECK_EQ(c.signal, SIGSEGV);
    CHECK_MSG(!strstr(c.out, "icarus"), "a report:\n%s", c.out);
}

static int run_read_nowhere(void *arg) {
    (void)arg;
    return run_on(2, read_nowhere, as_arg(16));
}

TEST(stack, another_fault_is_not_called_an_overflow) {
    test_skip_under("the tools report it themselves", NULL);
    struct test_child c;
    test_child(run_read_nowhere, NULL, &c);
    CHECK_EQ(c.signal, SIGSEGV); /* as if nobody handled it: a core, a shell that says so */
    CHECK_MSG(!strstr(c.out, "overflow"), "%s", c.out);
}

static void on_user_segv(int sig) {
    (void)sig;
    static const char text[] = "the user's own handler\n";
    ssize_t ignored = write(2, text, sizeof text - 1);
    (void)ignored;
    _exit(42);
}

static int run_with_handler(void *arg) {
    (void)arg;
    signal(SIGSEGV, on_user_segv);
    return run_on(2, read_nowhere, as_arg(16));
}

TEST(stack, a_handler_that_was_there_before_still_gets_other_faults) {
    test_skip_under("the tools report it themselves", NULL);
    struct test_child c;
    test_child(run_with_handler, NULL, &c);
    CHECK_EQ(c.exit_code, 42);
    CHECK(strstr(c.out, "the user's own handler"));
}

/* ---- many ---- */

static atomic_int parked;

static int park_with_data(void *arg) {
    unsigned char mine[256];
    unsigned seed = (unsigned)(uintptr_t)&mine;
    for (size_t i = 0; i < sizeof mine; i++) mine[i] = (unsigned char)(seed + i * 7);
    atomic_fetch_add(&parked, 1);
    CHECK_EQ(weft_chan_recv(arg, NULL, WEFT_FOREVER), WEFT_ECLOSED);
    for (size_t i = 0; i < sizeof mine; i++) CHECK_EQ(mine[i], (unsigned char)(seed + i * 7));
    return 0;
}

static int park_many(void *arg) {
    int n = (int)(intptr_t)arg;
    weft_scope s;
    weft_stats st;
    for (int round = 0; round < 2; round++) { /* the second time from the caches */
        weft_chan *c = weft_chan_new(0, 0);
        atomic_store(&parked, 0);
        weft_scope_begin(&s, NULL);
        for (int i = 0; i < n; i++) CHECK_EQ(weft_spawn(&s, park_with_data, c), 0);
        task_wait(&parked, n);
        weft_stats_get(&st);
        CHECK_GE(st.stacks, n);
        CHECK_LE(st.stacks, 2 * n + 1000); /* used again, not made again */
        if (st.stack_guards == 3 && test_slow_tools() == 1) CHECK_LE(test_maps(), 400);
        CHECK_EQ(weft_chan_close(c), 0);
        CHECK_EQ(weft_scope_end(&s), 0);
        weft_chan_unref(c);
    }
    return 0;
}

TEST_T(stack, tens_of_thousands_are_parked_at_once, 120) {
    EACH_WORKERS(w)
    CHECK_EQ(run_on(w, park_many, as_arg(test_scale(40000, 500))), 0);
}

/* ---- moving between threads ---- */

static int keep_contents(void *arg) {
    (void)arg;
    unsigned char big[32 << 10];
    uint64_t rnd = weft_self();
    for (int round = 0; round < 20; round++) {
        for (size_t i = 0; i < sizeof big; i += 64) big[i] = (unsigned char)(rnd + i / 64 + (unsigned)round);
        if (round % 3)
            weft_yield();
        else
            CHECK_EQ(weft_sleep_for(10 * WEFT_US), 0);
        for (size_t i = 0; i < sizeof big; i += 64) CHECK_EQ(big[i], (unsigned char)(rnd + i / 64 + (unsigned)round));
    }
    return 0;
}

static int keep_many(void *arg) {
    (void)arg;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 500; i++) CHECK_EQ(weft_spawn(&s, keep_contents, NULL), 0);
    return weft_scope_end(&s);
}

TEST(stack, contents_survive_parking_and_moving) { run_each(keep_many); }
