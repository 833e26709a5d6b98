/* SPDX-License-Identifier: MIT */
/* The mutex and the rwlock: who gets them, in which order, and what misuse is told. */
#include "common.h"
#include "time/clock.h"

static weft_mutex m;
static weft_rwlock rw;
static atomic_int here, in, order, results[64];
static long plain_count; /* under m */

static void reset(void) {
    weft_mutex_destroy(&m); /* aborts if a test left it locked */
    weft_rwlock_destroy(&rw);
    atomic_store(&here, 0), atomic_store(&in, 0), atomic_store(&order, 0);
    for (int i = 0; i < 64; i++) atomic_store(&results[i], 0);
    plain_count = 0;
}

/* ---- exclusion ---- */

enum { ROUNDS = 2000 };

static void count_up(int n) {
    for (int i = 0; i < n; i++) {
        weft_mutex_lock(&m);
        CHECK_EQ(atomic_fetch_add(&in, 1), 0);
        plain_count++;
        if (i % 64 == 0) weft_yield(); /* others come by while it is held */
        CHECK_EQ(atomic_fetch_sub(&in, 1), 1);
        weft_mutex_unlock(&m);
    }
}

static int counter(void *arg) {
    (void)arg;
    count_up(ROUNDS);
    return 0;
}
static void *counter_thread(void *arg) {
    counter(arg);
    return NULL;
}

static int tasks_and_threads(void *arg) {
    enum { TASKS = 6, THREADS = 2 };
    (void)arg;
    reset();
    pthread_t t[THREADS];
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < THREADS; i++) CHECK_EQ(pthread_create(&t[i], NULL, counter_thread, NULL), 0);
    for (int i = 0; i < TASKS; i++) CHECK_EQ(weft_spawn(&s, counter, NULL), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
    CHECK_EQ(plain_count, (TASKS + THREADS) * ROUNDS);
    return 0;
}
TEST(mutex, tasks_and_threads_exclude_each_other) { run_each(tasks_and_threads); }

TEST(mutex, threads_alone_need_no_runtime) {
    pthread_t t[4];
    for (int i = 0; i < 4; i++) CHECK_EQ(pthread_create(&t[i], NULL, counter_thread, NULL), 0);
    for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
    CHECK_EQ(plain_count, 4 * ROUNDS);
}

/* ---- order and hand-over ---- */

static int lock_in_turn(void *arg) {
    atomic_fetch_add(&here, 1);
    weft_mutex_lock(&m);
    atomic_store(&results[atomic_fetch_add(&order, 1)], (int)(intptr_t)arg);
    weft_mutex_unlock(&m);
    return 0;
}

static int first_come(void *arg) {
    (void)arg;
    weft_scope s;
    reset();
    weft_mutex_lock(&m);
    weft_scope_begin(&s, NULL);
    for (int i = 1; i <= 8; i++) {
        CHECK_EQ(weft_spawn(&s, lock_in_turn, as_arg(i)), 0);
        task_wait_parked(&here, i);
    }
    weft_mutex_unlock(&m);
    CHECK_EQ(weft_scope_end(&s), 0);
    for (int i = 1; i <= 8; i++) CHECK_EQ(atomic_load(&results[i - 1]), i);
    return 0;
}
TEST(mutex, waiters_come_in_the_order_of_arrival) { CHECK_EQ(run_on(1, first_come, NULL), 0); }

/* One worker, the clock stands still: a waiter that has waited for less than a millisecond is overtaken, one that has waited longer
 * is handed the mutex. */
static int overtaking(void *arg) {
    bool late = arg != NULL;
    weft_scope s;
    reset();
    weft_mutex_lock(&m);
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, lock_in_turn, as_arg(1)), 0);
    task_wait_parked(&here, 1);
    weft__clock_advance(late ? WEFT_MS : WEFT_MS - 1);
    weft_mutex_unlock(&m);
    CHECK_EQ(weft_mutex_trylock(&m), late ? WEFT_EAGAIN : 0); /* the waiter has not run yet */
    if (!late) {
        weft_yield(); /* it runs, finds the mutex taken, and waits again, in front */
        CHECK_EQ(atomic_load(&order), 0);
        weft__clock_advance(1);
        weft_mutex_unlock(&m);
        CHECK_EQ(weft_mutex_trylock(&m), WEFT_EAGAIN); /* the millisecond counts from its first arrival */
    }
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(atomic_load(&order), 1);
    return 0;
}
TEST(mutex, whoever_comes_by_may_overtake_for_a_millisecond) {
    weft__clock_fake(WEFT_SECOND);
    CHECK_EQ(run_on(1, overtaking, NULL), 0);
}
TEST(mutex, after_a_millisecond_it_is_handed_over) {
    weft__clock_fake(WEFT_SECOND);
    CHECK_EQ(run_on(1, overtaking, as_arg(1)), 0);
}

