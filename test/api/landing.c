/* SPDX-License-Identifier: MIT */
/* Whoever hears that a descriptor is ready reads for the task that waits for it (D6 in src/io/desc.h). */
#include <sched.h>

#include "api/common.h"

enum { READERS = 40, IN_A_ROW = 24, SMALL = 64 };

static uint64_t landings(void) {
    weft_stats s;
    weft_stats_get(&s);
    return s.poll_landings;
}

struct reader {
    int fd[2];
    bool elsewhere; /* not to its stack */
    ssize_t got;
    char buf[SMALL];
};
static struct reader readers[READERS];
static atomic_int waiting;

static int read_one(void *arg) {
    struct reader *r = arg;
    char mine[SMALL], *to = r->elsewhere ? r->buf : mine;
    atomic_fetch_add(&waiting, 1);
    r->got = weft_fd_read(r->fd[0], to, SMALL, WEFT_FOREVER);
    if (r->got > 0) memmove(r->buf, to, (size_t)r->got);
    return 0;
}

/* All of them wait, and then all are written to at once; returns how many reads landed. */
static uint64_t read_all(bool elsewhere) {
    weft_scope s;
    uint64_t before = landings();
    atomic_store(&waiting, 0);
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < READERS; i++) {
        struct reader *r = &readers[i];
        CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, r->fd), 0);
        r->elsewhere = elsewhere;
        CHECK_EQ(weft_spawn(&s, read_one, r), 0);
    }
    task_wait_parked(&waiting, READERS);
    for (int i = 0; i < READERS; i++) CHECK_EQ(write(readers[i].fd[1], &i, sizeof i), sizeof i);
    CHECK_EQ(weft_scope_end(&s), 0);
    for (int i = 0; i < READERS; i++) {
        CHECK_EQ(readers[i].got, sizeof i);
        CHECK_EQ(memcmp(readers[i].buf, &i, sizeof i), 0);
        for (int k = 0; k < 2; k++) CHECK_EQ(weft_fd_close(readers[i].fd[k]), 0);
    }
    return landings() - before;
}

static int many(void *arg) {
    (void)arg;
    CHECK_GE(read_all(false), IN_A_ROW); /* the others read for themselves */
    CHECK_EQ(read_all(true), 0);         /* other memory may be a file's, and whoever writes to it wait for a disk */
    return 0;
}
TEST(landing, who_hears_of_many_reads_for_some_of_them) { CHECK_EQ(run_on(1, many, NULL), 0); }

static int some(void *arg) {
    (void)arg;
    (void)read_all(false); /* everybody gets its own, whoever reads */
    return 0;
}
TEST(landing, everybody_gets_its_own) { run_each(some); }

/* ---- what lands need not be bytes ---- */

static ssize_t land_one(struct reader *r) {
    weft_scope s;
    uint64_t before = landings();
    atomic_store(&waiting, 0);
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, read_one, r), 0);
    task_wait_parked(&waiting, 1);
    CHECK_EQ(close(r->fd[1]), 0); /* not in the poller */
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(landings() - before, 1);
    return r->got;
}

static int end_lands(void *arg) {
    struct reader *r = &readers[0];
    (void)arg;
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, r->fd), 0);
    CHECK_EQ(land_one(r), 0);
    CHECK_EQ(weft_fd_close(r->fd[0]), 0);
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, r->fd), 0);
    CHECK_EQ(write(r->fd[0], "x", 1), 1); /* closed with something unread: a reset */
    CHECK_EQ(land_one(r), -ECONNRESET);
    CHECK_EQ(weft_fd_close(r->fd[0]), 0);
    return 0;
}
TEST(landing, the_end_and_errors_land_too) { CHECK_EQ(run_on(1, end_lands, NULL), 0); }

static int read_nowhere(void *arg) {
    atomic_fetch_add(&waiting, 1);
    return (int)weft_fd_read(*(int *)arg, (void *)(uintptr_t)8, SMALL, WEFT_FOREVER);
}
static int bad_memory(void *arg) {
    int fd[2];
    weft_scope s;
    (void)arg;
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, read_nowhere, fd), 0);
    task_wait_parked(&waiting, 1);
    CHECK_EQ(write(fd[1], "x", 1), 1);
    CHECK_EQ(weft_scope_end(&s), -EFAULT);
    CHECK_EQ(weft_fd_close(fd[0]) | weft_fd_close(fd[1]), 0);
    return 0;
}
TEST(landing, memory_that_is_not_there_is_the_readers_error) {
    test_skip_under("the tools complain about the address themselves", NULL);
    CHECK_EQ(run_on(1, bad_memory, NULL), 0);
}

/* ---- not for a plain thread, whose stack begins and ends anywhere ---- */

static void *read_in_thread(void *arg) {
    CHECK_EQ(read_one(arg), 0);
    return NULL;
}
TEST(landing, a_plain_thread_reads_for_itself) {
    struct reader *r = &readers[0];
    pthread_t t;
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, r->fd), 0);
    CHECK_EQ(set_up(1), 0);
    for (int i = 0; i < 100; i++) {
        atomic_store(&waiting, 0);
        CHECK_EQ(pthread_create(&t, NULL, read_in_thread, r), 0);
        thread_wait(&waiting, 1);
        if (i % 2) sched_yield(); /* it waits by then, now and then */
        CHECK_EQ(write(r->fd[1], &i, sizeof i), sizeof i);
        CHECK_EQ(pthread_join(t, NULL), 0);
        CHECK_EQ(r->got, sizeof i);
        CHECK_EQ(memcmp(r->buf, &i, sizeof i), 0);
    }
    CHECK_EQ(landings(), 0);
    CHECK_EQ(weft_fd_close(r->fd[0]) | weft_fd_close(r->fd[1]), 0);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
}

/* ---- nor beside somebody who writes: a send may keep the socket locked for long ---- */

static char much[1 << 20];
static int write_much(void *arg) {
    for (size_t done = 0; done < sizeof much;) {
        ssize_t n = weft_fd_write(*(int *)arg, much + done, sizeof much - done, WEFT_FOREVER);
        CHECK_GT(n, 0);
        done += (size_t)n;
    }
    return 0;
}
static int beside_a_writer(void *arg) {
    struct reader *r = &readers[0];
    weft_scope s;
    ssize_t n = 0;
    (void)arg;
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, r->fd), 0);
    weft_scope_begin(&s, NULL);
    atomic_store(&waiting, 0);
    CHECK_EQ(weft_spawn(&s, read_one, r), 0);
    CHECK_EQ(weft_spawn(&s, write_much, r->fd), 0); /* it waits for room, and has the turn */
    task_wait_parked(&waiting, 1);
    uint64_t before = landings();
    CHECK_EQ(write(r->fd[1], "x", 1), 1);
    for (int i = 0; i < 20; i++) weft_yield();
    while (n < (ssize_t)sizeof much) {
        static char in[1 << 16];
        ssize_t k = weft_fd_recv(r->fd[1], in, sizeof in, 0, WEFT_FOREVER);
        CHECK_GT(k, 0);
        n += k;
    }
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(r->got, 1);
    CHECK_EQ(landings(), before);
    CHECK_EQ(weft_fd_close(r->fd[0]) | weft_fd_close(r->fd[1]), 0);
    return 0;
}
TEST(landing, beside_a_writer_everybody_reads_for_himself) { CHECK_EQ(run_on(1, beside_a_writer, NULL), 0); }
