/* SPDX-License-Identifier: MIT */
/* weft_timer_stop_wait against functions that start their timer again: when it has returned, the timer is not armed. */
#include "api/fake.h"

struct again {
    weft_timer t;
    atomic_int entered, stopping, left;
    int refused; /* what starts gave while another task was in weft_timer_stop_wait */
};

static void count(void *arg) { atomic_fetch_add((atomic_int *)arg, 1); }

/* Starts its timer when another task is in weft_timer_stop_wait: for certain with one worker, else likely. */
static void start_late(void *arg) {
    struct again *a = arg;
    atomic_store(&a->entered, 1);
    while (!atomic_load(&a->stopping)) weft_yield();
    for (int i = 0; i < 20; i++) weft_yield();
    a->refused = weft_timer_start(&a->t, weft_after(0), WEFT_MS, start_late, a);
    atomic_store(&a->left, 1);
}

static void stop_it(struct again *a) {
    atomic_store(&a->stopping, 1);
    int armed = weft_timer_stop_wait(&a->t);
    CHECK_EQ(atomic_load(&a->left), 1);
    CHECK_EQ(weft_timer_stop(&a->t), 0);                               /* not armed */
    CHECK(a->refused == WEFT_ECANCELED || (a->refused == 0 && armed)); /* or the start was the first */
}

static void usable_afterwards(weft_timer *t) {
    atomic_int n = 0;
    CHECK_EQ(weft_timer_start(t, weft_after(0), 0, count, &n), 0);
    task_wait(&n, 1);
    CHECK_EQ(weft_timer_stop_wait(t), 0);
}

static int restart_refused(void *arg) {
    (void)arg;
    struct again a = {.t = {{0}}};
    CHECK_EQ(weft_timer_start(&a.t, weft_after(0), 0, start_late, &a), 0);
    task_wait(&a.entered, 1);
    stop_it(&a);
    usable_afterwards(&a.t);
    return 0;
}

static int restart_refused_for_certain(void *arg) {
    struct again a = {.t = {{0}}};
    (void)arg;
    CHECK_EQ(weft_timer_start(&a.t, weft_after(0), WEFT_MS, start_late, &a), 0);
    task_wait(&a.entered, 1);
    stop_it(&a);
    CHECK_EQ(a.refused, WEFT_ECANCELED);
    return 0;
}

TEST(timer_stop, a_start_by_the_function_is_refused_once_the_stop_has_begun) {
    run_fake_alone(restart_refused_for_certain);
    run_fake(restart_refused);
}

static void *stop_as_thread(void *arg) {
    stop_it(arg);
    return NULL;
}

TEST(timer_stop, plain_threads_stop_timers_that_start_again) {
    EACH_WORKERS(w) {
        struct again a = {.t = {{0}}};
        pthread_t p;
        CHECK_EQ(set_up(w), 0);
        CHECK_EQ(weft_timer_start(&a.t, weft_after(0), 0, start_late, &a), 0);
        thread_wait(&a.entered, 1);
        CHECK_EQ(pthread_create(&p, NULL, stop_as_thread, &a), 0);
        CHECK_EQ(pthread_join(p, NULL), 0);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    }
}

/* ---- starts by others ---- */

struct held {
    weft_timer t;
    atomic_int entered, may_go;
};

static void hold(void *arg) {
    struct held *h = arg;
    atomic_fetch_add(&h->entered, 1);
    while (!atomic_load(&h->may_go)) weft_yield();
}

static int wait_stopped(void *arg) {
    struct held *h = arg;
    return weft_timer_stop_wait(&h->t);
}

/* Alone: the stopper waits when the yields are over. */
static int others_start_it(void *arg) {
    (void)arg;
    struct held h = {.t = {{0}}};
    atomic_int n = 0;
    weft_scope s;
    CHECK_EQ(weft_timer_start(&h.t, weft_after(0), 0, hold, &h), 0);
    task_wait(&h.entered, 1);
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawnf(&s, wait_stopped, &h, "stopper"), 0); /* with a name it has a stack of its own */
    let_others_run();
    CHECK_EQ(weft_timer_start(&h.t, weft_after(HOUR), 0, count, &n), 0);
    atomic_store(&h.may_go, 1);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(weft_timer_stop(&h.t), 1); /* armed, as asked for */
    usable_afterwards(&h.t);
    return 0;
}

TEST(timer_stop, a_start_by_another_task_counts_although_a_stop_waits) { run_fake_alone(others_start_it); }

/* ---- from inside ---- */

static void stop_and_start(void *arg) {
    struct again *a = arg;
    if (atomic_fetch_add(&a->entered, 1)) return;
    CHECK_EQ(weft_timer_stop_wait(&a->t), 0); /* does not wait, and is over when it returns */
    CHECK_EQ(weft_timer_start(&a->t, weft_after(0), 0, stop_and_start, a), 0);
}

static int stop_inside(void *arg) {
    (void)arg;
    struct again a = {.t = {{0}}};
    CHECK_EQ(weft_timer_start(&a.t, weft_after(0), WEFT_MS, stop_and_start, &a), 0);
    task_wait(&a.entered, 2);
    CHECK_EQ(weft_timer_stop_wait(&a.t), 0);
    return 0;
}

TEST(timer_stop, a_function_that_has_stopped_its_timer_may_start_it) { run_fake(stop_inside); }

/* ---- races ---- */

struct restless {
    weft_timer t;
    atomic_long calls;
};

static void start_at_once(void *arg) {
    struct restless *r = arg;
    atomic_fetch_add(&r->calls, 1);
    for (int i = 0; i < 5; i++) weft_yield(); /* a stopper may come */
    int err = weft_timer_start(&r->t, weft_after(0), 0, start_at_once, r);
    CHECK(err == 0 || err == WEFT_ECANCELED);
}

static int stop_restless(void *arg) {
    (void)arg;
    uint64_t seed = test_random();
    int64_t end = test_long_enough();
    for (long i = test_scale(3000, 100); i > 0 && test_clock_ns() < end; i--) {
        struct restless *r = calloc(1, sizeof *r);
        CHECK(r != NULL);
        CHECK_EQ(weft_timer_start(&r->t, weft_after(0), 0, start_at_once, r), 0);
        for (uint64_t k = test_below(&seed, 20); k > 0; k--) weft_yield();
        weft_timer_stop_wait(&r->t);
        memset(r, 0xee, sizeof *r); /* nothing calls it any more */
        free(r);
    }
    return 0;
}

TEST(timer_stop, memory_may_go_although_the_function_starts_it_again_and_again) { run_each_watched(stop_restless); }
