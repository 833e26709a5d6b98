/* SPDX-License-Identifier: MIT */
/* Both kinds of tasks at once: a hundred thousand that wait, and a thousand with a thread of their own that make C calls. All of them go on, and the
 * memory of all is bounded. */
#include <unistd.h>

#include "api/common.h"

#include <weft/debug.h>

enum { PARKED = 100000, BOUND = 1000, ROUNDS = 10, MOST_KB = 3 << 20 };

static struct {
    weft_chan *items;
    long parked, bound;
    atomic_long received, sent;
    atomic_int begun, ended;
    long kb; /* at the peak */
} st;

/* What the process has in memory, and the kernel for it: resident, and page tables. */
static long memory_kb(void) {
    char line[128];
    long sum = 0, kb;
    FILE *f = fopen("/proc/self/status", "r");
    CHECK(f);
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "VmRSS: %ld", &kb) == 1 || sscanf(line, "VmPTE: %ld", &kb) == 1) sum += kb;
    fclose(f);
    return sum;
}

/* Waits for an item, then for the end. */
static int park(void *arg) {
    int v;
    (void)arg;
    CHECK_EQ(weft_chan_recv(st.items, &v, WEFT_FOREVER), 0);
    atomic_fetch_add(&st.received, 1);
    CHECK_EQ(weft_sleep(WEFT_FOREVER), WEFT_ECANCELED);
    return 0;
}

/* Calls that block, announced and not, and items for the others in between: as many as there are others to each. */
static int call_c(void *arg) {
    long i = (intptr_t)arg, share = st.parked / st.bound + (i < st.parked % st.bound);
    int tid = gettid();
    atomic_fetch_add(&st.begun, 1);
    for (int round = 0; round < ROUNDS; round++) {
        if (round % 2) weft_block_enter();
        usleep(100);
        if (round % 2) weft_block_exit();
        for (long k = share * round / ROUNDS; k < share * (round + 1) / ROUNDS; k++)
            CHECK_EQ(weft_chan_send(st.items, &round, WEFT_FOREVER), 0);
        CHECK_EQ(gettid(), tid);
    }
    if (atomic_fetch_add(&st.ended, 1) + 1 == st.bound) st.kb = memory_kb(); /* all are still there */
    CHECK_EQ(weft_sleep(WEFT_FOREVER), WEFT_ECANCELED);
    return 0;
}

static int both(void *arg) {
    weft_scope s;
    weft_stats stats;
    (void)arg;
    st.items = weft_chan_new(sizeof(int), 0);
    weft_scope_begin(&s, &(weft_scope_opts){.on_error = WEFT_KEEP_GOING});
    for (long i = 0; i < st.parked; i++) CHECK_EQ(weft_spawn(&s, park, NULL), 0);
    for (long i = 0; i < st.bound; i++)
        CHECK_EQ(weft_spawn_opts(&s, call_c, as_arg(i), &(weft_task_opts){.flags = WEFT_BOUND}), 0);
    while (atomic_load(&st.received) < st.parked || atomic_load(&st.ended) < st.bound) CHECK_EQ(weft_sleep_for(WEFT_MS), 0);
    weft_stats_get(&stats);
    CHECK_EQ(stats.bound, st.bound);
    weft_scope_cancel(&s);
    (void)weft_scope_end(&s);
    weft_chan_unref(st.items);
    return 0;
}

TEST_T(hybrid, a_hundred_thousand_parked_and_a_thousand_bound_tasks_go_on, 120) {
    st.parked = test_scale(PARKED, 1000);
    st.bound = test_scale(BOUND, 20);
    if (st.bound > BOUND) st.bound = BOUND;
    CHECK_EQ(weft_run(both, NULL, &(weft_config){.workers = 2}), 0);
    CHECK_EQ(atomic_load(&st.received), st.parked);
    printf("%ld parked, %ld bound: %ld MB\n", st.parked, st.bound, st.kb >> 10);
    if (test_slow_tools() == 1 && st.parked <= PARKED) CHECK_LT(st.kb, MOST_KB);
}
