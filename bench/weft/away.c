/* SPDX-License-Identifier: MIT */
/* Tasks that are away: in calls that block, and computing. */
#include <stdlib.h>
#include <unistd.h>

#include "weftbench.h"

enum { PAIRS = 10000000, LATE_MAX = 10000, BINDS = 2000 };

static volatile int stop;

static int hog(void *arg) {
    (void)arg;
    while (!stop) {
    }
    return 0;
}

/* How late a task that sleeps for 5 ms is, beside so many that compute without end. */
void wb_hogs(const struct wb_args *a) {
    static int64_t late[LATE_MAX];
    long hogs = a->arg ? a->arg : 8, n = 0;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (long i = 0; i < hogs; i++) wb_must(weft_spawn(&s, hog, NULL), "weft_spawn");
    for (int64_t end = weft_now() + 3 * WEFT_SECOND; weft_now() < end && n < LATE_MAX; n++) {
        weft_deadline d = weft_after(5 * WEFT_MS);
        wb_must(weft_sleep(d), "weft_sleep");
        late[n] = weft_now() - d.ns;
    }
    weft_stats st;
    weft_stats_get(&st);
    stop = 1;
    int64_t t = weft_now();
    wb_must(weft_scope_end(&s), "weft_scope_end");
    t = weft_now() - t;
    qsort(late, (size_t)n, sizeof *late, bn_cmp64);
    wb_line("hogs_late_p50", (double)late[n / 2] / 1e6, "ms");
    wb_line("hogs_late_p99", (double)late[n * 99 / 100] / 1e6, "ms");
    wb_line("hogs_late_max", (double)late[n - 1] / 1e6, "ms");
    wb_line("hogs_strays", st.strays, "threads");
    wb_line("hogs_end", (double)t / 1e6, "ms");
}

static int call_usleep(void *arg) {
    return usleep((useconds_t)(uintptr_t)arg);
}

static int call_usleep_annotated(void *arg) {
    weft_block_enter();
    int err = call_usleep(arg);
    weft_block_exit();
    return err;
}

static int call_on_pool(void *arg) {
    return weft_block(call_usleep, arg, WEFT_FOREVER);
}

static void many(const struct wb_args *a, weft_fn *fn, long n, uintptr_t us, const char *name) {
    struct wb_mark m;
    weft_scope s;
    wb_start(&m);
    weft_scope_begin(&s, NULL);
    for (long i = 0; i < n; i++) wb_must(weft_spawn(&s, fn, (void *)us), "weft_spawn");
    wb_must(weft_scope_end(&s), "weft_scope_end");
    wb_report(&m, a, name, (double)wb_ns(&m) / 1e6, "ms");
}

void wb_usleep(const struct wb_args *a) {
    many(a, call_usleep, a->arg ? a->arg : 64, 100000, "usleep");
}
void wb_usleep_annotated(const struct wb_args *a) {
    many(a, call_usleep_annotated, a->arg ? a->arg : 200, 100000, "usleep_annotated");
}
void wb_pool1000(const struct wb_args *a) {
    many(a, call_on_pool, 1000, 1000, "pool1000");
}
void wb_annotated1000(const struct wb_args *a) {
    many(a, call_usleep_annotated, 1000, 1000, "annotated1000");
}

/* What the annotation costs when nobody waits. */
void wb_block_pair(const struct wb_args *a) {
    struct wb_mark m;
    wb_start(&m);
    for (long i = 0; i < PAIRS; i++) {
        weft_block_enter();
        weft_block_exit();
    }
    wb_report(&m, a, "block_pair", (double)wb_ns(&m) / PAIRS, "ns");
}

/* Binding and unbinding, and waking a bound task through a channel. */
void wb_bind(const struct wb_args *a) {
    struct wb_mark m;
    wb_start(&m);
    for (long i = 0; i < BINDS; i++) {
        wb_must(weft_bind(WEFT_FOREVER), "weft_bind");
        weft_unbind();
    }
    wb_report(&m, a, "bind", (double)wb_ns(&m) / BINDS, "ns");
}

static int part(void *arg) {
    uint64_t x = (uintptr_t)arg | 1;
    for (long i = 0; i < 2000000; i++) x = x * 6364136223846793005u + 1442695040888963407u;
    return (int)(x >> 60);
}

/* Work that only computes: 200 tasks of some milliseconds. */
void wb_compute(const struct wb_args *a) {
    many(a, part, 200, 1, "compute");
}
