/* SPDX-License-Identifier: MIT */
/* Plain threads with deadlines: alone, with each other and with tasks; a runtime beside them or not. */
#include "api/fake.h"

static void *in_thread(void *(*fn)(void *), void *arg, pthread_t *t) {
    CHECK_EQ(pthread_create(t, NULL, fn, arg), 0);
    return arg;
}

/* ---- without a runtime ---- */

static weft_chan *a, *b;

static void *answer_thread(void *arg) {
    int v;
    (void)arg;
    WEFT_CHAN_EACH(a, &v) CHECK_EQ(weft_chan_send(b, &v, WEFT_FOREVER), 0);
    CHECK_EQ(weft_chan_close(b), 0);
    return NULL;
}

TEST(embed, threads_talk_over_channels_without_a_runtime) {
    pthread_t t;
    a = weft_chan_new(sizeof(int), 0);
    b = weft_chan_new(sizeof(int), 2);
    in_thread(answer_thread, NULL, &t);
    for (int i = 0; i < 1000; i++) {
        int v = -1;
        CHECK_EQ(weft_chan_send(a, &i, WEFT_FOREVER), 0);
        CHECK_EQ(weft_select(WEFT_FOREVER, weft_on_recv(b, &v, NULL)), 0);
        CHECK_EQ(v, i);
    }
    CHECK_EQ(weft_chan_close(a), 0);
    CHECK_EQ(weft_chan_recv(b, NULL, WEFT_FOREVER), WEFT_ECLOSED);
    pthread_join(t, NULL);
    weft_chan_unref(a);
    weft_chan_unref(b);
}

/* Each wait ends by its own deadline, never before it. */
static void check_deadlines(void) {
    int v = 1;
    weft_chan *c = weft_chan_new(sizeof(int), 0);
    for (int i = 0; i < 4; i++) {
        weft_deadline d = weft_after(2 * WEFT_MS);
        CHECK_EQ(i == 0   ? weft_chan_recv(c, &v, d)
                 : i == 1 ? weft_chan_send(c, &v, d)
                 : i == 2 ? weft_select(d, weft_on_recv(c, &v, NULL), weft_on_send(NULL, NULL))
                          : weft_sleep(d) + WEFT_ETIMEDOUT,
                 WEFT_ETIMEDOUT);
        CHECK_GE(weft_now(), d.ns);
        CHECK_EQ(weft_chan_recv(c, &v, weft_at(1)), WEFT_ETIMEDOUT); /* one in the past tries once */
        CHECK_EQ(weft_chan_try_recv(c, &v), WEFT_EAGAIN);
    }
    weft_chan_unref(c);
}

static int check_in_task(void *arg) {
    check_deadlines();
    return (int)(intptr_t)arg;
}

TEST(embed, a_threads_deadlines_pass_with_and_without_a_runtime) {
    check_deadlines();
    EACH_WORKERS(w) {
        CHECK_EQ(set_up(w), 0);
        check_deadlines();
        CHECK_EQ(weft_block_on(check_in_task, as_arg(2)), 2);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    }
    check_deadlines();
}

/* ---- with one ---- */

static int let_time_pass(void *arg) {
    (void)arg;
    weft__clock_advance(20 * WEFT_MS);
    return 0;
}

TEST(embed, the_deadline_of_a_threads_scope_ends_its_tasks_and_its_own_waits) {
    EACH_WORKERS(w) {
        weft__clock_fake(START);
        CHECK_EQ(set_up(w), 0);
        weft_scope s;
        weft_scope_opts o = {.deadline = weft_after(20 * WEFT_MS), .on_error = WEFT_CANCEL_ALL};
        weft_scope_begin(&s, &o);
        for (int i = 0; i < 10; i++) CHECK_EQ(weft_spawn(&s, wait_for_ever, NULL), 0);
        CHECK_EQ(weft_go(let_time_pass, NULL), 0);
        CHECK_EQ(weft_sleep(WEFT_FOREVER), WEFT_ECANCELED);
        CHECK_EQ(weft_cancel_cause(), WEFT_ETIMEDOUT);
        CHECK_EQ(weft_scope_end(&s), WEFT_ETIMEDOUT);
        CHECK_EQ(weft_cancelled(), 0);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
        weft__clock_fake(0);
    }
}

