/* SPDX-License-Identifier: MIT */
/* The pool, bound tasks, 1:1 threads and attached ones, with the nth allocation, thread or system call failing: an error that says so, or all is
 * done; nothing is lost, and the same works afterwards. Each run has a runtime of its own, since threads that are there already hide what
 * starting one needs. */
#include <unistd.h>

#include "fault/common.h"
#include "sched/sched.h"

#include <weft/debug.h>

enum { CALLS = 24, TASKS = 6, ANSWER = 42 };

static atomic_int called, refused, flag;

static void disarm(void) { weft__fault_arm(0, false); }

static int answer(void *arg) {
    (void)arg;
    atomic_fetch_add(&called, 1);
    return ANSWER;
}

/* ---- the operations: 0, or the error that came of it ---- */

typedef int op(void);

static int op_pool(void) {
    int rc = weft_block(answer, NULL, WEFT_FOREVER);
    CHECK_EQ(atomic_load(&called), rc == ANSWER); /* called, or refused */
    return rc == ANSWER ? 0 : rc;
}

static int op_pool_deadline(void) {
    int rc = weft_block(answer, NULL, weft_after(HOUR));
    CHECK_EQ(atomic_load(&called), rc == ANSWER);
    return rc == ANSWER ? 0 : rc;
}

/* Some more calls fail, while tasks try to get what they cannot do without; from then on all is well. */
static void let_it_fail(void) {
    long calls = weft__fault_calls();
    for (int i = 0; i < 1000 && weft__fault_calls() && weft__fault_calls() < calls + 12; i++) weft_yield();
    disarm();
}

static int call_pool(void *arg) {
    (void)arg;
    int rc = weft_block(answer, NULL, WEFT_FOREVER);
    CHECK(rc == ANSWER || is_fault(rc));
    if (rc != ANSWER) atomic_fetch_add(&refused, 1);
    return rc == ANSWER ? 0 : rc;
}

/* Tasks by `opts`; each of them that was accepted ran, or tells why not. Bound ones wait until they have a thread. */
static int op_tasks(weft_fn *fn, const weft_task_opts *opts) {
    weft_scope s;
    int accepted = 0, rc = 0;
    weft_scope_begin(&s, &(weft_scope_opts){.on_error = WEFT_KEEP_GOING});
    for (int i = 0; i < TASKS; i++) {
        int r = weft_spawn_opts(&s, fn, NULL, opts);
        CHECK(r == 0 || is_fault(r));
        accepted += r == 0;
        rc = rc ? rc : r;
    }
    if (opts) let_it_fail();
    int end = weft_scope_end(&s);
    CHECK_EQ(rc != 0 || atomic_load(&called) < accepted, end != 0);
    CHECK_LE(atomic_load(&called) + atomic_load(&refused), accepted);
    return end;
}

static int op_pool_many(void) {
    int rc = op_tasks(call_pool, NULL);
    return rc;
}

static int op_bind(void) {
    int tid = gettid(), rc = weft_bind(WEFT_FOREVER);
    if (rc) return rc;
    CHECK_NE(gettid(), tid);
    weft_unbind();
    return 0;
}

static int bound_answer(void *arg) {
    int tid = gettid();
    weft_yield();
    CHECK_EQ(gettid(), tid);
    return answer(arg) == ANSWER ? 0 : 1;
}

static int op_spawn_bound(void) { return op_tasks(bound_answer, &(weft_task_opts){.flags = WEFT_BOUND, .name = "bound"}); }

static int op_spawn_bound_cpu(void) {
    int cpu = 1;
    while (!weft__cpu_allowed(cpu - 1)) cpu++;
    return op_tasks(bound_answer, &(weft_task_opts){.flags = WEFT_BOUND, .cpu = cpu});
}

static int bind_and_answer(void *arg) {
    int err = weft_bind(WEFT_FOREVER);
    if (err) atomic_fetch_add(&refused, 1);
    if (err) return err;
    weft_unbind();
    return answer(arg) == ANSWER ? 0 : 1;
}

