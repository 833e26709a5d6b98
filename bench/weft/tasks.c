/* SPDX-License-Identifier: MIT */
/* Tasks and scopes: switching, spawning, fork and join. */
#include "weftbench.h"

enum { SWITCHES = 5000000, JOINS = 2000000, BATCH = 1000000, MANY = 1000, MANY_YIELDS = 5000, SKYNET_LEAVES = 1000000 };

static int nop(void *arg) {
    (void)arg;
    return 0;
}

static int yielder(void *arg) {
    for (long n = (long)arg; n > 0; n--) weft_yield();
    return 0;
}

static void yield_run(const struct wb_args *a, const char *name, int tasks, long yields) {
    struct wb_mark m;
    weft_scope s;
    wb_start(&m);
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < tasks; i++) wb_must(weft_spawn(&s, yielder, (void *)yields), "weft_spawn");
    wb_must(weft_scope_end(&s), "weft_scope_end");
    wb_report(&m, a, name, (double)wb_ns(&m) / ((double)tasks * (double)yields), "ns/switch");
}

void wb_switch(const struct wb_args *a) {
    yield_run(a, "switch", 2, SWITCHES);
}

void wb_yield_many(const struct wb_args *a) {
    yield_run(a, "yield_many", MANY, MANY_YIELDS);
}

void wb_spawn_join(const struct wb_args *a) {
    struct wb_mark m;
    weft_scope s;
    wb_start(&m);
    for (long i = 0; i < JOINS; i++) {
        weft_scope_begin(&s, NULL);
        wb_must(weft_spawn(&s, nop, NULL), "weft_spawn");
        wb_must(weft_scope_end(&s), "weft_scope_end");
    }
    wb_report(&m, a, "spawn_join", (double)wb_ns(&m) / JOINS, "ns/task");
}

/* A handle's join waits like any other: the child gets a stack of its own. */
void wb_spawn_join_stack(const struct wb_args *a) {
    struct wb_mark m;
    weft_task *t;
    wb_start(&m);
    for (long i = 0; i < JOINS; i++) {
        wb_must(weft_task_start(&t, nop, NULL, NULL), "weft_task_start");
        wb_must(weft_task_join(t, NULL, WEFT_FOREVER), "weft_task_join");
    }
    wb_report(&m, a, "spawn_join_stack", (double)wb_ns(&m) / JOINS, "ns/task");
}

/* Small batches are repeated, so that each size spawns about a million tasks and start-up weighs alike. */
void wb_spawn_batch(const struct wb_args *a) {
    long n = a->arg ? a->arg : BATCH;
    long reps = n < BATCH ? BATCH / n : 1;
    struct wb_mark m;
    weft_scope s;
    wb_start(&m);
    for (long r = 0; r < reps; r++) {
        weft_scope_begin(&s, NULL);
        for (long i = 0; i < n; i++) wb_must(weft_spawn(&s, nop, NULL), "weft_spawn");
        wb_must(weft_scope_end(&s), "weft_scope_end");
    }
    wb_report(&m, a, "spawn_batch", (double)wb_ns(&m) / ((double)n * (double)reps), "ns/task");
}

struct fib_call {
    int n, cut;
    long result;
};

static long fib(int n, int cut);

static int fib_task(void *arg) {
    struct fib_call *c = arg;
    c->result = fib(c->n, c->cut);
    return 0;
}

static long fib(int n, int cut) {
    if (n <= cut || n < 2) return bn_fibs(n);
    struct fib_call left = {n - 1, cut, 0};
    weft_scope s;
    weft_scope_begin(&s, NULL);
    wb_must(weft_spawn(&s, fib_task, &left), "weft_spawn");
    long right = fib(n - 2, cut);
    wb_must(weft_scope_end(&s), "weft_scope_end");
    return left.result + right;
}

void wb_fib(const struct wb_args *a) {
    int cut = a->arg ? (int)a->arg : 1;
    char name[32];
    struct wb_mark m;
    wb_start(&m);
    long v = fib(30, cut);
    int64_t ns = wb_ns(&m);
    if (v != 832040) wb_must(WEFT_EBROKEN, "fib(30) is wrong");
    snprintf(name, sizeof name, "fib30_cut%d", cut);
    wb_report(&m, a, name, (double)ns / 1e6, "ms");
}

struct sky {
    weft_chan *out;
    long num, size;
};

static long sky_collect(weft_chan *c) {
    long sum = 0, v;
    for (int i = 0; i < 10; i++) {
        wb_must(weft_chan_recv(c, &v, WEFT_FOREVER), "weft_chan_recv");
        sum += v;
    }
    return sum;
}

/* Detached tasks, as the peers have them: each holds a reference to the channel that it reports to. */
static int sky_go(void *arg) {
    struct sky a = *(struct sky *)arg;
    long sum = a.num;
    if (a.size > 1) {
        weft_chan *c = wb_chan(0);
        for (long i = 0, part = a.size / 10; i < 10; i++)
            wb_must(weft_go_with(sky_go, (struct sky){weft_chan_ref(c), a.num + i * part, part}), "weft_go_with");
        sum = sky_collect(c);
        weft_chan_unref(c);
    }
    int rc = weft_chan_send(a.out, &sum, WEFT_FOREVER);
    weft_chan_unref(a.out);
    return rc;
}

/* The scope keeps the node's channel alive until every child is out of its send. */
static int sky_scope(void *arg) {
    struct sky a = *(struct sky *)arg;
    if (a.size == 1) return weft_chan_send(a.out, &a.num, WEFT_FOREVER);
    weft_chan *c = wb_chan(0);
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (long i = 0, part = a.size / 10; i < 10; i++)
        wb_must(weft_spawn_with(&s, sky_scope, (struct sky){c, a.num + i * part, part}), "weft_spawn_with");
    long sum = sky_collect(c);
    wb_must(weft_scope_end(&s), "weft_scope_end");
    weft_chan_unref(c);
    return weft_chan_send(a.out, &sum, WEFT_FOREVER);
}

static void sky_run(const struct wb_args *a, const char *name, weft_fn *fn, bool child_unrefs) {
    struct wb_mark m;
    weft_scope s;
    weft_chan *c = wb_chan(0);
    struct sky root = {child_unrefs ? weft_chan_ref(c) : c, 0, SKYNET_LEAVES};
    long sum;
    wb_start(&m);
    weft_scope_begin(&s, NULL);
    wb_must(weft_spawn(&s, fn, &root), "weft_spawn");
    wb_must(weft_chan_recv(c, &sum, WEFT_FOREVER), "weft_chan_recv");
    int64_t ns = wb_ns(&m);
    if (sum != 499999500000L) wb_must(WEFT_EBROKEN, "skynet's sum is wrong");
    wb_report(&m, a, name, (double)ns / 1e6, "ms");
    wb_must(weft_scope_end(&s), "weft_scope_end");
    weft_chan_unref(c);
}

void wb_skynet(const struct wb_args *a) {
    sky_run(a, "skynet", sky_go, true);
}

void wb_skynet_scope(const struct wb_args *a) {
    sky_run(a, "skynet_scope", sky_scope, false);
}
