/* SPDX-License-Identifier: MIT */
/* errno belongs to the task, wherever it runs. The compiler may keep the address of the C library's errno across a call that
 * moves the task to another thread; these functions are written so that it would like to. */
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "api/common.h"

static atomic_long moves; /* times a task found itself on another thread after a wait */

static long thread_id(void) { return syscall(SYS_gettid); /* not pthread_self, which the compiler may keep as well */ }

/* Enough for other workers to find a reason to take somebody from this one. */
static void compute(int us) {
    int64_t end = test_clock_ns() + us * 1000;
    while (test_clock_ns() < end)
        ;
}

static void wait_somehow(int i) {
    switch (i % 4) {
    case 0:
        CHECK_EQ(weft_sleep_for(WEFT_US), 0);
        break;
    case 1:
        compute(20);
        weft_yield();
        break;
    default:
        weft_yield();
    }
}

static __attribute__((noinline)) void keep_value(int mine, int rounds) {
    for (int i = 0; i < rounds; i++) {
        long before = thread_id();
        errno = mine + i;
        wait_somehow(i);
        CHECK_EQ(errno, mine + i);
        if (thread_id() != before) atomic_fetch_add(&moves, 1);
    }
}

/* What the C library sets on this thread must be what this thread reads. */
static __attribute__((noinline)) void see_failures(int rounds) {
    errno = 0;
    for (int i = 0; i < rounds; i++) {
        wait_somehow(i);
        CHECK_EQ(close(-1), -1);
        CHECK_EQ(errno, EBADF);
        wait_somehow(i + 1);
        CHECK_EQ(errno, EBADF);
        CHECK_EQ(open("/does/not/exist", O_RDONLY | O_CLOEXEC), -1);
        CHECK_EQ(errno, ENOENT);
        errno = 0;
        wait_somehow(i + 2);
        CHECK_EQ(errno, 0);
    }
}

static int use_errno(void *arg) {
    int mine = (int)(intptr_t)arg * 1000 + 1000;
    keep_value(mine, 30);
    see_failures(10);
    return 0;
}

static int use_many(void *arg) {
    int at_least = (int)(intptr_t)arg;
    atomic_store(&moves, 0);
    do {
        weft_scope s;
        weft_scope_begin(&s, NULL);
        for (int i = 0; i < 64; i++) CHECK_EQ(weft_spawn(&s, use_errno, as_arg(i)), 0);
        errno = 4711;
        CHECK_EQ(weft_scope_end(&s), 0);
        CHECK_EQ(errno, 4711);
    } while (atomic_load(&moves) < at_least); /* until they really have moved; the time-out tells if they never do */
    return 0;
}

TEST(errno_of_task, is_kept_on_one_thread) { CHECK_EQ(run_on(1, use_many, as_arg(0)), 0); }

TEST(errno_of_task, is_kept_when_tasks_move_between_threads) {
    CHECK_EQ(run_on(2, use_many, as_arg(200)), 0);
    CHECK_EQ(run_on(4, use_many, as_arg(200)), 0);
}

static int spoil_errno(void *arg) {
    (void)arg;
    errno = 99;
    return 0;
}

static int keep_from_children(void *arg) {
    (void)arg;
    for (int i = 0; i < 100; i++) {
        weft_scope s;
        weft_scope_begin(&s, NULL);
        errno = 55;
        for (int k = 0; k < 5; k++) CHECK_EQ(weft_spawn(&s, spoil_errno, NULL), 0);
        CHECK_EQ(weft_scope_end(&s), 0);
        CHECK_EQ(errno, 55); /* also if they ran on this very stack */
    }
    return 0;
}

TEST(errno_of_task, is_not_the_childrens) { run_each(keep_from_children); }

static int every_call(void *arg) {
    (void)arg;
    weft_chan *c = weft_chan_new(sizeof(int), 1);
    int v = 1;
    errno = 1234;
    CHECK_EQ(weft_chan_send(c, &v, WEFT_FOREVER), 0);
    CHECK_EQ(weft_chan_send(c, &v, weft_after(WEFT_US)), WEFT_ETIMEDOUT);
    CHECK_EQ(weft_chan_recv(c, &v, WEFT_FOREVER), 0);
    CHECK_EQ(weft_select(weft_after(WEFT_US), weft_on_recv(c, &v, NULL)), WEFT_ETIMEDOUT);
    CHECK_EQ(weft_sleep_for(WEFT_US), 0);
    CHECK_EQ(weft_chan_close(c), 0);
    weft_chan_unref(c);
    CHECK_EQ(errno, 1234);
    return 0;
}

TEST(errno_of_task, no_call_of_ours_changes_it) { run_each(every_call); }
