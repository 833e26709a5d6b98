/* SPDX-License-Identifier: MIT */
/* Everything at once: spawning, cancelling, select, close, deadlines, pinning, priorities, panics, blocking calls, slots that are
 * taken away, plain threads on the same channels, runtimes that start and stop. At the end of each season it is counted:
 * every element sent was received once, every child accepted ran and ended once; at the end of each life nothing is left.
 *
 * It goes on for WEFT_TEST_SOAK seconds (1 without it). The seed is printed; WEFT_TEST_SEED gives it again. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <weft.h>

#include "sched/handoff.h"
#include "test.h"

enum { CHANS = 4, ACTORS = 24, DEPTH = 2, OUTSIDERS = 2, LIFE_SECONDS = 1 };

typedef struct {
    atomic_long count, sum;
} ledger;

static struct {
    weft_chan *chan[CHANS];
    ledger sent, got;
    atomic_long accepted, begun, exits, exits_run;
    atomic_bool over, stop_taker;
    int64_t end;
} now;

static struct {
    atomic_long ops, sends, receives, timeouts, cancels, closed, panics, spawns, refused, blocked, taken;
    long seasons, lives;
    int threads; /* there after the first life: tools start some of their own, the first time */
} total;

static void book(ledger *l, long v) {
    atomic_fetch_add(&l->count, 1);
    atomic_fetch_add(&l->sum, v);
}

static weft_deadline some_deadline(uint64_t *random) {
    switch (test_below(random, 4)) {
    case 0:
        return WEFT_POLL;
    case 1:
        return weft_after((int64_t)test_below(random, 5) * WEFT_US);
    default:
        return weft_after((int64_t)test_below(random, 500) * WEFT_US);
    }
}

static void tally(int rc) {
    if (rc == WEFT_ETIMEDOUT || rc == WEFT_EAGAIN)
        atomic_fetch_add(&total.timeouts, 1);
    else if (rc == WEFT_ECANCELED)
        atomic_fetch_add(&total.cancels, 1);
    else if (rc == WEFT_ECLOSED)
        atomic_fetch_add(&total.closed, 1);
    else
        CHECK_MSG(rc >= 0, "an operation gave %d: %s", rc, weft_strerror(rc));
}

/* ---- what actors and plain threads do ---- */

static weft_chan *some_chan(uint64_t *random) { return now.chan[test_below(random, CHANS)]; }

static void do_send(uint64_t *random) {
    long v = (long)test_below(random, 1000000);
    int rc = weft_chan_send(some_chan(random), &v, some_deadline(random));
    if (rc == 0) book(&now.sent, v);
    if (rc == 0) atomic_fetch_add(&total.sends, 1);
    tally(rc);
}

static void do_receive(uint64_t *random) {
    long v = -1;
    int rc = weft_chan_recv(some_chan(random), &v, some_deadline(random));
    if (rc == 0) book(&now.got, v);
    if (rc == 0) atomic_fetch_add(&total.receives, 1);
    tally(rc);
}

static void do_select(uint64_t *random) {
    long in[2] = {-1, -1}, out[2] = {(long)test_below(random, 1000000), (long)test_below(random, 1000000)};
    bool open[2] = {true, true};
    weft_case cases[4] = {weft_on_recv(some_chan(random), &in[0], &open[0]), weft_on_send(some_chan(random), &out[0]),
                          weft_on_recv(some_chan(random), &in[1], &open[1]), weft_on_send(some_chan(random), &out[1])};
    int k = weft_selectv(cases, 2 + test_below(random, 3), some_deadline(random));
    if (k >= 0 && k % 2 == 0 && open[k / 2]) book(&now.got, in[k / 2]);
    if (k >= 0 && k % 2 == 1) book(&now.sent, out[k / 2]);
    tally(k);
}

/* ---- what only tasks do ---- */

typedef struct {
    uint64_t random;
    int depth;
} actor_arg;

static int actor(void *arg);

static void exit_ran(void *arg) {
    uint64_t random = (uint64_t)(uintptr_t)arg;
    if (test_below(&random, 4) == 0) weft_yield();
    atomic_fetch_add(&now.exits_run, 1);
}

static void do_spawn(weft_scope *s, uint64_t *random, int depth) {
    actor_arg *a = malloc(sizeof *a);
    CHECK(a);
    *a = (actor_arg){test_random_from(random), depth};
    weft_task_opts o = {.priority = (int)test_below(random, 3) - 1, .flags = test_below(random, 6) ? 0 : WEFT_PINNED};
    int rc = test_below(random, 2) ? weft_spawn(s, actor, a) : weft_spawn_opts(s, actor, a, &o);
    atomic_fetch_add(rc == 0 ? &now.accepted : &total.refused, 1);
    atomic_fetch_add(&total.spawns, 1);
    if (rc == 0) return;
    CHECK_EQ(rc, WEFT_ECANCELED);
    free(a);
}

