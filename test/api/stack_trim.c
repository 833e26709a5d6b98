/* SPDX-License-Identifier: MIT */
/* Stacks that were deep once give their memory back while their tasks wait, and when nobody is on them. */
#include <limits.h>
#include <sys/syscall.h>

#include "api/common.h"
#include "sched/trim.h"

enum { DEEP_KB = 180 };
#define TASKS (test_slow_tools() > 1 ? 40 : 200)

/* Uses about `bytes` of stack, every page of it, and returns. */
static __attribute__((noinline)) unsigned char dig(size_t bytes) {
    volatile unsigned char frame[1024];
    frame[bytes % 1024] = (unsigned char)bytes;
    unsigned char below = bytes > 1100 ? dig(bytes - 1100) : 0;
    return (unsigned char)(below + frame[bytes % 1024]);
}

enum { RECV, RECV_DEADLINE, SEND, SELECT, SLEEP, ANY, ROOM, CHILD, SHIELDED, JOIN, WAYS };
static weft_chan *gate, *full;
static atomic_int here, back;

static int join_for_ever(void) {
    weft_task *never;
    CHECK_EQ(weft_task_start(&never, wait_for_ever, NULL, NULL), 0);
    int rc = weft_task_join(never, NULL, WEFT_FOREVER);
    if (rc) weft_task_unref(never);
    return rc;
}

static int any_for_ever(void) {
    weft_task *never[3] = {NULL};
    CHECK_EQ(weft_task_start(&never[0], wait_for_ever, NULL, NULL), 0);
    CHECK_EQ(weft_task_start(&never[2], wait_for_ever, NULL, NULL), 0);
    size_t which = 1;
    int rc = weft_task_any(never, 3, &which, NULL, WEFT_FOREVER);
    if (!rc) never[which] = NULL;
    for (int i = 0; i < 3; i++) weft_task_unref(never[i]);
    return rc;
}

/* For room in a full scope, or for a child's end. */
static int roster_for_ever(bool room) {
    weft_scope s;
    weft_scope_begin(&s, &(weft_scope_opts){.limit = 1, .results = true});
    int rc = weft_spawn(&s, wait_for_ever, NULL);
    if (!rc) rc = room ? weft_spawn(&s, wait_for_ever, NULL) : weft_scope_wait_any(&s, NULL, WEFT_FOREVER);
    (void)weft_scope_end(&s);
    return rc;
}

/* A pass may hold it while the cancellation takes it for nothing, or the shield's time is up. */
static int shielded(void) {
    CHECK_EQ(weft_shield_begin(weft_after(WEFT_MS)), 0);
    int rc = weft_sleep(WEFT_FOREVER);
    weft_shield_end();
    return rc;
}

static int wait_somehow(int how) {
    switch (how) {
    case RECV:
        return weft_chan_recv(gate, NULL, WEFT_FOREVER);
    case RECV_DEADLINE:
        return weft_chan_recv(gate, NULL, weft_after(HOUR));
    case SEND:
        return weft_chan_send(full, NULL, WEFT_FOREVER);
    case SELECT:
        return weft_select(WEFT_FOREVER, weft_on_recv(gate, NULL, NULL), weft_on_send(full, NULL));
    case SLEEP:
        return weft_sleep(WEFT_FOREVER);
    case ANY:
        return any_for_ever();
    case ROOM:
    case CHILD:
        return roster_for_ever(how == ROOM);
    case SHIELDED:
        return shielded();
    default:
        return join_for_ever();
    }
}

/* What is in use must stay, what was in use may go. */
static int dig_and_wait(void *arg) {
    unsigned char mine[600];
    for (size_t i = 0; i < sizeof mine; i++) mine[i] = (unsigned char)(weft_self() + i);
    unsigned char first = dig(DEEP_KB * 1000);
    atomic_fetch_add(&here, 1);
    int rc = wait_somehow((int)(intptr_t)arg);
    CHECK_EQ(dig(DEEP_KB * 1000), first); /* there is room again */
    for (size_t i = 0; i < sizeof mine; i++) CHECK_EQ(mine[i], (unsigned char)(weft_self() + i));
    atomic_fetch_add(&back, 1);
    return rc == 0 ? 0 : WEFT_ECANCELED;
}