TEST(embed, a_thread_joins_with_a_deadline) {
    EACH_WORKERS(w) {
        weft_task *t;
        int result = 0;
        CHECK_EQ(set_up(w), 0);
        CHECK_EQ(weft_task_start(&t, wait_for_ever, NULL, NULL), 0);
        CHECK_EQ(weft_task_join(t, &result, WEFT_POLL), WEFT_EAGAIN);
        CHECK_EQ(weft_task_join(t, &result, weft_after(WEFT_MS)), WEFT_ETIMEDOUT);
        weft_task_cancel(t);
        CHECK_EQ(weft_task_join(t, &result, WEFT_FOREVER), 0);
        CHECK_EQ(result, WEFT_ECANCELED);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    }
}

static int recv_until_closed(void *arg) {
    int v, sum = 0;
    (void)arg;
    WEFT_CHAN_EACH(a, &v) sum += v;
    return sum;
}

/* Each thread's own scope, all at once. */
static void *scope_thread(void *arg) {
    weft_scope s;
    (void)arg;
    for (int round = 0; round < 20; round++) {
        weft_scope_begin(&s, NULL);
        for (int i = 0; i < 20; i++) CHECK_EQ(weft_spawn(&s, return_int, as_arg(i)), 0);
        CHECK_EQ(weft_scope_end(&s), 0);
    }
    return NULL;
}

TEST(embed, threads_have_scopes_of_their_own_at_once) {
    EACH_WORKERS(w) {
        pthread_t t[8];
        CHECK_EQ(set_up(w), 0);
        for (size_t i = 0; i < COUNT(t); i++) in_thread(scope_thread, NULL, &t[i]);
        for (size_t i = 0; i < COUNT(t); i++) pthread_join(t[i], NULL);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    }
}

TEST(embed, a_channel_outlives_the_runtime) {
    weft_task *t;
    int v = 5, result = 0;
    a = weft_chan_new(sizeof(int), 4);
    for (int round = 0; round < 3; round++) {
        CHECK_EQ(set_up(2), 0);
        CHECK_EQ(weft_chan_send(a, &v, WEFT_FOREVER), 0);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    }
    CHECK_EQ(weft_chan_len(a), 3);
    CHECK_EQ(set_up(2), 0);
    CHECK_EQ(weft_task_start(&t, recv_until_closed, NULL, NULL), 0);
    CHECK_EQ(weft_chan_close(a), 0);
    CHECK_EQ(weft_task_join(t, &result, WEFT_FOREVER), 0);
    CHECK_EQ(result, 15);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    weft_chan_unref(a);
}

/* ---- stopping under somebody who waits ---- */

static void *block_on_for_ever(void *arg) {
    (void)arg;
    CHECK_EQ(weft_block_on(wait_for_ever, NULL), WEFT_ECANCELED);
    int rc = weft_block_on(wait_for_ever, NULL);
    CHECK_MSG(rc == WEFT_ECANCELED || rc == WEFT_ETERMINATED, "%d", rc); /* still stopping, or stopped */
    return NULL;
}

static bool all_block(void *arg) {
    weft_stats st;
    weft_stats_get(&st);
    return st.tasks >= *(uint64_t *)arg;
}

TEST(embed, stopping_ends_what_threads_block_on) {
    EACH_WORKERS(w) {
        pthread_t t[6];
        uint64_t tasks = COUNT(t);
        CHECK_EQ(set_up(w), 0);
        for (size_t i = 0; i < COUNT(t); i++) in_thread(block_on_for_ever, NULL, &t[i]);
        test_until(all_block, &tasks);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
        for (size_t i = 0; i < COUNT(t); i++) pthread_join(t[i], NULL);
    }
}
