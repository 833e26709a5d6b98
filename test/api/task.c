/* SPDX-License-Identifier: MIT */
/* Tasks of the root scope, and handles to them. */
#include <limits.h>

#include "api/common.h"

/* ---- go ---- */

static atomic_int ran;

static int count_run(void *arg) {
    (void)arg;
    atomic_fetch_add(&ran, 1);
    return 0;
}

static int go_many(void *arg) {
    (void)arg;
    atomic_store(&ran, 0);
    for (int i = 0; i < 1000; i++) CHECK_EQ(weft_go(count_run, NULL), 0);
    task_wait(&ran, 1000);
    for (int i = 0; i < 100; i++) weft_yield();
    CHECK_EQ(atomic_load(&ran), 1000);
    return 0;
}

TEST(task, go_runs_each_exactly_once) { run_each(go_many); }

TEST(task, go_from_a_plain_thread) {
    EACH_WORKERS(w) {
        CHECK_EQ(set_up(w), 0);
        atomic_store(&ran, 0);
        for (int i = 0; i < 300; i++) CHECK_EQ(weft_go(count_run, NULL), 0);
        thread_wait(&ran, 300);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
        CHECK_EQ(atomic_load(&ran), 300);
    }
}

struct pair {
    int a, b;
    atomic_int *sum;
};

static int add_pair(void *arg) {
    struct pair *p = arg;
    weft_yield(); /* the copy must live as long as the task */
    atomic_fetch_add(p->sum, p->a * p->b);
    atomic_fetch_add(&ran, 1);
    return 0;
}

static int go_with_pairs(void *arg) {
    (void)arg;
    atomic_int sum = 0;
    int want = 0;
    atomic_store(&ran, 0);
    for (int i = 0; i < 200; i++) {
        CHECK_EQ(weft_go_with(add_pair, (struct pair){i, i + 1, &sum}), 0);
        want += i * (i + 1);
    }
    task_wait(&ran, 200);
    CHECK_EQ(atomic_load(&sum), want);
    return 0;
}

TEST(task, go_with_copies_its_argument) { run_each(go_with_pairs); }

static struct pair pair_of(int a, atomic_int *sum) { return (struct pair){a, 1, sum}; }

static int add_through(void *arg) {
    struct pair **p = arg;
    return add_pair(*p);
}

/* What has no address: a result, a sum, a conditional; and what has one. */
static int with_values(void *arg) {
    (void)arg;
    atomic_int sum = 0;
    const struct pair fixed = pair_of(1000, &sum);
    struct pair there = pair_of(100, &sum);
    weft_scope s;
    atomic_store(&ran, 0);
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn_with(&s, add_pair, pair_of(1, &sum)), 0);
    CHECK_EQ(weft_spawn_with(&s, add_pair, arg ? there : pair_of(10, &sum)), 0);
    CHECK_EQ(weft_spawn_with(&s, add_through, &there + 0), 0);
    CHECK_EQ(weft_spawn_with(&s, add_pair, fixed), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(weft_go_with(add_pair, pair_of(10000, &sum)), 0);
    task_wait(&ran, 5);
    CHECK_EQ(atomic_load(&sum), 11111);
    return 0;
}

TEST(task, spawn_with_and_go_with_take_values_without_an_address) { run_each(with_values); }

#define BIG 4096

static int check_big(void *arg) {
    unsigned char *p = arg;
    CHECK((uintptr_t)p % _Alignof(max_align_t) == 0);
    weft_yield();
    for (int i = 0; i < BIG; i++) CHECK_EQ(p[i], (unsigned char)(p[0] + i));
    atomic_fetch_add(&ran, 1);
    return 0;
}

static int go_copy_big(void *arg) {
    (void)arg;
    unsigned char buf[BIG];
    atomic_store(&ran, 0);
    for (int k = 0; k < 50; k++) {
        for (int i = 0; i < BIG; i++) buf[i] = (unsigned char)(k + i);
        CHECK_EQ(weft_go_copy(check_big, buf, BIG), 0);
        memset(buf, 0xee, BIG);
    }
    task_wait(&ran, 50);
    return 0;
}

TEST(task, go_copy_takes_large_arguments) { run_each(go_copy_big); }

/* ---- start and join ---- */

