/* SPDX-License-Identifier: MIT */
/* Bound tasks. */
#include <sched.h>
#include <unistd.h>

#include "api/fake.h"
#include "sched/lane.h"
#include "sched/runq.h"

#include <weft/debug.h>

static __thread int mine; /* what a library might keep */
static atomic_int started, ended, flag;

static void reset(void) {
    atomic_store(&started, 0);
    atomic_store(&ended, 0);
    atomic_store(&flag, 0);
}

/* Read anew each time: the compiler may not keep the address across a wait. */
static __attribute__((noinline)) int *local(void) {
    __asm__ volatile("");
    return &mine;
}

static int stay(void *arg) {
    CHECK_EQ(weft_bind(WEFT_FOREVER), 0);
    int tid = gettid();
    *local() = (int)(intptr_t)arg;
    for (int i = 0; i < 50; i++) {
        if (i % 3 == 0)
            weft_yield();
        else
            CHECK_EQ(weft_sleep_for(i % 3 * 10 * WEFT_US), 0);
        CHECK_EQ(gettid(), tid);
        CHECK_EQ(*local(), (int)(intptr_t)arg);
    }
    *local() = 0;
    weft_unbind();
    atomic_fetch_add(&ended, 1);
    return 0;
}

static int move_about(void *arg) {
    (void)arg;
    for (int i = 0; i < 200; i++) {
        CHECK_EQ(*local(), 0); /* nobody else runs on a bound task's thread */
        weft_yield();
    }
    return 0;
}

static int many_stay(void *arg) {
    weft_scope s;
    weft_stats st;
    (void)arg;
    weft_scope_begin(&s, NULL);
    for (int i = 1; i <= 16; i++) {
        CHECK_EQ(weft_spawn(&s, stay, as_arg(i)), 0);
        CHECK_EQ(weft_spawn(&s, move_about, NULL), 0);
    }
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(atomic_load(&ended), 16);
    weft_stats_get(&st);
    CHECK_GE(st.binds, 16);
    CHECK_EQ(st.bound, 0);
    return 0;
}

TEST(bind, a_bound_task_has_a_thread_of_its_own) {
    EACH_WORKERS(w) {
        reset();
        CHECK_EQ(weft_run(many_stay, NULL, &(weft_config){.workers = w}), 0);
    }
}

static int nest(void *arg) {
    (void)arg;
    CHECK_EQ(weft_bind(WEFT_FOREVER), 0);
    int tid = gettid();
    CHECK_EQ(weft_bind(WEFT_POLL), 0);
    weft_unbind();
    weft_yield();
    CHECK_EQ(gettid(), tid);
    weft_pin();
    weft_yield();
    CHECK_EQ(gettid(), tid);
    weft_unpin();
    weft_unbind();
    weft_pin();
    CHECK_EQ(weft_bind(WEFT_FOREVER), WEFT_EINVAL);
    weft_unpin();
    return 0;
}

TEST(bind, binds_nest_and_a_pinned_task_cannot) { run_each_watched(nest); }

static int hold(void *arg) {
    (void)arg;
    CHECK_EQ(weft_bind(WEFT_FOREVER), 0);
    atomic_fetch_add(&started, 1);
    task_wait(&flag, 1);
    return 0; /* its end unbinds it */
}

static int late(void *arg) {
    (void)arg;
    CHECK_EQ(weft_bind(WEFT_POLL), WEFT_EAGAIN);
    CHECK_EQ(weft_bind(weft_after(WEFT_MS)), WEFT_ETIMEDOUT);
    atomic_fetch_add(&ended, 1);
    CHECK_EQ(weft_bind(WEFT_FOREVER), 0);
    weft_unbind();
    return 0;
}

static int cancelled(void *arg) {
    (void)arg;
    atomic_fetch_add(&ended, 1);
    CHECK_EQ(weft_bind(WEFT_FOREVER), WEFT_ECANCELED);
    return 0;
}

