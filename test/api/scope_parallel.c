/* SPDX-License-Identifier: MIT */
/* Loops on all cores, the first of several tasks, and whose child a task is. */
#include <sched.h>

#include "api/common.h"
#include <weft/debug.h>

/* ---- weft_parallel_for ---- */

static struct loop {
    atomic_uchar *hit;
    size_t n, grain;
    atomic_int calls, longest;
} loop;

static void hit(size_t lo, size_t hi, void *arg) {
    CHECK_PTR(arg, &loop);
    CHECK(lo < hi && hi <= loop.n);
    if (loop.grain) CHECK_LE(hi - lo, loop.grain);
    for (size_t i = lo; i < hi; i++) atomic_fetch_add(&loop.hit[i], 1);
    if (lo % 5 == 0) weft_yield();
    atomic_fetch_add(&loop.calls, 1);
}

static void go_over(size_t n, size_t grain) {
    loop.hit = calloc(n + 1, 1);
    loop.n = n;
    loop.grain = grain;
    atomic_store(&loop.calls, 0);
    CHECK_EQ(weft_parallel_for(n, grain, hit, &loop), 0);
    for (size_t i = 0; i < n; i++) CHECK_EQ(atomic_load(&loop.hit[i]), 1);
    CHECK_EQ(atomic_load(&loop.calls) == 0, n == 0);
    free(loop.hit);
}

static int loops(void *arg) {
    (void)arg;
    static const size_t n[] = {0, 1, 2, 7, 100, 1000, 4097};
    static const size_t grain[] = {0, 1, 3, 64, 5000};
    for (size_t i = 0; i < COUNT(n); i++)
        for (size_t k = 0; k < COUNT(grain); k++) go_over(n[i], grain[k]);
    return 0;
}

TEST(parallel_for, every_number_is_in_exactly_one_part) { run_each(loops); }

TEST(parallel_for, in_a_plain_thread_with_and_without_a_runtime) {
    CHECK_EQ(loops(NULL), 0);
    CHECK_EQ(set_up(2), 0);
    CHECK_EQ(loops(NULL), 0);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
}

static weft_scope cancelled;
static atomic_int parts;

/* Those behind it wait until it has cancelled, and keep their threads: else they could all be done before the kernel lets it go on. */
static atomic_int told;
static void cancel_half_way(size_t lo, size_t hi, void *arg) {
    (void)lo, (void)hi, (void)arg;
    int n = atomic_fetch_add(&parts, 1);
    if (n == 50) {
        weft_scope_cancel(&cancelled);
        atomic_store(&told, 1);
    }
    while (n > 50 && !atomic_load(&told)) sched_yield();
}

static int cancel_loop(void *arg) {
    (void)arg;
    atomic_store(&parts, 0);
    atomic_store(&told, 0);
    weft_scope_begin(&cancelled, NULL);
    CHECK_EQ(weft_parallel_for(100000, 1, cancel_half_way, NULL), WEFT_ECANCELED);
    CHECK_LT(atomic_load(&parts), 1000);
    CHECK_EQ(weft_parallel_for(10, 1, cancel_half_way, NULL), WEFT_ECANCELED);
    CHECK_EQ(weft_scope_end(&cancelled), 0);
    return 0;
}

TEST(parallel_for, stops_when_cancelled) { run_each(cancel_loop); }

/* The parts are tasks of their own: those that wait for each other get on. */
static void meet(size_t lo, size_t hi, void *arg) {
    CHECK_EQ(hi - lo, 1);
    atomic_fetch_add((atomic_int *)arg, 1);
    task_wait(arg, 8);
}

static int parts_meet(void *arg) {
    (void)arg;
    atomic_int here = 0;
    CHECK_EQ(weft_parallel_for(8, 1, meet, &here), 0);
    CHECK_EQ(atomic_load(&here), 8);
    return 0;
}

TEST(parallel_for, parts_run_at_the_same_time) { run_each(parts_meet); }

/* Panics: in the caller's own part it is the caller's; in any other it is told by the result. */
static size_t bad;
static void panic_at(size_t lo, size_t hi, void *arg) {
    if (lo <= bad && bad < hi) weft_panic("number %zu", bad);
    atomic_fetch_add((atomic_int *)arg, (int)(hi - lo));
}

static void no_report(const weft_panic_info *info, void *arg) {
    (void)info;
    atomic_fetch_add((atomic_int *)arg, 1);
}

