/* SPDX-License-Identifier: MIT */
/* Descriptors: reading, writing, waiting, closing, from tasks and threads. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/common.h"

static int pair[2];
static atomic_int started;

static void open_pair(void) { open_far_pair(SOCK_STREAM, pair); }

static void close_pair(void) {
    for (int i = 0; i < 2; i++)
        if (pair[i] >= 0) CHECK_EQ(weft_fd_close(pair[i]), 0);
}

/* A TCP connection to ourselves: pair[0] dialled, pair[1] accepted. */
static void open_tcp(void) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    int l = socket(AF_INET, SOCK_STREAM, 0);
    CHECK_EQ(bind(l, (struct sockaddr *)&a, sizeof a), 0);
    CHECK_EQ(listen(l, 8), 0);
    CHECK_EQ(getsockname(l, (struct sockaddr *)&a, &len), 0);
    pair[0] = socket(AF_INET, SOCK_STREAM, 0);
    CHECK_EQ(weft_fd_connect(pair[0], (struct sockaddr *)&a, sizeof a, WEFT_FOREVER), 0);
    pair[1] = weft_fd_accept(l, NULL, NULL, WEFT_FOREVER);
    CHECK_GE(pair[1], 0);
    CHECK_EQ(weft_fd_close(l), 0);
}

static int read_four(void *arg) {
    char buf[16] = {0};
    atomic_fetch_add(&started, 1);
    ssize_t n = weft_fd_read(pair[0], buf, sizeof buf, WEFT_FOREVER);
    CHECK_EQ(n, 4);
    CHECK_STR(buf, "tide");
    *(int *)arg = 1;
    return 0;
}

static int read_waits(void *arg) {
    int done = 0;
    atomic_store(&started, 0);
    if (arg)
        open_tcp();
    else
        open_pair();
    weft_scope s;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, read_four, &done), 0);
    task_wait_parked(&started, 1);
    CHECK_EQ(weft_fd_write(pair[1], "tide", 4, WEFT_FOREVER), 4);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(done, 1);
    close_pair();
    return 0;
}
TEST(fd, a_read_waits_for_what_is_written) {
    int fds = test_fds();
    EACH_WORKERS(w) {
        CHECK_EQ(run_on(w, read_waits, NULL), 0);
        CHECK_EQ(run_on(w, read_waits, as_arg(1)), 0);
    }
    test_wait_fds(fds);
}

static int no_descriptors(void *arg) {
    CHECK_EQ(weft_sleep_for(1), 0);
    test_wait_fds(*(int *)arg);
    return 0;
}
TEST(fd, a_program_without_descriptors_has_no_poller) {
    int fds = test_fds();
    CHECK_EQ(run_on(2, no_descriptors, &fds), 0);
}

/* ---- writing ---- */

enum { LARGE = 8 << 20 };

static int write_large(void *arg) {
    char *data = arg;
    for (size_t at = 0; at < LARGE;) {
        ssize_t n = weft_fd_write(pair[1], data + at, LARGE - at, WEFT_FOREVER);
        CHECK_GT(n, 0);
        at += (size_t)n;
    }
    CHECK_EQ(shutdown(pair[1], SHUT_WR), 0);
    return 0;
}

static int write_waits(void *arg) {
    char *data = malloc(LARGE), buf[4096];
    size_t at = 0;
    for (size_t i = 0; i < LARGE; i++) data[i] = (char)(i * 7 >> 3);
    if (arg)
        open_tcp();
    else
        open_pair();
    weft_scope s;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, write_large, data), 0);
    for (;;) {
        ssize_t n = weft_fd_read(pair[0], buf, sizeof buf, WEFT_FOREVER);
        CHECK_GE(n, 0);
        if (n == 0) break;
        CHECK(at + (size_t)n <= LARGE && memcmp(buf, data + at, (size_t)n) == 0);
        at += (size_t)n;
    }
    CHECK_EQ(at, LARGE);
    CHECK_EQ(weft_scope_end(&s), 0);
    close_pair();
    free(data);
    return 0;
}
TEST(fd, a_write_waits_for_room_and_every_byte_arrives) {
    EACH_WORKERS(w) {
        CHECK_EQ(run_on(w, write_waits, NULL), 0);
        CHECK_EQ(run_on(w, write_waits, as_arg(1)), 0);
    }
}

