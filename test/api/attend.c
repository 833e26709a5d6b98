/* SPDX-License-Identifier: MIT */
/* What a slot attends to beside its own queues: nothing of it is lost, starved or run too early by special tasks. */
#include <sys/wait.h>
#include <unistd.h>

#include "api/common.h"
#include "sched/idle.h"

static const weft_config one = {.workers = 1}; /* with the usual slice */

static struct {
    atomic_int stop, slept, ready, sent, received;
    weft_chan *c;
} st;

static void reset(void) { memset(&st, 0, sizeof st); }

static int spawn_as(weft_scope *s, weft_fn *fn, void *arg, int priority, unsigned flags) {
    weft_task_opts o = {.priority = priority, .flags = flags};
    return weft_spawn_opts(s, fn, arg, &o);
}

static int yield_until_stop(void *arg) {
    (void)arg;
    while (!atomic_load(&st.stop)) weft_yield();
    return 0;
}

static int sleep_and_stop(void *arg) {
    (void)arg;
    CHECK_EQ(weft_sleep_for(5 * WEFT_MS), 0);
    atomic_store(&st.stop, 1);
    return 0;
}

static int stop_at_once(void *arg) {
    (void)arg;
    atomic_store(&st.stop, 1);
    return 0;
}

/* Two that yield to each other are never away at once. The one who ends it starts first, if it can sleep. */
static int beside_two(int priority, unsigned flags, weft_fn *ender, int ender_priority) {
    weft_scope s;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(spawn_as(&s, ender, NULL, ender_priority, 0), 0);
    if (ender == sleep_and_stop) weft_yield();
    for (int i = 0; i < 2; i++) CHECK_EQ(spawn_as(&s, yield_until_stop, NULL, priority, flags), 0);
    return weft_scope_end(&s);
}

static int timer_beside_high(void *arg) {
    (void)arg;
    return beside_two(WEFT_PRIORITY_HIGH, 0, sleep_and_stop, WEFT_PRIORITY_NORMAL);
}
static int low_beside_high(void *arg) {
    (void)arg;
    return beside_two(WEFT_PRIORITY_HIGH, 0, stop_at_once, WEFT_PRIORITY_LOW);
}
static int timer_beside_pinned(void *arg) {
    (void)arg;
    return beside_two(WEFT_PRIORITY_NORMAL, WEFT_PINNED, sleep_and_stop, WEFT_PRIORITY_NORMAL);
}
static int low_beside_pinned(void *arg) {
    (void)arg;
    return beside_two(WEFT_PRIORITY_NORMAL, WEFT_PINNED, stop_at_once, WEFT_PRIORITY_LOW);
}

static void run_one(weft_fn *fn) {
    reset();
    CHECK_EQ(weft_run(fn, NULL, &one), 0);
}

TEST(attend, a_timer_comes_beside_high_tasks_that_yield_to_each_other) { run_one(timer_beside_high); }
TEST(attend, a_low_task_runs_beside_high_tasks_that_yield_to_each_other) { run_one(low_beside_high); }
TEST(attend, a_timer_comes_beside_pinned_tasks_that_yield_to_each_other) { run_one(timer_beside_pinned); }
TEST(attend, a_low_task_runs_beside_pinned_tasks_that_yield_to_each_other) { run_one(low_beside_pinned); }

/* A normal task that is already started, beside pinned ones: they take turns for a long time. */
static int count_yields(void *arg) {
    for (int i = 0; i < 1000; i++) weft_yield();
    atomic_store(&st.stop, 1);
    (void)arg;
    return 0;
}
static int normal_beside_pinned(void *arg) {
    (void)arg;
    return beside_two(WEFT_PRIORITY_NORMAL, WEFT_PINNED, count_yields, WEFT_PRIORITY_NORMAL);
}
TEST(attend, a_normal_task_goes_on_beside_pinned_tasks_that_yield_to_each_other) { run_one(normal_beside_pinned); }

/* A task that computes and calls seldom is sent to the timers by the watch: not only after as many calls as a slot makes rounds. So seldom that the watch
 * has had a turn of the kernel's by the twentieth call, whatever else the machine does. */
