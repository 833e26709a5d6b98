/* SPDX-License-Identifier: MIT */
/* What the tests of panics share: a runtime whose hook counts and keeps what it is told, instead of printing it. */
#ifndef WEFT_TEST_PANIC_H
#define WEFT_TEST_PANIC_H

#include "api/common.h"

static atomic_int reported;
static weft_panic_info last_report; /* read when nothing panics */
static pthread_mutex_t report_lock = PTHREAD_MUTEX_INITIALIZER;

static inline void count_report(const weft_panic_info *info, void *arg) {
    (void)arg;
    pthread_mutex_lock(&report_lock);
    last_report = *info;
    pthread_mutex_unlock(&report_lock);
    atomic_fetch_add(&reported, 1);
}

static inline int run_quietly(int workers, weft_fn *fn, void *arg) {
    weft_config cfg = {.workers = workers, .on_panic = count_report};
    atomic_store(&reported, 0);
    return weft_run(fn, arg, &cfg);
}
static inline void run_each_quietly(weft_fn *fn) { EACH_WORKERS(w) CHECK_EQ(run_quietly(w, fn, NULL), 0); }

/* fn(arg) as a task with a stack of its own; its result. */
static inline int in_task(weft_fn *fn, void *arg) {
    weft_task *t;
    int result;
    CHECK_EQ(weft_task_start(&t, fn, arg, NULL), 0);
    CHECK_EQ(weft_task_join(t, &result, WEFT_FOREVER), 0);
    return result;
}

/* The same as a child of a scope that runs inside weft_scope_end, if it can; what the scope gives. */
static inline int in_child(weft_fn *fn, void *arg) {
    weft_scope s;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, fn, arg), 0);
    return weft_scope_end(&s);
}

#endif
