/* SPDX-License-Identifier: MIT */
/* How deep the tasks of each spawn site go: noted, reported, followed. */
#include "api/common.h"

static __attribute__((noinline)) unsigned char dig(size_t bytes) {
    volatile unsigned char frame[1024];
    frame[bytes % 1024] = (unsigned char)bytes;
    unsigned char below = bytes > 1100 ? dig(bytes - 1100) : 0;
    return (unsigned char)(below + frame[bytes % 1024]);
}

static int dig_kb(void *arg) {
    (void)dig((size_t)(intptr_t)arg * 1000);
    return 0;
}
static int deep_task(void *arg) { return dig_kb(arg); }
static int shallow_task(void *arg) {
    weft_yield();
    return (int)(intptr_t)arg - (int)(intptr_t)arg;
}

/* What was noted for a function: a compiler that unrolls a loop makes several spawn sites of one. */
struct noted {
    weft_fn *fn;
    weft_stack_site all;
    int sites;
};

static void look(const weft_stack_site *site, void *arg) {
    struct noted *n = arg;
    if (site->fn != n->fn) return;
    uint64_t tasks = n->all.tasks + site->tasks;
    if (n->sites++ == 0 || site->high_water > n->all.high_water) n->all = *site;
    n->all.tasks = tasks;
}

static weft_stack_site noted(weft_fn *fn) {
    struct noted n = {.fn = fn};
    CHECK_GT(weft_stack_sites(look, &n), 0);
    CHECK_GT(n.sites, 0);
    return n.all;
}

static int run_flagged(int workers, weft_fn *fn, void *arg, unsigned flags) {
    weft_config cfg = {0};
    cfg.workers = workers;
    cfg.flags = flags;
    return weft_run(fn, arg, &cfg);
}

enum { TASKS = 40 };

static int spawn_both(void *arg) {
    (void)arg;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < TASKS; i++) {
        CHECK_EQ(weft_spawn(&s, deep_task, as_arg(i == 7 ? 100 : 10)), 0);
        CHECK_EQ(weft_spawn(&s, shallow_task, NULL), 0); /* on stacks that the others have left */
    }
    return weft_scope_end(&s);
}

/* Sanitizers make frames several times as large. */
static int more(void) { return test_slow_tools() == 10 ? 2 : 1; }

TEST(stack_measure, each_spawn_site_has_its_own_high_water_mark) {
    EACH_WORKERS(w) {
        CHECK_EQ(run_flagged(w, spawn_both, NULL, WEFT_STACK_MEASURE), 0);
        weft_stack_site deep = noted(deep_task), shallow = noted(shallow_task); /* they are still there after the end */
        CHECK_EQ(deep.tasks, TASKS);
        CHECK_EQ(shallow.tasks, TASKS);
        CHECK_EQ(deep.reserve, 256 << 10);
        CHECK_GE(deep.high_water, 90 * 1000); /* a frame may be a little smaller than it is counted */
        CHECK_LE(deep.high_water, more() * (100 * 1100 + 8192));
        CHECK_LE(shallow.high_water, more() * 8192);
        CHECK(deep.advice == (256 << 10) || deep.advice == (512 << 10)); /* room for twice 100 KB */
        CHECK_LE(shallow.advice, more() * (32 << 10));
        CHECK(deep.spawned_at != shallow.spawned_at);
    }
}

static int named_and_waiting(void *arg) {
    weft_scope s;
    weft_task_opts o = {.name = "sized", .stack_size = 1 << 20};
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 5; i++) CHECK_EQ(weft_spawn_opts(&s, deep_task, as_arg(600), &o), 0);
    CHECK_EQ(weft_sleep_for(WEFT_MS), 0);
    return weft_scope_end(&s) + (int)(intptr_t)arg;
}

TEST(stack_measure, sizes_of_their_own_are_measured_too) {
    CHECK_EQ(run_flagged(2, named_and_waiting, NULL, WEFT_STACK_MEASURE), 0);
    weft_stack_site deep = noted(deep_task);
    CHECK_EQ(deep.reserve, 1 << 20);
    CHECK_GE(deep.high_water, 540 * 1000);
    CHECK_GE(deep.advice, 2 << 20);
}

TEST(stack_measure, without_the_flag_nothing_is_noted) {
    CHECK_EQ(run_flagged(2, spawn_both, NULL, 0), 0);
    CHECK_EQ(weft_stack_sites(NULL, NULL), 0);
}

static int run_other(void *arg) { return shallow_task(arg); }

