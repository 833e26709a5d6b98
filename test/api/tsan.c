/* SPDX-License-Identifier: MIT */
/* ThreadSanitizer sees races between tasks, also on one slot, and takes what weft offers for synchronisation. Each program runs in a process of its own.
 * Only where TSan checks the program and not the library: WEFT_TSAN_INSIDE=0. */
#include "api/common.h"
#include "os/os.h"

struct program {
    int workers;
    weft_fn *fn;
};

static int run_program(void *arg) {
    struct program *p = arg;
    return run_on(p->workers, p->fn, NULL);
}

static void check(weft_fn *fn, int workers, bool race) {
    struct test_child c;
    struct program p = {workers, fn};
    if (!weft__san_tasks) test_skip("TSan does not check the program here");
    test_child(run_program, &p, &c);
    CHECK_MSG(!!strstr(c.out, "ThreadSanitizer: data race") == race, "%d workers:\n%.3000s", workers, c.out);
    if (!race) CHECK_EQ(c.exit_code, 0);
}

static void check_clean(weft_fn *fn) { EACH_WORKERS(w) check(fn, w, false); }

static long x;

/* ---- races, on one slot: the order of events is given ---- */

static int add_one(void *arg) {
    (void)arg;
    x++;
    return 0;
}

static int siblings(void *arg) {
    (void)arg;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 2; i++) CHECK_EQ(weft_spawn(&s, add_one, NULL), 0);
    return weft_scope_end(&s);
}

TEST(tsan, sees_a_race_of_two_tasks_that_run_one_after_the_other) { check(siblings, 1, true); }

static int add_and_yield(void *arg) {
    (void)arg;
    for (int i = 0; i < 3; i++, weft_yield()) x++;
    return 0;
}

static int take_turns(void *arg) {
    (void)arg;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 2; i++) CHECK_EQ(weft_spawn(&s, add_and_yield, NULL), 0);
    return weft_scope_end(&s);
}

TEST(tsan, sees_a_race_of_tasks_that_take_turns) { check(take_turns, 1, true); }

static int look_too_early(void *arg) {
    (void)arg;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, add_one, NULL), 0);
    weft_yield();
    x++;
    return weft_scope_end(&s);
}

TEST(tsan, sees_a_race_of_an_opener_and_its_child) { check(look_too_early, 1, true); }

/* ---- no races ---- */

static int after_the_join(void *arg) {
    (void)arg;
    for (int i = 0; i < 100; i++) {
        weft_task *t;
        weft_scope s;
        x++;
        weft_scope_begin(&s, NULL);
        CHECK_EQ(weft_spawn(&s, add_one, NULL), 0);
        CHECK_EQ(weft_scope_end(&s), 0);
        x++;
        CHECK_EQ(weft_task_start(&t, add_one, NULL, NULL), 0);
        CHECK_EQ(weft_task_join(t, NULL, WEFT_FOREVER), 0);
        x++;
        CHECK_EQ(weft_call(add_one, NULL, WEFT_FOREVER), 0);
        x++;
    }
    return x == 700 ? 0 : 1;
}

TEST(tsan, knows_that_a_spawn_comes_before_and_a_join_behind) { check_clean(after_the_join); }

static weft_chan *there, *back, *never;

/* The element is a pointer: what it points to is what is looked at. */
static int add_and_return(void *arg) {
    long *p;
    (void)arg;
    while (weft_chan_recv(there, &p, WEFT_FOREVER) == 0) {
        ++*p;
        CHECK_EQ(weft_chan_send(back, &p, WEFT_FOREVER), 0);
    }
    return 0;
}

static void send_round(bool select) {
    long *p = &x;
    CHECK_EQ(weft_chan_send(there, &p, WEFT_FOREVER), 0);
    if (select) {
        bool open;
        CHECK_EQ(weft_select(WEFT_FOREVER, weft_on_recv(back, &p, &open), weft_on_recv(never, &p, &open)), 0);
    } else {
        CHECK_EQ(weft_chan_recv(back, &p, WEFT_FOREVER), 0);
    }
    ++*p;
}

static int pass_round(size_t capacity) {
    weft_scope s;
    there = weft_chan_new(sizeof(long *), capacity);
    back = weft_chan_new(sizeof(long *), capacity);
    never = weft_chan_new(sizeof(long *), capacity);
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 3; i++) CHECK_EQ(weft_spawn(&s, add_and_return, NULL), 0);
    for (int i = 0; i < 2000; i++) send_round(i % 2);
    weft_chan_close(there);
    CHECK_EQ(weft_scope_end(&s), 0);
    weft_chan_unref(there);
    weft_chan_unref(back);
    weft_chan_unref(never);
    return 0;
}

static int channels(void *arg) {
    (void)arg;
    return pass_round(0) | pass_round(4);
}

TEST(tsan, knows_that_channels_and_select_order_tasks) { check_clean(channels); }

static weft_mutex mutex;
static weft_cond cond;
static weft_sem sem;
static weft_rwlock rwlock;

static int add_under_locks(void *arg) {
    static long by_mutex, by_sem, by_rwlock, turn;
    long me = (intptr_t)arg;
    for (long i = 0; i < 200; i++) {
        weft_mutex_lock(&mutex);
        by_mutex++;
        while (turn % 4 != me) CHECK_EQ(weft_cond_wait(&cond, &mutex, WEFT_FOREVER), 0);
        turn++;
        weft_cond_broadcast(&cond);
        weft_mutex_unlock(&mutex);
        CHECK_EQ(weft_sem_acquire(&sem, WEFT_FOREVER), 0);
        by_sem++;
        weft_yield();
        weft_sem_release(&sem);
        weft_rwlock_wrlock(&rwlock);
        by_rwlock++;
        weft_yield();
        weft_rwlock_unlock(&rwlock);
    }
    return 0;
}

static int locks(void *arg) {
    (void)arg;
    weft_scope s;
    CHECK_EQ(weft_sem_init(&sem, 1), 0);
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 4; i++) CHECK_EQ(weft_spawn(&s, add_under_locks, as_arg(i)), 0);
    return weft_scope_end(&s);
}

TEST(tsan, knows_that_locks_order_tasks) { check_clean(locks); }

static int use_errno(void *arg) {
    (void)arg;
    for (int i = 0; i < 100; i++, weft_yield()) {
        errno = i;
        CHECK_EQ(errno, i);
    }
    return 0;
}

static int use_errno_together(void *arg) {
    (void)arg;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 8; i++) CHECK_EQ(weft_spawn(&s, use_errno, NULL), 0);
    return weft_scope_end(&s);
}

TEST(tsan, knows_that_errno_is_the_tasks_own) { check_clean(use_errno_together); }

static atomic_int ran;

static void on_timer(void *arg) {
    ++*(long *)arg;
    atomic_store(&ran, 1);
}

static int timers(void *arg) {
    (void)arg;
    for (int i = 0; i < 20; i++) {
        weft_timer t = {{0}};
        atomic_store(&ran, 0);
        x = i;
        CHECK_EQ(weft_timer_start(&t, weft_after(WEFT_US), 0, on_timer, &x), 0);
        while (!atomic_load(&ran)) weft_sleep_for(WEFT_US);
        weft_timer_stop_wait(&t);
        CHECK_EQ(x, i + 1);
    }
    return 0;
}

TEST(tsan, knows_that_starting_a_timer_comes_before_its_function) { check_clean(timers); }
