/* SPDX-License-Identifier: MIT */
/* Priorities, the slice, and pinned tasks. */
#include <limits.h>
#include <sched.h>

#include "api/common.h"
#include "api/fake.h"
#include "sched/handoff.h"
#include "sched/lane.h"

enum { WORKERS_MOST = 8 };

static const weft_config one = {.workers = 1}; /* with the usual slice */

static struct {
    atomic_int stop, high_runs, low_runs, normal_runs, order, waiting, sleeping;
    int high_at, normal_at, low_at;
} st;

static void reset(void) { memset(&st, 0, sizeof st); }

static int spawn_at(weft_scope *s, weft_fn *fn, void *arg, int priority) {
    weft_task_opts o = {.name = priority > 0 ? "high" : priority < 0 ? "low" : "normal", .priority = priority};
    return weft_spawn_opts(s, fn, arg, &o);
}

/* ---- order ---- */

static int take_a_number(void *arg) {
    *(int *)arg = atomic_fetch_add(&st.order, 1) + 1;
    return 0;
}

static int order_of_fresh(void *arg) {
    (void)arg;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(spawn_at(&s, take_a_number, &st.low_at, WEFT_PRIORITY_LOW), 0);
    CHECK_EQ(spawn_at(&s, take_a_number, &st.normal_at, WEFT_PRIORITY_NORMAL), 0);
    CHECK_EQ(spawn_at(&s, take_a_number, &st.high_at, WEFT_PRIORITY_HIGH), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    return 0;
}

/* On a clock that stands still the low one never waits for so long that it is its turn. */
static void check_order(weft_fn *fn) {
    reset();
    run_fake_alone(fn);
    CHECK_EQ(st.high_at, 1);
    CHECK_EQ(st.normal_at, 2);
    CHECK_EQ(st.low_at, 3);
}

TEST(priority, of_fresh_tasks_high_runs_first_and_low_last) { check_order(order_of_fresh); }

struct waiter {
    weft_chan *go;
    int *number;
};

static int wait_and_take_a_number(void *arg) {
    struct waiter *w = arg;
    int v;
    atomic_fetch_add(&st.waiting, 1);
    CHECK_EQ(weft_chan_recv(w->go, &v, WEFT_FOREVER), 0);
    return take_a_number(w->number);
}

/* Each waits on a channel of its own; they are woken one after the other, the low one first, before any of them runs. */
static int order_of_woken(void *arg) {
    (void)arg;
    weft_scope s;
    int v = 1;
    struct waiter w[] = {{NULL, &st.low_at}, {NULL, &st.normal_at}, {NULL, &st.high_at}};
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 3; i++) {
        CHECK((w[i].go = weft_chan_new(sizeof v, 1)) != NULL);
        CHECK_EQ(spawn_at(&s, wait_and_take_a_number, &w[i], WEFT_PRIORITY_LOW + i), 0);
    }
    while (atomic_load(&st.waiting) < 3) { /* the low one starts when it is its turn */
        weft__clock_advance(WEFT_LOW_EVERY);
        weft_yield();
    }
    for (int i = 0; i < 3; i++) CHECK_EQ(weft_chan_send(w[i].go, &v, WEFT_FOREVER), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    for (int i = 0; i < 3; i++) weft_chan_unref(w[i].go);
    return 0;
}

TEST(priority, of_woken_tasks_high_runs_first_and_low_last) { check_order(order_of_woken); }

static int opts_refused(void *arg) {
    (void)arg;
    static const weft_task_opts bad[] = {{.priority = 2}, {.priority = -2}, {.priority = INT_MAX}, {.flags = 0x8000}};
    for (size_t i = 0; i < COUNT(bad); i++) {
        weft_task *t = NULL;
        weft_scope s;
        CHECK_EQ(weft_task_start(&t, return_int, NULL, &bad[i]), WEFT_EINVAL);
        weft_scope_begin(&s, NULL);
        CHECK_EQ(weft_spawn_opts(&s, return_int, NULL, &bad[i]), WEFT_EINVAL);
        CHECK_EQ(weft_scope_end(&s), WEFT_EINVAL);
    }
    return 0;
}

TEST(priority, a_priority_or_a_flag_that_does_not_exist_is_refused) { run_each(opts_refused); }

/* ---- shares ---- */

enum { UNIT = 20000 }; /* a unit of work: some tens of microseconds */

static void work(void) {
    for (int i = 0; i < UNIT; i++) __asm__ volatile("");
}

static int work_and_yield(void *arg) {
    atomic_int *runs = arg;
    while (!atomic_load(&st.stop)) {
        work();
        atomic_fetch_add(runs, 1);
        weft_yield();
    }
    return 0;
}

static int flood_of_high(void *arg) {
    enum { MOST = 4000 }; /* long enough for the others to be paid many times */
    (void)arg;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 4; i++) CHECK_EQ(spawn_at(&s, work_and_yield, &st.high_runs, WEFT_PRIORITY_HIGH), 0);
    for (int i = 0; i < 4; i++) CHECK_EQ(spawn_at(&s, work_and_yield, &st.normal_runs, WEFT_PRIORITY_NORMAL), 0);
    while (atomic_load(&st.high_runs) < MOST) CHECK_EQ(weft_sleep_for(WEFT_MS), 0);
    atomic_store(&st.stop, 1);
    CHECK_EQ(weft_scope_end(&s), 0);
    return 0;
}