/* The first binds; the next start on its thread, or on another if one can be started, or unbound. */
static int op_site(void) {
    weft_scope s;
    int accepted = 0, rc = 0;
    weft_scope_begin(&s, &(weft_scope_opts){.on_error = WEFT_KEEP_GOING});
    for (int i = 0; i < TASKS; i++) {
        int r = weft_spawn(&s, bind_and_answer, NULL);
        CHECK(r == 0 || is_fault(r));
        accepted += r == 0;
        rc = rc ? rc : r;
        while (i == 0 && accepted && !atomic_load(&called) && !atomic_load(&refused)) weft_yield();
    }
    let_it_fail();
    int end = weft_scope_end(&s);
    CHECK_EQ(atomic_load(&called) + atomic_load(&refused), accepted);
    CHECK_EQ(rc != 0 || atomic_load(&refused) > 0, end != 0);
    return end;
}

static int op_thread(void) {
    weft_thread *t;
    int result = 0, rc = weft_thread_start(&t, answer, NULL, &(weft_thread_opts){.name = "a name", .stack_size = 1 << 17});
    if (rc) {
        CHECK_PTR(t, NULL);
        CHECK_EQ(atomic_load(&called), 0);
        return rc;
    }
    disarm(); /* a plain thread that waits while every call fails would be interrupted for ever */
    CHECK_EQ(weft_thread_join(t, &result, weft_after(HOUR)), 0);
    CHECK_EQ(result, ANSWER);
    return 0;
}

static int set_flag(void *arg) {
    (void)arg;
    atomic_store(&flag, 1);
    return 0;
}

/* Whether anybody can have the slot meanwhile or not, all goes on when the call is over. */
static int op_away(void) {
    weft_scope s;
    weft_scope_begin(&s, &(weft_scope_opts){.on_error = WEFT_KEEP_GOING});
    int rc = weft_spawn(&s, set_flag, NULL);
    weft_block_enter();
    usleep(200);
    weft_block_exit();
    usleep(200); /* and one that is not announced */
    CHECK_EQ(weft_scope_end(&s), rc);
    CHECK_EQ(atomic_load(&flag), rc == 0);
    return rc;
}

static const struct {
    const char *name;
    op *fn;
    bool may_fail;
    bool thread_too; /* to be called by a plain thread */
} ops[] = {
    {"the pool", op_pool, true, false},
    {"the pool under a deadline", op_pool_deadline, true, false},
    {"many calls of the pool", op_pool_many, true, false},
    {"weft_bind", op_bind, true, false},
    {"bound tasks", op_spawn_bound, true, true},
    {"bound tasks on a CPU", op_spawn_bound_cpu, true, true},
    {"tasks of a site that binds", op_site, true, false},
    {"a thread", op_thread, true, true},
    {"calls that block", op_away, true, false},
};

static int run_once(size_t i, long n, bool sticky) {
    atomic_store(&called, 0);
    atomic_store(&refused, 0);
    atomic_store(&flag, 0);
    weft__fault_arm(n, sticky);
    int rc = ops[i].fn();
    disarm();
    return rc;
}

struct fault {
    size_t op;
    long nth;
    bool sticky;
};

static bool nothing_left(void *arg) {
    weft_stats st;
    (void)arg;
    weft_stats_get(&st);
    return st.bound == 0 && st.strays == 0 && st.block_queued == 0;
}

static int fail_once(void *arg) {
    struct fault *f = arg;
    int rc = run_once(f->op, f->nth, f->sticky);
    CHECK_MSG(rc == 0 || (ops[f->op].may_fail && is_fault(rc)), "%s, call %ld failed%s: gave %d", ops[f->op].name, f->nth,
              f->sticky ? " and all after" : "", rc);
    rc = run_once(f->op, 0, false);
    CHECK_MSG(rc == 0, "%s, after call %ld failed%s: gives %d", ops[f->op].name, f->nth, f->sticky ? " and all after" : "", rc);
    return 0;
}

