/* SPDX-License-Identifier: MIT */
/* More than the slots can do: what has waited for long comes first. Time is the fake clock's, and the tests make the monitor's marks. */
#include "api/fake.h"
#include "sched/age.h"

/* The clock moves on, as if the task had computed for so long. */
static void compute(int64_t ns) {
    weft__clock_advance(ns);
    weft__age_mark(weft__clock_now());
}

/* All that was spawned until now is old. */
static void grow_old(void) {
    for (int i = 0; i < 3; i++) compute(WEFT_AGE_EVERY);
}

static atomic_int ran;
static int say_ran(void *arg) {
    (void)arg;
    atomic_store(&ran, 1);
    return 0;
}
static int nothing(void *arg) {
    (void)arg;
    return 0;
}

/* ---- fresh tasks ---- */

/* How many turns it takes until the task has run, while each turn makes newer ones. */
static int turns_until_ran(void) {
    int turns = 0;
    for (; !atomic_load(&ran) && turns < 1000; turns++) {
        for (int i = 0; i < 2; i++) CHECK_EQ(weft_go(nothing, NULL), 0);
        weft_yield();
    }
    return turns;
}

static int start_oldest(void *arg) {
    (void)arg;
    atomic_store(&ran, 0);
    CHECK_EQ(weft_go(say_ran, NULL), 0);
    for (int i = 0; i < 20; i++) CHECK_EQ(weft_go(nothing, NULL), 0);
    grow_old();
    int turns = turns_until_ran();
    printf("after %d turns\n", turns);
    CHECK_LT(turns, 2 * WEFT_AGE_PAUSE); /* without the clock it would be some hundred */
    return 0;
}
TEST(age, an_old_fresh_task_is_started_before_newer_ones) { run_fake_alone(start_oldest); }

/* The same where it has gone to the global queue. */
static int start_oldest_of_many(void *arg) {
    (void)arg;
    atomic_store(&ran, 0);
    CHECK_EQ(weft_go(say_ran, NULL), 0);
    for (int i = 0; i < WEFT_DEQUE + 1; i++) CHECK_EQ(weft_go(nothing, NULL), 0);
    CHECK_GT(weft__load(&weft__rt.fresh.count, relaxed), 0);
    grow_old();
    int turns = turns_until_ran();
    printf("after %d turns\n", turns);
    CHECK_LT(turns, 4 * WEFT_AGE_PAUSE); /* the slot's oldest and the global one take turns */
    return 0;
}
TEST(age, an_old_fresh_task_in_the_global_queue_is_started_before_newer_ones) { run_fake_alone(start_oldest_of_many); }

static int many_at_once(void *arg) {
    atomic_int *running = arg;
    atomic_fetch_add(running, 1);
    for (int i = 0; i < 1000; i++) weft_yield();
    return 0;
}

/* Of a deep recursion's old tasks only so many are begun at once, each with a stack. */
static int grant_is_bounded(void *arg) {
    (void)arg;
    atomic_int running = 0;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 200; i++) CHECK_EQ(weft_spawn(&s, many_at_once, &running), 0);
    grow_old();
    weft__slot *slot = &weft__rt.slot[0];
    CHECK_EQ(weft__load(&slot->late, relaxed), WEFT_AGE_GRANT + 1);
    for (int i = 0; i < 10000 && weft__load(&slot->late, relaxed); i++) weft_yield();
    printf("%d are running\n", atomic_load(&running));
    CHECK_GE(atomic_load(&running), WEFT_AGE_GRANT);
    CHECK_LT(atomic_load(&running), 200);
    CHECK_EQ(weft__load(&slot->late, relaxed), 0);
    return weft_scope_end(&s);
}
TEST(age, so_many_old_tasks_are_started_until_the_next_mark) { run_fake_alone(grant_is_bounded); }

static int yield_for_long(void *arg) {
    atomic_int *stop = arg;
    while (!atomic_load(stop)) weft_yield();
    return 0;
}

/* A late slot with old siblings of some scope: a task of its own is not kept waiting by them. */
static int start_alone(void *arg) {
    (void)arg;
    atomic_int stop = 0;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 100; i++) CHECK_EQ(weft_spawn(&s, yield_for_long, &stop), 0);
    grow_old();
    CHECK(weft__load(&weft__rt.slot[0].late, relaxed));
    atomic_store(&ran, 0);
    uint32_t from = weft__load(&weft__rt.slot[0].picks, relaxed);
    CHECK_EQ(weft_go(say_ran, NULL), 0);
    while (!atomic_load(&ran)) weft_yield();
    uint32_t picks = weft__load(&weft__rt.slot[0].picks, relaxed) - from;
    printf("after %u picks\n", picks);
    CHECK_LE(picks, 128); /* until it is our turn again to look; it is one of the first four */
    atomic_store(&stop, 1);
    return weft_scope_end(&s);
}
TEST(age, a_task_without_siblings_does_not_wait_for_old_ones) { run_fake_alone(start_alone); }

