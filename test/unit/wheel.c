/* SPDX-License-Identifier: MIT */
#include "time/wheel.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "test.h"

#define START INT64_C(1000000000)
#define YEAR (INT64_C(365) * 86400 * 1000000000)
#define ALL 1000000000

typedef struct probe {
    weft__timer t;
    int id;
    int fired;
} probe;

typedef struct record {
    int n;
    int id[4096];
} record;

static weft__wheel wheel;

static void note(weft__timer *t, void *ctx) {
    probe *p = weft__container(t, probe, t);
    record *r = ctx;
    p->fired++;
    if (r && r->n < (int)weft__countof(r->id)) r->id[r->n++] = p->id;
}

static void start_quietly(probe *p, int64_t when) {
    p->t.when = when;
    p->t.fire = note;
    weft__timer_start(&wheel, &p->t);
}

static void start(probe *p, int64_t when) {
    start_quietly(p, when);
    weft__wheel_check(&wheel);
}

static int run(int64_t now, record *r) {
    int n = weft__wheel_run(&wheel, now, ALL, r);
    weft__wheel_check(&wheel);
    return n;
}

TEST(wheel, fires_at_its_moment_and_not_a_nanosecond_before) {
    static const int64_t distance[] = {1, 63, 64, 65, 4095, 4096, 16384, 1000000, 1000000001, YEAR, 200 * YEAR};
    for (size_t i = 0; i < weft__countof(distance); i++) {
        probe p = {0}, company[40] = {0};
        weft__wheel_init(&wheel, START);
        for (int k = 0; k < 40; k++) start(&company[k], START + distance[i] + 1 + k); /* makes its bucket a large one */
        start(&p, START + distance[i]);
        CHECK_EQ(run(START + distance[i] - 1, NULL), 0);
        CHECK_EQ(run(START + distance[i], NULL), 1);
        CHECK_EQ(p.fired, 1);
        CHECK_EQ(run(START + distance[i] + 40, NULL), 40);
        CHECK_EQ(wheel.count, 0);
    }
}

TEST(wheel, a_moment_in_the_past_fires_at_the_next_run) {
    probe p[4] = {0};
    weft__wheel_init(&wheel, START);
    CHECK_EQ(run(START + 1000, NULL), 0);
    start(&p[0], START);
    start(&p[1], 0);
    start(&p[2], -5);
    start(&p[3], INT64_MIN);
    CHECK(weft__wheel_next(&wheel) <= START + 1000);
    CHECK(weft__wheel_next(&wheel) >= 0);
    CHECK_EQ(run(START + 1000, NULL), 4);
}

TEST(wheel, the_end_of_time_comes_last) {
    probe p[3] = {0};
    record r = {0};
    for (int i = 0; i < 3; i++) p[i].id = i;
    weft__wheel_init(&wheel, START);
    start(&p[0], INT64_MAX);
    CHECK_EQ(weft__wheel_next(&wheel), INT64_MAX);
    start(&p[1], INT64_MAX - 1);
    start(&p[2], START + 100 * YEAR);
    CHECK_EQ(run(START + 50 * YEAR, &r), 0);
    CHECK_EQ(run(INT64_MAX - 2, &r), 1);
    CHECK_EQ(run(INT64_MAX - 1, &r), 1);
    CHECK_EQ(run(INT64_MAX, &r), 1);
    CHECK_EQ(r.id[0], 2);
    CHECK_EQ(r.id[1], 1);
    CHECK_EQ(r.id[2], 0);
}

