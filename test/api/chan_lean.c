/* SPDX-License-Identifier: MIT */
/* Channels whose lock leans to the slot they are used on (base/lock.h): nobody notices, except by the time it takes. */
#include "api/common.h"
#include "chan/chan.h"
#include "os/os.h"
#include "sched/handoff.h"

enum { PLACES = 8 };

/* No channel's lock does where barriers are fences, nor where TSan checks the program. */
static bool can_lean(void) { return !weft__fences && !weft__san_tasks; }
static bool leans(weft_chan *c) { return weft__load(&c->lock.leans, relaxed) != 0; }

/* So many sends and receives, half of each, by this task. */
static void use(weft_chan *c, long n) {
    for (long i = 0; i < n / (2 * PLACES); i++) {
        for (long v = 0; v < PLACES; v++) CHECK_EQ(weft_chan_send(c, &v, WEFT_FOREVER), 0);
        for (long v = 0, got; v < PLACES; v++) {
            CHECK_EQ(weft_chan_recv(c, &got, WEFT_FOREVER), 0);
            CHECK_EQ(got, v);
        }
    }
}

/* One that leans, unless nobody can. */
static weft_chan *one_that_leans(void) {
    weft_chan *c = weft_chan_new(sizeof(long), PLACES);
    use(c, 4 * (long)weft__chan_lean_after);
    CHECK_EQ(leans(c), can_lean());
    return c;
}

static int use_for_long(void *arg) {
    (void)arg;
    weft_chan *c = weft_chan_new(sizeof(long), PLACES);
    use(c, weft__chan_lean_after / 2);
    CHECK(!leans(c));
    use(c, 2 * (long)weft__chan_lean_after);
    CHECK_EQ(leans(c), can_lean());
    use(c, weft__chan_lean_after);
    CHECK_EQ(leans(c), can_lean());
    CHECK_EQ(weft_chan_len(c), 0); /* from the same slot: that does not straighten it */
    CHECK_EQ(leans(c), can_lean());
    weft_chan_stats s;
    weft_chan_stats_get(c, &s);
    CHECK_EQ(s.sent, s.received);
    weft_chan_close(c);
    CHECK_EQ(weft_chan_send(c, &s, WEFT_FOREVER), WEFT_ECLOSED);
    weft_chan_unref(c);
    return 0;
}

TEST(chan_lean, one_that_is_used_on_one_slot_for_long_leans_to_it) { CHECK_EQ(run_on(1, use_for_long, NULL), 0); }

static int give_back(void *arg) {
    weft_chan **c = arg;
    long v;
    while (weft_chan_recv(c[0], &v, WEFT_FOREVER) == 0) CHECK_EQ(weft_chan_send(c[1], &v, WEFT_FOREVER), 0);
    return 0;
}

static int meet_for_long(void *arg) {
    (void)arg;
    weft_chan *c[2] = {weft_chan_new(sizeof(long), 0), weft_chan_new(sizeof(long), 0)};
    weft_scope s;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, give_back, c), 0);
    for (long v = 0, got; v < 2 * (long)weft__chan_lean_after; v++) {
        CHECK_EQ(weft_chan_send(c[0], &v, WEFT_FOREVER), 0);
        CHECK_EQ(weft_chan_recv(c[1], &got, WEFT_FOREVER), 0);
        CHECK_EQ(got, v);
    }
    CHECK(!leans(c[0]) && !leans(c[1])); /* C7 */
    weft_chan_close(c[0]);
    CHECK_EQ(weft_scope_end(&s), 0);
    for (int i = 0; i < 2; i++) weft_chan_unref(c[i]);
    return 0;
}

TEST(chan_lean, a_rendezvous_never_does) { CHECK_EQ(run_on(1, meet_for_long, NULL), 0); }

static void *take_one(void *c) {
    long v = 0;
    CHECK_EQ(weft_chan_recv(c, &v, WEFT_FOREVER), 0);
    return (void *)v;
}

static int let_others_come(void *arg) {
    (void)arg;
    weft_chan *c = weft_chan_new(sizeof(long), PLACES);
    for (int i = 0; i < 10000 && !leans(c); i++) use(c, 2 * PLACES);
    CHECK_EQ(leans(c), can_lean());
    pthread_t t;
    void *got;
    for (long v = 1; v <= 2; v++) {
        CHECK_EQ(weft_chan_send(c, &v, WEFT_FOREVER), 0);
        CHECK_EQ(pthread_create(&t, NULL, take_one, c), 0);
        pthread_join(t, &got);
        CHECK_EQ((long)got, v);
        CHECK(!leans(c));
    }
    use(c, weft__chan_lean_after); /* it was of no use: not before it was twice as much */
    CHECK(!leans(c));
    use(c, 4 * (long)weft__chan_lean_after);
    CHECK_EQ(leans(c), can_lean());
    weft_chan_unref(c);
    return 0;
}

TEST(chan_lean, whoever_else_comes_straightens_it) { CHECK_EQ(run_on(1, let_others_come, NULL), 0); }

