/* SPDX-License-Identifier: MIT */
/* What the tests of the public API share. */
#ifndef WEFT_TEST_COMMON_H
#define WEFT_TEST_COMMON_H

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
#include <weft.h>

#include "test.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define HOUR (3600 * WEFT_SECOND)

/* Scenarios run with one worker (every order of events is given), two (as many as the smallest machine has), and four. */
static const int worker_counts[] = {1, 2, 4};
#define EACH_WORKERS(w) for (int w##_at = 0, w = 1; w##_at < 3 && (w = worker_counts[w##_at], 1); w##_at++)

/* One worker, and no other thread that could take its slot while the kernel, or a tool, keeps a task from running; no slice ends either: the order of events is
 * given even then. Nobody watches, so calls that block hold up the others. */
static const weft_config alone = {.workers = 1, .slice = HOUR, .max_threads = 1};

static inline int run_on(int workers, weft_fn *fn, void *arg) {
    return weft_run(fn, arg, workers == 1 ? &alone : &(weft_config){.workers = workers});
}

/* fn(NULL) on each number of workers; it returns 0. */
static inline void run_each(weft_fn *fn) { EACH_WORKERS(w) CHECK_EQ(run_on(w, fn, NULL), 0); }

/* The same with the runtime's usual threads, which watch over the one worker too, and the usual slice. */
static inline void run_each_watched(weft_fn *fn) {
    EACH_WORKERS(w) CHECK_EQ(weft_run(fn, NULL, &(weft_config){.workers = w}), 0);
}

/* fn(n), with the usual slice; it returns 0 and leaves no descriptor open. */
static inline void run_and_close_all(int workers, weft_fn *fn, intptr_t n) {
    int fds = test_fds();
    CHECK_EQ(weft_run(fn, (void *)n, &(weft_config){.workers = workers}), 0);
    test_wait_fds(fds);
}

/* A pair of sockets whose numbers nothing else gets: the runtime looks into files now and then, and whoever comes late with a number that has been closed
 * would find one of them. */
static inline void open_far_pair(int type, int fd[2]) {
    int near[2];
    CHECK_EQ(socketpair(AF_UNIX, type, 0, near), 0);
    for (int i = 0; i < 2; i++) {
        fd[i] = fcntl(near[i], F_DUPFD_CLOEXEC, 100);
        CHECK_GE(fd[i], 100);
        CHECK_EQ(close(near[i]), 0);
    }
}

static inline int set_up(int workers) {
    weft_config cfg = {.workers = workers, .stack_size = 0, .max_threads = 0, .search = 0};
    return weft_start(&cfg);
}

struct reached {
    atomic_int *at;
    int want;
};
static inline bool reached(void *arg) {
    struct reached *r = arg;
    return atomic_load(r->at) >= r->want;
}
/* Waits in a task, or in a plain thread, until *at >= want. */
static inline void task_wait(atomic_int *at, int want) {
    struct reached r = {at, want};
    test_task_until(reached, &r);
}
static inline void thread_wait(atomic_int *at, int want) {
    struct reached r = {at, want};
    test_until(reached, &r);
}

/* After *at >= want, gives those who counted themselves there the chance to get into the wait that follows. With one worker
 * they are in it for certain; with more it is likely, and the tests that use it are right either way. */
static inline void task_wait_parked(atomic_int *at, int want) {
    task_wait(at, want);
    for (int i = 0; i < 20; i++) weft_yield();
}

/* Waits for ever (until cancelled) and gives what the wait gave. */
static inline int wait_for_ever(void *arg) {
    (void)arg;
    return weft_sleep(WEFT_FOREVER);
}

static inline int return_int(void *arg) { return (int)(intptr_t)arg; }

static inline void *as_arg(intptr_t v) { return (void *)v; }

#endif
