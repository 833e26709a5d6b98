/* SPDX-License-Identifier: MIT */
/* Every kind of lock under the same questions: what ends a wait for it, and what does not. */
#include "common.h"

static weft_mutex m;
static weft_rwlock rw;
static weft_cond c;
static weft_sem sem;
static weft_waitgroup group;
static weft_barrier barrier;
static bool signalled; /* under m */
static atomic_int here, done, result;

/* How it is made to wait, waited for, served, and what is left to be done by whoever has waited with success. */
struct kind {
    const char *name;
    void (*close)(void);
    int (*wait)(weft_deadline d);
    void (*serve)(void);
};

static void mutex_close(void) { weft_mutex_lock(&m); }
static int mutex_wait(weft_deadline d) {
    int rc = weft_mutex_lock_until(&m, d);
    if (!rc) weft_mutex_unlock(&m);
    return rc;
}
static void mutex_serve(void) { weft_mutex_unlock(&m); }

static void read_close(void) { weft_rwlock_wrlock(&rw); }
static int read_wait(weft_deadline d) {
    int rc = weft_rwlock_rdlock_until(&rw, d);
    if (!rc) weft_rwlock_rdunlock(&rw);
    return rc;
}
static void rw_serve(void) { weft_rwlock_unlock(&rw); }

static void write_close(void) { weft_rwlock_rdlock(&rw); }
static int write_wait(weft_deadline d) {
    int rc = weft_rwlock_wrlock_until(&rw, d);
    if (!rc) weft_rwlock_wrunlock(&rw);
    return rc;
}

static void cond_close(void) {
    weft_mutex_lock(&m);
    signalled = false;
    weft_mutex_unlock(&m);
}
static int cond_wait(weft_deadline d) {
    int rc = 0;
    weft_mutex_lock(&m);
    while (!signalled && !rc) rc = weft_cond_wait(&c, &m, d);
    weft_mutex_unlock(&m);
    return rc;
}
static void cond_serve(void) {
    weft_mutex_lock(&m);
    signalled = true;
    weft_mutex_unlock(&m);
    weft_cond_signal(&c);
}

static void sem_close(void) { weft_sem_init(&sem, 0); }
static int sem_wait_for(weft_deadline d) {
    int rc = weft_sem_acquire(&sem, d);
    if (!rc) weft_sem_release(&sem); /* for the next one */
    return rc;
}
static void sem_serve(void) { weft_sem_release(&sem); }

static void group_close(void) { weft_waitgroup_add(&group, 1); }
static int group_wait(weft_deadline d) { return weft_waitgroup_wait(&group, d); }
static void group_serve(void) { weft_waitgroup_done(&group); }

static void barrier_close(void) { weft_barrier_init(&barrier, 2); }
static int barrier_wait_for(weft_deadline d) {
    int rc = weft_barrier_wait(&barrier, d);
    return rc == 1 ? 0 : rc;
}
static void barrier_serve(void) { CHECK_GE(weft_barrier_wait(&barrier, WEFT_FOREVER), 0); }

static const struct kind kinds[] = {
    {"mutex", mutex_close, mutex_wait, mutex_serve},
    {"rwlock, to read", read_close, read_wait, rw_serve},
    {"rwlock, to write", write_close, write_wait, rw_serve},
    {"condition", cond_close, cond_wait, cond_serve},
    {"semaphore", sem_close, sem_wait_for, sem_serve},
    {"wait group", group_close, group_wait, group_serve},
    {"barrier", barrier_close, barrier_wait_for, barrier_serve},
};
#define EACH_KIND(k) for (const struct kind *k = kinds; k < kinds + COUNT(kinds); k++)

/* Nobody holds or awaits anything: otherwise these abort. */
static void reset(void) {
    weft_mutex_destroy(&m), weft_rwlock_destroy(&rw), weft_cond_destroy(&c), weft_sem_destroy(&sem);
    weft_waitgroup_destroy(&group), weft_barrier_destroy(&barrier);
    atomic_store(&here, 0), atomic_store(&done, 0), atomic_store(&result, 1);
}

