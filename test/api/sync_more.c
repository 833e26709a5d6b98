/* SPDX-License-Identifier: MIT */
/* Condition variable, semaphore, wait group, once, barrier; and locks held across a wait. */
#include "common.h"

static weft_mutex m;
static weft_cond c;
static weft_sem sem;
static weft_waitgroup group;
static weft_barrier barrier;
static atomic_int here, done, order, results[64];
static int tokens; /* under m */

static void reset(void) {
    weft_mutex_destroy(&m), weft_cond_destroy(&c), weft_sem_destroy(&sem), weft_waitgroup_destroy(&group);
    atomic_store(&here, 0), atomic_store(&done, 0), atomic_store(&order, 0);
    tokens = 0;
}

/* ---- condition ---- */

static int take_token(void *arg) {
    weft_deadline d = arg ? weft_after((intptr_t)arg) : WEFT_FOREVER;
    int rc = 0;
    weft_mutex_lock(&m);
    atomic_fetch_add(&here, 1);
    while (tokens == 0 && !rc) rc = weft_cond_wait(&c, &m, d);
    if (!rc) tokens--;
    atomic_store(&results[atomic_fetch_add(&order, 1)], rc);
    weft_mutex_unlock(&m); /* held again, whatever happened */
    atomic_fetch_add(&done, 1);
    return 0;
}
static void *take_token_thread(void *arg) {
    take_token(arg);
    return NULL;
}

static void give_tokens(int n, bool all) {
    for (int i = 0; i < n; i++) {
        weft_mutex_lock(&m);
        tokens++;
        if (!all) weft_cond_signal(&c);
        weft_mutex_unlock(&m);
    }
    if (all) weft_cond_broadcast(&c);
}

static int signals(void *arg) {
    (void)arg;
    for (int all = 0; all < 2; all++) {
        enum { TASKS = 10, THREADS = 3 };
        pthread_t t[THREADS];
        weft_scope s;
        reset();
        weft_scope_begin(&s, NULL);
        for (int i = 0; i < TASKS; i++) CHECK_EQ(weft_spawn(&s, take_token, NULL), 0);
        for (int i = 0; i < THREADS; i++) CHECK_EQ(pthread_create(&t[i], NULL, take_token_thread, NULL), 0);
        if (all) task_wait(&here, TASKS + THREADS);
        give_tokens(TASKS + THREADS, all);
        CHECK_EQ(weft_scope_end(&s), 0);
        for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
        CHECK_EQ(tokens, 0);
    }
    return 0;
}
TEST(cond, signal_and_broadcast_wake_tasks_and_threads) { run_each(signals); }

static int one_each(void *arg) {
    (void)arg;
    weft_scope s;
    reset();
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 3; i++) CHECK_EQ(weft_spawn(&s, take_token, NULL), 0);
    task_wait_parked(&here, 3);
    weft_mutex_lock(&m);
    tokens = 3;
    weft_mutex_unlock(&m);
    for (int i = 1; i <= 3; i++) {
        weft_cond_signal(&c);
        task_wait_parked(&done, i);
        CHECK_EQ(atomic_load(&done), i);
    }
    return weft_scope_end(&s);
}
TEST(cond, a_signal_wakes_one) { CHECK_EQ(run_on(1, one_each, NULL), 0); }

static int cond_fails(void *arg) {
    (void)arg;
    reset();
    weft_mutex_lock(&m);
    CHECK_EQ(weft_cond_wait(&c, &m, WEFT_POLL), WEFT_EAGAIN);
    CHECK_EQ(weft_cond_wait(&c, &m, weft_at(1)), WEFT_ETIMEDOUT);
    CHECK_EQ(weft_cond_wait(&c, &m, weft_after(WEFT_MS)), WEFT_ETIMEDOUT);
    weft_mutex_unlock(&m);
    weft_scope s;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, take_token, NULL), 0);
    task_wait_parked(&here, 1);
    weft_mutex_lock(&m);
    weft_scope_cancel(&s);
    for (int i = 0; i < 20; i++) weft_yield();
    CHECK_EQ(atomic_load(&done), 0); /* it comes back with the mutex only */
    CHECK_EQ(weft_cond_wait(&c, &m, WEFT_FOREVER), WEFT_ECANCELED);
    weft_mutex_unlock(&m);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(atomic_load(&results[0]), WEFT_ECANCELED);
    return 0;
}
TEST(cond, whatever_ends_the_wait_the_mutex_is_held_again) { run_each(cond_fails); }

