/* SPDX-License-Identifier: MIT */
/* weft_scope_set_deadline: a scope's deadline is moved, taken away, or given later. */
#include "api/common.h"
#include "api/fake.h"

/* Lets the clock go on, and the timers run. */
static void pass(int64_t duration) {
    weft__clock_advance(duration);
    let_others_run();
}

static weft_scope_opts until(weft_deadline d) { return (weft_scope_opts){.deadline = d}; }

/* ---- one scope ---- */

/* `first`: when the scope would be cancelled without the call, in hours; 0 = never. Likewise `second`, from then on. */
static void move(int first, int second) {
    weft_scope s;
    weft_scope_opts o = until(first ? weft_after(first * HOUR) : WEFT_FOREVER);
    weft_deadline d = second ? weft_after(second * HOUR) : WEFT_FOREVER;
    weft_scope_begin(&s, &o);
    weft_scope_set_deadline(&s, d);
    CHECK_EQ(weft_scope_deadline().ns, d.ns);
    for (int hour = 1; hour <= 4; hour++) {
        pass(HOUR);
        CHECK_EQ(weft_cancel_cause(), second && hour >= second ? WEFT_ETIMEDOUT : 0);
    }
    CHECK_EQ(weft_scope_end(&s), second ? WEFT_ETIMEDOUT : 0);
}

static int move_each(void *arg) {
    (void)arg;
    for (int first = 0; first <= 3; first++)
        for (int second = 0; second <= 3; second++) move(first, second);
    return 0;
}

TEST(scope_set_deadline, the_last_one_counts) { run_fake(move_each); }

static int in_the_past(void *arg) {
    static const int64_t moments[] = {1, INT64_MIN, START};
    (void)arg;
    for (size_t i = 0; i < COUNT(moments); i++) {
        weft_scope s;
        weft_scope_begin(&s, NULL);
        weft_scope_set_deadline(&s, weft_at(moments[i]));
        CHECK_EQ(weft_cancel_cause(), WEFT_ETIMEDOUT);
        CHECK_EQ(weft_scope_end(&s), WEFT_ETIMEDOUT);
    }
    return 0;
}

TEST(scope_set_deadline, one_in_the_past_cancels_at_once) { run_fake(in_the_past); }

static int stay_cancelled(void *arg) {
    (void)arg;
    for (int timed = 0; timed < 2; timed++) {
        for (int later = 0; later < 2; later++) {
            weft_scope s;
            weft_scope_begin(&s, NULL);
            if (timed)
                weft_scope_set_deadline(&s, WEFT_POLL);
            else
                weft_scope_cancel(&s);
            weft_scope_set_deadline(&s, later ? weft_after(HOUR) : WEFT_FOREVER);
            CHECK_EQ(weft_cancel_cause(), timed ? WEFT_ETIMEDOUT : WEFT_ECANCELED);
            pass(2 * HOUR);
            CHECK_EQ(weft_cancel_cause(), timed ? WEFT_ETIMEDOUT : WEFT_ECANCELED);
            CHECK_EQ(weft_scope_end(&s), timed ? WEFT_ETIMEDOUT : 0);
        }
    }
    return 0;
}

TEST(scope_set_deadline, a_cancelled_scope_stays_cancelled) { run_fake(stay_cancelled); }

static int wait_and_see(void *arg) {
    (void)arg;
    CHECK_EQ(weft_sleep(WEFT_FOREVER), WEFT_ECANCELED);
    CHECK_EQ(weft_cancel_cause(), WEFT_ETIMEDOUT);
    return WEFT_ECANCELED;
}

static int ends_waits(void *arg) {
    weft_scope s;
    (void)arg;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, wait_and_see, NULL), 0);
    let_others_run();
    weft_scope_set_deadline(&s, weft_after(HOUR));
    pass(HOUR);
    CHECK_EQ(weft_scope_wait(&s, WEFT_FOREVER), 0);
    CHECK_EQ(weft_scope_end(&s), WEFT_ETIMEDOUT);
    return 0;
}

TEST(scope_set_deadline, ends_the_waits_of_children) { run_fake(ends_waits); }

TEST(scope_set_deadline, of_a_plain_threads_scope) {
    weft_scope s;
    CHECK_EQ(set_up(2), 0);
    weft_scope_begin(&s, NULL);
    weft_scope_set_deadline(&s, weft_after(HOUR));
    weft_scope_set_deadline(&s, weft_after(2 * WEFT_MS));
    CHECK_EQ(weft_sleep(WEFT_FOREVER), WEFT_ECANCELED);
    CHECK_EQ(weft_scope_end(&s), WEFT_ETIMEDOUT);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
}

