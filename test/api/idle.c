/* SPDX-License-Identifier: MIT */
/* Idle means idle: a thousand parked tasks, three seconds, no CPU and next to no context switch. */
#include <limits.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "api/common.h"
#include "sched/trim.h"

#define TASKS 1000
#define SWITCHES 10           /* in all, those of the thread that measures included */
#define CPU_NS (15 * WEFT_MS) /* reading /proc twice is most of it */
#define WINDOW_S 3

static atomic_int parked;
static weft_chan *silent;

static int park_in_recv(void *arg) {
    (void)arg;
    atomic_fetch_add(&parked, 1);
    return weft_chan_recv(silent, NULL, WEFT_FOREVER);
}

static int park_in_sleep(void *arg) {
    atomic_fetch_add(&parked, 1);
    return weft_sleep_for(HOUR + (intptr_t)arg * WEFT_MS);
}

static int park_in_select(void *arg) {
    (void)arg;
    atomic_fetch_add(&parked, 1);
    return weft_select(weft_after(HOUR), weft_on_recv(silent, NULL, NULL), weft_on_recv(NULL, NULL, NULL));
}

static int park_in_scope(void *arg) {
    weft_scope s;
    weft_scope_begin(&s, NULL);
    weft_spawn(&s, park_in_recv, arg);
    return weft_scope_end(&s);
}

static void pass(long ns) {
    struct timespec ts = {.tv_sec = ns / WEFT_SECOND, .tv_nsec = ns % WEFT_SECOND};
    nanosleep(&ts, NULL);
}

/* True if the workers have gone to sleep: nothing but our own nap was switched in 20 ms. */
static bool quiet(void *arg) {
    (void)arg;
    long before = test_switches();
    pass(20 * WEFT_MS);
    return test_switches() - before <= 2;
}

struct idle {
    weft_fn *park;
    int workers;
    int64_t search;
};

static int stay_idle(void *arg) {
    struct idle *d = arg;
    weft_config cfg = {.workers = d->workers, .stack_size = 0, .max_threads = 0, .search = d->search};
    CHECK_EQ(weft_start(&cfg), 0);
    silent = weft_chan_new(sizeof(int), 0);
    for (int i = 0; i < TASKS; i++) CHECK_EQ(weft_go(d->park, as_arg(i)), 0);
    thread_wait(&parked, TASKS);
    test_until(quiet, NULL);
    long switches = LONG_MAX;
    int64_t cpu = INT64_MAX;
    for (int i = 0; i < TEST_ATTEMPTS && (switches > SWITCHES || cpu > CPU_NS); i++) {
        switches = test_switches();
        cpu = test_cpu_ns();
        pass(WINDOW_S * WEFT_SECOND);
        cpu = test_cpu_ns() - cpu;
        switches = test_switches() - switches;
        printf("%d workers: %ld switches, %lld us of CPU\n", d->workers, switches, (long long)cpu / 1000);
    }
    CHECK_LE(switches, SWITCHES);
    CHECK_LE(cpu,
             CPU_NS * (test_emulated() ? 3 : 1)); /* the one look at a thousand stacks takes that much longer in an emulator */
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    weft_chan_unref(silent);
    return 0;
}

/* In a child each, so that threads of other tests are not counted. */
static void check_idle(weft_fn *park, int workers, int64_t search) {
    test_skip_under("the tools have threads and work of their own", NULL);
    struct idle d = {park, workers, search};
    CHECK_CHILD_ARG(stay_idle, &d);
}

TEST_SOLO(idle, a_thousand_receivers_cost_nothing) { check_idle(park_in_recv, 2, 0); }

TEST_SOLO(idle, a_thousand_sleepers_cost_nothing) { check_idle(park_in_sleep, 2, 0); }

TEST_SOLO(idle, a_thousand_selects_cost_nothing) { check_idle(park_in_select, 4, 0); }

TEST_SOLO(idle, a_thousand_open_scopes_cost_nothing) { check_idle(park_in_scope, 1, 0); }

TEST_SOLO(idle, without_searching_it_is_the_same) { check_idle(park_in_recv, 4, -1); }

TEST_SOLO(idle, with_long_searching_it_is_the_same) { check_idle(park_in_sleep, 2, 2 * WEFT_MS); }

/* ---- beside others ---- */

static int yield_until_told(void *told) {
    while (!atomic_load((atomic_int *)told)) weft_yield();
    return 0;
}

