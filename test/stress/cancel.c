/* SPDX-License-Identifier: MIT */
/* Cancellation racing with everything: completions, shields and their deadlines, limits, several tasks at once. Every task ends exactly
 * once, and sees what it must see. */
#include "api/common.h"
#include "task/task.h"

#include <sched.h>

static atomic_long started, ended, was_cancelled, completed;

static void forget(void) {
    atomic_store(&started, 0);
    atomic_store(&ended, 0);
    atomic_store(&was_cancelled, 0);
    atomic_store(&completed, 0);
}

/* ---- completions ---- */

enum { GROUP = 50 };

struct race {
    weft_chan *c;
    uint64_t rnd;
    int kind;
};

static int racer(void *arg) {
    struct race *r = arg;
    int v = 0, rc;
    atomic_fetch_add(&started, 1);
    switch (r->kind) {
    case 0:
        rc = weft_chan_recv(r->c, &v, WEFT_FOREVER);
        break;
    case 1:
        rc = weft_select(WEFT_FOREVER, weft_on_recv(r->c, &v, NULL), weft_on_recv(NULL, NULL, NULL));
        break;
    case 2:
        rc = weft_sleep_for((int64_t)test_below(&r->rnd, 50) * WEFT_US);
        break;
    default:
        rc = weft_chan_recv(r->c, &v, weft_after((int64_t)test_below(&r->rnd, 50) * WEFT_US));
        if (rc == WEFT_ETIMEDOUT) rc = 0;
    }
    CHECK(rc == 0 || rc == WEFT_ECANCELED);
    atomic_fetch_add(rc ? &was_cancelled : &completed, 1);
    CHECK(rc == 0 || weft_cancelled());
    atomic_fetch_add(&ended, 1);
    return rc;
}

static int feed(void *c) {
    int v = 1;
    while (weft_chan_send(c, &v, WEFT_FOREVER) == 0) {
    }
    return 0;
}

/* A group of tasks, some of which are served, is cancelled at a random moment. */
static void one_group(weft_chan *c, uint64_t *rnd) {
    weft_scope s;
    int accepted = 0;
    long before = atomic_load(&ended);
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < GROUP; i++) {
        struct race r = {c, test_random_from(rnd), (int)test_below(rnd, 4)};
        accepted += weft_spawn_with(&s, racer, r) == 0;
    }
    CHECK_EQ(accepted, GROUP);
    for (uint64_t k = test_below(rnd, 4); k > 0; k--) weft_yield();
    weft_scope_cancel(&s);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(atomic_load(&ended) - before, GROUP);
    CHECK_EQ(weft_cancelled(), 0);
}

static int cancel_groups(void *arg) {
    uint64_t rnd = test_seed() + (uint64_t)(intptr_t)arg;
    weft_chan *c = weft_chan_new(sizeof(int), 0);
    weft_task *t;
    forget();
    CHECK_EQ(weft_task_start(&t, feed, c, NULL), 0);
    long n = test_scale(1000000, 5000) / GROUP;
    for (long i = 0; i < n; i++) one_group(c, &rnd);
    CHECK_EQ(atomic_load(&started), n * GROUP);
    CHECK_EQ(atomic_load(&was_cancelled) + atomic_load(&completed), n * GROUP);
    CHECK_GT(atomic_load(&was_cancelled), 0);
    CHECK_GT(atomic_load(&completed), 0);
    CHECK_EQ(weft_chan_close(c), 0);
    CHECK_EQ(weft_task_join(t, NULL, WEFT_FOREVER), 0);
    weft_chan_unref(c);
    return 0;
}

TEST_T(cancel_stress, a_million_cancellations_race_with_completions, 300) { CHECK_EQ(run_on(2, cancel_groups, NULL), 0); }

TEST_T(cancel_stress, on_one_worker_and_on_four, 300) {
    CHECK_EQ(run_on(1, cancel_groups, as_arg(1)), 0);
    CHECK_EQ(run_on(4, cancel_groups, as_arg(4)), 0);
}

/* Most of them are not on their scope's list (S6 in task.h). */
TEST_T(cancel_stress, in_crowds, 300) {
    weft__cancel_crowd = 1;
    for (int w = 1; w <= 4; w *= 2) CHECK_EQ(run_on(w, cancel_groups, as_arg(10 + w)), 0);
}

