/* SPDX-License-Identifier: MIT */
/* Random trees of scopes with random errors, cancellations and deadlines. Everything accepted runs exactly once, and what each
 * scope says when it ends agrees with what its children did. */
#include "api/common.h"

static atomic_long accepted, ran, refused;

/* What one scope of the tree knows about itself; the children write to it. */
struct record {
    weft_scope s;
    weft_deadline deadline;
    bool keep_going, outer_may_cancel;
    atomic_int cancelled;    /* its own weft_scope_cancel was called */
    atomic_uint errors;      /* bit n: a child returned -100 - n */
    atomic_int other_errors; /* children that returned another negative value, or were refused */
};

enum { ERRORS = 8 };

struct node {
    struct record *parent;
    uint64_t rnd;
    int depth;
};

static int node(void *arg);

/* Gives a child's result to its parent's record. */
static int result(struct record *p, int rc) {
    if (rc <= -100 && rc > -100 - ERRORS)
        atomic_fetch_or(&p->errors, 1u << (-100 - rc));
    else if (rc < 0)
        atomic_fetch_add(&p->other_errors, 1);
    return rc;
}

static int random_wait(uint64_t *rnd) {
    switch (test_below(rnd, 8)) {
    case 0:
        return weft_sleep(WEFT_FOREVER); /* somebody has to fail or cancel; the root has a deadline */
    case 1:
    case 2:
        return weft_sleep_for((int64_t)test_below(rnd, 300) * WEFT_US);
    case 3:
    case 4:
        weft_yield();
        return 0;
    default:
        return 0;
    }
}

static int leaf(void *arg) {
    struct node *n = arg;
    atomic_fetch_add(&ran, 1);
    int rc = random_wait(&n->rnd);
    if (rc == 0 && test_below(&n->rnd, 10) == 0)
        rc = -100 - (int)test_below(&n->rnd, ERRORS);
    else if (rc == 0)
        rc = (int)test_below(&n->rnd, 3); /* positive is success */
    return result(n->parent, rc);
}

static void spawn_child(struct record *rec, uint64_t *rnd, int depth);

/* A child that spawns siblings of its own. */
static int breeder(void *arg) {
    struct node *n = arg;
    atomic_fetch_add(&ran, 1);
    for (int i = (int)test_below(&n->rnd, 4); i > 0; i--) {
        spawn_child(n->parent, &n->rnd, 0);
        random_wait(&n->rnd);
    }
    if (test_below(&n->rnd, 20) == 0) {
        atomic_store(&n->parent->cancelled, 1);
        weft_scope_cancel(&n->parent->s);
    }
    return result(n->parent, 0);
}

static void spawn_child(struct record *rec, uint64_t *rnd, int depth) {
    struct node child = {rec, test_random_from(rnd), depth - 1};
    weft_fn *fn = depth > 0 ? node : test_below(rnd, 4) ? leaf : breeder;
    int rc = weft_spawn_with(&rec->s, fn, child);
    if (rc == 0) {
        atomic_fetch_add(&accepted, 1);
    } else {
        CHECK_EQ(rc, WEFT_ECANCELED);
        atomic_fetch_add(&refused, 1);
        atomic_fetch_add(&rec->other_errors, 1);
    }
}

static void begin(struct record *rec, uint64_t *rnd) {
    memset(rec, 0, sizeof *rec);
    if (test_below(rnd, 3) == 0) rec->deadline = weft_after((int64_t)test_below(rnd, 500) * WEFT_US);
    rec->keep_going = test_below(rnd, 3) == 0;
    weft_scope_opts o = {.deadline = rec->deadline, .on_error = rec->keep_going ? WEFT_KEEP_GOING : WEFT_CANCEL_ALL};
    weft_scope_begin(&rec->s, &o);
}

/* What the scope says must have happened. */
static int end(struct record *rec) {
    int rc = weft_scope_end(&rec->s);
    unsigned errors = atomic_load(&rec->errors);
    if (rc == 0)
        CHECK(errors == 0 || atomic_load(&rec->cancelled));
    else if (rc <= -100 && rc > -100 - ERRORS)
        CHECK(errors & 1u << (-100 - rc));
    else if (rc == WEFT_ETIMEDOUT)
        CHECK((rec->deadline.ns && weft_now() >= rec->deadline.ns) || atomic_load(&rec->other_errors));
    else
        CHECK_EQ(rc, WEFT_ECANCELED);
    return rc;
}

static int tree(uint64_t *rnd, int depth) {
    struct record rec;
    begin(&rec, rnd);
    for (int i = (int)test_below(rnd, 5); i >= 0; i--) {
        spawn_child(&rec, rnd, depth);
        random_wait(rnd);
    }
    if (test_below(rnd, 6) == 0) {
        atomic_store(&rec.cancelled, 1);
        weft_scope_cancel(&rec.s);
        CHECK_EQ(weft_cancelled(), 1);
    }
    return end(&rec);
}

static int node(void *arg) {
    struct node *n = arg;
    atomic_fetch_add(&ran, 1);
    int rc = tree(&n->rnd, n->depth);
    if (test_below(&n->rnd, 2)) rc = 0; /* half of them swallow it */
    return result(n->parent, rc);
}

