/* SPDX-License-Identifier: MIT */
/* An operation that its counterpart has claimed succeeds, whatever arrives later: a cancellation, a deadline, a close. A
 * successful try_send on a rendezvous channel proves that a receiver was parked there and has been claimed. */
#include "api/common.h"
#include "time/clock.h"

static weft_chan *c, *other;

/* Each waits once and checks what it was given; the argument is its deadline, or NULL. */
typedef int waiter(void *arg);

static weft_deadline deadline_of(void *arg) { return arg ? *(weft_deadline *)arg : WEFT_FOREVER; }

static int claimed_recv(void *arg) {
    int v = 0;
    CHECK_EQ(weft_chan_recv(c, &v, deadline_of(arg)), 0);
    CHECK_EQ(v, 77);
    return 0;
}

static int claimed_send(void *arg) {
    int v = 77;
    CHECK_EQ(weft_chan_send(c, &v, deadline_of(arg)), 0);
    return 0;
}

static int claimed_select_recv(void *arg) {
    int v = 0, x = 0;
    bool open = false;
    CHECK_EQ(weft_select(deadline_of(arg), weft_on_recv(other, &x, NULL), weft_on_recv(c, &v, &open)), 1);
    CHECK_EQ(v, 77);
    CHECK(open);
    return 0;
}

static int claimed_select_send(void *arg) {
    int v = 77, x = 0;
    CHECK_EQ(weft_select(deadline_of(arg), weft_on_send(c, &v), weft_on_recv(other, &x, NULL)), 0);
    return 0;
}

static const struct {
    waiter *fn;
    bool receives;
} waiters[] = {{claimed_recv, true}, {claimed_send, false}, {claimed_select_recv, true}, {claimed_select_send, false}};

/* Claims the one that waits on c. */
static void claim(bool receives) {
    int v = receives ? 77 : 0, rc;
    while ((rc = receives ? weft_chan_try_send(c, &v) : weft_chan_try_recv(c, &v)) == WEFT_EAGAIN) weft_yield();
    CHECK_EQ(rc, 0);
    CHECK_EQ(v, 77);
}

static void make_channels(void) {
    c = weft_chan_new(sizeof(int), 0);
    other = weft_chan_new(sizeof(int), 0);
    CHECK(c && other);
}

static void drop_channels(void) {
    weft_chan_unref(c);
    weft_chan_unref(other);
}

static int then_cancel(void *arg) {
    (void)arg;
    for (int i = 0; i < 200; i++) {
        weft_scope s;
        make_channels();
        weft_scope_begin(&s, NULL);
        CHECK_EQ(weft_spawn(&s, waiters[i % 4].fn, NULL), 0);
        claim(waiters[i % 4].receives);
        weft_scope_cancel(&s);
        CHECK_EQ(weft_scope_end(&s), 0);
        drop_channels();
    }
    return 0;
}

TEST(claimed, cancellation_comes_too_late) { run_each(then_cancel); }

static int then_task_cancel(void *arg) {
    (void)arg;
    for (int i = 0; i < 200; i++) {
        weft_task *t = NULL;
        make_channels();
        CHECK_EQ(weft_task_start(&t, waiters[i % 4].fn, NULL, NULL), 0);
        claim(waiters[i % 4].receives);
        weft_task_cancel(t);
        CHECK_EQ(weft_task_join(t, NULL, WEFT_FOREVER), 0);
        drop_channels();
    }
    return 0;
}

TEST(claimed, task_cancel_comes_too_late) { run_each(then_task_cancel); }

static int then_close(void *arg) {
    (void)arg;
    for (int i = 0; i < 200; i++) {
        weft_scope s;
        make_channels();
        weft_scope_begin(&s, NULL);
        CHECK_EQ(weft_spawn(&s, waiters[i % 4].fn, NULL), 0);
        claim(waiters[i % 4].receives);
        CHECK_EQ(weft_chan_close(c), 0);
        CHECK_EQ(weft_chan_close(other), 0);
        CHECK_EQ(weft_scope_end(&s), 0);
        drop_channels();
    }
    return 0;
}

TEST(claimed, close_comes_too_late) { run_each(then_close); }

static int then_time_out(void *arg) {
    (void)arg;
    for (int i = 0; i < 200; i++) {
        weft_scope s;
        weft_deadline d = weft_after(WEFT_SECOND);
        make_channels();
        weft_scope_begin(&s, NULL);
        CHECK_EQ(weft_spawn(&s, waiters[i % 4].fn, &d), 0);
        claim(waiters[i % 4].receives);
        weft__clock_advance(2 * WEFT_SECOND);
        CHECK_EQ(weft_scope_end(&s), 0);
        drop_channels();
    }
    return 0;
}

TEST(claimed, the_deadline_comes_too_late) {
    weft__clock_fake(WEFT_SECOND);
    run_each(then_time_out);
    weft__clock_fake(0);
}

/* All at once, in a race: whoever of the waiter and the canceller wins, both sides must agree. */
static int racing_recv(void *arg) {
    int v = 0, rc = weft_chan_recv(c, &v, WEFT_FOREVER);
    CHECK(rc == 0 || rc == WEFT_ECANCELED);
    CHECK_EQ(v, rc == 0 ? 77 : 0);
    *(int *)arg = rc;
    return 0;
}

static int cancel_scope(void *arg) {
    weft_scope_cancel(arg);
    return 0;
}

static int race(void *arg) {
    (void)arg;
    long rounds = test_scale(3000, 200);
    for (long i = 0; i < rounds; i++) {
        weft_scope s;
        int got = 1, v = 77, rc;
        make_channels();
        weft_scope_begin(&s, NULL);
        CHECK_EQ(weft_spawn(&s, racing_recv, &got), 0);
        CHECK_EQ(weft_spawn(&s, cancel_scope, &s), 0);
        while ((rc = weft_chan_try_send(c, &v)) == WEFT_EAGAIN) weft_yield();
        CHECK(rc == 0 || rc == WEFT_ECANCELED);
        CHECK_EQ(weft_scope_end(&s), 0);
        CHECK_EQ(got == 0, rc == 0); /* sent exactly if received */
        drop_channels();
    }
    return 0;
}

TEST(claimed, both_sides_agree_when_cancellation_races) { run_each(race); }
