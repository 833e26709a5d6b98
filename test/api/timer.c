/* SPDX-License-Identifier: MIT */
/* Timers and tickers. Most of it on the fake clock, where nothing depends on how fast this machine is. Alone, on one thread, every order of events
 * is given: when another task runs, a function has returned and its timer is armed again. */
#include "api/fake.h"

static void count(void *arg) { atomic_fetch_add((atomic_int *)arg, 1); }

/* ---- once ---- */

static int fire_once(void *arg) {
    (void)arg;
    weft_timer t = {0};
    atomic_int n = 0;
    CHECK_EQ(weft_timer_start(&t, weft_after(WEFT_MS), 0, count, &n), 0);
    weft__clock_advance(WEFT_MS - 1);
    let_others_run();
    CHECK_EQ(atomic_load(&n), 0); /* a nanosecond is missing */
    weft__clock_advance(1);
    task_wait(&n, 1);
    weft__clock_advance(HOUR);
    let_others_run();
    CHECK_EQ(weft_timer_stop_wait(&t), 0);
    CHECK_EQ(atomic_load(&n), 1);
    return 0;
}

TEST(timer, calls_its_function_once_at_its_moment) { run_fake(fire_once); }

static int fire_far(void *arg) {
    (void)arg;
    static const int64_t durations[] = {1,           WEFT_US, 65 * WEFT_US, WEFT_MS,         17 * WEFT_MS,
                                        WEFT_SECOND, HOUR,    24 * HOUR,    400 * 24 * HOUR, 20000 * 24 * HOUR};
    for (size_t i = 0; i < COUNT(durations); i++) {
        weft_timer t = {0};
        atomic_int n = 0;
        CHECK_EQ(weft_timer_start(&t, weft_after(durations[i]), 0, count, &n), 0);
        weft__clock_advance(durations[i] - 1);
        let_others_run();
        CHECK_EQ(atomic_load(&n), 0);
        weft__clock_advance(1);
        task_wait(&n, 1);
        CHECK_EQ(weft_timer_stop_wait(&t), 0);
    }
    return 0;
}

TEST(timer, moments_from_nanoseconds_to_decades_are_met) { run_fake(fire_far); }

static int past_and_never(void *arg) {
    (void)arg;
    weft_timer t = {0}, never = {0}, end = {0}, far = {0};
    atomic_int n = 0, no = 0;
    weft_deadline past[] = {weft_at(1), weft_at(-5), weft_after(0), WEFT_POLL, weft_at(weft_now())};
    for (int i = 0; i < (int)COUNT(past); i++) {
        CHECK_EQ(weft_timer_start(&t, past[i], 0, count, &n), 0);
        task_wait(&n, i + 1);
    }
    CHECK_EQ(weft_timer_start(&never, WEFT_FOREVER, 0, count, &no), 0);
    CHECK_EQ(weft_timer_start(&end, weft_at(INT64_MAX), INT64_MAX, count, &no), 0);
    CHECK_EQ(weft_timer_start(&far, weft_at(INT64_MAX - 1), 1, count, &no), 0);
    weft__clock_advance(20000 * 24 * HOUR);
    let_others_run();
    CHECK_EQ(atomic_load(&no), 0);
    CHECK_EQ(weft_timer_stop(&never), 1);
    CHECK_EQ(weft_timer_stop(&end), 1);
    CHECK_EQ(weft_timer_stop(&far), 1);
    CHECK_EQ(weft_timer_stop_wait(&t), 0);
    return 0;
}

TEST(timer, the_past_is_now_and_the_end_of_time_never_comes) { run_fake(past_and_never); }

static int end_of_time(void *arg) {
    (void)arg;
    weft_timer t = {0};
    atomic_int n = 0;
    CHECK_EQ(weft_timer_start(&t, weft_at(INT64_MAX - 10), 7, count, &n), 0);
    weft__clock_advance(INT64_MAX - 10 - weft_now());
    task_wait(&n, 1);
    weft__clock_advance(6);
    let_others_run();
    CHECK_EQ(atomic_load(&n), 1);
    weft__clock_advance(1);
    task_wait(&n, 2);
    CHECK_EQ(weft_timer_stop_wait(&t), 1); /* waits for INT64_MAX: the sum saturates */
    return 0;
}

