/* SPDX-License-Identifier: MIT */
/* Select: exactly one case happens, any of those that can, and the others are as if they had never been. */
#include "api/ints.h"

/* ---- what is ready is done ---- */

static int choose_ready(void *arg) {
    (void)arg;
    weft_chan *a = new_chan(1), *b = new_chan(1);
    for (int i = 0; i < 100; i++) {
        int x = -1, y = i + 1;
        bool open = false;
        put(a, i); /* a can be received from; b can be sent to; a is full */
        CHECK_EQ(weft_select(WEFT_FOREVER, weft_on_send(a, &y), weft_on_recv(b, &x, NULL), weft_on_recv(a, &x, &open)), 2);
        CHECK_EQ(x, i);
        CHECK(open);
        CHECK_EQ(weft_select(WEFT_FOREVER, weft_on_recv(a, &x, NULL), weft_on_send(b, &y)), 1);
        CHECK_EQ(x, i);
        CHECK_EQ(weft_chan_len(b), 1);
        CHECK_EQ(take(b), i + 1);
    }
    weft_chan_unref(a);
    weft_chan_unref(b);
    return 0;
}

TEST(select, does_the_case_that_can_be_done) {
    run_each(choose_ready);
    CHECK_EQ(choose_ready(NULL), 0);
}

static int choose_none(void *arg) {
    (void)arg;
    weft_chan *a = new_chan(1), *b = new_chan(0);
    int x = 7, y = 8;
    put(a, 1);
    weft_case k[] = {weft_on_send(a, &y), weft_on_recv(b, &x, NULL), weft_on_send(b, &y), weft_on_recv(NULL, &x, NULL)};
    CHECK_EQ(weft_selectv(k, COUNT(k), WEFT_POLL), WEFT_EAGAIN);
    CHECK_EQ(weft_selectv(k, COUNT(k), weft_at(1)), WEFT_ETIMEDOUT);
    int64_t before = weft_now();
    CHECK_EQ(weft_selectv(k, COUNT(k), weft_after(WEFT_MS)), WEFT_ETIMEDOUT);
    CHECK_GE(weft_now() - before, WEFT_MS);
    CHECK_EQ(x, 7);
    CHECK_EQ(weft_chan_len(a), 1);
    CHECK_EQ(weft_select(weft_at(1), weft_on_recv(a, &x, NULL)), 0); /* a deadline in the past still tries */
    CHECK_EQ(x, 1);
    weft_chan_unref(a); /* nobody is left in the queues */
    weft_chan_unref(b);
    return 0;
}

TEST(select, gives_up_with_nothing_done) {
    run_each(choose_none);
    CHECK_EQ(choose_none(NULL), 0);
}

static int all_disabled(void *arg) {
    (void)arg;
    int x = 0;
    weft_case k[20];
    for (size_t i = 0; i < COUNT(k); i++) k[i] = i % 2 ? weft_on_recv(NULL, &x, NULL) : weft_on_send(NULL, &x);
    for (size_t n = 0; n <= COUNT(k); n += 5) {
        CHECK_EQ(weft_selectv(n ? k : NULL, n, WEFT_POLL), WEFT_EAGAIN);
        CHECK_EQ(weft_selectv(n ? k : NULL, n, weft_at(1)), WEFT_ETIMEDOUT);
        int64_t before = weft_now();
        CHECK_EQ(weft_selectv(n ? k : NULL, n, weft_after(500 * WEFT_US)), WEFT_ETIMEDOUT);
        CHECK_GE(weft_now() - before, 500 * WEFT_US);
    }
    return 0;
}

TEST(select, with_every_case_disabled_waits_for_the_deadline) {
    run_each(all_disabled);
    CHECK_EQ(all_disabled(NULL), 0);
}