TEST_T(priority, normal_tasks_keep_a_fifth_of_the_time_beside_a_flood_of_high_ones, 120) {
    reset();
    CHECK_EQ(weft_run(flood_of_high, NULL, &alone), 0);
    int high = atomic_load(&st.high_runs), normal = atomic_load(&st.normal_runs);
    printf("high %d, normal %d units\n", high, normal);
    CHECK_GE(normal * 5, high + normal);
}

static int run_once(void *arg) {
    atomic_fetch_add((atomic_int *)arg, 1);
    return 0;
}

/* As when a slot is taken from a worker while the others are being paid: the debt stays, and nobody's time is being counted. */
static int slot_changes_hands(void *arg) {
    (void)arg;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 2; i++) CHECK_EQ(spawn_at(&s, work_and_yield, &st.normal_runs, WEFT_PRIORITY_NORMAL), 0);
    weft__slot *slot = weft__enter();
    slot->lane_debt = WEFT_MS;
    slot->lane_pays = true;
    slot->lane_since = 0;
    weft__leave();
    CHECK_EQ(spawn_at(&s, run_once, &st.high_runs, WEFT_PRIORITY_HIGH), 0);
    task_wait(&st.high_runs, 1);
    CHECK_GT(atomic_load(&st.normal_runs), 0); /* they were paid first */
    atomic_store(&st.stop, 1);
    return weft_scope_end(&s);
}

TEST(priority, a_slot_that_changes_hands_goes_on_paying_and_then_runs_high_ones) {
    reset();
    CHECK_EQ(weft_run(slot_changes_hands, NULL, &alone), 0);
}

static int low_beside_normal(void *arg) {
    (void)arg;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 4; i++) CHECK_EQ(spawn_at(&s, work_and_yield, &st.normal_runs, WEFT_PRIORITY_NORMAL), 0);
    CHECK_EQ(spawn_at(&s, work_and_yield, &st.low_runs, WEFT_PRIORITY_LOW), 0);
    while (atomic_load(&st.low_runs) < 5) { /* as long as five turns of the others take */
        weft__clock_advance(WEFT_LOW_EVERY / 5);
        weft_yield();
    }
    atomic_store(&st.stop, 1);
    CHECK_EQ(weft_scope_end(&s), 0);
    return 0;
}

TEST_T(priority, a_low_task_gets_its_turn_beside_a_flood_of_normal_ones, 60) {
    reset();
    run_fake_alone(low_beside_normal);
    printf("normal %d units\n", atomic_load(&st.normal_runs));
    CHECK_GE(atomic_load(&st.normal_runs), 10 * 5); /* it is low all the same */
}

/* ---- how soon ---- */

