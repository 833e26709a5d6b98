/* SPDX-License-Identifier: MIT */
/* The network with each system call and allocation failing in turn: an error or success, nothing leaked, and afterwards everything works. */
#include <sys/socket.h>
#include <unistd.h>

#include "fault/common.h"

enum { CALLS = 60 }; /* more than any of these makes */

/* A failure of poller calls is made good by trying again, so no wait may hang on it. */
static int read_it(void *arg) {
    char buf[8];
    ssize_t n = weft_conn_read(arg, buf, sizeof buf, WEFT_FOREVER);
    return n > 0 ? 0 : (int)n;
}

/* A listener, a connection, a message each way: the first error, or 0. Leaves nothing behind. */
static int talk(const char *addr) {
    weft_listener *l = NULL;
    weft_conn *near = NULL, *far = NULL;
    char where[WEFT_ADDR_MAX];
    int err = weft_tcp_listen(&l, addr, NULL);
    if (!err) err = weft_listener_addr(l, where, sizeof where);
    if (err > 0) err = weft_dial(&near, where, weft_after(10 * WEFT_SECOND));
    if (!err) err = weft_accept(l, &far, weft_after(10 * WEFT_SECOND));
    if (!err) {
        weft_scope s;
        weft_scope_begin(&s, NULL);
        err = weft_spawn(&s, read_it, far);
        weft_yield();
        ssize_t n = weft_conn_write(near, "x", 1, weft_after(10 * WEFT_SECOND));
        if (n < 0) weft_conn_shutdown(near, SHUT_RDWR);
        if (n < 0) weft_scope_cancel(&s);
        int joined = weft_scope_end(&s);
        err = n < 0 ? (int)n : err ? err : joined;
    }
    weft_conn_close(near);
    weft_conn_close(far);
    weft_listener_close(l);
    return err;
}

static int each_fails(void *arg) {
    const char *addr = arg;
    int errors = 0;
    CHECK_EQ(talk(addr), 0); /* tables and the poller are there */
    int fds = test_fds();
    for (long nth = 1; nth <= CALLS; nth++) {
        weft__fault_arm(nth, false);
        int err = talk(addr);
        weft__fault_arm(0, false);
        CHECK_MSG(err == 0 || is_fault(err) || err == WEFT_ECANCELED, "call %ld: %s", nth, weft_strerror(err));
        errors += err != 0;
        test_wait_fds(fds);
        CHECK_EQ(talk(addr), 0);
    }
    CHECK_GT(errors, 5);
    return 0;
}
TEST_T(fault_net, each_call_of_a_tcp_connection_fails_in_turn, 120) {
    EACH_WORKERS(w) CHECK_EQ(run_on(w, each_fails, (void *)(uintptr_t) "127.0.0.1:0"), 0);
}
TEST_T(fault_net, each_call_of_a_unix_connection_fails_in_turn, 120) {
    CHECK_EQ(run_on(1, each_fails, (void *)(uintptr_t) "unix:@weft-fault-net"), 0);
}

static int first_use_fails(void *arg) {
    (void)arg;
    int p[2], errors = 0, fds = test_fds();
    char c;
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, p), 0);
    for (long nth = 1; nth <= 8; nth++) {
        weft__fault_arm(nth, false);
        ssize_t n = weft_fd_read(p[0], &c, 1, WEFT_POLL);
        weft__fault_arm(0, false);
        CHECK_MSG(n == WEFT_EAGAIN || is_fault((int)n), "call %ld: %zd", nth, n);
        errors += n != WEFT_EAGAIN;
        if (n == WEFT_EAGAIN) break; /* it is known now */
    }
    CHECK_GT(errors, 3); /* table, poller, its kick, the descriptor */
    CHECK_EQ(weft_fd_close(p[0]), 0);
    CHECK_EQ(close(p[1]), 0);
    test_wait_fds(fds + 2); /* the poller's own */
    return 0;
}
TEST(fault_net, the_first_use_of_a_descriptor_fails_at_each_step) {
    int fds = test_fds();
    CHECK_EQ(run_on(1, first_use_fails, NULL), 0);
    test_wait_fds(fds);
}