static int exhausted(void *arg) {
    weft_scope s, c;
    (void)arg;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 2; i++) CHECK_EQ(weft_spawn(&s, hold, NULL), 0);
    task_wait(&started, 2);
    weft_scope_begin(&c, NULL);
    CHECK_EQ(weft_spawn(&c, cancelled, NULL), 0);
    task_wait_parked(&ended, 1);
    weft_scope_cancel(&c);
    CHECK_EQ(weft_scope_end(&c), 0);
    for (int i = 0; i < 3; i++) CHECK_EQ(weft_spawn(&s, late, NULL), 0);
    task_wait_parked(&ended, 4);
    atomic_store(&flag, 1);
    return weft_scope_end(&s);
}

TEST(bind, when_all_threads_are_taken_it_waits_for_one) {
    EACH_WORKERS(w) {
        reset();
        CHECK_EQ(weft_run(exhausted, NULL, &(weft_config){.workers = w, .bound_threads_max = 2}), 0);
    }
}

static int check_bound(void *arg) {
    int tid = gettid();
    if (arg) CHECK_EQ(sched_getcpu(), (int)(intptr_t)arg - 1);
    for (int i = 0; i < 10; i++) {
        weft_yield();
        CHECK_EQ(gettid(), tid);
        if (arg) CHECK_EQ(sched_getcpu(), (int)(intptr_t)arg - 1);
    }
    atomic_fetch_add(&ended, 1);
    return 0;
}

static int spawn_bound(void *arg) {
    weft_scope s;
    weft_task *t;
    int cpu = sched_getcpu() + 1, result;
    (void)arg;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn_opts(&s, check_bound, NULL, &(weft_task_opts){.flags = WEFT_BOUND, .name = "bound"}), 0);
    CHECK_EQ(weft_spawn_opts(&s, check_bound, as_arg(cpu), &(weft_task_opts){.flags = WEFT_BOUND, .cpu = cpu}), 0);
    CHECK_EQ(weft_task_start(&t, check_bound, NULL, &(weft_task_opts){.flags = WEFT_BOUND}), 0);
    CHECK_EQ(weft_task_join(t, &result, WEFT_FOREVER), 0);
    CHECK_EQ(result, 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(weft_task_start(&t, check_bound, NULL, &(weft_task_opts){.cpu = 1}), WEFT_EINVAL);
    CHECK_EQ(weft_task_start(&t, check_bound, NULL, &(weft_task_opts){.flags = WEFT_BOUND | WEFT_PINNED}), WEFT_EINVAL);
    CHECK_EQ(weft_task_start(&t, check_bound, NULL, &(weft_task_opts){.flags = WEFT_BOUND, .cpu = 100000}), WEFT_EINVAL);
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn_opts(&s, check_bound, NULL, &(weft_task_opts){.flags = WEFT_BOUND}), 0);
    weft_scope_cancel(&s); /* it is called all the same */
    (void)weft_scope_end(&s);
    CHECK_EQ(atomic_load(&ended), 4);
    return 0;
}

TEST(bind, tasks_start_bound_and_on_a_cpu) {
    EACH_WORKERS(w) {
        reset();
        CHECK_EQ(run_on(w, spawn_bound, NULL), 0);
    }
}

static int ping(void *arg) {
    weft_chan **c = arg;
    int v = 0;
    CHECK_EQ(weft_bind(WEFT_FOREVER), 0);
    for (int i = 0; i < 200; i++) {
        CHECK_EQ(weft_chan_send(c[0], &i, WEFT_FOREVER), 0);
        CHECK_EQ(weft_chan_recv(c[1], &v, WEFT_FOREVER), 0);
        CHECK_EQ(v, i);
    }
    return 0;
}

static int pong(void *arg) {
    weft_chan **c = arg;
    int v = 0;
    for (int i = 0; i < 200; i++) {
        CHECK_EQ(weft_chan_recv(c[0], &v, WEFT_FOREVER), 0);
        CHECK_EQ(weft_chan_send(c[1], &v, WEFT_FOREVER), 0);
    }
    return 0;
}

