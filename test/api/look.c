/* SPDX-License-Identifier: MIT */
/* What can be asked without changing anything: whether a timer is armed, a channel closed, how many workers there are. */
#include "api/common.h"
#include "api/fake.h"

/* ---- timers ---- */

static weft_timer timer;
static atomic_int calls, armed_inside;

static void called(void *arg) {
    (void)arg;
    atomic_store(&armed_inside, weft_timer_armed(&timer));
    atomic_fetch_add(&calls, 1);
}

static void pass(int64_t duration) {
    weft__clock_advance(duration);
    let_others_run();
}

static int ask_timer(void *arg) {
    (void)arg;
    memset(&timer, 0, sizeof timer);
    atomic_store(&calls, 0);
    CHECK_EQ(weft_timer_armed(&timer), false);
    CHECK_EQ(weft_timer_start(&timer, weft_after(HOUR), 0, called, NULL), 0);
    CHECK_EQ(weft_timer_armed(&timer), true);
    CHECK_EQ(weft_timer_armed(&timer), true); /* asking changes nothing */
    pass(HOUR);
    task_wait(&calls, 1);
    CHECK_EQ(atomic_load(&armed_inside), false);
    CHECK_EQ(weft_timer_armed(&timer), false);
    CHECK_EQ(weft_timer_start(&timer, weft_after(HOUR), HOUR, called, NULL), 0);
    pass(HOUR);
    task_wait(&calls, 2);
    CHECK_EQ(atomic_load(&armed_inside), false);
    let_others_run();
    CHECK_EQ(weft_timer_armed(&timer), true); /* for the next hour */
    CHECK_EQ(weft_timer_stop_wait(&timer), 1);
    CHECK_EQ(weft_timer_armed(&timer), false);
    CHECK_EQ(weft_timer_start(&timer, WEFT_FOREVER, 0, called, NULL), 0);
    CHECK_EQ(weft_timer_armed(&timer), true);
    return 0; /* the runtime stops it */
}

TEST(look, a_timer_is_armed_from_its_start_to_its_call_or_stop) {
    EACH_WORKERS(w) {
        run_fake_on(w, ask_timer);
        CHECK_EQ(weft_timer_armed(&timer), false);
    }
}

TEST(look, a_plain_thread_asks_a_timer) {
    CHECK_EQ(set_up(2), 0);
    memset(&timer, 0, sizeof timer);
    CHECK_EQ(weft_timer_armed(&timer), false);
    CHECK_EQ(weft_timer_start(&timer, weft_after(HOUR), 0, called, NULL), 0);
    CHECK_EQ(weft_timer_armed(&timer), true);
    CHECK_EQ(weft_timer_stop(&timer), 1);
    CHECK_EQ(weft_timer_armed(&timer), false);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
}

/* ---- channels ---- */

static int ask_channel(void *arg) {
    (void)arg;
    for (int kind = WEFT_CHAN_BUFFERED; kind <= WEFT_CHAN_LATEST; kind++) {
        int v = 4;
        weft_chan *c = weft_chan_new_opts(sizeof v, &(weft_chan_opts){.kind = kind, .capacity = 2});
        CHECK_EQ(weft_chan_is_closed(c), false);
        CHECK_EQ(weft_chan_try_send(c, &v), 0);
        CHECK_EQ(weft_chan_close(c), 0);
        CHECK_EQ(weft_chan_is_closed(c), true);
        CHECK_EQ(weft_chan_len(c), 1);
        CHECK_EQ(weft_chan_try_recv(c, &v), 0);
        CHECK_EQ(weft_chan_is_closed(c), true);
        weft_chan_unref(c);
    }
    return 0;
}

TEST(look, a_channel_is_closed_before_it_is_drained) {
    CHECK_EQ(ask_channel(NULL), 0); /* on a plain thread, without a runtime */
    run_each(ask_channel);
}

/* ---- workers ---- */

static int ask_workers(void *n) {
    CHECK_EQ(weft_workers(), (int)(intptr_t)n);
    return 0;
}

TEST(look, workers_are_those_of_the_configuration) {
    CHECK_EQ(weft_workers(), 0);
    EACH_WORKERS(w) {
        CHECK_EQ(set_up(w), 0);
        CHECK_EQ(weft_workers(), w);
        CHECK_EQ(weft_block_on(ask_workers, as_arg(w)), 0);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
        CHECK_EQ(weft_workers(), 0);
    }
}

/* Pinned: it stays on its thread. */
static int ask_thread(void *arg) {
    (void)arg;
    weft_pin();
    uint64_t id = weft_thread_id();
    CHECK_EQ(id, (uint64_t)gettid());
    for (int i = 0; i < 20; i++) weft_yield();
    CHECK_EQ(weft_thread_id(), id);
    weft_unpin();
    return 0;
}

TEST(look, a_thread_has_the_kernels_number) {
    CHECK_EQ(weft_thread_id(), (uint64_t)gettid());
    run_each(ask_thread);
}