/* One slot, which always has another task to run, and which nobody takes from its thread. Whatever else uses the CPU is the worker that watches over
 * it; by the clock, so the share is larger the fewer CPUs others leave us. */
static int keep_busy(void *arg) {
    (void)arg;
    atomic_int told = 0;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, yield_until_told, &told), 0);
    int64_t all = INT64_MAX, mine = 0;
    for (int i = 0; i < TEST_ATTEMPTS && all - mine > mine / 4; i++) {
        all = test_cpu_ns(), mine = test_thread_cpu_ns();
        while (test_thread_cpu_ns() - mine < 100 * WEFT_MS) weft_yield();
        mine = test_thread_cpu_ns() - mine;
        all = test_cpu_ns() - all;
        printf("others used %lld us beside %lld us\n", (long long)(all - mine) / 1000, (long long)mine / 1000);
    }
    CHECK_LE(all - mine, mine / 4);
    atomic_store(&told, 1);
    return weft_scope_end(&s);
}

TEST_SOLO(idle, who_watches_over_a_busy_slot_sleeps) {
    test_skip_under("the tools have threads and work of their own", NULL);
    weft__trim_later = WEFT_MS; /* stacks are to be looked at all the time */
    CHECK_EQ(weft_run(keep_busy, NULL, &(weft_config){.workers = 1, .slice = HOUR}), 0);
}

/* After a second in which all went well the looks are further apart, and so are the naps between them: 8 ms, where they are 4 otherwise. A slot whose thread
 * gets no CPU for so long does not move, and it takes another second: on a busy machine many are tried. */
enum { WINDOWS = 60 };
static int count_naps(void *arg) {
    (void)arg;
    atomic_int told = 0;
    weft_stats before, after;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, yield_until_told, &told), 0);
    int64_t from = test_clock_ns(), naps = INT64_MAX, most = 0;
    while (test_clock_ns() - from < 1200 * WEFT_MS) weft_yield();
    for (int i = 0; i < WINDOWS && naps > most; i++) {
        weft_stats_get(&before);
        from = test_clock_ns();
        while (test_clock_ns() - from < 400 * WEFT_MS) weft_yield();
        weft_stats_get(&after);
        naps = (int64_t)(after.sleeps - before.sleeps);
        most = (test_clock_ns() - from) / (6 * WEFT_MS);
        printf("%lld naps, at most %lld\n", (long long)naps, (long long)most);
    }
    CHECK_LE(naps, most);
    CHECK_GT(naps, 0);
    atomic_store(&told, 1);
    return weft_scope_end(&s);
}

TEST_SOLO(idle, who_watches_over_slots_that_move_looks_less_often) {
    test_skip_under("the tools take longer than a look is apart", "so does the emulator");
    CHECK_EQ(weft_run(count_naps, NULL, &(weft_config){.workers = 1}), 0);
}

/* ---- searching ---- */

enum { SEARCH = 20 * WEFT_MS, EVENTS = 10 };

static void *send_now_and_then(void *c) {
    for (int i = 0; i < EVENTS; i++) {
        nanosleep(&(struct timespec){0, 3 * SEARCH}, NULL); /* what comes, comes long after a search has ended */
        CHECK_EQ(weft_chan_send(c, NULL, WEFT_FOREVER), 0);
    }
    return NULL;
}

static int receive_now_and_then(void *arg) {
    pthread_t t;
    weft_chan *c = weft_chan_new(0, 0);
    (void)arg;
    int64_t cpu = test_cpu_ns();
    CHECK_EQ(pthread_create(&t, NULL, send_now_and_then, c), 0);
    for (int i = 0; i < EVENTS; i++) CHECK_EQ(weft_chan_recv(c, NULL, WEFT_FOREVER), 0);
    cpu = test_cpu_ns() - cpu;
    printf("%lld us of CPU for %d events\n", (long long)cpu / 1000, EVENTS);
    CHECK_LE(cpu, (int64_t)EVENTS * SEARCH / 2);
    CHECK_EQ(pthread_join(t, NULL), 0);
    weft_chan_unref(c);
    return 0;
}

TEST_SOLO(idle, who_searched_in_vain_sleeps_at_once_the_next_time) {
    test_skip_under("the tools have threads and work of their own", NULL);
    CHECK_EQ(weft_run(receive_now_and_then, NULL, &(weft_config){.workers = 2, .search = SEARCH}), 0);
}

/* ---- timers one after the other ---- */

