/* SPDX-License-Identifier: MIT */
/* Priorities under full load: how soon a task runs that a timer has woken, and how long one of low priority goes without. */
#include "weftbench.h"
#include <stdatomic.h>

enum { CROWD = 64, WORK_US = 20, SLEEPS = 1000, GAP_SECONDS = 3 };

/* Normal tasks that are always ready: 64 for each worker, 20 us of work between two yields. */
struct load {
    weft_scope scope;
    long steps;
    _Atomic int over;
};

static int busy(void *arg) {
    struct load *l = arg;
    while (!atomic_load_explicit(&l->over, memory_order_relaxed)) { /* the scope's join orders the rest */
        bn_work(l->steps);
        weft_yield();
    }
    return 0;
}

static void load_begin(struct load *l, int workers) {
    l->steps = (long)(bn_work_per_us() * WORK_US);
    atomic_init(&l->over, 0);
    weft_scope_begin(&l->scope, NULL);
    for (int i = 0; i < CROWD * workers; i++) wb_must(weft_spawn(&l->scope, busy, l), "weft_spawn");
}

static void load_end(struct load *l) {
    atomic_store_explicit(&l->over, 1, memory_order_relaxed); /* read in busy */
    wb_must(weft_scope_end(&l->scope), "weft_scope_end");
}

static int sleep_and_look(void *arg) {
    int64_t *late = arg;
    for (int i = 0; i < SLEEPS; i++) {
        int64_t at = bn_now() + 500000 + (int64_t)bn_rnd(1000000);
        wb_must(weft_sleep(weft_at(at)), "weft_sleep");
        late[i] = bn_now() - at;
    }
    return 0;
}

static void latency_of(int priority, const char *p50, const char *p99) {
    static int64_t late[SLEEPS];
    weft_task *t;
    wb_must(weft_task_start(&t, sleep_and_look, late, &(weft_task_opts){.priority = priority}), "weft_task_start");
    wb_must(weft_task_join(t, NULL, WEFT_FOREVER), "weft_task_join");
    qsort(late, SLEEPS, sizeof *late, bn_cmp64);
    wb_line(p50, (double)late[SLEEPS / 2], "ns");
    wb_line(p99, (double)late[SLEEPS * 99 / 100], "ns");
}

void wb_high_latency(const struct wb_args *a) {
    struct load l;
    load_begin(&l, a->workers);
    latency_of(WEFT_PRIORITY_HIGH, "high_latency_p50", "high_latency_p99");
    latency_of(WEFT_PRIORITY_NORMAL, "normal_latency_p50", "normal_latency_p99");
    load_end(&l);
}

static int run_when_allowed(void *arg) {
    int64_t longest = 0, last = bn_now(), end = last + GAP_SECONDS * WEFT_SECOND, now;
    while (last < end) {
        weft_yield();
        now = bn_now();
        if (now - last > longest) longest = now - last;
        last = now;
    }
    *(int64_t *)arg = longest;
    return 0;
}

static int64_t longest_gap(int priority) {
    int64_t gap = 0;
    weft_task *t;
    wb_must(weft_task_start(&t, run_when_allowed, &gap, &(weft_task_opts){.priority = priority}), "weft_task_start");
    wb_must(weft_task_join(t, NULL, WEFT_FOREVER), "weft_task_join");
    return gap;
}

void wb_low_gap(const struct wb_args *a) {
    struct load l;
    load_begin(&l, a->workers);
    wb_line("low_gap", (double)longest_gap(WEFT_PRIORITY_LOW) / 1e6, "ms");
    wb_line("normal_gap", (double)longest_gap(WEFT_PRIORITY_NORMAL) / 1e6, "ms");
    load_end(&l);
}