static int talk(void *arg) {
    weft_scope s;
    weft_chan *c[2] = {weft_chan_new(sizeof(int), 0), weft_chan_new(sizeof(int), 0)};
    (void)arg;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, ping, c), 0);
    CHECK_EQ(weft_spawn(&s, pong, c), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    weft_chan_unref(c[0]);
    weft_chan_unref(c[1]);
    return 0;
}

TEST(bind, bound_and_other_tasks_talk) { run_each_watched(talk); }

static int compute(void *arg) {
    (void)arg;
    CHECK_EQ(weft_bind(WEFT_FOREVER), 0);
    atomic_fetch_add(&started, 1);
    while (!atomic_load(&flag)) __asm__ volatile("");
    return 0;
}

static int beside(void *arg) {
    weft_scope s;
    (void)arg;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 4; i++) CHECK_EQ(weft_spawn(&s, compute, NULL), 0);
    while (atomic_load(&started) < 4) CHECK_EQ(weft_sleep_for(WEFT_MS), 0);
    atomic_store(&flag, 1);
    return weft_scope_end(&s);
}

TEST(bind, a_bound_task_that_computes_does_not_hold_up_the_others) {
    EACH_WORKERS(w) {
        reset();
        CHECK_EQ(weft_run(beside, NULL, &(weft_config){.workers = w}), 0);
    }
}

/* ---- nobody else on its thread ---- */

static int look_at_local(void *arg) {
    (void)arg;
    CHECK_EQ(*local(), 0);
    atomic_fetch_add(&ended, 1);
    return 0;
}

/* So many that its slot's queue runs over several times. */
static int have_many_children(void *arg) {
    weft_scope s;
    int many = (int)test_scale(5000, 1500);
    (void)arg;
    CHECK_EQ(weft_bind(WEFT_FOREVER), 0);
    *local() = 1;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < many; i++) CHECK_EQ(weft_spawn(&s, look_at_local, NULL), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(*local(), 1);
    *local() = 0;
    weft_unbind();
    return 0;
}

TEST(bind, a_storm_of_children_of_a_bound_task_runs_elsewhere) {
    EACH_WORKERS(w) {
        reset();
        CHECK_EQ(run_on(w, have_many_children, NULL), 0);
    }
}

static int have_children(void *arg) {
    weft_scope s;
    (void)arg;
    CHECK_EQ(weft_bind(WEFT_FOREVER), 0);
    *local() = 1;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 20; i++) CHECK_EQ(weft_spawn(&s, look_at_local, NULL), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(*local(), 1);
    *local() = 0;
    weft_unbind();
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 20; i++) CHECK_EQ(weft_spawn(&s, look_at_local, NULL), 0);
    return weft_scope_end(&s);
}

TEST(bind, children_of_a_bound_task_run_elsewhere) {
    EACH_WORKERS(w) {
        reset();
        CHECK_EQ(run_on(w, have_children, NULL), 0);
        CHECK_EQ(atomic_load(&ended), 40);
    }
}

static int end_bound(void *arg) {
    (void)arg;
    CHECK_EQ(weft_bind(WEFT_FOREVER), 0);
    *local() = 1; /* for ever: its thread is its own until it ends */
    return 0;
}

static int wait_for_bound(void *arg) {
    weft_scope s;
    (void)arg;
    for (int i = 0; i < 20; i++) {
        weft_scope_begin(&s, NULL);
        CHECK_EQ(weft_spawn_opts(&s, end_bound, NULL, &(weft_task_opts){.name = "not run inside"}), 0);
        CHECK_EQ(weft_scope_end(&s), 0);
        CHECK_EQ(*local(), 0);
    }
    return 0;
}

TEST(bind, who_waits_for_a_bound_task_does_not_go_on_on_its_thread) { run_each_watched(wait_for_bound); }

