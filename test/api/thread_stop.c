/* SPDX-License-Identifier: MIT */
/* Scopes and shields of plain threads when the runtime stops, and where there is none. */
#include <sched.h>

#include "api/common.h"

static weft_chan *never; /* nobody sends */
static atomic_int in, stopped, over;

static void begin_test(void) {
    if (!never) never = weft_chan_new(sizeof(int), 0);
    CHECK(never != NULL);
    atomic_store(&in, 0);
    atomic_store(&stopped, 0);
    atomic_store(&over, 0);
}

static int wait_in_vain(void) {
    int v;
    return weft_chan_recv(never, &v, WEFT_FOREVER);
}

/* A wait for one of several, which is parked in another way. */
static int select_in_vain(void) {
    int v, w;
    return weft_select(WEFT_FOREVER, weft_on_recv(never, &v, NULL), weft_on_recv(never, &w, NULL));
}

/* fn in a plain thread, from before weft_stop until after it. */
static void across_stop(int workers, void *(*fn)(void *), void *arg) {
    pthread_t t;
    begin_test();
    CHECK_EQ(set_up(workers), 0);
    CHECK_EQ(pthread_create(&t, NULL, fn, arg), 0);
    thread_wait(&in, 1);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    atomic_store(&stopped, 1);
    CHECK_EQ(pthread_join(t, NULL), 0);
}

static void check_cancelled(void) {
    CHECK_EQ(weft_cancelled(), 1);
    CHECK_EQ(weft_cancel_cause(), WEFT_ECANCELED);
    CHECK_EQ(wait_in_vain(), WEFT_ECANCELED);
    CHECK_EQ(select_in_vain(), WEFT_ECANCELED);
    CHECK_EQ(weft_sleep_for(WEFT_US), WEFT_ECANCELED);
}

static void check_not_cancelled(void) {
    weft_scope s;
    CHECK_EQ(weft_cancelled(), 0);
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_cancelled(), 0);
    CHECK_EQ(weft_sleep_for(WEFT_US), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
}

/* ---- a scope that is open across weft_stop ---- */

static const weft_scope_opts kinds[] = {{.on_error = 0}, {.limit = 3, .results = true}, {.on_error = WEFT_KEEP_GOING}};

static void *open_across(void *arg) {
    int how = (int)(intptr_t)arg;
    weft_scope outer, inner;
    weft_scope_opts o = kinds[how % 3];
    if (how & 4) o.deadline = weft_after(HOUR);
    weft_scope_begin(&outer, &o);
    if (how & 8) weft_scope_begin(&inner, NULL);
    atomic_store(&in, 1);
    if (how & 16) CHECK_EQ(how & 1 ? wait_in_vain() : select_in_vain(), WEFT_ECANCELED); /* or it computes */
    thread_wait(&stopped, 1);
    check_cancelled();
    CHECK_EQ(weft_spawn(&outer, return_int, NULL), WEFT_ETERMINATED); /* no runtime; it counts as a failed child */
    if (how & 8) CHECK_EQ(weft_scope_end(&inner), WEFT_ECANCELED);
    CHECK_EQ(weft_scope_end(&outer), WEFT_ETERMINATED);
    weft_scope_begin(&outer, &o);
    CHECK_EQ(weft_cancelled(), 0);
    CHECK_EQ(weft_scope_end(&outer), 0);
    check_not_cancelled();
    return NULL;
}

static void *open_across_quietly(void *arg) {
    weft_scope s;
    (void)arg;
    weft_scope_begin(&s, NULL);
    atomic_store(&in, 1);
    thread_wait(&stopped, 1);
    CHECK_EQ(weft_scope_end(&s), WEFT_ECANCELED); /* nothing has looked at it before */
    check_not_cancelled();
    return NULL;
}

TEST(thread_stop, a_scope_that_was_open_across_it_is_cancelled_for_good) {
    for (int how = 0; how < 32; how++) across_stop(1 + how % 2, open_across, as_arg(how));
    EACH_WORKERS(w) across_stop(w, open_across_quietly, NULL);
}

