/* SPDX-License-Identifier: MIT */
/* Stacks are trimmed all the time, by the sentry and by a thread that does nothing else, while their tasks go deep, wait in every way
 * and are woken at once: nothing of a stack in use may go, and no wake-up may be lost. */
#include "api/common.h"
#include "sched/trim.h"
#include "task/task.h"

static atomic_int enough;

/* What weft__trim does with a task that waits. */
static void *trim_for_ever(void *arg) {
    long *held = arg;
    while (!atomic_load(&enough)) {
        weft__stack_walk walk = {0};
        weft__foreign_enter();
        weft__stack *st;
        while (weft__runtime_phase() >= WEFT_PHASE_RUNNING && (st = weft__stack_next(&walk))) {
            weft__task *t = weft__stack_head(st);
            weft__stack_depth depth;
            bool deep = weft__stack_is_deep(st, &depth);
            weft__lock *l = weft__hold(&t->b); /* also if there is nothing to be had: holding must do no harm */
            if (!l) continue;
            ++*held;
            while (deep && weft__stack_trim(st, t->sp, &depth)) continue;
            weft__unhold(&t->b, l);
        }
        weft__foreign_leave();
        sched_yield();
    }
    return NULL;
}

/* Frames of a known pattern down to `depth`, at the bottom of which fn(arg) runs; checked on the way back. */
static __attribute__((noinline)) int below(int depth, int (*fn)(void *), void *arg) {
    volatile uint64_t frame[64];
    uint64_t seed = (uintptr_t)frame ^ (uint64_t)depth;
    for (int i = 0; i < 64; i++) frame[i] = seed + (uint64_t)i;
    int rc = depth > 0 ? below(depth - 1, fn, arg) : fn(arg);
    for (int i = 0; i < 64; i++) CHECK_EQ(frame[i], seed + (uint64_t)i);
    return rc;
}

static int nothing(void *arg) {
    (void)arg;
    return 0;
}

static weft_chan *ring_of[8];
static atomic_long moved;
static atomic_int ended;

struct hop {
    weft_chan *in, *out;
    uint64_t seed;
    long rounds;
};

static int wait_once(void *arg) {
    struct hop *h = arg;
    uint64_t how = test_below(&h->seed, 5);
    int v = 0;
    if (how == 0) CHECK_EQ(weft_sleep_for((int64_t)test_below(&h->seed, 50) * WEFT_US), 0);
    if (how == 1) {
        int rc = weft_chan_recv(h->in, &v, weft_after((int64_t)test_below(&h->seed, 50) * WEFT_US));
        if (rc == WEFT_ETIMEDOUT) return 0;
        CHECK_EQ(rc, 0);
    } else if (how == 2) {
        CHECK_EQ(weft_select(WEFT_FOREVER, weft_on_recv(h->in, &v, NULL), weft_on_recv(NULL, NULL, NULL)), 0);
    } else {
        CHECK_EQ(weft_chan_recv(h->in, &v, WEFT_FOREVER), 0);
    }
    atomic_fetch_add(&moved, 1);
    v++;
    if (how == 3)
        CHECK_EQ(weft_select(WEFT_FOREVER, weft_on_send(h->out, &v)), 0);
    else
        CHECK_EQ(weft_chan_send(h->out, &v, WEFT_FOREVER), 0);
    return 0;
}

/* Deep and back, then a wait at some depth: the part below may go, the part above must stay. */
static int hop(void *arg) {
    struct hop *h = arg;
    for (long i = 0; i < h->rounds; i++) {
        if (test_below(&h->seed, 4) == 0) (void)below(20 + (int)test_below(&h->seed, 200), nothing, NULL);
        CHECK_EQ(below((int)test_below(&h->seed, 40), wait_once, h), 0);
    }
    atomic_fetch_add(&ended, 1);
    return 0;
}

static int carousel(void *arg) {
    long *rounds = arg;
    weft_scope s;
    struct hop h[8];
    atomic_store(&ended, 0);
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 8; i++) ring_of[i] = weft_chan_new(sizeof(int), 8); /* room for every token: nobody waits for ever */
    for (int i = 0; i < 4; i++) CHECK_EQ(weft_chan_send(ring_of[2 * i], &(int){0}, WEFT_FOREVER), 0);
    for (int i = 0; i < 8; i++) {
        h[i] = (struct hop){ring_of[i], ring_of[(i + 1) % 8], test_random(), *rounds};
        CHECK_EQ(weft_spawn(&s, hop, &h[i]), 0);
    }
    (void)weft_sleep_for(WEFT_MS);
    while (atomic_load(&ended) < 8) { /* who is done leaves the ring: from then on tokens come, and go, from here */
        for (int i = 0; i < 8; i++) {
            (void)weft_chan_try_send(ring_of[i], &(int){0});
            if (weft_chan_len(ring_of[i]) > 4) (void)weft_chan_try_recv(ring_of[i], NULL);
        }
        CHECK_EQ(weft_sleep_for(100 * WEFT_US), 0);
    }
    CHECK_EQ(weft_scope_end(&s), 0);
    for (int i = 0; i < 8; i++) weft_chan_unref(ring_of[i]);
    return 0;
}

static void run_trimmed(int workers) {
    pthread_t t;
    long held = 0, rounds = test_scale(20000, 300);
    weft__trim_later = 0;
    atomic_store(&enough, 0);
    CHECK_EQ(set_up(workers), 0);
    CHECK_EQ(pthread_create(&t, NULL, trim_for_ever, &held), 0);
    CHECK_EQ(weft_block_on(carousel, &rounds), 0);
    atomic_store(&enough, 1);
    pthread_join(t, NULL);
    weft_stats st;
    weft_stats_get(&st);
    printf("%d workers: %ld moves, %ld holds, %llu trims\n", workers, atomic_load(&moved), held,
           (unsigned long long)st.stack_trims);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    CHECK_GT(held, 0);
    CHECK_GT(st.stack_trims, 0);
}

TEST_T(trim_stress, waits_and_stacks_survive_on_one_slot, 120) { run_trimmed(1); }
TEST_T(trim_stress, waits_and_stacks_survive_on_two_slots, 120) { run_trimmed(2); }
TEST_T(trim_stress, waits_and_stacks_survive_on_four_slots, 120) { run_trimmed(4); }