static int bind_and_panic(void *arg) {
    (void)arg;
    CHECK_EQ(weft_bind(WEFT_FOREVER), 0);
    CHECK_EQ(weft_bind(WEFT_FOREVER), 0);
    weft_panic("bound");
}

static int try_bound(void *arg) {
    weft_stats st;
    CHECK_EQ(weft_try(bind_and_panic, arg, NULL), WEFT_EPANIC);
    weft_stats_get(&st);
    CHECK_EQ(st.bound, 0);
    CHECK_EQ(weft_bind(WEFT_FOREVER), 0);
    int tid = gettid();
    CHECK_EQ(weft_try(bind_and_panic, arg, NULL), WEFT_EPANIC);
    CHECK_EQ(gettid(), tid);
    weft_stats_get(&st);
    CHECK_EQ(st.bound, 1);
    weft_unbind();
    return 0;
}

TEST(bind, a_panic_takes_back_what_was_bound_since) { run_each_watched(try_bound); }

/* ---- the end of a child that runs inside ---- */

static weft_key kept;
static atomic_int own_tid;

static void on_its_thread(void *arg) {
    (void)arg;
    CHECK_EQ(gettid(), atomic_load(&own_tid));
    atomic_fetch_add(&ended, 1);
}

static int bind_and_end(void *arg) {
    CHECK_EQ(weft_at_exit(on_its_thread, NULL), 0);
    CHECK_EQ(weft_local_set(kept, &kept), 0);
    for (int i = 0; i < 3; i++) CHECK_EQ(weft_bind(WEFT_FOREVER), 0);
    atomic_store(&own_tid, gettid());
    CHECK_EQ(weft_at_exit(on_its_thread, NULL), 0);
    if (arg) weft_panic("bound");
    return 0;
}

static int end_inside(void *arg) {
    weft_scope s;
    (void)arg;
    for (int i = 0; i < 4; i++) {
        int before = atomic_load(&ended);
        weft_scope_begin(&s, &(weft_scope_opts){.on_error = WEFT_KEEP_GOING});
        CHECK_EQ(weft_spawn(&s, bind_and_end, i & 2 ? &s : NULL), 0);
        if (i & 1) weft_yield(); /* on a stack of its own */
        CHECK_EQ(weft_scope_end(&s), i & 2 ? WEFT_EPANIC : 0);
        CHECK_EQ(atomic_load(&ended), before + 3);
        CHECK_NE(atomic_load(&own_tid), gettid()); /* and whoever it ran inside is not bound */
    }
    return 0;
}

TEST(bind, what_runs_at_the_end_of_a_bound_child_runs_on_its_thread) {
    CHECK_EQ(weft_key_new(&kept, on_its_thread), 0);
    EACH_WORKERS(w) {
        reset();
        CHECK_EQ(weft_run(end_inside, NULL, &(weft_config){.workers = w}), 0);
    }
    CHECK_EQ(weft_key_delete(kept), 0);
}

#ifdef __GLIBC__
#include <malloc.h>
static size_t allocated(void) { return mallinfo2().uordblks; }
#else
static size_t allocated(void) { test_skip("the C library does not tell what is allocated"); }
#endif

enum { WARM = 1000, OFTEN = 10000, KEPT = 32 }; /* bytes that were kept for each */

static int bind_often(void *arg) {
    size_t before = 0;
    (void)arg;
    for (int i = 0; i < WARM + OFTEN; i++) {
        if (i == WARM) before = allocated();
        CHECK_EQ(weft_bind(WEFT_FOREVER), 0);
        weft_unbind();
    }
    CHECK_LT((long long)(allocated() - before), OFTEN * KEPT / 2); /* other threads may come meanwhile */
    return 0;
}

static int often_inside(void *arg) {
    weft_scope s;
    (void)arg;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, bind_often, NULL), 0);
    return weft_scope_end(&s);
}

