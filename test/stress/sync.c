/* SPDX-License-Identifier: MIT */
/* Locks under everything at once, from tasks and plain threads, with deadlines and cancellation, on 1 to 8 workers. Whoever has a lock is alone
 * in there; whoever was served was served once; nobody is forgotten. */
#include "stress/actor.h"
#include "sync/sync.h"

static bool may_be(int rc) { return rc == 0 || rc == WEFT_ETIMEDOUT || rc == WEFT_EAGAIN || rc == WEFT_ECANCELED; }

/* ---- mutex and rwlock ---- */

enum { LOCKS = 3, UNITS = 4 };

static struct round {
    weft_mutex m[LOCKS];
    weft_rwlock rw[LOCKS];
    weft_sem sem;
    long held[LOCKS], written[LOCKS]; /* under m, rw: plain, so that a sanitizer sees two at once */
    atomic_long locked[LOCKS], wrote[LOCKS];
    atomic_int units;
    uint64_t seed;
    long ops;
} r;

static void use_mutex(uint64_t *rnd) {
    uint64_t k = test_below(rnd, LOCKS), how = test_below(rnd, 8);
    int rc = 0;
    if (how < 3)
        weft_mutex_lock(&r.m[k]);
    else
        rc = how == 3 ? weft_mutex_trylock(&r.m[k]) : weft_mutex_lock_until(&r.m[k], random_deadline(rnd));
    CHECK(may_be(rc));
    if (rc) return;
    long before = r.held[k]++;
    random_pause(rnd);
    CHECK_EQ(r.held[k], before + 1);
    weft_mutex_unlock(&r.m[k]);
    atomic_fetch_add(&r.locked[k], 1);
}

static void use_rwlock(uint64_t *rnd) {
    uint64_t k = test_below(rnd, LOCKS);
    bool writes = test_below(rnd, 3) == 0;
    int rc = 0;
    if (test_below(rnd, 2))
        writes ? weft_rwlock_wrlock(&r.rw[k]) : weft_rwlock_rdlock(&r.rw[k]);
    else
        rc = writes ? weft_rwlock_wrlock_until(&r.rw[k], random_deadline(rnd))
                    : weft_rwlock_rdlock_until(&r.rw[k], random_deadline(rnd));
    CHECK(may_be(rc));
    if (rc) return;
    long before = r.written[k];
    if (writes) r.written[k]++;
    random_pause(rnd);
    CHECK_EQ(r.written[k], before + writes);
    weft_rwlock_unlock(&r.rw[k]);
    if (writes) atomic_fetch_add(&r.wrote[k], 1);
}

static void use_sem(uint64_t *rnd) {
    uint32_t n = 1 + (uint32_t)test_below(rnd, 2) * (uint32_t)test_below(rnd, UNITS); /* mostly 1 */
    int rc = n == 1 ? weft_sem_acquire(&r.sem, random_deadline(rnd)) : weft_sem_acquire_n(&r.sem, n, random_deadline(rnd));
    CHECK(may_be(rc));
    if (rc) return;
    CHECK_LE(atomic_fetch_add(&r.units, (int)n), UNITS - (int)n);
    CHECK_LE(weft_sem_available(&r.sem), UNITS - n);
    random_pause(rnd);
    atomic_fetch_sub(&r.units, (int)n);
    weft_sem_release_n(&r.sem, n);
}

static int actor(void *arg) {
    uint64_t rnd = actor_seed(r.seed, (int)(intptr_t)arg);
    for (long i = 0; i < r.ops; i++) {
        switch (test_below(&rnd, 4)) {
        case 0:
        case 1:
            use_mutex(&rnd);
            break;
        case 2:
            use_rwlock(&rnd);
            break;
        default:
            use_sem(&rnd);
        }
        random_pause(&rnd);
    }
    return 0;
}
static void *actor_thread(void *arg) {
    actor(arg);
    return NULL;
}

static int canceller(void *scope) {
    weft_sleep_for(200 * WEFT_US);
    weft_scope_cancel(scope);
    return 0;
}

