/* SPDX-License-Identifier: MIT */
/* Calls that block: said so, and on the pool. */
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/common.h"
#include "api/fake.h"

#include <weft/debug.h>

static atomic_int flag, begun, order;
static int seen[64];

static void reset(void) {
    atomic_store(&flag, 0);
    atomic_store(&begun, 0);
    atomic_store(&order, 0);
}

static int set_flag(void *arg) {
    (void)arg;
    atomic_store(&flag, 1);
    return 0;
}

/* As a C call would: without the runtime. */
static void spin_for(atomic_int *at, int want) {
    while (atomic_load(at) < want) sched_yield();
}

/* ---- weft_block_enter, weft_block_exit ---- */

/* Once more if the slot was taken from us before we gave it: who waits for the kernel's or a tool's turn may look blocked. */
static int hand_over(void *arg) {
    weft_scope s;
    weft_stats st = {0};
    (void)arg;
    for (int i = 0; i < TEST_ATTEMPTS && st.handoffs == 0; i++) {
        uint64_t before = st.takeovers;
        atomic_store(&flag, 0);
        weft_scope_begin(&s, NULL);
        CHECK_EQ(weft_spawn(&s, set_flag, NULL), 0);
        weft_block_enter();
        spin_for(&flag, 1);
        weft_block_exit();
        CHECK_EQ(weft_scope_end(&s), 0);
        weft_stats_get(&st);
        CHECK(st.handoffs == 1 || st.takeovers > before);
    }
    CHECK_EQ(st.handoffs, 1);
    return 0;
}

/* With one slot and a slice that never ends. */
TEST(block_enter, who_waits_has_the_slot_at_once) {
    reset();
    CHECK_EQ(weft_run(hand_over, NULL, &(weft_config){.workers = 1, .slice = HOUR}), 0);
}

static int keep(void *arg) {
    weft_stats st;
    (void)arg;
    weft_block_enter();
    atomic_store(&begun, 1);
    spin_for(&flag, 1);
    weft_block_exit();
    weft_stats_get(&st);
    CHECK_EQ(st.handoffs, 0); /* nobody waited when it began */
    return 0;
}

TEST(block_enter, who_comes_later_has_it_too) {
    reset();
    CHECK_EQ(weft_start(&(weft_config){.workers = 1, .slice = HOUR}), 0);
    CHECK_EQ(weft_go(keep, NULL), 0);
    thread_wait(&begun, 1);
    CHECK_EQ(weft_block_on(set_flag, NULL), 0);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
}

static int nested(void *arg) {
    (void)arg;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    weft_block_enter();
    weft_block_enter();
    weft_yield(); /* the runtime may be used in between */
    CHECK_EQ(weft_spawn(&s, set_flag, NULL), 0);
    CHECK_EQ(weft_sleep_for(1), 0);
    weft_block_exit();
    weft_block_exit();
    return weft_scope_end(&s);
}

TEST(block_enter, they_nest_and_the_runtime_may_be_called_in_between) {
    reset();
    run_each_watched(nested);
}

TEST(block_enter, on_a_plain_thread_they_do_nothing) {
    weft_block_enter();
    weft_block_exit();
    weft_block_exit();
}

static int panic_inside(void *arg) {
    (void)arg;
    weft_block_enter();
    weft_panic("in the call");
}

static int try_panic(void *arg) {
    CHECK_EQ(weft_try(panic_inside, arg, NULL), WEFT_EPANIC);
    return 0; /* dies if it still were in there */
}

TEST(block_enter, a_panic_leaves_the_call) { run_each_watched(try_panic); }

static int exit_only(void *arg) {
    (void)arg;
    weft_block_exit();
    return 0;
}
static int run_exit_only(void *arg) { return weft_run(exit_only, arg, NULL); }
TEST(block_enter, an_exit_without_enter_dies) { CHECK_DIES(run_exit_only, "has not called weft_block_enter"); }

static int enter_only(void *arg) {
    (void)arg;
    weft_block_enter();
    return 0;
}
static int run_enter_only(void *arg) { return weft_run(enter_only, arg, NULL); }
TEST(block_enter, a_task_that_ends_inside_dies) { CHECK_DIES(run_enter_only, "weft_block_exit is missing"); }

/* ---- the pool ---- */

