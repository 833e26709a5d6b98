/* SPDX-License-Identifier: MIT */
/* Scopes with a limit, and children asked for one by one. */
#include "api/common.h"
#include <weft/debug.h>

static atomic_int alive, most, ran;

static void enter(void) {
    int n = atomic_fetch_add(&alive, 1) + 1, seen = atomic_load(&most);
    while (n > seen && !atomic_compare_exchange_weak(&most, &seen, n)) {
    }
}

static void leave(void) {
    atomic_fetch_sub(&alive, 1);
    atomic_fetch_add(&ran, 1);
}

static void forget(void) {
    atomic_store(&alive, 0);
    atomic_store(&most, 0);
    atomic_store(&ran, 0);
}

static int work(void *arg) {
    int kind = (int)(intptr_t)arg;
    enter();
    if (kind % 3 == 0) weft_yield();
    if (kind % 7 == 0) CHECK_EQ(weft_sleep_for(20 * WEFT_US), 0);
    leave();
    return kind % 5;
}

static void begin_limited(weft_scope *s, int limit) {
    forget();
    weft_scope_begin(s, &(weft_scope_opts){.limit = limit});
}

static int limited(void *arg) {
    (void)arg;
    static const int limits[] = {1, 2, 3, 10, 1000};
    for (size_t i = 0; i < COUNT(limits); i++) {
        weft_scope s;
        begin_limited(&s, limits[i]);
        for (int k = 0; k < 200; k++) CHECK_EQ(weft_spawn(&s, work, as_arg(k)), 0);
        CHECK_EQ(weft_scope_end(&s), 0);
        CHECK_EQ(atomic_load(&ran), 200);
        CHECK_LE(atomic_load(&most), limits[i]);
    }
    return 0;
}

TEST(scope_limit, no_more_than_the_limit_are_alive) { run_each(limited); }

TEST(scope_limit, of_a_plain_threads_scope) {
    EACH_WORKERS(w) {
        CHECK_EQ(set_up(w), 0);
        CHECK_EQ(limited(NULL), 0);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    }
}

/* Every form of spawn counts. */
static int work_copy(void *arg) { return work(as_arg(*(int *)arg)); }

static int forms(void *arg) {
    (void)arg;
    weft_scope s;
    char big[500] = "";
    begin_limited(&s, 2);
    for (int k = 0; k < 50; k++) {
        CHECK_EQ(weft_spawn_with(&s, work_copy, (int){k}), 0);
        memcpy(big, &k, sizeof k);
        CHECK_EQ(weft_spawn_copy(&s, work_copy, big, sizeof big), 0);
        CHECK_EQ(weft_spawnf(&s, work, as_arg(k), "worker %d", k), 0);
        CHECK_EQ(weft_spawn_opts(&s, work, as_arg(k), &(weft_task_opts){.name = "x", .stack_size = 1 << 20}), 0);
    }
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(atomic_load(&ran), 200);
    CHECK_LE(atomic_load(&most), 2);
    return 0;
}

TEST(scope_limit, every_form_of_spawn_counts) { run_each(forms); }

/* ---- a spawn that waits ---- */

static int hold(void *arg) {
    weft_chan *c = arg;
    int v;
    enter();
    int rc = weft_chan_recv(c, &v, WEFT_FOREVER);
    leave();
    return rc == WEFT_ECLOSED ? 0 : rc;
}

struct waiting_spawn {
    weft_scope *s;
    weft_chan *c;
    atomic_int before, after;
};

static int close_when_waiting(void *arg) {
    struct waiting_spawn *w = arg;
    task_wait_parked(&w->before, 1);
    CHECK_EQ(atomic_load(&w->after), 0);
    CHECK_EQ(atomic_load(&alive), 3);
    int v = 0;
    CHECK_EQ(weft_chan_send(w->c, &v, WEFT_FOREVER), 0);
    task_wait(&w->after, 1);
    CHECK_EQ(weft_chan_close(w->c), 0);
    return 0;
}

