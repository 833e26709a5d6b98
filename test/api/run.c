/* SPDX-License-Identifier: MIT */
/* Starting and stopping the runtime, and what the calls say when there is none. */
#include <limits.h>
#include <sched.h>

#include "api/common.h"

/* Mappings that the C library keeps, whatever we do: 16 arenas on two CPUs, two each, and the stacks of some threads. */
enum { MAPS_KEPT = 60 };

static int add_one(void *arg) { return *(int *)arg + 1; }

TEST(run, returns_the_result_of_main) {
    EACH_WORKERS(w) {
        CHECK_EQ(run_on(w, return_int, as_arg(0)), 0);
        CHECK_EQ(run_on(w, return_int, as_arg(7)), 7);
        CHECK_EQ(run_on(w, return_int, as_arg(-5)), -5);
        CHECK_EQ(run_on(w, return_int, as_arg(WEFT_EINVAL)), WEFT_EINVAL);
        int x = 41;
        CHECK_EQ(run_on(w, add_one, &x), 42);
    }
}

static int read_slots(void *arg) {
    (void)arg;
    weft_stats st;
    weft_stats_get(&st);
    CHECK_GE(st.threads, 1);
    return st.slots;
}

TEST(run, has_the_slots_asked_for) {
    EACH_WORKERS(w)
    CHECK_EQ(run_on(w, read_slots, NULL), w);
}

static int count_tasks(void *arg) {
    (void)arg;
    weft_task *t[20];
    weft_stats st;
    for (size_t i = 0; i < COUNT(t); i++) CHECK_EQ(weft_task_start(&t[i], wait_for_ever, NULL, NULL), 0);
    weft_stats_get(&st);
    CHECK_EQ(st.tasks, COUNT(t) + 1); /* and this one */
    for (size_t i = 0; i < COUNT(t); i++) {
        weft_task_cancel(t[i]);
        CHECK_EQ(weft_task_join(t[i], NULL, WEFT_FOREVER), 0);
    }
    do weft_stats_get(&st);
    while (st.tasks != 1 && (weft_yield(), true)); /* an ended one is counted off a moment after its joiner knows */
    return 0;
}

TEST(run, counts_the_tasks_alive) { run_each(count_tasks); }

TEST(run, defaults_to_the_cpus_this_process_may_use) {
    cpu_set_t set;
    CHECK_EQ(sched_getaffinity(0, sizeof set, &set), 0);
    int n = weft_run(read_slots, NULL, NULL);
    CHECK_GE(n, 1);
    CHECK_LE(n, CPU_COUNT(&set)); /* fewer with a cgroup quota */
    weft_config zero;
    memset(&zero, 0, sizeof zero);
    CHECK_EQ(weft_run(read_slots, NULL, &zero), n);
}

static int restrict_and_run(void *arg) {
    (void)arg;
    cpu_set_t set, one;
    CHECK_EQ(sched_getaffinity(0, sizeof set, &set), 0);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &set)) CPU_SET(i, &one);
    CHECK_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    CHECK_EQ(weft_run(read_slots, NULL, NULL), 1);
    return 0;
}

TEST(run, follows_the_affinity_mask) { CHECK_CHILD(restrict_and_run); }

/* All of them must run at the same time: none makes a runtime call before the last has come. */
struct meeting {
    atomic_int here;
    int want;
};

static bool all_here(void *arg) {
    struct meeting *m = arg;
    return atomic_load(&m->here) >= m->want;
}

static int meet(void *arg) {
    struct meeting *m = arg;
    atomic_fetch_add(&m->here, 1);
    test_until(all_here, m);
    return 0;
}

static int meet_all(void *arg) {
    struct meeting *m = arg;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < m->want; i++) CHECK_EQ(weft_spawn(&s, meet, m), 0);
    return weft_scope_end(&s);
}

TEST(run, runs_as_many_tasks_at_once_as_there_are_workers) {
    EACH_WORKERS(w) {
        for (long round = test_scale(20, 2); round > 0; round--) {
            struct meeting m = {.here = 0, .want = w};
            CHECK_EQ(run_on(w, meet_all, &m), 0);
        }
    }
}

/* ---- the end of main ---- */

static atomic_int started, cancelled_waits;

static int wait_and_count(void *arg) {
    (void)arg;
    atomic_fetch_add(&started, 1);
    if (weft_sleep(WEFT_FOREVER) == WEFT_ECANCELED) atomic_fetch_add(&cancelled_waits, 1);
    return 0;
}

static int go_and_return(void *arg) {
    int n = (int)(intptr_t)arg;
    for (int i = 0; i < n; i++) CHECK_EQ(weft_go(wait_and_count, NULL), 0);
    if (n < 100) task_wait(&started, n);
    return 3;
}