TEST(timer, an_interval_does_not_overflow_at_the_end_of_time) { run_fake_alone(end_of_time); }

static int bad_input(void *arg) {
    (void)arg;
    weft_timer t = {0};
    atomic_int n = 0;
    CHECK_EQ(weft_timer_start(&t, weft_after(1), 0, NULL, NULL), WEFT_EINVAL);
    CHECK_EQ(weft_timer_start(&t, weft_after(1), -1, count, &n), WEFT_EINVAL);
    CHECK_EQ(weft_timer_stop(&t), 0); /* never started */
    CHECK_EQ(weft_timer_stop_wait(&t), 0);
    return 0;
}

TEST(timer, wrong_arguments_are_refused) {
    run_each(bad_input);
    weft_timer t = {0};
    atomic_int n = 0;
    CHECK_EQ(weft_timer_start(&t, weft_after(1), 0, count, &n), WEFT_ETERMINATED); /* no runtime */
    CHECK_EQ(weft_timer_stop(&t), 0);
    CHECK_EQ(weft_timer_stop_wait(&t), 0);
}

/* ---- order ---- */

struct mark {
    weft_timer t;
    atomic_int *turn;
    int place;
};

static void take_place(void *arg) {
    struct mark *m = arg;
    m->place = atomic_fetch_add(m->turn, 1);
}

static int in_order(void *arg) {
    (void)arg;
    enum { N = 500 };
    static struct mark m[N];
    atomic_int turn = 0;
    int64_t now = weft_now();
    for (int i = 0; i < N; i++) { /* 37 and 500 have no common divisor: a fixed shuffle; pairs of equal moments */
        m[i] = (struct mark){.turn = &turn};
        CHECK_EQ(weft_timer_start(&m[i].t, weft_at(now + 1 + i * 37 % N / 2), 0, take_place, &m[i]), 0);
    }
    for (int i = 0; i < N / 2; i++) { /* one moment at a time: with several workers, runners of two batches may overtake */
        weft__clock_advance(1);
        task_wait(&turn, 2 * (i + 1));
    }
    for (int i = 0; i < N; i++) CHECK_EQ(weft_timer_stop_wait(&m[i].t), 0); /* its function has returned */
    for (int i = 0; i < N; i++) CHECK_EQ(m[i].place / 2, i * 37 % N / 2);
    return 0;
}

TEST(timer, they_fire_in_the_order_of_their_moments) { run_fake(in_order); }

/* ---- stopping ---- */

static int stop_armed(void *arg) {
    (void)arg;
    weft_timer t = {0};
    atomic_int n = 0;
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(weft_timer_start(&t, weft_after(WEFT_MS), i * WEFT_MS, count, &n), 0);
        CHECK_EQ(i & 1 ? weft_timer_stop_wait(&t) : weft_timer_stop(&t), 1);
        CHECK_EQ(weft_timer_stop(&t), 0);
        weft__clock_advance(HOUR);
        let_others_run();
        CHECK_EQ(atomic_load(&n), 0);
    }
    return 0;
}

TEST(timer, a_stopped_timer_does_not_fire) { run_fake(stop_armed); }

struct held {
    weft_timer t;
    atomic_int entered, may_go, left;
    int stopped; /* what stop gave inside */
};

static void hold(void *arg) {
    struct held *h = arg;
    atomic_fetch_add(&h->entered, 1);
    while (!atomic_load(&h->may_go)) weft_yield();
    atomic_fetch_add(&h->left, 1);
}

static int wait_stopped(void *arg) {
    struct held *h = arg;
    CHECK_EQ(weft_timer_stop_wait(&h->t), 0);
    CHECK_EQ(atomic_load(&h->left), 1);
    return 0;
}

