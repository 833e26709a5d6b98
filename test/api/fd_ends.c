/* SPDX-License-Identifier: MIT */
/* Descriptors where there is no runtime: after its end, and in the child of a fork. */
#include <errno.h>
#include <stdio.h>
#include <sys/wait.h>

#include "api/common.h"

/* ---- a plain thread that waits, with a connection of an earlier runtime ---- */

static weft_conn *conn;
static int peer;
static atomic_int reader; /* its thread */

static int adopt(void *arg) {
    int fd[2];
    (void)arg;
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    peer = fd[1];
    return weft_conn_adopt(&conn, fd[0]);
}
static void *read_it(void *arg) {
    weft_conn *mine = arg;
    char c;
    atomic_store(&reader, (int)gettid());
    CHECK_EQ(weft_conn_read(mine, &c, 1, WEFT_FOREVER), WEFT_ECLOSED);
    weft_conn_unref(mine);
    return NULL;
}
static bool sleeps(void *arg) {
    char path[64], state = 0;
    (void)arg;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", atomic_load(&reader));
    FILE *f = atomic_load(&reader) ? fopen(path, "re") : NULL;
    if (f && fscanf(f, "%*d (%*[^)]) %c", &state) != 1) state = 0;
    if (f) fclose(f);
    return state == 'S';
}
static int release_it(void *arg) {
    (void)arg;
    return weft_conn_release(conn);
}

enum { BY_CLOSE, BY_RELEASE, BY_RELEASE_IN_A_TASK, WAYS };
static void end_it(int way) {
    if (way == BY_CLOSE) {
        CHECK_EQ(weft_conn_close(conn), 0);
        return;
    }
    int fd = way == BY_RELEASE ? weft_conn_release(conn) : run_on(1, release_it, NULL);
    CHECK_GE(fd, 0);
    CHECK_EQ(send(fd, "x", 1, 0), 1); /* it stayed open */
    CHECK_EQ(close(fd), 0);
}
TEST(fd_ends, closing_and_releasing_reach_a_thread_without_a_runtime) {
    int fds = test_fds();
    for (int way = 0; way < WAYS; way++) {
        pthread_t t;
        CHECK_EQ(run_on(1, adopt, NULL), 0);
        atomic_store(&reader, 0);
        CHECK_EQ(pthread_create(&t, NULL, read_it, weft_conn_ref(conn)), 0);
        test_until(sleeps, NULL);
        end_it(way);
        CHECK_EQ(pthread_join(t, NULL), 0);
        CHECK_EQ(close(peer), 0);
    }
    test_wait_fds(fds);
}

/* ---- in the child of a fork ---- */

static int use_a_descriptor(void *arg) {
    int *fd = arg;
    char c;
    CHECK_EQ(pipe(fd), 0);
    CHECK_EQ(weft_fd_read(fd[0], &c, 1, weft_after(WEFT_MS)), WEFT_ETIMEDOUT);
    return 0;
}

/* fn(arg) in a child, beside a runtime that has a poller. */
static void check_child(void (*fn)(int *fd)) {
    int fd[2], status = -1;
    test_skip_under("what the tools make of a child beside threads is fork.c's subject", NULL);
    CHECK_EQ(set_up(1), 0);
    CHECK_EQ(weft_block_on(use_a_descriptor, fd), 0);
    pid_t child = fork();
    CHECK_GE(child, 0);
    if (child == 0) {
        test_forked();
        fn(fd);
        _exit(0);
    }
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
    for (int i = 0; i < 2; i++) CHECK_EQ(weft_fd_close(fd[i]), 0);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
}

static void close_inherited(int *fd) {
    for (int i = 0; i < 2; i++) CHECK_EQ(weft_fd_close(fd[i]), 0); /* the first call of the library there */
    for (int i = 0; i < 2; i++) CHECK_EQ(fcntl(fd[i], F_GETFD), -1);
}
TEST(fd_ends, a_child_may_close_what_it_inherited) { check_child(close_inherited); }

static int nothing(void *arg) {
    (void)arg;
    return 0;
}
/* Ours are closed with the fork, not later, when somebody else may have their numbers. */
static void close_all_and_open_others(int *fd) {
    enum { FILES = 64, LAST = 100 };
    int file[FILES];
    (void)fd;
    for (int i = 3; i < LAST; i++) close(i);
    for (int i = 0; i < FILES; i++) CHECK_GE(file[i] = open("/dev/null", O_RDONLY | O_CLOEXEC), 0);
    CHECK_EQ(run_on(1, nothing, NULL), 0);
    for (int i = 0; i < FILES; i++) CHECK_EQ(close(file[i]), 0);
}
TEST(fd_ends, a_child_keeps_the_descriptors_that_it_opened) { check_child(close_all_and_open_others); }
