/* SPDX-License-Identifier: MIT */
/* Where a woken task runs: woken from outside, on the slot where it ran last, if that is idle. */
#include "api/common.h"
#include "sched/sched.h"
#include "sched/switch.h"

enum { SLOTS = 4 };

static weft_chan *bell[SLOTS];
static atomic_int at[SLOTS], here, rung[SLOTS];

static int slot_now(void) {
    weft__slot *s = weft__enter();
    int index = s->index;
    weft__leave();
    return index;
}

/* All meet first, each on a slot of its own: none goes on before all have come. */
static int answer(void *arg) {
    int me = (int)(intptr_t)arg, v;
    atomic_fetch_add(&here, 1);
    while (atomic_load(&here) < SLOTS) __asm__ volatile("");
    atomic_store(&at[me], slot_now());
    CHECK_EQ(weft_chan_recv(bell[me], &v, WEFT_FOREVER), 0);
    if (slot_now() != atomic_load(&at[me])) atomic_store(&at[me], -1);
    atomic_store(&rung[me], 1);
    return 0;
}

static bool all_idle(void *arg) {
    (void)arg;
    return atomic_load(&weft__rt.idle) == SLOTS;
}

/* How many of the tasks were back on their slot when a plain thread had woken them. */
static int ring_each(void) {
    weft_task *t[SLOTS];
    int back = 0, v = 0;
    atomic_store(&here, 0);
    for (int i = 0; i < SLOTS; i++) {
        atomic_store(&rung[i], 0);
        CHECK_EQ(weft_task_start(&t[i], answer, as_arg(i), NULL), 0);
    }
    thread_wait(&here, SLOTS);
    for (int i = 0; i < SLOTS; i++) {
        test_until(all_idle, NULL);
        CHECK_EQ(weft_chan_send(bell[i], &v, WEFT_FOREVER), 0);
        thread_wait(&rung[i], 1);
        back += atomic_load(&at[i]) >= 0;
    }
    for (int i = 0; i < SLOTS; i++) CHECK_EQ(weft_task_join(t[i], NULL, WEFT_FOREVER), 0);
    return back;
}

/* One that naps may come first, with another slot, and a task that was long in coming may have lost its own; so not all of them. Without a
 * preference it is one of four. */
TEST(affinity, a_task_woken_from_outside_goes_back_to_its_last_slot) {
    int n = (int)test_scale(50, 10), back = 0;
    CHECK_EQ(weft_start(&(weft_config){.workers = SLOTS, .slice = HOUR}), 0);
    for (int i = 0; i < SLOTS; i++) CHECK((bell[i] = weft_chan_new(sizeof(int), 0)));
    for (int i = 0; i < n; i++) back += ring_each();
    printf("%d of %d\n", back, SLOTS * n);
    if (test_slow_tools() == 1) CHECK_GT(5 * back, 2 * SLOTS * n);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    for (int i = 0; i < SLOTS; i++) weft_chan_unref(bell[i]);
}