TEST(bind, a_child_inside_that_binds_often_keeps_nothing) {
    test_skip_under("the tools have an allocator of their own", NULL);
    reset();
    CHECK_EQ(weft_run(often_inside, NULL, &(weft_config){.workers = 1}), 0);
}

/* ---- away, cancelled, with children ---- */

static int away_bound(void *arg) {
    weft_scope s;
    char c;
    CHECK_EQ(weft_bind(WEFT_FOREVER), 0);
    int tid = gettid();
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, look_at_local, NULL), 0);
    atomic_fetch_add(&started, 1);
    CHECK_EQ(read(((int *)arg)[0], &c, 1), 1); /* nobody is told that it blocks */
    CHECK_EQ(weft_sleep(WEFT_FOREVER), WEFT_ECANCELED);
    CHECK_EQ(gettid(), tid);
    CHECK_EQ(weft_bind(WEFT_POLL), 0); /* it is: nothing to wait for */
    weft_unbind();
    (void)weft_scope_end(&s); /* cancelled, with all that is in it */
    return 0;                 /* its end unbinds it */
}

enum { AWAY = 12 };

static int cancel_away_bound(void *arg) {
    weft_scope s;
    char bytes[AWAY] = {0};
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < AWAY; i++) CHECK_EQ(weft_spawn(&s, away_bound, arg), 0);
    while (atomic_load(&started) < AWAY || atomic_load(&ended) < AWAY) CHECK_EQ(weft_sleep_for(WEFT_MS), 0);
    weft_scope_cancel(&s);
    CHECK_EQ(write(((int *)arg)[1], bytes, AWAY), AWAY);
    return weft_scope_end(&s);
}

TEST(bind, bound_tasks_block_unannounced_are_cancelled_and_have_children) {
    int fd[2];
    CHECK_EQ(pipe(fd), 0);
    EACH_WORKERS(w) {
        reset();
        CHECK_EQ(weft_run(cancel_away_bound, fd, &(weft_config){.workers = w}), 0);
    }
    close(fd[0]);
    close(fd[1]);
}

/* ---- bound tasks that only step back, on the only slot ----
 *
 * Their threads run nothing else. So whatever waits is begun by another worker before one of them has its next turn but one. */

static bool wheels_are_served(void *arg) {
    (void)arg;
    int64_t now = weft__clock_now();
    return weft__wheel_next(&weft__rt.slot[0].wheel) > now && weft__wheel_next(&weft__rt.outside) > now;
}

static bool none_is_fresh(int lane) { return atomic_load(&weft__rt.lane[lane - WEFT_LANE_HIGH].fresh.count) == 0; }

/* The low task may have stepped back: then it has its next turn when time goes on. */
static bool nothing_waits(void *arg) {
    if (weft__lane_waits(WEFT_LANE_LOW)) {
        weft__clock_advance(WEFT_LOW_EVERY);
        return false;
    }
    return !weft__lane_waits(WEFT_LANE_HIGH) && !weft__others_wait(&weft__rt.slot[0]) && clock_is_served(arg);
}

static int made, made_late;

/* What is done between two yields: then another worker has had the slot, and begun with it, or, seldom, could not yet. It is for certain some
 * time later. If the slot was taken away meanwhile (the kernel kept our thread from running for long), our turn may have come first. */
static void after_one_yield(void (*make)(void *arg), void *arg, bool (*served)(void *)) {
    test_task_until(nothing_waits, NULL);
    uint64_t takeovers = atomic_load(&weft__rt.takeovers);
    weft_yield(); /* we have the slot */
    make(arg);
    weft_yield();
    made++;
    if (!served(NULL) && atomic_load(&weft__rt.takeovers) == takeovers) made_late++;
    test_task_until(served, NULL);
}

static bool timer_is_armed(void *wheel) { return weft__wheel_next(wheel) != INT64_MAX; }
static void pass_a_second(void *arg) {
    (void)arg;
    weft__clock_advance(WEFT_SECOND);
}

