/* SPDX-License-Identifier: MIT */
/* Shields, limits, results and deferred functions where they meet panics, priorities and pins. */
#include "api/fake.h"
#include "api/panic.h"

static atomic_int started, ended, causes;

static void forget(void) {
    atomic_store(&started, 0);
    atomic_store(&ended, 0);
    atomic_store(&causes, 0);
}

/* Waits until it is cancelled, and counts itself if that was by a panic. */
static int until_panic(void *arg) {
    (void)arg;
    atomic_fetch_add(&started, 1);
    int rc = weft_sleep(WEFT_FOREVER);
    if (weft_cancel_cause() == WEFT_EPANIC) atomic_fetch_add(&causes, 1);
    atomic_fetch_add(&ended, 1);
    return rc;
}

/* ---- a panic through a shield ---- */

/* scope { shield { scope { shield { panic } } } }, with somebody waiting in both scopes. */
static int panic_in_shields(void *arg) {
    weft_scope outer, inner;
    (void)arg;
    weft_scope_begin(&outer, NULL);
    CHECK_EQ(weft_spawn(&outer, until_panic, NULL), 0);
    CHECK_EQ(weft_shield_begin(WEFT_FOREVER), 0);
    weft_scope_begin(&inner, NULL);
    CHECK_EQ(weft_spawn(&inner, until_panic, NULL), 0);
    CHECK_EQ(weft_shield_begin(weft_after(HOUR)), 0);
    task_wait_parked(&started, 2);
    weft_panic("behind two shields");
}

static void check_all_told(void) {
    CHECK_EQ(atomic_load(&ended), 2);
    CHECK_EQ(atomic_load(&causes), 2);
    forget();
}

static int through_shields(void *arg) {
    weft_scope s;
    (void)arg;
    forget();
    CHECK_EQ(weft_try(panic_in_shields, NULL, NULL), WEFT_EPANIC);
    check_all_told();
    CHECK_EQ(in_task(panic_in_shields, NULL), WEFT_EPANIC);
    check_all_told();
    CHECK_EQ(in_child(panic_in_shields, NULL), WEFT_EPANIC);
    check_all_told();
    weft_scope_begin(&s, NULL); /* no shield is left over: cancellation is seen again */
    CHECK_EQ(weft_try(panic_in_shields, NULL, NULL), WEFT_EPANIC);
    check_all_told();
    weft_scope_cancel(&s);
    CHECK_EQ(weft_sleep(WEFT_FOREVER), WEFT_ECANCELED);
    CHECK_EQ(weft_scope_end(&s), 0);
    return 0;
}

TEST(scope_combined, a_panic_ends_the_shields_that_it_passes) { run_each_quietly(through_shields); }

static int try_under_a_shield(void *arg) {
    weft_scope s;
    (void)arg;
    forget();
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_shield_begin(WEFT_FOREVER), 0);
    weft_scope_cancel(&s);
    CHECK_EQ(weft_try(panic_in_shields, NULL, NULL), WEFT_EPANIC);
    check_all_told();
    CHECK_EQ(weft_cancelled(), 0); /* the one around the boundary stands */
    CHECK_EQ(weft_sleep_for(20 * WEFT_US), 0);
    weft_shield_end();
    CHECK_EQ(weft_sleep_for(20 * WEFT_US), WEFT_ECANCELED);
    CHECK_EQ(weft_scope_end(&s), 0);
    return 0;
}

TEST(scope_combined, a_shield_around_weft_try_stands_when_it_returns) { run_each_quietly(try_under_a_shield); }

TEST(scope_combined, a_plain_threads_shields_end_with_a_panic) {
    EACH_WORKERS(w) {
        CHECK_EQ(set_up(w), 0);
        CHECK_EQ(try_under_a_shield(NULL), 0);
        CHECK_EQ(weft_try(panic_in_shields, NULL, NULL), WEFT_EPANIC);
        check_all_told();
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    }
}

/* ---- panics and limits ---- */

static int spawn_more(void *scope) {
    for (int i = 0; i < 3; i++) CHECK_EQ(weft_spawn(scope, until_panic, NULL), 0); /* no room: they start later */
    return until_panic(NULL);
}

