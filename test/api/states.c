/* SPDX-License-Identifier: MIT */
/* What a task is doing, as others see it: in a call that blocks, computing without its slot, not started. */
#include <unistd.h>

#include "api/common.h"

#include <weft/debug.h>

static char text[8192];
static atomic_int started, stop;
static int ends[2];

static bool dump_says(uint64_t id, const char *state) {
    char key[32], line[256] = "";
    FILE *f = fmemopen(text, sizeof text, "w");
    weft_dump(f);
    fclose(f);
    snprintf(key, sizeof key, "\ntask %llu ", (unsigned long long)id);
    const char *at = strstr(text, key);
    if (at) snprintf(line, sizeof line, "%.*s", (int)strcspn(at + 1, "\n"), at + 1);
    return strstr(line, state) != NULL;
}

static int block_in_a_call(void *arg) {
    char c;
    atomic_fetch_add(&started, 1);
    if (arg) weft_block_enter();
    ssize_t n = read(ends[0], &c, 1); /* the C library's: the runtime knows nothing of it */
    if (arg) weft_block_exit();
    return n == 1 ? 0 : -1;
}

static int blocked_is_seen(void *arg) {
    weft_task *t;
    int result;
    CHECK_EQ(pipe(ends), 0);
    atomic_store(&started, 0);
    CHECK_EQ(weft_task_start(&t, block_in_a_call, arg, NULL), 0);
    while (!atomic_load(&started)) weft_yield(); /* its thread may sleep for a moment before, too */
    while (!dump_says(weft_task_id(t), " blocked ")) weft_yield();
    CHECK_EQ(write(ends[1], "x", 1), 1);
    CHECK_EQ(weft_task_join(t, &result, WEFT_FOREVER), 0);
    CHECK_EQ(result, 0);
    close(ends[0]);
    close(ends[1]);
    return 0;
}

TEST(dump_states, a_task_in_a_call_that_blocks_is_blocked) {
    EACH_WORKERS(w) CHECK_EQ(weft_run(blocked_is_seen, NULL, &(weft_config){.workers = w}), 0);
    EACH_WORKERS(w) CHECK_EQ(weft_run(blocked_is_seen, as_arg(1), &(weft_config){.workers = w}), 0);
}

static int compute(void *arg) {
    (void)arg;
    atomic_fetch_add(&started, 1);
    while (!atomic_load(&stop)) __asm__ volatile("");
    return 0;
}

static int preempted_is_seen(void *arg) {
    weft_task *t;
    (void)arg;
    atomic_store(&stop, 0);
    CHECK_EQ(weft_task_start(&t, compute, NULL, NULL), 0);
    while (!dump_says(weft_task_id(t), " preempted ")) weft_yield(); /* there is one slot, and we are on it */
    atomic_store(&stop, 1);
    return weft_task_join(t, NULL, WEFT_FOREVER);
}

TEST(dump_states, one_that_lost_its_slot_computing_is_preempted) {
    if (test_slow_tools() > 10) test_skip("valgrind lets one thread run at a time: the others look blocked");
    CHECK_EQ(weft_run(preempted_is_seen, NULL, &(weft_config){.workers = 1}), 0);
}

static int count_fresh(void *arg) {
    weft_scope s;
    (void)arg;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 5; i++) CHECK_EQ(weft_spawn(&s, return_int, NULL), 0);
    CHECK(dump_says(weft_self(), " running "));
    CHECK_MSG(strstr(text, ", 5 not started, "), "%s", text);
    return weft_scope_end(&s);
}

TEST(dump_states, those_that_have_not_started_are_counted) { CHECK_EQ(run_on(1, count_fresh, NULL), 0); }