static void note(int rc) {
    atomic_store(&result, rc);
    atomic_fetch_add(&done, 1);
}

/* ---- served ---- */

static int wait_for_it(void *kind) {
    const struct kind *k = kind;
    atomic_fetch_add(&here, 1);
    note(k->wait(WEFT_FOREVER));
    return 0;
}
static void *wait_for_it_thread(void *kind) {
    wait_for_it(kind);
    return NULL;
}
static int served(void *arg) {
    (void)arg;
    EACH_KIND(k) {
        weft_scope s;
        pthread_t t;
        reset();
        k->close();
        weft_scope_begin(&s, NULL);
        CHECK_EQ(weft_spawn(&s, wait_for_it, (void *)(uintptr_t)k), 0);
        task_wait_parked(&here, 1);
        CHECK_MSG(atomic_load(&done) == 0, "%s", k->name);
        k->serve();
        CHECK_EQ(weft_scope_end(&s), 0);
        CHECK_MSG(atomic_load(&result) == 0, "%s: %d", k->name, atomic_load(&result));
        reset();
        k->close();
        CHECK_EQ(pthread_create(&t, NULL, wait_for_it_thread, (void *)(uintptr_t)k), 0);
        task_wait_parked(&here, 1);
        k->serve();
        pthread_join(t, NULL);
        CHECK_MSG(atomic_load(&result) == 0, "%s: %d", k->name, atomic_load(&result));
    }
    return 0;
}
TEST(sync_waits, whoever_is_served_goes_on) { run_each(served); }

/* ---- deadlines ---- */

static int shortly(void *kind) {
    const struct kind *k = kind;
    note(k->wait(weft_after(WEFT_MS)));
    return 0;
}
static void *shortly_thread(void *kind) {
    shortly(kind);
    return NULL;
}
static int deadlines(void *arg) {
    (void)arg;
    EACH_KIND(k) {
        weft_scope s;
        pthread_t t;
        reset();
        k->close();
        weft_scope_begin(&s, NULL);
        CHECK_EQ(weft_spawn(&s, shortly, (void *)(uintptr_t)k), 0);
        CHECK_EQ(weft_scope_end(&s), 0);
        CHECK_MSG(atomic_load(&result) == WEFT_ETIMEDOUT, "%s: %d", k->name, atomic_load(&result));
        CHECK_EQ(pthread_create(&t, NULL, shortly_thread, (void *)(uintptr_t)k), 0);
        pthread_join(t, NULL);
        CHECK_MSG(atomic_load(&result) == WEFT_ETIMEDOUT, "%s: %d", k->name, atomic_load(&result));
        if (k->close != mutex_close && k->close != read_close) { /* we hold those: waiting for them ourselves is misuse */
            CHECK_MSG(k->wait(WEFT_POLL) == WEFT_EAGAIN, "%s", k->name);
            CHECK_MSG(k->wait(weft_at(1)) == WEFT_ETIMEDOUT, "%s", k->name);
        }
        weft_scope_begin(&s,
                         NULL); /* those who gave up have left nothing behind that would keep the next one from being served */
        CHECK_EQ(weft_spawn(&s, wait_for_it, (void *)(uintptr_t)k), 0);
        task_wait_parked(&here, 1);
        k->serve();
        CHECK_EQ(weft_scope_end(&s), 0);
        CHECK_MSG(atomic_load(&result) == 0, "%s: %d", k->name, atomic_load(&result));
    }
    return 0;
}
TEST(sync_waits, a_deadline_ends_each_and_leaves_nothing_behind) { run_each(deadlines); }