TEST(run, cancels_and_joins_what_main_left_behind) {
    EACH_WORKERS(w) {
        for (int n = 1; n <= 1000;
             n *= test_slow_tools() > 10 ? 100 : 10) { /* with 100 and more, main does not wait until they have started */
            atomic_store(&started, 0);
            atomic_store(&cancelled_waits, 0);
            CHECK_EQ(run_on(w, go_and_return, as_arg(n)), 3);
            CHECK_EQ(atomic_load(&started), n);
            CHECK_EQ(atomic_load(&cancelled_waits), n);
        }
    }
}

static atomic_int refused;

static int go_when_cancelled(void *arg) {
    (void)arg;
    atomic_fetch_add(&started, 1);
    CHECK_EQ(weft_sleep(WEFT_FOREVER), WEFT_ECANCELED);
    CHECK_EQ(weft_go(return_int, NULL), WEFT_ECANCELED);
    weft_task *t = NULL;
    CHECK_EQ(weft_task_start(&t, return_int, NULL, NULL), WEFT_ECANCELED);
    atomic_fetch_add(&refused, 1);
    return 0;
}

static int leave_a_spawner(void *arg) {
    (void)arg;
    CHECK_EQ(weft_go(go_when_cancelled, NULL), 0);
    task_wait(&started, 1);
    return 0;
}

TEST(run, refuses_new_root_tasks_while_it_stops) {
    EACH_WORKERS(w) {
        atomic_store(&started, 0);
        atomic_store(&refused, 0);
        CHECK_EQ(run_on(w, leave_a_spawner, NULL), 0);
        CHECK_EQ(atomic_load(&refused), 1);
    }
}

/* ---- start and stop ---- */

static int try_to_start(void *arg) {
    (void)arg;
    CHECK_EQ(weft_start(NULL), WEFT_EALREADY);
    CHECK_EQ(weft_run(return_int, NULL, NULL), WEFT_EALREADY);
    CHECK_EQ(weft_stop(WEFT_FOREVER), WEFT_EINVAL);
    return 5;
}

TEST(run, there_is_one_runtime) {
    EACH_WORKERS(w) {
        CHECK_EQ(run_on(w, try_to_start, NULL), 5);
        CHECK_EQ(set_up(w), 0);
        CHECK_EQ(set_up(w), WEFT_EALREADY);
        CHECK_EQ(weft_run(return_int, NULL, NULL), WEFT_EALREADY);
        CHECK_EQ(weft_block_on(try_to_start, NULL), 5);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
        CHECK_EQ(weft_stop(WEFT_FOREVER), WEFT_ETERMINATED);
    }
}

static int hold_slot(void *arg) {
    atomic_int *release = arg;
    atomic_fetch_add(&started, 1);
    test_until(test_is_set, release); /* a C call, as far as the runtime knows */
    return 0;
}

TEST(run, stop_gives_up_at_its_deadline_and_can_be_called_again) {
    EACH_WORKERS(w) {
        atomic_int release = 0;
        atomic_store(&started, 0);
        CHECK_EQ(set_up(w), 0);
        CHECK_EQ(weft_go(hold_slot, &release), 0);
        thread_wait(&started, 1);
        CHECK_EQ(weft_stop(weft_at(1)), WEFT_ETIMEDOUT);
        CHECK_EQ(weft_stop(weft_after(5 * WEFT_MS)), WEFT_ETIMEDOUT);
        CHECK_EQ(weft_go(return_int, NULL), WEFT_ECANCELED);
        CHECK_EQ(set_up(w), WEFT_EALREADY);
        atomic_store(&release, 1);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
        CHECK_EQ(weft_go(return_int, NULL), WEFT_ETERMINATED);
    }
}

TEST(run, stop_cancels_and_joins_root_tasks) {
    EACH_WORKERS(w) {
        atomic_store(&started, 0);
        atomic_store(&cancelled_waits, 0);
        CHECK_EQ(set_up(w), 0);
        for (int i = 0; i < 50; i++) CHECK_EQ(weft_go(wait_and_count, NULL), 0);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
        CHECK_EQ(atomic_load(&started), 50);
        CHECK_EQ(atomic_load(&cancelled_waits), 50);
    }
}

static void *stop_it(void *arg) {
    *(int *)arg = weft_stop(WEFT_FOREVER);
    return NULL;
}

TEST(run, another_thread_may_stop_it) {
    for (int i = 0; i < 20; i++) {
        pthread_t t;
        int rc = 1;
        CHECK_EQ(set_up(2), 0);
        CHECK_EQ(pthread_create(&t, NULL, stop_it, &rc), 0);
        pthread_join(t, NULL);
        CHECK_EQ(rc, 0);
    }
}

/* ---- block_on ---- */

static int self_in_task(void *arg) {
    uint64_t id = weft_self();
    CHECK(id != 0);
    *(uint64_t *)arg = id;
    weft_yield();
    CHECK_EQ(weft_self(), id);
    return 11;
}