/* ---- shields ---- */

/* In a shield nothing is seen; after it, or its time, everything. */
static int shielded_wait(weft_chan *c, uint64_t *rnd) {
    int v = 0;
    switch (test_below(rnd, 3)) {
    case 0:
        return weft_chan_recv(c, &v, WEFT_FOREVER);
    case 1:
        return weft_select(WEFT_FOREVER, weft_on_recv(c, &v, NULL)) < 0 ? WEFT_ECANCELED : 0;
    default:
        return weft_sleep_for((int64_t)test_below(rnd, 30) * WEFT_US);
    }
}

static int shield_child(void *arg) {
    struct race *r = arg;
    CHECK_EQ(shielded_wait(r->c, &r->rnd), 0);
    return 0;
}

static int shield_racer(void *arg) {
    struct race *r = arg;
    atomic_fetch_add(&started, 1);
    int before = shielded_wait(r->c, &r->rnd);
    CHECK(before == 0 || before == WEFT_ECANCELED);
    CHECK_EQ(weft_shield_begin(r->kind & 1 ? WEFT_FOREVER : weft_after(HOUR)), 0);
    CHECK_EQ(shielded_wait(r->c, &r->rnd), 0);
    CHECK_EQ(weft_cancelled(), 0);
    if (r->kind & 2) {
        WEFT_SCOPE(s) {
            struct race below = {r->c, test_random_from(&r->rnd), 0};
            CHECK_EQ(weft_spawn_with(&s, shield_child, below), 0);
            CHECK_EQ(shielded_wait(r->c, &r->rnd), 0);
        }
    }
    weft_shield_end();
    if (before) CHECK_EQ(weft_cancelled(), 1);
    /* one whose time is up at a random moment: every wait ends, and afterwards all fail if the scope is cancelled */
    CHECK_EQ(weft_shield_begin(weft_after((int64_t)test_below(&r->rnd, 40) * WEFT_US)), 0);
    int rc = weft_sleep(r->kind & 1 ? WEFT_FOREVER : weft_after(20 * WEFT_US));
    CHECK(rc == 0 || rc == WEFT_ECANCELED);
    if (rc) CHECK_EQ(weft_cancelled(), 1);
    weft_shield_end();
    atomic_fetch_add(&ended, 1);
    return WEFT_ECANCELED;
}

static void one_shielded_group(weft_chan *c, uint64_t *rnd) {
    weft_scope s;
    weft_scope_begin(&s, &(weft_scope_opts){.on_error = WEFT_KEEP_GOING});
    for (int i = 0; i < 20; i++) {
        struct race r = {c, test_random_from(rnd), (int)test_below(rnd, 4)};
        CHECK_EQ(weft_spawn_with(&s, shield_racer, r), 0);
    }
    for (uint64_t k = test_below(rnd, 20); k > 0; k--) weft_yield();
    weft_scope_cancel(&s);
    CHECK(weft_scope_end(&s) <= 0);
}

static int shield_groups(void *arg) {
    uint64_t rnd = test_seed() + (uint64_t)(intptr_t)arg;
    weft_chan *c = weft_chan_new(sizeof(int), 0);
    weft_task *t;
    forget();
    CHECK_EQ(weft_task_start(&t, feed, c, NULL), 0);
    long n = test_scale(1500, 40);
    for (long i = 0; i < n; i++) one_shielded_group(c, &rnd);
    CHECK_EQ(atomic_load(&started), n * 20);
    CHECK_EQ(atomic_load(&ended), n * 20);
    CHECK_EQ(weft_chan_close(c), 0);
    CHECK_EQ(weft_task_join(t, NULL, WEFT_FOREVER), 0);
    weft_chan_unref(c);
    return 0;
}

TEST_T(cancel_stress, shields_hold_against_cancellations_that_race_1, 120) { CHECK_EQ(run_on(1, shield_groups, as_arg(1)), 0); }

TEST_T(cancel_stress, shields_hold_against_cancellations_that_race_2, 120) { CHECK_EQ(run_on(2, shield_groups, as_arg(2)), 0); }