TEST(wheel, fires_in_the_order_of_moments_then_of_starts) {
    enum { N = 2000 };
    probe *p = calloc(N, sizeof *p);
    record *r = calloc(1, sizeof *r);
    uint64_t seed = test_random();
    weft__wheel_init(&wheel, START);
    for (int i = 0; i < N; i++) {
        p[i].id = i;
        p[i].t.when = START + 50 * WEFT_MS + (int64_t)test_below(&seed, 300) * 977;
        p[i].t.fire = note;
        weft__timer_start(&wheel, &p[i].t);
        if (i == N / 2) CHECK_EQ(weft__wheel_run(&wheel, START + 50 * WEFT_MS, ALL, r), r->n); /* later ones start nearer */
    }
    CHECK_EQ(run(START + YEAR, r) > 0, 1);
    CHECK_EQ(r->n, N);
    for (int i = 1; i < N; i++) {
        probe *a = &p[r->id[i - 1]], *b = &p[r->id[i]];
        if (a->t.when == START + 50 * WEFT_MS) continue; /* fired by the run in the middle, or a late-comer */
        CHECK(a->t.when < b->t.when || (a->t.when == b->t.when && a->id < b->id));
    }
    free(p);
    free(r);
}

TEST(wheel, a_stopped_timer_does_not_fire) {
    probe p[3] = {0};
    weft__wheel_init(&wheel, START);
    for (int i = 0; i < 3; i++) start(&p[i], START + 100);
    CHECK(weft__timer_stop(&p[1].t));
    CHECK(!weft__timer_stop(&p[1].t));
    weft__wheel_check(&wheel);
    CHECK_EQ(run(START + 100, NULL), 2);
    CHECK_EQ(p[1].fired, 0);
    CHECK(!weft__timer_stop(&p[0].t));
    start(&p[1], START + 200);
    CHECK_EQ(run(START + 200, NULL), 1);
    CHECK_EQ(p[1].fired, 1);
}

TEST(wheel, stopping_a_timer_that_never_started_says_false) {
    probe p = {0};
    CHECK(!weft__timer_stop(&p.t));
}

TEST(wheel, start_says_which_timer_is_the_earliest) {
    probe p[4] = {0};
    static const int64_t when[] = {START + 500, START + 600, START + 400, START - 5};
    static const bool expected[] = {true, false, true, true};
    weft__wheel_init(&wheel, START);
    for (int i = 0; i < 4; i++) {
        p[i].t.when = when[i];
        p[i].t.fire = note;
        CHECK_EQ(weft__timer_start(&wheel, &p[i].t), expected[i]);
    }
}

TEST(wheel, next_is_the_earliest_moment_while_there_are_few) {
    probe p[10] = {0};
    weft__wheel_init(&wheel, START);
    CHECK_EQ(weft__wheel_next(&wheel), INT64_MAX);
    for (int i = 0; i < 10; i++) start(&p[i], START + (10 - i) * WEFT_SECOND + i);
    CHECK_EQ(weft__wheel_next(&wheel), START + WEFT_SECOND + 9);
    CHECK_EQ(run(START + WEFT_SECOND + 9, NULL), 1);
    CHECK_EQ(weft__wheel_next(&wheel), START + 2 * WEFT_SECOND + 8);
    for (int i = 0; i < 9; i++) CHECK(weft__timer_stop(&p[i].t));
    CHECK_EQ(weft__wheel_next(&wheel), INT64_MAX);
}

TEST(wheel, stopping_the_earliest_timer_saves_the_wake_up) {
    probe near = {0}, far = {0};
    weft__wheel_init(&wheel, START);
    start(&far, START + 3600 * WEFT_SECOND);
    start(&near, START + WEFT_MS);
    CHECK_EQ(weft__wheel_next(&wheel), START + WEFT_MS);
    CHECK(weft__timer_stop(&near.t));
    CHECK_EQ(weft__wheel_next(&wheel), START + 3600 * WEFT_SECOND);
}

/* Sleeps until `next` again and again, as an idle worker does; returns how often it woke before the first fired. */
static int wakes_until_fired(int64_t now) {
    for (int wakes = 1;; wakes++) {
        CHECK(weft__wheel_next(&wheel) > now);
        now = weft__wheel_next(&wheel);
        if (run(now, NULL)) return wakes;
    }
}

