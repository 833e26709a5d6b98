/* SPDX-License-Identifier: MIT */
/* Channels of all kinds under everything at once: sends, receives and selects with and without deadlines, from tasks and plain threads,
 * while channels are closed and scopes cancelled. Every element has a number; whoever was told that it was sent, was told the
 * truth, and it was received exactly once, or handed over as undelivered, once; nobody else received anything. */
#include "stress/actor.h"

#include "chan/chan.h"

enum { CHANNELS = 4, ELEMENTS = 20000, TASKS = 12, THREADS = 2 };

/* Small ones take the fast paths; of large ones a block of an unlimited channel holds a few only. */
struct elem {
    int v;
    char pad[1020];
};

static struct round {
    weft_chan *c[CHANNELS];
    size_t size;     /* of an element */
    atomic_int next; /* the next element's number */
    atomic_uchar sent[ELEMENTS], seen[ELEMENTS];
    uint64_t seed;
} r;

static void saw(int v) {
    CHECK(v >= 0 && v < ELEMENTS);
    CHECK_EQ(atomic_fetch_add(&r.seen[v], 1), 0);
}

static void saw_elem(const struct elem *e) {
    saw(e->v);
    CHECK_EQ(e->pad[r.size - sizeof e->v - 1], (char)e->v);
}

static void undelivered(void *elem, void *arg) {
    (void)arg;
    saw_elem(elem);
}

/* A result that may be, of an operation with this deadline. */
static int check_result(int rc, weft_deadline d) {
    bool poll = d.ns == WEFT_POLL.ns, forever = d.ns == 0;
    CHECK_MSG(rc >= 0 || rc == WEFT_ECLOSED || rc == WEFT_ECANCELED || (rc == WEFT_EAGAIN && poll) ||
                  (rc == WEFT_ETIMEDOUT && !poll && !forever),
              "result %d, deadline %lld", rc, (long long)d.ns);
    return rc;
}

static int send_something(uint64_t *rnd) {
    int v = atomic_fetch_add(&r.next, 1);
    if (v >= ELEMENTS) return WEFT_ECLOSED; /* the round is over for senders */
    struct elem e = {.v = v};
    e.pad[r.size - sizeof v - 1] = (char)v;
    weft_deadline d = random_deadline(rnd);
    int rc = check_result(weft_chan_send(r.c[test_below(rnd, CHANNELS)], &e, d), d);
    if (rc == 0) atomic_store(&r.sent[v], 1);
    return rc;
}

static int recv_something(uint64_t *rnd) {
    struct elem e = {.v = -1};
    weft_deadline d = random_deadline(rnd);
    int rc = check_result(weft_chan_recv(r.c[test_below(rnd, CHANNELS)], &e, d), d);
    if (rc == 0)
        saw_elem(&e);
    else
        CHECK_EQ(e.v, -1);
    return rc;
}

/* Cases in both directions, the same channel more than once, some disabled. */
static int select_something(uint64_t *rnd) {
    enum { MOST = 20 };
    weft_case k[MOST];
    struct elem e[MOST];
    int n = 1 + (int)test_below(rnd, test_below(rnd, 8) ? 4 : MOST);
    bool open[MOST], sends[MOST];
    for (int i = 0; i < n; i++) {
        weft_chan *c = i == 0 || test_below(rnd, 10) ? r.c[test_below(rnd, CHANNELS)] : NULL; /* not all disabled */
        sends[i] = test_below(rnd, 2);
        e[i].v = sends[i] ? atomic_fetch_add(&r.next, 1) : -1;
        e[i].pad[r.size - sizeof e[i].v - 1] = (char)e[i].v;
        if (e[i].v >= ELEMENTS) return WEFT_ECLOSED;
        open[i] = false;
        k[i] = sends[i] ? weft_on_send(c, &e[i]) : weft_on_recv(c, &e[i], test_below(rnd, 2) ? &open[i] : NULL);
    }
    weft_deadline d = random_deadline(rnd);
    int hit = check_result(weft_selectv(k, (size_t)n, d), d);
    CHECK_LT(hit, n);
    for (int i = 0; i < n; i++)
        if (!sends[i] && (i != hit || (k[i].open && !open[i]))) CHECK_EQ(e[i].v, -1);
    if (hit < 0) return hit;
    if (sends[hit])
        atomic_store(&r.sent[e[hit].v], 1);
    else if (!k[hit].open || open[hit])
        saw_elem(&e[hit]);
    else
        return WEFT_ECLOSED;
    return 0;
}