/* A task that finds the mutex free again and again steps back when its slice is over. */
static int lock_for_ever(void *arg) {
    (void)arg;
    while (!atomic_load(&in)) {
        weft_mutex_lock(&m);
        weft_mutex_unlock(&m);
    }
    return 0;
}
static int set_in(void *arg) {
    (void)arg;
    atomic_store(&in, 1);
    return 0;
}
static int loop_steps_back(void *arg) {
    (void)arg;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, set_in, NULL), 0);
    CHECK_EQ(weft_spawn(&s, lock_for_ever, NULL), 0);
    return weft_scope_end(&s);
}
TEST(mutex, a_loop_that_always_finds_it_free_lets_others_run) {
    weft_config cfg = {.workers = 1, .slice = WEFT_MS};
    CHECK_EQ(weft_run(loop_steps_back, NULL, &cfg), 0);
}

/* ---- deadlines and cancellation ---- */

static int try_until(void *arg) {
    (void)arg;
    reset();
    CHECK_EQ(weft_mutex_trylock(&m), 0);
    weft_mutex_unlock(&m);
    CHECK_EQ(weft_mutex_lock_until(&m, WEFT_POLL), 0);
    weft_mutex_unlock(&m);
    CHECK_EQ(weft_mutex_lock_until(&m, weft_at(1)), 0); /* a deadline in the past tries once */
    weft_mutex_unlock(&m);
    return 0;
}
TEST(mutex, a_free_one_is_had_at_once) { run_each(try_until); }

static int lock_until(void *arg) {
    weft_deadline d = arg == NULL ? WEFT_FOREVER : arg == as_arg(1) ? WEFT_POLL : weft_after((intptr_t)arg);
    atomic_fetch_add(&here, 1);
    int rc = weft_mutex_lock_until(&m, d);
    if (rc == 0) weft_mutex_unlock(&m);
    atomic_store(&results[0], rc);
    atomic_fetch_add(&order, 1);
    return 0;
}
static void *lock_until_thread(void *arg) {
    lock_until(arg);
    return NULL;
}
static int gives_up(void *arg) {
    (void)arg;
    static const int want[] = {WEFT_EAGAIN, WEFT_ETIMEDOUT};
    static const intptr_t how[] = {1, 2 * WEFT_MS};
    reset();
    weft_mutex_lock(&m);
    for (int i = 0; i < 4; i++) {
        weft_scope s;
        weft_scope_begin(&s, NULL);
        if (i < 2) {
            CHECK_EQ(weft_spawn(&s, lock_until, as_arg(how[i])), 0);
        } else {
            pthread_t t;
            CHECK_EQ(pthread_create(&t, NULL, lock_until_thread, as_arg(how[i % 2])), 0);
            pthread_detach(t);
        }
        task_wait(&order, i + 1);
        CHECK_EQ(atomic_load(&results[0]), want[i % 2]);
        CHECK_EQ(weft_scope_end(&s), 0);
    }
    weft_mutex_unlock(&m);
    return 0;
}
TEST(mutex, a_deadline_ends_the_wait) { run_each(gives_up); }

static int cancelled(void *arg) {
    (void)arg;
    reset();
    weft_mutex_lock(&m);
    weft_scope s;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, lock_until, NULL), 0);
    CHECK_EQ(weft_spawn(&s, lock_in_turn, as_arg(7)), 0);
    task_wait_parked(&here, 2);
    weft_scope_cancel(&s);
    CHECK_EQ(weft_mutex_lock_until(&m, WEFT_FOREVER), WEFT_ECANCELED); /* before it looks */
    task_wait(&order, 1);
    CHECK_EQ(atomic_load(&results[0]), WEFT_ECANCELED);
    for (int i = 0; i < 50; i++) weft_yield();
    CHECK_EQ(atomic_load(&order), 1); /* weft_mutex_lock goes on waiting */
    weft_mutex_unlock(&m);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(atomic_load(&results[1]), 7);
    return 0;
}
TEST(mutex, cancellation_ends_lock_until_and_not_lock) { run_each(cancelled); }

