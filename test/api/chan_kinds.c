/* SPDX-License-Identifier: MIT */
/* Channels without a limit and channels of the latest, what becomes of elements that nobody receives, and what a channel counts. */
#include "api/ints.h"

static weft_chan *new_kind(int kind, size_t size, size_t capacity) {
    weft_chan_opts o = {.kind = kind, .capacity = capacity};
    weft_chan *c = weft_chan_new_opts(size, &o);
    CHECK(c);
    return c;
}

static weft_chan_stats stats(weft_chan *c) {
    weft_chan_stats s;
    weft_chan_stats_get(c, &s);
    CHECK_EQ(s.sent, s.received + s.undelivered + s.len);
    CHECK_EQ(s.len, weft_chan_len(c));
    CHECK_LE(s.len, s.high_water);
    return s;
}

/* ---- without a limit ---- */

enum { MANY = 20000 };

static int grow_and_shrink(void *arg) {
    (void)arg;
    weft_chan *c = new_kind(WEFT_CHAN_UNLIMITED, sizeof(int), 7);
    int n = (int)test_scale(MANY, 2000), in = 0, out = 0;
    CHECK_EQ(weft_chan_cap(c), SIZE_MAX);
    CHECK_EQ(weft_chan_try_recv(c, NULL), WEFT_EAGAIN);
    for (int round = 0; round < 3; round++) { /* nobody receives, and no send waits */
        while (in - out < n) put(c, in++);
        CHECK_EQ(weft_chan_len(c), (size_t)n);
        while (in - out > n / 2) CHECK_EQ(take(c), out++);
        for (int i = 0; i < n; i++) { /* as many come as go */
            put(c, in++);
            CHECK_EQ(take(c), out++);
        }
        if (round == 1)
            while (out < in) CHECK_EQ(take(c), out++);
    }
    weft_chan_stats s = stats(c);
    CHECK_EQ(s.sent, (uint64_t)in);
    CHECK_EQ(s.received, (uint64_t)out);
    CHECK_EQ(s.high_water, (size_t)n);
    CHECK_EQ(weft_chan_close(c), 0);
    CHECK_EQ(weft_chan_send(c, &in, WEFT_FOREVER), WEFT_ECLOSED);
    while (out < in) CHECK_EQ(take(c), out++); /* what is there survives the close */
    CHECK_EQ(weft_chan_recv(c, &in, WEFT_FOREVER), WEFT_ECLOSED);
    CHECK_EQ(stats(c).received, (uint64_t)out);
    weft_chan_unref(c);
    return 0;
}

TEST(chan_unlimited, a_send_never_waits) {
    run_each(grow_and_shrink);
    CHECK_EQ(grow_and_shrink(NULL), 0);
}

static int flood(void *arg) {
    for (int i = 0; i < (int)test_scale(MANY, 1000); i++) put(arg, i);
    return 0;
}

static int drain(void *arg) {
    weft_chan *c = arg;
    int v, n = 0;
    WEFT_CHAN_EACH(c, &v) n++;
    return n;
}

static int crowd(void *arg) {
    (void)arg;
    enum { SIDE = 4 };
    weft_chan *c = new_kind(WEFT_CHAN_UNLIMITED, sizeof(int), 0);
    weft_task *t[SIDE];
    weft_scope s;
    int sum = 0, n = 0;
    for (int i = 0; i < SIDE; i++) CHECK_EQ(weft_task_start(&t[i], drain, c, NULL), 0);
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < SIDE; i++) CHECK_EQ(weft_spawn(&s, flood, c), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    weft_chan_close(c);
    for (int i = 0; i < SIDE; i++) {
        CHECK_EQ(weft_task_join(t[i], &n, WEFT_FOREVER), 0);
        sum += n;
    }
    CHECK_EQ(sum, SIDE * (int)test_scale(MANY, 1000));
    CHECK_EQ(stats(c).sent, (uint64_t)sum);
    weft_chan_unref(c);
    return 0;
}

TEST(chan_unlimited, nothing_is_lost_in_a_crowd) { run_each(crowd); }

/* ---- the latest ---- */