static int stop_while_it_runs(void *arg) {
    (void)arg;
    struct held h = {.t = {{0}}};
    weft_scope s;
    CHECK_EQ(weft_timer_start(&h.t, weft_after(1), 1, hold, &h), 0);
    weft__clock_advance(1);
    task_wait(&h.entered, 1);
    CHECK_EQ(weft_timer_stop(&h.t), 0); /* too late for this one, but there is no other */
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 5; i++) CHECK_EQ(weft_spawn(&s, wait_stopped, &h), 0);
    let_others_run();
    weft_scope_cancel(&s); /* does not concern those who wait for the function's end */
    weft__clock_advance(HOUR);
    let_others_run();
    CHECK_EQ(atomic_load(&h.left), 0);
    atomic_store(&h.may_go, 1);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(atomic_load(&h.entered), 1);
    return 0;
}

TEST(timer, stop_wait_returns_when_the_function_has) { run_fake(stop_while_it_runs); }

static void stop_oneself(void *arg) {
    struct held *h = arg;
    h->stopped = atomic_load(&h->entered) ? weft_timer_stop(&h->t) : weft_timer_stop_wait(&h->t);
    atomic_fetch_add(&h->entered, 1);
}

static int stop_inside(void *arg) {
    (void)arg;
    struct held h = {.t = {{0}}};
    for (int i = 0; i < 2; i++) {
        h.stopped = -1;
        CHECK_EQ(weft_timer_start(&h.t, weft_after(1), 1, stop_oneself, &h), 0);
        weft__clock_advance(1);
        task_wait(&h.entered, i + 1);
        CHECK_EQ(weft_timer_stop_wait(&h.t), 0);
        CHECK_EQ(h.stopped, 0);
        weft__clock_advance(HOUR);
        let_others_run();
        CHECK_EQ(atomic_load(&h.entered), i + 1);
    }
    return 0;
}

TEST(timer, a_function_may_stop_its_own_timer) { run_fake(stop_inside); }

static void *stop_as_thread(void *arg) {
    wait_stopped(arg);
    return NULL;
}

TEST(timer, plain_threads_start_stop_and_wait) {
    EACH_WORKERS(w) {
        struct held h = {.t = {{0}}};
        pthread_t p;
        CHECK_EQ(set_up(w), 0);
        CHECK_EQ(weft_timer_start(&h.t, weft_after(0), 0, hold, &h), 0);
        thread_wait(&h.entered, 1);
        CHECK_EQ(pthread_create(&p, NULL, stop_as_thread, &h), 0);
        atomic_store(&h.may_go, 1);
        CHECK_EQ(pthread_join(p, NULL), 0);
        weft_timer t = {0};
        atomic_int n = 0;
        CHECK_EQ(weft_timer_start(&t, weft_after(HOUR), 0, count, &n), 0);
        CHECK_EQ(weft_timer_stop_wait(&t), 1);
        CHECK_EQ(weft_timer_start(&t, weft_after(WEFT_MS), WEFT_MS, count, &n), 0);
        thread_wait(&n, 20); /* nobody else keeps the workers awake */
        weft_timer_stop_wait(&t);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    }
}

/* ---- again ---- */

static void start_again(void *arg) {
    struct held *h = arg;
    if (atomic_load(&h->entered) < 9) CHECK_EQ(weft_timer_start(&h->t, weft_after(WEFT_MS), 0, start_again, h), 0);
    atomic_fetch_add(&h->entered, 1);
}

static int restart_inside(void *arg) {
    (void)arg;
    struct held h = {.t = {{0}}};
    CHECK_EQ(weft_timer_start(&h.t, weft_after(WEFT_MS), 0, start_again, &h), 0);
    for (int i = 0; i < 10; i++) {
        let_others_run();
        CHECK_LE(atomic_load(&h.entered), i);
        weft__clock_advance(WEFT_MS);
        task_wait(&h.entered, i + 1);
        if (i < 9) let_others_run();
    }
    CHECK_EQ(weft_timer_stop_wait(&h.t), 0);
    return 0;
}

TEST(timer, a_function_may_start_its_own_timer_again) { run_fake(restart_inside); }