static int wait_without(void *arg) {
    (void)arg;
    return weft_cond_wait(&c, &m, WEFT_FOREVER);
}
static int wait_on_two(void *arg) {
    static weft_mutex other;
    weft_scope s;
    (void)arg;
    weft_scope_begin(&s, NULL);
    weft_spawn(&s, take_token, NULL);
    task_wait_parked(&here, 1);
    weft_mutex_lock(&other);
    return weft_cond_wait(&c, &other, WEFT_FOREVER);
}
static int destroy_waited(void *arg) {
    weft_scope s;
    (void)arg;
    weft_scope_begin(&s, NULL);
    weft_spawn(&s, take_token, NULL);
    task_wait_parked(&here, 1);
    weft_cond_destroy(&c);
    return 0;
}
static int wait_on_two_run(void *arg) { return run_on(1, wait_on_two, arg); }
static int destroy_waited_run(void *arg) { return run_on(1, destroy_waited, arg); }
TEST(cond, misuse_is_told) {
    CHECK_DIES(wait_without, "weft_cond_wait: mutex 0x");
    CHECK_DIES(wait_on_two_run, "others wait with mutex 0x");
    CHECK_DIES(destroy_waited_run, "is destroyed while task ");
}

/* ---- semaphore ---- */

static int acquire_in_turn(void *arg) {
    atomic_fetch_add(&here, 1);
    CHECK_EQ(weft_sem_acquire(&sem, WEFT_FOREVER), 0);
    atomic_store(&results[atomic_fetch_add(&order, 1)], (int)(intptr_t)arg);
    return 0;
}
static int sem_fifo(void *arg) {
    (void)arg;
    weft_scope s;
    reset();
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 6; i++) {
        CHECK_EQ(weft_spawn(&s, acquire_in_turn, as_arg(i)), 0);
        task_wait_parked(&here, i + 1);
    }
    for (int i = 1; i <= 6; i++) { /* one by one: of several that are served at once, the last may run first */
        weft_sem_release_n(&sem, i < 6 ? 1 : 3);
        CHECK_EQ(weft_sem_try(&sem), i < 6 ? WEFT_EAGAIN : 0); /* it is the waiter's */
        task_wait(&order, i);
    }
    weft_sem_release(&sem);
    CHECK_EQ(weft_scope_end(&s), 0);
    for (int i = 0; i < 6; i++) CHECK_EQ(atomic_load(&results[i]), i);
    CHECK_EQ(weft_sem_try(&sem), 0);
    CHECK_EQ(weft_sem_acquire(&sem, WEFT_POLL), 0);
    CHECK_EQ(weft_sem_try(&sem), WEFT_EAGAIN);
    CHECK_EQ(weft_sem_acquire(&sem, WEFT_POLL), WEFT_EAGAIN);
    CHECK_EQ(weft_sem_acquire(&sem, weft_after(WEFT_MS)), WEFT_ETIMEDOUT);
    weft_sem_release(&sem);
    CHECK_EQ(weft_sem_acquire(&sem, weft_at(1)), 0);
    return 0;
}
TEST(sem, units_go_to_those_who_wait_longest) { CHECK_EQ(run_on(1, sem_fifo, NULL), 0); }

