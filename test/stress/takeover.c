/* SPDX-License-Identifier: MIT */
/* Slots are taken away at random from workers that are outside the runtime, while their tasks go in and out of it as fast as they can.
 * Nothing may be lost and no slot may have two owners. The build also makes this program with the protocol mutated
 * (WEFT_MUTANT_…): those must fail. */
#include "slices.h"
#include "stress/taker.h"

#include <weft.h>

enum { TAKE_EVERY = 32 }; /* rounds, on average */

static struct {
    _Atomic long ended;
    long rounds;
} st;

/* User code of varying length between runtime calls: this is where slots are lost. Its last act is a store that misses the cache,
 * behind which the entry's own store has to wait in the store buffer. */
enum { FAR = 32 << 20 };
static char far_away[FAR];
static void outside(uint64_t *state) {
    uint64_t n = test_below(state, test_below(state, 32) ? 128 : 20000);
    for (uint64_t i = 0; i < n; i++) __asm__ volatile("");
    far_away[test_below(state, FAR)] = 1;
}

static int nothing(void *arg) {
    (void)arg;
    return 0;
}

static int busy(void *arg) {
    weft_chan *c = arg;
    uint64_t state = weft_self() * 77 + test_seed();
    for (long i = 0; i < st.rounds; i++) {
        outside(&state);
        if (test_below(&state, TAKE_EVERY) == 0) (void)take_a_slot(&state);
        switch (test_below(&state, 32)) {
        case 0:
            weft_yield();
            break;
        case 1: {
            weft_scope s;
            weft_scope_begin(&s, NULL);
            CHECK_EQ(weft_spawn(&s, nothing, NULL), 0);
            CHECK_EQ(weft_scope_end(&s), 0);
            break;
        }
        case 2:
            CHECK_EQ(weft_chan_send(c, &i, WEFT_FOREVER), 0);
            break;
        case 3:
            weft_sleep_for(1);
            break;
        default:
            (void)weft_chan_len(c);
            break;
        }
    }
    atomic_fetch_add(&st.ended, 1);
    return 0;
}

static int drain(void *arg) {
    long v;
    WEFT_CHAN_EACH((weft_chan *)arg, &v) {}
    return 0;
}

static int many_tasks(void *arg) {
    long n = (long)(intptr_t)arg;
    weft_chan *c = weft_chan_new(sizeof(long), 4);
    weft_scope all, readers;
    weft_scope_begin(&readers, NULL);
    weft_scope_begin(&all, NULL);
    CHECK_EQ(weft_spawn(&readers, drain, c), 0);
    for (long i = 0; i < n; i++) CHECK_EQ(weft_spawn(&all, busy, c), 0);
    CHECK_EQ(weft_scope_end(&all), 0);
    weft_chan_close(c);
    CHECK_EQ(weft_scope_end(&readers), 0);
    weft_chan_unref(c);
    return 0;
}

static void run(int slots, long tasks, long rounds) {
    st.rounds = rounds;
    atomic_store(&st.ended, 0);
    CHECK_EQ(weft_start(&(weft_config){.workers = slots, .max_threads = 64, .slice = 200 * WEFT_US}), 0);
    taker_start();
    CHECK_EQ(weft_block_on(many_tasks, (void *)(intptr_t)tasks), 0);
    taker_stop(slots, tasks * rounds / TAKE_EVERY / slots / 4); /* as often at least as they come upon their own */
    CHECK_EQ(atomic_load(&st.ended), tasks);
    while (!weft__idle_all()) sched_yield();
    CHECK_EQ(slices_that_differ(), 0); /* H11: nobody sleeps as one that computes */
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
}

TEST(takeover, tasks_survive_slots_being_taken_from_one_slot) { run(1, 4, test_scale(60000, 2000)); }
TEST(takeover, tasks_survive_slots_being_taken_from_two_slots) { run(2, 8, test_scale(40000, 2000)); }
TEST(takeover, tasks_survive_slots_being_taken_from_eight_slots) { run(8, 32, test_scale(20000, 500)); }

/* A task that computes without calling the runtime loses its slot; the others go on; it gets a slot again. */
static int wait_for_flag(void *arg) {
    while (!atomic_load((_Atomic bool *)arg)) __asm__ volatile("");
    weft_yield();
    return 0;
}
static int set_flag(void *arg) {
    atomic_store((_Atomic bool *)arg, true);
    return 0;
}

TEST(takeover, a_computing_task_loses_its_slot_to_the_others_and_goes_on) {
    static _Atomic bool flag;
    CHECK_EQ(weft_start(&(weft_config){.workers = 1}), 0);
    CHECK_EQ(weft_go(wait_for_flag, (void *)&flag), 0);
    CHECK_EQ(weft_go(set_flag, (void *)&flag), 0);
    weft_stats s;
    do {
        weft__slot_take(&weft__rt.slot[0]);
        weft_stats_get(&s);
    } while (!atomic_load(&flag));
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
}
