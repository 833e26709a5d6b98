/* SPDX-License-Identifier: MIT */
/* Threads of a program use the runtime in every way while it is started and stopped beside them: each call succeeds, or says that
 * there is no runtime; nothing hangs, and what was accepted is done. */
#include "api/common.h"

static atomic_int enough;
static atomic_long done, refused;

static bool none_runs(int rc) { return rc == WEFT_ETERMINATED || rc == WEFT_ECANCELED; }

static void count(int rc, int want) {
    CHECK_MSG(rc == want || none_runs(rc), "%d, not %d", rc, want);
    atomic_fetch_add(rc == want ? &done : &refused, 1);
}

struct call {
    int value;
    atomic_int runs;
};

static int run_once(void *arg) {
    struct call *c = arg;
    atomic_fetch_add(&c->runs, 1);
    if (c->value % 3 == 1) weft_yield();
    if (c->value % 3 == 2 && weft_sleep_for(20 * WEFT_US) != 0) return WEFT_ECANCELED;
    return c->value;
}

static void use_block_on(uint64_t *seed) {
    struct call c = {.value = (int)test_below(seed, 1000), .runs = 0};
    int rc = weft_block_on(run_once, &c);
    count(rc, c.value);
    CHECK_EQ(atomic_load(&c.runs), rc != WEFT_ETERMINATED && (rc == c.value || atomic_load(&c.runs))); /* once, or never */
}

static void use_scope(uint64_t *seed) {
    struct call c[4];
    weft_scope s;
    weft_scope_opts o = {.deadline = weft_after(HOUR), .on_error = WEFT_KEEP_GOING};
    int accepted = 0, ran = 0;
    weft_scope_begin(&s, test_below(seed, 2) ? &o : NULL);
    for (int i = 0; i < 4; i++) {
        c[i] = (struct call){.value = (int)test_below(seed, 1000), .runs = 0};
        accepted += weft_spawn(&s, run_once, &c[i]) == 0;
    }
    int rc = weft_scope_end(&s);
    for (int i = 0; i < 4; i++) ran += atomic_load(&c[i].runs);
    CHECK_EQ(ran, accepted);
    count(rc, 0);
}

static int echo(void *arg) {
    weft_chan **c = arg;
    int v;
    int rc = weft_chan_recv(c[0], &v, WEFT_FOREVER);
    if (rc == 0) rc = weft_chan_send(c[1], &v, WEFT_FOREVER);
    if (rc != 0) (void)weft_chan_close(c[1]); /* lets the thread go */
    return rc;
}

/* A thread and a task over channels, with deadlines and a select. */
static void use_channels(uint64_t *seed) {
    weft_chan *c[2] = {weft_chan_new(sizeof(int), 0), weft_chan_new(sizeof(int), 0)};
    weft_task *t = NULL;
    int v = (int)test_below(seed, 1000), back = -1, rc = weft_task_start(&t, echo, c, NULL);
    if (rc == 0) {
        bool open = true;
        while ((rc = weft_select(weft_after(100 * WEFT_US), weft_on_send(c[0], &v), weft_on_recv(c[1], &back, &open))) ==
               WEFT_ETIMEDOUT)
            continue;
        if (rc == 0) {
            while ((rc = weft_chan_recv(c[1], &back, weft_after(100 * WEFT_US))) == WEFT_ETIMEDOUT) continue;
            CHECK_MSG(rc == WEFT_ECLOSED || back == v, "%d: %d and %d", rc, back, v);
        }
        CHECK_EQ(weft_task_join(t, NULL, WEFT_FOREVER), 0);
        rc = rc == 0 ? 0 : WEFT_ECANCELED;
    }
    count(rc, 0);
    weft_chan_unref(c[0]);
    weft_chan_unref(c[1]);
}

static weft_mutex mutex;
static weft_rwlock rwlock;
static long locked, written; /* by those who hold them */

