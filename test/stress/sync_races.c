/* SPDX-License-Identifier: MIT */
/* Locks whose waiters are served, time out and are cancelled at the same moment. What was given away is with exactly one of those who say that they
 * have it; a signal or unit that is lost leaves somebody waiting for ever, and the test's time-out tells. */
#include "stress/actor.h"

enum { TASKS = 8, THREADS = 2 };

static uint64_t seed;
static weft_deadline soon(uint64_t *rnd) { return weft_after((int64_t)test_below(rnd, 30) * WEFT_US); }
static void step(uint64_t *rnd) {
    if (test_below(rnd, 4) == 0) let_others();
}

struct thread_call {
    weft_fn *fn;
    void *arg;
};
static void *call(void *arg) {
    struct thread_call *t = arg;
    CHECK_EQ(t->fn(t->arg), 0);
    return NULL;
}

/* `patient` runs in tasks and threads; `hasty` in tasks of a scope that is cancelled in the middle, again and again until the others are done. */
static atomic_int patient_left;
static int count_down(weft_fn *fn, void *arg) {
    int rc = fn(arg);
    atomic_fetch_sub(&patient_left, 1);
    return rc;
}
static weft_fn *patient_fn;
static int patient_task(void *arg) { return count_down(patient_fn, arg); }

static void mix(weft_fn *patient, weft_fn *hasty, weft_fn *beside) {
    weft_scope s;
    pthread_t t[THREADS];
    struct thread_call c[THREADS];
    seed = test_random();
    patient_fn = patient;
    atomic_store(&patient_left, TASKS + THREADS);
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < THREADS; i++) {
        c[i] = (struct thread_call){patient_task, as_arg(100 + i)};
        CHECK_EQ(pthread_create(&t[i], NULL, call, &c[i]), 0);
    }
    for (int i = 0; i < TASKS; i++) CHECK_EQ(weft_spawn(&s, patient_task, as_arg(200 + i)), 0);
    if (beside) CHECK_EQ(weft_spawn(&s, beside, NULL), 0);
    for (int life = 0; atomic_load(&patient_left) > 0; life++) {
        weft_scope doomed;
        weft_scope_begin(&doomed, NULL);
        for (int i = 0; i < 4; i++) CHECK_EQ(weft_spawn(&doomed, hasty, as_arg(1000 + life * 4 + i)), 0);
        for (int i = life % 7; i > 0; i--) weft_yield();
        weft_scope_cancel(&doomed);
        CHECK_EQ(weft_scope_end(&doomed), 0);
    }
    CHECK_EQ(weft_scope_end(&s), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
}

static bool given_up(int rc) { return rc == WEFT_ETIMEDOUT || rc == WEFT_ECANCELED; }

static void on_one_to_eight(weft_fn *fn) {
    for (int w = 1; w <= 8; w = w == 3 ? 8 : w + 1) CHECK_EQ(run_on(w, fn, NULL), 0);
}

/* ---- condition: each token is followed by one signal, which must not go to somebody who gives up ---- */

static struct {
    weft_mutex m;
    weft_cond c;
    long tokens; /* under m */
} pool;

static long wanted(void) { return test_scale(5000, 60); }

static int want_tokens(void *arg) {
    (void)arg;
    for (long i = wanted(); i > 0; i--) {
        weft_mutex_lock(&pool.m);
        while (pool.tokens == 0) CHECK_EQ(weft_cond_wait(&pool.c, &pool.m, WEFT_FOREVER), 0);
        pool.tokens--;
        weft_mutex_unlock(&pool.m);
    }
    return 0;
}
static int want_one_soon(void *arg) {
    uint64_t rnd = actor_seed(seed, (int)(intptr_t)arg);
    int rc = 0;
    weft_mutex_lock(&pool.m);
    while (pool.tokens == 0 && !rc) rc = weft_cond_wait(&pool.c, &pool.m, test_below(&rnd, 2) ? soon(&rnd) : WEFT_FOREVER);
    CHECK(rc == 0 || given_up(rc));
    weft_mutex_unlock(&pool.m);
    if (!rc) weft_cond_signal(&pool.c); /* it leaves the token to somebody else, and the signal that may have come with it */
    return 0;
}
static int give_tokens(void *arg) {
    uint64_t rnd = actor_seed(seed, 1);
    (void)arg;
    for (long i = wanted() * (TASKS + THREADS); i > 0; i--) {
        weft_mutex_lock(&pool.m);
        pool.tokens++;
        if (test_below(&rnd, 2))
            weft_cond_signal(&pool.c), weft_mutex_unlock(&pool.m);
        else
            weft_mutex_unlock(&pool.m), weft_cond_signal(&pool.c);
        step(&rnd);
    }
    return 0;
}
static int signals(void *arg) {
    (void)arg;
    mix(want_tokens, want_one_soon, give_tokens);
    CHECK_EQ(pool.tokens, 0);
    weft_cond_destroy(&pool.c);
    return 0;
}
TEST_T(sync_races, no_signal_goes_to_one_who_gives_up, 240) { on_one_to_eight(signals); }