static int yield_and_count(void *arg) {
    (void)arg;
    while (!atomic_load(&st.stop)) {
        atomic_fetch_add(&st.normal_runs, 1);
        weft_yield();
    }
    return 0;
}

/* What is sent is the number of rounds that the others have had by then. */
static int count_rounds_until_it_runs(void *arg) {
    int then;
    while (weft_chan_recv(arg, &then, WEFT_FOREVER) == 0) CHECK_LE(atomic_load(&st.normal_runs) - then, 1);
    return 0;
}

static int wake_high_among_many(void *arg) {
    (void)arg;
    weft_chan *c = weft_chan_new(sizeof(int), 1);
    weft_scope s;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(spawn_at(&s, count_rounds_until_it_runs, c, WEFT_PRIORITY_HIGH), 0);
    for (int i = 0; i < 100; i++) CHECK_EQ(weft_spawn(&s, yield_and_count, NULL), 0);
    while (atomic_load(&st.normal_runs) < 100) weft_yield();
    for (int i = 0; i < 200; i++) {
        int now = atomic_load(&st.normal_runs);
        CHECK_EQ(weft_chan_send(c, &now, WEFT_FOREVER), 0);
        weft_yield();
    }
    atomic_store(&st.stop, 1);
    weft_chan_close(c);
    CHECK_EQ(weft_scope_end(&s), 0);
    weft_chan_unref(c);
    return 0;
}

TEST(priority, a_high_task_that_a_task_wakes_runs_before_a_hundred_that_are_ready) {
    reset();
    CHECK_EQ(weft_run(wake_high_among_many, NULL, &alone), 0);
    CHECK_GE(atomic_load(&st.normal_runs), 200); /* they had their rounds in between */
}

/* ---- the slice ---- */

enum { SLEEPERS = 8 };
static int ran_at[SLEEPERS]; /* rounds that the others have had */

static int sleep_and_note(void *arg) {
    atomic_fetch_add(&st.sleeping, 1);
    CHECK_EQ(weft_sleep(weft_at(START + WEFT_SECOND)), 0);
    ran_at[(intptr_t)arg] = atomic_load(&st.normal_runs);
    atomic_fetch_sub(&st.sleeping, 1);
    return 0;
}

static int timers_among_many(void *arg) {
    (void)arg;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < SLEEPERS; i++) CHECK_EQ(weft_spawn(&s, sleep_and_note, as_arg(i)), 0);
    task_wait(&st.sleeping, SLEEPERS);
    for (int i = 0; i < 100; i++) CHECK_EQ(weft_spawn(&s, yield_and_count, NULL), 0);
    while (atomic_load(&st.normal_runs) < 200) weft_yield();
    weft__clock_advance(WEFT_SECOND);
    int then = atomic_load(&st.normal_runs);
    while (atomic_load(&st.sleeping)) weft_yield();
    atomic_store(&st.stop, 1);
    for (int i = 0; i < SLEEPERS; i++) CHECK_LE(ran_at[i] - then, 2 * WEFT_GLOBAL_EVERY);
    for (int i = 0; i < SLEEPERS; i++) CHECK_LE(ran_at[i] - ran_at[SLEEPERS - 1], SLEEPERS); /* one after the other */
    return weft_scope_end(&s);
}

TEST(priority, those_that_timers_wake_run_before_a_hundred_that_are_ready) {
    reset();
    run_fake_on(1, timers_among_many);
}

static int say_it_ran(void *arg) {
    atomic_store((atomic_int *)arg, 1);
    return 0;
}

/* Every call finds its channel ready; by its budget alone it would yield after a thousand of them, which take seconds, whatever else the machine does. */
static int go_on_and_on(void *arg) {
    (void)arg;
    weft_chan *c = weft_chan_new(sizeof(int), 1000);
    weft_scope s;
    atomic_int ran = 0;
    int v = 1, calls = 0;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, say_it_ran, &ran), 0);
    for (; !atomic_load(&ran) && calls < 900; calls++) {
        for (int i = 0; i < (test_slow_tools() > 10 ? 40 : 400); i++) work();
        CHECK_EQ(weft_chan_send(c, &v, WEFT_FOREVER), 0);
    }
    printf("stepped back after %d calls\n", calls);
    CHECK(atomic_load(&ran));
    CHECK_EQ(weft_scope_end(&s), 0);
    weft_chan_unref(c);
    return 0;
}

