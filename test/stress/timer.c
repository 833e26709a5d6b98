/* SPDX-License-Identifier: MIT */
/* Timers: starts, stops and firings of the same few timers by many at once; a million of them; functions that are freed behind a
 * stop. What must hold: a function never runs twice at once, after stop_wait it does not run, and every firing is accounted for. */
#include <sched.h>

#include "api/common.h"

struct shared {
    weft_timer t;
    atomic_int inside; /* calls going on */
    atomic_long calls, started, withdrawn;
};

static void call(void *arg) {
    struct shared *x = arg;
    CHECK_EQ(atomic_fetch_add(&x->inside, 1), 0); /* never twice at once */
    atomic_fetch_add(&x->calls, 1);
    if (weft_self() % 3 == 0) weft_yield();
    CHECK_EQ(atomic_fetch_sub(&x->inside, 1), 1);
}

enum { TIMERS = 8 };

struct crowd {
    struct shared x[TIMERS];
    uint64_t seed;
    long rounds;
};

static void play(struct crowd *c, uint64_t *rnd) {
    struct shared *x = &c->x[test_below(rnd, TIMERS)];
    switch (test_below(rnd, 4)) {
    case 0:
    case 1:
        CHECK_EQ(weft_timer_start(&x->t, weft_after((int64_t)test_below(rnd, 30000)), test_below(rnd, 4) ? 0 : 5000, call, x),
                 0);
        break;
    case 2:
        weft_timer_stop(&x->t);
        break;
    default:
        weft_timer_stop_wait(&x->t);
    }
}

static int player(void *arg) {
    struct crowd *c = arg;
    uint64_t rnd = c->seed ^ weft_self() * 0x9e3779b97f4a7c15u;
    for (long i = 0; i < c->rounds; i++) {
        play(c, &rnd);
        if (test_below(&rnd, 4) == 0) CHECK_EQ(weft_sleep_for((int64_t)test_below(&rnd, 40000)), 0);
    }
    return 0;
}

static void *player_thread(void *arg) {
    struct crowd *c = arg;
    uint64_t rnd = c->seed;
    for (long i = 0; i < c->rounds; i++) play(c, &rnd);
    return NULL;
}

static int race(void *arg) {
    struct crowd *c = arg;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 16; i++) CHECK_EQ(weft_spawn(&s, player, c), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    return 0;
}

static void race_on(int workers) {
    static struct crowd c;
    memset(&c, 0, sizeof c);
    c.seed = test_seed();
    c.rounds = test_scale(2000, 100);
    pthread_t p;
    CHECK_EQ(set_up(workers), 0);
    CHECK_EQ(pthread_create(&p, NULL, player_thread, &c), 0);
    CHECK_EQ(weft_block_on(race, &c), 0);
    CHECK_EQ(pthread_join(p, NULL), 0);
    for (int i = 0; i < TIMERS; i++) {
        weft_timer_stop_wait(&c.x[i].t);
        CHECK_EQ(atomic_load(&c.x[i].inside), 0);
        long calls = atomic_load(&c.x[i].calls);
        CHECK_EQ(weft_timer_stop(&c.x[i].t), 0);
        CHECK_EQ(atomic_load(&c.x[i].calls), calls);
    }
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
}

TEST(timer_stress, everybody_starts_and_stops_the_same_timers_1) { race_on(1); }
TEST(timer_stress, everybody_starts_and_stops_the_same_timers_2) { race_on(2); }
TEST(timer_stress, everybody_starts_and_stops_the_same_timers_8) { race_on(8); }

/* ---- each firing is accounted for ---- */

static void count_call(void *arg) { atomic_fetch_add((atomic_long *)arg, 1); }

static int account(void *arg) {
    uint64_t rnd = *(uint64_t *)arg ^ weft_self() * 0x9e3779b97f4a7c15u;
    atomic_long calls = 0;
    weft_timer t = {{0}};
    long want = 0, n = test_scale(3000, 100);
    for (long i = 0; i < n; i++) {
        CHECK_EQ(weft_timer_start(&t, weft_after((int64_t)test_below(&rnd, 20000)), 0, count_call, &calls), 0);
        if (test_below(&rnd, 2)) weft_sleep_for((int64_t)test_below(&rnd, 20000));
        want += !(test_below(&rnd, 2) ? weft_timer_stop_wait(&t) : weft_timer_stop(&t)); /* 0: it has been called, or is */
        if (test_below(&rnd, 8) == 0) {
            weft_timer_stop_wait(&t);
            CHECK_EQ(atomic_load(&calls), want);
        }
    }
    weft_timer_stop_wait(&t);
    CHECK_EQ(atomic_load(&calls), want);
    return 0;
}

static int account_all(void *arg) {
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 16; i++) CHECK_EQ(weft_spawn(&s, account, arg), 0);
    return weft_scope_end(&s);
}

TEST(timer_stress, stopped_or_called_never_both_and_never_neither) {
    uint64_t seed = test_seed();
    for (int workers = 1; workers <= 8; workers *= 2) CHECK_EQ(run_on(workers, account_all, &seed), 0);
}