static int loop_with_panic(void *done) { return weft_parallel_for(1000, 1, panic_at, done); }

static int panics_are_told(void *arg) {
    (void)arg;
    static const size_t at[] = {0, 1, 2, 499, 500, 501, 750, 998, 999};
    for (size_t i = 0; i < COUNT(at); i++) {
        atomic_int done = 0;
        weft_scope s;
        bad = at[i];
        weft_scope_begin(&s, NULL);
        if (at[i]) CHECK_EQ(loop_with_panic(&done), WEFT_EPANIC); /* 0 is in the caller's part */
        CHECK_EQ(weft_try(loop_with_panic, &done, NULL), WEFT_EPANIC);
        CHECK_LT(atomic_load(&done), 2000);
        CHECK_EQ(weft_cancelled(), 0);
        CHECK_EQ(weft_scope_end(&s), 0);
    }
    return 0;
}

TEST(parallel_for, a_panic_is_the_result) {
    EACH_WORKERS(w) {
        atomic_int reported = 0;
        CHECK_EQ(weft_run(panics_are_told, NULL, &(weft_config){.workers = w, .on_panic = no_report, .hook_arg = &reported}),
                 0);
        CHECK_GE(atomic_load(&reported), 16);
    }
}

/* A panic counts, whatever was left out because of a cancellation. */
static void cancel_and_panic(size_t lo, size_t hi, void *arg) {
    (void)hi;
    if (lo != 99) return;
    weft_scope_cancel(arg);
    weft_panic("after cancelling");
}

static int cancelled_and_panicked(void *arg) {
    (void)arg;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_parallel_for(100, 1, cancel_and_panic, &s), WEFT_EPANIC);
    CHECK_EQ(weft_scope_end(&s), 0);
    return 0;
}

TEST(parallel_for, a_panic_counts_more_than_a_cancellation) {
    atomic_int reported = 0;
    weft_config one = alone; /* the last number comes first: nothing cancels before it */
    one.on_panic = no_report;
    one.hook_arg = &reported;
    CHECK_EQ(weft_run(cancelled_and_panicked, NULL, &one), 0);
    CHECK_EQ(atomic_load(&reported), 1);
}

/* ---- weft_task_any ---- */

static int end_with(void *arg) {
    int v;
    int rc = weft_chan_recv(arg, &v, WEFT_FOREVER);
    return rc < 0 ? rc : v;
}

/* N tasks, let go in a given order, are found in that order. */
static void find_all(size_t n) {
    weft_task *t[40];
    weft_chan *c[40];
    size_t which = 99;
    int r = 99;
    for (size_t i = 0; i < n; i++) {
        c[i] = weft_chan_new(sizeof(int), 1);
        CHECK_EQ(weft_task_start(&t[i], end_with, c[i], NULL), 0);
    }
    CHECK_EQ(weft_task_any(t, n, &which, &r, WEFT_POLL), WEFT_EAGAIN);
    CHECK_EQ(weft_task_any(t, n, &which, &r, weft_after(20 * WEFT_US)), WEFT_ETIMEDOUT);
    CHECK_EQ(which, 99);
    for (size_t i = 0; i < n; i++) {
        size_t at = i * 7 % n;
        int v = (int)at * 10;
        CHECK_EQ(weft_chan_send(c[at], &v, WEFT_FOREVER), 0);
        CHECK_EQ(weft_task_any(t, n, &which, &r, i % 2 ? WEFT_FOREVER : weft_after(HOUR)), 0);
        CHECK_EQ(which, at);
        CHECK_EQ(r, v);
        t[at] = NULL; /* released */
    }
    CHECK_EQ(weft_task_any(t, n, &which, &r, WEFT_FOREVER), WEFT_EINVAL);
    for (size_t i = 0; i < n; i++) weft_chan_unref(c[i]);
}

static int find_each(void *arg) {
    (void)arg;
    find_all(1);
    find_all(5);
    find_all(16);
    find_all(40);
    CHECK_EQ(weft_task_any(NULL, 0, NULL, NULL, WEFT_FOREVER), WEFT_EINVAL);
    return 0;
}

TEST(task_any, gives_the_first_to_end_and_releases_it) { run_each(find_each); }

TEST(task_any, in_a_plain_thread) {
    EACH_WORKERS(w) {
        CHECK_EQ(set_up(w), 0);
        CHECK_EQ(find_each(NULL), 0);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    }
}