static int panic_when_full(void *arg) {
    weft_scope s;
    (void)arg;
    weft_scope_begin(&s, &(weft_scope_opts){.limit = 2, .results = true});
    CHECK_EQ(weft_spawn(&s, until_panic, NULL), 0);
    CHECK_EQ(weft_spawn(&s, spawn_more, &s), 0);
    task_wait_parked(&started, 2);
    weft_panic("with a full scope");
}

static int limited_and_panics(void *arg) {
    (void)arg;
    forget();
    CHECK_EQ(weft_try(panic_when_full, NULL, NULL), WEFT_EPANIC);
    CHECK_EQ(atomic_load(&ended), 5); /* those that had no room yet were accepted: they run, too */
    CHECK_EQ(atomic_load(&causes), 5);
    return 0;
}

TEST(scope_combined, a_panic_in_a_limited_scope_ends_all_that_were_accepted) { run_each_quietly(limited_and_panics); }

static int panic_or_not(void *arg) {
    if ((intptr_t)arg % 3 == 0) weft_yield();
    if ((intptr_t)arg % 2) weft_panic("%d", (int)(intptr_t)arg);
    return (int)(intptr_t)arg;
}

static int children_panic(void *arg) {
    weft_scope s;
    int result, panicked = 0, sum = 0, n = 0;
    (void)arg;
    weft_scope_begin(&s, &(weft_scope_opts){.limit = 3, .results = true, .on_error = WEFT_KEEP_GOING});
    for (intptr_t i = 0; i < 50; i++) CHECK_EQ(weft_spawn(&s, panic_or_not, as_arg(i)), 0);
    for (; weft_scope_wait_any(&s, &result, WEFT_FOREVER) == 0; n++) {
        if (result == WEFT_EPANIC)
            panicked++;
        else
            sum += result;
    }
    CHECK_EQ(n, 50);
    CHECK_EQ(panicked, 25);
    CHECK_EQ(sum, 600);
    CHECK_EQ(weft_scope_end(&s), WEFT_EPANIC);
    return 0;
}

TEST(scope_combined, children_that_panic_give_their_place_and_their_result) { run_each_quietly(children_panic); }

static void count_exit(void *arg) {
    (void)arg;
    atomic_fetch_add(&ended, 1);
}

/* Children of a limited scope have functions and values of their own, as any task has. */
static int leaves_something(void *arg) {
    CHECK_EQ(weft_at_exit(count_exit, NULL), 0);
    if ((intptr_t)arg % 3 == 0) weft_yield();
    return (int)(intptr_t)arg;
}

static int exits_of_limited(void *arg) {
    weft_scope s;
    (void)arg;
    forget();
    weft_scope_begin(&s, &(weft_scope_opts){.limit = 4});
    for (intptr_t i = 0; i < 200; i++) CHECK_EQ(weft_spawn(&s, leaves_something, as_arg(i)), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(atomic_load(&ended), 200);
    return 0;
}

TEST(scope_combined, children_of_a_limited_scope_have_exits_of_their_own) { run_each_quietly(exits_of_limited); }

/* ---- panics and deferred functions ---- */

static int order[8], calls;

static void note(void *arg) {
    order[calls++] = (int)(intptr_t)arg;
    CHECK_EQ(atomic_load(&ended), 1); /* after the join */
}

static void note_and_panic(void *arg) {
    note(arg);
    weft_panic("deferred");
}

static void note_in_a_shield(void *arg) {
    CHECK_EQ(weft_shield_begin(weft_after(HOUR)), 0);
    CHECK_EQ(weft_sleep_for(20 * WEFT_US), 0);
    note(arg);
    weft_shield_end();
}

static int defer_and(void *arg) {
    weft_scope s;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, until_panic, NULL), 0);
    CHECK_EQ(weft_scope_defer(&s, note, as_arg(1)), 0);
    CHECK_EQ(weft_scope_defer(&s, note_and_panic, as_arg(2)), 0);
    CHECK_EQ(weft_scope_defer(&s, note_in_a_shield, as_arg(3)), 0);
    task_wait_parked(&started, 1);
    if (arg) weft_panic("in the body");
    weft_scope_cancel(&s);
    return weft_scope_end(&s);
}

static void check_order(void) {
    CHECK_EQ(calls, 3);
    for (int i = 0; i < 3; i++) CHECK_EQ(order[i], 3 - i);
    calls = 0;
    forget();
}

