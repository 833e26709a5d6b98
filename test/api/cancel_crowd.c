/* SPDX-License-Identifier: MIT */
/* Scopes in which very many wait: cancellation finds those, too, that have not put themselves on the scope's list (S6 in task.h). */
#include "api/common.h"
#include "task/task.h"

enum { MANY = 3000, FEW = 100 };

static atomic_int waiting, cancelled, others_waiting, others_ended;
static weft_chan *gate;

static void reset(void) {
    atomic_store(&waiting, 0);
    atomic_store(&cancelled, 0);
    atomic_store(&others_waiting, 0);
    atomic_store(&others_ended, 0);
    weft__cancel_crowd = FEW / 2;
}

static int wait_one_way(int way) {
    int v;
    if (way == 0) return weft_chan_recv(gate, &v, WEFT_FOREVER);
    if (way == 1) return weft_select(WEFT_FOREVER, weft_on_recv(gate, &v, NULL));
    return weft_sleep(way == 2 ? WEFT_FOREVER : weft_after(HOUR));
}

static int victim(void *arg) {
    atomic_fetch_add(&waiting, 1);
    int rc = wait_one_way((int)(intptr_t)arg);
    CHECK_EQ(rc, WEFT_ECANCELED);
    CHECK_EQ(weft_cancelled(), 1);
    atomic_fetch_add(&cancelled, 1);
    return rc;
}

static int bystander(void *arg) {
    (void)arg;
    atomic_fetch_add(&others_waiting, 1);
    int rc = weft_sleep(WEFT_FOREVER);
    atomic_fetch_add(&others_ended, 1);
    return rc;
}

static int many(void) { return (int)test_scale(MANY, 2 * FEW); }

static void spawn_victims(weft_scope *s, int n) {
    for (int i = 0; i < n; i++) CHECK_EQ(weft_spawn(s, victim, as_arg(i % 4)), 0);
}

static bool is_crowded(weft_scope *s) { return atomic_load(&weft__scope_of(s)->crowded); }

/* Two such scopes; only one of them is cancelled. */
static int cancel_one_of_two(void *arg) {
    weft_scope s, other;
    (void)arg;
    reset();
    gate = weft_chan_new(sizeof(int), 0);
    weft_scope_begin(&other, NULL);
    for (int i = 0; i < many(); i++) CHECK_EQ(weft_spawn(&other, bystander, NULL), 0);
    weft_scope_begin(&s, NULL);
    spawn_victims(&s, many());
    task_wait_parked(&waiting, many());
    task_wait_parked(&others_waiting, many());
    CHECK(is_crowded(&s));
    CHECK(is_crowded(&other));
    weft_scope_cancel(&s);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(atomic_load(&cancelled), many());
    CHECK_EQ(atomic_load(&others_ended), 0);
    weft_scope_cancel(&other);
    CHECK_EQ(weft_scope_end(&other), 0);
    CHECK_EQ(atomic_load(&others_ended), many());
    weft_chan_unref(gate);
    return 0;
}
TEST(cancel_crowd, everybody_in_it_is_told_and_nobody_else) { run_each(cancel_one_of_two); }

/* Those who wait are children of the crowd, which itself waits for them. */
static int with_children(void *arg) {
    weft_scope s;
    (void)arg;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, victim, as_arg(3)), 0);
    int rc = victim(as_arg(0));
    CHECK_EQ(weft_scope_end(&s), WEFT_ECANCELED);
    return rc;
}

static int cancel_from_outside(void *arg) {
    weft_scope outer, s;
    int n = many() / 2;
    (void)arg;
    reset();
    gate = weft_chan_new(sizeof(int), 0);
    weft_scope_begin(&outer, NULL);
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < n; i++) CHECK_EQ(weft_spawn(&s, with_children, NULL), 0);
    task_wait_parked(&waiting, 2 * n);
    CHECK(is_crowded(&s));
    weft_scope_cancel(&outer);
    CHECK_EQ(weft_scope_end(&s), WEFT_ECANCELED);
    CHECK_EQ(weft_scope_end(&outer), 0);
    CHECK_EQ(atomic_load(&cancelled), 2 * n);
    weft_chan_unref(gate);
    return 0;
}
TEST(cancel_crowd, a_cancellation_around_it_comes_through) { run_each(cancel_from_outside); }

