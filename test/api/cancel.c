/* SPDX-License-Identifier: MIT */
/* Cancellation of every wait there is, by everything that cancels; and what it must not do. */
#include "api/common.h"

#define UNTOUCHED 0x5a5a5a5a

/* What the victims wait on. The channels never get a partner. */
static struct stage {
    weft_chan *no_taker, *no_giver; /* rendezvous: one only for senders, one only for receivers */
    weft_chan *full, *room;         /* capacity 1: full, and empty; for senders and receivers */
    weft_task *sleeper[2];          /* to join: do not end by themselves */
    atomic_int waiting;             /* victims about to wait */
    atomic_int left;                /* those that stay, after their waits */
    int cause;                      /* what weft_cancel_cause must say afterwards */
} stage;

/* ---- the waits ---- */

static int wait_send(void) {
    int v = 1;
    return weft_chan_send(stage.no_taker, &v, WEFT_FOREVER);
}

static int wait_send_full(void) {
    int v = 1;
    return weft_chan_send(stage.full, &v, WEFT_FOREVER);
}

static int wait_send_until(void) {
    int v = 1;
    return weft_chan_send(stage.full, &v, weft_after(HOUR));
}

static int wait_recv(void) {
    int v = UNTOUCHED, rc = weft_chan_recv(stage.no_giver, &v, WEFT_FOREVER);
    CHECK_EQ(v, UNTOUCHED);
    return rc;
}

static int wait_recv_until(void) {
    int v = UNTOUCHED, rc = weft_chan_recv(stage.room, &v, weft_after(HOUR));
    CHECK_EQ(v, UNTOUCHED);
    return rc;
}

static int wait_select(void) {
    int v = UNTOUCHED, w = 3;
    bool open = true;
    int rc = weft_select(WEFT_FOREVER, weft_on_recv(stage.no_giver, &v, &open), weft_on_send(stage.full, &w));
    CHECK_EQ(v, UNTOUCHED);
    return rc;
}

static int wait_select_until(void) {
    int v = UNTOUCHED;
    int rc = weft_select(weft_after(HOUR), weft_on_recv(stage.room, &v, NULL), weft_on_recv(NULL, NULL, NULL));
    CHECK_EQ(v, UNTOUCHED);
    return rc;
}

static int wait_select_large(void) {
    weft_case k[40];
    int v[40], w = 9;
    for (int i = 0; i < 40; i++) {
        v[i] = UNTOUCHED;
        k[i] = i % 2 ? weft_on_recv(stage.room, &v[i], NULL) : weft_on_send(stage.no_taker, &w);
    }
    int rc = weft_selectv(k, 40, WEFT_FOREVER);
    for (int i = 0; i < 40; i++) CHECK_EQ(v[i], UNTOUCHED);
    return rc;
}

static int wait_select_nothing(void) {
    return weft_select(WEFT_FOREVER, weft_on_recv(NULL, NULL, NULL), weft_on_send(NULL, NULL));
}

static int wait_sleep(void) { return weft_sleep(WEFT_FOREVER); }

static int wait_sleep_for(void) { return weft_sleep_for(HOUR); }

static int wait_join(void) {
    int r = UNTOUCHED, rc = weft_task_join(stage.sleeper[0], &r, WEFT_FOREVER);
    CHECK_EQ(r, UNTOUCHED);
    return rc;
}

static int wait_join_until(void) { return weft_task_join(stage.sleeper[1], NULL, weft_after(HOUR)); }

static int (*const waits[])(void) = {
    wait_send,         wait_send_full, wait_send_until, wait_recv, wait_recv_until, wait_select,         wait_select_until,
    wait_select_large, wait_sleep,     wait_sleep_for,  wait_join, wait_join_until, wait_select_nothing,
};

/* After it: every operation fails before trying, even those that could be done at once. (Those with
 * WEFT_POLL are in try_once.c.) */
