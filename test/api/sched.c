/* SPDX-License-Identifier: MIT */
/* Who runs when: nobody starves, nothing that is ready waits for a task that computes, and warm spawns cost no call. Where the order
 * is given (one worker), patience is counted in turns, not in time. */
#include <limits.h>
#include <sched.h>

#include "api/common.h"
#include "os/os.h"
#include "sched/handoff.h"
#include "sched/idle.h"
#include "time/clock.h"

#define PATIENCE 1000000 /* turns of others; what is expected is far below */

static struct {
    atomic_int started, made, ran, stop;
    atomic_long turns;
    atomic_long advance_at; /* the turn at which a player moves the clock by an hour; 0: none */
} st;

static void reset(void) { memset(&st, 0, sizeof st); }

static int say_ran(void *arg) {
    (void)arg;
    atomic_fetch_add(&st.ran, 1);
    return 0;
}

static int nothing(void *arg) {
    (void)arg;
    return 0;
}

/* Yields until somebody has run who was made ready in the meantime. */
static int yield_until_ran(void *arg) {
    atomic_fetch_add(&st.started, 1);
    for (long turns = 0; !atomic_load(&st.ran); weft_yield())
        if (atomic_load(&st.made)) CHECK_MSG(++turns < (intptr_t)arg, "it has not run after %ld turns of the others", turns);
    return 0;
}

/* ---- the global queues ---- */

static weft_chan *chan;

static int receive_and_say(void *arg) {
    (void)arg;
    atomic_fetch_add(&st.started, 1);
    CHECK_EQ(weft_chan_recv(chan, NULL, WEFT_FOREVER), 0);
    atomic_store(&st.ran, 1);
    return 0;
}

/* A plain thread makes a task ready, new or parked, while two others keep the only slot busy for ever. Nobody takes the slot from it when it runs: the
 * others would have very many turns before the kernel lets it go on. */
static void make_ready_from_outside(bool parked) {
    reset();
    CHECK_EQ(weft_start(&alone), 0);
    chan = weft_chan_new(0, 0);
    if (parked) CHECK_EQ(weft_go(receive_and_say, NULL), 0);
    for (int i = 0; i < 2; i++) CHECK_EQ(weft_go(yield_until_ran, as_arg(100000)), 0);
    thread_wait(&st.started, 2 + parked);
    if (parked)
        CHECK_EQ(weft_chan_send(chan, NULL, WEFT_FOREVER), 0);
    else
        CHECK_EQ(weft_go(say_ran, NULL), 0);
    atomic_store(&st.made, 1);
    thread_wait(&st.ran, 1);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    weft_chan_unref(chan);
}

TEST(sched, a_task_spawned_from_outside_runs_among_tasks_that_yield_for_ever) { make_ready_from_outside(false); }

TEST(sched, a_task_woken_from_outside_runs_among_tasks_that_yield_for_ever) { make_ready_from_outside(true); }

/* ---- fairness on one slot ---- */

/* The oldest waits while its spawner makes newer ones, `arg` for each turn; the newest run first. */
static int spawn_newer_ones(void *arg) {
    reset();
    CHECK_EQ(weft_go(say_ran, NULL), 0);
    long turns = 0;
    for (; !atomic_load(&st.ran); turns++) {
        CHECK_LT(turns, PATIENCE);
        for (intptr_t i = 0; i < (intptr_t)arg; i++) CHECK_EQ(weft_go(nothing, NULL), 0);
        weft_yield();
    }
    printf("after %ld turns\n", turns);
    return 0;
}

TEST(sched, an_old_fresh_task_is_not_starved_by_newer_ones) { CHECK_EQ(run_on(1, spawn_newer_ones, as_arg(1)), 0); }

/* Faster than they can run: the oldest overflow to the global queue. */
TEST(sched, an_old_fresh_task_is_not_starved_by_a_storm_of_newer_ones) { CHECK_EQ(run_on(1, spawn_newer_ones, as_arg(3)), 0); }

enum { CROWD = 1000 };
static atomic_long turns_of[CROWD];