static int by_deadline(void *arg) {
    weft_scope s;
    (void)arg;
    reset();
    gate = weft_chan_new(sizeof(int), 0);
    weft_scope_begin(&s, &(weft_scope_opts){.deadline = weft_after(5 * WEFT_SECOND)});
    int accepted = 0;
    for (int i = 0; i < many(); i++) accepted += weft_spawn(&s, victim, as_arg(i % 4)) == 0;
    CHECK_EQ(weft_scope_end(&s), WEFT_ETIMEDOUT);
    CHECK_EQ(atomic_load(&cancelled), accepted);
    weft_chan_unref(gate);
    return 0;
}
TEST(cancel_crowd, its_deadline_ends_it) { CHECK_EQ(run_on(2, by_deadline, NULL), 0); }

/* A plain thread's scope, cancelled while they wait, and again when the runtime is gone. */
TEST(cancel_crowd, a_plain_thread_may_cancel_it_whenever) {
    EACH_WORKERS(w) {
        weft_scope s;
        reset();
        CHECK_EQ(set_up(w), 0);
        gate = weft_chan_new(sizeof(int), 0);
        weft_scope_begin(&s, &(weft_scope_opts){.on_error = WEFT_KEEP_GOING});
        spawn_victims(&s, many());
        thread_wait(&waiting, many());
        weft_scope_cancel(&s);
        thread_wait(&cancelled, many());
        CHECK(is_crowded(&s));
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
        atomic_store(&weft__scope_of(&s)->cause, 0); /* as if it had not been */
        weft_scope_cancel(&s);
        CHECK_EQ(weft_scope_end(&s), WEFT_ECANCELED); /* it was open when the runtime stopped */
        weft_chan_unref(gate);
    }
}

/* ---- many that have been crowds ---- */

enum { SCOPES = 100, IN_EACH = 400, ONCE = 100 };

static atomic_int whose_turn, waiting_once;

static int wait_for_gate(void *arg) {
    int v;
    (void)arg;
    atomic_fetch_add(&waiting_once, 1);
    return weft_chan_recv(gate, &v, WEFT_FOREVER);
}

/* A crowd while there are few stacks, one scope after the other; then all of them with tasks that are no crowd among so many. */
static int was_a_crowd(void *arg) {
    weft_scope s;
    int me = (int)(intptr_t)arg, v = 0;
    task_wait(&whose_turn, me);
    weft_scope_begin(&s, &(weft_scope_opts){.on_error = WEFT_KEEP_GOING});
    atomic_store(&waiting_once, 0);
    for (int i = 0; i < ONCE; i++) CHECK_EQ(weft_spawn(&s, wait_for_gate, NULL), 0);
    task_wait_parked(&waiting_once, ONCE);
    CHECK(weft__cancel_crowd > 1 || is_crowded(&s));
    for (int i = 0; i < ONCE; i++) CHECK_EQ(weft_chan_send(gate, &v, WEFT_FOREVER), 0);
    atomic_fetch_add(&whose_turn, 1);
    task_wait(&whose_turn, SCOPES);
    for (int i = 0; i < IN_EACH; i++) CHECK_EQ(weft_spawn(&s, bystander, NULL), 0);
    return weft_scope_end(&s);
}

/* How long it takes to cancel them: CPU time, of the one thread there is. */
static int64_t cancel_all(uint32_t crowd) {
    weft_scope s;
    reset();
    weft__cancel_crowd = crowd;
    atomic_store(&whose_turn, 0);
    weft_scope_begin(&s, &(weft_scope_opts){.on_error = WEFT_KEEP_GOING});
    for (int i = 0; i < SCOPES; i++) CHECK_EQ(weft_spawn(&s, was_a_crowd, as_arg(i)), 0);
    task_wait_parked(&others_waiting, SCOPES * IN_EACH);
    int64_t from = test_thread_cpu_ns();
    weft_scope_cancel(&s);
    from = test_thread_cpu_ns() - from;
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(atomic_load(&others_ended), SCOPES * IN_EACH);
    return from;
}

static int cancel_with_and_without(void *arg) {
    (void)arg;
    gate = weft_chan_new(sizeof(int), 0);
    int64_t with = cancel_all(1), without = cancel_all(UINT32_MAX);
    printf("%lld us as crowds, %lld us by their lists\n", (long long)with / 1000, (long long)without / 1000);
    CHECK_LE(with, 10 * without);
    weft_chan_unref(gate);
    return 0;
}

TEST_SOLO(cancel_crowd, many_of_them_are_looked_for_together) {
    test_skip_under("it takes too many stacks", NULL);
    CHECK_EQ(run_on(1, cancel_with_and_without, NULL), 0);
}
