/* SPDX-License-Identifier: MIT */
/* The queues of a slot and the global ones, without a runtime: slots and tasks are made by hand. */
#include "test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "sched/runq.h"

enum { SLOTS = 4, TASKS = 2048 };

static weft__slot slots[SLOTS];
static weft__task tasks[TASKS];
static weft__fresh fresh[TASKS];
#define A (&slots[0])
#define B (&slots[1])

static void set_up(int n) {
    weft__rt.slot = slots;
    weft__rt.slots = n;
    weft__rt.many = n > 1;
}

/* Where queues begin to count: their counters wrap. */
static const uint32_t starts[] = {0, 1, UINT32_MAX - 100};
static void start_at(weft__slot *s, uint32_t at) {
    s->head = s->tail = s->top = s->bottom = at;
    s->deque_top_seen = s->ring_old = at;
}
/* Body for one slot and for several, and for each start. */
#define EACH_CASE(body)                                                                                                        \
    for (int n = 1; n <= 2; n++)                                                                                               \
        for (size_t at = 0; at < weft__countof(starts); at++) {                                                                \
            set_up(n);                                                                                                         \
            start_at(A, starts[at]);                                                                                           \
            start_at(B, starts[at]);                                                                                           \
            body();                                                                                                            \
        }

static long index_of(weft__task *t) { return t ? t - tasks : -1; }
static long fresh_index(weft__fresh *f) { return f ? f - fresh : -1; }
static long index_of_work(weft__work k) {
    return !k ? -1 : weft__is_fresh(k) ? fresh_index(weft__as_fresh(k)) : index_of(weft__as_task(k));
}

static void push(weft__slot *s, int from, int to) {
    for (int i = from; i < to; i++) weft__ring_push(s, &tasks[i]);
}
static void push_fresh(weft__slot *s, int from, int to) {
    for (int i = from; i < to; i++) weft__deque_push(s, &fresh[i]);
}
static void expect(weft__slot *s, int from, int to) {
    for (int i = from; i < to; i++) CHECK_EQ(index_of(weft__ring_pop(s)), i);
}

/* ---- ring ---- */

static void ring_fifo(void) {
    CHECK_EQ(index_of(weft__ring_pop(A)), -1);
    push(A, 0, WEFT_RING);
    CHECK_EQ(weft__rt.started.count, 0);
    expect(A, 0, 100);
    push(A, WEFT_RING, WEFT_RING + 100);
    expect(A, 100, WEFT_RING + 100);
    CHECK_EQ(index_of(weft__ring_pop(A)), -1);
    CHECK_EQ(weft__rt.started.count, 0);
}

TEST(runq, the_ring_is_first_in_first_out) { EACH_CASE(ring_fifo); }

/* The global queue's tasks from `from` to `to`, in this order; returns how far it came. */
static weft__task *expect_chain(weft__task *t, int from, int to) {
    for (int i = from; i < to; i++, t = t->link) CHECK_EQ(index_of(t), i);
    return t;
}

/* In the ring those stay that came first; behind them, in the global queue, the others wait in their order. */
static void ring_overflow(void) {
    push(A, 0, WEFT_RING + 1);
    CHECK_EQ(weft__rt.started.count, WEFT_RING / 2 + 1);
    CHECK_PTR(expect_chain(weft__rt.started.head, WEFT_RING / 2, WEFT_RING + 1), NULL);
    push(A, WEFT_RING + 1, 3 * WEFT_RING / 2 + 2); /* full again, and one more */
    CHECK_EQ(weft__rt.started.count, WEFT_RING + 2);
    CHECK_PTR(expect_chain(weft__rt.started.head, WEFT_RING / 2, 3 * WEFT_RING / 2 + 2), NULL);
    CHECK_PTR(weft__rt.started.tail, &tasks[3 * WEFT_RING / 2 + 1]);
    expect(A, 0, WEFT_RING / 2);
    CHECK_EQ(index_of(weft__ring_pop(A)), -1);
    weft__rt.started = (weft__inject){0};
}

