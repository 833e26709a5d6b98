/* SPDX-License-Identifier: MIT */
/* Typed channels at run time: each operation is that of chan.h. tools/check-typed looks at what does not compile, and at the instructions. */
#include "common.h"

typedef struct {
    int64_t key;
    char text[40];
} record;

WEFT_CHAN_TYPE(ints, int);
WEFT_CHAN_TYPE(records, record);
WEFT_CHAN_TYPE(replies, ints_tx);

static int count(void *arg) {
    ints_tx *out = arg;
    int err = 0;
    for (int i = 1; i <= 100 && !err; i++) err = ints_tx_send(*out, &i, WEFT_FOREVER);
    ints_tx_close(*out);
    ints_tx_unref(*out);
    return err;
}

static int passes_all(void *arg) {
    ints c = ints_new((size_t)(intptr_t)arg);
    ints_tx out = ints_tx_ref(c.tx);
    CHECK(c.chan != NULL);
    CHECK_PTR(c.tx.chan, c.chan);
    CHECK_PTR(c.rx.chan, c.chan);
    int v, sum = 0;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, count, &out), 0);
    while (ints_rx_recv(c.rx, &v, WEFT_FOREVER) == 0) sum += v;
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(sum, 5050);
    CHECK_EQ(ints_recv(c, &v, WEFT_FOREVER), WEFT_ECLOSED);
    CHECK_EQ(ints_close(c), WEFT_ECLOSED);
    ints_unref(c);
    return 0;
}

static int undelivered;
static void count_lost(void *elem, void *arg) {
    CHECK_EQ(*(int *)elem, *(int *)arg);
    undelivered++;
}

/* The latest only, and what gave way is told. */
static int options(void *arg) {
    int v, lost = 1;
    (void)arg;
    undelivered = 0;
    weft_chan_opts o = {.kind = WEFT_CHAN_LATEST, .on_undelivered = count_lost, .arg = &lost, .name = "latest"};
    weft_chan_stats st;
    ints c = ints_new_opts(&o);
    for (v = 1; v <= 2; v++) CHECK_EQ(ints_try_send(c, &v), 0);
    CHECK_EQ(undelivered, 1);
    CHECK_EQ(ints_try_recv(c, &v), 0);
    CHECK_EQ(v, 2);
    weft_chan_stats_get(c.chan, &st);
    CHECK_STR(st.name, "latest");
    CHECK_EQ(ints_is_closed(c), false);
    CHECK_EQ(ints_close(c), 0);
    CHECK_EQ(ints_is_closed(c), true);
    ints_unref(c);
    c = ints_new_opts(NULL);
    CHECK_EQ(ints_cap(c), 0);
    ints_unref(c);
    o.kind = 77;
    CHECK_PTR(ints_new_opts(&o).chan, NULL);
    return 0;
}

static int results(void *arg) {
    (void)arg;
    record in = {7, "seven"}, out = {0, ""};
    records c = records_new(2);
    CHECK_EQ(records_cap(c), 2);
    CHECK_EQ(records_try_recv(c, &out), WEFT_EAGAIN);
    CHECK_EQ(records_send(c, &in, WEFT_FOREVER), 0);
    CHECK_EQ(records_tx_try_send(c.tx, &in), 0);
    CHECK_EQ(records_len(c), 2);
    CHECK_EQ(records_try_send(c, &in), WEFT_EAGAIN);
    CHECK_EQ(records_send(c, &in, weft_after(WEFT_US)), WEFT_ETIMEDOUT);
    CHECK_EQ(out.key, 0);
    CHECK_EQ(records_recv(c, &out, WEFT_FOREVER), 0);
    CHECK_EQ(out.key, 7);
    CHECK_STR(out.text, "seven");
    CHECK_EQ(records_rx_try_recv(c.rx, &out), 0);
    CHECK_EQ(records_rx_try_recv(c.rx, NULL), WEFT_EAGAIN);
    records other = records_ref(c);
    records_rx end = records_rx_ref(c.rx);
    records_unref(c);
    CHECK_EQ(records_try_send(other, &in), 0);
    records_unref(other);
    CHECK_EQ(records_rx_recv(end, &out, WEFT_FOREVER), 0);
    records_rx_unref(end);
    return 0;
}