static int block_on_inside(void *arg) {
    (void)arg;
    uint64_t id = 0;
    CHECK_EQ(weft_block_on(self_in_task, &id), 11);
    CHECK_EQ(id, weft_self()); /* it is a call */
    return -4;
}

TEST(run, block_on_runs_a_task_for_a_thread_and_a_call_for_a_task) {
    EACH_WORKERS(w) {
        uint64_t id = 0;
        CHECK_EQ(set_up(w), 0);
        CHECK_EQ(weft_block_on(self_in_task, &id), 11);
        CHECK(id != 0);
        CHECK_EQ(weft_self(), 0);
        CHECK_EQ(weft_block_on(block_on_inside, NULL), -4);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
        CHECK_EQ(weft_block_on(self_in_task, &id), WEFT_ETERMINATED);
    }
}

static int sleep_a_little(void *arg) {
    CHECK_EQ(weft_sleep_for(20 * WEFT_US), 0);
    return add_one(arg);
}

static void *block_on_often(void *arg) {
    (void)arg;
    for (int i = 0; i < 200; i++) {
        int x = i;
        CHECK_EQ(weft_block_on(i % 4 ? add_one : sleep_a_little, &x), i + 1);
    }
    return NULL;
}

TEST(run, many_threads_block_on_tasks_at_once) {
    EACH_WORKERS(w) {
        pthread_t t[8];
        CHECK_EQ(set_up(w), 0);
        for (size_t i = 0; i < COUNT(t); i++) CHECK_EQ(pthread_create(&t[i], NULL, block_on_often, NULL), 0);
        for (size_t i = 0; i < COUNT(t); i++) pthread_join(t[i], NULL);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    }
}

/* ---- nothing left over ---- */

static int use_everything(void *arg) {
    (void)arg;
    weft_scope s;
    weft_chan *c = weft_chan_new(sizeof(int), 4);
    CHECK(c);
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 50; i++) CHECK_EQ(weft_spawn(&s, return_int, NULL), 0);
    int v = 1;
    CHECK_EQ(weft_chan_send(c, &v, WEFT_FOREVER), 0);
    CHECK_EQ(weft_chan_recv(c, &v, WEFT_FOREVER), 0);
    CHECK_EQ(weft_chan_recv(c, &v, weft_after(10 * WEFT_US)), WEFT_ETIMEDOUT);
    CHECK_EQ(weft_go(wait_for_ever, NULL), 0);
    weft_chan_unref(c);
    return weft_scope_end(&s);
}

TEST(run, two_hundred_runs_leave_nothing_behind) {
    int fds = 0, threads = 0, maps = 0;
    for (long i = 0, n = test_scale(200, 24); i < n; i++) {
        CHECK_EQ(run_on(worker_counts[i % 3], use_everything, NULL), 0);
        if (i == 20) { /* the C library has its caches of thread stacks and arenas by then */
            fds = test_fds();
            threads = test_threads();
            maps = test_maps();
        }
    }
    CHECK_EQ(test_fds(), fds);
    test_wait_threads(threads);
    if (test_slow_tools() == 1) CHECK_LE(test_maps(), maps + MAPS_KEPT); /* a leak would be 180 and more; tools map at will */
}

TEST(run, starting_and_stopping_leaves_nothing_behind) {
    CHECK_EQ(set_up(4), 0);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    int fds = test_fds(), threads = test_threads(), maps = test_maps();
    for (long i = test_scale(100, 10); i > 0; i--) {
        CHECK_EQ(set_up(4), 0);
        CHECK_EQ(weft_block_on(use_everything, NULL), 0);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    }
    CHECK_EQ(test_fds(), fds);
    test_wait_threads(threads);
    if (test_slow_tools() == 1) CHECK_LE(test_maps(), maps + MAPS_KEPT); /* 100 and more */
}

/* ---- bad configuration ---- */

struct bad {
    weft_config cfg;
    const char *said; /* the value, in the message */
};

static int run_badly(void *arg) {
    struct bad *b = arg;
    CHECK_EQ(weft_run(return_int, NULL, &b->cfg), WEFT_EINVAL);
    CHECK_EQ(weft_start(&b->cfg), WEFT_EINVAL);
    CHECK_EQ(run_on(2, return_int, as_arg(9)), 9); /* no harm done */
    return 0;
}