TEST(wheel, an_idle_process_wakes_once_for_a_lone_far_timer) {
    probe p = {0};
    weft__wheel_init(&wheel, START);
    start(&p, START + 12345678901234567);
    CHECK_EQ(wakes_until_fired(START), 1);
}

TEST(wheel, an_idle_process_wakes_a_few_times_for_many_far_timers) {
    enum { N = 1000 };
    probe *p = calloc(N, sizeof *p);
    weft__wheel_init(&wheel, START);
    for (int i = 0; i < N; i++) start(&p[i], START + 12345678901234567 + i % 3);
    CHECK_LE(wakes_until_fired(START), WEFT_WHEEL_LEVELS);
    CHECK_EQ(run(START + YEAR, NULL) + p[0].fired > 0, 1);
    for (int i = 0; i < N; i++) CHECK_EQ(p[i].fired, 1);
    free(p);
}

TEST(wheel, no_more_than_max_fire_and_the_rest_stays_due) {
    probe p[100] = {0};
    weft__wheel_init(&wheel, START);
    for (int i = 0; i < 100; i++) start(&p[i], START + 1000 + i / 2);
    for (int left = 100; left > 0; left -= 7) {
        CHECK(weft__wheel_next(&wheel) <= START + WEFT_MS);
        CHECK_EQ(weft__wheel_run(&wheel, START + WEFT_MS, 7, NULL), left < 7 ? left : 7);
        weft__wheel_check(&wheel);
    }
    CHECK_EQ(weft__wheel_next(&wheel), INT64_MAX);
    CHECK_EQ(weft__wheel_run(&wheel, START + WEFT_MS, 7, NULL), 0);
}

TEST_T(wheel, a_jump_of_years_costs_no_more_than_the_timers_in_it, 5) {
    probe p[64] = {0};
    weft__wheel_init(&wheel, START);
    int64_t now = START;
    for (int i = 0; i < 64; i++) start(&p[i], START + i * 4 * YEAR + i);
    for (int i = 0; i < 64; i++, now += 4 * YEAR + 1) CHECK_EQ(run(now, NULL), 1);
}

TEST(wheel, an_old_now_fires_nothing_and_breaks_nothing) {
    probe p[2] = {0};
    weft__wheel_init(&wheel, START);
    start(&p[0], START + 5000);
    CHECK_EQ(run(START + 6000, NULL), 1);
    start(&p[1], START + 7000);
    CHECK_EQ(run(START + 10, NULL), 0);
    CHECK_EQ(run(START + 7000, NULL), 1);
}

/* ---- the model: an array, searched from end to end ---- */

typedef struct model {
    uint64_t seed;
    int64_t now;
    int n;
    probe *p; /* id = its index */
    bool *live;
    int64_t *key; /* its moment, or the time of its start if that was over: then its place in the order may be either */
    int *order;   /* the number of its start */
    int starts;
} model;

static int64_t some_moment(model *m) {
    uint64_t kind = test_below(&m->seed, 20);
    if (kind == 0) return (int64_t)test_random_from(&m->seed); /* anything, also negative */
    if (kind == 1) return INT64_MAX;
    if (kind < 4) return m->now - (int64_t)test_below(&m->seed, 1000);
    int64_t span = INT64_C(1) << test_below(&m->seed, kind < 6 ? 58 : 34);
    return m->now > INT64_MAX - span ? INT64_MAX : m->now + (int64_t)test_below(&m->seed, (uint64_t)span + 1);
}

static void model_start(model *m, int i) {
    if (m->live[i]) return;
    m->p[i].t.when = some_moment(m);
    m->p[i].t.fire = note;
    m->p[i].id = i;
    m->order[i] = m->starts++;
    m->key[i] = m->p[i].t.when > m->now ? m->p[i].t.when : m->now;
    m->live[i] = true;
    weft__timer_start(&wheel, &m->p[i].t);
}

static void model_stop(model *m, int i) {
    CHECK_EQ(weft__timer_stop(&m->p[i].t), m->live[i]);
    m->live[i] = false;
}