enum { SLEEPERS = 1000, NAPS = 40, SHORT_SLEEPS = 200 };
/* Whatever the environment says: who never searches sleeps for each timer. */
static const weft_config searching = {.workers = 2, .search = 20 * WEFT_US};

static int nap_and_nap(void *arg) {
    uint64_t rnd = test_seed() + (uint64_t)(intptr_t)arg;
    for (int i = 0; i < NAPS; i++) CHECK_EQ(weft_sleep_for(WEFT_MS + (int64_t)test_below(&rnd, 10000) * WEFT_US), 0);
    return 0;
}

/* The next timer of a slot is always nearer than a search is long. */
static int sleep_in_a_crowd(void *arg) {
    weft_scope s;
    (void)arg;
    int64_t cpu = test_cpu_ns(), clock = weft_now();
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < SLEEPERS; i++) CHECK_EQ(weft_spawn(&s, nap_and_nap, as_arg(i)), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    cpu = test_cpu_ns() - cpu;
    clock = weft_now() - clock;
    printf("%lld us of CPU in %lld us\n", (long long)cpu / 1000, (long long)clock / 1000);
    CHECK_LE(cpu, clock / 5 * 4);
    return 0;
}

TEST_SOLO(idle, timers_one_after_the_other_do_not_take_all_of_the_cpu) {
    test_skip_under("the tools have threads and work of their own", "an emulated CPU takes too long for each");
    CHECK_EQ(weft_run(sleep_in_a_crowd, NULL, &searching), 0);
}

static int longer_first(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

static void compute_for(int64_t ns) {
    for (int64_t end = weft_now() + ns; weft_now() < end;) continue;
}

/* Once in a while a short sleep: by how much half of them are late at most. */
static int64_t short_sleeps(void) {
    int64_t late[SHORT_SLEEPS];
    for (int i = 0; i < SHORT_SLEEPS; i++) {
        compute_for(WEFT_MS);
        int64_t from = weft_now();
        CHECK_EQ(weft_sleep_for(10 * WEFT_US), 0);
        late[i] = weft_now() - from - 10 * WEFT_US;
    }
    qsort(late, SHORT_SLEEPS, sizeof *late, longer_first);
    return late[SHORT_SLEEPS / 2];
}

/* It is looked for, whatever has been looked for before. */
static int sleep_shortly_afterwards(void *arg) {
    int64_t before = 0, after = INT64_MAX;
    for (int i = 0; i < TEST_ATTEMPTS && after > 10 * before + 50 * WEFT_US; i++) {
        before = short_sleeps();
        CHECK_EQ(sleep_in_a_crowd(arg), 0);
        after = short_sleeps();
        printf("half of them late by %lld ns at most, before that by %lld\n", (long long)after, (long long)before);
    }
    CHECK_LE(after, 10 * before + 50 * WEFT_US);
    return 0;
}

TEST_SOLO(idle, a_short_sleep_later_on_is_not_drawn_out) {
    test_skip_under("the tools have threads and work of their own", "an emulated CPU takes too long for each");
    CHECK_EQ(weft_run(sleep_shortly_afterwards, NULL, &searching), 0);
}

static int end_at_once(void *arg) {
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 100; i++) CHECK_EQ(weft_spawn(&s, return_int, arg), 0);
    return weft_scope_end(&s);
}

TEST(idle, a_search_without_end_ends_with_the_runtime) {
    EACH_WORKERS(w) CHECK_EQ(weft_run(end_at_once, NULL, &(weft_config){.workers = w, .search = INT64_MAX}), 0);
}

/* Descriptors that nobody writes to: a worker sleeps in the poller, and does not wake up either. */
static int park_in_read(void *arg) {
    int fd[2];
    char c;
    (void)arg;
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    atomic_fetch_add(&parked, 1);
    ssize_t n = weft_fd_read(fd[0], &c, 1, weft_after(HOUR));
    weft_fd_close(fd[0]);
    close(fd[1]);
    return (int)n;
}

static void many_descriptors(void) {
    struct rlimit r;
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &r), 0);
    r.rlim_cur = r.rlim_max;
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &r), 0);
    if (r.rlim_cur < 2 * TASKS + 50) test_skip("not enough descriptors");
}

TEST_SOLO(idle, a_thousand_readers_cost_nothing) {
    many_descriptors();
    check_idle(park_in_read, 2, 0);
}

TEST_SOLO(idle, a_thousand_readers_cost_nothing_on_one_slot) {
    many_descriptors();
    check_idle(park_in_read, 1, 0);
}
