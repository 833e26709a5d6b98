/* SPDX-License-Identifier: MIT */
/* Tasks in a library that knows nothing of tasks, hundreds of them on two slots, and beside them one that sleeps and wakes up again and again. All
 * of them end, and the heartbeat goes on, whatever the others do. */
#ifndef WEFT_TEST_HEARTBEAT_H
#define WEFT_TEST_HEARTBEAT_H

#include "api/common.h"

static struct {
    weft_fn *task, *beside;
    long tasks;
    atomic_int done, beats;
} heart;

static inline int heart_beat(void *arg) {
    (void)arg;
    while (atomic_load(&heart.done) < heart.tasks) {
        CHECK_EQ(weft_sleep_for(WEFT_MS), 0);
        atomic_fetch_add(&heart.beats, 1);
    }
    return 0;
}

/* The first of them waits for a beat: the others may be done before its task has begun. */
static inline int heart_task(void *arg) {
    int rc = heart.task(arg);
    if (!arg) task_wait(&heart.beats, 1);
    atomic_fetch_add(&heart.done, 1);
    return rc;
}

static inline int heart_main(void *arg) {
    weft_scope s;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, heart_beat, NULL), 0);
    if (heart.beside) CHECK_EQ(weft_spawn(&s, heart.beside, as_arg(heart.tasks)), 0);
    for (long i = 0; i < heart.tasks; i++) CHECK_EQ(weft_spawn(&s, heart_task, as_arg(i)), 0);
    (void)arg;
    return weft_scope_end(&s);
}

/* Runs task(0), task(1), …, which return 0, and beside(tasks), if it is not NULL. */
static inline void run_beside_a_heartbeat(long tasks, weft_fn *task, weft_fn *beside) {
    heart.task = task;
    heart.beside = beside;
    heart.tasks = tasks;
    CHECK_EQ(weft_run(heart_main, NULL, &(weft_config){.workers = 2}), 0);
    CHECK_EQ(atomic_load(&heart.done), tasks);
    CHECK_GT(atomic_load(&heart.beats), 0);
    printf("%ld tasks, %d heartbeats\n", tasks, atomic_load(&heart.beats));
}

#endif
