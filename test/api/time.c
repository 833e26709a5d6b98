/* SPDX-License-Identifier: MIT */
/* Sleeping and the clock. Most of it on the fake clock, where nothing depends on how fast this machine is. */
#include <sched.h>

#include "api/fake.h"

#define GRAIN (2 * WEFT_MS) /* a sleeper may be late by the wheel's resolution, which is below this */

/* ---- moments ---- */

TEST(time, deadlines_saturate) {
    CHECK_GT(weft_after(INT64_MAX).ns, weft_now());
    CHECK_GT(weft_after(INT64_MAX - 5).ns, weft_now());
    CHECK_GE(weft_after(HOUR).ns, weft_now() + HOUR - WEFT_SECOND * 60);
    CHECK_LE(weft_after(-HOUR).ns, weft_now());
    CHECK_LE(weft_after(0).ns, weft_now());
    CHECK_EQ(weft_at(12345).ns, 12345);
    weft_deadline past[] = {weft_at(0), weft_at(-1), weft_at(INT64_MIN), weft_after(INT64_MIN), weft_at(1)};
    for (size_t i = 0; i < COUNT(past); i++) {
        CHECK_NE(past[i].ns, WEFT_FOREVER.ns);
        CHECK_NE(past[i].ns, WEFT_POLL.ns);
        CHECK_EQ(weft_sleep(past[i]), 0); /* passed: at once */
    }
}

TEST(time, now_never_goes_back) {
    int64_t last = weft_now();
    CHECK_GT(last, 0);
    for (int i = 0; i < 100000; i++) {
        int64_t t = weft_now();
        CHECK_GE(t, last);
        last = t;
    }
}

/* ---- what the slot knows of the clock is old ---- */

static int compute_beyond(void *arg) {
    weft_chan *c = weft_chan_new(0, 0);
    (void)arg;
    for (int i = 0; i < 3; i++) {
        weft_deadline d = weft_after(3 * WEFT_MS);
        weft_yield();                        /* the slot looks at the clock, maybe */
        while (weft_now() <= d.ns) continue; /* and the deadline passes without a call of the runtime */
        CHECK_EQ(weft_chan_recv(c, NULL, d), WEFT_ETIMEDOUT);
        CHECK_EQ(weft_sleep(d), 0);
        CHECK_EQ(weft_chan_recv(c, NULL, weft_at(-HOUR)), WEFT_ETIMEDOUT);
        CHECK_EQ(weft_chan_recv(c, NULL, weft_at(INT64_MIN + 2)), WEFT_ETIMEDOUT);
    }
    weft_chan_unref(c);
    return 0;
}
TEST(time, a_deadline_that_passed_while_a_task_computed_ends_the_wait) { run_each(compute_beyond); }

/* ---- sleeping, real clock ---- */

static int sleep_some(void *arg) {
    (void)arg;
    static const int64_t durations[] = {1, 500, 1000, 20 * WEFT_US, 100 * WEFT_US, 999999, WEFT_MS, 3 * WEFT_MS, 20 * WEFT_MS};
    for (size_t i = 0; i < COUNT(durations); i++) {
        int64_t before = weft_now();
        CHECK_EQ(weft_sleep_for(durations[i]), 0);
        CHECK_GE(weft_now() - before, durations[i]);
        weft_deadline d = weft_after(durations[i]);
        CHECK_EQ(weft_sleep(d), 0);
        CHECK_GE(weft_now(), d.ns);
    }
    CHECK_EQ(weft_sleep_for(0), 0);
    CHECK_EQ(weft_sleep_for(-5), 0);
    CHECK_EQ(weft_sleep_for(INT64_MIN), 0);
    return 0;
}

static int many_sleep(void *arg) {
    (void)arg;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 200; i++) CHECK_EQ(weft_spawn(&s, sleep_some, NULL), 0);
    return weft_scope_end(&s);
}

TEST(time, sleep_is_never_too_short) {
    run_each(sleep_some);
    run_each(many_sleep);
    CHECK_EQ(sleep_some(NULL), 0); /* a plain thread, no runtime */
    CHECK_EQ(set_up(2), 0);
    CHECK_EQ(sleep_some(NULL), 0);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
}

/* ---- sleeping, fake clock ---- */

struct sleeper {
    int64_t until;
    atomic_int *asleep, *awake;
    int place; /* the how-manieth to wake up */
};