/* Who straightens it comes while it is held by leaning, at the end of a lap: the first half of weft__lock_take, by hand. */
static int end_a_lap_meanwhile(void *arg) {
    (void)arg;
    weft__chan_lean_after = 0;
    weft__chan_lean_growth = 1;
    weft_chan *c = weft_chan_new(sizeof(long), PLACES);
    long v = 1, got;
    use(c, 8 * PLACES);
    CHECK_EQ(leans(c), can_lean());
    for (int i = 0; i < 3; i++) CHECK_EQ(weft_chan_send(c, &v, WEFT_FOREVER), 0);
    CHECK_EQ(weft_chan_recv(c, &got, WEFT_FOREVER), 0); /* `first` is no lap's */
    weft__slot *s = weft__enter();
    CHECK(weft__lean_take(&c->lock, s->lean));
    CHECK(weft__lock_take_upright(&c->lock));
    weft__store(&c->lock.leans, 0, relaxed);
    (void)weft__chan_received_lump(c, s); /* leaves the lock and the runtime */
    CHECK(!leans(c));                     /* K1 */
    CHECK_EQ(weft__load(&c->lock.kept, relaxed), 0);
    CHECK(!weft__lock_take_upright(&c->lock)); /* it is still the other's */
    weft__lock_leave_upright(&c->lock);
    for (int i = 0; i < 2; i++) CHECK_EQ(weft_chan_recv(c, &got, WEFT_FOREVER), 0);
    weft_chan_unref(c);
    return 0;
}

TEST(chan_lean, it_does_not_lean_anew_while_somebody_straightens_it) {
    weft__barrier_init();
    if (!can_lean()) test_skip("no lock leans here");
    CHECK_EQ(run_on(1, end_a_lap_meanwhile, NULL), 0);
}

/* ---- waiting ---- */

static int receive(void *c) {
    long v;
    return weft_chan_recv(c, &v, WEFT_FOREVER);
}

static int send_to_full(void *c) {
    long v = 1;
    return weft_chan_send(c, &v, WEFT_FOREVER);
}

static int wait_in_all_ways(void *arg) {
    (void)arg;
    weft_chan *c = one_that_leans();
    weft_task *t;
    long v = 5;
    int result;
    CHECK_EQ(weft_chan_recv(c, &v, weft_after(WEFT_MS)), WEFT_ETIMEDOUT);
    CHECK_EQ(weft_chan_try_recv(c, &v), WEFT_EAGAIN);
    CHECK_EQ(v, 5);
    CHECK_EQ(weft_task_start(&t, receive, c, NULL), 0);
    while (c->receivers.head == NULL) weft_yield();
    weft_task_cancel(t);
    CHECK_EQ(weft_task_join(t, &result, WEFT_FOREVER), 0);
    CHECK_EQ(result, WEFT_ECANCELED);
    CHECK_EQ(weft_task_start(&t, receive, c, NULL), 0);
    while (c->receivers.head == NULL) weft_yield();
    CHECK_EQ(weft_chan_send(c, &v, WEFT_FOREVER), 0);
    CHECK_EQ(weft_task_join(t, &result, WEFT_FOREVER), 0);
    CHECK_EQ(result, 0);
    for (v = 0; v < PLACES; v++) CHECK_EQ(weft_chan_send(c, &v, WEFT_FOREVER), 0);
    CHECK_EQ(weft_chan_send(c, &v, weft_after(WEFT_MS)), WEFT_ETIMEDOUT);
    CHECK_EQ(weft_task_start(&t, send_to_full, c, NULL), 0);
    while (c->senders.head == NULL) weft_yield();
    weft_chan_close(c);
    CHECK_EQ(weft_task_join(t, &result, WEFT_FOREVER), 0);
    CHECK_EQ(result, WEFT_ECLOSED);
    weft_chan_unref(c);
    return 0;
}

TEST(chan_lean, who_waits_there_is_served_cancelled_and_timed_out) { CHECK_EQ(run_on(1, wait_in_all_ways, NULL), 0); }

static int select_two(void *arg) {
    weft_chan **c = arg;
    long v, sum = 0;
    for (int i = 0; i < 100; i++) {
        int hit = weft_select(WEFT_FOREVER, weft_on_recv(c[0], &v, NULL), weft_on_recv(c[1], &v, NULL));
        CHECK(hit == 0 || hit == 1);
        CHECK_EQ(v % 2, hit);
        sum += v;
    }
    return (int)sum;
}

static int select_on_both(void *arg) {
    (void)arg;
    weft_chan *c[2] = {one_that_leans(), one_that_leans()};
    weft_task *t;
    int result;
    CHECK_EQ(weft_task_start(&t, select_two, c, NULL), 0);
    for (long v = 0; v < 100; v++) {
        CHECK_EQ(weft_chan_send(c[v % 2], &v, WEFT_FOREVER), 0);
        if (v % 3 == 0) weft_yield(); /* so that it finds something, and waits */
    }
    CHECK_EQ(weft_task_join(t, &result, WEFT_FOREVER), 0);
    CHECK_EQ(result, 99 * 100 / 2);
    CHECK_EQ(leans(c[0]) && leans(c[1]), can_lean());
    for (int i = 0; i < 2; i++) weft_chan_unref(c[i]);
    return 0;
}

TEST(chan_lean, selects_of_the_same_slot_leave_it_as_it_is) { CHECK_EQ(run_on(1, select_on_both, NULL), 0); }

/* ---- other runtimes, and none ---- */

static int make_one(void *out) {
    weft_chan *c = one_that_leans();
    long v = 7;
    CHECK_EQ(weft_chan_send(c, &v, WEFT_FOREVER), 0);
    *(weft_chan **)out = c;
    return 0;
}

static int receive_seven(void *c) {
    long v;
    CHECK_EQ(weft_chan_recv(c, &v, WEFT_FOREVER), 0);
    CHECK_EQ(v, 7);
    use(c, 100);
    return 0;
}

TEST(chan_lean, it_outlives_its_runtime) {
    weft_chan *c;
    long v;
    CHECK_EQ(run_on(1, make_one, &c), 0);
    CHECK_EQ(run_on(2, receive_seven, c), 0);
    weft_chan_unref(c);
    CHECK_EQ(run_on(1, make_one, &c), 0);
    CHECK_EQ(weft_chan_recv(c, &v, WEFT_FOREVER), 0); /* without one */
    CHECK_EQ(v, 7);
    weft_chan_unref(c);
}
