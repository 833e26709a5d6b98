/* SPDX-License-Identifier: MIT */
/* The hunt for a lost wake-up: pairs that wait for each other, with gaps of all lengths, so that the workers really go to
 * sleep, or are just about to, when the next event comes. A lost one hangs the test. */
#include <time.h>

#include "api/common.h"

/* Most gaps are around the time a worker searches before it sleeps (20 us). */
static int64_t gap(uint64_t *rnd) {
    switch (test_below(rnd, 8)) {
    case 0:
        return (int64_t)test_below(rnd, 200) * WEFT_US;
    case 1:
        return 0;
    default:
        return (int64_t)test_below(rnd, 40000);
    }
}

/* Passes time in user code, as seen by the runtime: the slot stays taken. */
static void spin(int64_t ns) {
    int64_t end = test_clock_ns() + ns;
    while (test_clock_ns() < end)
        ;
}

static void nap(int64_t ns) {
    struct timespec ts = {.tv_sec = 0, .tv_nsec = (long)ns};
    nanosleep(&ts, NULL);
}

static void pass_time(uint64_t *rnd) {
    int64_t ns = gap(rnd);
    uint64_t kind = test_below(rnd, 3);
    if (kind == 0 && weft_self())
        CHECK_EQ(weft_sleep_for(ns), 0);
    else if (kind == 1)
        nap(ns);
    else
        spin(ns);
}

struct game {
    weft_chan *there, *back;
    long rounds;
    uint64_t seed;
};

static int serve(void *arg) {
    struct game *g = arg;
    uint64_t rnd = g->seed + 1;
    for (long i = 0; i < g->rounds; i++) {
        long v = i;
        pass_time(&rnd);
        CHECK_EQ(weft_chan_send(g->there, &v, WEFT_FOREVER), 0);
        CHECK_EQ(weft_chan_recv(g->back, &v, WEFT_FOREVER), 0);
        CHECK_EQ(v, i + 1);
    }
    return 0;
}

static int reply(void *arg) {
    struct game *g = arg;
    uint64_t rnd = g->seed + 2;
    for (long i = 0; i < g->rounds; i++) {
        long v = -1;
        CHECK_EQ(weft_chan_recv(g->there, &v, test_below(&rnd, 2) ? weft_after(HOUR) : WEFT_FOREVER), 0);
        CHECK_EQ(v, i);
        if (test_below(&rnd, 2)) pass_time(&rnd);
        v++;
        CHECK_EQ(weft_chan_send(g->back, &v, WEFT_FOREVER), 0);
    }
    return 0;
}

static void *reply_thread(void *arg) {
    reply(arg);
    return NULL;
}

static void game_begin(struct game *g, size_t capacity, long rounds) {
    g->there = weft_chan_new(sizeof(long), capacity);
    g->back = weft_chan_new(sizeof(long), capacity);
    g->rounds = rounds;
    g->seed = test_random();
    CHECK(g->there && g->back);
}

static void game_end(struct game *g) {
    weft_chan_unref(g->there);
    weft_chan_unref(g->back);
}

static int play_pairs(void *arg) {
    int pairs = (int)(intptr_t)arg;
    struct game g[8];
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < pairs; i++) {
        game_begin(&g[i], (size_t)(i % 2), test_scale(1500 / pairs, 30));
        CHECK_EQ(weft_spawn(&s, serve, &g[i]), 0);
        CHECK_EQ(weft_spawn(&s, reply, &g[i]), 0);
    }
    CHECK_EQ(weft_scope_end(&s), 0);
    for (int i = 0; i < pairs; i++) game_end(&g[i]);
    return 0;
}

static void play(int workers, int64_t search, int pairs) {
    weft_config cfg = {.workers = workers, .stack_size = 0, .max_threads = 0, .search = search};
    CHECK_EQ(weft_run(play_pairs, as_arg(pairs), &cfg), 0);
}

TEST_T(wake_stress, two_tasks_never_miss_each_other, 120) {
    EACH_WORKERS(w) {
        play(w, 0, 1);
        play(w, -1, 1);
    }
}

TEST_T(wake_stress, several_pairs_never_miss_each_other, 120) {
    EACH_WORKERS(w) {
        play(w, 0, 3);
        play(w, -1, 8);
    }
}

TEST_T(wake_stress, a_task_and_a_thread_never_miss_each_other, 120) {
    EACH_WORKERS(w) {
        for (size_t capacity = 0; capacity < 2; capacity++) {
            struct game g;
            pthread_t t;
            game_begin(&g, capacity, test_scale(1000, 30));
            CHECK_EQ(pthread_create(&t, NULL, reply_thread, &g), 0);
            CHECK_EQ(run_on(w, serve, &g), 0);
            pthread_join(t, NULL);
            game_end(&g);
        }
    }
}

/* ---- work from outside for sleeping workers ---- */

static atomic_int ran;

static int count_run(void *arg) {
    (void)arg;
    atomic_fetch_add(&ran, 1);
    return 0;
}

TEST_T(wake_stress, a_task_from_outside_always_wakes_a_worker, 120) {
    EACH_WORKERS(w) {
        for (int search = -1; search <= 0; search++) {
            weft_config cfg = {.workers = w, .stack_size = 0, .max_threads = 0, .search = search};
            uint64_t rnd = test_random();
            atomic_store(&ran, 0);
            CHECK_EQ(weft_start(&cfg), 0);
            for (int i = 1, n = (int)test_scale(1500, 30); i <= n; i++) {
                pass_time(&rnd);
                CHECK_EQ(weft_go(count_run, NULL), 0);
                thread_wait(&ran, i);
            }
            CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
        }
    }
}