/* Another runtime does not change that. */
TEST(thread_stop, it_stays_cancelled_in_the_next_runtime) {
    weft_scope s;
    begin_test();
    CHECK_EQ(set_up(2), 0);
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    CHECK_EQ(set_up(2), 0);
    check_cancelled();
    CHECK_EQ(weft_spawn(&s, return_int, NULL), WEFT_ECANCELED);
    CHECK_EQ(weft_scope_end(&s), WEFT_ECANCELED);
    check_not_cancelled();
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
}

/* ---- opened while it stops ---- */

static int hold_up(void *arg) {
    (void)arg;
    CHECK_EQ(weft_sleep(WEFT_FOREVER), WEFT_ECANCELED);
    atomic_store(&in, 1); /* the root is cancelled */
    CHECK_EQ(weft_shield_begin(WEFT_FOREVER), 0);
    task_wait(&over, 1);
    weft_shield_end();
    return 0;
}

static void *stop_it(void *arg) {
    (void)arg;
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    atomic_store(&stopped, 1);
    return NULL;
}

TEST(thread_stop, a_scope_opened_while_the_runtime_stops_is_cancelled_for_good) {
    EACH_WORKERS(w) {
        pthread_t t;
        weft_scope s;
        begin_test();
        CHECK_EQ(set_up(w), 0);
        CHECK_EQ(weft_go(hold_up, NULL), 0);
        CHECK_EQ(pthread_create(&t, NULL, stop_it, NULL), 0);
        thread_wait(&in, 1);
        weft_scope_begin(&s, NULL);
        check_cancelled();
        atomic_store(&over, 1);
        thread_wait(&stopped, 1);
        check_cancelled();
        CHECK_EQ(weft_scope_end(&s), WEFT_ECANCELED);
        CHECK_EQ(pthread_join(t, NULL), 0);
        check_not_cancelled();
    }
}

/* ---- shields ---- */

enum { ALONE, IN_SCOPE, AFTERWARDS, SHIELDS };

static void *shield_across(void *arg) {
    int how = (int)(intptr_t)arg;
    weft_scope s;
    if (how != ALONE) weft_scope_begin(&s, NULL);
    if (how == AFTERWARDS) {
        atomic_store(&in, 1);
        thread_wait(&stopped, 1);
        check_cancelled();
    }
    weft_deadline until = weft_after(20 * WEFT_MS);
    CHECK_EQ(weft_shield_begin(until), 0);
    atomic_store(&in, 1);
    CHECK_EQ(how % 2 ? wait_in_vain() : select_in_vain(), WEFT_ECANCELED);
    CHECK_GE(weft_now(), until.ns);
    check_cancelled();
    weft_shield_end();
    CHECK_EQ(weft_cancelled(), how != ALONE);
    if (how != ALONE) CHECK_EQ(weft_scope_end(&s), WEFT_ECANCELED);
    thread_wait(&stopped, 1); /* until then new scopes are cancelled too */
    check_not_cancelled();
    return NULL;
}

TEST(thread_stop, a_shield_keeps_its_time) {
    for (int how = 0; how < SHIELDS; how++) EACH_WORKERS(w) across_stop(w, shield_across, as_arg(how));
}

/* It computes, and asks now and then. */
static void *shield_and_ask(void *arg) {
    (void)arg;
    CHECK_EQ(weft_shield_begin(weft_after(20 * WEFT_MS)), 0);
    atomic_store(&in, 1);
    thread_wait(&stopped, 1);
    while (!weft_cancelled()) sched_yield();
    CHECK_EQ(weft_cancel_cause(), WEFT_ECANCELED);
    weft_shield_end();
    CHECK_EQ(weft_cancelled(), 0);
    return NULL;
}

TEST(thread_stop, a_shields_time_is_seen_by_a_thread_that_computes) { across_stop(2, shield_and_ask, NULL); }