static int move(void *arg) {
    (void)arg;
    weft_timer t = {0};
    atomic_int a = 0, b = 0;
    CHECK_EQ(weft_timer_start(&t, weft_after(WEFT_MS), WEFT_MS, count, &a), 0);
    CHECK_EQ(weft_timer_start(&t, weft_after(10 * WEFT_MS), 0, count, &b), 0); /* moved, and once only */
    weft__clock_advance(10 * WEFT_MS - 1);
    let_others_run();
    CHECK_EQ(atomic_load(&a) + atomic_load(&b), 0);
    weft__clock_advance(1);
    task_wait(&b, 1);
    CHECK_EQ(weft_timer_stop_wait(&t), 0);
    weft__clock_advance(HOUR);
    let_others_run();
    CHECK_EQ(atomic_load(&a), 0);
    CHECK_EQ(atomic_load(&b), 1);
    return 0;
}

TEST(timer, starting_an_armed_timer_moves_it) { run_fake(move); }

static int restart_while_it_runs(void *arg) {
    (void)arg;
    struct held h = {.t = {{0}}};
    CHECK_EQ(weft_timer_start(&h.t, weft_after(1), 0, hold, &h), 0);
    weft__clock_advance(1);
    task_wait(&h.entered, 1);
    CHECK_EQ(weft_timer_start(&h.t, weft_after(0), 0, hold, &h), 0);
    let_others_run();
    CHECK_EQ(atomic_load(&h.entered), 1); /* due, but never twice at once */
    atomic_store(&h.may_go, 1);
    task_wait(&h.left, 2);
    atomic_store(&h.may_go, 0);
    CHECK_EQ(weft_timer_start(&h.t, weft_after(0), 0, hold, &h), 0);
    task_wait(&h.entered, 3);
    CHECK_EQ(weft_timer_start(&h.t, weft_after(0), 0, hold, &h), 0);
    let_others_run();
    CHECK_EQ(weft_timer_stop(&h.t), 1); /* the one that was due is withdrawn, the other still runs */
    atomic_store(&h.may_go, 1);
    CHECK_EQ(weft_timer_stop_wait(&h.t), 0);
    CHECK_EQ(atomic_load(&h.left), 3);
    return 0;
}

TEST(timer, a_timer_that_runs_can_be_started_and_runs_again_afterwards) { run_fake(restart_while_it_runs); }

static int intervals(void *arg) {
    (void)arg;
    weft_timer t = {0};
    atomic_int n = 0;
    CHECK_EQ(weft_timer_start(&t, weft_after(7), 10, count, &n), 0);
    int64_t begin = weft_now();
    for (int i = 0; i < 200; i++) { /* every nanosecond of the clock is passed: the grid is met exactly */
        int due = (int)(weft_now() - begin + 3) / 10;
        task_wait(&n, due);
        let_others_run();
        CHECK_EQ(atomic_load(&n), due);
        weft__clock_advance(1);
    }
    task_wait(&n, 20);
    let_others_run();              /* armed again */
    weft__clock_advance(1000 + 5); /* a hundred are missed: one call, and the next is on the grid */
    task_wait(&n, 21);
    let_others_run();
    CHECK_EQ(atomic_load(&n), 21);
    int64_t left = 10 - (weft_now() - begin + 3) % 10;
    weft__clock_advance(left - 1);
    let_others_run();
    CHECK_EQ(atomic_load(&n), 21);
    weft__clock_advance(1);
    task_wait(&n, 22);
    CHECK_EQ(weft_timer_stop_wait(&t), 1);
    return 0;
}

TEST(timer, an_interval_does_not_drift_and_skips_what_was_missed) { run_fake_alone(intervals); }

/* ---- what a function may not do ---- */

static weft_chan *silent;

