/* SPDX-License-Identifier: MIT */
/* Chains: tasks that hand work to and fro. They share one slice, and what comes from outside does not wait for them. */
#include "api/common.h"

/* A pair that hands a token to and fro, and computes each time. */
struct pair {
    weft_chan *token;
    long steps;
    atomic_long turns;
};
static atomic_bool stop;

static int play(void *arg) {
    struct pair *p = arg;
    char c = 0;
    while (weft_chan_recv(p->token, &c, WEFT_FOREVER) == 0) {
        for (long i = 0; i < p->steps; i++) __asm__ volatile("" ::: "memory");
        atomic_fetch_add(&p->turns, 1);
        if (atomic_load(&stop)) weft_chan_close(p->token);
        if (weft_chan_send(p->token, &c, WEFT_FOREVER)) break;
    }
    return 0;
}

static void open_pair(struct pair *p, weft_scope *s, long steps) {
    char c = 0;
    p->token = weft_chan_new(1, 0);
    p->steps = steps;
    atomic_store(&p->turns, 0);
    for (int i = 0; i < 2; i++) CHECK_EQ(weft_spawn(s, play, p), 0);
    CHECK_EQ(weft_chan_send(p->token, &c, WEFT_FOREVER), 0);
}
static void end_pairs(struct pair *p, int n, weft_scope *s) {
    CHECK_EQ(weft_scope_end(s), 0);
    for (int i = 0; i < n; i++) weft_chan_unref(p[i].token);
}
static void close_pairs(struct pair *p, int n, weft_scope *s) {
    atomic_store(&stop, true);
    end_pairs(p, n, s);
}

/* ---- one slice ---- */

/* The main task and a pair: each of our turns is one that they must give us. */
static int yield_beside(void *arg) {
    (void)arg;
    struct pair p;
    weft_scope s;
    atomic_store(&stop, false);
    weft_scope_begin(&s, NULL);
    open_pair(&p, &s, 1);
    for (int i = 0; i < 10; i++) weft_yield();
    CHECK_GT(atomic_load(&p.turns), 0);
    close_pairs(&p, 1, &s);
    return 0;
}
TEST(chain, a_task_beside_a_pair_gets_its_turns) {
    CHECK_EQ(weft_run(yield_beside, NULL, &(weft_config){.workers = 1, .slice = WEFT_MS}), 0);
}

/* One that has not started. */
static atomic_bool started;
static int say_started(void *arg) {
    (void)arg;
    atomic_store(&started, true);
    return 0;
}
static int spawn_beside(void *arg) {
    struct pair *p = arg;
    atomic_store(&started, false);
    CHECK_EQ(weft_go(say_started, NULL), 0);
    char c;
    while (!atomic_load(&started)) {
        CHECK_EQ(weft_chan_recv(p->token, &c, WEFT_FOREVER), 0);
        CHECK_EQ(weft_chan_send(p->token, &c, WEFT_FOREVER), 0);
    }
    atomic_store(&stop, true);
    return 0;
}
static int start_beside(void *arg) {
    (void)arg;
    struct pair p;
    weft_scope s;
    atomic_store(&stop, false);
    weft_scope_begin(&s, NULL);
    open_pair(&p, &s, 1);
    CHECK_EQ(weft_spawn(&s, spawn_beside, &p), 0);
    end_pairs(&p, 1, &s);
    return 0;
}
TEST(chain, a_fresh_task_beside_a_chain_is_started) {
    CHECK_EQ(weft_run(start_beside, NULL, &(weft_config){.workers = 1, .slice = WEFT_MS}), 0);
}

/* Hogs compute a thousand times as long between two hand-overs. By count of turns they would have all of the time. */
enum { LIGHT = 1000, HOG = 1000 * LIGHT, ROUNDS = 200, FAIR = 20 };
static int share(void *arg) {
    (void)arg;
    struct pair p[2];
    weft_scope s;
    atomic_store(&stop, false);
    weft_scope_begin(&s, NULL);
    open_pair(&p[0], &s, HOG);
    open_pair(&p[1], &s, LIGHT);
    while (atomic_load(&p[0].turns) < ROUNDS && atomic_load(&p[1].turns) < ROUNDS * (HOG / LIGHT)) weft_yield();
    double hog = (double)atomic_load(&p[0].turns) * HOG, light = (double)atomic_load(&p[1].turns) * LIGHT;
    printf("hog : light = %.2f\n", hog / light);
    CHECK_LT(hog, FAIR * light);
    CHECK_LT(light, FAIR * hog);
    close_pairs(p, 2, &s);
    return 0;
}
TEST_T(chain, pairs_have_equal_shares_whatever_they_compute, 120) {
    CHECK_EQ(weft_run(share, NULL, &(weft_config){.workers = 1}), 0);
}