TEST_T(wake_stress, block_on_always_returns, 120) {
    EACH_WORKERS(w) {
        uint64_t rnd = test_random();
        CHECK_EQ(set_up(w), 0);
        for (long i = test_scale(1500, 30); i > 0; i--) {
            pass_time(&rnd);
            CHECK_EQ(weft_block_on(return_int, as_arg(i)), i);
        }
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    }
}

/* ---- joins, cancellations and timers after a gap ---- */

static int work_a_little(void *arg) {
    uint64_t rnd = (uint64_t)(uintptr_t)arg;
    if (test_below(&rnd, 2))
        spin(gap(&rnd));
    else
        (void)weft_sleep_for(gap(&rnd)); /* may be cancelled */
    return 3;
}

static int join_after_gaps(void *arg) {
    (void)arg;
    uint64_t rnd = test_random();
    for (long i = test_scale(600, 30); i > 0; i--) {
        weft_task *t = NULL;
        weft_scope s;
        int result = 0;
        CHECK_EQ(weft_task_start(&t, work_a_little, (void *)(uintptr_t)test_random_from(&rnd), NULL), 0);
        pass_time(&rnd);
        CHECK_EQ(weft_task_join(t, &result, WEFT_FOREVER), 0);
        CHECK_EQ(result, 3);
        weft_scope_begin(&s, NULL);
        CHECK_EQ(weft_spawn(&s, work_a_little, (void *)(uintptr_t)test_random_from(&rnd)), 0);
        CHECK_EQ(weft_spawn(&s, wait_for_ever, NULL), 0);
        pass_time(&rnd);
        weft_scope_cancel(&s);
        CHECK_EQ(weft_scope_end(&s), 0);
    }
    return 0;
}

TEST_T(wake_stress, joins_and_cancellations_always_arrive, 120) { run_each_watched(join_after_gaps); }

static int time_out_after_gaps(void *arg) {
    uint64_t rnd = (uint64_t)(uintptr_t)arg;
    weft_chan *c = weft_chan_new(0, 0);
    for (long i = test_scale(200, 10); i > 0; i--) {
        CHECK_EQ(weft_chan_recv(c, NULL, weft_after(gap(&rnd))), WEFT_ETIMEDOUT);
        CHECK_EQ(weft_sleep_for(gap(&rnd)), 0);
        if (test_below(&rnd, 4) == 0) spin(gap(&rnd));
    }
    weft_chan_unref(c);
    return 0;
}

static int many_time_out(void *arg) {
    (void)arg;
    for (int n = 1; n <= 16; n *= 4) {
        weft_scope s;
        weft_scope_begin(&s, NULL);
        for (int i = 0; i < n; i++) CHECK_EQ(weft_spawn(&s, time_out_after_gaps, (void *)(uintptr_t)test_random()), 0);
        CHECK_EQ(weft_scope_end(&s), 0);
    }
    return 0;
}

TEST_T(wake_stress, time_outs_always_come, 120) { run_each_watched(many_time_out); }

/* ---- one wakes many ---- */

static int wait_for_gate(void *arg) {
    CHECK_EQ(weft_chan_recv(arg, NULL, WEFT_FOREVER), WEFT_ECLOSED);
    return 0;
}

static int open_gates(void *arg) {
    (void)arg;
    uint64_t rnd = test_random();
    for (long i = test_scale(300, 20); i > 0; i--) {
        weft_chan *gate = weft_chan_new(0, 0);
        weft_scope s;
        weft_scope_begin(&s, NULL);
        for (uint64_t k = test_below(&rnd, 20); k > 0; k--) CHECK_EQ(weft_spawn(&s, wait_for_gate, gate), 0);
        pass_time(&rnd);
        CHECK_EQ(weft_chan_close(gate), 0);
        CHECK_EQ(weft_scope_end(&s), 0);
        weft_chan_unref(gate);
    }
    return 0;
}

TEST_T(wake_stress, a_close_wakes_all_after_any_gap, 120) { run_each_watched(open_gates); }

/* ---- the last wake-up of a runtime ---- */

static void *send_last(void *arg) {
    uint64_t rnd = test_random();
    int v = 9;
    if (test_below(&rnd, 4))
        spin(gap(&rnd));
    else
        nap((int64_t)test_below(&rnd, 20) * WEFT_MS); /* by then all workers sleep as deep as they can */
    CHECK_EQ(weft_chan_send(arg, &v, WEFT_FOREVER), 0);
    return NULL;
}

static int recv_last(void *arg) {
    int v = 0;
    CHECK_EQ(weft_chan_recv(arg, &v, WEFT_FOREVER), 0);
    return v;
}

/* The thread that wakes the last task is still on its way out of the runtime when that task, and the runtime, end. */
TEST_T(wake_stress, who_wakes_the_last_task_may_take_its_time, 120) {
    EACH_WORKERS(w) {
        for (long i = test_scale(300, 100); i > 0; i--) {
            weft_chan *c = weft_chan_new(sizeof(int), 0);
            pthread_t t;
            CHECK_EQ(pthread_create(&t, NULL, send_last, c), 0);
            CHECK_EQ(run_on(w, recv_last, c), 9);
            pthread_join(t, NULL);
            weft_chan_unref(c);
        }
    }
}