static int selects(void *arg) {
    (void)arg;
    ints a = ints_new(1), b = ints_new(1), none = {NULL};
    int x = 5, y = 0;
    bool open = false;
    CHECK_EQ(weft_select(WEFT_FOREVER, ints_on_recv(b, &y, &open), ints_tx_on_send(a.tx, &x)), 1);
    CHECK_EQ(weft_select(WEFT_FOREVER, ints_on_recv(none, &y, &open), ints_rx_on_recv(a.rx, &y, &open)), 1);
    CHECK_EQ(y, 5);
    CHECK(open);
    CHECK_EQ(weft_select(WEFT_POLL, ints_on_recv(a, &y, &open)), WEFT_EAGAIN);
    ints_tx_close(b.tx);
    CHECK_EQ(weft_select(WEFT_FOREVER, ints_on_recv(b, &y, &open)), 0);
    CHECK(!open);
    CHECK_EQ(weft_select(WEFT_FOREVER, ints_on_send(b, &x)), WEFT_ECLOSED);
    CHECK_EQ(weft_select(WEFT_FOREVER, ints_tx_on_send_open(a.tx, &x, &open)), 0);
    CHECK(open);
    CHECK_EQ(weft_select(WEFT_FOREVER, ints_on_send_open(a, &x, &open), ints_on_send_open(b, &x, &open)), 1);
    CHECK(!open);
    ints_unref(a);
    ints_unref(b);
    ints_unref(none);
    return 0;
}

/* A request carries the end for its answer. */
static int answer(void *arg) {
    replies *requests = arg;
    ints_tx to;
    int v = 42;
    while (replies_recv(*requests, &to, WEFT_FOREVER) == 0) CHECK_EQ(ints_tx_send(to, &v, WEFT_FOREVER), 0);
    return 0;
}

static int ends_are_elements(void *arg) {
    (void)arg;
    replies requests = replies_new(0);
    ints mine = ints_new(0);
    int v = 0;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, answer, &requests), 0);
    CHECK_EQ(replies_send(requests, &mine.tx, WEFT_FOREVER), 0);
    CHECK_EQ(ints_recv(mine, &v, WEFT_FOREVER), 0);
    CHECK_EQ(v, 42);
    replies_close(requests);
    CHECK_EQ(weft_scope_end(&s), 0);
    replies_unref(requests);
    ints_unref(mine);
    return 0;
}

/* The same channel by its untyped name, as a ticker needs it. */
static int untyped(void *arg) {
    (void)arg;
    ints c = ints_new(1), same = {c.chan};
    int v = 3;
    CHECK_EQ(weft_chan_send(c.chan, &v, WEFT_FOREVER), 0);
    v = 0;
    CHECK_EQ(ints_recv(same, &v, WEFT_FOREVER), 0);
    CHECK_EQ(v, 3);
    ints_unref(same);
    return 0;
}

static void each(weft_fn *fn, void *arg) {
    for (int workers = 1; workers <= 4; workers *= 2) CHECK_EQ(weft_run(fn, arg, &(weft_config){.workers = workers}), 0);
}

TEST(typed, ends_pass_every_element) {
    each(passes_all, NULL);
    each(passes_all, (void *)(intptr_t)8);
}
TEST(typed, results_are_those_of_the_channel) { each(results, NULL); }
TEST(typed, cases_of_a_select) { each(selects, NULL); }
TEST(typed, ends_are_elements_of_other_channels) { each(ends_are_elements, NULL); }
TEST(typed, a_handle_has_the_untyped_channel) { each(untyped, NULL); }
TEST(typed, there_is_none_without_memory_for_it) { CHECK(ints_new(SIZE_MAX).chan == NULL); }
TEST(typed, channels_of_all_kinds) { each(options, NULL); }