static int call_seldom(void *arg) {
    int calls = 0;
    while (!atomic_load(&st.stop)) {
        int64_t end = weft_now() + 100 * WEFT_MS;
        while (weft_now() < end) {
        }
        weft_yield();
        calls++;
    }
    *(int *)arg = calls;
    return 0;
}
static int timer_beside_computing(void *arg) {
    weft_scope s;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, sleep_and_stop, NULL), 0);
    weft_yield();
    CHECK_EQ(weft_spawn(&s, call_seldom, arg), 0);
    return weft_scope_end(&s);
}
TEST(attend, a_timer_comes_at_one_of_the_next_calls_of_a_computing_task) {
    int calls = 0;
    reset();
    CHECK_EQ(weft_run(timer_beside_computing, &calls, &one), 0);
    printf("%d calls\n", calls);
    CHECK_LE(calls, 20);
}

/* However many slots there are, and all have such a task: somebody still watches. */
static int call_seldom_until_stop(void *arg) {
    int calls;
    (void)arg;
    atomic_fetch_add(&st.ready, 1);
    return call_seldom(&calls);
}
TEST(attend, when_every_slot_is_busy_a_worker_is_left_to_watch) {
    for (int workers = 1; workers <= 4; workers++) {
        weft_config cfg = {.workers = workers};
        weft_stats s;
        reset();
        CHECK_EQ(weft_start(&cfg), 0);
        for (int i = 0; i < workers; i++) {
            CHECK_EQ(weft_go(call_seldom_until_stop, NULL), 0);
            thread_wait(&st.ready, i + 1);
        }
        do weft_stats_get(&s);
        while (s.threads <= workers); /* it may just be starting */
        atomic_store(&st.stop, 1);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    }
}

/* ---- woken by a thread while it parks ---- */

static int receive_all(void *arg) {
    int v;
    (void)arg;
    atomic_fetch_add(&st.ready, 1);
    while (weft_chan_recv(st.c, &v, WEFT_FOREVER) == 0) atomic_fetch_add(&st.received, 1);
    return 0;
}

static void *send_many(void *arg) {
    int n = *(int *)arg, i = 0;
    for (int64_t end = test_long_enough(); i < n && test_clock_ns() < end; i++)
        CHECK_EQ(weft_chan_send(st.c, &i, WEFT_FOREVER), 0);
    atomic_fetch_add(&st.sent, i);
    return NULL;
}

struct receivers {
    int priority;
    unsigned flags;
    int n;
};

static int receive_as(void *arg) {
    struct receivers *r = arg;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < r->n; i++) CHECK_EQ(spawn_as(&s, receive_all, NULL, r->priority, r->flags), 0);
    for (int i = 0; i < 2; i++) CHECK_EQ(weft_spawn(&s, yield_until_stop, NULL), 0);
    return weft_scope_end(&s);
}

static void woken_while_parking(int priority, unsigned flags, int receivers) {
    enum { SENDERS = 2 };
    pthread_t sender[SENDERS];
    weft_task *t;
    int n = (int)test_scale(50000, 2000), result;
    struct receivers r = {priority, flags, receivers};
    reset();
    CHECK_EQ(weft_start(&one), 0);
    CHECK((st.c = weft_chan_new(sizeof n, 0)) != NULL);
    CHECK_EQ(weft_task_start(&t, receive_as, &r, NULL), 0);
    for (int i = 0; i < SENDERS; i++) CHECK_EQ(pthread_create(&sender[i], NULL, send_many, &n), 0);
    for (int i = 0; i < SENDERS; i++) pthread_join(sender[i], NULL);
    CHECK_EQ(weft_chan_close(st.c), 0);
    atomic_store(&st.stop, 1);
    CHECK_EQ(weft_task_join(t, &result, WEFT_FOREVER), 0);
    CHECK_EQ(result, 0);
    CHECK_EQ(atomic_load(&st.received), atomic_load(&st.sent));
    weft_chan_unref(st.c);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
}

TEST(attend, a_high_task_that_a_thread_wakes_while_it_parks_is_left_first) {
    woken_while_parking(WEFT_PRIORITY_HIGH, 0, 1);
    woken_while_parking(WEFT_PRIORITY_HIGH, 0, 3);
}
TEST(attend, a_pinned_task_that_a_thread_wakes_while_it_parks_is_left_first) {
    woken_while_parking(WEFT_PRIORITY_NORMAL, WEFT_PINNED, 1);
    woken_while_parking(WEFT_PRIORITY_NORMAL, WEFT_PINNED, 3);
}

/* ---- several workers have pinned tasks ---- */