static void *shield_for_ever(void *arg) {
    weft_scope s, inner;
    (void)arg;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_shield_begin(WEFT_FOREVER), 0);
    weft_scope_begin(&inner, NULL);
    atomic_store(&in, 1);
    thread_wait(&stopped, 1);
    CHECK_EQ(weft_cancelled(), 0);
    CHECK_EQ(weft_sleep_for(WEFT_US), 0);
    CHECK_EQ(weft_scope_end(&inner), 0);
    weft_shield_end();
    check_cancelled();
    CHECK_EQ(weft_scope_end(&s), WEFT_ECANCELED);
    return NULL;
}

TEST(thread_stop, a_shield_without_an_end_keeps_it_out) { across_stop(2, shield_for_ever, NULL); }

/* ---- no runtime at all ---- */

static void pass_deadline(int how) {
    weft_scope s, inner;
    weft_deadline until = weft_after(3 * WEFT_MS);
    weft_scope_begin(&s, &(weft_scope_opts){.deadline = until});
    weft_scope_begin(&inner, NULL);
    if (how == 0) CHECK_EQ(wait_in_vain(), WEFT_ECANCELED);
    if (how == 1) CHECK_EQ(select_in_vain(), WEFT_ECANCELED);
    if (how == 2) CHECK_EQ(weft_sleep_for(HOUR), WEFT_ECANCELED);
    while (how == 3 && !weft_cancelled()) sched_yield();
    while (how == 4 && weft_sleep_for(0) == 0) sched_yield();
    while (how == 5 && weft_now() < until.ns) sched_yield(); /* weft_scope_end is the first that asks */
    CHECK_GE(weft_now(), until.ns);
    if (how < 5) {
        CHECK_EQ(weft_cancelled(), 1);
        CHECK_EQ(weft_cancel_cause(), WEFT_ETIMEDOUT);
    }
    CHECK_EQ(weft_scope_end(&inner), WEFT_ECANCELED);
    CHECK_EQ(weft_scope_end(&s), WEFT_ETIMEDOUT);
    check_not_cancelled();
}

static void pass_shielded(void) {
    weft_scope s;
    weft_deadline until = weft_after(2 * WEFT_MS), later = weft_after(6 * WEFT_MS);
    weft_scope_begin(&s, &(weft_scope_opts){.deadline = until});
    CHECK_EQ(weft_shield_begin(later), 0);
    CHECK_EQ(wait_in_vain(), WEFT_ECANCELED);
    CHECK_GE(weft_now(), later.ns);
    weft_shield_end();
    CHECK_EQ(weft_cancel_cause(), WEFT_ETIMEDOUT);
    CHECK_EQ(weft_scope_end(&s), WEFT_ETIMEDOUT);
    check_not_cancelled();
}

/* A scope in a cancelled one does not cancel itself; a wait under a shield must not be disturbed by that. */
static void pass_inside_cancelled(void) {
    weft_scope outer, s;
    weft_deadline later = weft_after(6 * WEFT_MS);
    weft_scope_begin(&outer, NULL);
    weft_scope_cancel(&outer);
    weft_scope_begin(&s, &(weft_scope_opts){.deadline = weft_after(2 * WEFT_MS)});
    CHECK_EQ(weft_shield_begin(later), 0);
    CHECK_EQ(wait_in_vain(), WEFT_ECANCELED);
    CHECK_GE(weft_now(), later.ns);
    weft_shield_end();
    CHECK_EQ(weft_scope_end(&s), WEFT_ECANCELED);
    CHECK_EQ(weft_scope_end(&outer), 0);
}

static void pass_all(void) {
    for (int how = 0; how < 6; how++) pass_deadline(how);
    pass_shielded();
    pass_inside_cancelled();
}

TEST(thread_stop, deadlines_of_scopes_pass_with_and_without_a_runtime) {
    begin_test();
    pass_all();
    EACH_WORKERS(w) {
        CHECK_EQ(set_up(w), 0);
        pass_all();
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
        pass_all();
    }
}
