/* SPDX-License-Identifier: MIT */
/* weft_scope_wait: until no child is left, with the scope still open. */
#include "api/common.h"
#include "api/fake.h"

static atomic_int ended, back;

static int end_later(void *arg) {
    weft_yield();
    atomic_fetch_add(&ended, 1);
    return (int)(intptr_t)arg;
}

/* Receives once, whatever is cancelled meanwhile. */
static int stubborn(void *c) {
    CHECK_EQ(weft_shield_begin(WEFT_FOREVER), 0);
    CHECK_EQ(weft_chan_recv(c, NULL, WEFT_FOREVER), 0);
    weft_shield_end();
    atomic_fetch_add(&ended, 1);
    return 0;
}

static void forget(void) {
    atomic_store(&ended, 0);
    atomic_store(&back, 0);
}

static bool one_receives(void *c) {
    weft_chan_stats st;
    weft_chan_stats_get(c, &st);
    return st.recv_waiting == 1;
}

/* ---- the end of all children ---- */

static int wait_twice(void *arg) {
    weft_scope s;
    (void)arg;
    forget();
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_scope_wait(&s, WEFT_FOREVER), 0);
    CHECK_EQ(weft_scope_wait(&s, WEFT_POLL), 0);
    for (int round = 1; round <= 3; round++) {
        for (int i = 0; i < 20; i++) CHECK_EQ(weft_spawn(&s, end_later, NULL), 0);
        CHECK_EQ(weft_scope_wait(&s, weft_after(HOUR)), 0);
        CHECK_EQ(atomic_load(&ended), round * 20);
        CHECK_EQ(weft_scope_wait(&s, weft_at(1)), 0);
    }
    CHECK_EQ(weft_spawn(&s, end_later, NULL), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(atomic_load(&ended), 61);
    return 0;
}

TEST(scope_wait, waits_for_all_children_and_leaves_the_scope_open) { run_each(wait_twice); }

TEST(scope_wait, of_a_plain_threads_scope) {
    EACH_WORKERS(w) {
        CHECK_EQ(set_up(w), 0);
        CHECK_EQ(wait_twice(NULL), 0);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    }
}

/* Spawns siblings, down to depth 0. */
struct brood {
    weft_scope *s;
    int depth;
};

static int breed(void *arg) {
    struct brood *b = arg, next = {b->s, b->depth - 1};
    weft_yield();
    for (int i = 0; b->depth && i < 2; i++) CHECK_EQ(weft_spawn_with(b->s, breed, next), 0);
    atomic_fetch_add(&ended, 1);
    return 0;
}

static int wait_for_broods(void *arg) {
    int limit = (int)(intptr_t)arg;
    for (int round = 0; round < 5; round++) {
        weft_scope s;
        forget();
        weft_scope_begin(&s, &(weft_scope_opts){.limit = limit});
        CHECK_EQ(weft_spawn_with(&s, breed, (struct brood){&s, 6}), 0);
        CHECK_EQ(weft_scope_wait(&s, WEFT_FOREVER), 0);
        CHECK_EQ(atomic_load(&ended), 127);
        CHECK_EQ(weft_scope_end(&s), 0);
    }
    return 0;
}

TEST(scope_wait, children_spawned_meanwhile_are_waited_for) { run_each(wait_for_broods); }

TEST(scope_wait, children_that_a_limit_keeps_waiting_are_waited_for) {
    EACH_WORKERS(w) CHECK_EQ(run_on(w, wait_for_broods, as_arg(2)), 0);
}

static int keep_results(void *arg) {
    weft_scope s;
    int r, sum = 0;
    (void)arg;
    weft_scope_begin(&s, &(weft_scope_opts){.results = true});
    for (int i = 1; i <= 10; i++) CHECK_EQ(weft_spawn(&s, end_later, as_arg(i)), 0);
    CHECK_EQ(weft_scope_wait(&s, WEFT_FOREVER), 0);
    for (int i = 0; i < 10; i++) {
        CHECK_EQ(weft_scope_wait_any(&s, &r, WEFT_POLL), 0);
        sum += r;
    }
    CHECK_EQ(sum, 55);
    CHECK_EQ(weft_scope_wait_any(&s, &r, WEFT_FOREVER), WEFT_EEOF);
    CHECK_EQ(weft_scope_end(&s), 0);
    return 0;
}

