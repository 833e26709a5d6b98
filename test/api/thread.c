/* SPDX-License-Identifier: MIT */
/* 1:1 threads, and threads that serve as workers. */
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "api/common.h"

#include <weft/debug.h>

static atomic_int flag, count;

static int wait_and_return(void *arg) {
    while (!atomic_load(&flag)) usleep(100);
    return (int)(intptr_t)arg;
}

static int panics(void *arg) {
    (void)arg;
    weft_panic("in a thread");
}

static int named(void *arg) {
    char name[16] = "";
    CHECK_EQ(prctl(PR_GET_NAME, name, 0, 0, 0), 0);
    CHECK_STR(name, "a name");
    CHECK_EQ(weft_self(), 0);
    CHECK_EQ(weft_thread_id(), (uint64_t)gettid());
    CHECK_EQ(sched_getcpu(), (int)(intptr_t)arg - 1);
    return 0;
}

static int join_self(void *arg) { return weft_thread_join(*(weft_thread **)arg, NULL, WEFT_FOREVER); }

static int use_threads(void *arg) {
    weft_thread *t;
    int result, cpu = sched_getcpu() + 1;
    (void)arg;
    atomic_store(&flag, 0);
    CHECK_EQ(weft_thread_start(&t, wait_and_return, as_arg(9), NULL), 0);
    CHECK_EQ(weft_thread_join(t, &result, WEFT_POLL), WEFT_EAGAIN);
    CHECK_EQ(weft_thread_join(t, &result, weft_after(WEFT_MS)), WEFT_ETIMEDOUT);
    atomic_store(&flag, 1);
    CHECK_EQ(weft_thread_join(t, &result, WEFT_FOREVER), 0);
    CHECK_EQ(result, 9);
    CHECK_EQ(weft_thread_start(&t, panics, NULL, NULL), 0);
    CHECK_EQ(weft_thread_join(t, &result, WEFT_FOREVER), 0);
    CHECK_EQ(result, WEFT_EPANIC);
    CHECK_EQ(
        weft_thread_start(&t, named, as_arg(cpu), &(weft_thread_opts){.name = "a name", .stack_size = 1 << 20, .cpu = cpu}), 0);
    CHECK_EQ(weft_thread_join(t, &result, WEFT_FOREVER), 0);
    CHECK_EQ(result, 0);
    CHECK_EQ(weft_thread_start(&t, named, NULL, &(weft_thread_opts){.cpu = 100000}), WEFT_EINVAL);
    CHECK_EQ(weft_thread_start(&t, named, NULL, &(weft_thread_opts){.realtime = -1}), WEFT_EINVAL);
    CHECK_EQ(weft_thread_start(&t, named, NULL, &(weft_thread_opts){.realtime = 100}), WEFT_EINVAL);
    CHECK_PTR(t, NULL);
    static weft_thread *self;
    CHECK_EQ(weft_thread_start(&self, join_self, &self, NULL), 0);
    CHECK_EQ(weft_thread_join(self, &result, WEFT_FOREVER), 0);
    CHECK_EQ(result, WEFT_EDEADLOCK);
    return 0;
}

/* ---- real-time ---- */

static void *see_usual(void *arg) {
    (void)arg;
    CHECK_EQ(sched_getscheduler(0), SCHED_OTHER);
    return NULL;
}

static int see_realtime(void *arg) {
    struct sched_param p;
    pthread_t t;
    (void)arg;
    CHECK_EQ(sched_getscheduler(0) & ~SCHED_RESET_ON_FORK, SCHED_FIFO);
    CHECK_EQ(sched_getparam(0, &p), 0);
    CHECK_EQ(p.sched_priority, 3);
    CHECK_EQ(pthread_create(&t, NULL, see_usual, NULL), 0);
    return pthread_join(t, NULL);
}

/* A process without the right to it, whatever this one has. */
static int without_rights(void *arg) {
    weft_thread *t = NULL;
    struct rlimit none = {0, 0};
    (void)arg;
    CHECK_EQ(setrlimit(RLIMIT_RTPRIO, &none), 0);
    if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0) return 0;
    CHECK_EQ(weft_thread_start(&t, see_realtime, NULL, &(weft_thread_opts){.realtime = 3}), -EPERM);
    CHECK_PTR(t, NULL);
    return 0;
}