TEST(stack_measure, a_new_runtime_begins_anew) {
    CHECK_EQ(run_flagged(2, spawn_both, NULL, WEFT_STACK_MEASURE), 0);
    CHECK_EQ(run_flagged(2, run_other, NULL, WEFT_STACK_MEASURE), 0);
    CHECK_EQ(weft_stack_sites(NULL, NULL), 1);
}

/* ---- the report ---- */

static int report_by_environment(void *arg) {
    setenv("WEFT_STACK_REPORT", "1", 1);
    setenv("WEFT_WORKERS", "2", 1);
    if (arg) { /* no stop: exit tells */
        CHECK_EQ(weft_start(NULL), 0);
        CHECK_EQ(weft_block_on(spawn_both, NULL), 0);
        return 0;
    }
    return weft_run(spawn_both, NULL, NULL);
}

TEST(stack_measure, the_environment_asks_for_a_report_at_the_end) {
    for (int by_exit = 0; by_exit < 2; by_exit++) {
        struct test_child c;
        test_child(report_by_environment, as_arg(by_exit), &c);
        CHECK_MSG(c.exit_code == 0, "exit %d, signal %d:\n%s", c.exit_code, c.signal, c.out);
        char *title = strstr(c.out, "weft: stacks by spawn site");
        CHECK_MSG(title && !strstr(title + 1, "weft: stacks"), "%s", c.out);
        CHECK_MSG(strstr(c.out, " tasks, high-water ") && strstr(c.out, " KiB of 256 KiB, advice "), "%s", c.out);
    }
}

/* ---- followed ---- */

/* One spawn site, whatever the compiler does to loops and tail calls. */
static __attribute__((noinline)) int spawn_here(weft_scope *s, weft_fn *fn, void *arg) {
    int rc = weft_spawn(s, fn, arg);
    __asm__ volatile("" ::: "memory");
    return rc;
}

struct noted_by {
    weft_fn *fn;
    uint64_t tasks;
};
static bool all_noted(void *arg) {
    struct noted_by *want = arg;
    struct noted n = {.fn = want->fn};
    (void)weft_stack_sites(look, &n);
    return n.sites > 0 && n.all.tasks >= want->tasks;
}

static int spawn_many(void *arg) {
    weft_fn **fn = arg;
    for (int round = 0; round < 4; round++) {
        struct noted_by before = {*fn, (uint64_t)(round * TASKS)};
        if (round) test_task_until(all_noted, &before); /* a stack is measured after its task has ended: none may come late */
        weft_scope s;
        weft_scope_begin(&s, NULL);
        for (int i = 0; i < TASKS; i++) CHECK_EQ(spawn_here(&s, *fn, as_arg(40)), 0);
        CHECK_EQ(weft_scope_end(&s), 0);
    }
    return 0;
}

TEST(stack_measure, advice_is_followed_on_request) {
    EACH_WORKERS(w) {
        CHECK_EQ(run_flagged(w, spawn_many, &(weft_fn *){shallow_task}, WEFT_STACK_ADVISED), 0);
        weft_stack_site shallow = noted(shallow_task);
        CHECK_EQ(shallow.tasks, 4 * TASKS);
        CHECK_EQ(shallow.reserve, shallow.advice); /* the last one had it */
        CHECK_LT(shallow.reserve, 256 << 10);
        CHECK_EQ(run_flagged(w, spawn_many, &(weft_fn *){deep_task}, WEFT_STACK_ADVISED), 0);
        CHECK_EQ(noted(deep_task).reserve, noted(deep_task).advice);
        CHECK_GE(noted(deep_task).reserve, 128 << 10);
    }
}

static int dig_160(void *arg) { return dig_kb(as_arg(160 + (intptr_t)arg - (intptr_t)arg)); }

TEST(stack_measure, advice_may_be_more_than_the_default) {
    CHECK_EQ(run_flagged(2, spawn_many, &(weft_fn *){dig_160}, WEFT_STACK_ADVISED), 0);
    CHECK_EQ(noted(dig_160).reserve, 512 << 10);
}

/* Everything else works as always while it is measured. */
static int nest(void *arg) {
    int depth = (int)(intptr_t)arg;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; depth > 0 && i < 3; i++) CHECK_EQ(weft_spawn(&s, nest, as_arg(depth - 1)), 0);
    CHECK_EQ(weft_sleep_for(10 * WEFT_US), 0);
    return weft_scope_end(&s);
}

TEST(stack_measure, tasks_run_as_always) {
    EACH_WORKERS(w) {
        CHECK_EQ(run_flagged(w, nest, as_arg(6), WEFT_STACK_MEASURE), 0);
        CHECK_EQ(run_flagged(w, nest, as_arg(6), WEFT_STACK_ADVISED), 0);
    }
}
