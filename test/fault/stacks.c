/* SPDX-License-Identifier: MIT */
/* Stacks when the kernel refuses: address space, guards, advice. What waits for a stack gets one in the end. */
#include <unistd.h>

#include "fault/common.h"
#include "sched/trim.h"
#include "stack/stack.h"

static atomic_int ran;

static int yield_and_count(void *arg) {
    weft_yield();
    atomic_fetch_add(&ran, 1);
    return (int)(intptr_t)arg;
}

/* ---- no room for stacks ---- */

enum { ACCEPTED = 100 };

static bool some_wait(void *arg) {
    (void)arg;
    return weft__fault_calls() >= 20; /* workers have asked for a stack again and again */
}

/* As with overcommit_memory = 2, or at the end of RLIMIT_AS: what was accepted waits, a nap of a millisecond at a time, and runs when
 * there is room; meanwhile new ones are refused. */
TEST(fault_stacks, accepted_tasks_wait_for_a_stack_and_lose_nothing) {
    EACH_WORKERS(w) {
        CHECK_EQ(set_up(w), 0);
        atomic_store(&ran, 0);
        weft_task_opts o = {.name = "fresh class", .stack_size = 2 << 20}; /* none of these is there yet */
        weft_task *t[ACCEPTED];
        weft__fault_arm(0, false);
        int accepted = 0;
        weft__fault_arm(1, true);
        for (; accepted < ACCEPTED; accepted++)
            if (weft_task_start(&t[accepted], yield_and_count, as_arg(accepted), &o) != 0) break;
        test_until(some_wait, NULL);
        long seen = weft__fault_calls();
        while (weft__fault_calls() < seen + 10) usleep(1000); /* tried more than once */
        CHECK_EQ(atomic_load(&ran), 0);
        weft_task *no = NULL;
        int rc = weft_task_start(&no, yield_and_count, NULL, &o);
        CHECK_MSG(rc == WEFT_ENOMEM || rc == 0, "%d", rc);
        weft__fault_arm(0, false);
        for (int i = 0; i < accepted; i++) {
            int result = -1;
            CHECK_EQ(weft_task_join(t[i], &result, WEFT_FOREVER), 0);
            CHECK_EQ(result, i);
        }
        if (rc == 0) CHECK_EQ(weft_task_join(no, NULL, WEFT_FOREVER), 0);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    }
}

/* ---- scarce addresses ---- */

TEST(fault_stacks, strict_overcommit_is_seen) {
    char path[] = "/tmp/weft-test-XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    CHECK_EQ(write(fd, "2\n", 2), 2);
    CHECK(weft__vm_scarce(path));
    CHECK_EQ(pwrite(fd, "0\n", 2, 0), 2);
    CHECK(!weft__vm_scarce(path));
    CHECK(!weft__vm_scarce("/nonexistent"));
    close(fd);
    unlink(path);
}

/* ---- advice that the kernel refuses ---- */

static __attribute__((noinline)) unsigned char dig(size_t bytes) {
    volatile unsigned char frame[1024];
    frame[bytes % 1024] = (unsigned char)bytes;
    unsigned char below = bytes > 1100 ? dig(bytes - 1100) : 0;
    return (unsigned char)(below + frame[bytes % 1024]);
}

static atomic_int here;

static int dig_and_wait(void *arg) {
    (void)dig(150 * 1000);
    atomic_fetch_add(&here, 1);
    return weft_chan_recv(arg, NULL, WEFT_FOREVER) == WEFT_ECLOSED ? 0 : 1;
}

static bool trimmed(void *arg) {
    weft_stats st;
    weft_stats_get(&st);
    return st.stack_trims >= *(uint64_t *)arg;
}

TEST(fault_stacks, trimming_that_fails_does_no_harm) {
    weft__trim_later = 0;
    for (long n = 1; n <= test_scale(30, 10); n++) {
        uint64_t want = 4; /* at least some of them, in spite of it */
        weft_chan *gate = weft_chan_new(0, 0);
        atomic_store(&here, 0);
        CHECK_EQ(set_up(2), 0);
        for (int i = 0; i < 8; i++) CHECK_EQ(weft_go(dig_and_wait, gate), 0);
        weft__fault_arm(n, false);
        thread_wait(&here, 8);
        for (int i = 0; i < 3; i++) (void)weft_block_on(return_int, NULL);
        test_until(trimmed, &want);
        weft__fault_arm(0, false);
        CHECK_EQ(weft_chan_close(gate), 0);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
        weft_chan_unref(gate);
    }
}

static int measure_some(void *arg) {
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 20; i++) CHECK_EQ(weft_spawn(&s, yield_and_count, NULL), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    return (int)(intptr_t)arg;
}

TEST(fault_stacks, measuring_that_fails_does_no_harm) {
    for (long n = 1; n <= test_scale(40, 10); n++) {
        weft_config cfg = {0};
        cfg.workers = 2;
        cfg.flags = n % 2 ? WEFT_STACK_MEASURE : WEFT_STACK_ADVISED;
        CHECK_EQ(weft_start(&cfg), 0);
        weft__fault_arm(n, false);
        int rc = weft_block_on(measure_some, as_arg(3));
        weft__fault_arm(0, false);
        CHECK_MSG(rc == 3 || is_fault(rc), "%d", rc);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    }
}
