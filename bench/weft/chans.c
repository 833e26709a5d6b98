/* SPDX-License-Identifier: MIT */
/* Channels and select. */
#include "weftbench.h"
#include <stdatomic.h>

enum { ROUNDTRIPS = 2000000, SPSC_ITEMS = 10000000, MPMC_ITEMS = 1000000, SELECT_ITEMS = 2000000, PIPELINE_ITEMS = 200000 };
enum { MPMC_SIDE = 4, CAPACITY = 128 };

struct stream {
    weft_chan *in, *out;
    long items;
    long steps; /* of work for each item */
    _Atomic long *received;
};

static int pong(void *arg) {
    struct stream *st = arg;
    long v;
    while (weft_chan_recv(st->in, &v, WEFT_FOREVER) == 0) wb_must(weft_chan_send(st->out, &v, WEFT_FOREVER), "weft_chan_send");
    return 0;
}

void wb_pingpong(const struct wb_args *a) {
    struct stream st = {.in = wb_chan(0), .out = wb_chan(0)};
    struct wb_mark m;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    wb_must(weft_spawn(&s, pong, &st), "weft_spawn");
    wb_start(&m);
    for (long i = 0, v; i < ROUNDTRIPS; i++) {
        wb_must(weft_chan_send(st.in, &i, WEFT_FOREVER), "weft_chan_send");
        wb_must(weft_chan_recv(st.out, &v, WEFT_FOREVER), "weft_chan_recv");
        if (v != i) wb_must(WEFT_EBROKEN, "another value came back");
    }
    wb_report(&m, a, "pingpong", (double)wb_ns(&m) / ROUNDTRIPS, "ns/roundtrip");
    weft_chan_close(st.in);
    wb_must(weft_scope_end(&s), "weft_scope_end");
    weft_chan_unref(st.in);
    weft_chan_unref(st.out);
}

static int producer(void *arg) {
    struct stream *st = arg;
    for (long i = 0; i < st->items; i++) wb_must(weft_chan_send(st->out, &i, WEFT_FOREVER), "weft_chan_send");
    return 0;
}

static int closing_producer(void *arg) {
    struct stream *st = arg;
    producer(st);
    return weft_chan_close(st->out);
}

void wb_spsc(const struct wb_args *a) {
    struct stream st = {.out = wb_chan(a->arg ? (size_t)a->arg : CAPACITY), .items = SPSC_ITEMS};
    struct wb_mark m;
    weft_scope s;
    long v, sum = 0;
    wb_start(&m);
    weft_scope_begin(&s, NULL);
    wb_must(weft_spawn(&s, closing_producer, &st), "weft_spawn");
    while (weft_chan_recv(st.out, &v, WEFT_FOREVER) == 0) sum += v;
    int64_t ns = wb_ns(&m);
    if (sum != (long)SPSC_ITEMS * (SPSC_ITEMS - 1L) / 2) wb_must(WEFT_EBROKEN, "items were lost");
    wb_report(&m, a, "spsc", (double)ns / SPSC_ITEMS, "ns/item");
    wb_must(weft_scope_end(&s), "weft_scope_end");
    weft_chan_unref(st.out);
}

static int consumer(void *arg) {
    struct stream *st = arg;
    long v, sum = 0, n = 0;
    while (weft_chan_recv(st->out, &v, WEFT_FOREVER) == 0) {
        sum += v;
        n++;
    }
    __asm__ volatile("" : : "r"(sum));
    atomic_fetch_add_explicit(st->received, n, memory_order_relaxed); /* the scope's join orders it before the check */
    return 0;
}