TEST_T(priority, a_task_past_its_slice_steps_back_at_its_next_call, 120) { CHECK_EQ(weft_run(go_on_and_on, NULL, &one), 0); }

TEST(priority, a_slice_that_cannot_be_is_refused) {
    CHECK_EQ(weft_run(return_int, NULL, &(weft_config){.slice = -1}), WEFT_EINVAL);
}

/* ---- pinned ---- */

static int thread_stays(void *arg) {
    long rounds = (long)(intptr_t)arg;
    pthread_t at = pthread_self();
    for (long i = 0; i < rounds; i++) {
        if (i % 3 == 0)
            weft_yield();
        else
            CHECK_EQ(weft_sleep_for(i % 5 * 10 * WEFT_US), 0);
        CHECK(pthread_equal(at, pthread_self()));
    }
    atomic_fetch_add(&st.order, 1);
    return 0;
}

static int pin_and_stay(void *arg) {
    weft_pin();
    weft_pin();
    thread_stays(arg);
    weft_unpin();
    thread_stays(arg);
    weft_unpin();
    return 0;
}

static int many_pinned(void *arg) {
    (void)arg;
    weft_scope s;
    weft_task_opts pinned = {.name = "pinned", .flags = WEFT_PINNED};
    weft_task_opts both = {.priority = WEFT_PRIORITY_HIGH, .flags = WEFT_PINNED};
    void *rounds = as_arg(test_scale(200, 20));
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 20; i++) {
        CHECK_EQ(weft_spawn(&s, pin_and_stay, rounds), 0);
        CHECK_EQ(weft_spawn_opts(&s, thread_stays, rounds, &pinned), 0);
        CHECK_EQ(weft_spawn_opts(&s, thread_stays, rounds, &both), 0);
    }
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(atomic_load(&st.order), 80);
    return 0;
}

TEST_T(pin, a_pinned_task_stays_on_its_thread, 120) {
    for (int w = 1; w <= WORKERS_MOST; w *= 2) {
        reset();
        CHECK_EQ(run_on(w, many_pinned, NULL), 0);
    }
}

static int pinned_opener(void *arg) {
    weft_pin();
    pthread_t at = pthread_self();
    for (int i = 0; i < 50; i++) {
        weft_scope s;
        weft_scope_begin(&s, NULL);
        for (int k = 0; k < 4; k++) CHECK_EQ(weft_spawn(&s, thread_stays, as_arg(0)), 0);
        weft_yield();
        CHECK_EQ(weft_scope_end(&s), 0);
        CHECK(pthread_equal(at, pthread_self()));
    }
    weft_unpin();
    (void)arg;
    return 0;
}

TEST(pin, whoever_ends_last_does_not_carry_a_pinned_opener_away) { run_each(pinned_opener); }

/* All slots are busy, and the pinned task's thread has none: somebody gives it one. */
static int busy_until_stopped(void *arg) {
    (void)arg;
    while (!atomic_load(&st.stop)) {
        work();
        weft_yield();
    }
    return 0;
}

static int pinned_among_the_busy(void *arg) {
    (void)arg;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 8; i++) CHECK_EQ(weft_spawn(&s, busy_until_stopped, NULL), 0);
    weft_pin();
    pthread_t at = pthread_self();
    for (int i = 0; i < 20; i++) {
        CHECK_EQ(weft_sleep_for(200 * WEFT_US), 0);
        CHECK(pthread_equal(at, pthread_self()));
    }
    weft_unpin();
    atomic_store(&st.stop, 1);
    CHECK_EQ(weft_scope_end(&s), 0);
    return 0;
}