static int64_t model_next(const model *m) {
    int64_t next = INT64_MAX;
    for (int i = 0; i < m->n; i++)
        if (m->live[i] && m->key[i] < next) next = m->key[i];
    return next;
}

/* Nothing that is still inside should have come before i. */
static void model_fired(model *m, int i) {
    CHECK(m->live[i]);
    CHECK(m->p[i].t.when <= m->now);
    CHECK(!m->p[i].t.prev);
    m->live[i] = false;
    for (int k = 0; k < m->n; k++) {
        if (!m->live[k]) continue;
        CHECK(m->key[k] >= m->p[i].t.when);
        if (m->p[k].t.when == m->p[i].t.when) CHECK(m->order[k] > m->order[i]);
    }
}

static void model_run(model *m) {
    static record r;
    uint64_t kind = test_below(&m->seed, 50);
    int64_t jump = (int64_t)test_below(&m->seed, UINT64_C(1) << test_below(&m->seed, kind ? 30 : 56));
    m->now = m->now > INT64_MAX - jump ? INT64_MAX : m->now + jump;
    int max = kind % 3 ? ALL : (int)test_below(&m->seed, 10);
    r.n = 0;
    int fired = weft__wheel_run(&wheel, m->now, max, &r);
    CHECK_EQ(fired, r.n);
    for (int k = 0; k < r.n; k++) model_fired(m, r.id[k]);
    if (fired < max) CHECK(model_next(m) > m->now || (m->now == INT64_MAX && !wheel.count));
    CHECK(weft__wheel_next(&wheel) <= model_next(m));
}

static void model_play(model *m, int steps) {
    weft__wheel_init(&wheel, m->now);
    for (int s = 0; s < steps; s++) {
        int i = (int)test_below(&m->seed, (uint64_t)m->n);
        switch (test_below(&m->seed, 8)) {
        case 0:
            model_run(m);
            break;
        case 1:
        case 2:
            model_stop(m, i);
            break;
        default:
            model_start(m, i);
        }
        weft__wheel_check(&wheel);
    }
    for (int i = 0; i < m->n; i++) model_stop(m, i);
    CHECK_EQ(wheel.count, 0);
    CHECK_EQ(weft__wheel_next(&wheel), INT64_MAX);
}

TEST(wheel, behaves_like_a_sorted_array) {
    enum { MOST = 300 };
    model m = {.seed = test_random()};
    m.p = calloc(MOST, sizeof *m.p);
    m.live = calloc(MOST, sizeof *m.live);
    m.key = calloc(MOST, sizeof *m.key);
    m.order = calloc(MOST, sizeof *m.order);
    long rounds = test_scale(200, 10);
    for (long i = 0; i < rounds; i++) {
        m.now = i % 10 ? START + (int64_t)test_below(&m.seed, YEAR) : 1;
        m.n = 1 + (int)test_below(&m.seed, MOST);
        memset(m.p, 0, sizeof *m.p * MOST);
        model_play(&m, 1000);
    }
    free(m.p);
    free(m.live);
    free(m.key);
    free(m.order);
}

/* ---- several threads on one wheel ---- */

enum { OWNERS = 2, OWNED = 64 };

/* A timer and who has ended it: its function and its owner's stop must never both do so. */
typedef struct shared {
    weft__timer t;
    int inside; /* plain on purpose: the lock alone must order the function and the stop that waited for it */
    _Atomic int fired;
} shared;

static weft__wheel arena;
static _Atomic int64_t arena_now;
static _Atomic int arena_done;
static _Atomic long arena_fired;

static void shared_fire(weft__timer *t, void *ctx) {
    shared *s = weft__container(t, shared, t);
    CHECK(t->when <= *(int64_t *)ctx);
    s->inside = 1;
    weft__add(&s->fired, 1, relaxed); /* read by the owner after a stop, which took the same lock */
    weft__add(&arena_fired, 1, relaxed);
    s->inside = 0;
}