/* A waiter that was woken, was overtaken and gives up leaves nobody behind. */
static int woken_gives_up(void *arg) {
    (void)arg;
    reset();
    weft_scope s;
    weft_scope_begin(&s, NULL);
    weft_mutex_lock(&m);
    CHECK_EQ(weft_spawn(&s, lock_until, as_arg(10 * WEFT_US)), 0);
    task_wait_parked(&here, 1);
    CHECK_EQ(weft_spawn(&s, lock_in_turn, as_arg(7)), 0);
    task_wait_parked(&here, 2);
    weft_mutex_unlock(&m); /* wakes the first */
    CHECK_EQ(weft_mutex_trylock(&m), 0);
    weft__clock_advance(20 * WEFT_US);
    task_wait(&order, 1);
    CHECK_EQ(atomic_load(&results[0]), WEFT_ETIMEDOUT);
    weft_mutex_unlock(&m);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(atomic_load(&results[1]), 7);
    return 0;
}
TEST(mutex, a_woken_waiter_that_gives_up_leaves_nobody_behind) {
    weft__clock_fake(WEFT_SECOND);
    CHECK_EQ(run_on(1, woken_gives_up, NULL), 0);
}

/* The last to unlock frees it, as soon as it can; a wake-up that is still on its way must not touch it. */
struct shared {
    weft_mutex m;
    int users;
};
static int leave(struct shared *x) {
    bool last = --x->users == 0;
    weft_mutex_unlock(&x->m);
    if (last) {
        memset(x, 0xff, sizeof *x);
        free(x);
    }
    return 0;
}
static int share(void *arg) {
    struct shared *x = arg;
    if (weft_mutex_lock_until(&x->m, weft_after((int64_t)(test_random() % 30) * WEFT_US))) weft_mutex_lock(&x->m);
    return leave(x);
}
static void *share_thread(void *arg) {
    share(arg);
    return NULL;
}
static int freed_at_once(void *arg) {
    (void)arg;
    for (long i = 0; i < test_scale(3000, 100); i++) {
        struct shared *x = calloc(1, sizeof *x);
        weft_scope s;
        pthread_t t;
        bool thread = i % 16 == 0;
        x->users = 3 + thread;
        weft_scope_begin(&s, NULL);
        for (int k = 0; k < 3; k++) CHECK_EQ(weft_spawn(&s, share, x), 0);
        if (thread) CHECK_EQ(pthread_create(&t, NULL, share_thread, x), 0);
        CHECK_EQ(weft_scope_end(&s), 0);
        if (thread) pthread_join(t, NULL);
    }
    return 0;
}
TEST(mutex, whoever_unlocks_last_may_free_it) { run_each(freed_at_once); }

/* ---- misuse ---- */

static int unlock_it(void *arg) {
    (void)arg;
    weft_mutex_unlock(&m);
    return 0;
}
static int foreign(void *arg) {
    (void)arg;
    weft_scope s;
    weft_mutex_lock(&m);
    weft_scope_begin(&s, NULL);
    weft_spawn(&s, unlock_it, NULL);
    return weft_scope_end(&s);
}
static int lock_twice(void *arg) {
    (void)arg;
    weft_mutex_lock(&m);
    weft_mutex_lock(&m);
    return 0;
}
static int destroy_held(void *arg) {
    (void)arg;
    weft_mutex_lock(&m);
    weft_mutex_destroy(&m);
    return 0;
}
static int foreign_task(void *arg) { return weft_run(foreign, arg, NULL); }
static int lock_twice_task(void *arg) { return weft_run(lock_twice, arg, NULL); }

TEST(mutex, misuse_is_told) {
    CHECK_DIES(unlock_it, "weft_mutex_unlock: mutex 0x");
    CHECK_DIES(unlock_it, "is not locked (thread ");
    CHECK_DIES(foreign_task, "not by task ");
    CHECK_DIES(lock_twice, "which it holds already");
    CHECK_DIES(lock_twice_task, "weft_mutex_lock: task ");
    CHECK_DIES(destroy_held, "is destroyed while thread ");
    weft_mutex_destroy(NULL);
}

/* ---- rwlock ---- */

static atomic_int readers, writers;