static int unknown_case(void *arg) {
    (void)arg;
    weft_chan *a = new_chan(1);
    int x = 5;
    put(a, 3);
    weft_case k[] = {weft_on_recv(a, &x, NULL), weft_on_recv(a, &x, NULL)};
    k[1].op = 99;
    CHECK_EQ(weft_selectv(k, 2, WEFT_POLL), WEFT_EINVAL);
    CHECK_EQ(x, 5);
    CHECK_EQ(weft_chan_len(a), 1);
    weft_chan_unref(a);
    return 0;
}

TEST(select, an_unknown_case_is_refused) { run_each(unknown_case); }

/* ---- fairness ---- */

static int choose_fairly(void *arg) {
    (void)arg;
    enum { MOST = 24 };
    static const int counts[] = {2, 3, 5, MOST};
    for (size_t q = 0; q < COUNT(counts); q++) {
        int n = counts[q], hits[MOST] = {0}, trials = 2000 * n;
        weft_chan *c[MOST];
        weft_case k[MOST];
        int x = 0;
        for (int i = 0; i < n; i++) { /* both directions, all of them ready */
            c[i] = new_chan(2);
            put(c[i], i);
            k[i] = i % 2 ? weft_on_send(c[i], &x) : weft_on_recv(c[i], &x, NULL);
        }
        for (int t = 0; t < trials; t++) {
            int i = weft_selectv(k, (size_t)n, WEFT_FOREVER);
            CHECK(i >= 0 && i < n);
            hits[i]++;
            if (i % 2)
                take(c[i]);
            else
                put(c[i], i);
        }
        for (int i = 0; i < n; i++) { /* 2000 expected, deviation below 45: these bounds are 10 deviations away */
            CHECK_GT(hits[i], 1550);
            CHECK_LT(hits[i], 2450);
            weft_chan_unref(c[i]);
        }
    }
    return 0;
}

TEST(select, chooses_at_random_among_the_ready) {
    CHECK_EQ(run_on(1, choose_fairly, NULL), 0);
    CHECK_EQ(run_on(2, choose_fairly, NULL), 0);
}

/* ---- closed channels ---- */

static int choose_closed(void *arg) {
    (void)arg;
    weft_chan *a = new_chan(2), *b = new_chan(0);
    int x = 7, y = 1;
    bool open = true;
    put(a, 4);
    CHECK_EQ(weft_chan_close(a), 0);
    CHECK_EQ(weft_select(WEFT_FOREVER, weft_on_recv(b, &x, NULL), weft_on_recv(a, &x, &open)), 1);
    CHECK(open); /* closed, but not drained */
    CHECK_EQ(x, 4);
    CHECK_EQ(weft_select(WEFT_FOREVER, weft_on_recv(b, &x, NULL), weft_on_recv(a, &x, &open)), 1);
    CHECK(!open);
    CHECK_EQ(x, 4);
    CHECK_EQ(weft_select(WEFT_FOREVER, weft_on_recv(b, &x, &open), weft_on_recv(a, &x, NULL)), WEFT_ECLOSED);
    CHECK_EQ(weft_select(WEFT_FOREVER, weft_on_recv(b, &x, NULL), weft_on_send(a, &y)), WEFT_ECLOSED);
    CHECK_EQ(weft_select(WEFT_POLL, weft_on_send(a, &y)), WEFT_ECLOSED);
    CHECK_EQ(weft_select(weft_at(1), weft_on_recv(a, &x, &open)), 0);
    CHECK(!open);
    weft_chan_unref(a);
    weft_chan_unref(b);
    return 0;
}

TEST(select, a_closed_channel_is_ready) {
    run_each(choose_closed);
    CHECK_EQ(choose_closed(NULL), 0);
}

struct park {
    weft_chan *c[2];
    atomic_int waiting;
    int mode, result, value;
    bool open;
};

static int park_in_select(void *arg) {
    struct park *p = arg;
    int x = 5;
    weft_case k[2] = {p->mode == 2 ? weft_on_send(p->c[0], &x) : weft_on_recv(p->c[0], &p->value, p->mode ? NULL : &p->open),
                      weft_on_recv(p->c[1], &p->value, NULL)};
    atomic_fetch_add(&p->waiting, 1);
    p->result = weft_selectv(k, 2, WEFT_FOREVER);
    return 0;
}

