/* SPDX-License-Identifier: MIT */
/* Tasks that are away: in C calls that block, or computing without a call. The others go on. Nothing here looks at a clock: each of
 * these would wait for ever if a slot stayed with the task that is away. */
#include <unistd.h>

#include "api/common.h"
#include "sched/idle.h"

#include <weft/debug.h>

static atomic_int stop, hogs, passed;

/* Computes until it is told to end, without a call. */
static int hog(void *arg) {
    (void)arg;
    atomic_fetch_add(&hogs, 1);
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) __asm__ volatile("");
    return 0;
}

/* Blocks in the kernel until somebody writes. */
static int read_byte(void *arg) {
    char c;
    atomic_fetch_add(&hogs, 1);
    CHECK_EQ(read(*(int *)arg, &c, 1), 1);
    return 0;
}

static void reset(void) {
    atomic_store(&stop, 0);
    atomic_store(&hogs, 0);
    atomic_store(&passed, 0);
}

static int count(void *arg) {
    (void)arg;
    atomic_fetch_add(&passed, 1);
    return 0;
}

/* ---- computing ---- */

enum { HOGS = 8, ITEMS = 200 };

static int send_items(void *arg) {
    for (int i = 0; i < ITEMS; i++) CHECK_EQ(weft_chan_send(arg, &i, WEFT_FOREVER), 0);
    return weft_chan_close(arg);
}

static int receive_items(void *arg) {
    int v, n = 0;
    WEFT_CHAN_EACH((weft_chan *)arg, &v) CHECK_EQ(v, n++);
    CHECK_EQ(n, ITEMS);
    return 0;
}

static int beside_hogs(void *arg) {
    weft_scope s, others;
    weft_chan *c = weft_chan_new(sizeof(int), 0);
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < HOGS; i++) CHECK_EQ(weft_spawn(&s, hog, NULL), 0);
    weft_scope_begin(&others, NULL);
    CHECK_EQ(weft_spawn(&others, send_items, c), 0);
    CHECK_EQ(weft_spawn(&others, receive_items, c), 0);
    for (int i = 0; i < 20; i++) CHECK_EQ(weft_sleep_for(WEFT_MS), 0);
    CHECK_EQ(weft_scope_end(&others), 0);
    while (atomic_load(&hogs) < HOGS) CHECK_EQ(weft_sleep_for(WEFT_MS), 0); /* each gets its turn, though none gives way */
    atomic_store(&stop, 1);
    CHECK_EQ(weft_scope_end(&s), 0);
    weft_chan_unref(c);
    return (int)(intptr_t)arg;
}

static void check_beside_hogs(int slots) {
    reset();
    CHECK_EQ(weft_run(beside_hogs, as_arg(7), &(weft_config){.workers = slots}), 7);
}

TEST(away, sleepers_and_channels_go_on_beside_endless_tasks_on_one_slot) { check_beside_hogs(1); }
TEST(away, sleepers_and_channels_go_on_beside_endless_tasks_on_two_slots) { check_beside_hogs(2); }
TEST(away, sleepers_and_channels_go_on_beside_endless_tasks_on_eight_slots) { check_beside_hogs(8); }

static int among_many(void *arg) {
    weft_scope s;
    weft_stats st;
    (void)arg;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 500; i++) CHECK_EQ(weft_spawn(&s, hog, NULL), 0);
    for (int i = 0; i < 20; i++) CHECK_EQ(weft_sleep_for(WEFT_MS), 0);
    weft_stats_get(&st);
    CHECK_GT(st.strays, 0);
    CHECK_LT(st.strays, 250); /* the others wait their turn */
    atomic_store(&stop, 1);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(atomic_load(&hogs), 500);
    weft_stats_get(&st);
    CHECK_EQ(st.strays, 0);
    return 0;
}

TEST(away, of_five_hundred_endless_tasks_most_wait_their_turn) {
    reset();
    CHECK_EQ(weft_run(among_many, NULL, &(weft_config){.workers = 2}), 0);
}

static int be_high(void *arg) {
    CHECK_EQ(weft_spawn_opts((weft_scope *)arg, count, NULL, &(weft_task_opts){.priority = WEFT_PRIORITY_HIGH}), 0);
    while (!atomic_load(&passed)) __asm__ volatile(""); /* it has to be run on somebody else's thread */
    return 0;
}

static int high_beside_hog(void *arg) {
    weft_scope s;
    (void)arg;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, be_high, &s), 0);
    return weft_scope_end(&s);
}

TEST(away, a_high_task_gets_the_slot_of_one_that_computes) {
    reset();
    CHECK_EQ(weft_run(high_beside_hog, NULL, &(weft_config){.workers = 1}), 0);
}

TEST(away, a_plain_threads_task_gets_the_slot_of_one_that_computes) {
    reset();
    CHECK_EQ(weft_start(&(weft_config){.workers = 1}), 0);
    CHECK_EQ(weft_go(hog, NULL), 0);
    thread_wait(&hogs, 1);
    CHECK_EQ(weft_block_on(count, NULL), 0);
    CHECK_EQ(weft_stop(weft_after(WEFT_MS)), WEFT_ETIMEDOUT); /* nobody can end it */
    atomic_store(&stop, 1);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
}