static int join_results(void *arg) {
    (void)arg;
    static const int results[] = {0, 1, -1, INT_MAX, INT_MIN, WEFT_ECANCELED};
    for (size_t i = 0; i < COUNT(results); i++) {
        weft_task *t = NULL;
        int r = 77;
        CHECK_EQ(weft_task_start(&t, return_int, as_arg(results[i]), NULL), 0);
        CHECK(t);
        CHECK_EQ(weft_task_join(t, &r, WEFT_FOREVER), 0);
        CHECK_EQ(r, results[i]);
    }
    weft_task *t = NULL;
    CHECK_EQ(weft_task_start(&t, return_int, as_arg(3), NULL), 0);
    CHECK_EQ(weft_task_join(t, NULL, WEFT_FOREVER), 0);
    return 0;
}

TEST(task, join_gives_the_result) { run_each(join_results); }

TEST(task, join_from_a_plain_thread) {
    EACH_WORKERS(w) {
        CHECK_EQ(set_up(w), 0);
        for (int i = 0; i < 100; i++) CHECK_EQ(join_results(NULL), 0);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    }
}

static int wait_for_flag(void *arg) {
    task_wait(arg, 1);
    return 21;
}

static int join_in_vain(void *arg) {
    (void)arg;
    atomic_int go = 0;
    weft_task *t = NULL;
    int r = 5;
    CHECK_EQ(weft_task_start(&t, wait_for_flag, &go, NULL), 0);
    CHECK_EQ(weft_task_join(t, &r, WEFT_POLL), WEFT_EAGAIN);
    CHECK_EQ(weft_task_join(t, &r, weft_at(1)), WEFT_ETIMEDOUT);
    int64_t before = weft_now();
    CHECK_EQ(weft_task_join(t, &r, weft_after(2 * WEFT_MS)), WEFT_ETIMEDOUT);
    CHECK_GE(weft_now() - before, 2 * WEFT_MS);
    CHECK_EQ(r, 5);
    atomic_store(&go, 1);
    CHECK_EQ(weft_task_join(t, &r, WEFT_FOREVER), 0); /* the handle was good all the time */
    CHECK_EQ(r, 21);
    return 0;
}

TEST(task, join_gives_up_at_its_deadline_and_keeps_the_handle) { run_each(join_in_vain); }

static int join_ended(void *arg) {
    (void)arg;
    weft_task *t[64];
    atomic_store(&ran, 0);
    for (size_t i = 0; i < COUNT(t); i++) CHECK_EQ(weft_task_start(&t[i], count_run, NULL, NULL), 0);
    task_wait_parked(&ran, COUNT(t));
    for (size_t i = 0; i < COUNT(t); i++) {
        int rc; /* it has counted itself, but may need a moment more to be gone */
        while ((rc = weft_task_join(t[i], NULL, WEFT_POLL)) == WEFT_EAGAIN) weft_yield();
        CHECK_EQ(rc, 0);
    }
    return 0;
}

TEST(task, join_of_an_ended_task_needs_no_wait) { run_each(join_ended); }

static _Atomic(weft_task *) my_handle;

static int join_myself(void *arg) {
    (void)arg;
    weft_task *t;
    while (!(t = atomic_load(&my_handle))) weft_yield();
    CHECK_EQ(weft_task_join(t, NULL, WEFT_FOREVER), WEFT_EDEADLOCK);
    return 6;
}

static int start_self_joiner(void *arg) {
    (void)arg;
    weft_task *t = NULL;
    int r = 0;
    atomic_store(&my_handle, NULL);
    CHECK_EQ(weft_task_start(&t, join_myself, NULL, NULL), 0);
    atomic_store(&my_handle, t);
    CHECK_EQ(weft_task_join(t, &r, WEFT_FOREVER), 0);
    CHECK_EQ(r, 6);
    return 0;
}

TEST(task, joining_oneself_is_a_deadlock_and_says_so) { run_each(start_self_joiner); }

static int let_go(void *arg) {
    (void)arg;
    atomic_store(&ran, 0);
    for (int i = 0; i < 500; i++) {
        weft_task *t = NULL;
        CHECK_EQ(weft_task_start(&t, count_run, NULL, NULL), 0);
        if (i % 2) weft_yield(); /* sometimes it has ended before */
        weft_task_unref(t);
    }
    weft_task_unref(NULL);
    task_wait(&ran, 500);
    return 0;
}

TEST(task, a_released_task_goes_on) { run_each(let_go); }

static int bad_options(void *arg) {
    (void)arg;
    weft_task *t = NULL;
    weft_task_opts huge = {.name = "huge", .stack_size = ((size_t)1 << 30) + ((size_t)1 << 20)};
    CHECK_EQ(weft_task_start(&t, return_int, NULL, &huge), WEFT_EINVAL);
    huge.stack_size = SIZE_MAX;
    CHECK_EQ(weft_task_start(&t, return_int, NULL, &huge), WEFT_EINVAL);
    weft_task_opts none = {.name = NULL, .stack_size = 0};
    CHECK_EQ(weft_task_start(&t, return_int, as_arg(2), &none), 0);
    int r = 0;
    CHECK_EQ(weft_task_join(t, &r, WEFT_FOREVER), 0);
    CHECK_EQ(r, 2);
    return 0;
}