TEST(runq, a_full_ring_moves_its_younger_half_and_the_new_one_to_the_global_queue) { EACH_CASE(ring_overflow); }

/* A look at the global queue: what has come to the ring since the last one goes behind those that wait there. */
static void ring_shed(void) {
    push(A, 0, 50);
    A->ring_old = A->tail; /* a look */
    push(A, 50, 120);
    expect(A, 0, 20);
    A->told = A->tail;
    A->look_head = A->head;
    weft__ring_shed(A, NULL);
    CHECK_EQ(weft__rt.started.count, 70);
    CHECK_PTR(expect_chain(weft__rt.started.head, 50, 120), NULL);
    CHECK_EQ(A->told, A->tail); /* those that were told and are still here */
    CHECK_EQ(A->look_head, A->head);
    weft__ring_shed(A, NULL); /* nothing is young any more */
    CHECK_EQ(weft__rt.started.count, 70);
    expect(A, 20, 50);
    CHECK_EQ(index_of(weft__ring_pop(A)), -1);
    push(A, 120, 130); /* the old ones are gone: all that is there is young */
    weft__ring_shed(A, NULL);
    CHECK_EQ(weft__rt.started.count, 80);
    CHECK_PTR(expect_chain(weft__rt.started.head, 50, 130), NULL);
    CHECK_EQ(index_of(weft__ring_pop(A)), -1);
    weft__rt.started = (weft__inject){0};
}

TEST(runq, what_came_since_the_last_look_goes_behind_those_in_the_global_queue) { EACH_CASE(ring_shed); }

static void steal_half(int n, int want) {
    push(A, 0, n);
    CHECK_EQ(index_of(weft__ring_steal(B, A)), want - 1); /* the newest of them runs at once */
    expect(B, 0, want - 1);
    CHECK_EQ(index_of(weft__ring_pop(B)), -1);
    expect(A, want > 0 ? want : 0, n);
    CHECK_EQ(index_of(weft__ring_pop(A)), -1);
}

TEST(runq, a_thief_takes_half_of_the_ring) {
    set_up(2);
    for (size_t at = 0; at < weft__countof(starts); at++) {
        start_at(A, starts[at]);
        start_at(B, starts[2] + 50);
        uint64_t before = B->steals;
        steal_half(0, 0);
        steal_half(1, 1);
        steal_half(2, 1);
        steal_half(5, 3);
        steal_half(100, 50);
        steal_half(WEFT_RING, WEFT_RING / 2);
        CHECK_EQ(B->steals - before, 1 + 1 + 3 + 50 + WEFT_RING / 2);
    }
}

/* ---- deque ---- */

static void deque_ends(void) {
    CHECK_EQ(fresh_index(weft__deque_take(A)), -1);
    CHECK_EQ(fresh_index(weft__deque_steal(A)), -1);
    push_fresh(A, 0, 200);
    for (int i = 0; i < 50; i++) CHECK_EQ(fresh_index(weft__deque_take(A)), 199 - i);
    for (int i = 0; i < 50; i++) CHECK_EQ(fresh_index(weft__deque_steal(A)), i);
    for (int i = 0; i < 50; i++) { /* by turns */
        CHECK_EQ(fresh_index(weft__deque_steal(A)), 50 + i);
        CHECK_EQ(fresh_index(weft__deque_take(A)), 149 - i);
    }
    CHECK_EQ(fresh_index(weft__deque_take(A)), -1);
    CHECK_EQ(fresh_index(weft__deque_steal(A)), -1);
    push_fresh(A, 7, 8);
    CHECK_EQ(fresh_index(weft__deque_take(A)), 7); /* the last one */
    CHECK_EQ(fresh_index(weft__deque_take(A)), -1);
    push_fresh(A, 8, 9);
    CHECK_EQ(fresh_index(weft__deque_steal(A)), 8);
    CHECK_EQ(fresh_index(weft__deque_take(A)), -1);
}