/* One task or thread: does this and that until it is cancelled, or has met a closed channel often enough. */
static int act(int who) {
    uint64_t rnd = actor_seed(r.seed, who);
    int closed = 0;
    while (closed < 20) {
        uint64_t kind = test_below(&rnd, 10);
        int rc = kind < 4 ? send_something(&rnd) : kind < 7 ? recv_something(&rnd) : select_something(&rnd);
        if (rc == WEFT_ECANCELED) return 0;
        closed += rc == WEFT_ECLOSED;
        random_pause(&rnd);
    }
    return 0;
}

static int act_task(void *arg) { return act((int)(intptr_t)arg); }

static void *act_thread(void *arg) {
    act((int)(intptr_t)arg);
    return NULL;
}

/* Breaks things now and then: cancels a scope, or closes a channel. */
static int break_things(uint64_t *rnd, weft_scope *some) {
    for (int i = (int)test_below(rnd, 6); i > 0; i--) {
        weft_sleep_for((int64_t)test_below(rnd, 200) * WEFT_US);
        if (test_below(rnd, 3) == 0) weft_chan_close(r.c[test_below(rnd, CHANNELS)]);
        if (test_below(rnd, 4) == 0 && some) {
            weft_scope_cancel(some);
            some = NULL;
        }
    }
    return 0;
}

static void check_elements(void) {
    for (int i = 0; i < CHANNELS; i++) {
        struct elem e;
        weft_chan_stats s;
        while (i % 2 && weft_chan_try_recv(r.c[i], &e) == 0) /* what was sent and nobody has taken */
            saw_elem(&e);
        if (i % 2) CHECK_EQ(weft_chan_try_recv(r.c[i], &e), WEFT_ECLOSED);
        weft_chan_stats_get(r.c[i], &s);
        CHECK_EQ(s.sent, s.received + s.undelivered + s.len);
        CHECK_EQ(s.send_waiting + s.recv_waiting, 0);
        weft_chan_unref(r.c[i]); /* the others' elements are undelivered */
    }
    for (int i = 0; i < ELEMENTS; i++)
        CHECK_MSG(atomic_load(&r.sent[i]) == atomic_load(&r.seen[i]), "element %d: sent %d, received %d", i,
                  atomic_load(&r.sent[i]), atomic_load(&r.seen[i]));
}