TEST_T(pin, a_pinned_task_gets_a_slot_among_busy_ones, 60) {
    EACH_WORKERS(w) {
        reset();
        CHECK_EQ(run_on(w, pinned_among_the_busy, NULL), 0);
    }
}

static int cancel_pinned(void *arg) {
    (void)arg;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    weft_task_opts o = {.flags = WEFT_PINNED};
    for (int i = 0; i < 10; i++) CHECK_EQ(weft_spawn_opts(&s, wait_for_ever, NULL, &o), 0);
    weft_yield();
    weft_scope_cancel(&s);
    CHECK_EQ(weft_scope_end(&s), 0);
    return 0;
}

TEST(pin, cancellation_finds_pinned_tasks) { run_each(cancel_pinned); }

TEST(pin, on_a_plain_thread_it_does_nothing) {
    weft_pin();
    weft_unpin();
    CHECK_EQ(weft_self(), 0);
}

static int unpin_only(void *arg) {
    (void)arg;
    weft_unpin();
    return 0;
}
static int pin_only(void *arg) {
    (void)arg;
    weft_pin();
    return 0;
}
static int unpin_what_was_started_pinned(void *arg) {
    weft_scope s;
    weft_task_opts o = {.flags = WEFT_PINNED};
    (void)arg;
    weft_scope_begin(&s, NULL);
    weft_spawn_opts(&s, unpin_only, NULL, &o);
    return weft_scope_end(&s);
}
static int run_unpin_only(void *arg) { return run_on(1, unpin_only, arg); }
static int run_pin_only(void *arg) { return run_on(1, pin_only, arg); }
static int run_unpin_started(void *arg) { return run_on(1, unpin_what_was_started_pinned, arg); }

TEST(pin, more_unpins_than_pins_die_with_a_sentence) {
    CHECK_DIES(run_unpin_only, "weft_unpin: task 2 is not pinned");
    CHECK_DIES(run_unpin_started, "is not pinned but by WEFT_PINNED");
}

TEST(pin, a_task_that_ends_pinned_dies_with_a_sentence) { CHECK_DIES(run_pin_only, "ended pinned: weft_unpin is missing"); }

static int pin_and_panic(void *arg) {
    (void)arg;
    weft_pin();
    weft_panic("pinned");
}

/* Contained by weft_try, at the end of a child inside, and at a task's own end: each time the pins go with their frames. */
static int panic_takes_pins_along(void *arg) {
    (void)arg;
    weft_scope s;
    weft_pin();
    CHECK_EQ(weft_try(pin_and_panic, NULL, NULL), WEFT_EPANIC);
    weft_unpin();
    weft_scope_opts keep = {.on_error = WEFT_KEEP_GOING};
    weft_scope_begin(&s, &keep);
    CHECK_EQ(weft_spawn(&s, pin_and_panic, NULL), 0);
    CHECK_EQ(weft_scope_end(&s), WEFT_EPANIC);
    weft_scope_begin(&s, &keep);
    CHECK_EQ(weft_spawn(&s, pin_and_panic, NULL), 0);
    weft_yield(); /* on a stack of its own */
    CHECK_EQ(weft_scope_end(&s), WEFT_EPANIC);
    return 0; /* it dies here if a pin is left */
}

TEST(pin, a_panic_takes_its_pins_along) { run_each(panic_takes_pins_along); }

/* ---- workers on CPUs ---- */

static int bound_to_one(void *arg) {
    cpu_set_t set;
    (void)arg;
    for (int i = 0; i < 20; i++) {
        CHECK_EQ(sched_getaffinity(0, sizeof set, &set), 0);
        CHECK_EQ(CPU_COUNT(&set), 1);
        CHECK(CPU_ISSET((size_t)sched_getcpu(), &set));
        CHECK_EQ(weft_sleep_for(100 * WEFT_US), 0);
    }
    return 0;
}

static int all_bound(void *arg) {
    (void)arg;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 20; i++) CHECK_EQ(weft_spawn(&s, bound_to_one, NULL), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    return 0;
}