TEST(thread, a_realtime_priority_is_given_or_refused_with_eperm) {
    weft_thread *t = NULL;
    int result = -1, err = weft_thread_start(&t, see_realtime, NULL, &(weft_thread_opts){.realtime = 3});
    CHECK(err == 0 || err == -EPERM); /* that is the machine's */
    if (!err) CHECK_EQ(weft_thread_join(t, &result, WEFT_FOREVER), 0);
    CHECK_EQ(result, err ? -1 : 0);
    CHECK_CHILD(without_rights);
}

TEST(thread, results_panics_names_and_cpus_from_tasks) { run_each_watched(use_threads); }
TEST(thread, results_panics_names_and_cpus_from_plain_threads) { CHECK_EQ(use_threads(NULL), 0); }

static int double_it(void *arg) {
    *(int *)arg *= 2;
    return 0;
}

static int serve_thread(void *arg) {
    weft_chan **c = arg;
    int v;
    while (weft_chan_recv(c[0], &v, WEFT_FOREVER) == 0) {
        weft_scope s; /* its children are tasks, if a runtime runs */
        weft_scope_begin(&s, NULL);
        CHECK_EQ(weft_spawn(&s, double_it, &v), 0);
        CHECK_EQ(weft_scope_end(&s), 0);
        CHECK_EQ(weft_chan_send(c[1], &v, WEFT_FOREVER), 0);
    }
    return 0;
}

static int talk(void *arg) {
    weft_chan *c[2] = {weft_chan_new(sizeof(int), 0), weft_chan_new(sizeof(int), 0)};
    weft_thread *t;
    int v;
    (void)arg;
    CHECK_EQ(weft_thread_start(&t, serve_thread, c, NULL), 0);
    for (int i = 0; i < 50; i++) {
        CHECK_EQ(weft_chan_send(c[0], &i, WEFT_FOREVER), 0);
        CHECK_EQ(weft_chan_recv(c[1], &v, WEFT_FOREVER), 0);
        CHECK_EQ(v, 2 * i);
    }
    weft_chan_close(c[0]);
    CHECK_EQ(weft_thread_join(t, NULL, WEFT_FOREVER), 0);
    weft_chan_unref(c[0]);
    weft_chan_unref(c[1]);
    return 0;
}

TEST(thread, tasks_and_threads_share_channels_and_scopes) { run_each_watched(talk); }

static int join_cancelled(void *arg) {
    CHECK_EQ(weft_thread_join(arg, NULL, WEFT_FOREVER), WEFT_ECANCELED);
    return 0;
}

static int cancel_join(void *arg) {
    weft_thread *t;
    weft_scope s;
    (void)arg;
    atomic_store(&flag, 0);
    CHECK_EQ(weft_thread_start(&t, wait_and_return, NULL, NULL), 0);
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, join_cancelled, t), 0);
    weft_sleep_for(WEFT_MS);
    weft_scope_cancel(&s);
    CHECK_EQ(weft_scope_end(&s), 0);
    atomic_store(&flag, 1);
    return weft_thread_join(t, NULL, WEFT_FOREVER);
}

TEST(thread, a_join_ends_with_its_scope) { run_each_watched(cancel_join); }

static int join_it(void *arg) { return weft_thread_join(arg, NULL, WEFT_FOREVER); }

/* Two wait for the same end: alone, both wait when it comes. */
static int join_twice(void *arg) {
    weft_thread *t;
    weft_scope s;
    (void)arg;
    atomic_store(&flag, 0);
    CHECK_EQ(weft_thread_start(&t, wait_and_return, NULL, NULL), 0);
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 2; i++) CHECK_EQ(weft_spawn(&s, join_it, t), 0);
    for (int i = 0; i < 20; i++) weft_yield();
    atomic_store(&flag, 1);
    return weft_scope_end(&s);
}
static int run_join_twice(void *arg) { return weft_run(join_twice, arg, &alone); }
TEST(thread, a_second_join_dies) { CHECK_DIES(run_join_twice, "a thread was joined twice"); }