TEST(scope_wait, results_stay_for_wait_any) { run_each(keep_results); }

static int panic(void *arg) {
    (void)arg;
    weft_panic("on purpose");
}

static int fail_and_end(void *arg) {
    weft_scope s;
    (void)arg;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, end_later, as_arg(-77)), 0);
    CHECK_EQ(weft_scope_wait(&s, WEFT_FOREVER), 0);
    CHECK_EQ(weft_cancel_cause(), -77);
    CHECK_EQ(weft_scope_wait(&s, WEFT_FOREVER), 0);
    CHECK_EQ(weft_scope_end(&s), -77);
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, panic, NULL), 0);
    CHECK_EQ(weft_scope_wait(&s, WEFT_FOREVER), 0);
    CHECK_EQ(weft_scope_end(&s), WEFT_EPANIC);
    return 0;
}

TEST(scope_wait, says_nothing_of_errors_and_the_end_does) { run_each(fail_and_end); }

/* ---- giving up ---- */

static int give_up(void *arg) {
    weft_scope s;
    weft_chan *c = weft_chan_new(0, 0);
    (void)arg;
    forget();
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, stubborn, c), 0);
    CHECK_EQ(weft_scope_wait(&s, WEFT_POLL), WEFT_EAGAIN);
    CHECK_EQ(weft_scope_wait(&s, weft_at(1)), WEFT_ETIMEDOUT);
    for (int i = 0; i < 20; i++) {
        weft_deadline d = weft_after(200 * WEFT_US);
        CHECK_EQ(weft_scope_wait(&s, d), WEFT_ETIMEDOUT);
        CHECK_GE(weft_now(), d.ns);
        CHECK_EQ(weft_spawn(&s, end_later, NULL), 0);
    }
    CHECK_EQ(weft_cancelled(), 0);
    CHECK_EQ(weft_chan_send(c, NULL, WEFT_FOREVER), 0);
    CHECK_EQ(weft_scope_wait(&s, weft_after(HOUR)), 0);
    CHECK_EQ(atomic_load(&ended), 21);
    CHECK_EQ(weft_scope_end(&s), 0);
    weft_chan_unref(c);
    return 0;
}

TEST(scope_wait, its_deadline_ends_it_and_the_scope_goes_on) { run_each(give_up); }

TEST(scope_wait, a_plain_threads_deadline_ends_it_too) {
    EACH_WORKERS(w) {
        CHECK_EQ(set_up(w), 0);
        CHECK_EQ(give_up(NULL), 0);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    }
}

static int end_after_giving_up(void *arg) {
    weft_scope s;
    weft_chan *c = weft_chan_new(0, 1);
    (void)arg;
    forget();
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, stubborn, c), 0);
    CHECK_EQ(weft_scope_wait(&s, weft_after(WEFT_MS)), WEFT_ETIMEDOUT);
    CHECK_EQ(weft_chan_send(c, NULL, WEFT_FOREVER), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(atomic_load(&ended), 1);
    weft_chan_unref(c);
    return 0;
}

TEST(scope_wait, weft_scope_end_joins_after_a_wait_that_was_given_up) { run_each(end_after_giving_up); }

/* ---- what cancels ---- */

struct meddling {
    weft_scope s; /* the one that is waited for */
    weft_chan *c;
    int how;
};
enum { CANCEL, FAIL, DEADLINE, HOWS };

/* Has the scope cancelled, sees that the opener waits all the same, and lets the stubborn child end. */
static int meddle(void *arg) {
    struct meddling *m = arg;
    test_task_until(one_receives, m->c);
    let_others_run();
    if (m->how == CANCEL) weft_scope_cancel(&m->s);
    if (m->how == DEADLINE) weft__clock_advance(HOUR);
    let_others_run();
    CHECK_EQ(atomic_load(&back), 0);
    CHECK_EQ(weft_chan_send(m->c, NULL, WEFT_FOREVER), 0);
    return 0;
}