static int scope_deadlines(void *arg) {
    (void)arg;
    EACH_KIND(k) {
        weft_scope s;
        reset();
        k->close();
        weft_scope_begin(&s, &(weft_scope_opts){.deadline = weft_after(WEFT_MS)});
        int rc = weft_spawn(&s, wait_for_it, (void *)(uintptr_t)k); /* refused if the deadline has passed already */
        CHECK_EQ(weft_scope_end(&s), WEFT_ETIMEDOUT);
        if (!rc) CHECK_MSG(atomic_load(&result) == WEFT_ECANCELED, "%s: %d", k->name, atomic_load(&result));
        if (k->close == barrier_close) continue; /* nobody comes whom it could meet */
        k->serve();
    }
    return 0;
}
TEST(sync_waits, the_deadline_of_a_scope_ends_each) { run_each(scope_deadlines); }

/* ---- cancellation ---- */

static int cancelled(void *arg) {
    (void)arg;
    EACH_KIND(k) {
        weft_scope s;
        reset();
        k->close();
        if (k->close == barrier_close) CHECK_EQ(weft_barrier_init(&barrier, 4), 0); /* three are too few */
        weft_scope_begin(&s, NULL);
        for (int i = 0; i < 3; i++) CHECK_EQ(weft_spawn(&s, wait_for_it, (void *)(uintptr_t)k), 0);
        task_wait_parked(&here, 3);
        weft_scope_cancel(&s);
        task_wait(&done, 3);
        CHECK_MSG(atomic_load(&result) == WEFT_ECANCELED, "%s: %d", k->name, atomic_load(&result));
        CHECK_EQ(weft_scope_end(&s), 0);
        if (k->close != barrier_close) k->serve();
    }
    return 0;
}
TEST(sync_waits, cancellation_ends_each) { run_each(cancelled); }

/* In a shield it waits on; behind it, in the cancelled scope, it does not even look. */
static int wait_shielded(void *kind) {
    const struct kind *k = kind;
    CHECK_EQ(weft_shield_begin(WEFT_FOREVER), 0);
    atomic_fetch_add(&here, 1);
    int rc = k->wait(WEFT_FOREVER);
    weft_shield_end();
    if (k->wait == cond_wait) cond_close(); /* or there is nothing to wait for */
    CHECK_EQ(k->wait(WEFT_FOREVER), WEFT_ECANCELED);
    note(rc);
    return 0;
}
static int shielded(void *arg) {
    (void)arg;
    EACH_KIND(k) {
        weft_scope s;
        reset();
        k->close();
        weft_scope_begin(&s, NULL);
        CHECK_EQ(weft_spawn(&s, wait_shielded, (void *)(uintptr_t)k), 0);
        task_wait_parked(&here, 1);
        weft_scope_cancel(&s);
        for (int i = 0; i < 20; i++) weft_yield();
        CHECK_MSG(atomic_load(&done) == 0, "%s", k->name);
        if (k->close == barrier_close) CHECK_EQ(weft_shield_begin(WEFT_FOREVER), 0); /* we are in the scope too */
        k->serve();
        if (k->close == barrier_close) weft_shield_end();
        CHECK_EQ(weft_scope_end(&s), 0);
        CHECK_MSG(atomic_load(&result) == 0, "%s: %d", k->name, atomic_load(&result));
    }
    return 0;
}
TEST(sync_waits, a_shield_keeps_cancellation_from_each) { run_each(shielded); }

/* ---- a timer's function must not wait ---- */

static weft_once once;
static weft_timer timer;

static void lock_in_timer(void *arg) {
    (void)arg;
    weft_mutex_lock(&m);
    weft_mutex_unlock(&m);
    atomic_fetch_add(&done, 1);
}
static void read_in_timer(void *arg) {
    (void)arg;
    weft_rwlock_rdlock(&rw);
    weft_rwlock_rdunlock(&rw);
}
static void once_in_timer(void *arg) { (void)weft_once_run(&once, return_int, arg); }
static void kind_in_timer(void *kind) { (void)((const struct kind *)kind)->wait(WEFT_FOREVER); }

static int free_in_timer(void *arg) {
    (void)arg;
    reset();
    CHECK_EQ(weft_timer_start(&timer, weft_after(0), 0, lock_in_timer, NULL), 0);
    task_wait(&done, 1);
    weft_timer_stop_wait(&timer);
    return 0;
}
TEST(sync_waits, a_timers_function_may_take_what_is_free) { run_each(free_in_timer); }