static void read_once(void) {
    CHECK_EQ(atomic_load(&writers), 0);
    atomic_fetch_add(&readers, 1);
    weft_yield();
    CHECK_EQ(atomic_load(&writers), 0);
    atomic_fetch_sub(&readers, 1);
}
static void write_once(void) {
    CHECK_EQ(atomic_fetch_add(&writers, 1), 0);
    CHECK_EQ(atomic_load(&readers), 0);
    plain_count++;
    weft_yield();
    CHECK_EQ(atomic_load(&readers), 0);
    CHECK_EQ(atomic_fetch_sub(&writers, 1), 1);
}
static int reads_and_writes(void *arg) {
    (void)arg;
    for (int i = 0; i < 1000; i++) {
        if (i % 4 == 3) {
            weft_rwlock_wrlock(&rw);
            write_once();
            weft_rwlock_wrunlock(&rw);
        } else {
            weft_rwlock_rdlock(&rw);
            read_once();
            if (i % 2)
                weft_rwlock_rdunlock(&rw);
            else
                weft_rwlock_unlock(&rw);
        }
    }
    return 0;
}
static void *reads_and_writes_thread(void *arg) {
    reads_and_writes(arg);
    return NULL;
}
static int rw_mixed(void *arg) {
    (void)arg;
    reset();
    pthread_t t;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(pthread_create(&t, NULL, reads_and_writes_thread, NULL), 0);
    for (int i = 0; i < 5; i++) CHECK_EQ(weft_spawn(&s, reads_and_writes, NULL), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    pthread_join(t, NULL);
    CHECK_EQ(plain_count, 6 * 250);
    return 0;
}
TEST(rwlock, writers_are_alone_and_readers_are_not_disturbed) { run_each(rw_mixed); }

static int read_in_turn(void *arg) {
    (void)arg;
    atomic_fetch_add(&here, 1);
    weft_rwlock_rdlock(&rw);
    atomic_fetch_add(&in, 1);
    atomic_store(&results[atomic_fetch_add(&order, 1)], 'r');
    weft_rwlock_rdunlock(&rw);
    return 0;
}
static int write_in_turn(void *arg) {
    atomic_fetch_add(&here, 1);
    int rc = arg ? weft_rwlock_wrlock_until(&rw, weft_after((intptr_t)arg)) : (weft_rwlock_wrlock(&rw), 0);
    atomic_store(&results[atomic_fetch_add(&order, 1)], rc ? 't' : 'w');
    if (!rc) weft_rwlock_wrunlock(&rw);
    return 0;
}
static int writers_first(void *arg) {
    (void)arg;
    weft_scope s;
    reset();
    weft_rwlock_rdlock(&rw);
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, write_in_turn, NULL), 0);
    task_wait_parked(&here, 1);
    for (int i = 0; i < 2; i++) CHECK_EQ(weft_spawn(&s, read_in_turn, NULL), 0);
    task_wait_parked(&here, 3);
    CHECK_EQ(weft_rwlock_tryrdlock(&rw), WEFT_EAGAIN); /* a writer waits: readers do not pass it */
    CHECK_EQ(weft_rwlock_trywrlock(&rw), WEFT_EAGAIN);
    CHECK_EQ(atomic_load(&order), 0);
    weft_rwlock_rdunlock(&rw);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(atomic_load(&results[0]), 'w');
    return 0;
}
TEST(rwlock, a_waiting_writer_holds_later_readers_back) { CHECK_EQ(run_on(1, writers_first, NULL), 0); }

static int writer_gives_up(void *arg) {
    (void)arg;
    weft_scope s;
    reset();
    weft_rwlock_rdlock(&rw);
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, write_in_turn, as_arg(5 * WEFT_MS)), 0);
    task_wait_parked(&here, 1);
    CHECK_EQ(weft_spawn(&s, read_in_turn, NULL), 0);
    task_wait(&order, 2); /* while we still read */
    CHECK_EQ(weft_rwlock_rdlock_until(&rw, WEFT_POLL), 0);
    weft_rwlock_rdunlock(&rw);
    weft_rwlock_rdunlock(&rw);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(atomic_load(&results[0]) + atomic_load(&results[1]), 't' + 'r');
    weft_rwlock_wrlock(&rw);
    CHECK_EQ(weft_rwlock_rdlock_until(&rw, WEFT_POLL), WEFT_EAGAIN);
    weft_rwlock_wrunlock(&rw);
    return 0;
}
TEST(rwlock, a_writer_that_gives_up_lets_the_readers_behind_it_in) { run_each(writer_gives_up); }

static int rd_unlocked(void *arg) {
    (void)arg;
    weft_rwlock_rdunlock(&rw);
    return 0;
}
static int wr_unlocked(void *arg) {
    (void)arg;
    weft_rwlock_rdlock(&rw);
    weft_rwlock_wrunlock(&rw);
    return 0;
}
static int wr_twice(void *arg) {
    (void)arg;
    weft_rwlock_wrlock(&rw);
    weft_rwlock_rdlock(&rw);
    return 0;
}
static int rw_destroyed(void *arg) {
    (void)arg;
    weft_rwlock_rdlock(&rw);
    weft_rwlock_destroy(&rw);
    return 0;
}
TEST(rwlock, misuse_is_told) {
    CHECK_DIES(rd_unlocked, "nobody holds rwlock 0x");
    CHECK_DIES(wr_unlocked, "is held to write by nobody, not by thread ");
    CHECK_DIES(wr_twice, "which it holds already, to write");
    CHECK_DIES(rw_destroyed, "is destroyed while a reader holds it");
    weft_rwlock_destroy(NULL);
}