/* ---- condition: a broadcast reaches all who wait, whatever else happens ---- */

static struct {
    weft_mutex m;
    weft_cond c;
    long generation; /* under m */
} crowd;

static int follow(void *arg) {
    (void)arg;
    weft_mutex_lock(&crowd.m);
    for (long i = wanted() / 4; i > 0; i--) {
        long seen = crowd.generation;
        while (crowd.generation == seen) CHECK_EQ(weft_cond_wait(&crowd.c, &crowd.m, WEFT_FOREVER), 0);
    }
    weft_mutex_unlock(&crowd.m);
    return 0;
}
static int follow_soon(void *arg) {
    uint64_t rnd = actor_seed(seed, (int)(intptr_t)arg);
    weft_mutex_lock(&crowd.m);
    int rc = weft_cond_wait(&crowd.c, &crowd.m, soon(&rnd));
    CHECK(rc == 0 || given_up(rc));
    weft_mutex_unlock(&crowd.m);
    return 0;
}
static int lead(void *arg) {
    uint64_t rnd = actor_seed(seed, 2);
    (void)arg;
    while (atomic_load(&patient_left) > 0) {
        weft_mutex_lock(&crowd.m);
        crowd.generation++;
        weft_mutex_unlock(&crowd.m);
        weft_cond_broadcast(&crowd.c);
        step(&rnd);
        weft_yield();
    }
    return 0;
}
static int broadcasts(void *arg) {
    (void)arg;
    mix(follow, follow_soon, lead);
    weft_cond_destroy(&crowd.c);
    return 0;
}
TEST_T(sync_races, a_broadcast_reaches_all, 240) { on_one_to_eight(broadcasts); }

/* ---- semaphore: as many units are taken as were given ---- */

static weft_sem sem;
static atomic_long taken, given;

static int take_units(void *arg) {
    (void)arg;
    for (long i = wanted(); i > 0; i--) {
        CHECK_EQ(weft_sem_acquire(&sem, WEFT_FOREVER), 0);
        atomic_fetch_add(&taken, 1);
    }
    return 0;
}
static int take_one_soon(void *arg) {
    uint64_t rnd = actor_seed(seed, (int)(intptr_t)arg);
    int rc = weft_sem_acquire(&sem, soon(&rnd));
    CHECK(rc == 0 || given_up(rc));
    if (rc == 0) weft_sem_release(&sem);
    return 0;
}
static int give_units(void *arg) {
    uint64_t rnd = actor_seed(seed, 3);
    (void)arg;
    for (long left = wanted() * (TASKS + THREADS); left > 0;) {
        long n = (long)test_below(&rnd, 4);
        if (n > left) n = left;
        weft_sem_release_n(&sem, (uint32_t)n);
        atomic_fetch_add(&given, n);
        left -= n;
        step(&rnd);
    }
    return 0;
}
static int units(void *arg) {
    (void)arg;
    atomic_store(&taken, 0), atomic_store(&given, 0);
    mix(take_units, take_one_soon, give_units);
    CHECK_EQ(atomic_load(&taken), atomic_load(&given));
    CHECK_EQ(weft_sem_try(&sem), WEFT_EAGAIN);
    weft_sem_destroy(&sem);
    return 0;
}
TEST_T(sync_races, as_many_units_are_taken_as_were_given, 240) { on_one_to_eight(units); }

/* ---- rwlock: a writer that gives up holds nobody back; readers and writers exclude each other ---- */

static weft_rwlock rw;
static long written; /* under rw */

/* It is in the order of arrival, so each turn of a plain thread takes the kernel's time to wake one. */
static int read_and_write(void *arg) {
    uint64_t rnd = actor_seed(seed, (int)(intptr_t)arg);
    for (long i = wanted() / 16; i > 0; i--) {
        bool writes = test_below(&rnd, 8) == 0;
        writes ? weft_rwlock_wrlock(&rw) : weft_rwlock_rdlock(&rw);
        long before = written;
        if (writes) written++;
        step(&rnd);
        CHECK_EQ(written, before + writes);
        weft_rwlock_unlock(&rw);
    }
    return 0;
}
static int write_soon(void *arg) {
    uint64_t rnd = actor_seed(seed, (int)(intptr_t)arg);
    bool writes = test_below(&rnd, 4) != 0;
    int rc = writes ? weft_rwlock_wrlock_until(&rw, soon(&rnd)) : weft_rwlock_rdlock_until(&rw, soon(&rnd));
    CHECK(rc == 0 || given_up(rc));
    if (rc) return 0;
    if (writes) written++;
    weft_rwlock_unlock(&rw);
    return 0;
}
static int reads_and_writes(void *arg) {
    (void)arg;
    mix(read_and_write, write_soon, NULL);
    weft_rwlock_destroy(&rw);
    return 0;
}
TEST_T(sync_races, a_writer_that_gives_up_holds_nobody_back, 240) { on_one_to_eight(reads_and_writes); }