static void do_family(uint64_t *random, int depth) {
    weft_scope s;
    weft_scope_opts o = {.on_error = test_below(random, 2) ? WEFT_CANCEL_ALL : WEFT_KEEP_GOING};
    if (test_below(random, 3) == 0) o.deadline = weft_after((int64_t)test_below(random, 300) * WEFT_US);
    weft_scope_begin(&s, &o);
    for (uint64_t n = test_below(random, 4); n > 0; n--) do_spawn(&s, random, depth - 1);
    if (test_below(random, 4) == 0) weft_scope_cancel(&s);
    (void)weft_scope_end(&s);
}

static int nap_till_cancelled(void *arg) {
    (void)arg;
    return weft_sleep(WEFT_FOREVER);
}

static void do_handle(uint64_t *random) {
    weft_task *t;
    int result = 0, rc = weft_task_start(&t, nap_till_cancelled, NULL, NULL);
    if (rc != 0) {
        tally(rc);
        return;
    }
    if (test_below(random, 2)) weft_yield();
    weft_task_cancel(t);
    rc = weft_task_join(t, &result, some_deadline(random));
    if (rc == 0)
        CHECK_EQ(result, WEFT_ECANCELED);
    else
        weft_task_unref(t);
    tally(rc);
}

static int gives_up(void *arg) {
    (void)arg;
    weft_panic("contained");
}

static void do_try(void) {
    weft_panic_info info;
    CHECK_EQ(weft_try(gives_up, NULL, &info), WEFT_EPANIC);
    CHECK_STR(info.message, "contained");
    atomic_fetch_add(&total.panics, 1);
}

/* A call that the runtime knows nothing of: the slot goes to somebody else. */
static void do_block(uint64_t *random) {
    struct timespec t = {.tv_nsec = (long)test_below(random, 3000000)};
    nanosleep(&t, NULL);
    atomic_fetch_add(&total.blocked, 1);
}

static void do_pinned(uint64_t *random) {
    weft_pin();
    pthread_t here = pthread_self();
    do_receive(random);
    weft_yield();
    CHECK(pthread_equal(here, pthread_self()));
    weft_unpin();
}

static void step(uint64_t *random, int depth) {
    atomic_fetch_add(&total.ops, 1);
    switch (test_below(random, 40)) {
    case 0:
        do_block(random);
        break;
    case 1:
        do_handle(random);
        break;
    case 2:
        do_try();
        break;
    case 3:
        do_pinned(random);
        break;
    case 4:
    case 5:
        if (depth > 0) do_family(random, depth);
        break;
    case 6:
        tally(weft_sleep_for((int64_t)test_below(random, 100) * WEFT_US));
        break;
    case 7:
        if (test_below(random, 200) == 0) tally(weft_chan_close(some_chan(random)));
        break;
    case 8:
    case 9:
    case 10:
        weft_yield();
        break;
    case 11:
    case 12:
    case 13:
    case 14:
    case 15:
        do_select(random);
        break;
    default:
        if (test_below(random, 2))
            do_send(random);
        else
            do_receive(random);
    }
}

static int actor(void *arg) {
    actor_arg a = *(actor_arg *)arg;
    free(arg);
    atomic_fetch_add(&now.begun, 1);
    CHECK_EQ(weft_at_exit(exit_ran, (void *)(uintptr_t)a.random), 0);
    atomic_fetch_add(&now.exits, 1);
    for (uint64_t n = test_below(&a.random, 60); n > 0 && !weft_cancelled(); n--) step(&a.random, a.depth);
    switch (test_below(&a.random, 12)) {
    case 0:
        atomic_fetch_add(&total.panics, 1);
        weft_panic("not contained");
    case 1:
        return -5;
    default:
        return 0;
    }
}

/* ---- others in the process ---- */

static void *outsider(void *arg) {
    uint64_t random = (uint64_t)(uintptr_t)arg;
    while (!atomic_load(&now.over)) {
        atomic_fetch_add(&total.ops, 1);
        switch (test_below(&random, 3)) {
        case 0:
            do_send(&random);
            break;
        case 1:
            do_receive(&random);
            break;
        default:
            do_select(&random);
        }
    }
    return NULL;
}

static void *taker(void *arg) {
    uint64_t random = (uint64_t)(uintptr_t)arg;
    while (!atomic_load(&now.stop_taker)) {
        weft__slot *s = &weft__rt.slot[test_below(&random, (uint64_t)weft__rt.slots)];
        if (weft__slot_take(s)) atomic_fetch_add(&total.taken, 1);
        struct timespec t = {.tv_nsec = (long)test_below(&random, 200000)};
        nanosleep(&t, NULL);
    }
    return NULL;
}

/* ---- seasons and lives ---- */