static int close_under_select(void *arg) {
    (void)arg;
    for (int i = 0; i < 120; i++) {
        struct park p = {.c = {new_chan(0), new_chan(0)}, .waiting = 0, .mode = i % 3, .result = 99, .value = 7, .open = true};
        weft_scope s;
        weft_scope_begin(&s, NULL);
        CHECK_EQ(weft_spawn(&s, park_in_select, &p), 0);
        if (i % 2) task_wait_parked(&p.waiting, 1);
        CHECK_EQ(weft_chan_close(p.c[0]), 0);
        CHECK_EQ(weft_scope_end(&s), 0);
        CHECK_EQ(p.result, p.mode ? WEFT_ECLOSED : 0);
        CHECK_EQ(p.open, p.mode != 0);
        CHECK_EQ(p.value, 7);
        weft_chan_unref(p.c[0]);
        weft_chan_unref(p.c[1]);
    }
    return 0;
}

TEST(select, close_wakes_a_parked_select) { run_each(close_under_select); }

/* ---- parking ---- */

static int serve_parked(void *arg) {
    (void)arg;
    for (int i = 0; i < 200; i++) {
        struct park p = {.c = {new_chan(0), new_chan(0)}, .waiting = 0, .mode = i & 2, .result = 99, .value = 7, .open = false};
        weft_scope s;
        weft_scope_begin(&s, NULL);
        CHECK_EQ(weft_spawn(&s, park_in_select, &p), 0);
        if (i % 2) task_wait_parked(&p.waiting, 1);
        if (i & 4)
            put(p.c[1], 40);
        else if (p.mode == 2)
            CHECK_EQ(take(p.c[0]), 5);
        else
            put(p.c[0], 41);
        CHECK_EQ(weft_scope_end(&s), 0);
        CHECK_EQ(p.result, i & 4 ? 1 : 0);
        CHECK_EQ(p.value, i & 4 ? 40 : p.mode == 2 ? 7 : 41);
        CHECK_EQ(p.open, !(i & 4) && p.mode == 0);
        CHECK_EQ(weft_chan_try_recv(p.c[0], NULL), WEFT_EAGAIN); /* the losing case is withdrawn */
        CHECK_EQ(weft_chan_try_send(p.c[0], &p.value), WEFT_EAGAIN);
        weft_chan_unref(p.c[0]);
        weft_chan_unref(p.c[1]);
    }
    return 0;
}

TEST(select, a_parked_select_is_served_by_either_case) { run_each(serve_parked); }

static int select_both_ways(void *arg) {
    weft_chan *c = arg;
    int x = -1, y = 3;
    return weft_select(WEFT_FOREVER, weft_on_recv(c, &x, NULL), weft_on_send(c, &y));
}

struct both {
    weft_chan *c;
    atomic_int *sent;
};

static int select_and_count(void *arg) {
    struct both *b = arg;
    int i = select_both_ways(b->c);
    CHECK(i == 0 || i == 1);
    atomic_fetch_add(b->sent, i);
    return 0;
}

static int both_directions(void *arg) {
    (void)arg;
    for (int i = 0; i < 100; i++) {
        weft_chan *c = new_chan(0);
        atomic_int sent = 0;
        struct both b = {c, &sent};
        weft_scope s;
        int x = 1, y = 2;
        CHECK_EQ(weft_select(WEFT_POLL, weft_on_recv(c, &x, NULL), weft_on_send(c, &y)), WEFT_EAGAIN); /* not with itself */
        CHECK_EQ(weft_select(weft_at(1), weft_on_send(c, &y), weft_on_recv(c, &x, NULL)), WEFT_ETIMEDOUT);
        CHECK_EQ(weft_select(weft_after(20 * WEFT_US), weft_on_send(c, &y), weft_on_recv(c, &x, NULL)), WEFT_ETIMEDOUT);
        weft_scope_begin(&s, NULL);
        for (int k = 0; k < 10; k++) CHECK_EQ(weft_spawn(&s, select_and_count, &b), 0);
        CHECK_EQ(weft_scope_end(&s), 0);
        CHECK_EQ(atomic_load(&sent), 5); /* they paired up: one sent, one received */
        weft_chan_unref(c);
    }
    return 0;
}