TEST(pin, workers_run_on_the_cpu_of_their_slot_on_request) {
    cpu_set_t before, after;
    CHECK_EQ(sched_getaffinity(0, sizeof before, &before), 0);
    EACH_WORKERS(w) {
        weft_config cfg = {.workers = w, .flags = WEFT_PIN_WORKERS};
        CHECK_EQ(weft_run(all_bound, NULL, &cfg), 0);
    }
    CHECK_EQ(sched_getaffinity(0, sizeof after, &after), 0);
    CHECK(CPU_EQUAL(&before, &after)); /* the caller's thread is left alone */
}

/* ---- threads that are started from where somebody is bound to a CPU ---- */

static __attribute__((noinline)) int cpus_here(void) {
    cpu_set_t set;
    CHECK_EQ(sched_getaffinity(0, sizeof set, &set), 0);
    return CPU_COUNT(&set);
}

static atomic_int cpus_least, cpus_seen;

static int note_cpus(void *arg) {
    int n = cpus_here(), least = atomic_load(&cpus_least);
    (void)arg;
    usleep(500); /* the others need threads meanwhile */
    while (n < least && !atomic_compare_exchange_weak(&cpus_least, &least, n)) continue;
    atomic_fetch_add(&cpus_seen, 1);
    return 0;
}

static int spawn_many(void *arg) {
    weft_scope s;
    (void)arg;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 20; i++) {
        CHECK_EQ(weft_spawn(&s, note_cpus, NULL), 0);
        weft_block_enter();
        usleep(200);
        weft_block_exit();
    }
    return weft_scope_end(&s);
}

static void *make_tasks(void *arg) {
    cpu_set_t one;
    (void)arg;
    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    CHECK_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    for (int i = 0; i < 40; i++) {
        CHECK_EQ(weft_go(note_cpus, NULL), 0);
        usleep(i % 4 * 100);
    }
    return NULL;
}

static int bound_on_a_cpu(void *arg) {
    weft_scope s;
    (void)arg;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn_opts(&s, spawn_many, NULL, &(weft_task_opts){.flags = WEFT_BOUND, .cpu = sched_getcpu() + 1}), 0);
    return weft_scope_end(&s);
}

TEST(pin, workers_do_not_inherit_the_cpu_of_who_starts_them) {
    int all = cpus_here();
    pthread_t t;
    EACH_WORKERS(w) {
        atomic_store(&cpus_least, all);
        CHECK_EQ(weft_run(bound_on_a_cpu, NULL, &(weft_config){.workers = w}), 0); /* a bound task */
        CHECK_EQ(atomic_load(&cpus_least), all);
        atomic_store(&cpus_seen, 0);
        CHECK_EQ(set_up(w), 0);
        CHECK_EQ(pthread_create(&t, NULL, make_tasks, NULL), 0); /* somebody else's thread */
        CHECK_EQ(pthread_join(t, NULL), 0);
        thread_wait(&cpus_seen, 40);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
        CHECK_EQ(atomic_load(&cpus_least), all);
    }
}

static int bind_and_see(void *arg) {
    CHECK_EQ(weft_bind(WEFT_FOREVER), 0);
    CHECK_EQ(cpus_here(), (int)(intptr_t)arg);
    return 0;
}

static int cpus_of_thread(void *arg) {
    (void)arg;
    return cpus_here();
}

static int start_from_placed(void *arg) {
    int all = (int)(intptr_t)arg, result;
    weft_scope s;
    weft_thread *t;
    CHECK_EQ(cpus_here(), 1);
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, bind_and_see, arg), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(weft_block(cpus_of_thread, NULL, WEFT_FOREVER), all);
    CHECK_EQ(weft_thread_start(&t, cpus_of_thread, NULL, NULL), 0);
    CHECK_EQ(weft_thread_join(t, &result, WEFT_FOREVER), 0);
    CHECK_EQ(result, all);
    cpu_set_t set; /* every CPU can be asked for, not only the one that this happens to run on */
    CHECK_EQ(sched_getaffinity(getpid(), sizeof set, &set), 0);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET((size_t)cpu, &set)) continue;
        CHECK_EQ(weft_thread_start(&t, cpus_of_thread, NULL, &(weft_thread_opts){.cpu = cpu + 1}), 0);
        CHECK_EQ(weft_thread_join(t, &result, WEFT_FOREVER), 0);
        CHECK_EQ(result, 1);
    }
    return 0;
}