/* ---- ends of waits ---- */

static int expect_read(void *arg) {
    char c;
    atomic_fetch_add(&started, 1);
    CHECK_EQ(weft_fd_read(pair[0], &c, 1, WEFT_FOREVER), (intptr_t)arg);
    return 0;
}
static int expect_wait(void *arg) {
    atomic_fetch_add(&started, 1);
    CHECK_EQ(weft_fd_wait(pair[0], WEFT_READABLE, WEFT_FOREVER), (intptr_t)arg);
    return 0;
}
static int expect_write(void *arg) {
    static char many[1 << 16];
    ssize_t n = 0;
    while (n >= 0) {
        n = weft_fd_write(pair[0], many, sizeof many, WEFT_POLL);
        if (n == WEFT_EAGAIN) break;
    }
    atomic_fetch_add(&started, 1);
    do {
        n = weft_fd_write(pair[0], many, sizeof many, WEFT_FOREVER);
    } while (n > 0);
    CHECK_EQ(n, (intptr_t)arg);
    return 0;
}

static int close_wakes(void *arg) {
    (void)arg;
    open_pair();
    atomic_store(&started, 0);
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(weft_spawn(&s, expect_read, as_arg(WEFT_ECLOSED)), 0);
        CHECK_EQ(weft_spawn(&s, expect_write, as_arg(WEFT_ECLOSED)), 0);
        CHECK_EQ(weft_spawn(&s, expect_wait, as_arg(WEFT_ECLOSED)), 0);
    }
    task_wait_parked(&started, 9);
    CHECK_EQ(weft_fd_close(pair[0]), 0);

    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(weft_fd_close(pair[1]), 0);
    return 0;
}
TEST(fd, close_wakes_everybody_who_waits) {
    int fds = test_fds();
    CHECK_EQ(run_on(1, close_wakes, NULL), 0);
    test_wait_fds(fds);
}

static int ends(void *arg) {
    (void)arg;
    char c = 'c';
    open_pair();
    CHECK_EQ(weft_fd_read(pair[0], &c, 1, WEFT_POLL), WEFT_EAGAIN);
    CHECK_EQ(weft_fd_read(pair[0], &c, 1, weft_after(2 * WEFT_MS)), WEFT_ETIMEDOUT);
    CHECK_EQ(weft_fd_wait(pair[0], WEFT_READABLE, weft_after(2 * WEFT_MS)), WEFT_ETIMEDOUT);
    CHECK_EQ(weft_fd_wait(pair[0], WEFT_WRITABLE | WEFT_READABLE, WEFT_POLL), WEFT_WRITABLE);
    CHECK_EQ(write(pair[1], "x", 1), 1);
    CHECK_EQ(weft_fd_read(pair[0], &c, 1, weft_at(1)), 1); /* in the past: tries once */
    CHECK_EQ(write(pair[1], "y", 1), 1);
    CHECK_EQ(weft_fd_read(pair[0], &c, 1, WEFT_POLL), 1);
    CHECK_EQ(c, 'y');
    weft_scope s;
    weft_scope_begin(&s, NULL);
    atomic_store(&started, 0);
    CHECK_EQ(weft_spawn(&s, expect_read, as_arg(WEFT_ECANCELED)), 0);
    CHECK_EQ(weft_spawn(&s, expect_read, as_arg(WEFT_ECANCELED)), 0); /* in line */
    CHECK_EQ(weft_spawn(&s, expect_wait, as_arg(WEFT_ECANCELED)), 0);
    task_wait_parked(&started, 3);
    weft_scope_cancel(&s);
    CHECK_EQ(weft_fd_read(pair[0], &c, 1, WEFT_POLL), WEFT_ECANCELED); /* tried, and nothing there */
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(write(pair[1], "z", 1), 1);
    CHECK_EQ(weft_fd_read(pair[0], &c, 1, WEFT_FOREVER), 1); /* the turn was given back */
    CHECK_EQ(c, 'z');
    close_pair();
    return 0;
}
TEST(fd, deadlines_and_cancellation_end_a_wait) { run_each(ends); }

/* ---- order ---- */