static int count_turns(void *arg) {
    atomic_long *mine = &turns_of[(intptr_t)arg];
    atomic_fetch_add(&st.started, 1);
    for (; !atomic_load(&st.stop); weft_yield()) {
        long turn = atomic_fetch_add(&st.turns, 1);
        if (atomic_load(&st.started) < CROWD) CHECK_LT(turn, PATIENCE);
        ++*mine;
    }
    return 0;
}

/* The turns each has had since they were last counted: the least and the most. */
static void count_crowd(long *least, long *most) {
    *least = LONG_MAX, *most = 0;
    for (int i = 0; i < CROWD; i++) {
        if (turns_of[i] < *least) *least = turns_of[i];
        if (turns_of[i] > *most) *most = turns_of[i];
        turns_of[i] = 0;
    }
}

static int run_crowd(void *arg) {
    (void)arg;
    long each = test_scale(1000, 100), least, most;
    reset();
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (long i = 0; i < CROWD; i++) CHECK_EQ(weft_spawn(&s, count_turns, as_arg(i)), 0);
    task_wait(&st.started, CROWD);
    count_crowd(&least, &most);
    atomic_store(&st.turns, 0);
    while (atomic_load(&st.turns) < each * CROWD) weft_yield();
    count_crowd(&least, &most);
    atomic_store(&st.stop, 1);
    CHECK_EQ(weft_scope_end(&s), 0);
    printf("%ld to %ld turns of %ld each\n", least, most, each);
    CHECK_GE(least, each / 2);
    CHECK_LE(most, each * 2);
    return 0;
}

TEST(sched, a_thousand_tasks_that_yield_share_a_slot_fairly) { CHECK_EQ(run_on(1, run_crowd, NULL), 0); }

/* ---- `next` ---- */

static weft_chan *ping, *pong;

/* Two tasks that make each other ready for ever: each is in `next` when the other parks. */
static int play(void *arg) {
    bool first = arg != NULL;
    atomic_fetch_add(&st.started, 1);
    while (!atomic_load(&st.stop)) {
        long turn = atomic_fetch_add(&st.turns, 1);
        CHECK_LT(turn, PATIENCE);
        if (st.advance_at && turn == st.advance_at) weft__clock_advance(HOUR);
        if (first && weft_chan_send(ping, NULL, WEFT_FOREVER)) break;
        if (weft_chan_recv(first ? pong : ping, NULL, WEFT_FOREVER)) break;
        if (!first && weft_chan_send(pong, NULL, WEFT_FOREVER)) break;
    }
    weft_chan_close(ping);
    weft_chan_close(pong);
    return 0;
}

static void open_game(weft_scope *s) {
    reset();
    ping = weft_chan_new(0, 0);
    pong = weft_chan_new(0, 0);
    weft_scope_begin(s, NULL);
    for (int i = 0; i < 2; i++) CHECK_EQ(weft_spawn(s, play, as_arg(i)), 0);
}
static int close_game(weft_scope *s) {
    atomic_store(&st.stop, 1);
    int r = weft_scope_end(s);
    weft_chan_unref(ping);
    weft_chan_unref(pong);
    return r;
}

static int yield_beside_game(void *arg) {
    (void)arg;
    weft_scope s;
    open_game(&s);
    for (int i = 0; i < 100; i++) weft_yield(); /* each is a turn that the players must give us */
    CHECK_EQ(atomic_load(&st.started), 2);
    CHECK_GT(atomic_load(&st.turns), 0);
    printf("%ld turns of the players for 100\n", atomic_load(&st.turns));
    return close_game(&s);
}

TEST(sched, two_tasks_that_wake_each_other_for_ever_do_not_starve_a_third) { CHECK_EQ(run_on(1, yield_beside_game, NULL), 0); }

/* Nobody but the players is ready when the moment comes. */
static int sleep_beside_game(void *arg) {
    (void)arg;
    weft_scope s;
    open_game(&s);
    st.advance_at = 1000;
    CHECK_EQ(weft_sleep_for(HOUR), 0);
    CHECK_GT(atomic_load(&st.turns), 1000);
    printf("woken %ld turns after the moment\n", atomic_load(&st.turns) - 1000);
    return close_game(&s);
}

TEST(sched, timers_fire_while_two_tasks_wake_each_other_for_ever) {
    weft__clock_fake(WEFT_SECOND);
    CHECK_EQ(run_on(1, sleep_beside_game, NULL), 0);
    weft__clock_fake(0);
}