TEST(task, options_are_checked) { run_each(bad_options); }

static int long_names(void *arg) {
    (void)arg;
    char name[5000];
    for (size_t n = 1; n < sizeof name; n = n * 3 + 1) {
        memset(name, 'x', sizeof name);
        name[n] = 0;
        weft_task *t = NULL;
        weft_task_opts o = {.name = name, .stack_size = 0};
        CHECK_EQ(weft_task_start(&t, return_int, as_arg((int)n), &o), 0);
        memset(name, 0, sizeof name); /* it was copied */
        int r = 0;
        CHECK_EQ(weft_task_join(t, &r, WEFT_FOREVER), 0);
        CHECK_EQ(r, n);
    }
    return 0;
}

TEST(task, names_of_any_length_are_taken) { run_each(long_names); }

/* ---- ids ---- */

struct ids {
    uint64_t *id;
    int n;
};

static int tell_id(void *arg) {
    uint64_t *p = arg;
    *p = weft_self();
    weft_yield();
    CHECK_EQ(*p, weft_self());
    return 0;
}

static int compare_ids(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static int collect_ids(void *arg) {
    struct ids *ids = arg;
    int at = 0;
    while (at < ids->n) { /* in batches, so that records are used again */
        weft_scope s;
        weft_scope_begin(&s, NULL);
        for (int i = 0; i < 100 && at < ids->n - 1; i++) CHECK_EQ(weft_spawn(&s, tell_id, &ids->id[at++]), 0);
        CHECK_EQ(weft_scope_end(&s), 0);
        weft_task *t = NULL;
        CHECK_EQ(weft_task_start(&t, tell_id, &ids->id[at], NULL), 0);
        uint64_t id = weft_task_id(t);
        CHECK_EQ(weft_task_join(t, NULL, WEFT_FOREVER), 0);
        CHECK_EQ(id, ids->id[at++]);
    }
    qsort(ids->id, (size_t)ids->n, sizeof *ids->id, compare_ids);
    CHECK_NE(ids->id[0], 0);
    for (int i = 1; i < ids->n; i++) CHECK_NE(ids->id[i], ids->id[i - 1]);
    return 0;
}

TEST(task, ids_are_never_zero_and_never_used_again) {
    EACH_WORKERS(w) {
        struct ids ids = {.id = NULL, .n = (int)test_scale(20000, 2000)};
        ids.id = calloc((size_t)ids.n, sizeof *ids.id);
        CHECK_EQ(run_on(w, collect_ids, &ids), 0);
        free(ids.id);
    }
    CHECK_EQ(weft_self(), 0);
}

/* ---- yield ---- */

struct turns {
    atomic_int mine[3];
    atomic_int stop;
};

static struct turns turns;

static int take_turns(void *arg) {
    int me = (int)(intptr_t)arg;
    while (!atomic_load(&turns.stop)) {
        atomic_fetch_add(&turns.mine[me], 1);
        weft_yield();
    }
    return 0;
}

static int yield_fairly(void *arg) {
    (void)arg;
    memset(&turns, 0, sizeof turns);
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 3; i++) CHECK_EQ(weft_spawn(&s, take_turns, as_arg(i)), 0);
    for (int i = 0; i < 3; i++) task_wait(&turns.mine[i], 1);
    int start[3];
    for (int i = 0; i < 3; i++) start[i] = atomic_load(&turns.mine[i]);
    for (int i = 0; i < 3000; i++) weft_yield();
    for (int i = 0; i < 3; i++) /* one worker: everybody had 3000 turns or nearly so */
        CHECK_GE(atomic_load(&turns.mine[i]) - start[i], 1000);
    atomic_store(&turns.stop, 1);
    return weft_scope_end(&s);
}

TEST(task, yield_lets_the_others_run) { CHECK_EQ(run_on(1, yield_fairly, NULL), 0); }

static int spawn_fresh_behind_yielders(void *arg) {
    (void)arg;
    memset(&turns, 0, sizeof turns);
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 3; i++) CHECK_EQ(weft_spawn(&s, take_turns, as_arg(i)), 0);
    atomic_store(&ran, 0);
    for (int i = 0; i < 100; i++) CHECK_EQ(weft_go(count_run, NULL), 0);
    task_wait(&ran, 100); /* fresh tasks are not starved by started ones */
    atomic_store(&turns.stop, 1);
    return weft_scope_end(&s);
}