static atomic_int order;
static int read_in_turn(void *arg) {
    char c;
    atomic_fetch_add(&started, 1);
    CHECK_EQ(weft_fd_read(pair[0], &c, 1, WEFT_FOREVER), 1);
    CHECK_EQ(c, 'a' + (intptr_t)arg);
    CHECK_EQ(atomic_fetch_add(&order, 1), (intptr_t)arg);
    return 0;
}
static int in_order(void *arg) {
    (void)arg;
    open_pair();
    atomic_store(&started, 0);
    atomic_store(&order, 0);
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 5; i++) {
        CHECK_EQ(weft_spawn(&s, read_in_turn, as_arg(i)), 0);
        task_wait_parked(&started, i + 1);
    }
    CHECK_EQ(write(pair[1], "abcde", 5), 5);
    CHECK_EQ(weft_scope_end(&s), 0);
    close_pair();
    return 0;
}
TEST(fd, several_readers_are_served_in_order) { CHECK_EQ(run_on(1, in_order, NULL), 0); }

/* ---- the end of a stream ---- */

static int ended(void *arg) {
    (void)arg;
    for (int i = 0; i < 200; i++) {
        char buf[64];
        open_tcp();
        CHECK_EQ(weft_fd_write(pair[1], "last", 4, WEFT_FOREVER), 4);
        if (i % 2) weft_yield();
        CHECK_EQ(weft_fd_close(pair[1]), 0);
        size_t got = 0;
        ssize_t n;
        while ((n = weft_fd_read(pair[0], buf, sizeof buf, WEFT_FOREVER)) > 0)
            got += (size_t)n; /* a short read, then the end */
        CHECK_EQ(n, 0);
        CHECK_EQ(got, 4);
        CHECK_EQ(weft_fd_wait(pair[0], WEFT_READABLE, WEFT_FOREVER), WEFT_READABLE | WEFT_HANGUP);
        CHECK_EQ(weft_fd_close(pair[0]), 0);
    }
    return 0;
}
TEST(fd, the_end_after_a_short_read_is_seen) { run_each(ended); }

static int gone(void *arg) {
    (void)arg;
    char c;
    open_tcp();
    struct linger now = {.l_onoff = 1, .l_linger = 0};
    CHECK_EQ(setsockopt(pair[1], SOL_SOCKET, SO_LINGER, &now, sizeof now), 0);
    CHECK_EQ(weft_fd_close(pair[1]), 0);
    CHECK_EQ(weft_fd_read(pair[0], &c, 1, WEFT_FOREVER), -ECONNRESET);
    CHECK_EQ(weft_fd_send(pair[0], "x", 1, 0, WEFT_FOREVER), -EPIPE); /* and no signal */
    CHECK_EQ(weft_fd_close(pair[0]), 0);
    return 0;
}
TEST(fd, a_reset_is_told_and_no_signal_kills) { run_each(gone); }

static int refused(void *arg) {
    (void)arg;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    int l = socket(AF_INET, SOCK_STREAM, 0), c = socket(AF_INET, SOCK_STREAM, 0);
    CHECK_EQ(bind(l, (struct sockaddr *)&a, sizeof a), 0); /* bound, and nobody listens */
    CHECK_EQ(getsockname(l, (struct sockaddr *)&a, &len), 0);
    CHECK_EQ(weft_fd_connect(c, (struct sockaddr *)&a, sizeof a, WEFT_FOREVER), -ECONNREFUSED);
    CHECK_EQ(weft_fd_close(c), 0);
    CHECK_EQ(close(l), 0);
    return 0;
}
TEST(fd, a_refused_connection_is_told) { run_each(refused); }

/* ---- other kinds of descriptors ---- */