static int leave_open(void *arg) {
    static weft_scope s;
    weft_scope_begin(&s, NULL);
    (void)arg;
    return 0;
}
static int thread_leave_open(void *arg) {
    weft_thread *t;
    CHECK_EQ(weft_thread_start(&t, leave_open, arg, NULL), 0);
    return weft_thread_join(t, NULL, WEFT_FOREVER);
}
TEST(thread, a_function_that_leaves_a_scope_open_dies) {
    CHECK_DIES(thread_leave_open, "a function on a thread of weft_thread_start returned with scope");
}

/* ---- attached threads ---- */

static atomic_int seen_tid, attached_tid;
static weft_worker *worker; /* written by weft_thread_attach; read atomically */

static void *serve(void *arg) {
    atomic_store(&attached_tid, gettid());
    int err = weft_thread_attach(&worker);
    CHECK_EQ(gettid(), atomic_load(&attached_tid));
    CHECK_EQ(weft_self(), 0);
    CHECK_EQ(err, (int)(intptr_t)arg);
    return NULL;
}

static bool is_attached(void *arg) {
    (void)arg;
    return __atomic_load_n(&worker, __ATOMIC_ACQUIRE) != NULL;
}

static int look(void *arg) {
    (void)arg;
    atomic_fetch_add(&count, 1);
    return 0;
}

/* Stays away until the attached thread has run one of these. */
static int be_away(void *arg) {
    (void)arg;
    if (gettid() == atomic_load(&attached_tid)) atomic_store(&seen_tid, 1);
    while (!atomic_load(&seen_tid)) usleep(1000);
    return 0;
}

/* As many as there are threads: all of them have to serve. */
static int spawn_until_seen(void *arg) {
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < (int)(intptr_t)arg; i++) CHECK_EQ(weft_spawn(&s, be_away, NULL), 0);
    return weft_scope_end(&s);
}

static int spawn_some(void *arg) {
    weft_scope s;
    int before = atomic_load(&count);
    (void)arg;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 50; i++) CHECK_EQ(weft_spawn(&s, look, NULL), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(atomic_load(&count) - before, 50);
    return 0;
}

static void attach(int slots, bool release) {
    pthread_t t;
    worker = NULL;
    atomic_store(&seen_tid, 0);
    CHECK_EQ(weft_start(&(weft_config){.workers = slots, .max_threads = 6}), 0);
    CHECK_EQ(pthread_create(&t, NULL, serve, as_arg(release ? 0 : WEFT_ETERMINATED)), 0);
    test_until(is_attached, NULL);
    CHECK_EQ(weft_block_on(spawn_until_seen, as_arg(6)), 0);
    if (release) {
        weft_worker_release(worker);
        pthread_join(t, NULL);
        CHECK_EQ(weft_block_on(spawn_some, NULL), 0);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    } else {
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
        pthread_join(t, NULL);
    }
}

TEST(attach, a_thread_serves_until_it_is_released) { EACH_WORKERS(w) attach(w, true); }
TEST(attach, a_thread_serves_until_the_runtime_stops) { EACH_WORKERS(w) attach(w, false); }

/* ---- released ---- */

static atomic_int hogs, elsewhere, on_attached;

/* Computes; then it calls the runtime once, and is not on the attached thread any more. */
static int stay_there(void *arg) {
    (void)arg;
    bool there = gettid() == atomic_load(&attached_tid);
    if (there) atomic_store(&on_attached, 1);
    while (!atomic_load(&flag)) __asm__ volatile("");
    weft_yield();
    if (there) {
        CHECK_NE(gettid(), atomic_load(&attached_tid));
        atomic_store(&elsewhere, 1);
    }
    return 0;
}

static bool on_attached_now(void *arg) {
    (void)arg;
    return atomic_load(&on_attached);
}