/* ---- scopes in each other ---- */

/* The inner scope's deadline is the later one; then the outer one's is taken away, or moved behind it. */
static void move_outer(bool in_another, weft_deadline to) {
    weft_scope outer, middle, inner;
    weft_scope_opts o = until(weft_after(HOUR)), i = until(weft_after(2 * HOUR));
    weft_deadline at = i.deadline;
    weft_scope_begin(&outer, &o);
    if (in_another) weft_scope_begin(&middle, NULL);
    weft_scope_begin(&inner, &i);
    CHECK_EQ(weft_scope_deadline().ns, o.deadline.ns);
    weft_scope_set_deadline(&outer, to);
    CHECK_EQ(weft_scope_deadline().ns, at.ns);
    pass(HOUR);
    CHECK_EQ(weft_cancelled(), 0);
    pass(HOUR);
    CHECK_EQ(weft_cancel_cause(), WEFT_ETIMEDOUT);
    CHECK_EQ(weft_scope_end(&inner), WEFT_ETIMEDOUT);
    CHECK_EQ(weft_cancelled(), 0);
    if (in_another) CHECK_EQ(weft_scope_end(&middle), 0);
    CHECK_EQ(weft_scope_end(&outer), 0);
}

static int move_outer_each(void *arg) {
    (void)arg;
    for (int between = 0; between < 2; between++) {
        move_outer(between, WEFT_FOREVER);
        move_outer(between, weft_after(30 * HOUR));
    }
    return 0;
}

TEST(scope_set_deadline, one_inside_that_was_the_later_one_counts_again) { run_fake(move_outer_each); }

/* Both pass before any timer is run: the earlier one is told, whichever that is. */
static int both_pass(void *arg) {
    (void)arg;
    for (int outer_first = 0; outer_first < 2; outer_first++) {
        weft_scope outer, inner;
        weft_scope_begin(&outer, NULL);
        weft_scope_begin(&inner, NULL);
        weft_scope_set_deadline(&inner, weft_after(2 * HOUR));
        weft_scope_set_deadline(&outer, weft_after(outer_first ? HOUR : 3 * HOUR));
        pass(4 * HOUR);
        CHECK_EQ(weft_cancel_cause(), WEFT_ETIMEDOUT);
        CHECK_EQ(weft_scope_end(&inner), outer_first ? WEFT_ECANCELED : WEFT_ETIMEDOUT);
        CHECK_EQ(weft_scope_end(&outer), WEFT_ETIMEDOUT);
    }
    return 0;
}

TEST(scope_set_deadline, the_earlier_of_two_is_told) { run_fake(both_pass); }

/* ---- others ---- */

static atomic_int seen, over;

static int read_on(void *arg) {
    (void)arg;
    while (!atomic_load(&over)) {
        int64_t ns = weft_scope_deadline().ns;
        CHECK(ns == 0 || ns > weft_now());
        atomic_fetch_add(&seen, 1);
        weft_yield();
    }
    return 0;
}

static int change_while_read(void *arg) {
    weft_scope s;
    (void)arg;
    atomic_store(&seen, 0);
    atomic_store(&over, 0);
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 3; i++) CHECK_EQ(weft_spawn(&s, read_on, NULL), 0);
    for (int i = 0; i < 200; i++) {
        int before = atomic_load(&seen);
        weft_scope_set_deadline(&s, i % 3 ? weft_after((i + 1) * HOUR) : WEFT_FOREVER);
        task_wait(&seen, before + 1);
    }
    atomic_store(&over, 1);
    CHECK_EQ(weft_scope_end(&s), 0);
    return 0;
}

TEST(scope_set_deadline, children_read_it_while_it_changes) { run_each(change_while_read); }

static int set_as_child(void *s) {
    weft_scope_set_deadline(s, WEFT_FOREVER);
    return 0;
}

static int spawn_setter(void *arg) {
    weft_scope s;
    (void)arg;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, set_as_child, &s), 0);
    return weft_scope_end(&s);
}

static int run_setter(void *arg) {
    (void)arg;
    return weft_run(spawn_setter, NULL, NULL);
}

TEST(scope_set_deadline, aborts_if_the_caller_is_not_the_opener) { CHECK_DIES(run_setter, "weft_scope_set_deadline"); }
