/* SPDX-License-Identifier: MIT */
/* Waits for children that are given up while the last child ends: by deadlines, and by the cancellation of a scope around. No wake-up is lost (the
 * test would not end), none comes twice (a later wait would end too early), and weft_scope_end joins in any case. */
#include "api/common.h"

static atomic_long done, given_up, cancelled;

/* One scope that is waited for again and again; its children count themselves. */
struct round {
    weft_scope s;
    atomic_int accepted, ended;
};

struct child {
    struct round *r;
    uint64_t rnd;
};

static void spend(uint64_t *rnd) {
    switch (test_below(rnd, 6)) {
    case 0:
        (void)weft_sleep_for((int64_t)test_below(rnd, 60) * WEFT_US);
        break;
    case 1:
    case 2:
        for (uint64_t i = test_below(rnd, 4); i > 0; i--) weft_yield();
        break;
    case 3:
        for (volatile uint64_t i = test_below(rnd, 3000); i > 0; i--) continue;
        break;
    default:
        break;
    }
}

static int child(void *arg);

static void spawn_one(struct round *r, uint64_t *rnd) {
    struct child c = {r, test_random_from(rnd)};
    atomic_fetch_add(&r->accepted, 1);
    if (weft_spawn_with(&r->s, child, c) < 0) atomic_fetch_sub(&r->accepted, 1);
}

static int child(void *arg) {
    struct child *c = arg;
    spend(&c->rnd);
    if (test_below(&c->rnd, 4) == 0) spawn_one(c->r, &c->rnd);
    atomic_fetch_add(&c->r->ended, 1);
    return 0;
}

static weft_deadline random_deadline(uint64_t *rnd) {
    switch (test_below(rnd, 8)) {
    case 0:
        return WEFT_FOREVER;
    case 1:
        return WEFT_POLL;
    default:
        return weft_after((int64_t)test_below(rnd, 80) * WEFT_US);
    }
}

/* True: the wait was given up for good. */
static bool wait_once(struct round *r, uint64_t *rnd) {
    int rc = weft_scope_wait(&r->s, random_deadline(rnd));
    if (rc == 0) {
        CHECK_EQ(atomic_load(&r->ended), atomic_load(&r->accepted));
        atomic_fetch_add(&done, 1);
        return false;
    }
    CHECK(rc == WEFT_ETIMEDOUT || rc == WEFT_EAGAIN || rc == WEFT_ECANCELED);
    atomic_fetch_add(rc == WEFT_ECANCELED ? &cancelled : &given_up, 1);
    return rc == WEFT_ECANCELED;
}

static int one_scope(void *arg) {
    uint64_t rnd = *(uint64_t *)arg;
    struct round r = {.accepted = 0};
    weft_scope_opts o = {.limit = test_below(&rnd, 3) ? 0 : 2, .results = test_below(&rnd, 4) == 0};
    weft_scope_begin(&r.s, test_below(&rnd, 2) ? NULL : &o);
    for (uint64_t waits = 1 + test_below(&rnd, 4); waits > 0; waits--) {
        for (uint64_t i = test_below(&rnd, 4); i > 0; i--) spawn_one(&r, &rnd);
        if (test_below(&rnd, 10) == 0) weft_scope_cancel(&r.s);
        if (wait_once(&r, &rnd)) break;
    }
    (void)weft_scope_end(&r.s);
    CHECK_EQ(atomic_load(&r.ended), atomic_load(&r.accepted));
    return 0;
}

/* Openers side by side, in a scope that may be cancelled or time out while they wait. */
static void some_openers(uint64_t *rnd) {
    weft_scope s;
    weft_scope_opts o = {.deadline = test_below(rnd, 2) ? WEFT_FOREVER : weft_after((int64_t)test_below(rnd, 150) * WEFT_US)};
    weft_scope_begin(&s, &o);
    for (uint64_t i = 1 + test_below(rnd, 3); i > 0; i--) {
        uint64_t seed = test_random_from(rnd);
        if (test_below(rnd, 3))
            (void)weft_spawn_copy(&s, one_scope, &seed, sizeof seed);
        else
            (void)one_scope(&seed);
    }
    spend(rnd);
    if (test_below(rnd, 3) == 0) weft_scope_cancel(&s);
    int rc = weft_scope_end(&s);
    CHECK(rc == 0 || rc == WEFT_ETIMEDOUT || rc == WEFT_ECANCELED);
}

static int many(void *arg) {
    for (long i = test_scale(12000, 1000); i > 0; i--) some_openers(arg);
    return 0;
}

static void wait_on(int workers) {
    uint64_t rnd = test_seed() + (uint64_t)workers * 31;
    CHECK_EQ(run_on(workers, many, &rnd), 0);
    CHECK_GT(atomic_load(&done), 0);
    CHECK_GT(atomic_load(&given_up), 0);
    CHECK_GT(atomic_load(&cancelled), 0);
}

TEST_T(scope_wait_stress, given_up_while_the_last_child_ends_1, 240) { wait_on(1); }

TEST_T(scope_wait_stress, given_up_while_the_last_child_ends_2, 240) { wait_on(2); }

TEST_T(scope_wait_stress, given_up_while_the_last_child_ends_4, 240) { wait_on(4); }

static void *many_in_thread(void *arg) {
    uint64_t rnd = (uint64_t)(uintptr_t)arg + test_seed();
    for (long i = test_scale(3000, 300); i > 0; i--) some_openers(&rnd);
    return NULL;
}

TEST_T(scope_wait_stress, plain_threads_give_up_too, 240) {
    pthread_t t[3];
    CHECK_EQ(set_up(2), 0);
    for (size_t i = 0; i < COUNT(t); i++) CHECK_EQ(pthread_create(&t[i], NULL, many_in_thread, as_arg((intptr_t)i * 977)), 0);
    for (size_t i = 0; i < COUNT(t); i++) CHECK_EQ(pthread_join(t[i], NULL), 0);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    CHECK_GT(atomic_load(&given_up), 0);
}