/* Keeps its timers going; every one either fires once or is stopped. */
static void *owner_main(void *arg) {
    uint64_t seed = (uint64_t)(uintptr_t)arg;
    shared *s = calloc(OWNED, sizeof *s);
    bool *started = calloc(OWNED, sizeof *started);
    long rounds = test_scale(400000, 4000);
    for (long i = 0; i < rounds || weft__load(&arena_fired, relaxed) < 100; i++) { /* until the runners have had their share */
        int k = (int)test_below(&seed, OWNED);
        if (started[k]) {
            bool stopped = weft__timer_stop(&s[k].t);
            CHECK_EQ(s[k].inside, 0);
            CHECK_EQ(weft__load(&s[k].fired, relaxed), stopped ? 0 : 1);
        }
        weft__store(&s[k].fired, 0, relaxed); /* it is not in the wheel: nobody else looks */
        s[k].inside = 0;
        s[k].t.fire = shared_fire;
        int64_t now = weft__load(&arena_now, relaxed);
        s[k].t.when = now + (int64_t)test_below(&seed, UINT64_C(1) << test_below(&seed, 24));
        weft__timer_start(&arena, &s[k].t);
        started[k] = true;
        if (i % 1024 == 0) weft__wheel_check(&arena);
    }
    for (int k = 0; k < OWNED; k++)
        if (started[k]) CHECK_EQ(weft__timer_stop(&s[k].t) + weft__load(&s[k].fired, relaxed), 1);
    free(s);
    free(started);
    weft__add(&arena_done, 1, release); /* pairs with the acquire in runner_main */
    return NULL;
}

static void *runner_main(void *arg) {
    (void)arg;
    while (weft__load(&arena_done, acquire) < OWNERS) { /* pairs with the release in owner_main */
        int64_t now = weft__add(&arena_now, 10000, relaxed);
        weft__wheel_run(&arena, now, 100, &now);
    }
    return NULL;
}

TEST(wheel, many_threads_fire_or_stop_each_timer_but_never_both) {
    pthread_t owner[OWNERS], runner[2];
    weft__store(&arena_now, START, relaxed); /* the threads are not there yet */
    weft__wheel_init(&arena, START);
    for (int i = 0; i < OWNERS; i++)
        CHECK_EQ(pthread_create(&owner[i], NULL, owner_main, (void *)(uintptr_t)(test_random() | 1)), 0);
    for (int i = 0; i < 2; i++) CHECK_EQ(pthread_create(&runner[i], NULL, runner_main, NULL), 0);
    for (int i = 0; i < OWNERS; i++) CHECK_EQ(pthread_join(owner[i], NULL), 0);
    for (int i = 0; i < 2; i++) CHECK_EQ(pthread_join(runner[i], NULL), 0);
    weft__wheel_check(&arena);
    CHECK_EQ(arena.count, 0);
}

/* ---- a run that holds the lock for long ---- */

static _Atomic int let_in, run_started;

/* Holds the lock until somebody wants it, and is slow until he has got it. */
static void slow_fire(weft__timer *t, void *ctx) {
    (void)t;
    (void)ctx;
    weft__store(&run_started, 1, relaxed);    /* a signal only, to stop_one_main */
    if (weft__load(&let_in, relaxed)) return; /* a signal only, from stop_one_main */
    while (!weft__load(&wheel.waiting, relaxed) && !weft__load(&let_in, relaxed)) sched_yield();
    for (int i = 0; i < 1000; i++) weft__cpu_relax();
}

static void *stop_one_main(void *arg) {
    test_until(test_is_set, &run_started);
    CHECK(weft__timer_stop(arg));
    weft__store(&let_in, 1, relaxed); /* a signal only, to slow_fire */
    return NULL;
}