static int at_most(void *arg) {
    (void)arg;
    for (int i = 0; i < 500; i++) {
        CHECK_EQ(weft_sem_acquire(&sem, WEFT_FOREVER), 0);
        CHECK_LE(atomic_fetch_add(&done, 1), 2);
        weft_yield();
        atomic_fetch_sub(&done, 1);
        weft_sem_release(&sem);
    }
    return 0;
}
static void *at_most_thread(void *arg) {
    at_most(arg);
    return NULL;
}
static int sem_limits(void *arg) {
    (void)arg;
    weft_scope s;
    pthread_t t;
    reset();
    CHECK_EQ(weft_sem_init(&sem, WEFT_SEM_MAX + 1), WEFT_EINVAL);
    CHECK_EQ(weft_sem_init(&sem, 3), 0);
    weft_scope_begin(&s, NULL);
    CHECK_EQ(pthread_create(&t, NULL, at_most_thread, NULL), 0);
    for (int i = 0; i < 8; i++) CHECK_EQ(weft_spawn(&s, at_most, NULL), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    pthread_join(t, NULL);
    for (int i = 0; i < 3; i++) CHECK_EQ(weft_sem_try(&sem), 0);
    CHECK_EQ(weft_sem_try(&sem), WEFT_EAGAIN);
    return 0;
}
TEST(sem, no_more_than_its_units_are_out) { run_each(sem_limits); }

static int too_many_units(void *arg) {
    (void)arg;
    weft_sem_init(&sem, WEFT_SEM_MAX);
    weft_sem_release(&sem);
    return 0;
}
TEST(sem, misuse_is_told) { CHECK_DIES(too_many_units, "1 more are too many"); }

/* ---- wait group ---- */

static int finish_one(void *arg) {
    (void)arg;
    weft_yield();
    atomic_fetch_add(&done, 1);
    weft_waitgroup_done(&group);
    return 0;
}
static void *wait_for_group(void *arg) {
    CHECK_EQ(weft_waitgroup_wait(&group, WEFT_FOREVER), 0);
    CHECK_EQ(atomic_load(&done), (int)(intptr_t)arg);
    return NULL;
}
static int groups(void *arg) {
    (void)arg;
    enum { N = 50 };
    weft_scope s;
    pthread_t t;
    reset();
    CHECK_EQ(weft_waitgroup_wait(&group, WEFT_POLL), 0);
    weft_waitgroup_add(&group, N);
    CHECK_EQ(weft_waitgroup_wait(&group, WEFT_POLL), WEFT_EAGAIN);
    CHECK_EQ(weft_waitgroup_wait(&group, weft_after(WEFT_MS)), WEFT_ETIMEDOUT);
    CHECK_EQ(pthread_create(&t, NULL, wait_for_group, as_arg(N)), 0);
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < N; i++) CHECK_EQ(weft_spawn(&s, finish_one, NULL), 0);
    wait_for_group(as_arg(N));
    CHECK_EQ(weft_scope_end(&s), 0);
    pthread_join(t, NULL);
    return 0;
}
static atomic_int at_the_group;
static int wait_with_others(void *arg) {
    (void)arg;
    atomic_fetch_add(&at_the_group, 1);
    return weft_waitgroup_wait(&group, WEFT_FOREVER);
}
static int many_wait(void *arg) {
    (void)arg;
    enum { N = 5 };
    weft_scope s;
    atomic_store(&at_the_group, 0);
    weft_waitgroup_add(&group, 2);
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < N; i++) CHECK_EQ(weft_spawn(&s, wait_with_others, NULL), 0);
    task_wait_parked(&at_the_group, N);
    weft_waitgroup_done(&group);
    weft_waitgroup_done(&group);
    return weft_scope_end(&s);
}
TEST(waitgroup, all_who_wait_go_on_when_the_last_is_done) {
    run_each(groups);
    run_each(many_wait);
}

/* The group is in the waiter's frame, which goes at once. */
static int done_in(void *g) {
    weft_waitgroup_done(g);
    return 0;
}
static int short_lived(void *arg) {
    (void)arg;
    for (long i = 0; i < test_scale(3000, 100); i++) {
        weft_waitgroup *g = calloc(1, sizeof *g);
        weft_waitgroup_add(g, 2);
        CHECK_EQ(weft_go(done_in, g), 0);
        CHECK_EQ(weft_go(done_in, g), 0);
        CHECK_EQ(weft_waitgroup_wait(g, WEFT_FOREVER), 0);
        free(g);
    }
    return 0;
}
TEST(waitgroup, whoever_has_waited_may_free_it) { run_each(short_lived); }

static int below_zero(void *arg) {
    (void)arg;
    weft_waitgroup_add(&group, 1);
    weft_waitgroup_done(&group);
    weft_waitgroup_done(&group);
    return 0;
}
TEST(waitgroup, misuse_is_told) { CHECK_DIES(below_zero, "weft_waitgroup_done: wait group 0x"); }

/* ---- once ---- */