/* Threads of the pool end at once, so that the next call needs a new one. */
static void fail_everywhere(int workers, bool in_task) {
    for (size_t i = 0; i < COUNT(ops); i++) {
        if (!in_task && !ops[i].thread_too) continue;
        for (long n = 1; n <= CALLS; n += test_slow_tools() > 10 ? 5 : 1) {
            for (int sticky = 0; sticky < (in_task ? 2 : 1); sticky++) {
                struct fault f = {i, n, sticky};
                CHECK_EQ(weft_start(&(weft_config){.workers = workers, .block_idle = 1}), 0);
                CHECK_EQ(in_task ? weft_block_on(fail_once, &f) : fail_once(&f), 0);
                test_until(nothing_left, NULL);
                CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
            }
        }
    }
}

static void check_everywhere(bool in_task) {
    fail_everywhere(1, in_task);
    struct holdings before = holdings();
    fail_everywhere(2, in_task);
    check_holdings(before, 20);
}

TEST_T(fault_block, every_call_fails_cleanly_in_a_task, 120) { check_everywhere(true); }
TEST(fault_block, every_call_fails_cleanly_in_a_plain_thread) { check_everywhere(false); }

/* ---- refused for certain ---- */

static int refuse(void *arg) {
    weft_thread *t;
    (void)arg;
    weft__fault_arm(1, true);
    int pool = weft_block(answer, NULL, WEFT_FOREVER), bind = weft_bind(WEFT_FOREVER);
    int thread = weft_thread_start(&t, answer, NULL, NULL);
    disarm();
    CHECK(is_fault(pool));
    CHECK(is_fault(bind));
    CHECK(is_fault(thread));
    CHECK_EQ(atomic_load(&called), 0);
    return 0;
}

TEST(fault_block, without_memory_and_threads_each_says_so) { run_each_watched(refuse); }

/* ---- attached threads ---- */

static weft_worker *worker;
static atomic_int attach_result;

static void *attach(void *arg) {
    (void)arg;
    atomic_store(&attach_result, weft_thread_attach(&worker));
    atomic_store(&flag, 1);
    return NULL;
}

static bool attached_or_not(void *arg) {
    (void)arg;
    return atomic_load(&flag) || __atomic_load_n(&worker, __ATOMIC_ACQUIRE);
}

TEST(fault_block, attaching_fails_cleanly) {
    for (long n = 1; n <= CALLS; n++) {
        pthread_t t;
        worker = NULL;
        atomic_store(&flag, 0);
        CHECK_EQ(set_up(2), 0);
        weft__fault_arm(n, false);
        CHECK_EQ(pthread_create(&t, NULL, attach, NULL), 0);
        test_until(attached_or_not, NULL);
        disarm();
        weft_worker *w = __atomic_load_n(&worker, __ATOMIC_ACQUIRE);
        if (w && n % 2) weft_worker_release(w);
        CHECK_EQ(weft_block_on(answer, NULL), ANSWER);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
        pthread_join(t, NULL);
        int rc = atomic_load(&attach_result);
        CHECK_MSG(w ? rc == WEFT_ETERMINATED || (n % 2 && rc == 0) : is_fault(rc), "call %ld failed: attach gave %d", n, rc);
    }
}

/* ---- no thread to be had for a time ---- */

static int read_byte(void *arg) {
    char c;
    atomic_fetch_add(&called, 1);
    CHECK_EQ(read(*(int *)arg, &c, 1), 1);
    return 0;
}

/* Both threads that there are block, unannounced, and no other can be started. When that is over, work from outside finds a thread again. */
TEST(fault_block, when_threads_can_be_had_again_somebody_watches_again) {
    int fd[2];
    CHECK_EQ(pipe(fd), 0);
    atomic_store(&called, 0);
    CHECK_EQ(set_up(1), 0);
    for (int i = 0; i < 2; i++) CHECK_EQ(weft_go(return_int, NULL), 0); /* what tasks need is there */
    CHECK_EQ(weft_block_on(return_int, NULL), 0);
    weft__fault_arm(1, true);
    for (int i = 0; i < 2; i++) CHECK_EQ(weft_go(read_byte, &fd[0]), 0);
    thread_wait(&called, 2);
    disarm();
    CHECK_EQ(weft_block_on(return_int, as_arg(7)), 7);
    CHECK_EQ(write(fd[1], "ab", 2), 2);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    close(fd[0]);
    close(fd[1]);
}

/* ---- nobody watches ---- */