static void cancel_own(int how) {
    static const int error[] = {[CANCEL] = 0, [FAIL] = -78, [DEADLINE] = WEFT_ETIMEDOUT};
    struct meddling m = {.c = weft_chan_new(0, 0), .how = how};
    weft_scope around;
    forget();
    weft_scope_begin(&around, NULL);
    weft_scope_begin(&m.s, &(weft_scope_opts){.deadline = weft_after(HOUR)});
    CHECK_EQ(weft_spawn(&m.s, stubborn, m.c), 0);
    if (how == FAIL) CHECK_EQ(weft_spawn(&m.s, return_int, as_arg(-78)), 0);
    CHECK_EQ(weft_spawn(&around, meddle, &m), 0);
    CHECK_EQ(weft_scope_wait(&m.s, WEFT_FOREVER), 0);
    atomic_store(&back, 1);
    CHECK_EQ(atomic_load(&ended), 1);
    CHECK_EQ(weft_cancelled(), 1);
    CHECK_EQ(weft_scope_wait(&m.s, WEFT_FOREVER), 0);
    CHECK_EQ(weft_scope_end(&m.s), error[how]);
    CHECK_EQ(weft_scope_end(&around), 0);
    weft_chan_unref(m.c);
}

static int cancel_own_each(void *arg) {
    (void)arg;
    for (int how = 0; how < HOWS; how++) cancel_own(how);
    return 0;
}

TEST(scope_wait, is_not_ended_by_the_scopes_own_cancellation) { run_fake(cancel_own_each); }

struct inside {
    weft_chan *c;
    bool shielded;
    weft_deadline deadline;
};

/* Waits in a scope of its own, and says what came of it. */
static int wait_inside(void *arg) {
    struct inside *in = arg;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, stubborn, in->c), 0);
    if (in->shielded) CHECK_EQ(weft_shield_begin(WEFT_FOREVER), 0);
    int rc = weft_scope_wait(&s, in->deadline);
    atomic_fetch_add(&back, 1);
    if (rc) CHECK_EQ(weft_scope_wait(&s, WEFT_FOREVER), rc);
    if (rc) CHECK_EQ(weft_scope_wait(&s, WEFT_POLL), WEFT_ECANCELED);
    CHECK_EQ(rc, in->shielded ? 0 : WEFT_ECANCELED);
    if (in->shielded) weft_shield_end();
    CHECK_EQ(weft_scope_end(&s), WEFT_ECANCELED);
    CHECK_EQ(atomic_load(&ended), 1);
    return 0;
}

static void cancel_around(bool shielded, weft_deadline deadline) {
    struct inside in = {weft_chan_new(0, 0), shielded, deadline};
    weft_scope s;
    forget();
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, wait_inside, &in), 0);
    test_task_until(one_receives, in.c);
    for (int i = 0; i < 20; i++) weft_yield();
    weft_scope_cancel(&s);
    if (!shielded) task_wait(&back, 1);
    CHECK_EQ(weft_shield_begin(WEFT_FOREVER), 0);
    CHECK_EQ(atomic_load(&back), !shielded);
    CHECK_EQ(weft_chan_send(in.c, NULL, WEFT_FOREVER), 0);
    weft_shield_end();
    CHECK_EQ(weft_scope_end(&s), 0);
    weft_chan_unref(in.c);
}

static int cancel_around_each(void *arg) {
    (void)arg;
    for (int shielded = 0; shielded < 2; shielded++) {
        cancel_around(shielded, WEFT_FOREVER);
        cancel_around(shielded, weft_after(HOUR));
    }
    return 0;
}

TEST(scope_wait, is_ended_by_the_cancellation_of_a_scope_around_it_unless_shielded) { run_each(cancel_around_each); }

/* What can be done is done with WEFT_POLL; other deadlines fail first. */
static int ask_cancelled(void *arg) {
    weft_scope around, s;
    (void)arg;
    weft_scope_begin(&around, NULL);
    weft_scope_begin(&s, NULL);
    weft_scope_cancel(&around);
    CHECK_EQ(weft_scope_wait(&s, WEFT_POLL), 0);
    CHECK_EQ(weft_scope_wait(&s, WEFT_FOREVER), WEFT_ECANCELED);
    CHECK_EQ(weft_scope_wait(&s, weft_at(1)), WEFT_ECANCELED);
    CHECK_EQ(weft_scope_end(&s), WEFT_ECANCELED);
    CHECK_EQ(weft_scope_end(&around), 0);
    return 0;
}

TEST(scope_wait, in_a_cancelled_scope_only_polling_looks) { run_each(ask_cancelled); }

static int wait_for_outer(void *s) { return weft_scope_wait(s, WEFT_FOREVER); }