TEST(runq, the_deque_gives_the_newest_to_its_owner_and_the_oldest_to_thieves) { EACH_CASE(deque_ends); }

static void deque_overflow(void) {
    push_fresh(A, 0, WEFT_DEQUE - 1);
    CHECK_EQ(weft__rt.fresh.count, 0);
    push_fresh(A, WEFT_DEQUE - 1, WEFT_DEQUE);
    CHECK_EQ(weft__rt.fresh.count, WEFT_DEQUE / 2);
    weft__fresh *f = weft__rt.fresh.head;
    for (int i = 0; i < WEFT_DEQUE / 2; i++, f = f->link) CHECK_EQ(fresh_index(f), i);
    CHECK_PTR(f, NULL);
    for (int i = WEFT_DEQUE - 1; i >= WEFT_DEQUE / 2; i--) CHECK_EQ(fresh_index(weft__deque_take(A)), i);
    CHECK_EQ(fresh_index(weft__deque_take(A)), -1);
    weft__rt.fresh = (weft__inject){0};
}

TEST(runq, a_full_deque_moves_its_oldest_half_to_the_global_queue) { EACH_CASE(deque_overflow); }

/* ---- global queues ---- */

static void inject(int n) {
    for (int i = 0; i < n; i++) weft__inject_task(&tasks[i]);
    for (int i = 0; i < n; i++) weft__inject_fresh(&fresh[i]);
}

/* Takes from both queues; `want` come, the first of them at once. */
static void take_share(int from, uint32_t max, int want) {
    CHECK_EQ(index_of_work(weft__inject_take_tasks(A, max)), from);
    expect(A, from + 1, from + want);
    CHECK_EQ(index_of(weft__ring_pop(A)), -1);
    CHECK_EQ(index_of_work(weft__inject_take_fresh(A, max)), from);
    for (int i = 1; i < want; i++) CHECK_EQ(fresh_index(weft__deque_steal(A)), from + i);
    CHECK_EQ(fresh_index(weft__deque_steal(A)), -1);
}

TEST(runq, a_slot_takes_its_share_of_the_global_queues_in_order) {
    set_up(4);
    inject(200);
    take_share(0, 128, 50);
    take_share(50, 10, 10); /* no more than asked for */
    set_up(1);
    take_share(60, 128, 128);
    take_share(188, 128, 12);
    CHECK_EQ(weft__inject_take_tasks(A, 128), 0);
    CHECK_EQ(weft__inject_take_fresh(A, 128), 0);
    set_up(4);
    inject(1);
    take_share(0, 128, 1); /* less than a share is one */
    CHECK(!weft__rt.started.head && !weft__rt.started.tail && !weft__rt.fresh.head && !weft__rt.fresh.tail);
}

/* ---- races ---- */

static struct {
    long n;
    atomic_int *taken; /* how often each was */
    atomic_long total;
    weft__fresh *fresh;
    weft__task *tasks;
} race;

static void took(long i) {
    CHECK_MSG(atomic_fetch_add(&race.taken[i], 1) == 0, "%ld was taken twice", i);
    atomic_fetch_add(&race.total, 1);
}

static bool all_taken(void) { return atomic_load(&race.total) >= race.n; }

static void *steal_fresh(void *arg) {
    (void)arg;
    while (!all_taken()) {
        weft__fresh *f = weft__deque_steal(A);
        if (f) took(f - race.fresh);
    }
    return NULL;
}

/* The owner's deque has one to three entries most of the time: the last one is what all fight for. It takes with a store before it
 * that misses the cache, behind which its own store to `bottom` has to wait. */
enum { FAR = 16 << 20 };
static char far_away[FAR];