static void check_level_triggered(void) {
    int v = UNTOUCHED;
    bool open = true;
    CHECK_EQ(weft_cancelled(), 1);
    CHECK_EQ(weft_cancel_cause(), stage.cause);
    CHECK_EQ(weft_chan_send(stage.room, &v, WEFT_FOREVER), WEFT_ECANCELED);
    CHECK_EQ(weft_chan_send(stage.room, &v, weft_at(1)), WEFT_ECANCELED);
    CHECK_EQ(weft_chan_len(stage.room), 0);
    CHECK_EQ(weft_chan_recv(stage.full, &v, WEFT_FOREVER), WEFT_ECANCELED);
    CHECK_EQ(weft_chan_recv(stage.full, &v, weft_at(1)), WEFT_ECANCELED);
    CHECK_EQ(weft_select(weft_at(1), weft_on_recv(stage.full, &v, &open)), WEFT_ECANCELED);
    CHECK_EQ(weft_chan_len(stage.full), 1);
    CHECK_EQ(v, UNTOUCHED);
    CHECK_EQ(weft_sleep_for(0), WEFT_ECANCELED);
    CHECK_EQ(weft_sleep(weft_at(1)), WEFT_ECANCELED);
    CHECK_EQ(weft_task_join(stage.sleeper[0], NULL, weft_at(1)), WEFT_ECANCELED);
}

static int victim(void *arg) {
    int (*wait)(void) = waits[(intptr_t)arg];
    atomic_fetch_add(&stage.waiting, 1);
    CHECK_MSG(wait() == WEFT_ECANCELED, "wait %d was not cancelled", (int)(intptr_t)arg);
    check_level_triggered();
    return 0;
}

/* ---- what cancels ---- */

static void by_scope_cancel(bool parked) {
    weft_scope s;
    stage.cause = WEFT_ECANCELED;
    weft_scope_begin(&s, NULL);
    for (size_t i = 0; i < COUNT(waits); i++) CHECK_EQ(weft_spawn(&s, victim, as_arg((intptr_t)i)), 0);
    if (parked) task_wait_parked(&stage.waiting, COUNT(waits));
    weft_scope_cancel(&s);
    CHECK_EQ(weft_scope_end(&s), 0);
}

static void by_scope_deadline(bool parked) {
    weft_scope s;
    weft_scope_opts o = {.deadline = weft_after(5 * WEFT_MS), .on_error = 0};
    int accepted = 0;
    stage.cause = WEFT_ETIMEDOUT;
    weft_scope_begin(&s, &o);
    for (size_t i = 0; i < COUNT(waits); i++) {
        int rc = weft_spawn(&s, victim, as_arg((intptr_t)i));
        CHECK(rc == 0 || rc == WEFT_ECANCELED); /* refused if this machine is that slow */
        accepted += rc == 0;
    }
    if (parked) CHECK_EQ(weft_sleep(WEFT_FOREVER), WEFT_ECANCELED);
    CHECK_EQ(weft_scope_end(&s), WEFT_ETIMEDOUT);
    CHECK_EQ(atomic_load(&stage.waiting), accepted);
}

static void by_siblings_error(bool parked) {
    weft_scope s;
    stage.cause = -31;
    weft_scope_begin(&s, NULL);
    for (size_t i = 0; i < COUNT(waits); i++) CHECK_EQ(weft_spawn(&s, victim, as_arg((intptr_t)i)), 0);
    if (parked) task_wait_parked(&stage.waiting, COUNT(waits));
    CHECK_EQ(weft_spawn(&s, return_int, as_arg(-31)), 0);
    CHECK_EQ(weft_scope_end(&s), -31);
}

static int open_inside(void *arg) {
    weft_scope s;
    weft_scope_begin(&s, NULL);
    weft_spawn(&s, victim, arg); /* may come too late; then it does not count itself */
    CHECK_EQ(weft_scope_end(&s), WEFT_ECANCELED);
    return 0;
}

static void by_outer_scope(bool parked) {
    weft_scope s;
    stage.cause = WEFT_ECANCELED;
    weft_scope_begin(&s, NULL);
    for (size_t i = 0; i < COUNT(waits); i++) CHECK_EQ(weft_spawn(&s, open_inside, as_arg((intptr_t)i)), 0);
    if (parked) task_wait_parked(&stage.waiting, COUNT(waits));
    weft_scope_cancel(&s);
    CHECK_EQ(weft_scope_end(&s), 0);
}

static void by_task_cancel(bool parked) {
    weft_task *t[COUNT(waits)];
    stage.cause = WEFT_ECANCELED;
    for (size_t i = 0; i < COUNT(waits); i++) CHECK_EQ(weft_task_start(&t[i], victim, as_arg((intptr_t)i), NULL), 0);
    if (parked) task_wait_parked(&stage.waiting, COUNT(waits));
    for (size_t i = 0; i < COUNT(waits); i++) weft_task_cancel(t[i]);
    for (size_t i = 0; i < COUNT(waits); i++) CHECK_EQ(weft_task_join(t[i], NULL, WEFT_FOREVER), 0);
}