static uint64_t trims(void) {
    weft_stats st;
    weft_stats_get(&st);
    return st.stack_trims;
}

static bool trimmed_all(void *arg) {
    (void)arg;
    return trims() >= TASKS;
}

static bool small_again(void *arg) { return test_rss_kb() <= *(long *)arg; }

/* Memory grows when they dig, and goes while they wait. */
static void check_way(int workers, int how) {
    atomic_store(&here, 0);
    atomic_store(&back, 0);
    CHECK_EQ(set_up(workers), 0);
    gate = weft_chan_new(0, 0);
    full = weft_chan_new(0, 0);
    long limit = test_rss_kb() + TASKS * 24 + 1024; /* two pages each or three, one more with canaries, and their tables */
    for (int i = 0; i < TASKS; i++) CHECK_EQ(weft_go(dig_and_wait, as_arg(how)), 0);
    thread_wait(&here, TASKS);
    test_until(trimmed_all, NULL);
    if (test_slow_tools() == 1) test_until(small_again, &limit);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    CHECK_EQ(atomic_load(&back), TASKS);
    weft_chan_unref(gate);
    weft_chan_unref(full);
}

/* Each way takes some tenths of a second of waiting, and more under load. */
TEST_T(stack_trim, a_waiting_task_gives_back_what_it_does_not_use, 300) {
    EACH_WORKERS(w)
    for (int how = 0; how < WAYS; how++) check_way(w, how);
}

/* ---- who runs while others are looked at ---- */

static uint64_t sleeps(void) {
    weft_stats st;
    weft_stats_get(&st);
    return st.sleeps;
}

/* Begins to wait when somebody else's stack was trimmed, and the pass that did it is over: who made it has gone to sleep again. */
static int outlast_a_pass(void *arg) {
    (void)arg;
    (void)dig(DEEP_KB * 1000);
    while (trims() < 1) continue;
    for (uint64_t before = sleeps(); sleeps() < before + 2;) continue;
    return weft_chan_recv(gate, NULL, WEFT_FOREVER) == WEFT_ECLOSED ? 0 : 1;
}

static bool two_trimmed(void *arg) {
    (void)arg;
    return trims() >= 2;
}

TEST(stack_trim, who_runs_during_a_pass_is_looked_at_later) {
    atomic_store(&here, 0);
    CHECK_EQ(set_up(2), 0);
    gate = weft_chan_new(0, 0);
    CHECK_EQ(weft_go(dig_and_wait, as_arg(RECV)), 0);
    thread_wait(&here, 1);
    CHECK_EQ(weft_go(outlast_a_pass, NULL), 0);
    test_until(two_trimmed, NULL); /* although nothing has run since */
    CHECK_EQ(weft_chan_close(gate), 0);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    weft_chan_unref(gate);
}

/* ---- what is in use stays ---- */

static __attribute__((noinline)) int wait_below(size_t bytes) {
    volatile unsigned char frame[1024];
    frame[0] = (unsigned char)bytes;
    int rc = bytes > 1100 ? wait_below(bytes - 1100) : (atomic_fetch_add(&here, 1), weft_chan_recv(gate, NULL, WEFT_FOREVER));
    CHECK_EQ(frame[0], (unsigned char)bytes);
    return rc;
}

static int use_a_third(void *arg) {
    (void)arg;
    (void)dig(DEEP_KB * 1000);
    return wait_below(DEEP_KB * 1000 / 3) == WEFT_ECLOSED ? 0 : 1;
}

static int use_a_tenth(void *arg) {
    (void)arg;
    (void)dig(DEEP_KB * 1000);
    return wait_below(DEEP_KB * 1000 / 10) == WEFT_ECLOSED ? 0 : 1;
}