TEST(wheel, a_long_run_lets_others_in) {
    enum { N = 20000 };
    pthread_t stopper;
    probe *p = calloc(N + 1, sizeof *p);
    weft__wheel_init(&wheel, START);
    for (int i = 0; i <= N; i++) {
        p[i].t.when = START + 1000 + i;
        p[i].t.fire = slow_fire;
        weft__timer_start(&wheel, &p[i].t);
    }
    CHECK_EQ(pthread_create(&stopper, NULL, stop_one_main, &p[N].t), 0);
    CHECK_EQ(weft__wheel_run(&wheel, START + WEFT_SECOND, ALL, NULL), N); /* a run that lets nobody in fires all N + 1 */
    CHECK_EQ(pthread_join(stopper, NULL), 0);
    free(p);
}

/* ---- a large bucket is gone through from both ends ---- */

enum { CROWD = 4000, CROWD_PAGE = 1 << 16 };
static char *crowd;
static _Atomic int crowd_over;

/* Runs the wheel as if somebody waited for its lock all the time: others are let in after each batch, also where threads take turns (valgrind). */
static int run_letting_in(int64_t now) {
    weft__add(&wheel.waiting, 1, relaxed); /* a hint */
    int fired = weft__wheel_run(&wheel, now, ALL, NULL);
    weft__sub(&wheel.waiting, 1, relaxed);
    return fired;
}

/* Where in the memory of the crowd; -1: it is none of them, but a bucket. */
static long crowd_at(weft__timer_link *l) {
    char *p = (char *)l;
    return l && p >= crowd && p < crowd + (size_t)CROWD * CROWD_PAGE ? (p - crowd) / CROWD_PAGE : -1;
}

/* Whenever it is let in, it takes out the very timer up to which the bucket was looked at, and its memory goes. */
static void *remove_back_main(void *removed) {
    while (!weft__load(&crowd_over, relaxed)) { /* a signal only, from the test */
        weft__wheel_enter(&wheel);
        long i = crowd_at(wheel.back);
        if (i >= 0) weft__wheel_remove(&wheel, weft__container(wheel.back, weft__timer, link));
        weft__wheel_leave(&wheel);
        if (i < 0) continue;
        CHECK_EQ(munmap(crowd + i * CROWD_PAGE, CROWD_PAGE), 0);
        ++*(int *)removed;
    }
    return NULL;
}

