/* SPDX-License-Identifier: MIT */
/* Channels: order, back-pressure, closing, deadlines, elements of all sizes. */
#include "api/common.h"

static weft_chan *new_chan(size_t elem_size, size_t capacity) {
    weft_chan *c = weft_chan_new(elem_size, capacity);
    CHECK(c);
    return c;
}

/* ---- passing elements ---- */

struct stream {
    weft_chan *c;
    int n;
};

static int send_numbers(void *arg) {
    struct stream *st = arg;
    for (int i = 0; i < st->n; i++) CHECK_EQ(weft_chan_send(st->c, &i, WEFT_FOREVER), 0);
    CHECK_EQ(weft_chan_close(st->c), 0);
    return 0;
}

static int stream_in_order(void *arg) {
    (void)arg;
    static const size_t capacities[] = {0, 1, 2, 3, 64, 1000};
    for (size_t k = 0; k < COUNT(capacities); k++) {
        struct stream st = {new_chan(sizeof(int), capacities[k]), 2000};
        weft_scope s;
        weft_scope_begin(&s, NULL);
        CHECK_EQ(weft_spawn(&s, send_numbers, &st), 0);
        int v = -1, n = 0;
        WEFT_CHAN_EACH(st.c, &v)
        CHECK_EQ(v, n++);
        CHECK_EQ(n, st.n);
        CHECK_EQ(weft_scope_end(&s), 0);
        weft_chan_unref(st.c);
    }
    return 0;
}

TEST(chan, elements_arrive_in_order) { run_each(stream_in_order); }

struct meet {
    weft_chan *c;
    atomic_int *progress;
    int got;
};

static int recv_one(void *arg) {
    struct meet *m = arg;
    atomic_fetch_add(m->progress, 1);
    CHECK_EQ(weft_chan_recv(m->c, &m->got, WEFT_FOREVER), 0);
    return 0;
}

static int send_one(void *arg) {
    struct meet *m = arg;
    int v = 9;
    CHECK_EQ(weft_chan_send(m->c, &v, WEFT_FOREVER), 0);
    atomic_fetch_add(m->progress, 1);
    return 0;
}

static int rendezvous(void *arg) {
    (void)arg;
    for (int i = 0; i < 100; i++) {
        atomic_int progress = 0;
        struct meet m = {new_chan(sizeof(int), 0), &progress, 0};
        weft_scope s;
        weft_scope_begin(&s, NULL);
        CHECK_EQ(weft_spawn(&s, recv_one, &m), 0);
        int v = 5;
        CHECK_EQ(weft_chan_send(m.c, &v, WEFT_FOREVER), 0);
        CHECK_EQ(m.got, 5); /* a send ends when its receiver has the element */
        CHECK_EQ(weft_scope_end(&s), 0);
        atomic_store(&progress, 0);
        weft_scope_begin(&s, NULL);
        CHECK_EQ(weft_spawn(&s, send_one, &m), 0);
        for (int k = 0; k < 50; k++) weft_yield();
        CHECK_EQ(atomic_load(&progress), 0); /* nobody has received: the send has not ended */
        CHECK_EQ(weft_chan_len(m.c), 0);
        CHECK_EQ(weft_chan_recv(m.c, &v, WEFT_FOREVER), 0);
        CHECK_EQ(v, 9);
        CHECK_EQ(weft_scope_end(&s), 0);
        weft_chan_unref(m.c);
    }
    return 0;
}

TEST(chan, a_rendezvous_ends_when_the_receiver_has_it) { run_each(rendezvous); }

static int fill_and_drain(void *arg) {
    (void)arg;
    weft_chan *c = new_chan(sizeof(int), 3);
    for (int round = 0; round < 10; round++) {
        CHECK_EQ(weft_chan_cap(c), 3);
        for (int i = 0; i < 3; i++) {
            CHECK_EQ(weft_chan_len(c), i);
            int v = round * 10 + i;
            CHECK_EQ(weft_chan_send(c, &v, WEFT_FOREVER), 0);
        }
        int v = 99;
        CHECK_EQ(weft_chan_len(c), 3);
        CHECK_EQ(weft_chan_try_send(c, &v), WEFT_EAGAIN);
        CHECK_EQ(weft_chan_send(c, &v, weft_at(1)), WEFT_ETIMEDOUT);
        CHECK_EQ(weft_chan_send(c, &v, weft_after(50 * WEFT_US)), WEFT_ETIMEDOUT);
        CHECK_EQ(weft_chan_len(c), 3); /* none of those was sent */
        for (int i = 0; i < 3; i++) {
            CHECK_EQ(weft_chan_recv(c, &v, weft_at(1)), 0); /* a deadline in the past still tries */
            CHECK_EQ(v, round * 10 + i);
        }
        v = 4;
        CHECK_EQ(weft_chan_try_recv(c, &v), WEFT_EAGAIN);
        CHECK_EQ(weft_chan_recv(c, &v, weft_at(1)), WEFT_ETIMEDOUT);
        CHECK_EQ(weft_chan_recv(c, &v, weft_after(50 * WEFT_US)), WEFT_ETIMEDOUT);
        CHECK_EQ(v, 4);
        CHECK_EQ(weft_chan_send(c, &v, weft_at(1)), 0);
        CHECK_EQ(weft_chan_recv(c, NULL, WEFT_FOREVER), 0); /* NULL drops it */
        CHECK_EQ(weft_chan_len(c), 0);
    }
    weft_chan_unref(c);
    return 0;
}