TEST(stack_trim, a_task_that_uses_more_than_a_quarter_keeps_all) {
    weft__trim_later = 0;
    EACH_WORKERS(w) {
        atomic_store(&here, 0);
        CHECK_EQ(set_up(w), 0);
        gate = weft_chan_new(0, 0);
        for (int i = 0; i < TASKS; i++) CHECK_EQ(weft_go(use_a_third, NULL), 0);
        thread_wait(&here, TASKS);
        uint64_t before = trims();
        for (int i = 0; i < TASKS; i++) CHECK_EQ(weft_go(use_a_tenth, NULL), 0);
        test_until(trimmed_all, NULL);
        for (int i = 0; i < 20; i++) CHECK_EQ(weft_block_on(return_int, NULL), 0);
        if (test_slow_tools() == 1) CHECK_LE(trims() - before, TASKS + 40); /* the others, and stacks of block_on */
        CHECK_EQ(weft_chan_close(gate), 0);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
        weft_chan_unref(gate);
    }
}

/* ---- free stacks ---- */

TEST(stack_trim, a_free_stack_gives_back_what_its_last_task_touched) {
    EACH_WORKERS(w) {
        atomic_store(&here, 0);
        CHECK_EQ(set_up(w), 0);
        gate = weft_chan_new(0, 0);
        int tasks = 600; /* more than a cache holds: the pool gets some */
        long limit = test_rss_kb() + tasks * 32 + 1024;
        for (int i = 0; i < tasks; i++) CHECK_EQ(weft_go(use_a_third, NULL), 0);
        thread_wait(&here, tasks);
        if (test_slow_tools() == 1) CHECK_GT(test_rss_kb(), limit);
        CHECK_EQ(weft_chan_close(gate), 0);
        if (test_slow_tools() == 1)
            test_until(small_again, &limit);
        else
            test_until(trimmed_all, NULL);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
        weft_chan_unref(gate);
    }
}

/* ---- large ones ---- */

static int dig_large(void *arg) {
    size_t bytes = (size_t)(intptr_t)arg;
    (void)dig(bytes);
    atomic_fetch_add(&here, 1);
    return weft_chan_recv(gate, NULL, WEFT_FOREVER) == WEFT_ECLOSED ? 0 : 1;
}

TEST(stack_trim, a_large_stack_is_given_back_in_pieces) {
    if (test_slow_tools() > 1) test_skip("tools keep a list of frames, and not for so many");
    atomic_store(&here, 0);
    CHECK_EQ(set_up(2), 0);
    gate = weft_chan_new(0, 0);
    long limit = test_rss_kb() + 4096;
    weft_task *t;
    weft_task_opts o = {.name = "large", .stack_size = 128 << 20};
    CHECK_EQ(weft_task_start(&t, dig_large, as_arg(100 << 20), &o), 0);
    thread_wait(&here, 1);
    test_until(small_again, &limit);
    CHECK_EQ(weft_chan_close(gate), 0);
    CHECK_EQ(weft_task_join(t, NULL, WEFT_FOREVER), 0);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    weft_chan_unref(gate);
}

/* ---- the wake-up is not lost ---- */

static weft_chan *ping, *pong;

static int answer(void *arg) {
    int v;
    (void)arg;
    WEFT_CHAN_EACH(ping, &v) {
        (void)dig(100 * 1000);
        CHECK_EQ(weft_chan_send(pong, &v, WEFT_FOREVER), 0);
    }
    return 0;
}

/* All slots are idle between the questions, and are borrowed then. */
TEST(stack_trim, work_that_comes_meanwhile_is_found) {
    weft__trim_later = 0;
    EACH_WORKERS(w) {
        CHECK_EQ(set_up(w), 0);
        ping = weft_chan_new(sizeof(int), 0);
        pong = weft_chan_new(sizeof(int), 0);
        for (int i = 0; i < 3; i++) CHECK_EQ(weft_go(answer, NULL), 0);
        for (int i = 0, n = (int)test_scale(3000, 200); i < n; i++) {
            int v = i, back_again = -1;
            CHECK_EQ(weft_chan_send(ping, &v, WEFT_FOREVER), 0);
            CHECK_EQ(weft_chan_recv(pong, &back_again, WEFT_FOREVER), 0);
            CHECK_EQ(back_again, i);
            if (i % 8 == 0) CHECK_EQ(weft_block_on(return_int, as_arg(i)), i);
        }
        CHECK_EQ(weft_chan_close(ping), 0);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
        weft_chan_unref(ping);
        weft_chan_unref(pong);
    }
}

