/* SPDX-License-Identifier: MIT */
/* Slots move on while their tasks are away and come back, in every way there is: calls that block, annotated or not, computing, the pool, bound
 * tasks, 1:1 threads, attached threads; with cancellation, a stop and forks at any moment, and slots taken at random. Nothing may be lost, and
 * everything ends. */
#include <sys/wait.h>
#include <unistd.h>

#include "stress/taker.h"

#include <weft.h>

static struct {
    _Atomic long ended;
    _Atomic bool stop;
    long rounds;
} st;

static void compute(uint64_t n) {
    for (uint64_t i = 0; i < n; i++) __asm__ volatile("");
}

static int nap(void *arg) {
    usleep((useconds_t)(uintptr_t)arg);
    return 3;
}

/* Whoever started it joins it, also when its scope has been cancelled meanwhile. */
static int on_a_thread(uint64_t us) {
    weft_thread *t;
    int result = 0, err = weft_thread_start(&t, nap, (void *)(uintptr_t)us, NULL);
    if (err) return err;
    err = weft_thread_join(t, &result, weft_after((int64_t)us / 2 * WEFT_US));
    if (!err) CHECK_EQ(result, 3);
    if (!err) return 0;
    CHECK_EQ(weft_shield_begin(WEFT_FOREVER), 0);
    CHECK_EQ(weft_thread_join(t, &result, WEFT_FOREVER), 0);
    weft_shield_end();
    return err == WEFT_ETIMEDOUT ? 0 : err;
}

/* One step, chosen at random; only errors of a cancelled scope are allowed. */
static void step(uint64_t *state, weft_chan *c) {
    long v = 1;
    int err = 0;
    uint64_t us = test_below(state, 100);
    switch (test_below(state, 15)) {
    case 0:
        usleep((useconds_t)us);
        break;
    case 1:
        weft_block_enter();
        usleep((useconds_t)us);
        weft_block_exit();
        break;
    case 2:
        weft_block_enter();
        weft_block_enter();
        weft_yield();
        weft_block_exit();
        weft_block_exit();
        break;
    case 3:
        compute(test_below(state, 200000));
        break;
    case 4:
        err = weft_block(nap, (void *)(uintptr_t)us, test_below(state, 2) ? WEFT_FOREVER : weft_after((int64_t)us * WEFT_US));
        if (err == 3 || err == WEFT_ETIMEDOUT) err = 0;
        break;
    case 5:
        err = weft_bind(weft_after(WEFT_MS));
        if (!err) {
            usleep((useconds_t)us / 4);
            weft_yield();
            if (test_below(state, 8)) weft_unbind(); /* else its end does it */
        }
        if (err == WEFT_ETIMEDOUT) err = 0;
        break;
    case 6:
        err = weft_sleep_for((int64_t)us * WEFT_US);
        break;
    case 7:
        weft_pin();
        usleep((useconds_t)us / 4);
        weft_yield();
        weft_unpin();
        break;
    case 8:
        err = weft_chan_try_recv(c, &v);
        if (err == WEFT_EAGAIN) err = 0;
        break;
    case 9:
        err = weft_chan_send(c, &v, weft_after(WEFT_MS));
        if (err == WEFT_ETIMEDOUT) err = 0;
        break;
    case 10:
        err = on_a_thread(us);
        break;
    case 11:
    case 12:
        (void)take_a_slot(state);
        compute(test_below(state, 2000));
        break;
    default:
        weft_yield();
        break;
    }
    CHECK_MSG(err == 0 || err == WEFT_ECANCELED || err == WEFT_EINVAL, "error %d", err);
}

static int wander(void *arg) {
    uint64_t state = weft_self() * 77 + test_seed();
    for (long i = 0; i < st.rounds; i++) step(&state, arg);
    atomic_fetch_add(&st.ended, 1);
    return 0;
}

static int cancel_some(void *arg) {
    weft_scope s;
    uint64_t state = weft_self() + test_seed();
    weft_scope_begin(&s, &(weft_scope_opts){.on_error = WEFT_KEEP_GOING});
    for (int i = 0; i < 4; i++) CHECK_EQ(weft_spawn(&s, wander, arg), 0);
    (void)weft_sleep_for((int64_t)test_below(&state, 3000) * WEFT_US);
    weft_scope_cancel(&s);
    (void)weft_scope_end(&s);
    return 0;
}