TEST(chan, a_buffer_holds_its_capacity_and_no_more) { run_each(fill_and_drain); }

TEST(chan, plain_threads_fill_and_drain) {
    CHECK_EQ(fill_and_drain(NULL), 0); /* without a runtime */
    CHECK_EQ(set_up(2), 0);
    CHECK_EQ(fill_and_drain(NULL), 0);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
}

static int time_out(void *arg) {
    (void)arg;
    weft_chan *c = new_chan(sizeof(int), 0);
    for (int i = 0; i < 5; i++) {
        int v = 3;
        int64_t before = weft_now();
        CHECK_EQ(weft_chan_recv(c, &v, weft_after(WEFT_MS)), WEFT_ETIMEDOUT);
        CHECK_GE(weft_now() - before, WEFT_MS);
        before = weft_now();
        CHECK_EQ(weft_chan_send(c, &v, weft_after(WEFT_MS)), WEFT_ETIMEDOUT);
        CHECK_GE(weft_now() - before, WEFT_MS);
        CHECK_EQ(v, 3);
    }
    weft_chan_unref(c); /* nobody is left in its queues */
    return 0;
}

TEST(chan, deadlines_are_kept_and_never_early) {
    run_each(time_out);
    CHECK_EQ(time_out(NULL), 0);
}

static int send_within_deadline(void *arg) {
    struct meet *m = arg;
    int v = 1;
    CHECK_EQ(weft_chan_send(m->c, &v, weft_after(HOUR)), 0);
    return 0;
}

static int deadline_not_reached(void *arg) {
    (void)arg;
    for (int i = 0; i < 300; i++) {
        struct meet m = {new_chan(sizeof(int), 0), NULL, 0};
        weft_scope s;
        weft_scope_begin(&s, NULL);
        CHECK_EQ(weft_spawn(&s, send_within_deadline, &m), 0);
        if (i % 2) weft_yield();
        CHECK_EQ(weft_chan_recv(m.c, &m.got, weft_after(HOUR)), 0);
        CHECK_EQ(m.got, 1);
        CHECK_EQ(weft_scope_end(&s), 0);
        weft_chan_unref(m.c);
    }
    return 0;
}

TEST(chan, a_wait_that_is_served_in_time_leaves_no_timer) { run_each(deadline_not_reached); }

/* ---- FIFO among the waiting ---- */

static atomic_int turn;

static int recv_in_turn(void *arg) {
    int mine = atomic_fetch_add(&turn, 1), v = -1; /* one worker: whoever draws first also parks first */
    CHECK_EQ(weft_chan_recv(arg, &v, WEFT_FOREVER), 0);
    CHECK_EQ(v, mine);
    return 0;
}

static int send_in_turn(void *arg) {
    int mine = atomic_fetch_add(&turn, 1);
    CHECK_EQ(weft_chan_send(arg, &mine, WEFT_FOREVER), 0);
    return 0;
}

static int wait_in_turn(void *arg) {
    (void)arg;
    for (int round = 0; round < 10; round++) {
        weft_chan *c = new_chan(sizeof(int), 0);
        weft_scope s;
        atomic_store(&turn, 0);
        weft_scope_begin(&s, NULL);
        for (int i = 0; i < 50; i++) CHECK_EQ(weft_spawn(&s, round % 2 ? recv_in_turn : send_in_turn, c), 0);
        task_wait(&turn, 50);
        for (int i = 0; i < 50; i++) {
            int v = i;
            CHECK_EQ(round % 2 ? weft_chan_send(c, &v, WEFT_FOREVER) : weft_chan_recv(c, &v, WEFT_FOREVER), 0);
            CHECK_EQ(v, i);
        }
        CHECK_EQ(weft_scope_end(&s), 0);
        weft_chan_unref(c);
    }
    return 0;
}

TEST(chan, those_who_wait_are_served_in_turn) { CHECK_EQ(run_on(1, wait_in_turn, NULL), 0); }