static int keep_latest(void *arg) {
    (void)arg;
    weft_chan *one = new_kind(WEFT_CHAN_LATEST, sizeof(int), 0), *three = new_kind(WEFT_CHAN_LATEST, sizeof(int), 3);
    CHECK_EQ(weft_chan_cap(one), 1);
    CHECK_EQ(weft_chan_cap(three), 3);
    for (int i = 0; i < 10; i++) {
        put(one, i);
        put(three, i);
    }
    CHECK_EQ(take(one), 9);
    CHECK_EQ(weft_chan_try_recv(one, NULL), WEFT_EAGAIN);
    for (int i = 7; i < 10; i++) CHECK_EQ(take(three), i);
    CHECK_EQ(stats(one).undelivered, 9);
    CHECK_EQ(stats(three).undelivered, 7);
    CHECK_EQ(stats(three).received, 3);
    CHECK_EQ(stats(three).high_water, 3);
    put(one, 42);
    CHECK_EQ(weft_chan_close(one), 0);
    CHECK_EQ(weft_chan_send(one, &(int){1}, WEFT_FOREVER), WEFT_ECLOSED);
    CHECK_EQ(take(one), 42);
    weft_chan_unref(one);
    weft_chan_unref(three);
    return 0;
}

TEST(chan_latest, the_oldest_gives_way) {
    run_each(keep_latest);
    CHECK_EQ(keep_latest(NULL), 0);
}

static atomic_int parked;

static int receive_one(void *arg) {
    atomic_fetch_add(&parked, 1);
    return take(arg);
}

static int latest_to_waiter(void *arg) {
    (void)arg;
    static const int kinds[] = {WEFT_CHAN_LATEST, WEFT_CHAN_UNLIMITED};
    for (size_t i = 0; i < COUNT(kinds); i++) {
        weft_chan *c = new_kind(kinds[i], sizeof(int), 0);
        weft_task *t;
        int got = 0;
        atomic_store(&parked, 0);
        CHECK_EQ(weft_task_start(&t, receive_one, c, NULL), 0);
        task_wait_parked(&parked, 1);
        put(c, 5);
        CHECK_EQ(weft_task_join(t, &got, WEFT_FOREVER), 0);
        CHECK_EQ(got, 5);
        CHECK_EQ(stats(c).received, 1);
        weft_chan_unref(c);
    }
    return 0;
}

TEST(chan_latest, one_who_waits_gets_it_at_once) { run_each(latest_to_waiter); }

/* ---- undelivered elements ---- */

enum { BIG = 64 << 10 };

struct fate {
    int calls, sum;
    size_t size;
};

static void undelivered(void *elem, void *arg) {
    struct fate *f = arg;
    int v;
    memcpy(&v, elem, sizeof v);
    f->calls++;
    f->sum += v;
    const char *p = elem;
    for (size_t i = sizeof v; i < f->size; i += 997) CHECK_EQ(p[i], (char)v);
}

static void put_big(weft_chan *c, char *mem, size_t size, int v) {
    memset(mem, (char)v, size);
    memcpy(mem, &v, sizeof v);
    CHECK_EQ(weft_chan_send(c, mem, WEFT_FOREVER), 0);
}

static int meet_fate(void *arg) {
    (void)arg;
    static const size_t sizes[] = {sizeof(int), 24, 1000, BIG};
    char *mem = malloc(BIG);
    for (size_t z = 0; z < COUNT(sizes); z++) {
        struct fate f = {.size = sizes[z]};
        weft_chan_opts o = {.kind = WEFT_CHAN_LATEST, .capacity = 2, .on_undelivered = undelivered, .arg = &f};
        weft_chan *c = weft_chan_new_opts(sizes[z], &o);
        for (int i = 1; i <= 10; i++) put_big(c, mem, sizes[z], i); /* 1 to 8 give way, 9 and 10 are left */
        CHECK_EQ(f.calls, 8);
        CHECK_EQ(f.sum, 36);
        CHECK_EQ(weft_chan_recv(c, mem, WEFT_FOREVER), 0);
        weft_chan_close(c);
        CHECK_EQ(f.calls, 8); /* it can still be received */
        weft_chan_unref(c);
        CHECK_EQ(f.calls, 9);
        CHECK_EQ(f.sum, 46);

        f = (struct fate){.size = sizes[z]};
        int n = (int)test_scale(600, 50);
        o.kind = WEFT_CHAN_UNLIMITED;
        c = weft_chan_new_opts(sizes[z], &o);
        for (int i = 0; i < n; i++) put_big(c, mem, sizes[z], i);
        for (int i = 0; i < n / 3; i++) CHECK_EQ(weft_chan_recv(c, mem, WEFT_FOREVER), 0);
        weft_chan_unref(c);
        CHECK_EQ(f.calls, n - n / 3);

        f = (struct fate){.size = sizes[z]};
        o.kind = WEFT_CHAN_BUFFERED;
        o.capacity = 5;
        c = weft_chan_new_opts(sizes[z], &o);
        for (int i = 0; i < 8; i++) { /* the ring has turned */
            put_big(c, mem, sizes[z], i);
            if (i < 4) CHECK_EQ(weft_chan_recv(c, NULL, WEFT_FOREVER), 0);
        }
        weft_chan_unref(c);
        CHECK_EQ(f.calls, 4);
        CHECK_EQ(f.sum, 4 + 5 + 6 + 7);
    }
    free(mem);
    return 0;
}