static int yield_until_done(void *arg) {
    (void)arg;
    while (!atomic_load(&done)) weft_yield();
    return 0;
}
static int start_once(void *arg) { return weft_once_run(&once, yield_until_done, arg); }

struct timed {
    weft_timer_fn *fn;
    void *arg;
};
static int with_all_held(void *arg) {
    struct timed *t = arg;
    weft_mutex_lock(&m);
    weft_rwlock_wrlock(&rw);
    CHECK_EQ(weft_barrier_init(&barrier, 2), 0);
    weft_waitgroup_add(&group, 1);
    CHECK_EQ(weft_go(start_once, NULL), 0);
    for (int i = 0; i < 20; i++) weft_yield();
    if (t->arg == &kinds[3]) weft_mutex_unlock(&m); /* a condition is waited for with its mutex */
    if (t->arg == &kinds[2]) weft_rwlock_wrunlock(&rw), weft_rwlock_rdlock(&rw);
    CHECK_EQ(weft_timer_start(&timer, weft_after(0), 0, t->fn, t->arg), 0);
    return weft_sleep(WEFT_FOREVER);
}
static int run_with_all_held(void *arg) { return run_on(1, with_all_held, arg); }

TEST(sync_waits, a_timers_function_that_would_wait_is_told) {
    static const char sentence[] = "must not wait";
    CHECK_DIES_ARG(run_with_all_held, (&(struct timed){lock_in_timer, NULL}), sentence);
    CHECK_DIES_ARG(run_with_all_held, (&(struct timed){read_in_timer, NULL}), sentence);
    CHECK_DIES_ARG(run_with_all_held, (&(struct timed){once_in_timer, NULL}), sentence);
    if (test_slow_tools() >= 50) return; /* they are in other tests under valgrind */
    EACH_KIND(k) CHECK_DIES_ARG(run_with_all_held, (&(struct timed){kind_in_timer, (void *)(uintptr_t)k}), sentence);
}

/* ---- turns ---- */

static void lock_free_mutex(void) {
    weft_mutex_lock(&m);
    weft_mutex_unlock(&m);
}
static void try_free_mutex(void) {
    CHECK_EQ(weft_mutex_trylock(&m), 0);
    weft_mutex_unlock(&m);
}
static void read_free_rwlock(void) {
    weft_rwlock_rdlock(&rw);
    weft_rwlock_rdunlock(&rw);
}
static void take_free_unit(void) {
    CHECK_EQ(weft_sem_acquire(&sem, WEFT_FOREVER), 0);
    weft_sem_release(&sem);
}
static void wait_for_nothing(void) { CHECK_EQ(weft_waitgroup_wait(&group, WEFT_FOREVER), 0); }
static void (*const free_ones[])(void) = {lock_free_mutex, try_free_mutex, read_free_rwlock, take_free_unit, wait_for_nothing};

static int go_on_until_done(void *fn) {
    atomic_fetch_add(&here, 1);
    while (!atomic_load(&done)) (*(void (*const *)(void))fn)();
    return 0;
}
static int set_done(void *arg) {
    (void)arg;
    task_wait(&here, 1);
    atomic_store(&done, 1);
    return 0;
}
/* On one worker, whose slice never ends. */
static int step_back(void *arg) {
    (void)arg;
    for (size_t i = 0; i < COUNT(free_ones); i++) {
        weft_scope s;
        reset();
        weft_sem_init(&sem, 1);
        weft_scope_begin(&s, NULL);
        CHECK_EQ(weft_spawn(&s, set_done, NULL), 0);
        CHECK_EQ(weft_spawn(&s, go_on_until_done, (void *)(uintptr_t)&free_ones[i]), 0);
        CHECK_EQ(weft_scope_end(&s), 0);
    }
    return 0;
}
TEST(sync_waits, whoever_always_finds_it_free_lets_others_run) { CHECK_EQ(run_on(1, step_back, NULL), 0); }