TEST(task, tasks_that_yield_for_ever_do_not_starve_fresh_ones) { run_each(spawn_fresh_behind_yielders); }

/* ---- cancelling one task ---- */

static atomic_int entered;

static int wait_and_say(void *arg) {
    (void)arg;
    atomic_fetch_add(&entered, 1);
    int rc = weft_sleep(WEFT_FOREVER);
    CHECK_EQ(weft_cancelled(), 1);
    CHECK_EQ(weft_cancel_cause(), WEFT_ECANCELED);
    CHECK_EQ(weft_sleep_for(0), WEFT_ECANCELED); /* and again */
    return rc;
}

static int cancel_one(void *arg) {
    (void)arg;
    for (int early = 0; early < 2; early++) {
        weft_task *t = NULL, *other = NULL;
        int r = 0;
        atomic_store(&entered, 0);
        CHECK_EQ(weft_task_start(&t, wait_and_say, NULL, NULL), 0);
        CHECK_EQ(weft_task_start(&other, wait_and_say, NULL, NULL), 0);
        if (!early) task_wait_parked(&entered, 2);
        weft_task_cancel(t);
        weft_task_cancel(t); /* twice is once */
        CHECK_EQ(weft_task_join(t, &r, WEFT_FOREVER), 0);
        CHECK_EQ(r, WEFT_ECANCELED);
        CHECK_EQ(weft_task_join(other, &r, WEFT_POLL), WEFT_EAGAIN);
        CHECK_EQ(weft_cancelled(), 0);
        weft_task_cancel(other);
        CHECK_EQ(weft_task_join(other, &r, WEFT_FOREVER), 0);
        CHECK_EQ(atomic_load(&entered), 2);
    }
    return 0;
}

TEST(task, cancel_ends_its_waits_and_nobody_elses) { run_each(cancel_one); }

static int cancel_ended(void *arg) {
    (void)arg;
    for (int i = 0; i < 200; i++) {
        weft_task *t = NULL;
        atomic_store(&ran, 0);
        CHECK_EQ(weft_task_start(&t, count_run, NULL, NULL), 0);
        task_wait(&ran, 1);
        weft_task_cancel(t); /* ended, or about to */
        weft_task_unref(t);
    }
    return 0;
}

TEST(task, cancelling_an_ended_task_does_nothing) { run_each(cancel_ended); }

static int open_scope_and_wait(void *arg) {
    (void)arg;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 5; i++) CHECK_EQ(weft_spawn(&s, wait_and_say, NULL), 0);
    task_wait(&entered, 5);
    return weft_scope_end(&s);
}

static int cancel_with_children(void *arg) {
    (void)arg;
    weft_task *t = NULL;
    int r = 0;
    atomic_store(&entered, 0);
    CHECK_EQ(weft_task_start(&t, open_scope_and_wait, NULL, NULL), 0);
    task_wait_parked(&entered, 5);
    weft_task_cancel(t);
    CHECK_EQ(weft_task_join(t, &r, WEFT_FOREVER), 0);
    CHECK_EQ(r, WEFT_ECANCELED); /* a cancellation from outside the scope */
    return 0;
}

TEST(task, cancel_reaches_the_scopes_it_opened) { run_each(cancel_with_children); }

/* A task that is started while others have nothing to do may run before weft_task_start has returned. */
static int find_itself(void *arg) {
    weft_task **out = arg;
    CHECK(*out != NULL);
    CHECK_EQ(weft_task_id(*out), weft_self());
    return 0;
}

static int start_many(void *arg) {
    (void)arg;
    int64_t end = test_long_enough();
    for (long i = test_scale(30000, 500); i > 0 && test_clock_ns() < end; i--) {
        weft_task *t[2] = {NULL, NULL};
        for (int k = 0; k < 2; k++) CHECK_EQ(weft_task_start(&t[k], find_itself, &t[k], NULL), 0);
        for (int k = 0; k < 2; k++) CHECK_EQ(weft_task_join(t[k], NULL, WEFT_FOREVER), 0);
    }
    return 0;
}

TEST(task, the_handle_is_there_before_the_task_runs) {
    run_each_watched(start_many);
    CHECK_EQ(set_up(2), 0);
    CHECK_EQ(start_many(NULL), 0);
    weft_task *t = (weft_task *)(void *)&t;
    CHECK_EQ(weft_task_start(&t, find_itself, &t, &(weft_task_opts){.priority = 7}), WEFT_EINVAL);
    CHECK_PTR(t, NULL);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
}