/* ---- blocking ---- */

enum { READERS = 64 };

static int beside_readers(void *arg) {
    int *fd = arg;
    weft_scope s, others;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < READERS; i++) CHECK_EQ(weft_spawn(&s, read_byte, &fd[0]), 0);
    weft_scope_begin(&others, NULL);
    CHECK_EQ(weft_spawn(&others, count, NULL), 0);
    CHECK_EQ(weft_scope_end(&others), 0);
    while (atomic_load(&hogs) < READERS) CHECK_EQ(weft_sleep_for(WEFT_MS), 0); /* all of them block at once */
    char bytes[READERS] = {0};
    CHECK_EQ(write(fd[1], bytes, READERS), READERS);
    CHECK_EQ(weft_scope_end(&s), 0);
    return 0;
}

static void check_beside_readers(int slots) {
    int fd[2];
    reset();
    CHECK_EQ(pipe(fd), 0);
    CHECK_EQ(weft_run(beside_readers, fd, &(weft_config){.workers = slots}), 0);
    close(fd[0]);
    close(fd[1]);
}

TEST(away, many_calls_block_at_once_on_one_slot) { check_beside_readers(1); }
TEST(away, many_calls_block_at_once_on_two_slots) { check_beside_readers(2); }

/* As many threads as there may be are in calls: things wait, and go on when one comes back. */
static int few_threads(void *arg) {
    int *fd = arg;
    weft_scope s;
    weft_stats st;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < READERS; i++) CHECK_EQ(weft_spawn(&s, read_byte, &fd[0]), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    weft_stats_get(&st);
    CHECK_LE(st.threads, 4);
    return 0;
}

static void *write_bytes(void *arg) {
    for (int i = 0; i < READERS; i++) {
        while (atomic_load(&hogs) <= i) usleep(100);
        CHECK_EQ(write(((int *)arg)[1], "", 1), 1);
    }
    return NULL;
}

TEST(away, with_few_threads_calls_that_block_wait_for_each_other) {
    int fd[2];
    pthread_t t;
    reset();
    CHECK_EQ(pipe(fd), 0);
    CHECK_EQ(pthread_create(&t, NULL, write_bytes, fd), 0);
    CHECK_EQ(weft_run(few_threads, fd, &(weft_config){.workers = 2, .max_threads = 4}), 0);
    pthread_join(t, NULL);
    close(fd[0]);
    close(fd[1]);
}

static bool few(void *arg) {
    weft_stats st;
    (void)arg;
    weft_stats_get(&st);
    return st.threads <= 2 + 2 + 2; /* the slots, the spares, and those that are about to be counted */
}

/* ---- threads that end ---- */

static pthread_key_t key;

/* A destructor of a library's that asks the runtime something, on a worker that has ended. */
static void at_thread_end(void *arg) {
    weft_stats st;
    (void)arg;
    atomic_fetch_add(&passed, 1);
    usleep(5000); /* others start threads meanwhile */
    weft_stats_get(&st);
}

static int mark_thread(void *arg) {
    CHECK_EQ(pthread_setspecific(key, &key), 0);
    return read_byte(arg);
}

static int mark_many(void *arg) {
    int *fd = arg;
    char bytes[READERS] = {0};
    weft_scope s;
    atomic_store(&hogs, 0);
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < READERS; i++) CHECK_EQ(weft_spawn(&s, mark_thread, &fd[0]), 0);
    while (atomic_load(&hogs) < READERS) CHECK_EQ(weft_sleep_for(WEFT_MS), 0);
    CHECK_EQ(write(fd[1], bytes, READERS), READERS);
    return weft_scope_end(&s);
}

TEST(away, destructors_of_threads_that_retire_may_use_the_runtime) {
    int fd[2];
    weft__idle_retire = WEFT_MS;
    reset();
    CHECK_EQ(pthread_key_create(&key, at_thread_end), 0);
    CHECK_EQ(pipe(fd), 0);
    CHECK_EQ(weft_start(&(weft_config){.workers = 2}), 0);
    for (int i = 0; i < 3; i++) {
        int before = atomic_load(&passed);
        CHECK_EQ(weft_block_on(mark_many, fd), 0);
        thread_wait(&passed, before + 1); /* one is about to end, and the next round starts others in its place */
    }
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    close(fd[0]);
    close(fd[1]);
    pthread_key_delete(key);
}

TEST(away, workers_that_are_of_no_use_any_more_retire) {
    int fd[2];
    weft__idle_retire = WEFT_MS;
    CHECK_EQ(pipe(fd), 0);
    CHECK_EQ(weft_start(&(weft_config){.workers = 2}), 0);
    for (int i = 0; i < 3; i++) {
        reset();
        CHECK_EQ(weft_block_on(beside_readers, fd), 0);
        test_until(few, NULL);
    }
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    close(fd[0]);
    close(fd[1]);
}