static weft_timer outside;
static void count_in(void *arg) { atomic_fetch_add((atomic_int *)arg, 1); }
static int start_outside(void *arg) {
    (void)arg;
    return weft_timer_start(&outside, weft_after(WEFT_SECOND), 0, count_in, &ended);
}

/* Armed by a plain thread: every slot's owner looks after it. */
static void plain_threads_timer(void) {
    weft_thread *t;
    int result = 1;
    CHECK_EQ(weft_thread_start(&t, start_outside, NULL, NULL), 0);
    CHECK_EQ(weft_thread_join(t, &result, WEFT_FOREVER), 0);
    CHECK_EQ(result, 0);
    test_task_until(timer_is_armed, &weft__rt.outside);
    after_one_yield(pass_a_second, NULL, wheels_are_served);
    CHECK_GE(weft_timer_stop_wait(&outside), 0);
}

static int sleep_once(void *arg) {
    (void)arg;
    CHECK_EQ(weft_sleep_for(WEFT_SECOND), 0);
    return 0;
}

static void a_sleeper(weft_scope *s) {
    CHECK_EQ(weft_spawn(s, sleep_once, NULL), 0);
    test_task_until(timer_is_armed, &weft__rt.slot[0].wheel);
    after_one_yield(pass_a_second, NULL, wheels_are_served);
}

static void spawn_high(void *s) {
    CHECK_EQ(weft_spawn_opts(s, return_int, NULL, &(weft_task_opts){.priority = WEFT_PRIORITY_HIGH}), 0);
}
static bool high_has_begun(void *arg) {
    (void)arg;
    return none_is_fresh(WEFT_LANE_HIGH);
}
static void spawn_normal(void *s) { CHECK_EQ(weft_spawn(s, return_int, NULL), 0); }
static bool normal_has_begun(void *arg) {
    (void)arg;
    return !weft__others_wait(&weft__rt.slot[0]);
}
static void spawn_low(void *s) {
    CHECK_EQ(weft_spawn_opts(s, return_int, NULL, &(weft_task_opts){.priority = WEFT_PRIORITY_LOW}), 0);
    weft__clock_advance(WEFT_LOW_EVERY);
}
static bool low_has_begun(void *arg) {
    (void)arg;
    return none_is_fresh(WEFT_LANE_LOW);
}

/* With something else in between, by chance: valgrind lets one thread run at a time, and for a fixed number of blocks. A loop whose length divides that
 * number is left at the same point each time, and if that lies behind a lock's door (seen), nobody else ever gets in. */
static int only_yield(void *arg) {
    (void)arg;
    uint32_t random = 1;
    CHECK_EQ(weft_bind(WEFT_FOREVER), 0);
    atomic_fetch_add(&started, 1);
    while (!atomic_load(&flag)) {
        weft_yield();
        for (volatile uint32_t i = weft__random(&random) % 16; i > 0; i--) continue;
    }
    return 0;
}

static int yield_beside(int others) {
    weft_scope s;
    reset();
    made = made_late = 0;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < others; i++) CHECK_EQ(weft_spawn(&s, only_yield, NULL), 0);
    task_wait(&started, others);
    CHECK_EQ(weft_bind(WEFT_FOREVER), 0);
    long rounds = test_scale(20, 4);
    for (long i = 0; i < rounds; i++) {
        plain_threads_timer();
        a_sleeper(&s);
        after_one_yield(spawn_high, &s, high_has_begun);
        after_one_yield(spawn_normal, &s, normal_has_begun);
        after_one_yield(spawn_low, &s, low_has_begun);
    }
    CHECK_EQ(atomic_load(&ended), rounds);
    printf("%d of %d late\n", made_late, made);
    if (test_slow_tools() == 1) CHECK_LT(20 * made_late, made);
    atomic_store(&flag, 1);
    weft_unbind();
    return weft_scope_end(&s);
}