static void *serve_for_a_time(void *out) {
    int all = cpus_here();
    CHECK_EQ(weft_thread_attach(out), 0);
    CHECK_EQ(cpus_here(), all);
    return NULL;
}

static bool is_serving(void *served) { return __atomic_load_n((weft_worker **)served, __ATOMIC_ACQUIRE) != NULL; }

TEST(pin, the_cpu_of_a_slot_is_for_its_worker_alone) {
    EACH_WORKERS(w) {
        weft_config cfg = {.workers = w, .flags = WEFT_PIN_WORKERS};
        CHECK_EQ(weft_run(start_from_placed, (void *)(intptr_t)cpus_here(), &cfg), 0);
        weft_worker *served = NULL;
        pthread_t t;
        CHECK_EQ(weft_start(&cfg), 0);
        CHECK_EQ(pthread_create(&t, NULL, serve_for_a_time, &served), 0);
        test_until(is_serving, &served);
        atomic_store(&cpus_seen, 0);
        for (int i = 0; i < 40; i++) CHECK_EQ(weft_go(note_cpus, NULL), 0);
        thread_wait(&cpus_seen, 40);
        weft_worker_release(served);
        CHECK_EQ(pthread_join(t, NULL), 0);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    }
}

/* ---- low tasks beside sleepers ---- */

enum { NAPPERS = 3000, LOW_ROUNDS = 30 };

static int nap_until_told(void *arg) {
    uint64_t rnd = test_seed() + (uint64_t)(intptr_t)arg;
    while (!atomic_load(&st.stop)) CHECK_EQ(weft_sleep_for(WEFT_MS + (int64_t)test_below(&rnd, 2000) * WEFT_US), 0);
    return 0;
}

static int later_first(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}
static int note_when(void *arg) {
    *(int64_t *)arg = weft_now();
    return 0;
}

/* The next timer is always near, and in between there is nothing else to do. */
static int64_t low_beside_sleepers(void) {
    weft_scope s, low;
    int64_t took[LOW_ROUNDS];
    reset();
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < NAPPERS; i++) CHECK_EQ(weft_spawn(&s, nap_until_told, as_arg(i)), 0);
    CHECK_EQ(weft_sleep_for(50 * WEFT_MS), 0);
    for (int i = 0; i < LOW_ROUNDS; i++) {
        CHECK_EQ(weft_sleep_for(3 * WEFT_MS), 0);
        int64_t from = weft_now();
        weft_scope_begin(&low, NULL);
        CHECK_EQ(spawn_at(&low, note_when, &took[i], WEFT_PRIORITY_LOW), 0);
        CHECK_EQ(weft_scope_end(&low), 0);
        took[i] -= from;
    }
    atomic_store(&st.stop, 1);
    CHECK_EQ(weft_scope_end(&s), 0);
    qsort(took, LOW_ROUNDS, sizeof *took, later_first);
    printf("half of them within %lld us\n", (long long)took[LOW_ROUNDS / 2] / 1000);
    return took[LOW_ROUNDS / 2];
}
static int low_soon_beside_sleepers(void *arg) {
    int64_t half = INT64_MAX;
    (void)arg;
    for (int i = 0; i < TEST_ATTEMPTS && half > 10 * WEFT_MS; i++) half = low_beside_sleepers();
    CHECK_LE(half, 10 * WEFT_MS); /* a tenth of the longest that a low one may wait */
    return 0;
}
TEST_SOLO(priority, low_runs_while_timers_come_one_after_the_other) {
    test_skip_under("there is no time left for low ones", "nor is there on an emulated CPU");
    CHECK_EQ(weft_run(low_soon_beside_sleepers, NULL, &(weft_config){.workers = 2}), 0);
}