static void own_deque(uint64_t *state) {
    for (long i = 0; i < race.n;) {
        for (uint64_t k = test_below(state, 3) + 1; k > 0 && i < race.n; k--) weft__deque_push(A, &race.fresh[i++]);
        for (uint64_t k = test_below(state, 4); k > 0; k--) {
            far_away[test_below(state, FAR)] = 1;
            weft__compiler_barrier();
            weft__fresh *f = weft__deque_take(A);
            if (f) took(f - race.fresh);
        }
    }
    for (weft__fresh *f; (f = weft__deque_take(A));) took(f - race.fresh);
}

/* From the global queue, where the overflow went. */
static void drain_global(void) {
    weft__work k;
    while ((k = weft__inject_take_fresh(A, 1))) took(weft__as_fresh(k) - race.fresh);
    while ((k = weft__inject_take_tasks(A, 1))) took(weft__as_task(k) - race.tasks);
}

static void open_race(long n) {
    set_up(SLOTS);
    race.n = n;
    race.taken = calloc((size_t)n, sizeof *race.taken);
    race.fresh = calloc((size_t)n, sizeof *race.fresh);
    race.tasks = calloc((size_t)n, sizeof *race.tasks);
    CHECK(race.taken && race.fresh && race.tasks);
}
static void close_race(pthread_t *t, int threads) {
    for (int i = 0; i < threads; i++) pthread_join(t[i], NULL);
    for (long i = 0; i < race.n; i++) CHECK_MSG(atomic_load(&race.taken[i]) == 1, "%ld was not taken", i);
    CHECK_EQ(atomic_load(&race.total), race.n);
    free(race.taken);
    free(race.fresh);
    free(race.tasks);
}

TEST(runq, owner_and_thieves_take_each_fresh_task_once) {
    pthread_t t[2];
    open_race(test_scale(1000000, 30000) / 2);
    uint64_t state = test_random();
    start_at(A, UINT32_MAX - 1000);
    for (int i = 0; i < 2; i++) CHECK_EQ(pthread_create(&t[i], NULL, steal_fresh, NULL), 0);
    own_deque(&state);
    drain_global();
    close_race(t, 2);
}

/* Steals into a slot of its own, from the owner or from the other thief, and works some of it off. */
static void *steal_tasks(void *arg) {
    weft__slot *me = arg;
    uint64_t state = test_seed() + (uint64_t)me->index;
    while (!all_taken()) {
        weft__slot *victim = &slots[test_below(&state, SLOTS - 1)];
        weft__task *t = victim == me ? NULL : weft__ring_steal(me, victim);
        if (!t) continue;
        took(t - race.tasks);
        while ((t = weft__ring_pop(me))) took(t - race.tasks);
    }
    return NULL;
}

/* Few entries most of the time, and often more than the ring holds. */
static void own_ring(uint64_t *state) {
    for (long i = 0; i < race.n;) {
        uint64_t burst = test_below(state, 4) ? test_below(state, 3) + 1 : test_below(state, 2 * WEFT_RING);
        for (; burst > 0 && i < race.n; burst--) weft__ring_push(A, &race.tasks[i++]);
        for (uint64_t k = test_below(state, 4); k > 0; k--) {
            weft__task *t = weft__ring_pop(A);
            if (t) took(t - race.tasks);
        }
        if (test_below(state, 10) == 0) drain_global();
        if (test_below(state, 10) == 0) weft__ring_shed(A, NULL);
        if (test_below(state, 20) == 0) A->ring_old = A->tail;
    }
    for (weft__task *t; (t = weft__ring_pop(A));) took(t - race.tasks);
    drain_global();
}

TEST(runq, owner_and_thieves_take_each_started_task_once) {
    pthread_t t[2];
    open_race(test_scale(200000, 10000));
    uint64_t state = test_random();
    start_at(A, UINT32_MAX - 1000);
    for (int i = 0; i < 2; i++) {
        slots[i + 1].index = i + 1;
        CHECK_EQ(pthread_create(&t[i], NULL, steal_tasks, &slots[i + 1]), 0);
    }
    own_ring(&state);
    close_race(t, 2);
}
