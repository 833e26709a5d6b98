/* SPDX-License-Identifier: MIT */
/* Starting, running and stopping while memory, threads and system calls fail one after the other. */
#include "fault/common.h"
#include "task/task.h"

static int small_main(void *arg) {
    (void)arg;
    weft_scope s;
    weft_chan *c = weft_chan_new(sizeof(int), 1);
    int v = 7, got = 0;
    CHECK(c);
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, return_int, as_arg(1)), 0);
    CHECK_EQ(weft_chan_send(c, &v, WEFT_FOREVER), 0);
    CHECK_EQ(weft_chan_recv(c, &got, WEFT_FOREVER), 0);
    CHECK_EQ(got, 7);
    CHECK_EQ(weft_scope_end(&s), 0);
    weft_chan_unref(c);
    return 12;
}

/* It works as if nothing had happened. */
static void check_sound(void) { CHECK_EQ(run_on(2, small_main, NULL), 12); }

/* Every call; under valgrind, where a run takes half a second, every ninth. */
static long stride(void) { return test_slow_tools() > 10 ? 9 : 1; }

static int do_nothing(void *arg) {
    (void)arg;
    return 12;
}

/* Calls that a start, a task and a stop make, when none fails. */
static long calls_of_a_run(int workers) {
    weft__fault_arm(1000000, false);
    CHECK_EQ(run_on(workers, do_nothing, NULL), 12);
    long n = weft__fault_calls();
    weft__fault_arm(0, false);
    CHECK_GT(n, 3);           /* else the hook is not in place */
    return n < 200 ? n : 200; /* waits count as well; there may be many */
}

static void start_with_fault(int workers, long n, bool sticky) {
    weft__fault_arm(n, sticky);
    int rc = set_up(workers);
    weft__fault_arm(0, false);
    CHECK_MSG(rc == 0 || is_fault(rc), "call %ld%s failed: weft_start gave %d", n, sticky ? " and all after" : "", rc);
    if (rc == 0) {
        CHECK_EQ(weft_block_on(small_main, NULL), 12); /* it found another way, and is whole */
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    } else {
        CHECK_EQ(weft_stop(WEFT_FOREVER), WEFT_ETERMINATED); /* nothing half done */
        CHECK_EQ(weft_go(do_nothing, NULL), WEFT_ETERMINATED);
    }
}

TEST(fault_start, start_fails_cleanly_at_every_call) {
    check_sound();
    EACH_WORKERS(w) {
        long calls = calls_of_a_run(w);
        struct holdings before = holdings();
        for (int sticky = 0; sticky < 2; sticky++)
            for (long n = 1; n <= calls; n += stride()) start_with_fault(w, n, sticky);
        check_holdings(before, 10);
        check_sound();
    }
}

static atomic_int ran;

static int count_run(void *arg) {
    (void)arg;
    atomic_fetch_add(&ran, 1);
    weft_yield();
    return 0;
}

TEST(fault_start, the_first_failure_of_all_makes_start_fail) {
    weft__fault_arm(1, true);
    int rc = set_up(2);
    weft__fault_arm(0, false);
    CHECK_MSG(is_fault(rc), "%d", rc);
    check_sound();
}

TEST(fault_start, run_fails_cleanly_at_every_call) {
    check_sound();
    EACH_WORKERS(w) {
        long calls = calls_of_a_run(w);
        struct holdings before = holdings();
        for (long n = 1; n <= calls; n += stride()) {
            weft__fault_arm(n, false);
            int rc = run_on(w, do_nothing, NULL);
            weft__fault_arm(0, false);
            CHECK_MSG(rc == 12 || is_fault(rc), "call %ld failed: weft_run gave %d", n, rc);
        }
        check_holdings(before, 10);
        check_sound();
    }
}