static int yield_alone(void *arg) {
    (void)arg;
    return yield_beside(0);
}
static int yield_beside_two(void *arg) {
    (void)arg;
    return yield_beside(2);
}
static void run_yielding(weft_fn *fn) { /* one slot, and as many workers as it takes */
    weft__clock_fake(START);
    CHECK_EQ(weft_run(fn, NULL, &(weft_config){.workers = 1, .slice = HOUR}), 0);
    weft__clock_fake(0);
}
TEST(bind, one_that_only_yields_lets_timers_and_tasks_of_any_priority_run) { run_yielding(yield_alone); }
TEST(bind, several_that_only_yield_let_timers_and_tasks_of_any_priority_run) { run_yielding(yield_beside_two); }

/* ---- descriptors ---- */

enum { ECHOES = 400 };

static struct {
    int fd[2];
    int64_t took[ECHOES];
} echo;

static int echo_back(void *bound) {
    char c;
    if (bound) CHECK_EQ(weft_bind(WEFT_FOREVER), 0);
    for (int i = 0; i < ECHOES; i++) {
        CHECK_EQ(weft_fd_read(echo.fd[0], &c, 1, WEFT_FOREVER), 1);
        CHECK_EQ(weft_fd_write(echo.fd[0], &c, 1, WEFT_FOREVER), 1);
    }
    CHECK_EQ(weft_fd_close(echo.fd[0]), 0);
    atomic_store(&ended, 1);
    return 0;
}

static int compute_on(void *arg) {
    (void)arg;
    while (!atomic_load(&ended)) continue;
    return 0;
}

static int longer(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* With every slot but one taken by a task that computes. A request comes when all is quiet again. How long three quarters of them took at
 * most; half of them where somebody computes, since on a machine with much else to do many have to wait for a CPU then. */
static int64_t echo_beside(int computing, bool bound) {
    reset();
    open_far_pair(SOCK_STREAM, echo.fd);
    CHECK_EQ(set_up(computing + 1), 0);
    CHECK_EQ(weft_go(echo_back, bound ? &echo : NULL), 0);
    for (int i = 0; i < computing; i++) CHECK_EQ(weft_go(compute_on, NULL), 0);
    for (int i = 0; i < ECHOES; i++) {
        char c = 'x';
        usleep(100);
        int64_t from = weft_now();
        CHECK_EQ(write(echo.fd[1], &c, 1), 1);
        CHECK_EQ(read(echo.fd[1], &c, 1), 1);
        echo.took[i] = weft_now() - from;
    }
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    CHECK_EQ(close(echo.fd[1]), 0);
    qsort(echo.took, ECHOES, sizeof *echo.took, longer);
    return echo.took[computing ? ECHOES / 2 : ECHOES * 3 / 4];
}

/* If nobody does, a request waits until the sentry's nap is over, which is a hundred times as long as one takes. */
static void check_heard(int computing) {
    int64_t usual = echo_beside(computing, false), bound = echo_beside(computing, true);
    printf("%lld us bound, %lld us not\n", (long long)bound / 1000, (long long)usual / 1000);
    if (test_slow_tools() == 1) CHECK_LT(bound, 30 * usual);
}

TEST(bind, somebody_listens_when_a_bound_task_has_given_up_the_only_slot) { check_heard(0); }
TEST(bind, somebody_listens_when_a_bound_task_has_given_up_the_last_slot) { check_heard(1); }

static int unbind_only(void *arg) {
    (void)arg;
    weft_unbind();
    return 0;
}
static int run_unbind_only(void *arg) { return weft_run(unbind_only, arg, NULL); }
TEST(bind, an_unbind_without_bind_dies) { CHECK_DIES(run_unbind_only, "is not bound"); }

TEST(bind, on_a_plain_thread_it_does_nothing) {
    CHECK_EQ(weft_bind(WEFT_FOREVER), 0);
    weft_unbind();
}