static void open_season(void) {
    static const size_t capacity[CHANS] = {0, 1, 8, 128};
    for (int i = 0; i < CHANS; i++) CHECK((now.chan[i] = weft_chan_new(sizeof(long), capacity[i])));
    atomic_long *counters[] = {&now.sent.count, &now.sent.sum, &now.got.count, &now.got.sum,
                               &now.accepted,   &now.begun,    &now.exits,     &now.exits_run};
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++) atomic_store(counters[i], 0);
    atomic_store(&now.over, false);
}

/* Nobody else is there any more: what is still in the channels was sent and not received. */
static void close_season(void) {
    for (int i = 0; i < CHANS; i++) {
        long v;
        (void)weft_chan_close(now.chan[i]);
        while (weft_chan_recv(now.chan[i], &v, WEFT_POLL) == 0) book(&now.got, v);
        weft_chan_unref(now.chan[i]);
    }
    CHECK_EQ(atomic_load(&now.sent.count), atomic_load(&now.got.count));
    CHECK_EQ(atomic_load(&now.sent.sum), atomic_load(&now.got.sum));
    CHECK_EQ(atomic_load(&now.accepted), atomic_load(&now.begun));
    CHECK_EQ(atomic_load(&now.exits), atomic_load(&now.begun));
    CHECK_EQ(atomic_load(&now.exits_run), atomic_load(&now.exits));
    total.seasons++;
}

static void season(uint64_t *random) {
    pthread_t threads[OUTSIDERS];
    weft_scope s;
    open_season();
    for (int i = 0; i < OUTSIDERS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, outsider, (void *)(uintptr_t)test_random_from(random)), 0);
    weft_scope_begin(&s, &(weft_scope_opts){.on_error = WEFT_KEEP_GOING});
    for (int i = 0; i < ACTORS; i++) do_spawn(&s, random, DEPTH);
    if (test_below(random, 3) == 0) {
        (void)weft_sleep_for((int64_t)test_below(random, 3000) * WEFT_US);
        weft_scope_cancel(&s);
    }
    (void)weft_scope_end(&s);
    atomic_store(&now.over, true);
    for (int i = 0; i < OUTSIDERS; i++)
        pthread_join(threads[i], NULL); /* blocks this worker: a deadline ends their last waits */
    close_season();
}

static int life(void *arg) {
    uint64_t *random = arg;
    int64_t end = test_clock_ns() + LIFE_SECONDS * WEFT_SECOND;
    pthread_t t;
    if (end > now.end) end = now.end;
    atomic_store(&now.stop_taker, false);
    CHECK_EQ(pthread_create(&t, NULL, taker, (void *)(uintptr_t)test_random_from(random)), 0);
    do season(random);
    while (test_clock_ns() < end);
    atomic_store(&now.stop_taker, true);
    pthread_join(t, NULL);
    return 0;
}

static void quiet(const weft_panic_info *info, void *arg) {
    (void)arg;
    CHECK_STR(info->message, "not contained");
}

static void live(uint64_t *random) {
    weft_config cfg = {.workers = 1 + (int)test_below(random, 6), .on_panic = quiet};
    CHECK_EQ(weft_run(life, random, &cfg), 0);
    if (total.threads) test_wait_threads(total.threads);
    total.lives++;
}

/* Threads that have been joined are to be seen for a moment longer. */
static int least_threads(void) {
    int least = test_threads();
    for (int i = 0; i < 100; i++) {
        struct timespec t = {.tv_nsec = 1000000};
        nanosleep(&t, NULL);
        if (test_threads() < least) least = test_threads();
    }
    return least;
}

static long soak_seconds(void) {
    const char *s = getenv("WEFT_TEST_SOAK");
    long n = s ? strtol(s, NULL, 10) : 1;
    return n > 0 ? n : 1;
}

TEST_T(soak, nothing_is_lost_or_left_when_everything_happens_at_once, 600) {
    uint64_t random = test_seed();
    now.end = test_clock_ns(); /* one season first: what the C library and tools keep for themselves is there afterwards */
    live(&random);
    total.threads = least_threads();
    int fds = test_fds(), maps = test_maps();
    now.end = test_clock_ns() + soak_seconds() * WEFT_SECOND;
    while (test_clock_ns() < now.end) live(&random);
    CHECK_EQ(test_fds(), fds);
    if (test_slow_tools() == 1)
        CHECK_LE(test_maps(), maps + 40); /* heaps of threads; tools keep more, for as many as there ever were */
    printf("%ld lives, %ld seasons, %ld operations: %ld sent, %ld received, %ld timed out, %ld cancelled, %ld closed,\n"
           "%ld spawned (%ld refused), %ld panics, %ld blocking calls, %ld slots taken; nothing lost\n",
           total.lives, total.seasons, atomic_load(&total.ops), atomic_load(&total.sends), atomic_load(&total.receives),
           atomic_load(&total.timeouts), atomic_load(&total.cancels), atomic_load(&total.closed), atomic_load(&total.spawns),
           atomic_load(&total.refused), atomic_load(&total.panics), atomic_load(&total.blocked), atomic_load(&total.taken));
}