/* The opener itself, not a child. */
static void by_own_scope(bool parked) {
    stage.cause = WEFT_ETIMEDOUT;
    for (size_t i = 0; i < COUNT(waits); i++) {
        weft_scope s;
        weft_scope_opts o = {.deadline = parked ? weft_after(WEFT_MS) : weft_at(1), .on_error = 0};
        weft_scope_begin(&s, &o);
        victim(as_arg((intptr_t)i));
        CHECK_EQ(weft_scope_end(&s), WEFT_ETIMEDOUT);
    }
}

static void set_stage_with(weft_fn *sleeper) {
    int v = 1;
    memset(&stage, 0, sizeof stage);
    stage.no_taker = weft_chan_new(sizeof(int), 0);
    stage.no_giver = weft_chan_new(sizeof(int), 0);
    stage.full = weft_chan_new(sizeof(int), 1);
    stage.room = weft_chan_new(sizeof(int), 1);
    CHECK(stage.no_taker && stage.no_giver && stage.full && stage.room);
    CHECK_EQ(weft_chan_send(stage.full, &v, WEFT_FOREVER), 0);
    for (int i = 0; i < 2; i++) CHECK_EQ(weft_task_start(&stage.sleeper[i], sleeper, NULL, NULL), 0);
}

static void set_stage(void) { set_stage_with(wait_for_ever); }

static void drop_channels(void) {
    weft_chan_unref(stage.no_taker); /* aborts if a victim were still in a queue */
    weft_chan_unref(stage.no_giver);
    weft_chan_unref(stage.full);
    weft_chan_unref(stage.room);
}

static void clear_stage(void) {
    for (int i = 0; i < 2; i++) {
        weft_task_cancel(stage.sleeper[i]);
        CHECK_EQ(weft_task_join(stage.sleeper[i], NULL, WEFT_FOREVER), 0);
    }
    drop_channels();
}

static int on_stage(void *arg) {
    void (*cancel)(bool) = *(void (**)(bool))arg;
    for (long round = 0, n = test_scale(20, 3); round < n; round++) {
        set_stage();
        cancel(round % 4 != 0); /* else: while they are starting */
        clear_stage();
    }
    return 0;
}

static void cancel_each(void (*cancel)(bool)) {
    EACH_WORKERS(w)
    CHECK_EQ(run_on(w, on_stage, &cancel), 0);
}

TEST(cancel, scope_cancel_ends_every_wait) { cancel_each(by_scope_cancel); }

TEST(cancel, a_scopes_deadline_ends_every_wait) { cancel_each(by_scope_deadline); }

TEST(cancel, a_siblings_error_ends_every_wait) { cancel_each(by_siblings_error); }

TEST(cancel, an_outer_scope_ends_every_wait) { cancel_each(by_outer_scope); }

TEST(cancel, task_cancel_ends_every_wait) { cancel_each(by_task_cancel); }

TEST(cancel, the_openers_own_waits_end_too) { cancel_each(by_own_scope); }

/* ---- the end of the runtime ---- */

static int stay(void *arg) {
    atomic_fetch_add(&stage.waiting, 1);
    CHECK_EQ(waits[(intptr_t)arg](), WEFT_ECANCELED);
    CHECK_EQ(weft_cancelled(), 1);
    atomic_fetch_add(&stage.left, 1);
    return 0;
}

/* It is cancelled too, and those who join it must not find it ended. */
static int outlast_the_others(void *arg) {
    CHECK_EQ(wait_for_ever(arg), WEFT_ECANCELED);
    task_wait(&stage.left, COUNT(waits));
    return 0;
}

static int leave_them(void *arg) {
    (void)arg;
    set_stage_with(outlast_the_others);
    for (size_t i = 0; i < COUNT(waits); i++) CHECK_EQ(weft_go(stay, as_arg((intptr_t)i)), 0);
    task_wait_parked(&stage.waiting, COUNT(waits));
    return 0;
}

TEST(cancel, stopping_ends_every_wait) {
    EACH_WORKERS(w) {
        CHECK_EQ(run_on(w, leave_them, NULL), 0);
        for (int i = 0; i < 2; i++) weft_task_unref(stage.sleeper[i]); /* a handle outlives its runtime */
        drop_channels();
    }
}
