/* SPDX-License-Identifier: MIT */
/* Operations on descriptors, with each of their calls failing in turn: an error or success, nothing leaked, and afterwards everything works. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fault/common.h"

static weft_deadline soon(void) { return weft_after(60 * WEFT_SECOND); } /* nothing is waited for that does not come */

/* The first error of several steps; later ones are left out. */
static int error;
static bool step(ssize_t rc) {
    if (!error && rc < 0) error = (int)rc;
    return !error;
}
#define STEP(call) (void)(!error && step(call))

static void use_stream(int a, int b) {
    char buf[8];
    STEP(weft_fd_wait(a, WEFT_WRITABLE, soon()));
    STEP(weft_fd_send(a, "ab", 2, 0, soon()));
    STEP(weft_fd_wait(b, WEFT_READABLE, soon()));
    STEP(weft_fd_recv(b, buf, sizeof buf, 0, soon()));
    STEP(weft_fd_write(b, "c", 1, soon()));
    STEP(weft_fd_read(a, buf, sizeof buf, soon()));
}

static void use_datagrams(int a, int b) {
    char buf[8];
    struct iovec v = {buf, 2};
    struct sockaddr_storage from;
    socklen_t len = sizeof from;
    STEP(weft_fd_sendto(a, "ab", 2, 0, NULL, 0, soon()));
    STEP(weft_fd_recvfrom(b, buf, sizeof buf, 0, (struct sockaddr *)&from, &len, soon()));
    STEP(weft_fd_sendmsg(a, &(struct msghdr){.msg_iov = &v, .msg_iovlen = 1}, 0, soon()));
    STEP(weft_fd_recvmsg(b, &(struct msghdr){.msg_iov = &v, .msg_iovlen = 1}, 0, soon()));
}

static int on_pair(void (*use)(int, int), int type) {
    int p[2];
    error = 0;
    if (type)
        CHECK_EQ(socketpair(AF_UNIX, type, 0, p), 0);
    else
        CHECK_EQ(pipe(p), 0);
    use(p[0], p[1]);
    CHECK_EQ(weft_fd_close(p[0]), 0); /* whatever has happened to it before */
    CHECK_EQ(weft_fd_close(p[1]), 0);
    return error;
}

static int op_stream(void *arg) { return (void)arg, on_pair(use_stream, SOCK_STREAM); }
static int op_datagrams(void *arg) { return (void)arg, on_pair(use_datagrams, SOCK_DGRAM); }

static void use_pipe(int out, int in) {
    char buf[8];
    STEP(weft_fd_write(in, "ab", 2, soon()));
    STEP(weft_fd_wait(out, WEFT_READABLE, soon()));
    STEP(weft_fd_read(out, buf, sizeof buf, soon()));
}
static int op_pipe(void *arg) { return (void)arg, on_pair(use_pipe, 0); }

static int op_accept(void *arg) {
    (void)arg;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int l = socket(AF_INET, SOCK_STREAM, 0), c = socket(AF_INET, SOCK_STREAM, 0), got = -1;
    CHECK(l >= 0 && c >= 0);
    CHECK_EQ(bind(l, (struct sockaddr *)&at, len), 0);
    CHECK_EQ(listen(l, 8), 0);
    CHECK_EQ(getsockname(l, (struct sockaddr *)&at, &len), 0);
    error = 0;
    STEP(weft_fd_connect(c, (struct sockaddr *)&at, len, soon()));
    STEP(got = weft_fd_accept(l, NULL, NULL, soon()));
    if (got >= 0) use_stream(c, got);
    if (got >= 0) CHECK_EQ(weft_fd_close(got), 0);
    CHECK_EQ(weft_fd_close(c), 0);
    CHECK_EQ(weft_fd_close(l), 0);
    return error;
}

/* Nothing comes: it parks, after the number was checked. */
static int parks(int fd) {
    char c;
    ssize_t n = weft_fd_read(fd, &c, 1, weft_after(100 * WEFT_US));
    return n == WEFT_ETIMEDOUT ? 0 : (int)n;
}
/* The next descriptor of a number that other code closed. */
static void use_number_again(int a, int b) {
    int p[2];
    STEP(parks(a));
    CHECK_EQ(pipe(p), 0);
    CHECK_EQ(dup2(p[0], a), a);
    STEP(parks(a));
    STEP(weft_fd_forget(a));
    CHECK_EQ(dup2(b, a), a);
    STEP(parks(a));
    for (int i = 0; i < 2; i++) CHECK_EQ(close(p[i]), 0);
}
static int op_again(void *arg) { return (void)arg, on_pair(use_number_again, SOCK_STREAM); }

static int each_fails(void *arg) {
    weft_fn *ops[] = {op_stream, op_datagrams, op_pipe, op_accept, op_again};
    for (size_t i = 0; i < COUNT(ops); i++) check_each_fails(ops[i], arg, 40, 2, 0);
    return 0;
}
TEST(fault_fd, each_call_of_each_operation_fails_in_turn) { run_each(each_fails); }

TEST(fault_fd, on_a_plain_thread_too) {
    CHECK_EQ(set_up(1), 0);
    CHECK_EQ(each_fails(NULL), 0);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
}

TEST(fault_fd, without_a_runtime_too) { CHECK_EQ(each_fails(NULL), 0); }