static int one_round(void *arg) {
    uint64_t rnd = *(uint64_t *)arg;
    pthread_t t[THREADS];
    weft_scope some, rest;
    memset(&r, 0, sizeof r);
    r.seed = test_random_from(&rnd);
    r.size = test_below(&rnd, 2) ? 12 : sizeof(struct elem);
    for (int i = 0; i < CHANNELS; i++) {
        weft_chan_opts o = {.kind = test_below(&rnd, 4) ? WEFT_CHAN_BUFFERED : (int)test_below(&rnd, 3),
                            .capacity = test_below(&rnd, 2) ? test_below(&rnd, 5) : 0,
                            .on_undelivered = undelivered};
        r.c[i] = weft_chan_new_opts(r.size, &o);
        CHECK(r.c[i]);
    }
    weft_scope_begin(&rest, NULL);
    for (int i = 0; i < TASKS / 2; i++) CHECK_EQ(weft_spawn(&rest, act_task, as_arg(i)), 0);
    for (int i = 0; i < THREADS; i++) CHECK_EQ(pthread_create(&t[i], NULL, act_thread, as_arg(1000 + i)), 0);
    weft_scope_opts o = {.deadline = test_below(&rnd, 2) ? weft_after((int64_t)test_below(&rnd, 500) * WEFT_US) : WEFT_FOREVER,
                         .on_error = 0};
    weft_scope_begin(&some, &o);
    for (int i = TASKS / 2; i < TASKS; i++) {
        int rc = weft_spawn(&some, act_task, as_arg(i));
        CHECK(rc == 0 || rc == WEFT_ECANCELED);
    }
    break_things(&rnd, &some);
    for (int i = 0; i < CHANNELS; i++) weft_chan_close(r.c[i]);
    int rc = weft_scope_end(&some);
    CHECK(rc == 0 || rc == WEFT_ETIMEDOUT);
    break_things(&rnd, NULL);
    CHECK_EQ(weft_scope_end(&rest), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
    check_elements();
    return 0;
}

static void race_on(int workers) {
    uint64_t rnd = test_seed() + (uint64_t)workers;
    for (long i = test_scale(120, 5); i > 0; i--) {
        CHECK_EQ(run_on(workers, one_round, &rnd), 0);
        test_random_from(&rnd);
    }
}

TEST_T(chan_stress, every_element_is_received_once_or_reported_unsent_1, 120) { race_on(1); }

TEST_T(chan_stress, every_element_is_received_once_or_reported_unsent_2, 120) { race_on(2); }

TEST_T(chan_stress, every_element_is_received_once_or_reported_unsent_3, 120) { race_on(3); }

TEST_T(chan_stress, every_element_is_received_once_or_reported_unsent_8, 120) { race_on(8); }

/* Their locks lean to a slot whenever they can, and whoever comes from elsewhere straightens them. */
static void race_leaning_on(int workers) {
    weft__chan_lean_after = 0;
    weft__chan_lean_growth = 1;
    race_on(workers);
}

TEST_T(chan_stress, likewise_in_channels_that_lean_1, 120) { race_leaning_on(1); }

TEST_T(chan_stress, likewise_in_channels_that_lean_2, 120) { race_leaning_on(2); }

TEST_T(chan_stress, likewise_in_channels_that_lean_8, 120) { race_leaning_on(8); }

/* Only sends and receives from tasks, and now and then somebody else: most of them lean most of the time. */
enum { PASSED = 4000 };
static atomic_long sum;

static int pass_on(void *arg) {
    weft_chan **c = arg;
    long v, n = 0;
    while (weft_chan_recv(c[0], &v, n % 7 ? WEFT_FOREVER : weft_after(3600 * WEFT_SECOND)) == 0) {
        atomic_fetch_add(&sum, v);
        if (c[1]) CHECK_EQ(weft_chan_send(c[1], &v, WEFT_FOREVER), 0);
        n++;
    }
    if (c[1]) weft_chan_close(c[1]);
    return 0;
}

static void *look_in(void *arg) { /* a plain thread: straightens it */
    for (int i = 0; i < 200; i++) {
        weft_chan_stats s;
        weft_chan_stats_get(((weft_chan **)arg)[i % 3], &s);
        CHECK(s.len <= weft_chan_cap(((weft_chan **)arg)[i % 3]));
        sched_yield();
    }
    return NULL;
}

static int pipeline_that_leans(void *arg) {
    uint64_t rnd = *(uint64_t *)arg;
    weft_chan *c[4] = {NULL};
    pthread_t t;
    weft_scope s;
    atomic_store(&sum, 0);
    for (int i = 0; i < 3; i++) c[i] = weft_chan_new(sizeof(long), 1 + test_below(&rnd, 20));
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 3; i++) CHECK_EQ(weft_spawn(&s, pass_on, &c[i]), 0);
    CHECK_EQ(pthread_create(&t, NULL, look_in, c), 0);
    for (long v = 1; v <= PASSED; v++) CHECK_EQ(weft_chan_send(c[0], &v, WEFT_FOREVER), 0);
    weft_chan_close(c[0]);
    CHECK_EQ(weft_scope_end(&s), 0);
    pthread_join(t, NULL);
    CHECK_EQ(atomic_load(&sum), 3L * PASSED * (PASSED + 1) / 2);
    for (int i = 0; i < 3; i++) weft_chan_unref(c[i]);
    return 0;
}