static struct {
    pthread_t thread[8];
    atomic_int role[8]; /* 0: not known yet */
    atomic_int arrived;
} crew;
enum { PAIR = 1, THIRD, NONE };

static int play_role(void *arg) {
    int i = (int)(intptr_t)arg;
    crew.thread[i] = pthread_self();
    atomic_fetch_add(&crew.arrived, 1);
    while (!atomic_load(&crew.role[i])) CHECK_EQ(weft_sleep_for(WEFT_MS), 0);
    if (atomic_load(&crew.role[i]) == PAIR) return yield_until_stop(NULL);
    if (atomic_load(&crew.role[i]) == THIRD) return sleep_and_stop(NULL);
    return 0;
}

/* Two on one thread, and a third on another. */
static bool give_roles(int n) {
    for (int a = 0; a < n; a++)
        for (int b = a + 1; b < n; b++)
            for (int c = 0; c < n; c++) {
                if (!pthread_equal(crew.thread[a], crew.thread[b]) || pthread_equal(crew.thread[a], crew.thread[c])) continue;
                for (int i = 0; i < n; i++) atomic_store(&crew.role[i], i == c ? THIRD : i == a || i == b ? PAIR : NONE);
                return true;
            }
    return false;
}

TEST(attend, a_worker_with_pinned_tasks_leaves_its_slot_to_another_with_pinned_tasks) {
    for (int tries = 0; tries < 100; tries++) {
        weft_task *t[8];
        weft_task_opts pinned = {.flags = WEFT_PINNED};
        reset();
        memset(&crew, 0, sizeof crew);
        CHECK_EQ(weft_start(&one), 0);
        for (int i = 0; i < 8; i++) {
            CHECK_EQ(weft_task_start(&t[i], play_role, as_arg(i), &pinned), 0);
            thread_wait(&crew.arrived, i + 1);
        }
        bool given = give_roles(8);
        for (int i = 0; i < 8 && !given; i++) atomic_store(&crew.role[i], NONE);
        for (int i = 0; i < 8; i++) CHECK_EQ(weft_task_join(t[i], NULL, WEFT_FOREVER), 0);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
        if (given) return;
    }
    test_skip("all pinned tasks were always on one thread");
}

/* ---- calls that do not wait ---- */

