/* SPDX-License-Identifier: MIT */
/* Threads that cannot be had: the blocking pool, bound tasks, 1:1 threads and threads that serve as workers, with each call failing in turn. */
#include "fault/common.h"

static atomic_int ran;

static int count_run(void *arg) {
    atomic_fetch_add(&ran, 1);
    return (int)(intptr_t)arg;
}

/* ---- in a task ---- */

/* The function was called if and only if there is no error. */
static int op_block(void) {
    atomic_store(&ran, 0);
    int rc = weft_block(count_run, as_arg(7), WEFT_FOREVER);
    weft__fault_arm(0, false);
    CHECK_EQ(atomic_load(&ran), rc == 7);
    return rc == 7 ? 0 : rc;
}

static int op_bind(void) {
    int rc = weft_bind(WEFT_FOREVER);
    if (rc) return rc;
    weft_yield();
    weft_unbind();
    return 0;
}

static int op_thread(void) {
    weft_thread *t = NULL;
    int result = 0;
    atomic_store(&ran, 0);
    int rc = weft_thread_start(&t, count_run, as_arg(9), &(weft_thread_opts){.name = "a thread", .stack_size = 1 << 17});
    CHECK_EQ(t == NULL, rc != 0);
    if (rc == 0) {
        CHECK_EQ(weft_thread_join(t, &result, WEFT_FOREVER), 0);
        CHECK_EQ(result, 9);
    }
    CHECK_EQ(atomic_load(&ran), rc == 0);
    return rc;
}

/* The slot goes to whoever waits, or stays; the call goes on in either case. */
static int op_enter(void) {
    weft_scope s;
    int accepted = 0;
    atomic_store(&ran, 0);
    weft_scope_begin(&s, &(weft_scope_opts){.on_error = WEFT_KEEP_GOING});
    for (int i = 0; i < 5; i++) accepted += weft_spawn(&s, count_run, NULL) == 0;
    weft_block_enter();
    weft_block_exit();
    weft__fault_arm(0, false);
    (void)weft_scope_end(&s);
    CHECK_EQ(atomic_load(&ran), accepted);
    return 0;
}

/* Once it is accepted it waits for its thread until there is one. */
static int op_start_bound(void) {
    weft_task *t = NULL;
    int result = 0;
    atomic_store(&ran, 0);
    long calls = weft__fault_calls();
    int rc = weft_task_start(&t, count_run, as_arg(3), &(weft_task_opts){.flags = WEFT_BOUND});
    if (rc) return rc;
    while (!atomic_load(&ran) && weft__fault_calls() && weft__fault_calls() < calls + 12) weft_yield();
    weft__fault_arm(0, false);
    CHECK_EQ(weft_task_join(t, &result, WEFT_FOREVER), 0);
    CHECK_EQ(result, 3);
    CHECK_EQ(atomic_load(&ran), 1);
    return 0;
}

static const struct {
    const char *name;
    int (*fn)(void);
} ops[] = {{"block", op_block}, {"bind", op_bind}, {"thread", op_thread}, {"enter", op_enter}, {"start bound", op_start_bound}};

static int all_ops(void *arg) {
    (void)arg;
    for (size_t i = 0; i < COUNT(ops); i++) {
        for (long n = 1; n <= 24; n += test_slow_tools() > 10 ? 5 : 1) {
            weft__fault_arm(n, n % 2);
            int rc = ops[i].fn();
            weft__fault_arm(0, false);
            CHECK_MSG(rc == 0 || is_fault(rc), "%s, call %ld failed: gave %d", ops[i].name, n, rc);
            CHECK_MSG(ops[i].fn() == 0, "%s, after call %ld failed", ops[i].name, n);
        }
    }
    return 0;
}

TEST(fault_block, threads_that_cannot_be_had_are_errors) {
    EACH_WORKERS(w) CHECK_EQ(run_on(w, all_ops, NULL), 0);
    struct holdings before = holdings();
    EACH_WORKERS(w) CHECK_EQ(run_on(w, all_ops, NULL), 0);
    check_holdings(before, 24);
}

/* The first of all needs a thread that is not there yet. */
static int first_of_all(void *arg) {
    (void)arg;
    weft__fault_arm(1, true);
    int block = weft_block(count_run, NULL, WEFT_FOREVER), bind = weft_bind(WEFT_FOREVER);
    weft__fault_arm(0, false);
    CHECK_MSG(is_fault(block), "%d", block);
    CHECK_MSG(is_fault(bind), "%d", bind);
    CHECK_EQ(atomic_load(&ran), 0);
    CHECK_EQ(op_block(), 0);
    CHECK_EQ(op_bind(), 0);
    return 0;
}

TEST(fault_block, without_threads_the_answer_is_an_error) {
    EACH_WORKERS(w) {
        atomic_store(&ran, 0);
        CHECK_EQ(run_on(w, first_of_all, NULL), 0);
    }
}

/* ---- threads of the program's ---- */

static weft_worker *worker; /* written by weft_thread_attach; read atomically */
static atomic_int over;

static void *serve(void *arg) {
    int rc = weft_thread_attach(&worker);
    (void)arg;
    CHECK_MSG(rc == 0 || is_fault(rc), "%d", rc);
    atomic_store(&over, 1);
    return as_arg(rc);
}

static bool attached_or_over(void *arg) {
    (void)arg;
    return __atomic_load_n(&worker, __ATOMIC_ACQUIRE) || atomic_load(&over);
}

/* True: it was refused. */
static bool attach_with_fault(long n, bool sticky) {
    pthread_t t;
    void *rc;
    worker = NULL;
    atomic_store(&over, 0);
    weft__fault_arm(n, sticky);
    CHECK_EQ(pthread_create(&t, NULL, serve, NULL), 0);
    test_until(attached_or_over, NULL);
    weft__fault_arm(0, false);
    CHECK_EQ(weft_block_on(return_int, as_arg(4)), 4);
    weft_worker *w = __atomic_load_n(&worker, __ATOMIC_ACQUIRE);
    if (w) weft_worker_release(w);
    CHECK_EQ(pthread_join(t, &rc), 0);
    CHECK_EQ(w == NULL, rc != NULL);
    return w == NULL;
}

TEST(fault_block, a_thread_that_would_serve_is_refused_or_serves) {
    EACH_WORKERS(w) {
        CHECK_EQ(set_up(w), 0);
        CHECK(attach_with_fault(1, true)); /* the first needs memory; later ones have what it left */
        for (long n = 1; n <= 12; n++) attach_with_fault(n, n % 2);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    }
}
