/* SPDX-License-Identifier: MIT */
/* The ring of started tasks, filled beyond its end by its owner while thieves empty it. Each task is taken exactly once: from the
 * ring by a thief, or from the global queue that takes the overflow. */
#include "api/common.h"
#include "sched/runq.h"

enum { TASKS = 4096, THIEVES = 3, OVERFLOWED = 1000 };

static weft__slot *owner, *thief[THIEVES];
static weft__task tasks[TASKS];
static atomic_uchar queued[TASKS]; /* 1 from before the push until it was taken */
static atomic_int stop;

static weft__slot *new_slot(void) {
    weft__slot *s = aligned_alloc(4096, (sizeof *s + 4095) / 4096 * 4096);
    CHECK(s);
    memset(s, 0, sizeof *s);
    return s;
}

static void take(weft__task *t) {
    ptrdiff_t i = t - tasks;
    CHECK_MSG(i >= 0 && i < TASKS, "%p is no task", (void *)t);
    CHECK_MSG(atomic_exchange(&queued[i], 0) == 1, "task %d was taken twice", (int)i);
}

static void *steal(void *arg) {
    weft__slot *s = arg;
    while (!atomic_load(&stop)) {
        weft__task *t = weft__ring_steal(s, owner);
        for (; t; t = weft__ring_pop(s)) take(t);
    }
    return NULL;
}

static void take_overflow(void) {
    weft__work k;
    while ((k = weft__inject_take_tasks(owner, 1))) take(weft__as_task(k));
}

/* Pushes n tasks, the next that is free each time. */
static void push_many(long n) {
    for (int i = 0; n > 0; i = (i + 1) % TASKS) {
        if (atomic_load(&queued[i])) continue;
        atomic_store(&queued[i], 1);
        weft__ring_push(owner, &tasks[i]);
        n--;
        if (weft__load(&weft__rt.started.count, relaxed) > OVERFLOWED) take_overflow();
    }
}

static void take_rest(void) {
    for (weft__task *t; (t = weft__ring_pop(owner));) take(t);
    take_overflow();
    for (int i = 0; i < TASKS; i++) CHECK_MSG(!atomic_load(&queued[i]), "task %d was lost", i);
}

TEST_T(runq_stress, an_overflowing_ring_loses_and_doubles_nothing, 120) {
    pthread_t t[THIEVES];
    weft__rt.many = true;
    weft__rt.slots = THIEVES + 1;
    owner = new_slot();
    for (int i = 0; i < THIEVES; i++) {
        thief[i] = new_slot();
        CHECK_EQ(pthread_create(&t[i], NULL, steal, thief[i]), 0);
    }
    push_many(test_scale(20000000, 200000));
    atomic_store(&stop, 1);
    for (int i = 0; i < THIEVES; i++) pthread_join(t[i], NULL);
    take_rest();
    for (int i = 0; i < THIEVES; i++) free(thief[i]);
    free(owner);
}