static void wait_in_recv(void *arg) {
    int v;
    (void)arg;
    weft_chan_recv(silent, &v, WEFT_FOREVER);
}
static void wait_in_recv_until(void *arg) {
    int v;
    (void)arg;
    weft_chan_recv(silent, &v, weft_after(HOUR));
}
static void wait_in_sleep(void *arg) {
    (void)arg;
    weft_sleep_for(HOUR);
}
static void wait_in_join(void *arg) {
    (void)arg;
    weft_task *t;
    if (weft_task_start(&t, wait_for_ever, NULL, NULL) == 0) weft_task_join(t, NULL, WEFT_FOREVER);
}
static void wait_in_scope_end(void *arg) {
    (void)arg;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    weft_spawnf(&s, wait_for_ever, NULL, "child");
    weft_scope_end(&s);
}
static void wait_in_select(void *arg) {
    int v;
    (void)arg;
    weft_case k[] = {weft_on_recv(silent, &v, NULL)};
    weft_selectv(k, 1, WEFT_FOREVER);
}

static int call_it(void *arg) {
    weft_timer t = {0};
    weft_timer_fn **fn = arg;
    silent = weft_chan_new(sizeof(int), 0);
    CHECK_EQ(weft_timer_start(&t, weft_after(0), 0, *fn, NULL), 0);
    return weft_sleep(WEFT_FOREVER);
}

static int die_on_it(void *arg) { return run_on(2, call_it, arg); }

TEST(timer, waiting_in_a_function_dies_with_a_sentence) {
    static weft_timer_fn *const fns[] = {wait_in_recv, wait_in_recv_until, wait_in_sleep,
                                         wait_in_join, wait_in_scope_end,  wait_in_select};
    for (size_t i = 0; i < COUNT(fns); i++) CHECK_DIES_ARG(die_on_it, (void *)(uintptr_t)&fns[i], "a timer's function (0x");
}

static void do_what_is_allowed(void *arg) {
    struct held *h = arg;
    weft_timer other = {0};
    int v = 1;
    CHECK_NE(weft_self(), 0);
    for (int i = 0; i < 5000; i++) CHECK_EQ(weft_chan_try_recv(silent, &v), WEFT_EAGAIN);
    CHECK_EQ(weft_chan_recv(silent, &v, weft_at(1)), WEFT_ETIMEDOUT);
    CHECK_EQ(weft_timer_start(&other, weft_after(HOUR), 0, count, NULL), 0);
    CHECK_EQ(weft_timer_stop_wait(&other), 1);
    weft_yield();
    CHECK_EQ(weft_go(return_int, NULL), 0);
    atomic_fetch_add(&h->entered, 1);
}

static int allowed(void *arg) {
    (void)arg;
    struct held h = {.t = {{0}}};
    silent = weft_chan_new(sizeof(int), 0);
    CHECK_EQ(weft_timer_start(&h.t, weft_after(0), 0, do_what_is_allowed, &h), 0);
    task_wait(&h.entered, 1);
    weft_timer_stop_wait(&h.t);
    weft_chan_unref(silent);
    return 0;
}

TEST(timer, a_function_may_do_what_does_not_wait) { run_each(allowed); }

/* ---- busy workers, the end of the runtime ---- */

static int compute(void *arg) {
    (void)arg;
    weft_timer t[20] = {{{0}}};
    atomic_int n = 0;
    for (int i = 0; i < 20; i++) CHECK_EQ(weft_timer_start(&t[i], weft_after(i * WEFT_MS / 10), 0, count, &n), 0);
    /* Computes on the slot whose wheel has the timers: another slot has to fire them. */
    while (atomic_load(&n) < 20) {
    }
    for (int i = 0; i < 20; i++) CHECK_EQ(weft_timer_stop_wait(&t[i]), 0);
    return 0;
}

TEST(timer, a_computing_task_does_not_keep_its_slots_timers_from_firing) { CHECK_EQ(run_on(2, compute, NULL), 0); }

TEST(timer, stopping_the_runtime_stops_them_all) {
    EACH_WORKERS(w) {
        enum { N = 300 };
        static weft_timer t[N];
        atomic_int n = 0;
        for (int round = 0; round < 3; round++) {
            CHECK_EQ(set_up(w), 0);
            for (int i = 0; i < N; i++)
                CHECK_EQ(weft_timer_start(&t[i], weft_after(i % 3 ? i * WEFT_US : HOUR), i % 2 ? WEFT_US : 0, count, &n), 0);
            thread_wait(&n, 1);
            CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
            int seen = atomic_load(&n);
            for (int i = 0; i < N; i++) CHECK_EQ(i % 2 ? weft_timer_stop(&t[i]) : weft_timer_stop_wait(&t[i]), 0);
            CHECK_EQ(atomic_load(&n), seen);
            atomic_store(&n, 0);
        }
    }
}