static int udp_fails(void *arg) {
    (void)arg;
    int fds = -1, errors = 0;
    for (long nth = 0; nth <= 16; nth++) {
        weft_udp *u = NULL;
        weft__fault_arm(nth, false);
        int err = weft_udp_bind(&u, "127.0.0.1:0", NULL);
        char buf[8];
        if (!err) err = (int)weft_udp_recvfrom(u, buf, sizeof buf, NULL, WEFT_POLL);
        weft__fault_arm(0, false);
        weft_udp_close(u);
        CHECK_MSG(err == WEFT_EAGAIN || is_fault(err), "call %ld: %s", nth, weft_strerror(err));
        errors += err != WEFT_EAGAIN;
        if (fds < 0) fds = test_fds();
        test_wait_fds(fds);
    }
    CHECK_GT(errors, 3);
    return 0;
}
TEST(fault_net, each_call_of_a_datagram_socket_fails_in_turn) { CHECK_EQ(run_on(1, udp_fails, NULL), 0); }

static int names_fail(void *arg) {
    (void)arg;
    weft_addrs at;
    for (long nth = 1; nth <= 8; nth++) {
        weft__fault_arm(nth, false);
        int err = weft_resolve("localhost", "80", &at, WEFT_FOREVER);
        weft__fault_arm(0, false);
        CHECK_MSG(err == 0 || is_fault(err) || err == WEFT_ESTALE || err == WEFT_EAGAIN, "call %ld: %s", nth,
                  weft_strerror(err));
    }
    return 0;
}
TEST(fault_net, looking_up_a_name_fails_in_turn) { CHECK_EQ(run_on(1, names_fail, NULL), 0); }

/* Every call of the poller fails for a while: who waits is served afterwards. */
static int poller_fails(void *arg) {
    (void)arg;
    int p[2];
    char c;
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, p), 0);
    CHECK_EQ(weft_fd_read(p[0], &c, 1, WEFT_POLL), WEFT_EAGAIN);
    for (int i = 0; i < 20; i++) {
        weft__fault_arm(1, true);
        CHECK_EQ(write(p[1], "x", 1), 1);
        for (int k = 0; k < 50; k++) weft_yield();
        weft__fault_arm(0, false);
        CHECK_EQ(weft_fd_read(p[0], &c, 1, WEFT_FOREVER), 1);
        CHECK_EQ(weft_fd_read(p[0], &c, 1, weft_after(100 * WEFT_US)), WEFT_ETIMEDOUT);
    }
    CHECK_EQ(weft_fd_close(p[0]), 0);
    close(p[1]);
    return 0;
}
TEST(fault_net, a_poller_that_fails_for_a_while_loses_nothing) { run_each(poller_fails); }

/* ---- selects ---- */

static int put_one(void *arg) { return write(((int *)arg)[1], "x", 1) == 1 ? 0 : -EIO; }

/* A select that waits for a socket, beside channels: the first error, or 0. `n` cases. */
static int select_waits(int n) {
    weft_case k[40];
    weft_chan *c = weft_chan_new(sizeof(int), 1);
    int p[2], x = 0;
    if (!c) return WEFT_ENOMEM;
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, p), 0);
    for (int i = 0; i < n; i++)
        k[i] = i == 1 ? weft_on_fd(p[0], WEFT_READABLE) : i % 3 ? weft_on_fd(-1, WEFT_READABLE) : weft_on_recv(c, &x, NULL);
    weft_scope s;
    weft_scope_begin(&s, &(weft_scope_opts){.on_error = WEFT_KEEP_GOING});
    int err = weft_spawn(&s, put_one, p);
    if (!err) err = weft_selectv(k, (size_t)n, weft_after(10 * WEFT_SECOND));
    if (err < 0) weft_scope_cancel(&s);
    (void)weft_scope_end(&s);
    CHECK_EQ(x, 0);
    CHECK_EQ(weft_fd_close(p[0]), 0);
    CHECK_EQ(weft_fd_close(p[1]), 0);
    weft_chan_unref(c);
    CHECK(err < 0 || err == 1);
    return err < 0 ? err : 0;
}
static int selects_fail(void *arg) {
    int n = (int)(intptr_t)arg, errors = 0;
    CHECK_EQ(select_waits(n), 0); /* tables and the poller are there */
    int fds = test_fds();
    for (long nth = 1; nth <= 20; nth++) {
        weft__fault_arm(nth, false);
        int err = select_waits(n);
        weft__fault_arm(0, false);
        CHECK_MSG(err == 0 || is_fault(err), "call %ld: %s", nth, weft_strerror(err));
        errors += err != 0;
        test_wait_fds(fds);
        CHECK_EQ(select_waits(n), 0);
    }
    CHECK_GT(errors, 2); /* kind, poller, question, with many cases memory */
    return 0;
}
TEST_T(fault_net, each_call_of_a_select_with_descriptors_fails_in_turn, 120) {
    EACH_WORKERS(w) {
        CHECK_EQ(run_on(w, selects_fail, as_arg(4)), 0);
        CHECK_EQ(run_on(w, selects_fail, as_arg(40)), 0);
    }
}