/* Half of the tasks are in a scope that is cancelled in the middle. */
static int one_round(void *arg) {
    enum { TASKS = 12, THREADS = 2 };
    (void)arg;
    memset(&r, 0, sizeof r);
    r.seed = test_random();
    r.ops = test_slow_tools() > 1 ? 60 : 400; /* with WEFT_TEST_SCALE there are more rounds */
    CHECK_EQ(weft_sem_init(&r.sem, UNITS), 0);
    pthread_t t[THREADS];
    weft_scope s, doomed;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < THREADS; i++) CHECK_EQ(pthread_create(&t[i], NULL, actor_thread, as_arg(i)), 0);
    for (int i = 0; i < TASKS / 2; i++) CHECK_EQ(weft_spawn(&s, actor, as_arg(10 + i)), 0);
    weft_scope_begin(&doomed, NULL);
    CHECK_EQ(weft_spawn(&s, canceller, &doomed), 0);
    for (int i = 0; i < TASKS / 2; i++) (void)weft_spawn(&doomed, actor, as_arg(20 + i));
    weft_scope_end(&doomed);
    CHECK_EQ(weft_scope_end(&s), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
    for (int k = 0; k < LOCKS; k++) {
        CHECK_EQ(r.held[k], atomic_load(&r.locked[k]));
        CHECK_EQ(r.written[k], atomic_load(&r.wrote[k]));
        weft_mutex_destroy(&r.m[k]); /* nobody holds it or waits */
        weft_rwlock_destroy(&r.rw[k]);
    }
    CHECK_EQ(weft_sem_available(&r.sem), UNITS);
    for (int i = 0; i < UNITS; i++) CHECK_EQ(weft_sem_try(&r.sem), 0);
    CHECK_EQ(weft_sem_try(&r.sem), WEFT_EAGAIN);
    return 0;
}

static int rounds(void *arg) {
    int64_t end = test_long_enough();
    for (long i = 0; i == 0 || (i < test_scale(12, 2) && test_clock_ns() < end); i++) CHECK_EQ(one_round(arg), 0);
    return 0;
}
TEST_T(sync_stress, everything_at_once, 240) {
    for (int w = 1; w <= 8; w++) CHECK_EQ(run_on(w, rounds, NULL), 0);
}

static int rounds_strict(void *arg) { return rounds(arg); }
TEST_T(sync_stress, everything_at_once_without_spinning, 240) {
    for (int w = 1; w <= 4; w *= 2) {
        weft_config cfg = {.workers = w, .search = -1};
        CHECK_EQ(weft_run(rounds_strict, NULL, &cfg), 0);
    }
}

/* ---- producers and consumers: a bounded buffer of a mutex and two condition variables ---- */

enum { ROOM = 4, MAKERS = 6, EATERS = 6 };

static struct buffer {
    weft_mutex m;
    weft_cond has_item, has_room;
    int item[ROOM], n; /* under m */
    int made, eaten;   /* likewise */
    int most;
    long long sum_made, sum_eaten; /* under m */
} buf;

/* A wait that may fail; the loop around it looks again. */
static void wait_some(weft_cond *c, uint64_t *rnd) {
    int rc = weft_cond_wait(c, &buf.m, test_below(rnd, 4) ? WEFT_FOREVER : weft_after((int64_t)test_below(rnd, 50) * WEFT_US));
    CHECK(may_be(rc));
}

