/* SPDX-License-Identifier: MIT */
/* Bound tasks. */
#include <sched.h>
#include <unistd.h>

#include "api/common.h"

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