static int sleep_until(void *arg) {
    struct sleeper *z = arg;
    atomic_fetch_add(z->asleep, 1);
    CHECK_EQ(weft_sleep(weft_at(z->until)), 0);
    CHECK_GE(weft_now(), z->until);
    z->place = atomic_fetch_add(z->awake, 1);
    return 0;
}

static int wake_in_order(void *arg) {
    (void)arg;
    enum { N = 200 };
    static struct sleeper z[N];
    atomic_int asleep = 0, awake = 0;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < N; i++) { /* 37 and 200 have no common divisor: a fixed shuffle */
        z[i] = (struct sleeper){weft_now() + (int64_t)(i * 37 % N + 1) * 10 * WEFT_MS, &asleep, &awake, -1};
        CHECK_EQ(weft_spawn(&s, sleep_until, &z[i]), 0);
    }
    task_wait(&asleep, N);
    for (int i = 0; i < N; i++) {
        let_others_run();
        CHECK_EQ(atomic_load(&awake), i); /* time stands still: so do they */
        weft__clock_advance(10 * WEFT_MS);
        task_wait(&awake, i + 1);
    }
    CHECK_EQ(weft_scope_end(&s), 0);
    for (int i = 0; i < N; i++) CHECK_EQ(z[i].place, i * 37 % N);
    return 0;
}

TEST(time, sleepers_wake_in_order_and_only_when_it_is_time) {
    /* The grain must be finer than the 10 ms between two of them. */
    run_fake(wake_in_order);
}

static int sleep_far(void *arg) {
    (void)arg;
    static const int64_t durations[] = {1,       999,          WEFT_US,         65 * WEFT_US,
                                        WEFT_MS, 17 * WEFT_MS, WEFT_SECOND,     100 * WEFT_SECOND,
                                        HOUR,    24 * HOUR,    400 * 24 * HOUR, 20000 * 24 * HOUR};
    for (size_t i = 0; i < COUNT(durations); i++) {
        atomic_int asleep = 0, awake = 0;
        struct sleeper z = {weft_now() + durations[i], &asleep, &awake, -1};
        weft_scope s;
        weft_scope_begin(&s, NULL);
        CHECK_EQ(weft_spawn(&s, sleep_until, &z), 0);
        task_wait_parked(&asleep, 1);
        int64_t most = durations[i] - 1;
        for (int64_t step = most / 3; step > 0; step /= 2) { /* in several steps, as real time passes */
            weft__clock_advance(step);
            most -= step;
            let_others_run();
            CHECK_EQ(atomic_load(&awake), 0);
        }
        weft__clock_advance(most);
        let_others_run();
        CHECK_EQ(atomic_load(&awake), 0); /* a nanosecond is missing */
        weft__clock_advance(1 + GRAIN);
        CHECK_EQ(weft_scope_end(&s), 0);
        CHECK_EQ(atomic_load(&awake), 1);
    }
    return 0;
}

TEST(time, sleeps_of_any_length_end_in_time) { run_fake(sleep_far); }

static int jump(void *arg) {
    (void)arg;
    enum { N = 500 };
    static struct sleeper z[N];
    atomic_int asleep = 0, awake = 0;
    uint64_t rnd = test_seed();
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < N; i++) { /* all scales: 2^0 to 2^40 ns */
        z[i] = (struct sleeper){weft_now() + (int64_t)(test_random_from(&rnd) >> (24 + test_below(&rnd, 40))), &asleep, &awake,
                                -1};
        CHECK_EQ(weft_spawn(&s, sleep_until, &z[i]), 0);
    }
    task_wait(&asleep, N);
    weft__clock_advance((INT64_C(1) << 40) + GRAIN); /* all at once */
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(atomic_load(&awake), N);
    return 0;
}

TEST(time, a_jump_of_the_clock_wakes_all_it_passed) { run_fake(jump); }