static int start_some(void *arg) {
    weft_timer *t = arg;
    static atomic_int n;
    for (int i = 0; i < 100; i++) CHECK_EQ(weft_timer_start(&t[i], weft_after(HOUR + i), 0, count, &n), 0);
    return 0;
}

TEST(timer, those_started_by_tasks_are_stopped_with_the_runtime_and_can_be_used_again) {
    static weft_timer t[100];
    for (int round = 0; round < 3; round++) {
        CHECK_EQ(set_up(2), 0);
        CHECK_EQ(weft_block_on(start_some, t), 0);
        CHECK_EQ(weft_timer_stop(&t[99]), 1); /* from another thread than it was started on */
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
        for (int i = 0; i < 100; i++) CHECK_EQ(weft_timer_stop(&t[i]), 0);
    }
}

/* ---- tickers ---- */

static int tick_tock(void *arg) {
    (void)arg;
    weft_ticker k = {.weft__chan = NULL};
    weft_chan *c = weft_chan_new(sizeof(int64_t), 1), *wide = weft_chan_new(4, 1), *deep = weft_chan_new(8, 2);
    int64_t begin = weft_now(), at = 0;
    CHECK_EQ(weft_ticker_start(&k, 0, c), WEFT_EINVAL);
    CHECK_EQ(weft_ticker_start(&k, 1, NULL), WEFT_EINVAL);
    CHECK_EQ(weft_ticker_start(&k, 1, wide), WEFT_EINVAL);
    CHECK_EQ(weft_ticker_start(&k, 1, deep), WEFT_EINVAL);
    CHECK_EQ(weft_ticker_stop(&k), 0);
    CHECK_EQ(weft_ticker_start(&k, WEFT_SECOND, c), 0);
    CHECK_EQ(weft_ticker_start(&k, WEFT_SECOND, c), WEFT_EALREADY);
    for (int i = 1; i <= 20; i++) {
        CHECK_EQ(weft_chan_try_recv(c, &at), WEFT_EAGAIN);
        weft__clock_advance(WEFT_SECOND);
        CHECK_EQ(weft_chan_recv(c, &at, WEFT_FOREVER), 0);
        CHECK_EQ(at, begin + i * WEFT_SECOND);
        let_others_run(); /* armed again */
    }
    for (int i = 21; i <= 25; i++) { /* nobody receives */
        weft__clock_advance(WEFT_SECOND);
        let_others_run();
    }
    weft__clock_advance(100 * WEFT_SECOND + 5);
    int64_t last = begin + 26 * WEFT_SECOND; /* the first that was missed; the others were skipped */
    do {
        CHECK_EQ(weft_chan_recv(c, &at, WEFT_FOREVER), 0);
    } while (at < last);
    CHECK_EQ(at, last);
    CHECK_EQ(weft_chan_try_recv(c, &at), WEFT_EAGAIN);
    CHECK_EQ(weft_ticker_stop(&k), 1);
    weft__clock_advance(HOUR);
    let_others_run();
    CHECK_EQ(weft_chan_try_recv(c, &at), WEFT_EAGAIN);
    CHECK_EQ(weft_ticker_start(&k, 1, c), 0);
    CHECK_EQ(weft_chan_close(c), 0);
    weft__clock_advance(5);
    let_others_run();
    weft_ticker_stop(&k);
    weft_chan_unref(c);
    weft_chan_unref(wide);
    weft_chan_unref(deep);
    return 0;
}

TEST(ticker, a_slow_receiver_gets_the_latest_and_no_backlog) { run_fake_alone(tick_tock); }

