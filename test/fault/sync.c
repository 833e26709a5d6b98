/* SPDX-License-Identifier: MIT */
/* Locks allocate nothing, so nothing can be refused: with every allocation and every system call failing, futexes included, they lock, wait and wake as
 * ever. */
#include "fault/common.h"

static weft_mutex m;
static weft_cond c;
static weft_sem sem;
static weft_waitgroup group;
static weft_rwlock rw;
static int turn; /* under m */
static atomic_int here;

enum { TURNS = 100 };

/* Two take turns; each waits for the other every time. */
static void take_turns(int me) {
    for (int i = 0; i < TURNS; i++) {
        weft_mutex_lock(&m);
        while (turn % 2 != me) CHECK_EQ(weft_cond_wait(&c, &m, weft_after(HOUR)), 0);
        turn++;
        weft_cond_signal(&c);
        weft_mutex_unlock(&m);
        weft_rwlock_wrlock(&rw);
        weft_rwlock_wrunlock(&rw);
    }
    weft_sem_release(&sem);
    CHECK_EQ(weft_mutex_lock_until(&m, weft_after(HOUR)), 0);
    weft_mutex_unlock(&m);
    weft_waitgroup_done(&group);
}
static int task_turns(void *arg) {
    atomic_fetch_add(&here, 1);
    task_wait(&here, 2);
    take_turns((int)(intptr_t)arg);
    return 0;
}
static void *thread_turns(void *arg) {
    atomic_fetch_add(&here, 1);
    thread_wait(&here, 2);
    take_turns((int)(intptr_t)arg);
    return NULL;
}

static int all_fail(void *arg) {
    bool thread = arg != NULL;
    pthread_t t;
    weft_scope s;
    turn = 0;
    atomic_store(&here, 0);
    weft_waitgroup_add(&group, 2);
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, task_turns, as_arg(0)), 0);
    if (thread)
        CHECK_EQ(pthread_create(&t, NULL, thread_turns, as_arg(1)), 0);
    else
        CHECK_EQ(weft_spawn(&s, task_turns, as_arg(1)), 0);
    task_wait(&here, 2); /* both have started: a task that has not needs a stack */
    weft__fault_arm(1, true);
    CHECK_EQ(weft_waitgroup_wait(&group, WEFT_FOREVER), 0);
    for (int i = 0; i < 2; i++) CHECK_EQ(weft_sem_acquire(&sem, WEFT_FOREVER), 0);
    weft__fault_arm(0, false);
    CHECK_EQ(weft_scope_end(&s), 0);
    if (thread) pthread_join(t, NULL);
    CHECK_EQ(turn, 2 * TURNS);
    return 0;
}
TEST(fault_sync, locks_need_nothing_that_can_be_refused) {
    CHECK_EQ(run_on(4, all_fail, as_arg(1)), 0); /* the C library caches stacks and makes arenas */
    struct holdings before = holdings();
    EACH_WORKERS(w) CHECK_EQ(run_on(w, all_fail, NULL), 0);
    EACH_WORKERS(w) CHECK_EQ(run_on(w, all_fail, as_arg(1)), 0);
    check_holdings(before, 8);
}