static weft_once once;
static int slowly(void *arg) {
    atomic_fetch_add(&done, 1);
    for (int i = 0; i < 20; i++) weft_yield();
    return (int)(intptr_t)arg;
}
static int call_once(void *arg) {
    (void)arg;
    CHECK_EQ(weft_once_run(&once, slowly, as_arg(42)), 42);
    CHECK_EQ(atomic_load(&done), 1);
    return 0;
}
static void *call_once_thread(void *arg) {
    call_once(arg);
    return NULL;
}
static int once_only(void *arg) {
    (void)arg;
    weft_scope s;
    pthread_t t;
    reset();
    once = (weft_once){{0}};
    weft_scope_begin(&s, NULL);
    CHECK_EQ(pthread_create(&t, NULL, call_once_thread, NULL), 0);
    for (int i = 0; i < 10; i++) CHECK_EQ(weft_spawn(&s, call_once, NULL), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    pthread_join(t, NULL);
    return 0;
}
TEST(once, one_calls_and_all_get_the_result) { run_each(once_only); }

static int again(void *arg) { return weft_once_run(&once, again, arg); }
static int panics(void *arg) {
    (void)arg;
    weft_panic("no");
}
static int once_odd(void *arg) {
    (void)arg;
    once = (weft_once){{0}};
    CHECK_EQ(weft_once_run(&once, again, NULL), WEFT_EREENTRANT);
    once = (weft_once){{0}};
    CHECK_EQ(weft_once_run(&once, panics, NULL), WEFT_EPANIC);
    CHECK_EQ(weft_once_run(&once, panics, NULL), WEFT_EPANIC);
    return 0;
}
TEST(once, a_call_from_inside_and_a_panic_are_errors) { run_each(once_odd); }

/* ---- barrier ---- */

enum { PARTIES = 5, MEETINGS = 200 };
static int meet(void *arg) {
    (void)arg;
    for (int i = 0; i < MEETINGS; i++) {
        atomic_fetch_add(&here, 1);
        int rc = weft_barrier_wait(&barrier, WEFT_FOREVER);
        CHECK(rc == 0 || rc == 1);
        atomic_fetch_add(&done, rc);
        CHECK_GE(atomic_load(&here), (i + 1) * PARTIES);
        CHECK_LE(atomic_load(&here), (i + 2) * PARTIES);
    }
    return 0;
}
static void *meet_thread(void *arg) {
    meet(arg);
    return NULL;
}
static int meetings(void *arg) {
    (void)arg;
    weft_scope s;
    pthread_t t;
    reset();
    CHECK_EQ(weft_barrier_init(&barrier, 0), WEFT_EINVAL);
    CHECK_EQ(weft_barrier_init(&barrier, PARTIES), 0);
    weft_scope_begin(&s, NULL);
    CHECK_EQ(pthread_create(&t, NULL, meet_thread, NULL), 0);
    for (int i = 0; i < PARTIES - 1; i++) CHECK_EQ(weft_spawn(&s, meet, NULL), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    pthread_join(t, NULL);
    CHECK_EQ(atomic_load(&done), MEETINGS); /* one last each time */
    weft_barrier_destroy(&barrier);
    return 0;
}
TEST(barrier, all_meet_and_one_is_last) { run_each(meetings); }

static int come_once(void *arg) {
    (void)arg;
    atomic_fetch_add(&here, 1);
    return weft_barrier_wait(&barrier, WEFT_FOREVER) < 0;
}
static int one_leaves(void *arg) {
    (void)arg;
    weft_scope s;
    reset();
    CHECK_EQ(weft_barrier_init(&barrier, 3), 0);
    CHECK_EQ(weft_barrier_wait(&barrier, weft_after(WEFT_MS)), WEFT_ETIMEDOUT);
    CHECK_EQ(weft_barrier_wait(&barrier, WEFT_POLL), WEFT_EAGAIN);
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, come_once, NULL), 0);
    task_wait_parked(&here, 1);
    CHECK_EQ(weft_barrier_wait(&barrier, weft_after(5 * WEFT_MS)), WEFT_ETIMEDOUT); /* there are two, not three */
    CHECK_EQ(weft_spawn(&s, come_once, NULL), 0);
    int rc = weft_barrier_wait(&barrier, WEFT_FOREVER);
    CHECK(rc == 0 || rc == 1);
    CHECK_EQ(weft_scope_end(&s), 0);
    return 0;
}
TEST(barrier, one_who_gives_up_has_not_come) { run_each(one_leaves); }

static int not_initialised(void *arg) {
    static weft_barrier zero;
    (void)arg;
    return weft_barrier_wait(&zero, WEFT_FOREVER);
}
TEST(barrier, misuse_is_told) { CHECK_DIES(not_initialised, "was not initialised"); }

/* ---- locks held across a wait ---- */

/* Longer and longer: on a slow machine the first deadlines pass before there is anything to wait for. */
#define EACH_DURATION(d) for (int64_t d = 10 * WEFT_US; d <= WEFT_SECOND; d *= 10)