static int deferred(void *arg) {
    weft_panic_info info;
    (void)arg;
    calls = 0;
    forget();
    CHECK_EQ(weft_try(defer_and, "panic", &info), WEFT_EPANIC);
    CHECK_STR(info.message, "in the body");
    check_order();
    CHECK_EQ(atomic_load(&reported), 1); /* the deferred function's */
    CHECK_STR(last_report.message, "deferred");
    CHECK_EQ(in_task(defer_and, "panic"), WEFT_EPANIC);
    check_order();
    CHECK_EQ(in_child(defer_and, "panic"), WEFT_EPANIC);
    check_order();
    CHECK_EQ(defer_and(NULL), WEFT_EPANIC); /* without a panic of the body */
    check_order();
    CHECK_EQ(weft_cancelled(), 0);
    CHECK_EQ(atomic_load(&reported), 6);
    return 0;
}

TEST(scope_combined, deferred_functions_are_called_after_a_panic_and_survive_each_others) { run_each_quietly(deferred); }

/* ---- pins ---- */

static weft_chan *questions;

static int ask(void *arg) {
    int v = 1;
    (void)arg;
    CHECK_EQ(weft_chan_send(questions, &v, WEFT_FOREVER), 0);
    return 0;
}

static int pinned_in_a_shield(void *arg) {
    pthread_t here = pthread_self();
    int v = 0;
    (void)arg;
    CHECK_EQ(weft_sleep(WEFT_FOREVER), WEFT_ECANCELED);
    CHECK_EQ(weft_shield_begin(weft_after(HOUR)), 0);
    for (int i = 0; i < 20; i++) {
        CHECK_EQ(weft_chan_recv(questions, &v, WEFT_FOREVER), 0);
        CHECK(pthread_equal(here, pthread_self()));
        CHECK_EQ(weft_sleep_for(20 * WEFT_US), 0);
        CHECK(pthread_equal(here, pthread_self()));
    }
    weft_shield_end();
    CHECK_EQ(weft_chan_recv(questions, &v, WEFT_FOREVER), WEFT_ECANCELED);
    CHECK(pthread_equal(here, pthread_self()));
    return WEFT_ECANCELED;
}

static int pins_itself_in_a_shield(void *arg) {
    weft_pin();
    int rc = pinned_in_a_shield(arg);
    weft_unpin();
    return rc;
}

static int shield_pinned(void *arg) {
    weft_scope s, asking;
    (void)arg;
    questions = weft_chan_new(sizeof(int), 0);
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn_opts(&s, pinned_in_a_shield, NULL, &(weft_task_opts){.name = "pinned", .flags = WEFT_PINNED}), 0);
    CHECK_EQ(weft_spawn(&s, pins_itself_in_a_shield, NULL), 0);
    for (int i = 0; i < 20; i++) weft_yield();
    weft_scope_cancel(&s);
    CHECK_EQ(weft_shield_begin(WEFT_FOREVER), 0);
    weft_scope_begin(&asking, &(weft_scope_opts){.limit = 3});
    for (int i = 0; i < 40; i++) CHECK_EQ(weft_spawn(&asking, ask, NULL), 0);
    CHECK_EQ(weft_scope_end(&asking), 0);
    weft_shield_end();
    CHECK_EQ(weft_scope_end(&s), 0);
    weft_chan_unref(questions);
    return 0;
}

TEST(scope_combined, a_pinned_task_waits_in_a_shield_and_stays_where_it_is) { run_each(shield_pinned); }

static int spawn_three(void *scope) {
    for (intptr_t i = 0; i < 3; i++) CHECK_EQ(weft_spawn(scope, panic_or_not, as_arg(0)), 0);
    return 0;
}

/* The opener waits for room, for results and for the end; whoever wakes it sends it home. */
static int pinned_opener(void *arg) {
    pthread_t here = pthread_self();
    weft_scope s;
    int result, n = 0;
    (void)arg;
    for (int round = 0; round < 10; round++) {
        weft_scope_begin(&s, &(weft_scope_opts){.limit = 2, .results = true});
        for (intptr_t i = 0; i < 20; i++) {
            CHECK_EQ(i % 5 ? weft_spawn(&s, panic_or_not, as_arg(6 * i)) : weft_spawn(&s, spawn_three, &s), 0);
            CHECK(pthread_equal(here, pthread_self()));
        }
        for (n = 0; n < 16 && weft_scope_wait_any(&s, &result, WEFT_FOREVER) == 0; n++)
            CHECK(pthread_equal(here, pthread_self()));
        CHECK_EQ(weft_scope_end(&s), 0);
        CHECK(pthread_equal(here, pthread_self()));
    }
    return 0;
}