/* What WEFT_MAIN calls gives the function's result, or says the error and gives 1. */
TEST(fault_start, a_main_of_tasks_fails_cleanly_at_every_call) {
    char *argv[] = {(char *)(uintptr_t) "program", NULL};
    struct holdings before = {0};
    check_sound();
    for (long n = 0; n <= 40; n += n && stride() > 1 ? 9 : 1) {
        weft__fault_arm(n, false);
        int rc = weft_main(do_nothing, 1, argv);
        weft__fault_arm(0, false);
        CHECK_MSG(rc == 12 || rc == 1, "call %ld failed: weft_main gave %d", n, rc);
        if (n == 0) before = holdings();
        if (n == 0) CHECK_EQ(rc, 12);
    }
    check_holdings(before, 10);
    check_sound();
}

/* A program that takes errors as they come: what is accepted runs, the rest is reported. */
static int careful_main(void *arg) {
    (void)arg;
    weft_scope s;
    int accepted = 0, root = 0;
    weft_scope_opts o = {.deadline = {0}, .on_error = WEFT_KEEP_GOING};
    weft_scope_begin(&s, &o);
    for (int i = 0; i < 200; i++) {
        int rc = i % 3 ? weft_spawn(&s, count_run, NULL) : weft_spawnf(&s, count_run, NULL, "task %d", i);
        CHECK(rc == 0 || is_fault(rc));
        accepted += rc == 0;
        rc = i % 10 ? 1 : weft_go(count_run, NULL);
        CHECK(rc >= 0 || is_fault(rc));
        root += rc == 0;
    }
    weft_chan *c = weft_chan_new(8, 100);
    weft_chan_unref(c);
    int rc = weft_scope_end(&s);
    CHECK_EQ(rc == 0, accepted == 200);
    task_wait(&ran, accepted + root);
    return accepted;
}

TEST(fault_start, a_run_survives_failures_at_every_call) {
    check_sound();
    EACH_WORKERS(w) {
        struct holdings before = holdings();
        for (long n = 1; n <= 60; n += stride()) {
            atomic_store(&ran, 0);
            weft__fault_arm(n, false);
            int rc = run_on(w, careful_main, NULL);
            weft__fault_arm(0, false);
            CHECK_MSG(rc >= 0 || is_fault(rc), "call %ld failed: weft_run gave %d", n, rc);
        }
        check_holdings(before, 10);
        check_sound();
    }
}

/* ---- a crowd of the last runtime (S6 in task.h) ---- */

static atomic_int waiting, ended, over;

static int wait_to_be_cancelled(void *arg) {
    atomic_fetch_add(&waiting, 1);
    int rc = wait_for_ever(arg);
    atomic_fetch_add(&ended, 1);
    return rc;
}

static void *cancel_again_and_again(void *scope) {
    while (!atomic_load(&over)) {
        atomic_store(&weft__scope_of(scope)->cause, 0); /* as if it had not been */
        weft_scope_cancel(scope);
    }
    return NULL;
}

TEST(fault_start, a_plain_thread_may_cancel_its_crowd_while_a_start_fails) {
    enum { CROWD = 50, STARTS = 2000 };
    weft_scope s;
    pthread_t t;
    weft__cancel_crowd = 1;
    CHECK_EQ(set_up(2), 0);
    weft_scope_begin(&s, &(weft_scope_opts){.on_error = WEFT_KEEP_GOING});
    for (int i = 0; i < CROWD; i++) CHECK_EQ(weft_spawn(&s, wait_to_be_cancelled, NULL), 0);
    thread_wait(&waiting, CROWD);
    weft_scope_cancel(&s);
    thread_wait(&ended, CROWD);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    CHECK(atomic_load(&weft__scope_of(&s)->crowded));
    CHECK_EQ(pthread_create(&t, NULL, cancel_again_and_again, &s), 0);
    int64_t end = test_long_enough();
    for (long i = 0; i < test_scale(STARTS, 200) && (i < 40 || test_clock_ns() < end); i++) {
        weft__fault_arm(1 + i % 40, true);
        int rc = set_up(2);
        weft__fault_arm(0, false);
        if (rc == 0) CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    }
    atomic_store(&over, 1);
    CHECK_EQ(pthread_join(t, NULL), 0);
    CHECK_EQ(weft_scope_end(&s), WEFT_ECANCELED); /* it was open when a runtime stopped */
}