static atomic_int began_to_compute, may_end, both_are_away, ran;
static int compute(void *arg) {
    (void)arg;
    atomic_fetch_add(&began_to_compute, 1);
    while (!atomic_load(&may_end)) continue;
    return 0;
}
static int be_away(void *arg) {
    atomic_fetch_add(&began_to_compute, 1);
    for (int i = 0; i < 30000 && !atomic_load(&ran); i++) usleep(1000);
    return atomic_load(&ran) ? 0 : arg ? 1 : -1;
}

/* The other worker is woken, and there may be no third one to watch. It sleeps again, and is woken again soon: nobody tries yet to start one, but
 * somebody will. Without a runtime call in between, so that nobody sees to it in passing. */
static int go_away_with_the_other(void *arg) {
    weft_scope s;
    weft_scope_begin(&s, NULL);
    weft__rt.max_threads = 2;
    CHECK_EQ(weft_spawn(&s, compute, NULL), 0);
    while (atomic_load(&began_to_compute) < 1) continue;
    atomic_store(&may_end, 1);
    while (weft__load(&weft__rt.idle, acquire) == 0) continue;
    weft__rt.max_threads = 64;
    CHECK_EQ(weft_spawn(&s, be_away, NULL), 0);
    while (atomic_load(&began_to_compute) < 2) continue;
    atomic_store(&both_are_away, 1);
    int err = be_away(arg);
    CHECK_EQ(weft_scope_end(&s), 0);
    return err;
}
static int note_that_it_ran(void *arg) {
    (void)arg;
    atomic_store(&ran, 1);
    return 0;
}
static void *block_on_it(void *arg) {
    CHECK_EQ(weft_block_on(go_away_with_the_other, NULL), 0);
    return arg;
}

TEST(fault_block, somebody_watches_again_after_no_thread_could_be_started) {
    pthread_t t;
    if (test_slow_tools() > 1) test_skip("it takes a few milliseconds, or shows nothing");
    CHECK_EQ(weft_start(&(weft_config){.workers = 2}), 0);
    usleep(20000);
    CHECK_EQ(pthread_create(&t, NULL, block_on_it, NULL), 0);
    thread_wait(&both_are_away, 1);
    usleep(20000);
    CHECK_EQ(weft_go(note_that_it_ran, NULL), 0);
    pthread_join(t, NULL);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
}

/* ---- a place in weft_bind whose thread cannot be started ---- */

static weft__task *_Atomic holder; /* of the only place */
static atomic_int starting;

static bool other_waits(void *arg) {
    (void)arg;
    return atomic_load(&weft__rt.idle) == 1; /* of two slots: it was the last that did anything there */
}

/* The start of the holder's thread is about to fail; not before the other waits for the place. */
static void hold_until_other_waits(void) {
    if (weft__cur(weft__self()) != atomic_load(&holder) || atomic_exchange(&starting, 1)) return;
    test_until(other_waits, NULL);
}

static int hold_in_vain(void *arg) {
    (void)arg;
    atomic_store(&holder, weft__cur(weft__self()));
    weft__fault_arm(1, true);
    CHECK(is_fault(weft_bind(WEFT_FOREVER)));
    return 0;
}

static int want_in_vain(void *arg) {
    (void)arg;
    while (!atomic_load(&starting)) weft_yield();
    CHECK(is_fault(weft_bind(WEFT_FOREVER))); /* it gets the place, but no thread either */
    return 0;
}

static int both_bind_in_vain(void *arg) {
    weft_scope s;
    (void)arg;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, want_in_vain, NULL), 0);
    CHECK_EQ(weft_spawn(&s, hold_in_vain, NULL), 0);
    int err = weft_scope_end(&s);
    disarm();
    return err;
}

TEST(fault_block, who_waits_to_bind_is_told_when_the_thread_of_another_cannot_be_started) {
    atomic_store(&starting, 0);
    weft__fault_hook = hold_until_other_waits;
    CHECK_EQ(weft_run(both_bind_in_vain, NULL, &(weft_config){.workers = 2, .bound_threads_max = 1, .slice = HOUR}), 0);
    weft__fault_hook = NULL;
}