static int wait_for_room(void *arg) {
    (void)arg;
    weft_scope s;
    weft_task *t;
    struct waiting_spawn w = {&s, weft_chan_new(sizeof(int), 0), 0, 0};
    begin_limited(&s, 3);
    for (int i = 0; i < 3; i++) CHECK_EQ(weft_spawn(&s, hold, w.c), 0);
    task_wait(&alive, 3);
    CHECK_EQ(weft_task_start(&t, close_when_waiting, &w, NULL), 0);
    atomic_store(&w.before, 1);
    CHECK_EQ(weft_spawn(&s, hold, w.c), 0);
    CHECK_EQ(atomic_load(&ran), 1);
    atomic_store(&w.after, 1);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(weft_task_join(t, NULL, WEFT_FOREVER), 0);
    weft_chan_unref(w.c);
    return 0;
}

TEST(scope_limit, a_spawn_waits_until_a_child_has_ended) { run_each(wait_for_room); }

static int cancel_when_waiting(void *arg) {
    struct waiting_spawn *w = arg;
    task_wait_parked(&w->before, 1);
    weft_scope_cancel(w->s);
    return 0;
}

static int cancel_waiting(void *arg) {
    int way = (int)(intptr_t)arg;
    weft_scope outer, s;
    weft_task *t;
    struct waiting_spawn w = {way == 0 ? &s : &outer, weft_chan_new(sizeof(int), 0), 0, 0};
    weft_scope_begin(&outer, NULL);
    forget();
    weft_scope_begin(&s, &(weft_scope_opts){.limit = 1, .deadline = way == 2 ? weft_after(2 * WEFT_MS) : WEFT_FOREVER});
    int first = weft_spawn(&s, hold, w.c);
    CHECK(first == 0 || way == 2); /* its time may be up by now */
    if (first == 0) task_wait(&most, 1);
    if (way != 2) CHECK_EQ(weft_task_start(&t, cancel_when_waiting, &w, NULL), 0);
    atomic_store(&w.before, 1);
    CHECK_EQ(weft_spawn(&s, hold, w.c), WEFT_ECANCELED);
    CHECK_EQ(weft_scope_end(&s), way == 0 ? 0 : way == 1 ? WEFT_ECANCELED : WEFT_ETIMEDOUT);
    CHECK_EQ(weft_scope_end(&outer), 0);
    CHECK_EQ(atomic_load(&ran), first == 0);
    if (way != 2) CHECK_EQ(weft_task_join(t, NULL, WEFT_FOREVER), 0);
    weft_chan_unref(w.c);
    return 0;
}

static int cancel_waiting_each(void *arg) {
    (void)arg;
    for (int way = 0; way < 3; way++) cancel_waiting(as_arg(way));
    return 0;
}

TEST(scope_limit, a_spawn_that_waits_is_refused_when_cancelled) { run_each(cancel_waiting_each); }

/* ---- the scope's own tasks spawn ---- */

struct breed {
    weft_scope *s;
    int depth;
};

static int breed(void *arg) {
    struct breed b = *(struct breed *)arg;
    enter();
    if (b.depth > 0)
        for (int i = 0; i < 3; i++) CHECK_EQ(weft_spawn_with(b.s, breed, (struct breed){b.s, b.depth - 1}), 0);
    weft_yield();
    leave();
    return 0;
}