TEST(chan_undelivered, each_element_that_nobody_received_is_handed_over_once) {
    run_each(meet_fate);
    CHECK_EQ(meet_fate(NULL), 0);
}

/* It may use the channel it is called for, and the runtime. */
static weft_chan *echo;
static void send_elsewhere(void *elem, void *arg) {
    int v;
    memcpy(&v, elem, sizeof v);
    put(arg, v);
    CHECK_EQ(weft_chan_len(echo), 1);
    weft_yield();
}

static int use_inside(void *arg) {
    (void)arg;
    weft_chan *rest = new_kind(WEFT_CHAN_UNLIMITED, sizeof(int), 0);
    weft_chan_opts o = {.kind = WEFT_CHAN_LATEST, .on_undelivered = send_elsewhere, .arg = rest};
    echo = weft_chan_new_opts(sizeof(int), &o);
    for (int i = 0; i < 100; i++) {
        if (i % 2)
            put(echo, i);
        else
            CHECK_EQ(weft_select(WEFT_FOREVER, weft_on_send(echo, &i)), 0);
    }
    for (int i = 0; i < 99; i++) CHECK_EQ(take(rest), i);
    CHECK_EQ(take(echo), 99);
    weft_chan_unref(echo);
    weft_chan_unref(rest);
    return 0;
}

TEST(chan_undelivered, the_callback_runs_without_locks) { run_each(use_inside); }

/* ---- select ---- */

static int select_kinds(void *arg) {
    (void)arg;
    weft_chan *u = new_kind(WEFT_CHAN_UNLIMITED, sizeof(int), 0), *l = new_kind(WEFT_CHAN_LATEST, sizeof(int), 2);
    weft_chan *never = weft_chan_new(sizeof(int), 0);
    int n = 3000, v = 0, x = -1;
    bool open = false;
    for (int i = 0; i < n; i++) CHECK_EQ(weft_select(WEFT_FOREVER, weft_on_recv(never, &x, NULL), weft_on_send(u, &i)), 1);
    CHECK_EQ(weft_chan_len(u), (size_t)n);
    for (int i = 0; i < n; i++) {
        open = false; /* each of them says so, also where the buffer is changed for the next block */
        CHECK_EQ(weft_select(WEFT_FOREVER, weft_on_recv(u, &v, &open), weft_on_recv(never, &x, NULL)), 0);
        CHECK_EQ(v, i);
        CHECK(open);
    }
    CHECK_EQ(weft_select(WEFT_POLL, weft_on_recv(u, &v, NULL), weft_on_recv(never, &x, NULL)), WEFT_EAGAIN);
    for (int i = 0; i < 10; i++)
        CHECK_EQ(weft_select(WEFT_POLL, weft_on_recv(never, &x, NULL), weft_on_send(never, &i), weft_on_send(l, &i)), 2);
    CHECK_EQ(take(l), 8);
    weft_chan_close(u);
    CHECK_EQ(weft_select(WEFT_FOREVER, weft_on_send(u, &v), weft_on_recv(never, &x, NULL)), WEFT_ECLOSED);
    CHECK_EQ(weft_select(WEFT_FOREVER, weft_on_recv(u, &v, &open)), 0);
    CHECK(!open);
    weft_chan_unref(u);
    weft_chan_unref(l);
    weft_chan_unref(never);
    return 0;
}

TEST(chan_kinds, all_of_them_stand_in_a_select) {
    run_each(select_kinds);
    CHECK_EQ(select_kinds(NULL), 0);
}

/* ---- what is counted ---- */

static int send_one(void *arg) {
    atomic_fetch_add(&parked, 1);
    put(arg, 1);
    return 0;
}

static bool has_waiting(void *arg) {
    weft_chan_stats s;
    weft_chan_stats_get(arg, &s);
    return s.send_waiting == 3 || s.recv_waiting == 3;
}