TEST_T(cancel_stress, shields_hold_against_cancellations_that_race_4, 120) { CHECK_EQ(run_on(4, shield_groups, as_arg(4)), 0); }

/* The runtime stops while tasks put up shields and take them down. */
static int shield_until_stop(void *arg) {
    uint64_t rnd = (uint64_t)(uintptr_t)arg;
    atomic_fetch_add(&started, 1);
    for (int more = 1; more;) {
        more = weft_sleep_for((int64_t)test_below(&rnd, 20) * WEFT_US) == 0;
        CHECK_EQ(weft_shield_begin(test_below(&rnd, 2) ? WEFT_FOREVER : weft_after(HOUR)), 0);
        CHECK_EQ(weft_sleep_for((int64_t)test_below(&rnd, 20) * WEFT_US), 0);
        WEFT_SCOPE(s) {
            CHECK_EQ(weft_spawn(&s, return_int, NULL), 0);
            CHECK_EQ(weft_sleep_for(WEFT_US), 0);
        }
        weft_shield_end();
    }
    CHECK_EQ(weft_cancelled(), 1);
    atomic_fetch_add(&ended, 1);
    return 0;
}

TEST_T(cancel_stress, the_runtime_stops_among_shields, 120) {
    uint64_t rnd = test_seed();
    for (long round = test_scale(60, 6); round > 0; round--) {
        forget();
        CHECK_EQ(set_up(worker_counts[round % 3]), 0);
        for (int i = 0; i < 30; i++) CHECK_EQ(weft_go(shield_until_stop, as_arg((intptr_t)(test_random_from(&rnd) | 1))), 0);
        while (atomic_load(&started) < 30) sched_yield();
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
        CHECK_EQ(atomic_load(&ended), 30);
    }
}

/* ---- limits ---- */

static atomic_int alive;
static int limit;

struct breeder {
    weft_scope *s;
    uint64_t rnd;
    int depth;
};

static atomic_long accepted;

static int limited(void *arg) {
    struct breeder b = *(struct breeder *)arg;
    CHECK_LE(atomic_fetch_add(&alive, 1) + 1, limit);
    atomic_fetch_add(&started, 1);
    int rc = test_below(&b.rnd, 3) ? 0 : weft_sleep_for((int64_t)test_below(&b.rnd, 20) * WEFT_US);
    for (uint64_t k = b.depth ? test_below(&b.rnd, 3) : 0; k > 0; k--) {
        struct breeder below = {b.s, test_random_from(&b.rnd), b.depth - 1};
        int spawned = weft_spawn_with(b.s, limited, below);
        CHECK(spawned == 0 || spawned == WEFT_ECANCELED);
        if (spawned == 0) atomic_fetch_add(&accepted, 1);
    }
    atomic_fetch_sub(&alive, 1);
    return rc;
}

/* Half of the rounds are cancelled while spawns wait for room; all results are asked for, or none. */
static void one_limited(uint64_t *rnd) {
    weft_scope s;
    int r;
    bool results = test_below(rnd, 2), cancel = test_below(rnd, 2);
    limit = 1 + (int)test_below(rnd, 5);
    forget();
    atomic_store(&accepted, 0);
    weft_deadline d = cancel ? weft_after((int64_t)test_below(rnd, 200) * WEFT_US) : WEFT_FOREVER;
    weft_scope_begin(&s, &(weft_scope_opts){.limit = limit, .results = results, .deadline = d});
    for (int i = 0; i < 40; i++) {
        struct breeder b = {&s, test_random_from(rnd), 2};
        int rc = weft_spawn_with(&s, limited, b);
        CHECK(rc == 0 || (cancel && rc == WEFT_ECANCELED));
        if (rc == 0) atomic_fetch_add(&accepted, 1);
    }
    long asked = 0;
    while (results && weft_scope_wait_any(&s, &r, WEFT_FOREVER) == 0) asked++;
    int rc = weft_scope_end(&s);
    CHECK(rc == 0 || (cancel && rc == WEFT_ETIMEDOUT));
    CHECK_EQ(atomic_load(&started), atomic_load(&accepted));
    if (results && rc == 0) CHECK_EQ(asked, atomic_load(&accepted));
}