static int dig_and_end(void *arg) {
    (void)dig(150 * 1000);
    return (int)(intptr_t)arg;
}

/* A slot is borrowed each time that its only task has ended; the next one comes at any moment of that. */
TEST(stack_trim, a_slot_that_is_borrowed_loses_no_task) {
    weft__trim_later = 0;
    EACH_WORKERS(w) {
        uint64_t seed = test_random();
        CHECK_EQ(set_up(w), 0);
        for (int i = 0, n = (int)test_scale(5000, 300); i < n; i++) {
            CHECK_EQ(weft_block_on(dig_and_end, as_arg(i)), i);
            for (uint64_t spin = test_below(&seed, 20000); spin > 0; spin--) __asm__ volatile("");
        }
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    }
}

/* ---- timers ---- */

enum { PASS = 3000 }; /* stacks: some tens of milliseconds of looking */

/* Wakes all the time, while nobody but whoever goes over the stacks looks after its timer: of these not half are done in between. How many at most. */
static int look_on(void *arg) {
    uint64_t all = (uint64_t)(intptr_t)arg, before = trims(), most = 0;
    while (before < all) {
        CHECK_EQ(weft_sleep_for(500 * WEFT_US), 0);
        uint64_t now = trims();
        if (now - before > most) most = now - before;
        before = now;
    }
    printf("%d at once, of %d\n", (int)most, (int)all);
    return (int)most;
}

static int most_at_once(void) {
    CHECK_EQ(set_up(1), 0);
    gate = weft_chan_new(0, 0);
    atomic_store(&here, 0);
    for (int i = 0; i < PASS; i++) CHECK_EQ(weft_go(dig_and_wait, as_arg(RECV)), 0);
    thread_wait(&here, PASS);
    int most = weft_block_on(look_on, as_arg(PASS));
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    weft_chan_unref(gate);
    return most;
}

/* Whoever looks on may have to wait for the kernel, too, while they are gone over. */
TEST(stack_trim, a_pass_stops_for_timers) {
    test_skip_under("everything takes longer than the sleep", "everything takes longer than the sleep");
    int most = PASS;
    for (int i = 0; i < TEST_ATTEMPTS && most > PASS / 2; i++) most = most_at_once();
    CHECK_LE(most, PASS / 2);
}

/* ---- passes in vain ---- */

static atomic_long looks;

/* The runtime asks with it what is in memory. */
int mincore(void *p, size_t size, unsigned char *in) {
    atomic_fetch_add(&looks, 1);
    return (int)syscall(SYS_mincore, p, size, in);
}

static int receive_all(void *c) {
    while (!weft_chan_recv(c, NULL, WEFT_FOREVER)) continue;
    return 0;
}

static long looks_in(int64_t time) {
    long before = atomic_load(&looks);
    for (int64_t from = test_clock_ns(); test_clock_ns() - from < time;) CHECK_EQ(weft_chan_send(gate, NULL, WEFT_FOREVER), 0);
    return atomic_load(&looks) - before;
}

/* Two shallow tasks wait for each other by turns: each pass looks at both, for nothing, and the next one is twice as far off, up to 16 times. */
static int wait_in_vain(void *arg) {
    weft_scope s;
    (void)arg;
    gate = weft_chan_new(0, 0);
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, receive_all, gate), 0);
    (void)looks_in(40 * weft__trim_later);
    long most = 2 * (long)(400 * WEFT_MS / (8 * weft__trim_later)), n = LONG_MAX;
    for (int i = 0; i < TEST_ATTEMPTS && n > most; i++) n = looks_in(400 * WEFT_MS);
    printf("%ld looks, at most %ld\n", n, most);
    CHECK_LE(n, most);
    CHECK_EQ(weft_chan_close(gate), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    weft_chan_unref(gate);
    return 0;
}

TEST_SOLO(stack_trim, passes_that_find_nothing_are_further_and_further_apart) {
    test_skip_under("the tools take longer than passes are apart", "so does the emulator");
    weft__trim_later = 5 * WEFT_MS;
    CHECK_EQ(weft_run(wait_in_vain, NULL, &(weft_config){.workers = 1}), 0);
    CHECK_GT(atomic_load(&looks), 0);
}