static int count_waiters(void *arg) {
    (void)arg;
    for (size_t cap = 0; cap < 3; cap++) {
        weft_chan *c = weft_chan_new(sizeof(int), cap);
        weft_scope s;
        weft_scope_begin(&s, NULL);
        for (size_t i = 0; i < cap; i++) put(c, 1);
        for (int i = 0; i < 3; i++) CHECK_EQ(weft_spawn(&s, send_one, c), 0);
        test_task_until(has_waiting, c);
        CHECK_EQ(stats(c).send_waiting, 3);
        CHECK_EQ(stats(c).sent, cap); /* who waits has not sent */
        for (size_t i = 0; i < cap + 3; i++) take(c);
        CHECK_EQ(weft_scope_end(&s), 0);
        weft_scope_begin(&s, NULL);
        for (int i = 0; i < 3; i++) CHECK_EQ(weft_spawn(&s, receive_one, c), 0);
        test_task_until(has_waiting, c);
        CHECK_EQ(stats(c).recv_waiting, 3);
        for (int i = 0; i < 3; i++) put(c, 0);
        CHECK_EQ(weft_scope_end(&s), 0);
        weft_chan_stats n = stats(c);
        CHECK_EQ(n.sent, cap + 6);
        CHECK_EQ(n.received, cap + 6);
        CHECK_EQ(n.high_water, cap);
        CHECK_EQ(n.send_waiting + n.recv_waiting, 0);
        weft_chan_unref(c);
    }
    return 0;
}

TEST(chan_stats, those_who_wait_are_counted) { run_each(count_waiters); }

/* The counters come from places in the ring: every capacity around a power of two, every phase, and laps of all of it. */
static int count_elements(void *arg) {
    (void)arg;
    static const size_t caps[] = {1, 2, 3, 5, 255, 256, 257, 513};
    for (size_t q = 0; q < COUNT(caps); q++) {
        weft_chan *c = weft_chan_new(sizeof(int), caps[q]);
        uint64_t in = 0, out = 0, rnd = test_seed() + q, high = 0;
        for (int i = 0; i < 2000; i++) {
            size_t len = (size_t)(in - out), goal = (size_t)test_below(&rnd, caps[q] + 1);
            for (; len < goal; len++, in++) put(c, (int)in);
            if (len > high) high = len;
            for (; len > goal; len--, out++) CHECK_EQ(take(c), (int)out);
            weft_chan_stats s = stats(c);
            CHECK_EQ(s.sent, in);
            CHECK_EQ(s.received, out);
            CHECK_EQ(s.high_water, high);
        }
        weft_chan_close(c);
        CHECK_EQ(stats(c).high_water, high);
        weft_chan_unref(c);
    }
    return 0;
}

TEST(chan_stats, elements_are_counted_exactly) {
    CHECK_EQ(run_on(1, count_elements, NULL), 0);
    CHECK_EQ(count_elements(NULL), 0);
}

static int named(void *arg) {
    (void)arg;
    char name[] = "orders";
    weft_chan_opts o = {.name = name};
    weft_chan *c = weft_chan_new_opts(sizeof(int), &o), *d = weft_chan_new(1, 1);
    memset(name, 'x', 6);
    CHECK_STR(stats(c).name, "orders");
    CHECK_STR(stats(d).name, "");
    weft_chan_unref(d);
    weft_chan_unref(c);
    return 0;
}

TEST(chan_stats, a_name_is_copied) { CHECK_EQ(run_on(1, named, NULL), 0); }

static int unref_under_waiter(void *arg) {
    weft_chan_opts o = {.name = "orders"};
    weft_chan *c = weft_chan_new_opts(sizeof(int), &o);
    weft_go(receive_one, c);
    task_wait_parked(&parked, 1);
    weft_chan_unref(c);
    return (int)(intptr_t)arg;
}
static int run_unref_under_waiter(void *arg) { return run_on(1, unref_under_waiter, arg); }

TEST(chan_stats, the_report_of_a_freed_channel_has_its_name) { CHECK_DIES(run_unref_under_waiter, "orders"); }

TEST(chan_kinds, wrong_options_are_refused) {
    weft_chan_opts o = {.kind = 3};
    CHECK(!weft_chan_new_opts(1, &o));
    o.kind = -1;
    CHECK(!weft_chan_new_opts(1, &o));
    o = (weft_chan_opts){.kind = WEFT_CHAN_UNLIMITED};
    CHECK(!weft_chan_new_opts((size_t)INT32_MAX + 1, &o));
    o.kind = WEFT_CHAN_LATEST;
    o.capacity = SIZE_MAX;
    CHECK(!weft_chan_new_opts(1, &o));
    weft_chan *c = weft_chan_new_opts(4, NULL);
    CHECK_EQ(weft_chan_cap(c), 0);
    weft_chan_unref(c);
}