/* ---- started tasks ---- */

enum { WAITERS = 1000 };
static weft_chan *gate[WAITERS];
static int order[WAITERS];
static atomic_int parked, ended;

static int wait_in_line(void *arg) {
    intptr_t i = (intptr_t)arg;
    atomic_fetch_add(&parked, 1);
    CHECK_EQ(weft_chan_recv(gate[i], NULL, WEFT_FOREVER), 0);
    order[atomic_fetch_add(&ended, 1)] = (int)i;
    return 0;
}

static int wake_in_order(void *arg) {
    (void)arg;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    atomic_store(&parked, 0);
    atomic_store(&ended, 0);
    for (intptr_t i = 0; i < WAITERS; i++) {
        gate[i] = weft_chan_new(0, 1);
        CHECK_EQ(weft_spawn(&s, wait_in_line, (void *)i), 0);
    }
    task_wait_parked(&parked, WAITERS);
    for (int i = 0; i < WAITERS; i++) CHECK_EQ(weft_chan_send(gate[i], NULL, WEFT_POLL), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    int most = 0;
    for (int i = 1; i < WAITERS; i++) { /* the first is the last that was woken: it was in `next` */
        int ahead = order[i] - (i - 1), far = ahead < 0 ? -ahead : ahead;
        if (far > most) most = far;
    }
    printf("at most %d places from its own\n", most);
    CHECK_LT(most, WEFT_RING / 2); /* at a look one of the global queue comes first */
    for (int i = 0; i < WAITERS; i++) weft_chan_unref(gate[i]);
    return 0;
}
TEST(age, started_tasks_run_in_order_also_where_the_ring_is_too_small) { CHECK_EQ(run_on(1, wake_in_order, NULL), 0); }

/* ---- deadlines ---- */

enum { CHILDREN = 5 };
static struct {
    int clients;
    int64_t work, until;
    int64_t worst; /* how late a scope ended */
    atomic_int alive;
} load;

static int child(void *arg) {
    (void)arg;
    if (weft_cancelled()) {
        compute(WEFT_US / 2);
        return WEFT_ECANCELED;
    }
    compute(load.work);
    if (weft_sleep_for(10 * WEFT_MS) < 0) return WEFT_ECANCELED;
    compute(load.work);
    return 0;
}

/* Again and again: children that compute, sleep, compute, in a scope of 30 ms. */
static int client(void *arg) {
    (void)arg;
    while (weft_now() < load.until) {
        weft_scope s;
        int64_t end = weft_now() + 30 * WEFT_MS;
        weft_scope_begin(&s, &(weft_scope_opts){.deadline = weft_at(end)});
        for (int i = 0; i < CHILDREN; i++)
            if (weft_spawn(&s, child, NULL)) break; /* it is over already */
        int err = weft_scope_end(&s);
        CHECK(err == 0 || err == WEFT_ETIMEDOUT);
        if (weft_now() - end > load.worst) load.worst = weft_now() - end;
        compute(WEFT_US);
    }
    atomic_fetch_sub(&load.alive, 1);
    return 0;
}

/* With nothing else to do the clock moves on. */
static int tick(void *arg) {
    (void)arg;
    while (atomic_load(&load.alive)) {
        compute(100 * WEFT_US);
        weft_yield();
    }
    return 0;
}

static int keep_deadlines(void *arg) {
    (void)arg;
    weft_scope s;
    load.until = weft_now() + 2 * WEFT_SECOND;
    load.worst = 0;
    atomic_store(&load.alive, load.clients);
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn_opts(&s, tick, NULL, &(weft_task_opts){.priority = WEFT_PRIORITY_LOW}), 0);
    for (int i = 0; i < load.clients; i++) CHECK_EQ(weft_spawn(&s, client, NULL), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    printf("%d clients, %lld us of work: %lld ms late at worst\n", load.clients, (long long)(load.work / WEFT_US),
           (long long)(load.worst / WEFT_MS));
    CHECK_LT(load.worst, 120 * WEFT_MS);
    return 0;
}

static void overload(int clients, int64_t work) {
    load.clients = clients;
    load.work = work;
    run_fake_alone(keep_deadlines);
}
TEST_T(age, under_overload_scopes_end_soon_after_their_deadlines, 120) {
    overload(250, 20 * WEFT_US);
    overload(1000, 20 * WEFT_US);
    overload(250, 200 * WEFT_US);
}