static int all(void *arg) {
    weft_chan *c = weft_chan_new(sizeof(long), 8);
    weft_scope s;
    long n = (long)(intptr_t)arg;
    weft_scope_begin(&s, &(weft_scope_opts){.on_error = WEFT_KEEP_GOING});
    for (long i = 0; i < n; i++) CHECK_EQ(weft_spawn(&s, i % 4 ? wander : cancel_some, c), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    weft_chan_unref(c);
    return 0;
}

/* Attaches and is released, again and again. */
static weft_worker *worker;

static void *serve(void *arg) {
    (void)arg;
    int err = weft_thread_attach(&worker);
    CHECK_MSG(err == 0 || err == WEFT_ELIMIT || err == WEFT_ETERMINATED, "attach: %d", err);
    __atomic_store_n(&worker, (weft_worker *)&st, __ATOMIC_RELEASE); /* it has returned */
    return NULL;
}

static void *attach_and_release(void *arg) {
    uint64_t state = (uint64_t)(uintptr_t)arg;
    while (!atomic_load(&st.stop)) {
        pthread_t t;
        weft_worker *w;
        __atomic_store_n(&worker, NULL, __ATOMIC_RELEASE);
        CHECK_EQ(pthread_create(&t, NULL, serve, NULL), 0);
        while (!(w = __atomic_load_n(&worker, __ATOMIC_ACQUIRE))) usleep(50);
        usleep((useconds_t)test_below(&state, 500));
        if (w != (weft_worker *)&st) weft_worker_release(w);
        pthread_join(t, NULL);
    }
    return NULL;
}

static void *fork_often(void *arg) {
    (void)arg;
    while (!atomic_load(&st.stop)) {
        pid_t child = fork();
        if (child == 0) _exit(weft_block_on(nap, NULL) == WEFT_ETERMINATED ? 0 : 1);
        int status;
        CHECK_EQ(waitpid(child, &status, 0), child);
        CHECK_EQ(status, 0);
        usleep(500);
    }
    return NULL;
}

static void run(int slots, long tasks, long rounds, void *(*beside)(void *)) {
    pthread_t t;
    st.rounds = rounds;
    atomic_store(&st.ended, 0);
    atomic_store(&st.stop, false);
    CHECK_EQ(weft_start(&(weft_config){
                 .workers = slots, .max_threads = 64, .block_threads_max = 4, .bound_threads_max = 3, .slice = 200 * WEFT_US}),
             0);
    taker_start();
    if (beside) CHECK_EQ(pthread_create(&t, NULL, beside, (void *)(uintptr_t)(test_seed() | 1)), 0);
    CHECK_EQ(weft_block_on(all, (void *)(intptr_t)tasks), 0);
    atomic_store(&st.stop, true);
    if (beside) pthread_join(t, NULL);
    taker_stop(slots, 1);
    weft_stats s;
    weft_stats_get(&s);
    CHECK_EQ(s.bound, 0);
    CHECK_EQ(s.strays, 0);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    printf("%d slots: %llu taken, %llu handed over, %llu binds\n", slots, (unsigned long long)s.takeovers,
           (unsigned long long)s.handoffs, (unsigned long long)s.binds);
    CHECK_EQ(atomic_load(&st.ended), tasks - (tasks + 3) / 4 + (tasks + 3) / 4 * 4);
}

TEST(away_stress, away_and_back_on_one_slot) { run(1, 16, test_scale(600, 40), NULL); }
TEST(away_stress, away_and_back_on_two_slots) { run(2, 24, test_scale(600, 40), NULL); }
TEST(away_stress, away_and_back_on_eight_slots) { run(8, 48, test_scale(400, 40), NULL); }
TEST(away_stress, with_threads_that_come_and_go_on_one_slot) { run(1, 16, test_scale(400, 40), attach_and_release); }
TEST(away_stress, with_threads_that_come_and_go_on_two_slots) { run(2, 24, test_scale(400, 40), attach_and_release); }
TEST(away_stress, with_threads_that_come_and_go_on_eight_slots) { run(8, 48, test_scale(300, 40), attach_and_release); }
TEST(away_stress, with_forks_on_two_slots) { run(2, 16, test_scale(300, 40), fork_often); }

/* ---- sites whose tasks bind now and then ---- */

/* What one of them does is chance: it binds, or ends without, or waits before; it is cancelled; its children run inside it, or not. */
static int bind_perhaps(void *arg) {
    uint64_t state = weft_self() * 31 + test_seed();
    int before = (int)test_below(&state, 3), tid = 0;
    for (int i = 0; i < before; i++) step(&state, arg);
    if (test_below(&state, 4)) {
        int err = weft_bind(test_below(&state, 2) ? WEFT_FOREVER : weft_after((int64_t)test_below(&state, 200) * WEFT_US));
        CHECK_MSG(err == 0 || err == WEFT_ETIMEDOUT || err == WEFT_ECANCELED || err == WEFT_EAGAIN, "error %d", err);
        tid = err ? 0 : gettid();
        if (test_below(&state, 2)) weft_yield();
        if (tid) CHECK_EQ(gettid(), tid);
        if (tid && test_below(&state, 2)) weft_unbind();
    }
    atomic_fetch_add(&st.ended, 1);
    return 0;
}

enum { AT_ONCE = 4 };

static int spawn_perhaps(void *arg) {
    uint64_t state = weft_self() + test_seed();
    weft_task_opts high = {.priority = WEFT_PRIORITY_HIGH};
    for (long i = 0; i < st.rounds; i++) {
        weft_scope s;
        weft_scope_begin(&s, &(weft_scope_opts){.on_error = WEFT_KEEP_GOING});
        for (int k = 0; k < AT_ONCE; k++)
            CHECK_EQ(k % 2 ? weft_spawn(&s, bind_perhaps, arg) : weft_spawn_opts(&s, bind_perhaps, arg, &high), 0);
        if (test_below(&state, 8) == 0) weft_scope_cancel(&s);
        (void)weft_scope_end(&s);
    }
    return 0;
}

static int all_perhaps(void *arg) {
    weft_chan *c = weft_chan_new(sizeof(long), 8);
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (long i = 0; i < (long)(intptr_t)arg; i++) CHECK_EQ(weft_spawn(&s, spawn_perhaps, c), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    weft_chan_unref(c);
    return 0;
}

static void run_perhaps(int slots, long spawners, long rounds) {
    weft_stats s;
    st.rounds = rounds;
    atomic_store(&st.ended, 0);
    CHECK_EQ(weft_start(&(weft_config){.workers = slots, .max_threads = 64, .bound_threads_max = 3, .slice = 200 * WEFT_US}),
             0);
    taker_start();
    CHECK_EQ(weft_block_on(all_perhaps, (void *)(intptr_t)spawners), 0);
    taker_stop(slots, 1);
    weft_stats_get(&s);
    CHECK_EQ(s.bound, 0);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    printf("%d slots: %llu binds, %llu of them ahead\n", slots, (unsigned long long)s.binds, (unsigned long long)s.binds_ahead);
    CHECK_GT(s.binds_ahead, 0);
    CHECK_EQ(atomic_load(&st.ended), spawners * rounds * AT_ONCE);
}

TEST(away_stress, sites_that_bind_now_and_then_on_one_slot) { run_perhaps(1, 4, test_scale(100, 15)); }
TEST(away_stress, sites_that_bind_now_and_then_on_two_slots) { run_perhaps(2, 6, test_scale(100, 15)); }
TEST(away_stress, sites_that_bind_now_and_then_on_eight_slots) { run_perhaps(8, 8, test_scale(100, 15)); }

/* The runtime stops while everybody is away. */
TEST(away_stress, stopped_at_any_moment) {
    uint64_t state = test_seed();
    taker_start();
    for (long i = test_scale(40, 6); i > 0; i--) {
        CHECK_EQ(weft_start(&(weft_config){.workers = 1 + (int)test_below(&state, 8), .slice = 200 * WEFT_US}), 0);
        weft_chan *c = weft_chan_new(sizeof(long), 8);
        st.rounds = 100;
        for (int k = 0; k < 12; k++) CHECK_EQ(weft_go(wander, c), 0);
        usleep((useconds_t)test_below(&state, 3000));
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
        weft_chan_unref(c);
    }
    taker_stop(0, 1);
}