static int kinds(void *arg) {
    (void)arg;
    char buf[8] = {0};
    int p[2];
    CHECK_EQ(pipe(p), 0);
    CHECK_EQ(weft_fd_read(p[0], buf, sizeof buf, WEFT_POLL), WEFT_EAGAIN);
    CHECK_EQ(weft_fd_write(p[1], "pipe", 4, WEFT_FOREVER), 4);
    CHECK_EQ(weft_fd_read(p[0], buf, sizeof buf, WEFT_FOREVER), 4);
    CHECK_EQ(fcntl(p[0], F_GETFL) & O_NONBLOCK, 0); /* others may share it */
    int copy = dup(p[0]);
    CHECK_EQ(weft_fd_read(copy, buf, sizeof buf, weft_after(WEFT_MS)), WEFT_ETIMEDOUT);
    CHECK_EQ(weft_fd_close(p[0]), 0);
    CHECK_EQ(weft_fd_write(p[1], "dup", 3, WEFT_FOREVER), 3);
    CHECK_EQ(weft_fd_read(copy, buf, sizeof buf, WEFT_FOREVER), 3);
    CHECK_EQ(weft_fd_close(p[1]), 0);
    CHECK_EQ(weft_fd_read(copy, buf, sizeof buf, WEFT_FOREVER), 0);
    CHECK_EQ(weft_fd_close(copy), 0);

    FILE *f = tmpfile();
    CHECK(f != NULL);
    int file = dup(fileno(f));
    fclose(f);
    CHECK_EQ(weft_fd_write(file, "file", 4, WEFT_FOREVER), 4);
    CHECK_EQ(lseek(file, 0, SEEK_SET), 0);
    CHECK_EQ(weft_fd_wait(file, WEFT_READABLE, WEFT_FOREVER), WEFT_READABLE);
    CHECK_EQ(weft_fd_read(file, buf, sizeof buf, WEFT_FOREVER), 4);
    CHECK_EQ(weft_fd_read(file, buf, sizeof buf, WEFT_FOREVER), 0);
    CHECK_EQ(weft_fd_close(file), 0);

    uint64_t count = 3;
    int e = eventfd(0, 0);
    CHECK_EQ(weft_fd_read(e, &count, sizeof count, WEFT_POLL), WEFT_EAGAIN);
    CHECK_EQ(write(e, &count, sizeof count), sizeof count);
    CHECK_EQ(weft_fd_wait(e, WEFT_READABLE, WEFT_FOREVER), WEFT_READABLE);
    CHECK_EQ(weft_fd_read(e, &count, sizeof count, WEFT_FOREVER), sizeof count);
    CHECK_EQ(weft_fd_close(e), 0);
    return 0;
}
TEST(fd, pipes_files_events_and_duplicates) { run_each(kinds); }

/* Closed behind our back: no poller would tell that the number is a socket's now, whose read(2) would wait. */
static int file_then_socket(void *arg) {
    (void)arg;
    char c;
    FILE *f = tmpfile();
    CHECK(f != NULL);
    int file = dup(fileno(f));
    fclose(f);
    CHECK_EQ(weft_fd_write(file, "file", 4, WEFT_FOREVER), 4);
    open_pair();
    CHECK_EQ(dup2(pair[0], file), file);
    CHECK_EQ(weft_fd_read(file, &c, 1, WEFT_POLL), WEFT_EAGAIN);
    CHECK_EQ(write(pair[1], "x", 1), 1);
    CHECK_EQ(weft_fd_read(file, &c, 1, WEFT_FOREVER), 1);
    CHECK_EQ(weft_fd_close(file), 0);
    close_pair();
    return 0;
}
TEST(fd, a_number_that_was_a_files_may_be_a_sockets_the_next_time) { run_each(file_then_socket); }