static int ended_already(void *arg) {
    (void)arg;
    weft_task *t[3];
    int r = 0, sum = 0;
    for (int i = 0; i < 3; i++) CHECK_EQ(weft_task_start(&t[i], return_int, as_arg(i + 1), NULL), 0);
    for (int i = 0; i < 3; i++) {
        size_t which;
        CHECK_EQ(weft_task_any(t, 3, &which, i == 1 ? NULL : &r, WEFT_FOREVER), 0);
        if (i != 1) CHECK_EQ(r, (int)which + 1);
        sum += (int)which;
        t[which] = NULL;
    }
    CHECK_EQ(sum, 3);
    return 0;
}

TEST(task_any, takes_those_that_ended_before) { run_each(ended_already); }

static weft_task *self_handle;

static int wait_for_self(void *arg) {
    task_wait(arg, 1);
    return weft_task_any(&self_handle, 1, NULL, NULL, WEFT_FOREVER);
}

struct cancel_any {
    weft_task *t[2];
    atomic_int waiting;
};

static int wait_any_cancelled(void *arg) {
    struct cancel_any *c = arg;
    atomic_store(&c->waiting, 1);
    CHECK_EQ(weft_task_any(c->t, 2, NULL, NULL, WEFT_FOREVER), WEFT_ECANCELED);
    return 0;
}

static int refused_and_cancelled(void *arg) {
    (void)arg;
    atomic_int ready = 0;
    int r;
    CHECK_EQ(weft_task_start(&self_handle, wait_for_self, &ready, NULL), 0);
    atomic_store(&ready, 1);
    CHECK_EQ(weft_task_join(self_handle, &r, WEFT_FOREVER), 0);
    CHECK_EQ(r, WEFT_EDEADLOCK);
    struct cancel_any c = {{NULL, NULL}, 0};
    weft_scope s;
    for (int i = 0; i < 2; i++) CHECK_EQ(weft_task_start(&c.t[i], wait_for_ever, NULL, NULL), 0);
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, wait_any_cancelled, &c), 0);
    task_wait_parked(&c.waiting, 1);
    weft_scope_cancel(&s);
    CHECK_EQ(weft_scope_end(&s), 0);
    for (int i = 0; i < 2; i++) { /* both handles are still good */
        weft_task_cancel(c.t[i]);
        CHECK_EQ(weft_task_join(c.t[i], &r, WEFT_FOREVER), 0);
        CHECK_EQ(r, WEFT_ECANCELED);
    }
    return 0;
}

TEST(task_any, refuses_itself_and_is_cancelled) { run_each(refused_and_cancelled); }

/* ---- the tree ---- */

static struct {
    uint64_t parent, child, grandchild;
    atomic_int waiting;
} family;

static int grandchild(void *arg) {
    (void)arg;
    family.grandchild = weft_self();
    atomic_fetch_add(&family.waiting, 1);
    return weft_sleep(WEFT_FOREVER);
}

static int child(void *arg) {
    (void)arg;
    weft_scope s;
    family.child = weft_self();
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawnf(&s, grandchild, NULL, "grandchild"), 0);
    return weft_scope_end(&s);
}

static void check_line(const char *dump, uint64_t id, uint64_t parent) {
    char want[100];
    snprintf(want, sizeof want, "\ntask %llu ", (unsigned long long)id);
    const char *at = strstr(dump, want), *of = at ? strstr(at, " child of task ") : NULL;
    CHECK_MSG(of && of < strchr(at + 1, '\n'), "no parent of task %llu in:%s", (unsigned long long)id, dump);
    CHECK_EQ(strtoull(of + strlen(" child of task "), NULL, 10), parent);
}

static int show_family(void *arg) {
    (void)arg;
    static char text[8192];
    weft_scope s;
    family.parent = weft_self();
    atomic_store(&family.waiting, 0);
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawnf(&s, child, NULL, "child"), 0);
    task_wait_parked(&family.waiting, 1);
    FILE *f = fmemopen(text, sizeof text, "w");
    weft_dump(f);
    fclose(f);
    check_line(text, family.child, family.parent);
    check_line(text, family.grandchild, family.child);
    weft_scope_cancel(&s);
    return weft_scope_end(&s);
}

TEST(task_tree, the_dump_tells_whose_child_each_task_is) { run_each(show_family); }