static void many_to(const struct wb_args *a, const char *name, int consumer_count) {
    _Atomic long received = 0;
    struct stream st = {.out = wb_chan(a->arg ? (size_t)a->arg : CAPACITY), .items = MPMC_ITEMS, .received = &received};
    struct wb_mark m;
    weft_scope consumers, producers;
    wb_start(&m);
    weft_scope_begin(&consumers, NULL);
    weft_scope_begin(&producers, NULL);
    for (int i = 0; i < MPMC_SIDE; i++) {
        wb_must(weft_spawn(&producers, producer, &st), "weft_spawn");
        if (i < consumer_count) wb_must(weft_spawn(&consumers, consumer, &st), "weft_spawn");
    }
    wb_must(weft_scope_end(&producers), "weft_scope_end");
    weft_chan_close(st.out);
    wb_must(weft_scope_end(&consumers), "weft_scope_end");
    int64_t ns = wb_ns(&m);
    if (atomic_load_explicit(&received, memory_order_relaxed) != (long)MPMC_SIDE * MPMC_ITEMS)
        wb_must(WEFT_EBROKEN, "items were lost");
    wb_report(&m, a, name, (double)ns / (MPMC_SIDE * MPMC_ITEMS), "ns/item");
    weft_chan_unref(st.out);
}

void wb_mpmc(const struct wb_args *a) {
    many_to(a, "mpmc", MPMC_SIDE);
}

void wb_mpsc(const struct wb_args *a) {
    many_to(a, "mpsc", 1);
}

void wb_select2(const struct wb_args *a) {
    struct stream x = {.out = wb_chan((size_t)a->arg), .items = SELECT_ITEMS};
    struct stream y = {.out = wb_chan((size_t)a->arg), .items = SELECT_ITEMS};
    struct wb_mark m;
    weft_scope s;
    long vx = 0, vy = 0, sum = 0;
    char name[32];
    wb_start(&m);
    weft_scope_begin(&s, NULL);
    wb_must(weft_spawn(&s, producer, &x), "weft_spawn");
    wb_must(weft_spawn(&s, producer, &y), "weft_spawn");
    for (long i = 0; i < 2L * SELECT_ITEMS; i++) {
        int k = weft_select(WEFT_FOREVER, weft_on_recv(x.out, &vx, NULL), weft_on_recv(y.out, &vy, NULL));
        wb_must(k, "weft_select");
        sum += k ? vy : vx;
    }
    int64_t ns = wb_ns(&m);
    if (sum != (long)SELECT_ITEMS * (SELECT_ITEMS - 1L)) wb_must(WEFT_EBROKEN, "items were lost");
    snprintf(name, sizeof name, "select2_cap%ld", a->arg);
    wb_report(&m, a, name, (double)ns / (2.0 * SELECT_ITEMS), "ns/item");
    wb_must(weft_scope_end(&s), "weft_scope_end");
    weft_chan_unref(x.out);
    weft_chan_unref(y.out);
}

static int working_producer(void *arg) {
    struct stream *st = arg;
    for (long i = 0; i < st->items; i++) {
        bn_work(st->steps);
        wb_must(weft_chan_send(st->out, &i, WEFT_FOREVER), "weft_chan_send");
    }
    return weft_chan_close(st->out);
}

void wb_pipeline(const struct wb_args *a) {
    long work_ns = a->arg ? a->arg : 1000, v, n = 0;
    struct stream st = {.out = wb_chan(CAPACITY), .items = PIPELINE_ITEMS};
    struct wb_mark m;
    weft_scope s;
    char name[32];
    st.steps = (long)(bn_work_per_us() * (double)work_ns / 1e3);
    wb_start(&m);
    weft_scope_begin(&s, NULL);
    wb_must(weft_spawn(&s, working_producer, &st), "weft_spawn");
    while (weft_chan_recv(st.out, &v, WEFT_FOREVER) == 0) {
        bn_work(st.steps);
        n++;
    }
    int64_t ns = wb_ns(&m);
    if (n != PIPELINE_ITEMS) wb_must(WEFT_EBROKEN, "items were lost");
    snprintf(name, sizeof name, "pipeline_%ldns", work_ns);
    wb_report(&m, a, name, (double)ns / PIPELINE_ITEMS, "ns/item");
    wb_must(weft_scope_end(&s), "weft_scope_end");
    weft_chan_unref(st.out);
}