static int terminal(void *arg) {
    (void)arg;
    char buf[16] = {0};
    int m = posix_openpt(O_RDWR | O_NOCTTY);
    if (m < 0 || grantpt(m) || unlockpt(m)) test_skip("no terminals here");
    int t = open(ptsname(m), O_RDWR | O_NOCTTY);
    if (t < 0) test_skip("no terminals here");
    CHECK_EQ(weft_fd_read(t, buf, sizeof buf, weft_after(WEFT_MS)), WEFT_ETIMEDOUT);
    CHECK_EQ(weft_fd_write(m, "line\n", 5, WEFT_FOREVER), 5);
    CHECK_EQ(weft_fd_read(t, buf, sizeof buf, WEFT_FOREVER), 5);
    CHECK_STR(buf, "line\n");
    CHECK_EQ(fcntl(t, F_GETFL) & O_NONBLOCK, 0);
    CHECK_EQ(weft_fd_close(t), 0);
    CHECK_EQ(weft_fd_close(m), 0);
    return 0;
}
/* A write that the kernel cannot be asked to end early must not wait in it: its deadline would not be seen. */
static int full_pipe(void *arg) {
    (void)arg;
    int p[2];
    static char data[1 << 20];
    size_t in = 0;
    ssize_t n;
    CHECK_EQ(pipe(p), 0);
    while ((n = weft_fd_write(p[1], data, sizeof data, weft_after(WEFT_MS))) > 0) in += (size_t)n;
    CHECK_EQ(n, WEFT_ETIMEDOUT);
    CHECK_GT(in, 0);
    CHECK_LT(in, sizeof data);
    CHECK_EQ(weft_fd_close(p[1]), 0);
    while ((n = weft_fd_read(p[0], data, sizeof data, WEFT_FOREVER)) > 0) in -= (size_t)n;
    CHECK_EQ(n, 0);
    CHECK_EQ(in, 0);
    CHECK_EQ(weft_fd_close(p[0]), 0);
    return 0;
}
TEST(fd, a_write_into_a_full_pipe_ends_with_its_deadline) { run_each(full_pipe); }
TEST(fd, pipes_are_looked_at_first_where_the_kernel_cannot_be_asked) {
    setenv("WEFT_NO_NOWAIT", "1", 1);
    run_each(full_pipe);
    run_each(kinds);
}

TEST(fd, a_terminal_is_waited_for_and_left_as_it_is) { run_each(terminal); }

static int wrong(void *arg) {
    (void)arg;
    char c;
    CHECK_EQ(weft_fd_read(-1, &c, 1, WEFT_FOREVER), -EBADF);
    CHECK_EQ(weft_fd_read(900, &c, 1, WEFT_FOREVER), -EBADF);
    CHECK_EQ(weft_fd_wait(900, WEFT_READABLE, WEFT_FOREVER), -EBADF);
    CHECK_EQ(weft_fd_close(900), -EBADF);
    CHECK_EQ(weft_fd_close(-1), -EBADF);
    CHECK_EQ(weft_fd_read(1 << 30, &c, 1, WEFT_FOREVER), WEFT_ELIMIT);
    CHECK_EQ(weft_fd_wait(0, 0, WEFT_FOREVER), WEFT_EINVAL);
    CHECK_EQ(weft_fd_wait(0, 64, WEFT_FOREVER), WEFT_EINVAL);
    return 0;
}
TEST(fd, what_is_no_descriptor_is_refused) { run_each(wrong); }

static int datagrams(void *arg) {
    (void)arg;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, from;
    socklen_t len = sizeof a;
    char buf[32] = {0};
    int r = socket(AF_INET, SOCK_DGRAM, 0), s = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK_EQ(bind(r, (struct sockaddr *)&a, sizeof a), 0);
    CHECK_EQ(getsockname(r, (struct sockaddr *)&a, &len), 0);
    CHECK_EQ(weft_fd_sendto(s, "one", 3, 0, (struct sockaddr *)&a, sizeof a, WEFT_FOREVER), 3);
    struct iovec out = {"two", 3}, in = {buf, sizeof buf};
    struct msghdr m = {.msg_name = &a, .msg_namelen = sizeof a, .msg_iov = &out, .msg_iovlen = 1},
                  got = {.msg_iov = &in, .msg_iovlen = 1};
    CHECK_EQ(weft_fd_sendmsg(s, &m, 0, WEFT_FOREVER), 3);
    len = sizeof from;
    CHECK_EQ(weft_fd_recvfrom(r, buf, sizeof buf, 0, (struct sockaddr *)&from, &len, WEFT_FOREVER), 3);
    CHECK_STR(buf, "one");
    CHECK_EQ(weft_fd_recv(r, buf, sizeof buf, MSG_PEEK, WEFT_FOREVER), 3);
    CHECK_EQ(weft_fd_recvmsg(r, &got, 0, WEFT_FOREVER), 3);
    CHECK_STR(buf, "two");
    CHECK_EQ(weft_fd_recv(r, buf, sizeof buf, 0, weft_after(WEFT_MS)), WEFT_ETIMEDOUT);
    CHECK_EQ(weft_fd_close(r), 0);
    CHECK_EQ(weft_fd_close(s), 0);
    return 0;
}
TEST(fd, datagrams_go_to_and_fro) { run_each(datagrams); }

/* ---- plain threads ---- */