static int lock_both(void *arg) {
    (void)arg;
    weft_mutex_lock(&mutex);
    locked++;
    weft_mutex_unlock(&mutex);
    weft_rwlock_wrlock(&rwlock);
    written++;
    weft_rwlock_wrunlock(&rwlock);
    weft_yield();
    return 0;
}

/* Threads among themselves, and with a task: what spins and steps back is not asked of a runtime that is about to be another. */
static void use_locks(uint64_t *seed) {
    for (uint64_t i = test_below(seed, 50); i > 0; i--) CHECK_EQ(lock_both(NULL), 0);
    count(weft_block_on(lock_both, NULL), 0);
}

static void *use_all(void *arg) {
    uint64_t seed = test_random() + (uintptr_t)arg;
    while (!atomic_load(&enough)) {
        switch (test_below(&seed, 5)) {
        case 0:
            use_scope(&seed);
            break;
        case 1:
            use_channels(&seed);
            break;
        case 2:
            CHECK_EQ(weft_sleep_for(10 * WEFT_US), 0);
            break;
        case 3:
            use_locks(&seed);
            break;
        default:
            use_block_on(&seed);
            break;
        }
    }
    return NULL;
}

/* Two threads start and stop, so that these meet too. */
static void *start_and_stop(void *arg) {
    long cycles = *(long *)arg;
    uint64_t seed = test_random();
    for (long i = 0; i < cycles;) {
        int rc = set_up(1 + (int)test_below(&seed, 4));
        CHECK_MSG(rc == 0 || rc == WEFT_EALREADY, "%d", rc);
        i += rc == 0;
        CHECK_EQ(weft_sleep_for((int64_t)test_below(&seed, 1000) * WEFT_US), 0);
        do rc = weft_stop(test_below(&seed, 2) ? WEFT_FOREVER : weft_after(50 * WEFT_US));
        while (rc == WEFT_ETIMEDOUT);
        CHECK_MSG(rc == 0 || rc == WEFT_ETERMINATED, "%d", rc);
    }
    return NULL;
}

static void cycles(int starters) {
    pthread_t user[8], starter[2];
    long n = test_scale(300, 20) / starters;
    atomic_store(&enough, 0);
    (void)test_seed();
    for (size_t i = 0; i < COUNT(user); i++) CHECK_EQ(pthread_create(&user[i], NULL, use_all, as_arg((intptr_t)i)), 0);
    for (int i = 0; i < starters; i++) CHECK_EQ(pthread_create(&starter[i], NULL, start_and_stop, &n), 0);
    for (int i = 0; i < starters; i++) pthread_join(starter[i], NULL);
    atomic_store(&enough, 1);
    for (size_t i = 0; i < COUNT(user); i++) pthread_join(user[i], NULL);
    CHECK_EQ(weft_stop(WEFT_FOREVER), WEFT_ETERMINATED);
    printf("%ld done, %ld refused\n", atomic_load(&done), atomic_load(&refused));
    CHECK_GT(atomic_load(&done), 0);
}

TEST_T(embed_stress, threads_use_a_runtime_that_comes_and_goes, 120) { cycles(1); }
TEST_T(embed_stress, two_threads_start_and_stop_it, 120) { cycles(2); }

static void *only_block_on(void *arg) {
    uint64_t seed = test_random() + (uintptr_t)arg;
    for (long i = test_scale(2000, 100); i > 0; i--) use_block_on(&seed);
    return NULL;
}

TEST_T(embed_stress, thirty_two_threads_block_on_tasks_at_once, 120) {
    EACH_WORKERS(w) {
        pthread_t t[32];
        atomic_store(&refused, 0);
        CHECK_EQ(set_up(w), 0);
        for (size_t i = 0; i < COUNT(t); i++) CHECK_EQ(pthread_create(&t[i], NULL, only_block_on, as_arg((intptr_t)i)), 0);
        for (size_t i = 0; i < COUNT(t); i++) pthread_join(t[i], NULL);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
        CHECK_EQ(atomic_load(&refused), 0);
    }
}