static int sleep_with_lock(void *arg) {
    (void)arg;
    weft_mutex_lock(&m);
    EACH_DURATION(d) weft_sleep_for(d);
    weft_mutex_unlock(&m);
    return 0;
}
static int recv_with_lock(void *arg) {
    static weft_rwlock rw;
    int v;
    (void)arg;
    weft_chan *ch = weft_chan_new(sizeof v, 0);
    weft_rwlock_rdlock(&rw);
    EACH_DURATION(d) weft_chan_recv(ch, &v, weft_after(d));
    weft_rwlock_rdunlock(&rw);
    weft_chan_unref(ch);
    return 0;
}
/* The first of them has been told when it waits with both. */
static int sleep_with_two_locks(void *arg) {
    static weft_rwlock rw;
    (void)arg;
    weft_mutex_lock(&m);
    EACH_DURATION(d) weft_sleep_for(d);
    weft_rwlock_wrlock(&rw);
    EACH_DURATION(d) weft_sleep_for(d);
    weft_rwlock_wrunlock(&rw);
    weft_mutex_unlock(&m);
    return 0;
}
static int waits_without_lock(void *arg) {
    (void)arg;
    weft_mutex_lock(&m);
    weft_yield();
    weft_cond_wait(&c, &m, weft_after(WEFT_MS)); /* unlocks it */
    weft_mutex_unlock(&m);
    return weft_sleep_for(WEFT_US);
}
static int checked(weft_fn *fn) {
    weft_config cfg = {.workers = 2, .flags = WEFT_LOCK_CHECK};
    return weft_run(fn, NULL, &cfg);
}
static int checked_sleep(void *arg) {
    (void)arg;
    return checked(sleep_with_lock);
}
static int leave_locked(void *arg) {
    (void)arg;
    weft_mutex_lock(&m);
    return 0;
}
static int sleep_without_lock(void *arg) {
    (void)arg;
    EACH_DURATION(d) weft_sleep_for(d);
    return 0;
}
/* The second runtime's tasks have the numbers of the first one's. */
static int checked_again(void *arg) {
    weft_config cfg = {.workers = 1, .flags = WEFT_LOCK_CHECK};
    CHECK_EQ(weft_run(leave_locked, arg, &cfg), 0);
    return weft_run(sleep_without_lock, arg, &cfg);
}
static int checked_two(void *arg) {
    (void)arg;
    return checked(sleep_with_two_locks);
}
static int checked_recv(void *arg) {
    (void)arg;
    setenv("WEFT_LOCK_CHECK", "1", 1);
    return run_on(2, recv_with_lock, NULL);
}
static int checked_thread(void *arg) {
    (void)arg;
    CHECK_EQ(weft_start(&(weft_config){.workers = 1, .flags = WEFT_LOCK_CHECK}), 0);
    sleep_with_lock(NULL);
    return weft_stop(WEFT_FOREVER);
}
static int checked_well(void *arg) {
    (void)arg;
    return checked(waits_without_lock);
}
static int unchecked(void *arg) { return run_on(2, sleep_with_lock, arg); }

static int times(const char *text, const char *what) {
    int n = 0;
    for (const char *p = text; (p = strstr(p, what)); p++) n++;
    return n;
}
static void expect(int (*fn)(void *), int reports, const char *what) {
    struct test_child *out = calloc(1, sizeof *out);
    test_child(fn, NULL, out);
    CHECK_MSG(out->exit_code == 0, "%s", out->out);
    CHECK_MSG(times(out->out, "while it holds") == reports, "%s", out->out);
    if (reports)
        CHECK_MSG(strstr(out->out, what) && strstr(out->out, "locked at 0x") && strstr(out->out, "it waits at"), "%s",
                  out->out);
    free(out);
}
TEST(lock_check, a_lock_held_across_a_wait_is_reported_once_with_both_places) {
    expect(checked_sleep, 1, "waits (sleep) while it holds mutex 0x");
    expect(checked_recv, 1, "waits (receive) while it holds rwlock (to read) 0x");
    expect(checked_thread, 1, "while it holds mutex 0x");
}
TEST(lock_check, each_of_several_locks_is_reported) {
    expect(checked_two, 2, "waits (sleep) while it holds rwlock (to write) 0x");
}
TEST(lock_check, what_is_right_is_not_reported) {
    expect(checked_well, 0, "");
    expect(checked_again, 0, "");
    expect(unchecked, 0, "");
}