static int leave_open(void *arg) {
    static weft_scope s;
    weft_scope_begin(&s, NULL);
    (void)arg;
    return 0;
}
static int pool_leave_open(void *arg) { return weft_block(leave_open, arg, WEFT_FOREVER); }
static int run_leave_open(void *arg) { return weft_run(pool_leave_open, arg, NULL); }
TEST(block, a_function_that_leaves_a_scope_open_dies) {
    CHECK_DIES(run_leave_open, "a function on the blocking pool returned with scope");
}

/* TSan allows a child of a process with threads no threads of its own, and qemu-user dies of one. */
static bool can_start_after_fork(void) {
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
    return false;
#endif
#endif
    return !test_emulated();
}

/* The child, if it gets so far, returns from the function; with a runtime of its own, or without. */
static int fork_and_return(void *start) {
    int status;
    pid_t child = fork();
    CHECK_GE(child, 0);
    if (child == 0) return start ? weft_start(NULL) : 0;
    CHECK_EQ(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : -WEXITSTATUS(status);
}
static int pool_forks(void *arg) {
    CHECK_EQ(weft_block(fork_and_return, arg, WEFT_FOREVER), SIGABRT);
    return 0;
}
static int run_pool_forks(void *arg) { return weft_run(pool_forks, arg, NULL); }
TEST(block, the_child_of_a_function_that_forked_cannot_return_from_it) {
    struct test_child out;
    for (int start = 0; start < 1 + can_start_after_fork(); start++) {
        test_child(run_pool_forks, as_arg(start), &out);
        CHECK_MSG(out.exit_code == 0, "exit %d, signal %d:\n%.1500s", out.exit_code, out.signal, out.out);
        CHECK(strstr(out.out, "a function on the blocking pool forked"));
    }
}

static int answer(void *arg) {
    CHECK_EQ(weft_self(), 0);
    return (int)(intptr_t)arg;
}

static int panics(void *arg) {
    (void)arg;
    weft_panic("on the pool");
}

static int results(void *arg) {
    (void)arg;
    CHECK_EQ(weft_block(answer, as_arg(42), WEFT_FOREVER), 42);
    CHECK_EQ(weft_block(answer, as_arg(-7), weft_after(HOUR)), -7);
    CHECK_EQ(weft_block(panics, NULL, WEFT_FOREVER), WEFT_EPANIC);
    CHECK_EQ(weft_block(answer, NULL, WEFT_POLL), WEFT_EAGAIN);
    CHECK_EQ(weft_block(answer, NULL, weft_at(1)), WEFT_ETIMEDOUT);
    return 0;
}

TEST(block, results_errors_and_panics_come_back) { run_each_watched(results); }

TEST(block, on_a_plain_thread_the_function_is_called) { CHECK_EQ(weft_block(answer, as_arg(3), WEFT_FOREVER), 3); }

static int wait_flag(void *arg) {
    atomic_fetch_add(&begun, 1);
    spin_for(&flag, 1);
    return (int)(intptr_t)arg;
}

static int call_wait_flag(void *arg) { return weft_block(wait_flag, arg, WEFT_FOREVER) < 0; }

enum { CALLS = 40 };

static int many_at_once(void *arg) {
    weft_scope s;
    weft_stats st;
    (void)arg;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < CALLS; i++) CHECK_EQ(weft_spawn(&s, call_wait_flag, as_arg(i)), 0);
    task_wait(&begun, CALLS); /* all of them run, and the slot is ours */
    weft_stats_get(&st);
    CHECK_EQ(st.block_threads, CALLS);
    CHECK_EQ(st.block_queued, 0);
    atomic_store(&flag, 1);
    return weft_scope_end(&s);
}

TEST(block, the_pool_grows_to_as_many_threads_as_there_are_calls) {
    reset();
    CHECK_EQ(run_on(1, many_at_once, NULL), 0);
}

static bool all_queued(void *arg) {
    weft_stats st;
    weft_stats_get(&st);
    return st.block_queued == *(int *)arg;
}

static bool at_most(void *arg) {
    (void)arg;
    weft_stats st;
    weft_stats_get(&st);
    return st.block_threads == 3 && st.block_queued == CALLS - 3;
}

static int capped(void *arg) {
    weft_scope s;
    (void)arg;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < CALLS; i++) CHECK_EQ(weft_spawn(&s, call_wait_flag, as_arg(i)), 0);
    test_task_until(at_most, NULL);
    task_wait(&begun, 3);
    CHECK_EQ(atomic_load(&begun), 3);
    atomic_store(&flag, 1);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(atomic_load(&begun), CALLS);
    return 0;
}

TEST(block, it_has_no_more_threads_than_it_may) {
    reset();
    CHECK_EQ(weft_run(capped, NULL, &(weft_config){.workers = 2, .block_threads_max = 3}), 0);
}