static int random_steps(void *arg) {
    (void)arg;
    enum { N = 1000 };
    static struct sleeper z[N];
    atomic_int asleep = 0, awake = 0;
    uint64_t rnd = test_seed();
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < N; i++) {
        z[i] = (struct sleeper){weft_now() + 1 + (int64_t)test_below(&rnd, 10 * WEFT_SECOND), &asleep, &awake, -1};
        CHECK_EQ(weft_spawn(&s, sleep_until, &z[i]), 0);
    }
    task_wait(&asleep, N);
    for (int64_t gone = 0; gone < 10 * WEFT_SECOND + GRAIN;) {
        int64_t step = 1 + (int64_t)(test_random_from(&rnd) >> (30 + test_below(&rnd, 30)));
        weft__clock_advance(step);
        gone += step;
        int due = 0;
        for (int i = 0; i < N; i++) due += z[i].until + GRAIN <= weft_now();
        task_wait(&awake, due); /* nobody is late by more than the grain; sleep_until checks that nobody is early */
    }
    CHECK_EQ(weft_scope_end(&s), 0);
    return 0;
}

TEST(time, random_steps_of_the_clock_wake_whom_they_should) { run_fake(random_steps); }

/* ---- deadlines of waits ---- */

static int recv_in_time(void *arg) {
    int v;
    CHECK_EQ(weft_chan_recv(arg, &v, weft_after(WEFT_SECOND)), 0);
    return 0;
}

static int recv_too_late(void *arg) {
    int64_t end = weft_now() + WEFT_SECOND;
    CHECK_EQ(weft_chan_recv(arg, NULL, weft_at(end)), WEFT_ETIMEDOUT);
    CHECK_GE(weft_now(), end);
    return 0;
}

static int withdrawn_timers(void *arg) {
    (void)arg;
    for (int round = 0; round < 20; round++) {
        weft_chan *c = weft_chan_new(sizeof(int), 0);
        weft_scope s;
        weft_scope_begin(&s, NULL);
        for (int i = 0; i < 100; i++) CHECK_EQ(weft_spawn(&s, recv_in_time, c), 0);
        for (int i = 0; i < 100; i++) CHECK_EQ(weft_chan_send(c, &i, WEFT_FOREVER), 0);
        CHECK_EQ(weft_scope_end(&s), 0);
        weft_scope_begin(&s, NULL);
        for (int i = 0; i < 10; i++) CHECK_EQ(weft_spawn(&s, recv_too_late, c), 0);
        let_others_run();                         /* one worker: all ten wait now */
        weft__clock_advance(WEFT_SECOND + GRAIN); /* the 100 old deadlines pass too, and wake nobody */
        CHECK_EQ(weft_scope_end(&s), 0);
        weft_chan_unref(c);
    }
    return 0;
}

TEST(time, deadlines_of_waits_that_were_served_do_nothing) { run_fake_on(1, withdrawn_timers); }

static int scope_deadline(void *arg) {
    (void)arg;
    weft_scope s;
    weft_scope_opts o = {.deadline = weft_after(HOUR), .on_error = 0};
    weft_scope_begin(&s, &o);
    CHECK_EQ(weft_spawn(&s, wait_for_ever, NULL), 0);
    weft__clock_advance(HOUR - 1);
    let_others_run();
    CHECK_EQ(weft_cancelled(), 0);
    weft__clock_advance(1 + GRAIN);
    CHECK_EQ(weft_sleep(WEFT_FOREVER), WEFT_ECANCELED);
    CHECK_EQ(weft_scope_end(&s), WEFT_ETIMEDOUT);
    return 0;
}

TEST(time, a_scopes_deadline_follows_the_clock) { run_fake(scope_deadline); }

/* ---- a busy slot's timers ---- */

struct busy {
    atomic_int armed, woken;
};

static int sleep_on_slot(void *arg) {
    struct busy *b = arg;
    atomic_store(&b->armed, 1);
    CHECK_EQ(weft_sleep_for(2 * WEFT_MS), 0);
    atomic_store(&b->woken, 1);
    return 0;
}

/* Parks the sleeper on this slot, then computes without a call into the runtime until somebody else has woken it. */
static int compute(void *arg) {
    struct busy *b = arg;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, sleep_on_slot, b), 0);
    task_wait_parked(&b->armed, 1);
    while (!atomic_load(&b->woken)) sched_yield();
    return weft_scope_end(&s);
}

TEST(time, timers_of_a_busy_slot_are_served_by_others) {
    for (int w = 2; w <= 4; w += 2) {
        for (int i = 0; i < 20; i++) {
            struct busy b = {0, 0};
            CHECK_EQ(run_on(w, compute, &b), 0);
        }
    }
}