static void *thread_reads(void *arg) {
    char c;
    atomic_fetch_add(&started, 1);
    *(ssize_t *)arg = weft_fd_read(pair[0], &c, 1, WEFT_FOREVER);
    return NULL;
}

TEST(fd, a_plain_thread_waits_too) {
    pthread_t t;
    ssize_t n = 0;
    CHECK_EQ(set_up(2), 0);
    open_pair();
    CHECK_EQ(pthread_create(&t, NULL, thread_reads, &n), 0);
    thread_wait(&started, 1);
    CHECK_EQ(write(pair[1], "x", 1), 1);
    pthread_join(t, NULL);
    CHECK_EQ(n, 1);
    CHECK_EQ(pthread_create(&t, NULL, thread_reads, &n), 0);
    thread_wait(&started, 2);
    CHECK_EQ(weft_fd_close(pair[0]), 0);
    pthread_join(t, NULL);
    CHECK(n == WEFT_ECLOSED || n == -EBADF); /* -EBADF: it had not begun */
    CHECK_EQ(weft_fd_close(pair[1]), 0);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
}

TEST(fd, a_plain_thread_needs_no_runtime) {
    char c = 0;
    open_pair();
    CHECK_EQ(weft_fd_read(pair[0], &c, 1, WEFT_POLL), WEFT_EAGAIN);
    CHECK_EQ(weft_fd_read(pair[0], &c, 1, weft_after(WEFT_MS)), WEFT_ETIMEDOUT);
    CHECK_EQ(weft_fd_write(pair[1], "x", 1, WEFT_FOREVER), 1);
    CHECK_EQ(weft_fd_read(pair[0], &c, 1, WEFT_FOREVER), 1);
    CHECK_EQ(weft_fd_wait(pair[0], WEFT_WRITABLE, WEFT_FOREVER), WEFT_WRITABLE);
    close_pair();
}

static int use_pair(void *arg) {
    char c;
    CHECK_EQ(weft_fd_write(pair[1], "x", 1, WEFT_FOREVER), 1);
    CHECK_EQ(weft_fd_read(pair[0], &c, 1, WEFT_FOREVER), 1);
    CHECK_EQ(weft_fd_read(pair[0], &c, 1, weft_after(WEFT_MS)), WEFT_ETIMEDOUT);
    return arg ? (close_pair(), 0) : 0;
}
TEST(fd, a_descriptor_outlives_the_runtime) {
    int fds = test_fds();
    open_pair();
    for (int i = 0; i < 3; i++) CHECK_EQ(run_on(2, use_pair, NULL), 0);
    CHECK_EQ(run_on(1, use_pair, as_arg(1)), 0);
    test_wait_fds(fds);
}

static int child_uses_it(void *arg) {
    (void)arg;
    return run_on(1, use_pair, NULL);
}
static int fork_in_thread(void *arg) {
    (void)arg;
    CHECK_EQ(set_up(1), 0);
    open_pair();
    CHECK_EQ(weft_block_on(use_pair, NULL), 0);
    pid_t child = fork();
    if (child == 0) _exit(child_uses_it(NULL));
    int status = -1;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
    CHECK_EQ(weft_block_on(use_pair, NULL), 0);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    return 0;
}
TEST(fd, the_child_of_a_fork_has_a_poller_of_its_own) {
    test_skip_under("a runtime is started in a child of a process with threads", "the emulator starts no thread there");
    CHECK_CHILD(fork_in_thread);
}

/* ---- nobody starves ---- */

