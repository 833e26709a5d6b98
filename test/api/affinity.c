/* SPDX-License-Identifier: MIT */
/* Where a woken task runs: woken from outside, on the slot where it ran last, if that is idle; else on one of those that are, by turns. */
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
static int ring_each(const weft_task_opts *opts) {
    weft_task *t[SLOTS];
    int back = 0, v = 0;
    atomic_store(&here, 0);
    for (int i = 0; i < SLOTS; i++) {
        atomic_store(&rung[i], 0);
        CHECK_EQ(weft_task_start(&t[i], answer, as_arg(i), opts), 0);
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
static void goes_back(const weft_task_opts *opts) {
    int n = (int)test_scale(50, 10), back = 0, in_all = 0;
    CHECK_EQ(weft_start(&(weft_config){.workers = SLOTS, .slice = HOUR}), 0);
    for (int i = 0; i < SLOTS; i++) CHECK((bell[i] = weft_chan_new(sizeof(int), 0)));
    for (int i = 0; i == 0 || (i < TEST_ATTEMPTS && test_slow_tools() == 1 && 5 * back <= 2 * in_all); i++) {
        int64_t end = test_long_enough();
        back = in_all = 0;
        for (int k = 0; k == 0 || (k < n && test_clock_ns() < end); k++, in_all += SLOTS) back += ring_each(opts);
        printf("%d of %d\n", back, in_all);
    }
    if (test_slow_tools() == 1) CHECK_GT(5 * back, 2 * in_all);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    for (int i = 0; i < SLOTS; i++) weft_chan_unref(bell[i]);
}
TEST(affinity, a_task_woken_from_outside_goes_back_to_its_last_slot) { goes_back(NULL); }
TEST(affinity, one_of_high_priority_goes_back_as_well) { goes_back(&(weft_task_opts){.priority = WEFT_PRIORITY_HIGH}); }

/* ---- by turns ---- */

static int note_slot(void *arg) {
    atomic_store((atomic_int *)arg, slot_now());
    return 0;
}

/* With every slot idle, and nobody on his way: which one a new task from outside is given. */
static int slot_of_a_new_one(void) {
    atomic_int where = -1;
    test_until(all_idle, NULL);
    CHECK_EQ(weft_block_on(note_slot, &where), 0);
    return atomic_load(&where);
}

/* The next one each time; a worker that naps may come first with another slot, so not always. The last to become idle would be the same one each
 * time, and one by chance the next in a quarter of the cases. */
TEST(affinity, what_has_no_slot_to_go_back_to_takes_them_by_turns) {
    int n = (int)test_scale(400, 40), next = 0, seen[SLOTS] = {0};
    CHECK_EQ(weft_start(&(weft_config){.workers = SLOTS, .slice = HOUR}), 0);
    for (int i = 0; i == 0 || (i < TEST_ATTEMPTS && test_slow_tools() == 1 && 2 * next <= n); i++) {
        next = 0;
        for (int k = 0, last = slot_of_a_new_one(); k < n; k++) {
            int s = slot_of_a_new_one();
            next += s == (last + 1) % SLOTS;
            seen[s]++;
            last = s;
        }
        printf("%d of %d in turn\n", next, n);
    }
    if (test_slow_tools() == 1) CHECK_GT(2 * next, n);
    for (int i = 0; i < SLOTS; i++) CHECK_MSG(seen[i] > 0, "slot %d never", i);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
}

static bool all_idle_of_two(void *arg) {
    (void)arg;
    return atomic_load(&weft__rt.idle) == 2;
}

static int stay_there(void *arg) {
    (void)arg;
    atomic_store(&at[1], slot_now());
    atomic_store(&here, 1);
    while (!atomic_load(&rung[0])) __asm__ volatile("");
    return 0;
}

static weft_task *started(weft_fn *fn, int come) {
    weft_task *t;
    CHECK_EQ(weft_task_start(&t, fn, NULL, NULL), 0);
    thread_wait(&here, come);
    return t;
}

/* A task waits for the bell, and another keeps its slot busy until it has come. True: somebody was woken for it at once. */
static bool ring_while_busy(void) {
    int v = 0;
    uint64_t takeovers = atomic_load(&weft__rt.takeovers);
    atomic_store(&here, SLOTS - 1);
    atomic_store(&rung[0], 0);
    weft_task *t = started(answer, SLOTS), *busy = NULL;
    test_until(all_idle_of_two, NULL);
    for (bool there = false; !there;) {
        atomic_store(&here, 0);
        busy = started(stay_there, 1);
        there = atomic_load(&at[1]) == atomic_load(&at[0]);
        if (there) break;
        atomic_store(&rung[0], 1); /* the other slot: once more */
        CHECK_EQ(weft_task_join(busy, NULL, WEFT_FOREVER), 0);
        test_until(all_idle_of_two, NULL);
        atomic_store(&rung[0], 0);
    }
    uint64_t before = atomic_load(&weft__rt.foreign_wakes);
    CHECK_EQ(weft_chan_send(bell[0], &v, WEFT_FOREVER), 0);
    bool woken = atomic_load(&weft__rt.foreign_wakes) > before;
    CHECK_EQ(weft_task_join(t, NULL, WEFT_FOREVER), 0);
    if (atomic_load(&weft__rt.takeovers) == takeovers)
        CHECK_EQ(atomic_load(&at[0]), -1); /* elsewhere, if nobody took the slot from the busy one */
    CHECK_EQ(weft_task_join(busy, NULL, WEFT_FOREVER), 0);
    return woken;
}

/* Its slot is busy: it runs elsewhere, and need not wait until that is free. If nobody searches anyhow, somebody is woken. */
TEST(affinity, a_task_whose_slot_is_busy_runs_elsewhere) {
    int woken = 0;
    int64_t end = test_long_enough();
    CHECK_EQ(weft_start(&(weft_config){.workers = 2, .slice = HOUR}), 0);
    CHECK((bell[0] = weft_chan_new(sizeof(int), 1)));
    for (long i = test_scale(50, 10); !woken || (i > 0 && test_clock_ns() < end); i--)
        woken += ring_while_busy(); /* one was, at some time */
    printf("%d woken\n", woken);
    weft_chan_unref(bell[0]);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
}