/* ---- ready tasks of a slot whose task computes ---- */

static int take_one(void *arg) {
    (void)arg;
    atomic_fetch_add(&st.started, 1);
    CHECK_EQ(weft_chan_recv(chan, NULL, WEFT_FOREVER), 0);
    atomic_fetch_add(&st.ran, 1);
    return 0;
}

/* Computes, without a call into the runtime, until the others have run. */
static void compute_until_ran(int n) {
    while (atomic_load(&st.ran) < n) sched_yield();
}

/* Makes n parked tasks ready, the last of them in `next` and the others in the ring, and leaves them to other workers. */
static int ready_and_compute(void *arg) {
    int n = (int)(intptr_t)arg;
    reset();
    chan = weft_chan_new(0, 0);
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < n; i++) CHECK_EQ(weft_spawn(&s, take_one, NULL), 0);
    task_wait_parked(&st.started, n);
    for (int i = 0; i < n; i++) CHECK_EQ(weft_chan_send(chan, NULL, WEFT_FOREVER), 0);
    compute_until_ran(n);
    int r = weft_scope_end(&s);
    weft_chan_unref(chan);
    return r;
}

static int spawn_and_compute(void *arg) {
    int n = (int)(intptr_t)arg;
    reset();
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < n; i++) CHECK_EQ(weft_spawn(&s, say_ran, NULL), 0);
    compute_until_ran(n);
    return weft_scope_end(&s);
}

static void each_number(weft_fn *fn) {
    static const int numbers[] = {1, 2, 5, 100};
    for (int w = 2; w <= 4; w += 2)
        for (size_t i = 0; i < COUNT(numbers); i++)
            for (int k = 0; k < 5; k++) CHECK_EQ(run_on(w, fn, as_arg(numbers[i])), 0);
}

TEST(sched, a_computing_task_does_not_keep_those_it_woke_from_running) { each_number(ready_and_compute); }

TEST(sched, a_computing_task_does_not_keep_those_it_spawned_from_running) { each_number(spawn_and_compute); }

/* ---- what a warm spawn costs ---- */

static int spawn_in_scope(void *arg) {
    (void)arg;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, nothing, NULL), 0);
    CHECK_EQ(weft_spawn_with(&s, nothing, (long){7}), 0);
    return weft_scope_end(&s);
}

static int yield_once(void *arg) {
    weft_yield();
    return say_ran(arg);
}

/* A hundred with a stack each, all of them alive at once. */
static int spawn_with_stacks(void *arg) {
    int before = atomic_load(&st.ran);
    for (int i = 0; i < 100; i++) CHECK_EQ(weft_go(yield_once, arg), 0);
    task_wait(&st.ran, before + 100);
    return 0;
}

/* The third time is warm: nothing passes the hook that every allocation and system call passes. */
static int spawn_warm(void *arg) {
    long calls = 0, n = test_scale(10000, 500);
    for (int round = 0; round < 3; round++) {
        weft__fault_arm(LONG_MAX, false);
        long before = weft__fault_calls_here(); /* the sentry's naps are its own */
        for (long i = 0; i < n; i++) CHECK_EQ(spawn_in_scope(arg), 0);
        for (long i = 0; i < n / 100; i++) CHECK_EQ(spawn_with_stacks(arg), 0);
        calls = weft__fault_calls_here() - before;
        weft__fault_arm(0, false);
    }
    CHECK_EQ(calls, 0);
    atomic_store((atomic_int *)arg, 1);
    return 0;
}

/* The thread that waits does so without the runtime: its own way to sleep is a call as well. */
TEST(sched, spawning_from_a_warm_cache_makes_no_allocation_and_no_system_call) {
    atomic_int done = 0;
    reset();
    CHECK_EQ(weft_start(&alone),
             0); /* at the end of a slice it would be sent to look around; and its calls are those of one thread */
    CHECK_EQ(weft_go(spawn_warm, &done), 0);
    thread_wait(&done, 1);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
}

/* ---- slots and threads ---- */

TEST(sched, there_are_as_many_slots_as_cpus_that_may_be_used) {
    CHECK_EQ(weft_start(NULL), 0);
    weft_stats s;
    weft_stats_get(&s);
    CHECK_EQ(s.slots, weft__cpu_count());
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
}