/* ---- what comes from outside ---- */

/* A slice never ends here, and one pair keeps the other waiting in the ring for ever: whoever runs all the same came before `next`. */
enum { OUTSIDE = 5 };
static struct {
    int pipe[2];
    weft_chan *bell;
    atomic_int waiting, ran;
} out;

static int hear_bell(void *arg) {
    (void)arg;
    atomic_fetch_add(&out.waiting, 1);
    CHECK_EQ(weft_chan_recv(out.bell, NULL, WEFT_FOREVER), 0);
    atomic_fetch_add(&out.ran, 1);
    return 0;
}
static void *ring_bell(void *arg) {
    (void)arg;
    for (int i = 0; i < OUTSIDE; i++) CHECK_EQ(weft_chan_send(out.bell, NULL, WEFT_FOREVER), 0);
    return NULL;
}

static int hear_byte(void *arg) {
    char c;
    atomic_fetch_add(&out.waiting, 1);
    CHECK_EQ(weft_fd_read(*(int *)arg, &c, 1, WEFT_FOREVER), 1);
    atomic_fetch_add(&out.ran, 1);
    return 0;
}
static void *write_byte(void *arg) {
    (void)arg;
    CHECK_EQ(write(out.pipe[1], "x", 1), 1);
    return NULL;
}

static int hear_clock(void *arg) {
    (void)arg;
    atomic_fetch_add(&out.waiting, 1);
    CHECK_EQ(weft_sleep_for(20 * WEFT_MS), 0);
    atomic_fetch_add(&out.ran, 1);
    return 0;
}
static void *do_nothing(void *arg) { return arg; }

struct outside {
    weft_fn *hear;
    void *(*call)(void *);
    int heard;
};

/* The thread calls as soon as the chains go on: two pairs have turned, and we are not there any more. */
struct caller {
    const struct outside *o;
    struct pair *p;
};
static bool chains_go_on(void *arg) {
    struct pair *p = arg;
    return atomic_load(&p[0].turns) + atomic_load(&p[1].turns) > 1000;
}
static void *call_and_end(void *arg) {
    struct caller *c = arg;
    test_until(chains_go_on, c->p);
    c->o->call(NULL);
    test_until(reached, &(struct reached){&out.ran, c->o->heard});
    atomic_store(&stop, true);
    return NULL;
}

static int beside_chains(void *arg) {
    struct pair p[2];
    struct caller c = {arg, p};
    pthread_t t;
    weft_scope heard, s;
    atomic_store(&out.waiting, 0);
    atomic_store(&out.ran, 0);
    atomic_store(&stop, false);
    weft_scope_begin(&heard, NULL);
    for (int i = 0; i < c.o->heard; i++) CHECK_EQ(weft_spawn(&heard, c.o->hear, &out.pipe[0]), 0);
    task_wait_parked(&out.waiting, c.o->heard);
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 2; i++) open_pair(&p[i], &s, 1);
    CHECK_EQ(pthread_create(&t, NULL, call_and_end, &c), 0);
    end_pairs(p, 2, &s);
    CHECK_EQ(weft_scope_end(&heard), 0);
    CHECK_EQ(pthread_join(t, NULL), 0);
    return 0;
}

static void run_beside_chains(weft_fn *hear, void *(*call)(void *), int heard) {
    struct outside o = {hear, call, heard};
    out.bell = weft_chan_new(0, 0);
    CHECK_EQ(pipe(out.pipe), 0);
    CHECK_EQ(weft_run(beside_chains, &o, &(weft_config){.workers = 1, .slice = HOUR}), 0);
    for (int i = 0; i < 2; i++) CHECK_EQ(close(out.pipe[i]), 0);
    weft_chan_unref(out.bell);
}
TEST(chain, what_another_thread_makes_ready_comes_before_it) { run_beside_chains(hear_bell, ring_bell, OUTSIDE); }
TEST(chain, what_a_descriptor_makes_ready_comes_before_it) { run_beside_chains(hear_byte, write_byte, 1); }
TEST(chain, what_a_timer_makes_ready_comes_before_it) { run_beside_chains(hear_clock, do_nothing, OUTSIDE); }