static atomic_bool enough;
static int echo_for_ever(void *arg) {
    char buf[64];
    int fd = pair[(intptr_t)arg];
    ssize_t n;
    while ((n = weft_fd_read(fd, buf, sizeof buf, WEFT_FOREVER)) > 0)
        if (weft_fd_write(fd, buf, (size_t)n, WEFT_FOREVER) != n) break;
    return 0;
}
static int yield_for_ever(void *arg) {
    (void)arg;
    while (!atomic_load(&enough)) weft_yield();
    return 0;
}
static int hot(void *arg) {
    (void)arg;
    int slow[2];
    char c = 0;
    atomic_store(&enough, false);
    open_pair();
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, slow), 0);
    weft_scope s;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, echo_for_ever, as_arg(0)), 0); /* a hot socket: one message goes round and round */
    CHECK_EQ(weft_spawn(&s, echo_for_ever, as_arg(1)), 0);
    CHECK_EQ(write(pair[0], "hot", 3), 3);
    CHECK_EQ(weft_spawn(&s, yield_for_ever, NULL), 0); /* and a slot that is never out of work */
    for (int i = 0; i < 20; i++) {
        CHECK_EQ(weft_sleep_for(WEFT_MS), 0); /* a timer */
        CHECK_EQ(write(slow[1], "x", 1), 1);
        CHECK_EQ(weft_fd_read(slow[0], &c, 1, WEFT_FOREVER), 1);
    }
    atomic_store(&enough, true);
    CHECK_EQ(weft_fd_close(pair[0]), 0);
    CHECK_EQ(weft_fd_close(pair[1]), 0);
    CHECK_EQ(weft_fd_close(slow[0]), 0);
    CHECK_EQ(close(slow[1]), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    return 0;
}
TEST(fd, sockets_timers_and_tasks_do_not_starve_each_other) { run_each(hot); }

/* With every slot busy computing between calls, the sentry looks. */
static int compute(void *arg) {
    (void)arg;
    while (!atomic_load(&enough)) {
        for (volatile int i = 0; i < 100000; i++) {
        }
        weft_yield();
    }
    return 0;
}
static int beside_load(void *arg) {
    (void)arg;
    char c;
    atomic_store(&enough, false);
    open_pair();
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 4; i++) CHECK_EQ(weft_spawn(&s, compute, NULL), 0);
    for (int i = 0; i < 5; i++) {
        CHECK_EQ(write(pair[1], "x", 1), 1);
        CHECK_EQ(weft_fd_read(pair[0], &c, 1, WEFT_FOREVER), 1);
        CHECK_EQ(weft_fd_read(pair[0], &c, 1, weft_after(WEFT_MS)), WEFT_ETIMEDOUT);
    }
    atomic_store(&enough, true);
    CHECK_EQ(weft_scope_end(&s), 0);
    close_pair();
    return 0;
}
TEST(fd, a_socket_is_served_beside_computing_tasks) { run_each(beside_load); }

/* ---- a close that waits ---- */

static atomic_int closed;
static int close_one(void *arg) {
    CHECK_EQ(weft_fd_close(*(int *)arg), 0);
    atomic_store(&closed, 1);
    return 0;
}
static bool number_is_free(void *arg) { return fcntl(*(int *)arg, F_GETFD) < 0; }

/* It gave its number back at once, and who gets that does not wait for it. */
static int close_with_linger(void *arg) {
    struct linger on = {1, 3600}; /* until it has been read */
    static char much[1 << 16];
    char c;
    int next[2];
    (void)arg;
    atomic_store(&closed, 0);
    open_tcp();
    while (send(pair[0], much, sizeof much, MSG_DONTWAIT) > 0) continue;
    CHECK_EQ(weft_fd_wait(pair[0], WEFT_WRITABLE, WEFT_POLL), WEFT_EAGAIN);
    CHECK_EQ(setsockopt(pair[0], SOL_SOCKET, SO_LINGER, &on, sizeof on), 0);
    weft_scope s;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, close_one, &pair[0]), 0);
    test_task_until(number_is_free, &pair[0]);
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, next), 0);
    int mine = next[1] == pair[0], other = next[!mine];
    if (next[mine] != pair[0]) { /* a lower number was free */
        CHECK_EQ(dup2(next[mine], pair[0]), pair[0]);
        close(next[mine]);
    }
    CHECK_EQ(write(other, "x", 1), 1);
    CHECK_EQ(weft_fd_read(pair[0], &c, 1, WEFT_FOREVER), 1);
    CHECK_EQ(atomic_load(&closed), 0);
    while (recv(pair[1], much, sizeof much, 0) > 0) continue;
    CHECK_EQ(weft_scope_end(&s), 0);
    close(other);
    close_pair();
    return 0;
}
TEST(fd, a_close_that_waits_keeps_nobody_else_waiting) {
    if (test_slow_tools() > 10)
        test_skip("valgrind takes close(2) for a call that never waits, and holds all threads meanwhile");
    EACH_WORKERS(w) run_and_close_all(w, close_with_linger, 0);
}