static int compute_and_count(void *arg) {
    (void)arg;
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 20000; k++) __asm__ volatile("");
        weft_yield();
    }
    return say_ran(NULL);
}

static int most_threads(int most) {
    weft_stats s;
    weft_stats_get(&s);
    return s.threads > most ? s.threads : most;
}

/* Slots are taken away from computing tasks as fast as can be: each time another worker is wanted. */
static void limit_threads(int workers, int limit) {
    reset();
    weft_config cfg = {.workers = workers, .max_threads = limit};
    int others = test_threads(), most = 0, n = (int)test_scale(3000, 200);
    CHECK_EQ(weft_start(&cfg), 0);
    for (int i = 0; i < n; i++) {
        CHECK_EQ(weft_go(compute_and_count, NULL), 0);
        weft__slot_take(&weft__rt.slot[i % workers]);
        most = most_threads(most);
    }
    thread_wait(&st.ran, n); /* all of them, with so few threads */
    most = most_threads(most);
    CHECK_LE(most, limit);
    if (test_slow_tools() == 1) test_wait_threads(others + limit); /* tools have threads of their own */
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    printf("%d slots, at most %d threads: %d\n", workers, limit, most);
}

TEST(sched, there_are_never_more_threads_than_allowed) {
    limit_threads(1, 1);
    limit_threads(4, 1);
    limit_threads(2, 3);
    limit_threads(4, 5);
}

static int run_bursts(void *arg) {
    (void)arg;
    int64_t end = test_long_enough();
    for (long i = test_scale(300, 50); i > 0 && test_clock_ns() < end; i--) {
        weft_scope s;
        weft_scope_begin(&s, NULL);
        for (int k = 0; k < 50; k++) CHECK_EQ(weft_spawn(&s, compute_and_count, NULL), 0);
        CHECK_EQ(weft_scope_end(&s), 0);
    }
    atomic_store(&st.stop, 1);
    return 0;
}

/* Bursts of work that every worker wakes up for and looks for more afterwards, for long. */
TEST(sched, at_most_one_worker_searches) {
    reset();
    weft_config cfg = {.workers = 4, .search = 200 * WEFT_US};
    int most = 0;
    CHECK_EQ(weft_start(&cfg), 0);
    CHECK_EQ(weft_go(run_bursts, NULL), 0);
    while (!atomic_load(&st.stop)) {
        int n = weft__load(&weft__rt.searching, relaxed);
        if (n > most) most = n;
    }
    CHECK_EQ(most, 1);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
}

static bool all_idle(void *arg) {
    (void)arg;
    return weft__idle_all();
}

static long wakes(void) {
    weft_stats s;
    weft_stats_get(&s);
    return (long)s.wakes;
}

/* Four workers asleep, one task from outside. */
TEST(sched, one_event_wakes_one_worker) {
    reset();
    CHECK_EQ(set_up(4), 0);
    long total = 0;
    for (int i = 1; i <= 200; i++) {
        test_until(all_idle, NULL);
        long before = wakes();
        CHECK_EQ(weft_go(say_ran, NULL), 0);
        thread_wait(&st.ran, i);
        test_until(all_idle, NULL);
        long woken = wakes() - before;
        CHECK_LE(woken, 1); /* none: somebody was about to sleep, and saw it */
        total += woken;
    }
    CHECK_GE(total, 1);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
}

/* ---- sleepers ---- */

static atomic_int enough, sleepers, others;

/* Works for longer than it sleeps: among several of them one is always due. */
static int sleep_often(void *arg) {
    (void)arg;
    atomic_fetch_add(&sleepers, 1);
    while (!atomic_load(&enough) && weft_sleep_for(10 * WEFT_US) == 0) {
        int64_t end = test_clock_ns() + 10 * WEFT_US;
        while (test_clock_ns() < end) {
        }
    }
    return 0;
}

static int count_other(void *arg) {
    (void)arg;
    atomic_fetch_add(&others, 1);
    return 0;
}