TEST_T(chan_stress, a_pipeline_of_channels_that_lean_loses_nothing, 120) {
    uint64_t rnd = test_seed();
    weft__chan_lean_growth = 1;
    for (long i = test_scale(100, 4); i > 0; i--) {
        weft__chan_lean_after = (uint32_t)test_below(&rnd, 3) * 20;
        CHECK_EQ(run_on(1 + (int)(i % 4), pipeline_that_leans, &rnd), 0);
        test_random_from(&rnd);
    }
}

/* ---- close and unref, at once, by whoever comes last ---- */

static int use_reference(void *arg) {
    weft_chan *c = arg;
    uint64_t rnd = weft_self() + test_seed();
    for (int rc = 0; rc != WEFT_ECLOSED;) {
        int v = 1;
        weft_deadline d = random_deadline(&rnd);
        rc = check_result(test_below(&rnd, 2) ? weft_chan_send(c, &v, d) : weft_chan_recv(c, &v, d), d);
    }
    weft_chan_unref(c);
    return 0;
}

static int drop_references(void *arg) {
    (void)arg;
    uint64_t rnd = test_random();
    for (long i = test_scale(500, 20); i > 0; i--) {
        weft_chan *c = weft_chan_new(sizeof(int), (size_t)(i % 3));
        weft_scope s;
        weft_scope_begin(&s, NULL);
        for (int k = 0; k < 6; k++) CHECK_EQ(weft_spawn(&s, use_reference, weft_chan_ref(c)), 0);
        for (uint64_t k = test_below(&rnd, 30); k > 0; k--) weft_yield();
        CHECK_EQ(weft_chan_close(c), 0);
        weft_chan_unref(c);
        CHECK_EQ(weft_scope_end(&s), 0);
    }
    return 0;
}

TEST_T(chan_stress, whoever_comes_last_frees_it, 120) {
    for (int w = 1; w <= 8; w *= 2) CHECK_EQ(run_on(w, drop_references, NULL), 0);
}

/* ---- what needs more than the lock ---- */

/* Who finds something in the blocks behind the buffer takes it in a second step, and others may be faster: then it waits again. */
static int select_until_closed(void *arg) {
    struct elem e;
    bool open = true;
    long n = 0;
    while (open) {
        CHECK_EQ(weft_select(WEFT_FOREVER, weft_on_recv(arg, &e, &open)), 0);
        n += open;
    }
    return (int)n;
}

static void *select_in_a_thread(void *c) { return as_arg(select_until_closed(c)); }

static int outrun_each_other(void *arg) {
    (void)arg;
    enum { RECEIVERS = 4 };
    weft_chan *c = weft_chan_new_opts(sizeof(struct elem), &(weft_chan_opts){.kind = WEFT_CHAN_UNLIMITED});
    weft_task *t[RECEIVERS];
    pthread_t thread;
    void *by_thread;
    long sent = test_scale(20000, 1000), received = 0;
    static const struct elem e;
    for (int i = 0; i < RECEIVERS; i++) CHECK_EQ(weft_task_start(&t[i], select_until_closed, c, NULL), 0);
    CHECK_EQ(pthread_create(&thread, NULL, select_in_a_thread, c), 0);
    for (long i = 0; i < sent; i++) {
        CHECK_EQ(weft_chan_send(c, &e, WEFT_FOREVER), 0);
        if (i % 32 == 0) weft_yield();
    }
    weft_chan_close(c);
    for (int i = 0; i < RECEIVERS; i++) {
        int n;
        CHECK_EQ(weft_task_join(t[i], &n, WEFT_FOREVER), 0);
        received += n;
    }
    pthread_join(thread, &by_thread);
    CHECK_EQ(received + (intptr_t)by_thread, sent);
    weft_chan_unref(c);
    return 0;
}

TEST_T(chan_stress, a_select_that_is_outrun_waits_again, 120) {
    for (int w = 1; w <= 8; w *= 2) CHECK_EQ(run_on(w, outrun_each_other, NULL), 0);
}