/* Through a scope that a child has opened; some of its tasks run on the child's stack. */
static int breed_below(void *arg) {
    struct breed b = *(struct breed *)arg;
    weft_scope s;
    enter();
    weft_scope_begin(&s, NULL);
    struct breed below = {b.s, 0};
    for (int i = 0; i < 3; i++)
        CHECK_EQ(weft_spawn_with(&s, b.depth ? breed_below : breed, (struct breed){b.s, b.depth - 1}), 0);
    CHECK_EQ(weft_spawn_with(b.s, breed, below), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    leave();
    return 0;
}

static int own_tasks(void *arg) {
    (void)arg;
    for (int limit = 1; limit < 5; limit++) {
        weft_scope s;
        begin_limited(&s, limit);
        for (int i = 0; i < 3; i++) CHECK_EQ(weft_spawn_with(&s, breed, (struct breed){&s, 4}), 0);
        CHECK_EQ(weft_scope_end(&s), 0);
        CHECK_EQ(atomic_load(&ran), 3 * (1 + 3 + 9 + 27 + 81));
        CHECK_LE(atomic_load(&most), limit);
        begin_limited(&s, limit);
        CHECK_EQ(weft_spawn_with(&s, breed_below, (struct breed){&s, 2}), 0);
        CHECK_EQ(weft_scope_end(&s), 0);
    }
    return 0;
}

TEST(scope_limit, its_own_tasks_spawn_without_waiting) { run_each(own_tasks); }

/* Accepted is accepted: they run even when the scope is cancelled before there was room. */
static int spawn_and_cancel(void *arg) {
    weft_scope *s = arg;
    for (int i = 0; i < 10; i++) CHECK_EQ(weft_spawn(s, work, as_arg(1)), 0);
    weft_scope_cancel(s);
    CHECK_EQ(weft_spawn(s, work, as_arg(1)), WEFT_ECANCELED);
    return 0;
}

static int accepted_then_cancelled(void *arg) {
    (void)arg;
    weft_scope s;
    begin_limited(&s, 1);
    CHECK_EQ(weft_spawn(&s, spawn_and_cancel, &s), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(atomic_load(&ran), 10);
    return 0;
}

TEST(scope_limit, what_was_accepted_runs_although_it_was_cancelled) { run_each(accepted_then_cancelled); }

static int bad_limit(void *arg) {
    (void)arg;
    weft_scope s;
    weft_scope_begin(&s, &(weft_scope_opts){.limit = -1});
    return 0;
}

TEST(scope_limit, a_negative_one_dies) { CHECK_DIES(bad_limit, "limit is -1"); }

/* ---- weft_scope_wait_any ---- */

static int take_one(void *arg) {
    int v, rc = weft_chan_recv(arg, &v, WEFT_FOREVER);
    return rc < 0 ? rc : v;
}

/* In the order in which they end: each is let go when the one before it was reported. */
static int in_order(void *arg) {
    (void)arg;
    weft_scope s;
    weft_chan *c = weft_chan_new(sizeof(int), 0);
    int r;
    weft_scope_begin(&s, &(weft_scope_opts){.results = true, .on_error = WEFT_KEEP_GOING});
    CHECK_EQ(weft_scope_wait_any(&s, &r, WEFT_FOREVER), WEFT_EEOF);
    for (int i = 0; i < 100; i++) CHECK_EQ(weft_spawn(&s, take_one, c), 0);
    r = 77;
    CHECK_EQ(weft_scope_wait_any(&s, &r, WEFT_POLL), WEFT_EAGAIN);
    CHECK_EQ(weft_scope_wait_any(&s, &r, weft_after(50 * WEFT_US)), WEFT_ETIMEDOUT);
    CHECK_EQ(r, 77);
    for (int i = 0; i < 100; i++) {
        int v = i % 2 ? i : -i - 1;
        CHECK_EQ(weft_chan_send(c, &v, WEFT_FOREVER), 0);
        CHECK_EQ(weft_scope_wait_any(&s, i == 50 ? NULL : &r, i % 3 ? WEFT_FOREVER : weft_after(HOUR)), 0);
        if (i != 50) CHECK_EQ(r, v);
    }
    CHECK_EQ(weft_scope_wait_any(&s, &r, WEFT_FOREVER), WEFT_EEOF);
    CHECK_EQ(weft_scope_end(&s), -1);
    weft_chan_unref(c);
    return 0;
}

TEST(scope_wait_any, gives_each_child_once_in_the_order_of_their_ends) { run_each(in_order); }

/* Those that ended before count too; what nobody asks for is no leak. */
static int ended_before(void *arg) {
    (void)arg;
    for (int limit = 0; limit < 4; limit++) {
        weft_scope s;
        int r;
        uint64_t sum = 0;
        weft_scope_begin(&s, &(weft_scope_opts){.results = true, .limit = limit});
        for (int i = 0; i < 300; i++) CHECK_EQ(weft_spawn(&s, return_int, as_arg(i)), 0);
        for (int i = 0; i < 200; i++) {
            CHECK_EQ(weft_scope_wait_any(&s, &r, WEFT_FOREVER), 0);
            sum += (uint64_t)r;
        }
        for (int i = 300; i < 500; i++) CHECK_EQ(weft_spawn(&s, return_int, as_arg(i)), 0);
        for (int i = 0; i < 300; i++) {
            CHECK_EQ(weft_scope_wait_any(&s, &r, WEFT_FOREVER), 0);
            sum += (uint64_t)r;
        }
        CHECK_EQ(sum, 499 * 500 / 2);
        CHECK_EQ(weft_scope_wait_any(&s, &r, WEFT_POLL), WEFT_EEOF);
        for (int i = 0; i < 100; i++) CHECK_EQ(weft_spawn(&s, return_int, as_arg(i)), 0);
        CHECK_EQ(weft_scope_end(&s), 0);
    }
    return 0;
}

TEST(scope_wait_any, counts_those_that_ended_before) { run_each(ended_before); }

TEST(scope_wait_any, in_a_plain_thread) {
    EACH_WORKERS(w) {
        CHECK_EQ(set_up(w), 0);
        CHECK_EQ(in_order(NULL), 0);
        CHECK_EQ(ended_before(NULL), 0);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    }
}

static int ask(void *arg) { return weft_scope_wait_any(arg, NULL, WEFT_POLL); }

static int wrong_use(void *arg) {
    (void)arg;
    weft_scope s;
    weft_scope_begin(&s, &(weft_scope_opts){.on_error = WEFT_KEEP_GOING});
    CHECK_EQ(weft_scope_wait_any(&s, NULL, WEFT_FOREVER), WEFT_EINVAL);
    CHECK_EQ(weft_scope_end(&s), 0);
    weft_scope_begin(&s, &(weft_scope_opts){.results = true, .on_error = WEFT_KEEP_GOING});
    CHECK_EQ(weft_spawn(&s, ask, &s), 0);
    CHECK_EQ(weft_scope_end(&s), WEFT_EINVAL);
    weft_scope_begin(&s, &(weft_scope_opts){.results = true});
    CHECK_EQ(weft_spawn(&s, wait_for_ever, NULL), 0);
    weft_scope_cancel(&s);
    CHECK_EQ(weft_scope_wait_any(&s, NULL, WEFT_FOREVER), WEFT_ECANCELED);
    CHECK_EQ(weft_scope_end(&s), 0);
    return 0;
}

TEST(scope_wait_any, is_for_the_opener_of_a_scope_with_results) { run_each(wrong_use); }

static int run_wrong_use(void *arg) {
    (void)arg;
    run_each(wrong_use);
    return 0;
}

TEST(scope_wait_any, says_once_that_the_option_is_missing) {
    struct test_child c;
    test_child(run_wrong_use, NULL, &c);
    CHECK_EQ(c.exit_code, 0);
    const char *at = strstr(c.out, ".results is missing");
    CHECK_MSG(at, "%s", c.out);
    CHECK(!strstr(at + 1, ".results is missing"));
}

/* A failing child cancels the scope while its opener asks. */
static int fails_while_asking(void *arg) {
    (void)arg;
    weft_scope s;
    weft_scope_begin(&s, &(weft_scope_opts){.results = true});
    CHECK_EQ(weft_spawn(&s, return_int, as_arg(-3)), 0);
    CHECK_EQ(weft_spawn(&s, wait_for_ever, NULL), 0);
    int rc = weft_scope_wait_any(&s, NULL, WEFT_FOREVER);
    CHECK(rc == WEFT_ECANCELED || rc == 0);
    CHECK_EQ(weft_scope_end(&s), -3);
    return 0;
}

TEST(scope_wait_any, ends_when_the_scope_is_cancelled) { run_each(fails_while_asking); }