static int note(void *arg) {
    seen[atomic_fetch_add(&order, 1)] = (int)(intptr_t)arg;
    return 0;
}

static int call_note(void *arg) { return weft_block(note, arg, WEFT_FOREVER); }

static int in_turn(void *arg) {
    weft_scope s;
    (void)arg;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, call_wait_flag, NULL), 0);
    task_wait(&begun, 1);
    for (int i = 1; i <= 20; i++) {
        CHECK_EQ(weft_spawn(&s, call_note, as_arg(i)), 0);
        test_task_until(all_queued, &i);
    }
    atomic_store(&flag, 1);
    CHECK_EQ(weft_scope_end(&s), 0);
    for (int i = 0; i < 20; i++) CHECK_EQ(seen[i], i + 1);
    return 0;
}

TEST(block, calls_are_served_in_the_order_they_came) {
    reset();
    CHECK_EQ(weft_run(in_turn, NULL, &(weft_config){.workers = 1, .block_threads_max = 1}), 0);
}

static int call_note_until(void *arg) {
    (void)arg;
    CHECK_EQ(weft_block(note, NULL, weft_after(WEFT_MS)), WEFT_ETIMEDOUT);
    return 0;
}

static int call_note_cancelled(void *arg) {
    (void)arg;
    CHECK_EQ(weft_block(note, NULL, WEFT_FOREVER), WEFT_ECANCELED);
    return 0;
}

static int ended_early(void *arg) {
    weft_scope s, busy;
    int one = 1, none = 0;
    (void)arg;
    weft_scope_begin(&busy, NULL);
    CHECK_EQ(weft_spawn(&busy, call_wait_flag, NULL), 0);
    task_wait(&begun, 1);
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, call_note_until, NULL), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, call_note_cancelled, NULL), 0);
    test_task_until(all_queued, &one);
    weft_scope_cancel(&s);
    CHECK_EQ(weft_scope_end(&s), 0);
    test_task_until(all_queued, &none);
    atomic_store(&flag, 1);
    CHECK_EQ(weft_scope_end(&busy), 0);
    CHECK_EQ(atomic_load(&order), 0); /* neither was called */
    return 0;
}

TEST(block, a_call_that_has_not_begun_ends_with_its_deadline_or_scope) {
    reset();
    CHECK_EQ(weft_run(ended_early, NULL, &(weft_config){.workers = 1, .block_threads_max = 1}), 0);
}

static int begun_is_waited_for(void *arg) {
    (void)arg;
    CHECK_EQ(weft_block(wait_flag, as_arg(5), weft_at(START + HOUR)), 5);
    return 0;
}

static int cancel_begun(void *arg) {
    weft_scope s;
    (void)arg;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, begun_is_waited_for, NULL), 0);
    task_wait(&begun, 1);
    weft_scope_cancel(&s);
    weft__clock_advance(2 * HOUR);
    let_others_run();
    atomic_store(&flag, 1);
    return weft_scope_end(&s);
}

TEST(block, one_that_has_begun_is_waited_for) {
    EACH_WORKERS(w) {
        reset();
        run_fake_on(w, cancel_begun);
    }
}

static bool no_threads(void *arg) {
    weft_stats st;
    (void)arg;
    weft_stats_get(&st);
    return st.block_threads == 0;
}

TEST(block, idle_threads_end_after_a_minute) {
    reset();
    weft_stats st;
    weft__clock_fake(START);
    CHECK_EQ(weft_start(&(weft_config){.workers = 2}), 0);
    CHECK_EQ(weft_block_on(many_at_once, NULL), 0);
    weft__clock_advance(59 * WEFT_SECOND);
    CHECK(!test_within(no_threads, NULL, 5));
    weft_stats_get(&st);
    CHECK_EQ(st.block_threads, CALLS);
    /* One that was slow to become idle has its minute from then on. */
    while (!test_within(no_threads, NULL, 5)) weft__clock_advance(61 * WEFT_SECOND);
    CHECK_EQ(weft_block_on(call_note, NULL), 0); /* and new ones come */
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    weft__clock_fake(0);
}

TEST(block, its_threads_end_with_the_runtime) {
    int threads = 0;
    for (int i = 0; i < 4; i++) {
        reset();
        CHECK_EQ(weft_run(many_at_once, NULL, NULL), 0);
        if (i)
            test_wait_threads(threads);
        else
            threads = test_threads(); /* a tool's own thread is there by now */
    }
}