static int buffered_before_waiting(void *arg) {
    (void)arg;
    weft_chan *c = new_chan(sizeof(int), 2);
    weft_scope s;
    atomic_store(&turn, 0);
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 10; i++) CHECK_EQ(weft_spawn(&s, send_in_turn, c), 0); /* two go into the buffer, eight wait */
    task_wait(&turn, 10);
    CHECK_EQ(weft_chan_len(c), 2);
    for (int i = 0; i < 10; i++) {
        int v = -1;
        CHECK_EQ(weft_chan_try_recv(c, &v), 0); /* whoever waited moved up at once */
        CHECK_EQ(v, i);
    }
    CHECK_EQ(weft_chan_try_recv(c, NULL), WEFT_EAGAIN);
    CHECK_EQ(weft_scope_end(&s), 0);
    weft_chan_unref(c);
    return 0;
}

TEST(chan, senders_that_wait_come_after_what_is_buffered) { CHECK_EQ(run_on(1, buffered_before_waiting, NULL), 0); }

/* ---- closing ---- */

static int close_buffered(void *arg) {
    (void)arg;
    weft_chan *c = new_chan(sizeof(int), 4);
    int v = 1;
    CHECK_EQ(weft_chan_send(c, &v, WEFT_FOREVER), 0);
    v = 2;
    CHECK_EQ(weft_chan_send(c, &v, WEFT_FOREVER), 0);
    CHECK_EQ(weft_chan_close(c), 0);
    CHECK_EQ(weft_chan_close(c), WEFT_ECLOSED);
    CHECK_EQ(weft_chan_send(c, &v, WEFT_FOREVER), WEFT_ECLOSED);
    CHECK_EQ(weft_chan_try_send(c, &v), WEFT_ECLOSED);
    CHECK_EQ(weft_chan_send(c, &v, weft_at(1)), WEFT_ECLOSED);
    CHECK_EQ(weft_chan_len(c), 2);
    for (int i = 1; i <= 2; i++) {
        CHECK_EQ(weft_chan_recv(c, &v, i == 1 ? WEFT_FOREVER : WEFT_POLL), 0);
        CHECK_EQ(v, i);
    }
    v = 7;
    CHECK_EQ(weft_chan_recv(c, &v, WEFT_FOREVER), WEFT_ECLOSED);
    CHECK_EQ(weft_chan_try_recv(c, &v), WEFT_ECLOSED);
    CHECK_EQ(weft_chan_recv(c, &v, weft_at(1)), WEFT_ECLOSED);
    CHECK_EQ(v, 7);
    weft_chan_unref(c);
    return 0;
}

TEST(chan, what_is_buffered_survives_the_close) {
    run_each(close_buffered);
    CHECK_EQ(close_buffered(NULL), 0);
}

static atomic_int parked;

static int recv_closed(void *arg) {
    int v = 5;
    atomic_fetch_add(&parked, 1);
    CHECK_EQ(weft_chan_recv(arg, &v, WEFT_FOREVER), WEFT_ECLOSED);
    CHECK_EQ(v, 5);
    return 0;
}

static int send_closed(void *arg) {
    int v = 5;
    atomic_fetch_add(&parked, 1);
    CHECK_EQ(weft_chan_send(arg, &v, weft_after(HOUR)), WEFT_ECLOSED);
    return 0;
}

static int close_on_waiters(void *arg) {
    (void)arg;
    for (int round = 0; round < 40; round++) {
        weft_chan *c = new_chan(sizeof(int), (size_t)(round % 3));
        weft_scope s;
        int v = 1;
        bool senders = round & 4;
        atomic_store(&parked, 0);
        while (senders && weft_chan_try_send(c, &v) == 0)
            ;
        weft_scope_begin(&s, NULL);
        for (int i = 0; i < 20; i++) CHECK_EQ(weft_spawn(&s, senders ? send_closed : recv_closed, c), 0);
        if (round & 8) task_wait_parked(&parked, 20);
        CHECK_EQ(weft_chan_close(c), 0);
        CHECK_EQ(weft_scope_end(&s), 0);
        CHECK_EQ(weft_chan_len(c), senders ? (size_t)(round % 3) : 0);
        weft_chan_unref(c);
    }
    return 0;
}

TEST(chan, close_wakes_everybody_who_waits) { run_each(close_on_waiters); }

static int close_and_unref(void *arg) {
    (void)arg;
    for (int round = 0; round < 300; round++) {
        weft_chan *c = new_chan(sizeof(int), 0);
        weft_scope s;
        atomic_store(&parked, 0);
        weft_scope_begin(&s, NULL);
        for (int i = 0; i < 4; i++) CHECK_EQ(weft_spawn(&s, round % 2 ? send_closed : recv_closed, c), 0);
        task_wait(&parked, 4);
        CHECK_EQ(weft_chan_close(c), 0);
        weft_chan_unref(c); /* those woken have not run yet */
        CHECK_EQ(weft_scope_end(&s), 0);
    }
    return 0;
}

TEST(chan, close_and_unref_at_once_is_legal) {
    CHECK_EQ(run_on(1, close_and_unref, NULL), 0); /* with one worker those who counted themselves are parked */
}