static int ask_for_lengths(void *arg) {
    (void)arg;
    while (!atomic_load(&st.stop)) (void)weft_chan_len(st.c);
    return 0;
}
static int ask_beside(void *arg) {
    (void)arg;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    CHECK((st.c = weft_chan_new(1, 1)) != NULL);
    CHECK_EQ(weft_spawn(&s, stop_at_once, NULL), 0);
    CHECK_EQ(weft_spawn(&s, ask_for_lengths, NULL), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    weft_chan_unref(st.c);
    return 0;
}
TEST(attend, a_task_that_makes_only_calls_that_never_wait_has_a_slice_too) { run_one(ask_beside); }

/* ---- the sentry is wanted itself ---- */

static int sleep_longer_and_stop(void *arg) {
    (void)arg;
    atomic_store(&st.slept, 1);
    CHECK_EQ(weft_sleep_for(100 * WEFT_MS), 0);
    atomic_store(&st.stop, 1);
    return 0;
}

/* Its worker runs the sleeper while it waits, then goes to sleep with the earliest timer of all: it is the sentry. Then it is kept. */
static int receive_and_compute(void *arg) {
    int v;
    (void)arg;
    CHECK_EQ(weft_go(sleep_longer_and_stop, NULL), 0);
    CHECK_EQ(weft_chan_recv(st.c, &v, WEFT_FOREVER), 0);
    while (!atomic_load(&st.stop)) {
    }
    return 0;
}

static bool all_idle(void *arg) {
    (void)arg;
    return weft__idle_all();
}

static int nothing(void *arg) {
    (void)arg;
    atomic_fetch_add(&st.slept, 1);
    return 0;
}

TEST(attend, a_timer_comes_though_its_sentry_has_a_pinned_task_to_run) {
    weft_config cfg = {.workers = 4};
    weft_task_opts pinned = {.flags = WEFT_PINNED};
    for (int round = 0; round < 10; round++) {
        weft_task *t;
        int v = 0;
        reset();
        CHECK_EQ(weft_start(&cfg), 0);
        CHECK((st.c = weft_chan_new(sizeof v, 0)) != NULL);
        CHECK_EQ(weft_task_start(&t, receive_and_compute, NULL, &pinned), 0);
        thread_wait(&st.slept, 1);
        test_until(all_idle, NULL);
        CHECK_EQ(weft_chan_send(st.c, &v, WEFT_FOREVER), 0);
        CHECK_EQ(weft_task_join(t, NULL, WEFT_FOREVER), 0);
        weft_chan_unref(st.c);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    }
}

/* ---- fork ---- */

static int hold_the_slot(void *arg) {
    (void)arg;
    atomic_store(&st.ready, 1);
    while (!atomic_load(&st.stop)) {
    }
    return 0;
}

static int run_special_here(void *arg) {
    weft_scope s;
    (void)arg;
    weft_scope_begin(&s, NULL);
    for (int p = WEFT_PRIORITY_LOW; p <= WEFT_PRIORITY_HIGH; p++)
        for (int i = 0; i < 10; i++) CHECK_EQ(spawn_as(&s, nothing, NULL, p, i % 2 ? WEFT_PINNED : 0), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(atomic_load(&st.slept), 30);
    return 0;
}

TEST(attend, a_child_of_a_fork_does_not_find_the_special_tasks_of_its_parent) {
    test_skip_under("ThreadSanitizer starts no thread in the child of a fork",
                    "the emulator starts no thread in the child of a fork");
    weft_task *t, *special[20];
    reset();
    CHECK_EQ(weft_start(&one), 0);
    CHECK_EQ(weft_task_start(&t, hold_the_slot, NULL, NULL), 0);
    thread_wait(&st.ready, 1);
    for (int i = 0; i < 20; i++) {
        weft_task_opts o = {.priority = i % 2 ? WEFT_PRIORITY_HIGH : WEFT_PRIORITY_LOW};
        CHECK_EQ(weft_task_start(&special[i], nothing, NULL, &o), 0);
    }
    fflush(NULL);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        test_forked();
        atomic_store(&st.slept, 0); /* some may have had the slot in the parent already, on a busy machine */
        _exit(weft_run(run_special_here, NULL, &one));
    }
    int status = 0;
    while (waitpid(pid, &status, 0) < 0) {
    }
    CHECK_MSG(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status 0x%x", (unsigned)status);
    atomic_store(&st.stop, 1);
    CHECK_EQ(weft_task_join(t, NULL, WEFT_FOREVER), 0);
    for (int i = 0; i < 20; i++) CHECK_EQ(weft_task_join(special[i], NULL, WEFT_FOREVER), 0);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
}

static void call_and_wait(void *arg) {
    (void)arg;
    atomic_fetch_add(&st.ready, 1);
    while (!atomic_load(&st.stop)) {
    }
}

static weft_timer called;

static int wait_for_call(void *arg) {
    (void)arg;
    weft_timer_stop_wait(&called);
    return 0;
}

static bool a_slot_is_idle(void *arg) {
    (void)arg;
    return atomic_load(&weft__rt.idle) >= 1; /* two, if the slot was taken from the function */
}

/* The timer's function runs on one slot, and a task waits for its end. */
static void wait_for_a_call(weft_task **t) {
    weft_config two = {.workers = 2};
    reset();
    memset(&called, 0, sizeof called);
    CHECK_EQ(weft_start(&two), 0);
    CHECK_EQ(weft_timer_start(&called, weft_after(1), 0, call_and_wait, NULL), 0);
    thread_wait(&st.ready, 1);
    CHECK_EQ(weft_task_start(t, wait_for_call, NULL, NULL), 0);
    test_until(a_slot_is_idle, NULL);
}

static void end_the_call(weft_task *t) {
    atomic_store(&st.stop, 1);
    CHECK_EQ(weft_task_join(t, NULL, WEFT_FOREVER), 0);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
}

TEST(attend, a_child_of_a_fork_does_not_find_those_who_wait_for_a_timer_of_its_parent) {
    test_skip_under("ThreadSanitizer starts no thread in the child of a fork",
                    "the emulator starts no thread in the child of a fork");
    weft_task *t;
    wait_for_a_call(&t);
    fflush(NULL);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        test_forked();
        wait_for_a_call(&t);
        end_the_call(t);
        _exit(0);
    }
    int status = 0;
    while (waitpid(pid, &status, 0) < 0) {
    }
    CHECK_MSG(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status 0x%x", (unsigned)status);
    end_the_call(t);
}