static int limits(void *arg) {
    uint64_t rnd = test_seed() + (uint64_t)(intptr_t)arg;
    for (long i = test_scale(3000, 60); i > 0; i--) one_limited(&rnd);
    return 0;
}

TEST_T(cancel_stress, limits_hold_while_children_end_and_spawn, 120) {
    EACH_WORKERS(w) CHECK_EQ(run_on(w, limits, as_arg(w)), 0);
}

TEST_T(cancel_stress, limits_of_a_plain_threads_scope, 120) {
    EACH_WORKERS(w) {
        CHECK_EQ(set_up(w), 0);
        uint64_t rnd = test_seed() + (uint64_t)w;
        for (long i = test_scale(500, 20); i > 0; i--) one_limited(&rnd);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    }
}

/* ---- several tasks at once ---- */

static int short_life(void *arg) {
    uint64_t rnd = (uint64_t)(uintptr_t)arg;
    atomic_fetch_add(&started, 1);
    if (rnd % 3 == 0) weft_yield();
    if (rnd % 5 == 0) (void)weft_sleep_for((int64_t)test_below(&rnd, 20) * WEFT_US);
    atomic_fetch_add(&ended, 1);
    return (int)((uintptr_t)arg % 1000);
}

static void find_some(uint64_t *rnd) {
    enum { MOST = 24 };
    weft_task *t[MOST];
    int want[MOST];
    size_t n = 1 + test_below(rnd, MOST), left = n;
    for (size_t i = 0; i < n; i++) {
        uint64_t seed = test_random_from(rnd) >> 1;
        want[i] = (int)(seed % 1000);
        CHECK_EQ(weft_task_start(&t[i], short_life, (void *)(uintptr_t)seed, NULL), 0);
        if (test_below(rnd, 4) == 0) weft_task_cancel(t[i]);
    }
    while (left) {
        size_t which = MOST;
        int r = -1;
        uint64_t kind = test_below(rnd, 4);
        weft_deadline d = kind == 0 ? WEFT_POLL : kind == 1 ? weft_after((int64_t)test_below(rnd, 20) * WEFT_US) : WEFT_FOREVER;
        int rc = weft_task_any(t, n, &which, &r, d);
        if (rc == WEFT_EAGAIN || rc == WEFT_ETIMEDOUT) continue;
        CHECK_EQ(rc, 0);
        CHECK(t[which]);
        CHECK_EQ(r, want[which]);
        t[which] = NULL;
        left--;
    }
}

static int find_many(void *arg) {
    uint64_t rnd = test_seed() + (uint64_t)(intptr_t)arg;
    for (long i = test_scale(4000, 60); i > 0; i--) find_some(&rnd);
    return 0;
}

TEST_T(cancel_stress, the_first_of_several_is_always_found, 120) {
    EACH_WORKERS(w) {
        forget();
        CHECK_EQ(run_on(w, find_many, as_arg(w)), 0);
        CHECK_EQ(atomic_load(&ended), atomic_load(&started));
    }
}

/* ---- deadlines of plain threads against a runtime that stops ---- */

static atomic_int cycles_over;

static void *open_expired_scopes(void *arg) {
    (void)arg;
    while (!atomic_load(&cycles_over)) {
        weft_scope s;
        weft_scope_begin(&s, &(weft_scope_opts){.deadline = weft_at(1)});
        CHECK_NE(weft_cancel_cause(), 0);
        CHECK_LT(weft_scope_end(&s), 0); /* WEFT_ETIMEDOUT, or the stop was first */
    }
    return NULL;
}

TEST(cancel_stress, a_deadline_that_passes_while_the_runtime_stops_is_not_lost) {
    pthread_t t[2];
    int64_t end = test_long_enough();
    for (int i = 0; i < 2; i++) CHECK_EQ(pthread_create(&t[i], NULL, open_expired_scopes, NULL), 0);
    for (long i = test_scale(500, 50); i > 0 && test_clock_ns() < end; i--) {
        CHECK_EQ(weft_start(&(weft_config){.workers = 2}), 0);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    }
    atomic_store(&cycles_over, 1);
    for (int i = 0; i < 2; i++) CHECK_EQ(pthread_join(t[i], NULL), 0);
}