static int replaced(void *arg) {
    (void)arg;
    weft_ticker k = {.weft__chan = NULL};
    weft_chan *c = weft_chan_new(sizeof(int64_t), 1);
    int64_t begin = weft_now(), at = 0;
    CHECK_EQ(weft_ticker_start(&k, 10, c), 0);
    for (int i = 1; i <= 30; i++) {
        weft__clock_advance(10);
        do { /* until this tick has come: it takes the place of the last one */
            let_others_run();
            CHECK_LE(weft_chan_len(c), 1);
        } while (weft_chan_len(c) == 0);
    }
    let_others_run();
    weft_ticker_stop(&k);
    CHECK_EQ(weft_chan_recv(c, &at, WEFT_POLL), 0);
    CHECK_GE(at, begin + 10 * 29); /* a worker may be late by one */
    CHECK_EQ(weft_chan_try_recv(c, &at), WEFT_EAGAIN);
    weft_chan_unref(c);
    return 0;
}

TEST(ticker, a_tick_takes_the_place_of_one_that_nobody_received) { run_fake_alone(replaced); }

/* What gave way is told of, in a channel of either kind. */
static _Atomic int64_t last_gone;
static atomic_int gone;
static void tell_gone(void *tick, void *arg) {
    int64_t at;
    (void)arg;
    memcpy(&at, tick, sizeof at);
    atomic_store(&last_gone, at);
    atomic_fetch_add(&gone, 1);
}

static int replaced_and_told(void *kind) {
    int64_t at;
    weft_ticker k = {.weft__chan = NULL};
    weft_chan_opts o = {.kind = (int)(intptr_t)kind, .capacity = 1, .on_undelivered = tell_gone};
    weft_chan *c = weft_chan_new_opts(sizeof at, &o);
    weft_chan_stats st;
    atomic_store(&gone, 0);
    CHECK_EQ(weft_ticker_start(&k, 10, c), 0);
    while (atomic_load(&gone) < 2) {
        weft__clock_advance(10);
        let_others_run();
    }
    weft_ticker_stop(&k);
    CHECK_EQ(weft_chan_recv(c, &at, WEFT_POLL), 0);
    CHECK_GT(at, atomic_load(&last_gone));
    weft_chan_stats_get(c, &st);
    CHECK_EQ(st.undelivered, atomic_load(&gone));
    CHECK_EQ(st.received, 1);
    weft_chan_unref(c);
    return 0;
}
static int replaced_in_both(void *arg) {
    (void)arg;
    (void)replaced_and_told(as_arg(WEFT_CHAN_BUFFERED));
    return replaced_and_told(as_arg(WEFT_CHAN_LATEST));
}

TEST(ticker, a_tick_that_gave_way_is_undelivered) { run_fake_alone(replaced_in_both); }

/* ---- the end of the runtime ---- */

enum { ROW = 200000 };
#define ROW_GAP (15 * WEFT_US) /* less than a worker searches */

static atomic_int in_row;

static int start_a_row(void *arg) {
    weft_timer *t = arg;
    int64_t first = weft_now() + 200 * WEFT_MS;
    for (int i = 0; i < ROW; i++) CHECK_EQ(weft_timer_start(&t[i], weft_at(first + i * ROW_GAP), 0, count, &in_row), 0);
    return 0;
}

/* How long it takes to stop with all of them but the first few to come. */
static int64_t stop_in_a_row(void) {
    weft_timer *t = calloc(ROW, sizeof *t);
    CHECK(t);
    atomic_store(&in_row, 0);
    CHECK_EQ(set_up(2), 0);
    CHECK_EQ(weft_block_on(start_a_row, t), 0);
    thread_wait(&in_row, 100);
    int64_t from = weft_now();
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    free(t);
    return weft_now() - from;
}

/* Workers do not stay until the last of them is due. */
TEST(timer, a_row_of_them_does_not_hold_up_the_end) {
    test_skip_under("starting them takes longer than they do", "and so does an emulated CPU");
    int64_t took = INT64_MAX;
    for (int i = 0; i < TEST_ATTEMPTS && took > ROW * ROW_GAP / 2; i++) took = stop_in_a_row();
    CHECK_LE(took, ROW * ROW_GAP / 2);
}