TEST(sched, timers_that_are_always_due_do_not_starve_tasks_from_outside) {
    atomic_store(&enough, 0);
    atomic_store(&sleepers, 0);
    atomic_store(&others, 0);
    CHECK_EQ(set_up(1), 0);
    for (int i = 0; i < 10; i++) CHECK_EQ(weft_go(sleep_often, NULL), 0);
    thread_wait(&sleepers, 10);
    for (int i = 0; i < 100; i++) CHECK_EQ(weft_go(count_other, NULL), 0);
    thread_wait(&others, 100);
    atomic_store(&enough, 1);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
}

/* ---- the dump ---- */

static struct {
    weft_chan *full, *empty, *third;
    weft_task *t[6];
    char text[16384];
} seen;

static int wait_in_send(void *arg) {
    (void)arg;
    return weft_chan_send(seen.full, NULL, WEFT_FOREVER);
}
static int wait_in_recv(void *arg) {
    (void)arg;
    return weft_chan_recv(seen.empty, NULL, WEFT_FOREVER);
}
static int wait_in_select(void *arg) {
    (void)arg;
    return weft_select(WEFT_FOREVER, weft_on_recv(seen.empty, NULL, NULL), weft_on_recv(seen.third, NULL, NULL));
}
static int wait_in_join(void *arg) {
    (void)arg;
    return weft_task_join(seen.t[0], NULL, WEFT_FOREVER) == WEFT_ECANCELED ? 0 : 1;
}
static int wait_in_scope(void *arg) {
    weft_scope s;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn_opts(&s, wait_for_ever, arg, &(weft_task_opts){.name = "inner"}), 0);
    return weft_scope_end(&s);
}

/* What each waits for, as the dump calls it; by the order in seen.t. */
static const struct {
    weft_fn *fn;
    const char *reason;
} waits[] = {{wait_in_send, "send"}, {wait_in_recv, "receive"},  {wait_for_ever, "sleep"},
             {wait_in_join, "join"}, {wait_in_select, "select"}, {wait_in_scope, "scope end"}};

static void take_dump(void) {
    FILE *f = fmemopen(seen.text, sizeof seen.text, "w");
    weft_dump(f);
    fclose(f);
}

/* The dump's line about the task, or NULL. */
static const char *line_of(uint64_t id, char *line, size_t size) {
    char key[32];
    snprintf(key, sizeof key, "\ntask %llu ", (unsigned long long)id);
    const char *at = strstr(seen.text, key);
    if (!at) return NULL;
    snprintf(line, size, "%.*s", (int)strcspn(at + 1, "\n"), at + 1);
    return line + strlen(key) - 1;
}

/* True if the dump says of all of them what they wait for. */
static bool all_wait(void *arg) {
    (void)arg;
    char line[256];
    take_dump();
    for (size_t i = 0; i < COUNT(waits); i++) {
        const char *state = line_of(weft_task_id(seen.t[i]), line, sizeof line);
        if (!state || !strstr(state, waits[i].reason)) return false;
    }
    return true;
}

static void start_waits(void) {
    seen.full = weft_chan_new(0, 0);
    seen.empty = weft_chan_new(0, 0);
    seen.third = weft_chan_new(0, 0);
    for (size_t i = 0; i < COUNT(waits); i++) CHECK_EQ(weft_task_start(&seen.t[i], waits[i].fn, NULL, NULL), 0);
    test_until(all_wait, NULL);
}

static void end_waits(void) {
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    for (size_t i = 0; i < COUNT(waits); i++) weft_task_unref(seen.t[i]);
    weft_chan_unref(seen.full);
    weft_chan_unref(seen.empty);
    weft_chan_unref(seen.third);
}

/* " on OBJECT" must be in the line; NULL: no object. */
static void check_object(const char *line, const void *object) {
    char text[32];
    snprintf(text, sizeof text, " on %p ", object);
    if (object)
        CHECK_MSG(strstr(line, text), "no \"%s\" in: %s", text, line);
    else
        CHECK_MSG(!strstr(line, " on 0x"), "an object in: %s", line);
}