static int make(void *arg) {
    uint64_t rnd = actor_seed(test_seed(), (int)(intptr_t)arg);
    for (;;) {
        weft_mutex_lock(&buf.m);
        while (buf.n == ROOM && buf.made < buf.most) wait_some(&buf.has_room, &rnd);
        bool over = buf.made == buf.most;
        if (!over) {
            buf.sum_made += buf.made;
            buf.item[buf.n++] = buf.made++;
        }
        over ? weft_cond_broadcast(&buf.has_item) : weft_cond_signal(&buf.has_item);
        if (over) weft_cond_broadcast(&buf.has_room);
        weft_mutex_unlock(&buf.m);
        if (over) return 0;
    }
}
static int eat(void *arg) {
    uint64_t rnd = actor_seed(test_seed(), 100 + (int)(intptr_t)arg);
    for (;;) {
        weft_mutex_lock(&buf.m);
        while (buf.n == 0 && buf.eaten < buf.most) wait_some(&buf.has_item, &rnd);
        bool over = buf.n == 0;
        if (!over) {
            buf.sum_eaten += buf.item[--buf.n];
            if (++buf.eaten == buf.most) weft_cond_broadcast(&buf.has_item);
        }
        weft_mutex_unlock(&buf.m);
        weft_cond_signal(&buf.has_room);
        if (over) return 0;
    }
}
static void *make_thread(void *arg) {
    make(arg);
    return NULL;
}
static void *eat_thread(void *arg) {
    eat(arg);
    return NULL;
}
static int produce_and_consume(void *arg) {
    (void)arg;
    weft_scope s;
    pthread_t t[4];
    memset(&buf, 0, sizeof buf);
    buf.most = (int)test_scale(20000, 500);
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 4; i++) CHECK_EQ(pthread_create(&t[i], NULL, i % 2 ? make_thread : eat_thread, as_arg(50 + i)), 0);
    for (int i = 0; i < MAKERS; i++) CHECK_EQ(weft_spawn(&s, make, as_arg(i)), 0);
    for (int i = 0; i < EATERS; i++) CHECK_EQ(weft_spawn(&s, eat, as_arg(i)), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
    CHECK_EQ(buf.eaten, buf.most);
    CHECK_EQ(buf.sum_made, buf.sum_eaten);
    return 0;
}
TEST_T(sync_stress, producers_and_consumers_lose_nothing, 240) {
    for (int w = 1; w <= 8; w *= 2) CHECK_EQ(run_on(w, produce_and_consume, NULL), 0);
}

/* ---- fairness ---- */

enum { CONTENDERS = 8 };
static weft_mutex fair;
static long turns; /* under fair */
static atomic_long called, most_overtaken;
static atomic_int over;

static void keep_max(atomic_long *at, long v) {
    long old = atomic_load(at);
    while (v > old && !atomic_compare_exchange_weak(at, &old, v)) continue;
}

/* On one thread, so that all is counted and nothing timed: how many turns the others had while one waited. */
static int take_turns(void *n) {
    for (long i = *(long *)n; i > 0; i--) {
        long before = atomic_load(&called);
        weft_mutex_lock(&fair);
        keep_max(&most_overtaken, turns++ - before);
        atomic_store(&called, turns);
        weft_mutex_unlock(&fair);
    }
    return 0;
}
static int in_turn(void *n) {
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < CONTENDERS; i++) CHECK_EQ(weft_spawn(&s, take_turns, n), 0);
    return weft_scope_end(&s);
}
TEST_T(sync_stress, nobody_is_overtaken_more_often_than_the_others_have_turns, 120) {
    long n = test_scale(200000, 20000);
    CHECK_EQ(weft_run(in_turn, &n, &alone), 0);
    CHECK_EQ(turns, CONTENDERS * n);
    CHECK_LE(atomic_load(&most_overtaken), CONTENDERS * WEFT_SYNC_TURN);
}

/* Seven that never have enough, tasks and a plain thread; one that wants a number of turns, and holds the mutex across a yield. */
static int never_enough(void *arg) {
    (void)arg;
    while (!atomic_load(&over)) {
        weft_mutex_lock(&fair);
        turns++;
        weft_mutex_unlock(&fair);
    }
    return 0;
}
static void *never_enough_thread(void *arg) {
    never_enough(arg);
    return NULL;
}
static int modest(void *arg) {
    for (long i = *(long *)arg; i > 0; i--) {
        weft_mutex_lock(&fair);
        long before = turns++;
        weft_yield();
        CHECK_EQ(turns, before + 1);
        weft_mutex_unlock(&fair);
    }
    atomic_store(&over, 1);
    return 0;
}
static int one_among_greedy(void *n) {
    weft_scope s;
    pthread_t t;
    atomic_store(&over, 0);
    weft_scope_begin(&s, NULL);
    CHECK_EQ(pthread_create(&t, NULL, never_enough_thread, NULL), 0);
    for (int i = 0; i < CONTENDERS - 2; i++) CHECK_EQ(weft_spawn(&s, never_enough, NULL), 0);
    CHECK_EQ(weft_spawn(&s, modest, n), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    pthread_join(t, NULL);
    return 0;
}
TEST_T(sync_stress, one_among_seven_that_never_have_enough_gets_its_turns, 240) {
    long n = test_scale(100, 10);
    for (int w = 1; w <= 8; w *= 2) CHECK_EQ(run_on(w, one_among_greedy, &n), 0);
}