/* ---- barrier: one of each meeting is the last, and nobody who left is counted ---- */

enum { PARTIES = 5 };
static weft_barrier barrier;
static atomic_long met, last;

static int meet_for_a_while(void *arg) {
    uint64_t rnd = actor_seed(seed, (int)(intptr_t)arg);
    for (long i = wanted() / 2; i > 0; i--) {
        int rc = weft_barrier_wait(&barrier, soon(&rnd));
        CHECK(rc == 0 || rc == 1 || rc == WEFT_ETIMEDOUT);
        if (rc < 0) continue;
        atomic_fetch_add(&met, 1);
        atomic_fetch_add(&last, rc);
    }
    return 0;
}
static int meet_soon(void *arg) {
    uint64_t rnd = actor_seed(seed, (int)(intptr_t)arg);
    int rc = weft_barrier_wait(&barrier, test_below(&rnd, 2) ? soon(&rnd) : WEFT_FOREVER);
    CHECK(rc == 0 || rc == 1 || given_up(rc));
    if (rc < 0) return 0;
    atomic_fetch_add(&met, 1);
    atomic_fetch_add(&last, rc);
    return 0;
}
static int meetings(void *arg) {
    (void)arg;
    atomic_store(&met, 0), atomic_store(&last, 0);
    CHECK_EQ(weft_barrier_init(&barrier, PARTIES), 0);
    mix(meet_for_a_while, meet_soon, NULL);
    CHECK_EQ(atomic_load(&met), PARTIES * atomic_load(&last));
    weft_barrier_destroy(&barrier);
    return 0;
}
TEST_T(sync_races, a_meeting_has_all_its_parties, 240) { on_one_to_eight(meetings); }

/* ---- wait group: who has waited with success sees that all is done; the group goes at once ---- */

struct job {
    weft_waitgroup g;
    atomic_int users;
    int done[3]; /* plain: the group orders them */
};
static void leave(struct job *j) {
    if (atomic_fetch_sub(&j->users, 1) == 1) free(j);
}
struct part {
    struct job *job;
    int which;
};
static int do_part(void *arg) {
    struct part *p = arg;
    p->job->done[p->which] = 1;
    weft_waitgroup_done(&p->job->g);
    leave(p->job);
    return 0;
}
static int wait_soon(void *arg) {
    struct job *j = arg;
    uint64_t rnd = actor_seed(seed, (int)(uintptr_t)j);
    int rc = weft_waitgroup_wait(&j->g, soon(&rnd));
    CHECK(rc == 0 || given_up(rc));
    if (!rc)
        for (int i = 0; i < 3; i++) CHECK_EQ(j->done[i], 1);
    leave(j);
    return 0;
}
static int one_job(void) {
    struct job *j = calloc(1, sizeof *j);
    struct part part[3];
    weft_scope s, doomed;
    atomic_store(&j->users, 6);
    weft_waitgroup_add(&j->g, 3);
    weft_scope_begin(&s, NULL);
    weft_scope_begin(&doomed, NULL);
    for (int i = 0; i < 2; i++) CHECK_EQ(weft_spawn(&doomed, wait_soon, j), 0);
    for (int i = 0; i < 3; i++) {
        part[i] = (struct part){j, i};
        CHECK_EQ(weft_spawn(&s, do_part, &part[i]), 0);
    }
    weft_scope_cancel(&doomed);
    CHECK_EQ(weft_scope_end(&doomed), 0);
    CHECK_EQ(weft_waitgroup_wait(&j->g, WEFT_FOREVER), 0);
    for (int i = 0; i < 3; i++) CHECK_EQ(j->done[i], 1);
    leave(j);
    return weft_scope_end(&s);
}
static int jobs(void *arg) {
    (void)arg;
    seed = test_random();
    for (long i = wanted(); i > 0; i--) CHECK_EQ(one_job(), 0);
    return 0;
}
TEST_T(sync_races, whoever_has_waited_for_a_group_sees_all_of_it, 240) { on_one_to_eight(jobs); }