TEST(select, both_directions_of_one_channel_meet_a_partner) { run_each(both_directions); }

static int same_channel_twice(void *arg) {
    (void)arg;
    weft_chan *c = new_chan(4);
    int hits[2] = {0, 0};
    for (int i = 0; i < 1000; i++) {
        int x[2] = {-1, -1};
        put(c, i);
        put(c, i + 1);
        int k = weft_select(WEFT_FOREVER, weft_on_recv(c, &x[0], NULL), weft_on_recv(c, &x[1], NULL));
        CHECK(k == 0 || k == 1);
        CHECK_EQ(x[k], i);
        CHECK_EQ(x[1 - k], -1);
        CHECK_EQ(weft_chan_len(c), 1); /* one element, not two */
        CHECK_EQ(take(c), i + 1);
        hits[k]++;
    }
    CHECK(hits[0] > 300 && hits[1] > 300);
    weft_chan_unref(c);
    return 0;
}

TEST(select, the_same_channel_may_stand_in_two_cases) { run_each(same_channel_twice); }

static int park_on_same(void *arg) {
    struct park *p = arg;
    int x[3] = {-1, -1, -1};
    atomic_fetch_add(&p->waiting, 1);
    int k = weft_select(WEFT_FOREVER, weft_on_recv(p->c[0], &x[0], NULL), weft_on_recv(p->c[0], &x[1], NULL),
                        weft_on_recv(p->c[0], &x[2], NULL));
    CHECK(k >= 0 && k < 3);
    for (int i = 0; i < 3; i++) CHECK_EQ(x[i], i == k ? 64 : -1);
    return 0;
}

static int serve_same(void *arg) {
    (void)arg;
    for (int i = 0; i < 100; i++) {
        struct park p = {.c = {new_chan(0), NULL}, .waiting = 0, .mode = 0, .result = 0, .value = 0, .open = false};
        weft_scope s;
        int x = 1;
        weft_scope_begin(&s, NULL);
        CHECK_EQ(weft_spawn(&s, park_on_same, &p), 0);
        put(p.c[0], 64);
        CHECK_EQ(weft_scope_end(&s), 0);
        CHECK_EQ(weft_chan_try_send(p.c[0], &x), WEFT_EAGAIN); /* its other cases are gone */
        weft_chan_unref(p.c[0]);
    }
    return 0;
}

TEST(select, parked_on_the_same_channel_twice_it_is_served_once) { run_each(serve_same); }

/* ---- many cases ---- */

enum { MANY = 1000 };
static weft_chan *many[MANY];

static int send_each_once(void *arg) {
    int step = (int)(intptr_t)arg;
    for (int i = 0; i < MANY; i++) put(many[(i * step + 1) % MANY], (i * step + 1) % MANY);
    return 0;
}

static int select_many(void *arg) {
    size_t capacity = (size_t)(intptr_t)arg;
    weft_case *k = calloc(MANY, sizeof *k);
    weft_scope s;
    int x = -1, left = MANY;
    for (int i = 0; i < MANY; i++) {
        many[i] = new_chan(capacity);
        k[i] = weft_on_recv(many[i], &x, NULL);
    }
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, send_each_once, as_arg(7)), 0); /* 7 and 1000 have no common divisor */
    for (; left > 0; left--) {
        int i = weft_selectv(k, MANY, WEFT_FOREVER);
        CHECK(i >= 0 && i < MANY);
        CHECK_EQ(x, i);
        CHECK(k[i].chan); /* each once */
        k[i].chan = NULL;
    }
    CHECK_EQ(weft_scope_end(&s), 0);
    for (int i = 0; i < MANY; i++) weft_chan_unref(many[i]);
    free(k);
    return 0;
}