static int call_with_deadline(void *arg) {
    weft_scope s;
    weft_chan *c = weft_chan_new(0, 0);
    (void)arg;
    forget();
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, stubborn, c), 0);
    CHECK_EQ(weft_call(wait_for_outer, &s, weft_after(WEFT_MS)), WEFT_ETIMEDOUT);
    CHECK_EQ(atomic_load(&ended), 0);
    CHECK_EQ(weft_chan_send(c, NULL, WEFT_FOREVER), 0);
    CHECK_EQ(weft_call(wait_for_outer, &s, weft_after(HOUR)), 0);
    weft_scope_cancel(&s);
    CHECK_EQ(weft_call(wait_for_outer, &s, WEFT_FOREVER), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    weft_chan_unref(c);
    return 0;
}

TEST(scope_wait, a_deadline_of_a_scope_inside_ends_it_too) { run_each(call_with_deadline); }

static atomic_int asking;

static int stubborn_until_closed(void *c) {
    CHECK_EQ(weft_shield_begin(WEFT_FOREVER), 0);
    CHECK_EQ(weft_chan_recv(c, NULL, WEFT_FOREVER), WEFT_ECLOSED);
    weft_shield_end();
    return 0;
}

static int wait_until_cancelled(void *c) {
    weft_scope s;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, stubborn_until_closed, c), 0);
    atomic_store(&asking, 1);
    CHECK_EQ(weft_scope_wait(&s, WEFT_FOREVER), WEFT_ECANCELED);
    CHECK_EQ(weft_chan_close(c), 0);
    CHECK_EQ(weft_scope_end(&s), WEFT_ECANCELED);
    return 0;
}

static void *wait_until_cancelled_in_thread(void *c) {
    CHECK_EQ(wait_until_cancelled(c), 0);
    return NULL;
}

TEST(scope_wait, stopping_the_runtime_ends_it_in_tasks_and_threads) {
    EACH_WORKERS(w) for (int thread = 0; thread < 2; thread++) {
        weft_chan *c = weft_chan_new(0, 0);
        pthread_t t;
        atomic_store(&asking, 0);
        CHECK_EQ(set_up(w), 0);
        if (thread)
            CHECK_EQ(pthread_create(&t, NULL, wait_until_cancelled_in_thread, c), 0);
        else
            CHECK_EQ(weft_go(wait_until_cancelled, c), 0);
        thread_wait(&asking, 1);
        test_until(one_receives, c);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
        if (thread) CHECK_EQ(pthread_join(t, NULL), 0);
        weft_chan_unref(c);
    }
}

/* ---- who may ---- */

static void cancel_nothing(void *arg) { (void)arg; }

/* None of the scope's is the caller: neither a child with a stack of its own, nor one that runs inside the opener. */
static int is_refused(void *s) {
    CHECK_EQ(weft_scope_wait(s, WEFT_FOREVER), WEFT_EINVAL);
    CHECK_EQ(weft_scope_wait(s, WEFT_POLL), WEFT_EINVAL);
    CHECK_EQ(weft_scope_defer(s, cancel_nothing, NULL), WEFT_EINVAL);
    atomic_fetch_add(&ended, 1);
    return 0;
}

static void *is_refused_in_thread(void *s) {
    CHECK_EQ(weft_scope_wait(s, WEFT_FOREVER), WEFT_EINVAL);
    return NULL;
}

static int ask_as_another(void *arg) {
    weft_scope s, around;
    pthread_t t;
    (void)arg;
    forget();
    weft_scope_begin(&around, NULL);
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&around, is_refused, &s), 0);
    for (int i = 0; i < 3; i++) CHECK_EQ(weft_spawn(&s, is_refused, &s), 0);
    CHECK_EQ(pthread_create(&t, NULL, is_refused_in_thread, &s), 0);
    CHECK_EQ(pthread_join(t, NULL), 0);
    CHECK_EQ(weft_scope_wait(&around, WEFT_FOREVER), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(weft_scope_end(&around), 0);
    CHECK_EQ(atomic_load(&ended), 4);
    return 0;
}

TEST(scope_wait, is_for_the_opener_alone) { run_each(ask_as_another); }

static int run_inside(void *arg) {
    weft_scope s;
    (void)arg;
    forget();
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, is_refused, &s), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(atomic_load(&ended), 1);
    return 0;
}

TEST(scope_wait, a_child_that_runs_inside_the_opener_is_not_the_opener) { run_each(run_inside); }
