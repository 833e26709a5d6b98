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

/* ---- the other calls ---- */

static weft_barrier barrier;
static weft_once once;
static bool open_for_all; /* under m */

static void one_alone(void) {
    weft_rwlock l = {0};
    weft_mutex x = {0};
    weft_sem units;
    weft_rwlock_rdlock(&l);
    CHECK_EQ(weft_rwlock_tryrdlock(&l), 0);
    CHECK_EQ(weft_rwlock_trywrlock(&l), WEFT_EAGAIN);
    weft_rwlock_rdunlock(&l);
    weft_rwlock_unlock(&l);
    CHECK_EQ(weft_rwlock_rdlock_until(&l, weft_after(HOUR)), 0);
    weft_rwlock_rdunlock(&l);
    CHECK_EQ(weft_rwlock_wrlock_until(&l, weft_after(HOUR)), 0);
    weft_rwlock_wrunlock(&l);
    CHECK_EQ(weft_mutex_trylock(&x), 0);
    weft_mutex_unlock(&x);
    CHECK_EQ(weft_sem_init(&units, 1), 0);
    CHECK_EQ(weft_sem_try(&units), 0);
    CHECK_EQ(weft_sem_try(&units), WEFT_EAGAIN);
    weft_sem_release_n(&units, 2);
    CHECK_EQ(weft_sem_acquire_n(&units, 2, WEFT_FOREVER), 0);
    CHECK_EQ(weft_sem_available(&units), 0);
    weft_sem_release_n(&units, 2);
    weft_rwlock_destroy(&l);
    weft_mutex_destroy(&x);
    weft_sem_destroy(&units);
}

static int all_together(void *arg) {
    atomic_fetch_add(&here, 1);
    task_wait(&here, 4); /* all have started, and everything fails from now on */
    one_alone();
    CHECK_EQ(weft_once_run(&once, return_int, as_arg(6)), 6);
    CHECK_GE(weft_barrier_wait(&barrier, WEFT_FOREVER), 0);
    weft_mutex_lock(&m);
    if (arg) open_for_all = true;
    if (arg) weft_cond_broadcast(&c);
    while (!open_for_all) CHECK_EQ(weft_cond_wait(&c, &m, WEFT_FOREVER), 0);
    weft_mutex_unlock(&m);
    weft_waitgroup_done(&group);
    return 0;
}

static int three_meet(void *arg) {
    weft_scope s;
    (void)arg;
    open_for_all = false;
    once = (weft_once){0};
    atomic_store(&here, 0);
    CHECK_EQ(weft_barrier_init(&barrier, 3), 0);
    weft_waitgroup_add(&group, 3);
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 3; i++) CHECK_EQ(weft_spawn(&s, all_together, as_arg(i == 2)), 0);
    task_wait(&here, 3);
    weft__fault_arm(1, true);
    atomic_fetch_add(&here, 1);
    CHECK_EQ(weft_waitgroup_wait(&group, WEFT_FOREVER), 0);
    weft__fault_arm(0, false);
    CHECK_EQ(weft_scope_end(&s), 0);
    weft_barrier_destroy(&barrier);
    weft_cond_destroy(&c);
    weft_waitgroup_destroy(&group);
    return 0;
}
TEST(fault_sync, nor_do_barriers_and_the_others) { run_each(three_meet); }