TEST(sched, the_dump_tells_what_each_task_waits_for_and_since_when) {
    weft__clock_fake(WEFT_SECOND);
    CHECK_EQ(set_up(2), 0);
    start_waits();
    weft__clock_advance(7 * WEFT_SECOND);
    test_until(all_wait, NULL);
    const void *objects[] = {seen.full, seen.empty, NULL, seen.t[0], NULL, NULL};
    for (size_t i = 0; i < COUNT(waits); i++) {
        char line[256], fn[64];
        CHECK(line_of(weft_task_id(seen.t[i]), line, sizeof line));
        CHECK_MSG(strstr(line, " for 7000 ms"), "%s", line);
        check_object(line, objects[i]);
        snprintf(fn, sizeof fn, "function %p, spawned at 0x", (void *)(uintptr_t)waits[i].fn);
        CHECK_MSG(strstr(line, fn), "%s", line);
    }
    CHECK_MSG(strncmp(seen.text, "weft ", 5) == 0 && strstr(seen.text, ": 2 slots, "), "%s", seen.text);
    end_waits();
    weft__clock_fake(0);
}

/* Waits for a channel first, then for its child. */
static int wait_twice(void *arg) {
    CHECK_EQ(weft_chan_recv(chan, NULL, WEFT_FOREVER), 0);
    return wait_in_scope(arg);
}

static int dump_second_wait(void *arg) {
    (void)arg;
    char line[256];
    weft_task *t;
    chan = weft_chan_new(0, 0);
    CHECK_EQ(weft_task_start(&t, wait_twice, NULL, NULL), 0);
    weft_yield();
    CHECK_EQ(weft_chan_send(chan, NULL, WEFT_FOREVER), 0);
    do {
        weft_yield();
        take_dump();
    } while (!strstr(line_of(weft_task_id(t), line, sizeof line), "scope end"));
    check_object(line, NULL);
    weft_task_unref(t);
    weft_chan_unref(chan);
    return 0;
}

TEST(sched, the_dump_names_no_object_of_an_earlier_wait) { CHECK_EQ(run_on(1, dump_second_wait, NULL), 0); }

static int yield_until_stop(void *arg) {
    (void)arg;
    for (atomic_fetch_add(&st.started, 1); !atomic_load(&st.stop);) weft_yield();
    return 0;
}

/* Two tasks on one slot: the one that asks runs, the other one could. */
static int dump_from_task(void *arg) {
    (void)arg;
    char line[256];
    weft_task *t;
    CHECK_EQ(weft_task_start(&t, yield_until_stop, NULL, NULL), 0);
    task_wait(&st.started, 1);
    take_dump();
    CHECK(strstr(line_of(weft_self(), line, sizeof line), "running"));
    CHECK(strstr(line_of(weft_task_id(t), line, sizeof line), "runnable"));
    atomic_store(&st.stop, 1);
    uint64_t id = weft_task_id(t);
    CHECK_EQ(weft_task_join(t, NULL, WEFT_FOREVER), 0);
    take_dump();
    CHECK(!line_of(id, line, sizeof line)); /* it is over */
    return 0;
}

TEST(sched, the_dump_tells_who_runs_and_who_could) {
    reset();
    CHECK_EQ(run_on(1, dump_from_task, NULL), 0);
    take_dump();
    CHECK(strstr(seen.text, ": 0 slots, ")); /* no runtime: nothing but the first line */
    CHECK(!strstr(seen.text, "\ntask "));
}

static int receive_end(void *arg) {
    atomic_fetch_add(&st.started, 1);
    CHECK_EQ(weft_chan_recv(arg, NULL, WEFT_FOREVER), WEFT_ECLOSED);
    return 0;
}

/* More tasks become ready at once than a slot's queue holds. */
static int make_many_ready(void *arg) {
    enum { MANY = 1000 };
    weft_scope s;
    weft_stats before, after;
    weft_chan *c = weft_chan_new(0, 0);
    (void)arg;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < MANY; i++) CHECK_EQ(weft_spawn(&s, receive_end, c), 0);
    task_wait_parked(&st.started, MANY);
    weft_stats_get(&before);
    weft_chan_close(c);
    weft_stats_get(&after);
    CHECK_GT(after.overflows, before.overflows);
    CHECK_EQ(weft_scope_end(&s), 0);
    weft_chan_unref(c);
    return 0;
}

TEST(sched, queues_that_overflow_are_counted) {
    reset();
    CHECK_EQ(run_on(1, make_many_ready, NULL), 0);
}