/* Tasks that are away are started until one of them is on the attached thread. Then it is released. */
static void release_computing(int slots) {
    pthread_t t;
    worker = NULL;
    atomic_store(&flag, 0);
    atomic_store(&on_attached, 0);
    atomic_store(&elsewhere, 0);
    CHECK_EQ(weft_start(&(weft_config){.workers = slots, .max_threads = slots + 3, .slice = WEFT_MS}), 0);
    CHECK_EQ(pthread_create(&t, NULL, serve, as_arg(0)), 0);
    test_until(is_attached, NULL);
    while (!atomic_load(&on_attached)) {
        CHECK_EQ(weft_go(stay_there, NULL), 0);
        (void)test_within(on_attached_now, NULL, 5);
    }
    weft_worker_release(worker);
    atomic_store(&flag, 1);
    pthread_join(t, NULL);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    CHECK(atomic_load(&elsewhere));
}

TEST(attach, a_released_thread_goes_at_the_next_call_of_its_task) { EACH_WORKERS(w) release_computing(w); }

static int hog(void *arg) {
    (void)arg;
    if (gettid() == atomic_load(&attached_tid)) atomic_store(&on_attached, 1);
    atomic_fetch_add(&hogs, 1);
    while (!atomic_load(&flag)) __asm__ volatile("");
    atomic_fetch_sub(&hogs, 1);
    return 0;
}

static int end_hogs(void *arg) {
    (void)arg;
    atomic_store(&flag, 1);
    return 0;
}

static bool no_hogs(void *arg) {
    (void)arg;
    return atomic_load(&hogs) == 0;
}

/* Two hogs on two slots, both on the runtime's own threads: the attached one watches alone. */
static void start_hogs(void) {
    do {
        atomic_store(&flag, 1);
        test_until(no_hogs, NULL);
        atomic_store(&flag, 0);
        atomic_store(&on_attached, 0);
        for (int i = 0; i < 2; i++) CHECK_EQ(weft_go(hog, NULL), 0);
        thread_wait(&hogs, 2);
    } while (atomic_load(&on_attached));
}

TEST(attach, when_the_only_one_who_watches_is_released_another_does) {
    pthread_t t;
    worker = NULL;
    atomic_store(&hogs, 0);
    CHECK_EQ(weft_start(&(weft_config){.workers = 2, .max_threads = 3}), 0);
    CHECK_EQ(pthread_create(&t, NULL, serve, as_arg(0)), 0);
    test_until(is_attached, NULL);
    start_hogs();
    weft_worker_release(worker);
    pthread_join(t, NULL);
    CHECK_EQ(weft_block_on(end_hogs, NULL), 0); /* needs a slot of one that computes */
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
}

static void *release_soon(void *arg) {
    weft_worker_release(arg);
    weft_worker_release(arg); /* it has gone, or is about to */
    return NULL;
}

static void *serve_any(void *arg) {
    int err = weft_thread_attach(&worker);
    (void)arg;
    CHECK_MSG(err == 0 || err == WEFT_ETERMINATED, "attach: %d", err);
    return NULL;
}

TEST(attach, a_release_and_a_stop_at_the_same_time) {
    for (long i = test_scale(200, 20); i > 0; i--) {
        pthread_t t, r;
        worker = NULL;
        CHECK_EQ(weft_start(&(weft_config){.workers = 1 + (int)(i % 3)}), 0);
        CHECK_EQ(pthread_create(&t, NULL, serve_any, NULL), 0);
        test_until(is_attached, NULL);
        CHECK_EQ(pthread_create(&r, NULL, release_soon, worker), 0);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
        pthread_join(r, NULL);
        pthread_join(t, NULL);
    }
}

static int attach_in_task(void *arg) {
    weft_worker *w;
    (void)arg;
    CHECK_EQ(weft_thread_attach(&w), WEFT_EINVAL);
    return 0;
}

TEST(attach, without_a_runtime_and_from_a_task_it_is_refused) {
    weft_worker *w;
    CHECK_EQ(weft_thread_attach(&w), WEFT_ETERMINATED);
    CHECK_EQ(run_on(1, attach_in_task, NULL), 0);
}