static int pinned_openers(void *arg) {
    static const int priorities[] = {WEFT_PRIORITY_NORMAL, WEFT_PRIORITY_HIGH, WEFT_PRIORITY_LOW};
    weft_scope s;
    (void)arg;
    weft_scope_begin(&s, NULL);
    for (size_t i = 0; i < COUNT(priorities); i++) {
        weft_task_opts o = {.name = "opener", .priority = priorities[i], .flags = WEFT_PINNED};
        CHECK_EQ(weft_spawn_opts(&s, pinned_opener, NULL, &o), 0);
    }
    CHECK_EQ(weft_scope_end(&s), 0);
    return 0;
}

TEST(scope_combined, a_pinned_opener_of_a_limited_scope_is_woken_where_it_is) { run_each(pinned_openers); }

/* ---- priorities ---- */

static atomic_int turns;

static int take_a_turn(void *arg) {
    *(int *)arg = atomic_fetch_add(&turns, 1) + 1;
    return 0;
}

static int spawn_at(weft_scope *s, int *turn, int priority) {
    return weft_spawn_opts(s, take_a_turn, turn, &(weft_task_opts){.name = "turn", .priority = priority});
}

static int limited_priorities(void *arg) {
    weft_scope s;
    int low = 0, normal = 0, high = 0;
    (void)arg;
    atomic_store(&turns, 0);
    weft_scope_begin(&s, &(weft_scope_opts){.limit = 3, .results = true});
    CHECK_EQ(spawn_at(&s, &low, WEFT_PRIORITY_LOW), 0);
    CHECK_EQ(spawn_at(&s, &normal, WEFT_PRIORITY_NORMAL), 0);
    CHECK_EQ(spawn_at(&s, &high, WEFT_PRIORITY_HIGH), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(high, 1);
    CHECK_EQ(normal, 2);
    CHECK_EQ(low, 3);
    return 0;
}

TEST(scope_combined, children_of_a_limited_scope_have_their_priority) { run_fake_alone(limited_priorities); }

static int late_low, late_high, others[20];
static weft_scope other;

/* Neither has room yet. When this ends, the low one starts, and lets all others pass; then the high one. */
static int spawn_for_later(void *scope) {
    CHECK_EQ(spawn_at(scope, &late_low, WEFT_PRIORITY_LOW), 0);
    CHECK_EQ(spawn_at(scope, &late_high, WEFT_PRIORITY_HIGH), 0);
    return 0;
}

static int late_priorities(void *arg) {
    weft_scope s;
    (void)arg;
    atomic_store(&turns, 0);
    weft_scope_begin(&other, NULL);
    weft_scope_begin(&s, &(weft_scope_opts){.limit = 1});
    for (size_t i = 0; i < COUNT(others); i++) CHECK_EQ(weft_spawn(&other, take_a_turn, &others[i]), 0);
    CHECK_EQ(weft_spawn(&s, spawn_for_later, &s), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(weft_scope_end(&other), 0);
    CHECK_GT(late_low, (int)COUNT(others) / 2); /* after all others, but for a machine so slow that it waited too long */
    CHECK_GT(late_high, late_low);
    return 0;
}

TEST(scope_combined, children_that_start_later_have_their_priority) { CHECK_EQ(run_on(1, late_priorities, NULL), 0); }

static int many_of_all(void *arg) {
    static int turn[300];
    weft_scope s;
    (void)arg;
    atomic_store(&turns, 0);
    weft_scope_begin(&s, &(weft_scope_opts){.limit = 4});
    for (int i = 0; i < 300; i++) CHECK_EQ(spawn_at(&s, &turn[i], i % 3 - 1), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(atomic_load(&turns), 300);
    return 0;
}

TEST(scope_combined, a_limit_holds_for_children_of_all_priorities_from_anywhere) {
    run_each(many_of_all);
    EACH_WORKERS(w) {
        CHECK_EQ(set_up(w), 0);
        CHECK_EQ(many_of_all(NULL), 0);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    }
}