static int one_tree(void *arg) {
    uint64_t *rnd = arg;
    weft_scope s;
    weft_scope_opts o = {.deadline = weft_after(3 * WEFT_MS), .on_error = 0}; /* ends those that wait for ever */
    weft_scope_begin(&s, &o);
    tree(rnd, 4);
    int rc = weft_scope_end(&s);
    CHECK(rc == 0 || rc == WEFT_ETIMEDOUT);
    CHECK_EQ(weft_cancelled(), 0);
    return 0;
}

static int many_trees(void *arg) {
    for (long i = test_scale(150, 5); i > 0; i--) CHECK_EQ(one_tree(arg), 0);
    return 0;
}

static void grow_on(int workers) {
    uint64_t rnd = test_seed() + (uint64_t)workers * 101;
    CHECK_EQ(run_on(workers, many_trees, &rnd), 0);
    CHECK_EQ(atomic_load(&ran), atomic_load(&accepted));
    CHECK_GT(atomic_load(&ran), 0);
}

TEST_T(scope_stress, everything_accepted_runs_exactly_once_1, 120) { grow_on(1); }

TEST_T(scope_stress, everything_accepted_runs_exactly_once_2, 120) { grow_on(2); }

TEST_T(scope_stress, everything_accepted_runs_exactly_once_4, 120) { grow_on(4); }

static void *grow_in_thread(void *arg) {
    uint64_t rnd = (uint64_t)(uintptr_t)arg + test_seed();
    for (long i = test_scale(40, 3); i > 0; i--) CHECK_EQ(one_tree(&rnd), 0);
    return NULL;
}

TEST_T(scope_stress, plain_threads_grow_trees_too, 120) {
    EACH_WORKERS(w) {
        pthread_t t[4];
        CHECK_EQ(set_up(w), 0);
        for (size_t i = 0; i < COUNT(t); i++)
            CHECK_EQ(pthread_create(&t[i], NULL, grow_in_thread, as_arg((intptr_t)i * 31)), 0);
        for (size_t i = 0; i < COUNT(t); i++) pthread_join(t[i], NULL);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
        CHECK_EQ(atomic_load(&ran), atomic_load(&accepted));
    }
}

/* ---- handles: joined, released and cancelled at random ---- */

static atomic_long handles_ran;

static int handle_task(void *arg) {
    uint64_t rnd = (uint64_t)(uintptr_t)arg;
    atomic_fetch_add(&handles_ran, 1);
    random_wait(&rnd);
    return 5;
}

static int use_handles(void *arg) {
    uint64_t rnd = test_seed();
    long started = 0, n = test_scale(5000, 200);
    weft_task *held[16] = {NULL};
    atomic_store(&handles_ran, 0);
    for (long i = 0; i < n; i++) {
        weft_task **h = &held[test_below(&rnd, COUNT(held))];
        if (!*h) {
            CHECK_EQ(weft_task_start(h, handle_task, (void *)(uintptr_t)test_random_from(&rnd), NULL), 0);
            started++;
        }
        if (test_below(&rnd, 2)) weft_task_cancel(*h);
        uint64_t kind = test_below(&rnd, 4);
        int result = 0, rc = kind == 0   ? weft_task_join(*h, &result, WEFT_POLL)
                             : kind == 1 ? weft_task_join(*h, &result, weft_after((int64_t)test_below(&rnd, 100) * WEFT_US))
                                         : 1;
        if (rc == 0) CHECK_EQ(result, 5);
        if (kind == 2) weft_task_unref(*h);
        if (rc == 0 || kind == 2) *h = NULL;
        if (test_below(&rnd, 3) == 0) weft_yield();
    }
    for (size_t i = 0; i < COUNT(held); i++) weft_task_unref(held[i]);
    atomic_long *want = arg;
    atomic_store(want, started);
    return 0;
}

TEST_T(scope_stress, handles_are_joined_released_and_cancelled_at_random, 120) {
    EACH_WORKERS(w) {
        atomic_long started = 0;
        CHECK_EQ(run_on(w, use_handles, &started), 0); /* the end of the run ends those that wait for ever */
        CHECK_EQ(atomic_load(&handles_ran), atomic_load(&started));
    }
}

/* ---- a place that a cancellation frees ---- */

enum { PLACES = 50 };

static int wait_long(void *arg) {
    (void)arg;
    return weft_sleep(WEFT_FOREVER);
}

static int cancel_it(void *scope) {
    weft_scope_cancel(scope);
    return 0;
}

/* The children that have the places are cancelled too, and may be gone before the one who waits for a place is told. */
static int spawn_against_cancel(void *arg) {
    for (intptr_t i = (intptr_t)arg; i > 0; i--) {
        weft_scope s;
        weft_task *t;
        weft_scope_begin(&s, &(weft_scope_opts){.limit = PLACES});
        for (int k = 0; k < PLACES; k++) CHECK_EQ(weft_spawn(&s, wait_long, NULL), 0);
        weft_yield();
        CHECK_EQ(weft_task_start(&t, cancel_it, &s, NULL), 0);
        CHECK_EQ(weft_spawn(&s, wait_long, NULL), WEFT_ECANCELED);
        weft_shield_begin(WEFT_FOREVER);
        CHECK_EQ(weft_task_join(t, NULL, WEFT_FOREVER), 0); /* it may still be at it */
        weft_shield_end();
        CHECK_EQ(weft_scope_end(&s), 0);
    }
    return 0;
}

TEST_T(scope_stress, no_spawn_gets_a_place_that_a_cancellation_freed, 120) {
    EACH_WORKERS(w) CHECK_EQ(run_on(w, spawn_against_cancel, as_arg(test_scale(5000, 20))), 0);
}