TEST(run, a_configuration_that_cannot_be_is_refused_with_its_value) {
    struct bad bad[] = {
        {{.workers = -1, .stack_size = 0, .max_threads = 0, .search = 0}, "-1"},
        {{.workers = INT_MIN, .stack_size = 0, .max_threads = 0, .search = 0}, "-2147483648"},
        {{.workers = 1000000, .stack_size = 0, .max_threads = 0, .search = 0}, "1000000"},
        {{.workers = 2, .stack_size = SIZE_MAX, .max_threads = 0, .search = 0}, "18446744073709551615"},
        {{.workers = 2, .stack_size = (size_t)1 << 40, .max_threads = 0, .search = 0}, "1099511627776"},
        {{.workers = 2, .stack_size = 0, .max_threads = -3, .search = 0}, "-3"},
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct test_child c;
        test_child(run_badly, &bad[i], &c);
        CHECK_MSG(c.exit_code == 0, "case %zu: exit %d, signal %d:\n%s", i, c.exit_code, c.signal, c.out);
        CHECK_MSG(strstr(c.out, bad[i].said), "case %zu: the message does not name %s:\n%s", i, bad[i].said, c.out);
    }
}

TEST(run, works_without_searching) {
    weft_config cfg = {.workers = 2, .stack_size = 0, .max_threads = 0, .search = -1};
    for (long i = test_scale(10, 3); i > 0; i--) CHECK_EQ(weft_run(use_everything, NULL, &cfg), 0);
}

/* ---- without a runtime ---- */

static void *call_without_runtime(void *arg) {
    (void)arg;
    weft_task *t = NULL;
    weft_stats st, zero;
    weft_scope s;
    memset(&zero, 0, sizeof zero);
    memset(&st, 1, sizeof st);
    CHECK_EQ(weft_go(return_int, NULL), WEFT_ETERMINATED);
    CHECK_EQ(weft_go_copy(return_int, &st, sizeof st), WEFT_ETERMINATED);
    CHECK_EQ(weft_task_start(&t, return_int, NULL, NULL), WEFT_ETERMINATED);
    CHECK_EQ(weft_block_on(return_int, NULL), WEFT_ETERMINATED);
    CHECK_EQ(weft_stop(WEFT_FOREVER), WEFT_ETERMINATED);
    CHECK_EQ(weft_self(), 0);
    CHECK_EQ(weft_cancelled(), 0);
    CHECK_EQ(weft_cancel_cause(), 0);
    weft_yield();
    weft_stats_get(&st);
    CHECK(memcmp(&st, &zero, sizeof st) == 0);
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, return_int, NULL), WEFT_ETERMINATED);
    CHECK_EQ(weft_scope_end(&s), WEFT_ETERMINATED); /* a refused child is a failed child */
    return NULL;
}

TEST(run, calls_that_need_a_runtime_say_that_there_is_none) {
    pthread_t t;
    call_without_runtime(NULL);
    CHECK_EQ(pthread_create(&t, NULL, call_without_runtime, NULL), 0);
    pthread_join(t, NULL);
    CHECK_EQ(run_on(2, return_int, as_arg(1)), 1);
    call_without_runtime(NULL); /* and after one */
}

TEST(run, threads_wait_and_use_channels_without_a_runtime) {
    weft_chan *c = weft_chan_new(sizeof(int), 1);
    int v = 8, got = 0;
    CHECK(c);
    CHECK_EQ(weft_chan_send(c, &v, WEFT_FOREVER), 0);
    int64_t before = weft_now();
    CHECK_EQ(weft_chan_send(c, &v, weft_after(2 * WEFT_MS)), WEFT_ETIMEDOUT);
    CHECK_GE(weft_now() - before, 2 * WEFT_MS);
    CHECK_EQ(weft_chan_send(c, &v, WEFT_POLL), WEFT_EAGAIN);
    CHECK_EQ(weft_chan_recv(c, &got, WEFT_FOREVER), 0);
    CHECK_EQ(got, 8);
    CHECK_EQ(weft_select(weft_after(WEFT_MS), weft_on_recv(c, &got, NULL)), WEFT_ETIMEDOUT);
    before = weft_now();
    CHECK_EQ(weft_sleep_for(2 * WEFT_MS), 0);
    CHECK_GE(weft_now() - before, 2 * WEFT_MS);
    weft_chan_unref(c);
}

TEST(run, errors_have_a_sentence_each) {
    for (int e = WEFT_EINVAL; e <= WEFT_ECANCELED; e++) {
        CHECK(weft_strerror(e) && strlen(weft_strerror(e)) > 3);
        for (int f = WEFT_EINVAL; f < e; f++)
            CHECK_MSG(strcmp(weft_strerror(e), weft_strerror(f)) != 0, "%d and %d have the same text", e, f);
    }
    CHECK_STR(weft_strerror(-ENOENT), "No such file or directory");
    CHECK(weft_strerror(0) && weft_strerror(-99999) && weft_strerror(INT_MIN) && weft_strerror(12345));
    char v[32];
    snprintf(v, sizeof v, "%d.%d.%d", WEFT_VERSION_MAJOR, WEFT_VERSION_MINOR, WEFT_VERSION_PATCH);
    CHECK_STR(weft_version(), v);
}