TEST(wheel, a_timer_may_go_while_its_bucket_is_gone_through) {
    pthread_t remover;
    int removed = 0, fired = 0;
    for (int round = 0; round < 1000 && !removed; round++) { /* it is not let in each time */
        int64_t moment = ((START >> 24) + 5) << 24;          /* one bucket for all of them */
        crowd = mmap(NULL, (size_t)CROWD * CROWD_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(crowd != MAP_FAILED);
        weft__wheel_init(&wheel, START);
        for (int i = 0; i < CROWD; i++) start_quietly((probe *)(void *)(crowd + (size_t)i * CROWD_PAGE), moment + i);
        weft__store(&crowd_over, 0, relaxed); /* there is no other thread yet */
        CHECK_EQ(pthread_create(&remover, NULL, remove_back_main, &removed), 0);
        fired = run_letting_in(moment + WEFT_SECOND);
        weft__store(&crowd_over, 1, relaxed);
        CHECK_EQ(pthread_join(remover, NULL), 0);
        CHECK_EQ(fired + removed, CROWD);
        munmap(crowd, (size_t)CROWD * CROWD_PAGE);
    }
    printf("%d removed\n", removed);
    CHECK_GT(removed, 0);
}

/* The rest of the bucket goes while it is open: the next one is looked at from its own end. */
static void *remove_rest_main(void *over) {
    bool gone = false;
    while (!gone && !weft__load((_Atomic int *)over, relaxed)) { /* a signal only, from the test */
        weft__wheel_enter(&wheel);
        gone = wheel.open != 0;
        for (weft__timer_link *b = &wheel.bucket[wheel.open]; gone && b->next != b;)
            weft__wheel_remove(&wheel, weft__container(b->next, weft__timer, link));
        if (gone) CHECK(!wheel.open && !wheel.back);
        weft__wheel_leave(&wheel);
    }
    return gone ? over : NULL;
}

TEST(wheel, a_bucket_that_was_emptied_by_others_leaves_nothing_behind) {
    probe *p = calloc(CROWD, sizeof *p);
    void *gone = NULL;
    for (int round = 0; round < 1000 && !gone; round++) { /* it is not let in each time */
        pthread_t remover;
        int64_t moment = ((START >> 24) + 5) << 24;
        _Atomic int over = 0;
        memset(p, 0, CROWD * sizeof *p);
        weft__wheel_init(&wheel, START);
        for (int i = 0; i < CROWD; i++) start_quietly(&p[i], moment + i);
        CHECK_EQ(pthread_create(&remover, NULL, remove_rest_main, (void *)&over), 0);
        (void)run_letting_in(moment + WEFT_SECOND);
        weft__store(&over, 1, relaxed);
        CHECK_EQ(pthread_join(remover, &gone), 0);
        CHECK_EQ(wheel.count, 0);
    }
    CHECK(gone != NULL);
    free(p);
}

static _Atomic int fire_entered, fire_left, stop_returned;

static void waited_for_fire(weft__timer *t, void *ctx) {
    (void)t;
    (void)ctx;
    weft__store(&fire_entered, 1, relaxed); /* a signal only, to stop_meanwhile_main */
    while (!weft__load(&wheel.waiting, relaxed) && !weft__load(&stop_returned, relaxed)) sched_yield();
    weft__store(&fire_left, 1, relaxed); /* read by stop_meanwhile_main, ordered by the wheel's lock */
}

static void *stop_meanwhile_main(void *arg) {
    test_until(test_is_set, &fire_entered);
    CHECK(!weft__timer_stop(arg));
    CHECK(weft__load(&fire_left, relaxed));
    weft__store(&stop_returned, 1, relaxed); /* a signal only, to waited_for_fire */
    return NULL;
}

TEST(wheel, a_stop_waits_for_the_function_that_is_running) {
    pthread_t stopper;
    weft__timer t = {.when = START + 1, .fire = waited_for_fire};
    weft__wheel_init(&wheel, START);
    weft__timer_start(&wheel, &t);
    CHECK_EQ(pthread_create(&stopper, NULL, stop_meanwhile_main, &t), 0);
    CHECK_EQ(weft__wheel_run(&wheel, START + 1, ALL, NULL), 1);
    CHECK_EQ(pthread_join(stopper, NULL), 0);
}

/* ---- what timers of users need ---- */

static void nothing(weft__timer *t, void *ctx) {
    (void)t;
    (void)ctx;
}

static int drops;

static void count_drop(weft__timer *t) {
    CHECK(!t->link.prev);
    drops++;
}

TEST(wheel, dropping_takes_out_all_of_one_kind_and_leaves_the_rest) {
    enum { KIND = 1000 };
    static weft__wheel w;
    static weft__timer a[KIND], b[KIND], due[10];
    uint64_t rnd = test_seed();
    weft__wheel_init(&w, 5);
    for (int i = 0; i < KIND; i++) {
        int64_t when = (int64_t)(test_random_from(&rnd) >> (1 + test_below(&rnd, 60)));
        a[i] = (weft__timer){.when = when, .fire = nothing};
        b[i] = (weft__timer){.when = when, .fire = shared_fire};
        weft__timer_start(&w, &a[i]);
        weft__timer_start(&w, &b[i]);
    }
    for (int i = 0; i < 10; i++) weft__due_add(&w, &due[i]);
    weft__due_remove(&due[0]);
    CHECK_PTR(weft__due_first(&w), &due[1]);
    drops = 0;
    weft__wheel_drop(&w, nothing, count_drop);
    CHECK_EQ(drops, KIND + 9);
    CHECK(!weft__due_first(&w));
    weft__wheel_check(&w);
    for (int i = 0; i < KIND; i++) {
        CHECK(!weft__timer_stop(&a[i]));
        CHECK(weft__timer_stop(&b[i]));
    }
    CHECK_EQ(weft__wheel_next(&w), INT64_MAX);
}