/* ---- memory that goes ---- */

struct heap {
    weft_timer t;
    atomic_int *calls;
    uint64_t alive;
};

static void touch(void *arg) {
    struct heap *h = arg;
    CHECK_EQ(h->alive, 0x600d);
    atomic_fetch_add(h->calls, 1);
}

static int free_behind(void *arg) {
    (void)arg;
    atomic_int calls = 0;
    long n = test_scale(20000, 500);
    for (long i = 0; i < n; i++) {
        struct heap *h = calloc(1, sizeof *h);
        CHECK(h);
        h->calls = &calls;
        h->alive = 0x600d;
        CHECK_EQ(weft_timer_start(&h->t, weft_after(i % 7 * 500), i % 3 ? 0 : 500, touch, h), 0);
        if (i % 5 == 0) weft_sleep_for(i % 11 * 500);
        weft_timer_stop_wait(&h->t);
        h->alive = 0;
        free(h);
    }
    return 0;
}

static int free_all(void *arg) {
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 4; i++) CHECK_EQ(weft_spawn(&s, free_behind, arg), 0);
    return weft_scope_end(&s);
}

TEST(timer_stress, after_stop_wait_the_memory_may_go) { run_each_watched(free_all); }

/* ---- a million ---- */

static int a_million(void *arg) {
    (void)arg;
    long n = test_scale(1000000, 10000);
    atomic_long calls = 0;
    uint64_t rnd = test_seed();
    weft_timer *t = calloc((size_t)n, sizeof *t);
    CHECK(t);
    for (long i = 0; i < n; i++) {
        int64_t after = i % 2 ? HOUR + (int64_t)test_below(&rnd, HOUR) : (int64_t)test_below(&rnd, WEFT_SECOND);
        CHECK_EQ(weft_timer_start(&t[i], weft_after(after), 0, count_call, &calls), 0);
    }
    long live = 0, called = n / 2 + n % 2;
    for (long i = 1; i < n; i += 2) live += weft_timer_stop(&t[i]);
    CHECK_EQ(live, n / 2);
    while (atomic_load(&calls) < called) weft_sleep_for(WEFT_MS);
    for (long i = 0; i < n; i++) CHECK_EQ(weft_timer_stop_wait(&t[i]), 0);
    CHECK_EQ(atomic_load(&calls), called);
    free(t);
    return 0;
}

TEST(timer_stress, a_million_at_once) { run_each_watched(a_million); }

/* ---- the runtime stops meanwhile ---- */

static void *stop_them(void *arg) {
    weft_timer *t = arg;
    for (int i = 0; i < 200; i++) weft_timer_stop_wait(&t[i]);
    return NULL;
}

TEST(timer_stress, plain_threads_stop_timers_of_a_runtime_that_stops) {
    long n = test_scale(300, 20);
    static weft_timer t[200];
    static atomic_long calls;
    for (long r = 0; r < n; r++) {
        pthread_t p;
        CHECK_EQ(set_up(1 + (int)(r % 4)), 0);
        for (int i = 0; i < 200; i++) CHECK_EQ(weft_timer_start(&t[i], weft_after(i * 1000), 2000, count_call, &calls), 0);
        CHECK_EQ(pthread_create(&p, NULL, stop_them, t), 0);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
        long seen = atomic_load(&calls);
        CHECK_EQ(pthread_join(p, NULL), 0);
        CHECK_EQ(atomic_load(&calls), seen);
    }
}

/* ---- known from an earlier runtime ---- */

enum { OLD = 32 };
static weft_timer old[OLD];
static atomic_int met[OLD];

static void nothing_to_call(void *arg) { (void)arg; }
static int start_all(void *with_another) {
    for (int i = 0; i < OLD; i++) {
        atomic_fetch_add(&met[i], 1);
        for (int spins = 0; with_another && atomic_load(&met[i]) < 2; spins++)
            if (spins > 1000) sched_yield();
        CHECK_EQ(weft_timer_start(&old[i], weft_after(HOUR), 0, nothing_to_call, NULL), 0);
    }
    return 0;
}
static int stop_all(void) {
    int armed = 0;
    for (int i = 0; i < OLD; i++) {
        armed += weft_timer_stop(&old[i]);
        atomic_store(&met[i], 0);
    }
    return armed;
}
static int start_them(void *arg) {
    (void)start_all(arg);
    return OLD - stop_all();
}
static int start_them_at_once(void *arg) {
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 2; i++) CHECK_EQ(weft_spawn(&s, start_all, arg), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    return OLD - stop_all();
}

/* Everybody may know them by now, and so two may be the first to start one in this runtime. */
TEST(timer_stress, two_start_a_timer_of_an_earlier_runtime_at_once) {
    CHECK_EQ(run_on(1, start_them, NULL), 0);
    int64_t end = test_long_enough();
    for (long i = test_scale(300, 20); i > 0 && test_clock_ns() < end; i--) CHECK_EQ(run_on(2, start_them_at_once, old), 0);
}