TEST(select, takes_a_thousand_cases) {
    EACH_WORKERS(w) {
        CHECK_EQ(run_on(w, select_many, as_arg(0)), 0);
        CHECK_EQ(run_on(w, select_many, as_arg(1)), 0);
    }
}

static int around_sixteen(void *arg) {
    (void)arg;
    for (int n = 14; n <= 19; n++) {
        weft_case k[19];
        weft_chan *c[19];
        int x = 0;
        for (int i = 0; i < n; i++) {
            c[i] = new_chan(1);
            k[i] = weft_on_recv(c[i], &x, NULL);
        }
        CHECK_EQ(weft_selectv(k, (size_t)n, WEFT_POLL), WEFT_EAGAIN);
        CHECK_EQ(weft_selectv(k, (size_t)n, weft_after(20 * WEFT_US)), WEFT_ETIMEDOUT);
        for (int i = 0; i < n; i++) {
            put(c[i], i + 100);
            CHECK_EQ(weft_selectv(k, (size_t)n, WEFT_FOREVER), i);
            CHECK_EQ(x, i + 100);
        }
        for (int i = 0; i < n; i++) weft_chan_unref(c[i]);
    }
    return 0;
}

TEST(select, the_number_of_cases_makes_no_difference) {
    run_each(around_sixteen);
    CHECK_EQ(around_sixteen(NULL), 0);
}

/* ---- select as a merge, tasks and threads ---- */

struct merge {
    weft_chan *in[3], *out;
    int n;
};

static int feed(void *arg) {
    weft_chan *c = arg;
    for (int i = 0; i < 500; i++) put(c, i);
    CHECK_EQ(weft_chan_close(c), 0);
    return 0;
}

static void *feed_thread(void *arg) {
    feed(arg);
    return NULL;
}

static int merge_inputs(struct merge *m) {
    int x = 0, sum = 0, left = 3;
    bool open = false;
    weft_case k[3];
    for (int i = 0; i < 3; i++) k[i] = weft_on_recv(m->in[i], &x, &open);
    while (left > 0) {
        int i = weft_selectv(k, 3, WEFT_FOREVER);
        CHECK(i >= 0 && i < 3);
        if (open) {
            sum += x;
        } else {
            k[i].chan = NULL; /* the usual idiom: a closed input is disabled */
            left--;
        }
    }
    return sum;
}

static int merge_three(void *arg) {
    (void)arg;
    for (size_t capacity = 0; capacity < 4; capacity += 3) {
        struct merge m = {.in = {new_chan(capacity), new_chan(capacity), new_chan(capacity)}, .out = NULL, .n = 0};
        weft_scope s;
        pthread_t t;
        CHECK_EQ(pthread_create(&t, NULL, feed_thread, m.in[2]), 0);
        weft_scope_begin(&s, NULL);
        CHECK_EQ(weft_spawn(&s, feed, m.in[0]), 0);
        CHECK_EQ(weft_spawn(&s, feed, m.in[1]), 0);
        CHECK_EQ(merge_inputs(&m), 3 * 499 * 500 / 2);
        CHECK_EQ(weft_scope_end(&s), 0);
        pthread_join(t, NULL);
        for (int i = 0; i < 3; i++) weft_chan_unref(m.in[i]);
    }
    return 0;
}

TEST(select, merges_tasks_and_threads) { run_each(merge_three); }

TEST(select, works_in_a_plain_thread) {
    EACH_WORKERS(w) {
        CHECK_EQ(set_up(w), 0);
        CHECK_EQ(merge_three(NULL), 0);
        CHECK_EQ(both_directions(NULL), 0);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    }
}
