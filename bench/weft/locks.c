/* SPDX-License-Identifier: MIT */
/* Locks: 8 tasks that do nothing but lock, count and unlock; how fast, and how long one of them has to wait. */
#include <stdatomic.h>

#include "weftbench.h"

enum { CONTENDERS = 8, PAIRS = 1000000 };

static weft_mutex mutex;
static long count WEFT_GUARDED_BY(mutex);

static int contend(void *arg) {
    (void)arg;
    for (int i = 0; i < PAIRS; i++) {
        weft_mutex_lock(&mutex);
        count++;
        weft_mutex_unlock(&mutex);
    }
    return 0;
}

void wb_mutex(const struct wb_args *a) {
    struct wb_mark m;
    weft_scope s;
    wb_start(&m);
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < CONTENDERS; i++) wb_must(weft_spawn(&s, contend, NULL), "weft_spawn");
    wb_must(weft_scope_end(&s), "weft_scope_end");
    wb_report(&m, a, "mutex", (double)wb_ns(&m) / ((double)CONTENDERS * PAIRS), "ns/op");
    weft_mutex_lock(&mutex);
    if (count != (long)CONTENDERS * PAIRS) wb_must(WEFT_EBROKEN, "counts were lost");
    weft_mutex_unlock(&mutex);
}

static weft_mutex fair;
static _Atomic bool over;

/* Gives its longest wait, in microseconds. */
static int wait_in_turn(void *arg) {
    int64_t longest = 0;
    (void)arg;
    while (!atomic_load_explicit(&over, memory_order_relaxed)) { /* orders nothing */
        int64_t t = bn_now();
        weft_mutex_lock(&fair);
        int64_t d = bn_now() - t;
        weft_mutex_unlock(&fair);
        if (d > longest) longest = d;
    }
    return (int)(longest / 1000);
}

void wb_mutex_wait(const struct wb_args *a) {
    weft_task *t[CONTENDERS];
    int longest = 0;
    for (int i = 0; i < CONTENDERS; i++) wb_must(weft_task_start(&t[i], wait_in_turn, NULL, NULL), "weft_task_start");
    wb_must(weft_sleep_for((a->arg ? a->arg : 10) * WEFT_SECOND), "weft_sleep_for");
    atomic_store_explicit(&over, true, memory_order_relaxed); /* as above */
    for (int i = 0; i < CONTENDERS; i++) {
        int us = 0;
        wb_must(weft_task_join(t[i], &us, WEFT_FOREVER), "weft_task_join");
        if (us > longest) longest = us;
    }
    wb_line("mutex_wait", longest / 1e3, "ms");
}
