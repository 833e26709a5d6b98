/* SPDX-License-Identifier: MIT */
/* Chains: a million links, each made by the one before it, in constant stack and memory; and scopes nested by the ten thousand. */
#include "api/common.h"

/* ---- a task that spawns its successor ---- */

struct chain {
    atomic_long left;
    atomic_int over;
    uint64_t stacks; /* most that were seen in use */
};

static int link_detached(void *arg) {
    struct chain *c = arg;
    if (atomic_fetch_sub(&c->left, 1) > 1) {
        CHECK_EQ(weft_go(link_detached, c), 0);
        return 0;
    }
    weft_stats st;
    weft_stats_get(&st);
    c->stacks = st.stacks_used;
    atomic_store(&c->over, 1);
    return 0;
}

static int start_chain(void *arg) {
    struct chain *c = arg;
    CHECK_EQ(weft_go(link_detached, c), 0);
    task_wait(&c->over, 1);
    return 0;
}

static void run_chain(weft_fn *start) {
    EACH_WORKERS(w) {
        long n = test_scale(1000000, 20000);
        struct chain c = {.left = n / 10};
        CHECK_EQ(run_on(w, start, &c), 0); /* warm */
        long before = test_rss_kb();
        c = (struct chain){.left = n};
        CHECK_EQ(run_on(w, start, &c), 0);
        CHECK_LE(c.stacks, 16);
        if (test_slow_tools() == 1) CHECK_LE(test_rss_kb(), before + 4096);
    }
}

TEST(chain, a_million_tasks_that_spawn_their_successors_use_constant_memory) { run_chain(start_chain); }

/* ---- a timer's function that starts the next timer; one that is completed by the last ---- */

static weft_timer pair[2];

static void link_timer(void *arg) {
    struct chain *c = arg;
    long left = atomic_fetch_sub(&c->left, 1);
    char here;
    static char *first;
    if (!first) first = &here;
    if (left > 1) {
        CHECK_EQ(weft_timer_start(&pair[left % 2], weft_at(1), 0, link_timer, c), 0);
    } else {
        c->stacks = 0;
        atomic_store(&c->over, 1);
    }
}

static int start_timers(void *arg) {
    struct chain *c = arg;
    CHECK_EQ(weft_timer_start(&pair[0], weft_at(1), 0, link_timer, c), 0);
    task_wait(&c->over, 1);
    weft_timer_stop_wait(&pair[0]);
    weft_timer_stop_wait(&pair[1]);
    return 0;
}

TEST(chain, a_million_timers_started_by_each_others_functions_use_constant_memory) { run_chain(start_timers); }

/* ---- a million park and resume cycles ---- */

static int park_again_and_again(void *arg) {
    weft_chan **c = arg;
    long v = 0;
    while (weft_chan_recv(c[0], &v, WEFT_FOREVER) == 0) CHECK_EQ(weft_chan_send(c[1], &v, WEFT_FOREVER), 0);
    return 0;
}

static int cycles(void *arg) {
    (void)arg;
    weft_chan *c[2] = {weft_chan_new(sizeof(long), 0), weft_chan_new(sizeof(long), 0)};
    weft_scope s;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, park_again_and_again, c), 0);
    long n = test_scale(1000000, 10000), warm = 0;
    for (long i = 0, v; i < n; i++) {
        CHECK_EQ(weft_chan_send(c[0], &i, WEFT_FOREVER), 0);
        CHECK_EQ(weft_chan_recv(c[1], &v, WEFT_FOREVER), 0);
        CHECK_EQ(v, i);
        if (i == n / 10) warm = test_rss_kb();
    }
    if (test_slow_tools() == 1) CHECK_LE(test_rss_kb(), warm + 2048);
    weft_chan_close(c[0]);
    CHECK_EQ(weft_scope_end(&s), 0);
    weft_chan_unref(c[0]);
    weft_chan_unref(c[1]);
    return 0;
}

TEST(chain, a_million_parks_and_resumes_leave_nothing_behind) { run_each_watched(cycles); }

/* ---- nested scopes ---- */

struct nest {
    long depth;
    weft_chan *there;
};

static int nested(void *arg) {
    struct nest *n = arg;
    struct nest inner = {n->depth - 1, n->there};
    long v = 0;
    if (n->depth == 0) {
        CHECK_EQ(weft_chan_send(n->there, &v, WEFT_FOREVER), 0);
        return weft_sleep(WEFT_FOREVER);
    }
    weft_scope s;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawnf(&s, nested, &inner, "depth"), 0); /* a name: it gets a stack of its own */
    int err = weft_scope_end(&s);
    CHECK_EQ(err, WEFT_ECANCELED);
    return err;
}

/* CPU time of opening and cancelling so many nests at once, each of so many scopes, one in the other. */
static int64_t cancel_nests(int nests, long depth) {
    long v;
    struct nest n = {depth, weft_chan_new(sizeof v, 0)};
    weft_scope s;
    int64_t begin = test_cpu_ns();
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < nests; i++) CHECK_EQ(weft_spawn(&s, nested, &n), 0);
    for (int i = 0; i < nests; i++) CHECK_EQ(weft_chan_recv(n.there, &v, WEFT_FOREVER), 0);
    for (int i = 0; i < 20; i++) weft_yield(); /* the innermost go to sleep */
    weft_scope_cancel(&s);
    CHECK_EQ(weft_scope_end(&s), 0);
    weft_chan_unref(n.there);
    return test_cpu_ns() - begin;
}

static int nest_ratio(void *arg) {
    (void)arg;
    long depth = test_scale(10000, 1000);
    cancel_nests(1, depth); /* warm */
    int64_t shallow = INT64_MAX, deep = INT64_MAX;
    for (int i = 0; i < 5; i++) { /* the best of each */
        int64_t a = cancel_nests(10, depth / 10), b = cancel_nests(1, depth);
        if (a < shallow) shallow = a;
        if (b < deep) deep = b;
    }
    /* The same number of scopes at the same time, so as many stacks that are in no cache: as deep, and a tenth as deep. Quadratic would be ten to one. */
    CHECK_MSG(deep < 5 * shallow, "%lld ns for one nest of %ld, %lld ns for ten of %ld", (long long)deep, depth,
              (long long)shallow, depth / 10);
    return 0;
}

TEST(chain, cancelling_ten_thousand_nested_scopes_is_about_linear) { CHECK_EQ(run_on(1, nest_ratio, NULL), 0); }
