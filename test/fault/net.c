/* SPDX-License-Identifier: MIT */
/* The network with each system call and allocation failing in turn: an error or success, nothing leaked, and afterwards everything works. */
#include <sys/socket.h>
#include <unistd.h>

#include "departs.h"
#include "fault/common.h"
#include "io/depart.h"

/* A failure of poller calls is made good by trying again, so no wait may hang on it. */
static int read_it(void *arg) {
    char buf[8];
    ssize_t n = weft_conn_read(arg, buf, sizeof buf, WEFT_FOREVER);
    return n > 0 ? 0 : (int)n;
}

/* A listener, a connection, a message each way: the first error, or 0. Leaves nothing behind. */
static int talk(void *addr) {
    weft_listener *l = NULL;
    weft_conn *near = NULL, *far = NULL;
    char where[WEFT_ADDR_MAX];
    int err = weft_tcp_listen(&l, addr, NULL);
    if (!err) err = weft_listener_addr(l, where, sizeof where);
    if (err > 0) err = weft_dial(&near, where, weft_after(60 * WEFT_SECOND));
    if (!err) err = weft_accept(l, &far, weft_after(60 * WEFT_SECOND));
    if (!err) {
        weft_scope s;
        weft_scope_begin(&s, NULL);
        err = weft_spawn(&s, read_it, far);
        weft_yield();
        ssize_t n = weft_conn_write(near, "x", 1, weft_after(60 * WEFT_SECOND));
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

static int each_fails(void *addr) {
    check_each_fails(talk, addr, 60, 6, WEFT_ECANCELED);
    return 0;
}
TEST_T(fault_net, each_call_of_a_tcp_connection_fails_in_turn, 120) {
    EACH_WORKERS(w) CHECK_EQ(run_on(w, each_fails, (void *)(uintptr_t) "127.0.0.1:0"), 0);
}
TEST_T(fault_net, each_call_of_a_unix_connection_fails_in_turn, 120) {
    CHECK_EQ(run_on(1, each_fails, (void *)(uintptr_t) "unix:@weft-fault-net"), 0);
}
TEST_T(fault_net, each_call_of_a_unix_listener_with_a_file_fails_in_turn, 120) {
    char dir[] = "/tmp/weft-fault-XXXXXX", path[] = "unix:here.sock";
    CHECK(mkdtemp(dir) != NULL);
    CHECK_EQ(chdir(dir), 0); /* a relative path needs a call more */
    CHECK_EQ(run_on(1, each_fails, path), 0);
    CHECK_EQ(rmdir(dir), 0);
}

/* ---- the other ways to make and use one ---- */

/* Everything that can be asked of a connection of `fd`, whose other end is `peer`: the first error, or 0. */
static int use_adopted(int fd, int peer) {
    weft_conn *c = NULL;
    char buf[16], at[WEFT_ADDR_MAX];
    struct iovec v[2] = {{(void *)(uintptr_t) "one\n", 4}, {(void *)(uintptr_t) "two", 3}};
    weft_deadline soon = weft_after(60 * WEFT_SECOND);
    CHECK_EQ(write(peer, "line\nfull", 9), 9);
    ssize_t rc = weft_conn_adopt(&c, fd);
    if (rc < 0) {
        CHECK(!c);
        CHECK_EQ(close(fd), 0); /* it stayed ours */
        return (int)rc;
    }
    weft_conn *mine = weft_conn_ref(c);
    CHECK_EQ(weft_conn_fd(c), fd);
    rc = weft_conn_peer(c, at, sizeof at);
    if (rc >= 0) rc = weft_conn_local(c, at, sizeof at);
    if (rc >= 0) rc = weft_conn_wait(c, WEFT_READABLE, soon);
    if (rc >= 0) rc = weft_conn_read_until(c, buf, sizeof buf, '\n', NULL, soon);
    if (rc >= 0) CHECK_EQ(rc, 5);
    if (rc >= 0) CHECK_EQ(weft_conn_buffered(c), 4);
    if (rc >= 0) CHECK_EQ(weft_conn_release(c), WEFT_ELIMIT);
    if (rc >= 0) rc = weft_select(soon, weft_on_conn(c, WEFT_READABLE));
    if (rc >= 0) rc = weft_conn_read_full(c, buf, 4, NULL, soon);
    if (rc >= 0) CHECK_EQ(memcmp(buf, "full", 4), 0);
    if (rc >= 0) rc = weft_conn_write_some(c, "x", 1, soon);
    if (rc >= 0) rc = weft_conn_writev(c, v, 2, soon);
    if (rc < 0) CHECK(weft_net_error() != NULL);
    int released = weft_conn_release_with(c, buf, sizeof buf, NULL);
    CHECK_EQ(released, fd);
    CHECK_EQ(weft_conn_read(mine, buf, sizeof buf, soon), WEFT_ECLOSED);
    weft_conn_unref(mine);
    CHECK_EQ(close(released), 0);
    return rc < 0 ? (int)rc : 0;
}

static int adopt(void *addr) {
    int p[2];
    (void)addr;
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, p), 0);
    int rc = use_adopted(p[0], p[1]);
    CHECK_EQ(close(p[1]), 0);
    return rc;
}

/* A line that is longer than what is read ahead at first: each failure leaves the bytes where
 * they are. */
static int long_line(void *arg) {
    enum { LINE = 10000 };
    static char out[LINE], in[LINE];
    weft_conn *c;
    int p[2];
    (void)arg;
    memset(out, 'x', sizeof out);
    out[LINE - 1] = '\n';
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, p), 0);
    CHECK_EQ(write(p[1], out, LINE), LINE);
    ssize_t rc = weft_conn_adopt(&c, p[0]), n = 0;
    while (!rc && (n = weft_conn_read_until(c, in, LINE, '\n', NULL, WEFT_FOREVER)) < 0) { /* it works afterwards */
        CHECK(is_fault((int)n));
        memset(in, 0, sizeof in);
        weft__fault_arm(0, false);
    }
    if (!rc) CHECK_EQ(n, LINE);
    if (!rc) CHECK_EQ(memcmp(in, out, LINE), 0);
    CHECK_EQ(rc ? close(p[0]) : weft_conn_close(c), 0);
    CHECK_EQ(close(p[1]), 0);
    return (int)rc;
}

/* With options, and a reference that outlives the listener. */
static int dial_with_options(void *addr) {
    weft_listener *l = NULL, *mine = NULL;
    weft_conn *near = NULL, *far = NULL;
    char where[WEFT_ADDR_MAX];
    weft_net_opts o = {.backlog = 8, .keep_alive = 30, .send_buffer = 1 << 16};
    int err = weft_tcp_listen(&l, addr, &o);
    if (!err) mine = weft_listener_ref(l);
    if (!err) CHECK_GE(weft_listener_fd(l), 0);
    if (!err) err = weft_listener_addr(l, where, sizeof where);
    if (err > 0) err = weft_dial_opts(&near, where, &o, weft_after(60 * WEFT_SECOND));
    if (!err) err = weft_accept(l, &far, weft_after(60 * WEFT_SECOND));
    weft_conn_close(near);
    weft_conn_close(far);
    if (l) weft_listener_shutdown(l);
    weft_listener_close(l);
    if (mine) CHECK_EQ(weft_accept(mine, &far, weft_after(60 * WEFT_SECOND)), WEFT_ECLOSED);
    weft_listener_unref(mine);
    return err;
}

static int datagrams(void *addr) {
    weft_udp *a = NULL, *b = NULL;
    char where[WEFT_ADDR_MAX], buf[8];
    weft_datagram d = {.data = buf, .size = sizeof buf};
    weft_deadline soon = weft_after(60 * WEFT_SECOND);
    ssize_t rc = weft_udp_bind(&a, addr, NULL);
    if (rc >= 0) rc = weft_udp_bind(&b, addr, NULL);
    if (rc >= 0) rc = weft_udp_addr(b, where, sizeof where);
    weft_addr to = {.len = sizeof to.sa};
    if (rc >= 0) CHECK_EQ(getsockname(weft_udp_fd(b), (struct sockaddr *)&to.sa, &to.len), 0);
    if (rc >= 0) rc = weft_udp_sendto(a, "x", 1, &to, soon);
    if (rc >= 0) rc = weft_udp_recvfrom(b, buf, sizeof buf, NULL, soon);
    if (rc >= 0) rc = weft_udp_send_batch(a, &(weft_datagram){.data = buf, .size = 1, .peer = to}, 1, soon);
    if (rc >= 0) rc = weft_udp_recv_batch(b, &d, 1, soon);
    weft_udp_close(a);
    weft_udp_close(b);
    return rc < 0 ? (int)rc : 0;
}

static int others_fail(void *arg) {
    (void)arg;
    weft_fn *others[] = {adopt, long_line, dial_with_options, datagrams};
    for (size_t i = 0; i < COUNT(others); i++) check_each_fails(others[i], (void *)(uintptr_t) "127.0.0.1:0", 40, 2, 0);
    return 0;
}
TEST_T(fault_net, adopted_connections_options_and_datagrams_fail_in_turn, 120) { run_each(others_fail); }

/* 1: it failed. Another thread may have made the call that was to fail; then it did not. */
static int first_use(void *nth) {
    int p[2];
    char c;
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, p), 0);
    weft__fault_arm((long)(intptr_t)nth, false);
    ssize_t n = weft_fd_read(p[0], &c, 1, WEFT_POLL);
    weft__fault_arm(0, false);
    CHECK_MSG(n == WEFT_EAGAIN || is_fault((int)n), "call %ld: %zd", (long)(intptr_t)nth, n);
    CHECK_EQ(weft_fd_read(p[0], &c, 1, WEFT_POLL), WEFT_EAGAIN); /* it works afterwards */
    CHECK_EQ(weft_fd_close(p[0]), 0);
    CHECK_EQ(close(p[1]), 0);
    return n != WEFT_EAGAIN;
}
TEST(fault_net, the_first_use_of_a_descriptor_fails_at_each_step) {
    int fds = test_fds();
    for (intptr_t nth = 1; nth <= 4; nth++) { /* the table, the poller, its kick, the descriptor */
        while (!run_on(1, first_use, as_arg(nth))) continue;
        test_wait_fds(fds);
    }
}

static int look_for_a_datagram(void *arg) {
    weft_udp *u = NULL;
    char buf[8];
    int err = weft_udp_bind(&u, "127.0.0.1:0", NULL);
    if (!err) err = (int)weft_udp_recvfrom(u, buf, sizeof buf, NULL, WEFT_POLL);
    weft_udp_close(u);
    (void)arg;
    return err == WEFT_EAGAIN ? 0 : err;
}
static int udp_fails(void *arg) {
    check_each_fails(look_for_a_datagram, arg, 16, 4, 0);
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
        CHECK_MSG(err == 0 || is_fault(err) || err == WEFT_ENOHOST || err == WEFT_EAGAIN, "call %ld: %s", nth,
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
static int select_waits(void *arg) {
    int n = (int)(intptr_t)arg;
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
    if (!err) err = weft_selectv(k, (size_t)n, weft_after(60 * WEFT_SECOND));
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
    check_each_fails(select_waits, arg, 20, 3, 0); /* kind, poller, question, with many cases memory */
    return 0;
}
TEST_T(fault_net, each_call_of_a_select_with_descriptors_fails_in_turn, 120) {
    EACH_WORKERS(w) {
        CHECK_EQ(run_on(w, selects_fail, as_arg(4)), 0);
        CHECK_EQ(run_on(w, selects_fail, as_arg(40)), 0);
    }
}

/* ---- answers that go together ---- */

enum { CROWD = 12 };
static weft_conn *crowd[CROWD];
static int crowd_peer[CROWD];
static atomic_int crowd_waits;

static int echo_once(void *arg) {
    weft_conn *c = arg;
    char buf[16];
    atomic_fetch_add(&crowd_waits, 1);
    ssize_t n = weft_conn_read(c, buf, sizeof buf, WEFT_FOREVER);
    if (n > 0) n = weft_conn_write(c, buf, (size_t)n, WEFT_FOREVER);
    if (n < 0) weft_conn_shutdown(c, SHUT_RDWR);
    if (n < 0) CHECK(is_fault((int)n));
    return 0;
}

/* With call `nth` of the answers failing: each of them comes, or the connection ends. */
static int answer_together(void *nth) {
    weft_scope s;
    int ended = 0;
    atomic_store(&crowd_waits, 0);
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < CROWD; i++) {
        int fd[2];
        CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
        crowd_peer[i] = fd[1];
        CHECK_EQ(weft_conn_adopt(&crowd[i], fd[0]), 0);
        CHECK_EQ(weft_spawn(&s, echo_once, crowd[i]), 0);
    }
    task_wait_parked(&crowd_waits, CROWD);
    for (int i = 0; i < CROWD; i++) CHECK_EQ(write(crowd_peer[i], &i, sizeof i), sizeof i);
    weft__fault_arm((intptr_t)nth, false);
    CHECK_EQ(weft_scope_end(&s), 0);
    weft__fault_arm(0, false);
    for (int i = 0, got; i < CROWD; i++) {
        ssize_t n = recv(crowd_peer[i], &got, sizeof got, MSG_DONTWAIT);
        CHECK(n == 0 || (n == sizeof got && got == i));
        ended += n == 0;
        CHECK_EQ(weft_conn_close(crowd[i]), 0);
        CHECK_EQ(close(crowd_peer[i]), 0);
    }
    CHECK_LE(ended, 1);
    return ended;
}
static void fail_answers(int calls) {
    int ended = 0, fds = test_fds();
    for (intptr_t nth = 1; nth <= calls; nth++) {
        int n = run_on(1, answer_together, as_arg(nth));
        CHECK_GE(n, 0);
        ended += n;
        test_wait_fds(fds);
    }
    CHECK_GE(ended, CROWD / 2); /* where it was a receive or a send of one; the ring's own calls are made good */
}
TEST_T(fault_net, each_call_of_answers_that_go_together_fails_in_turn, 120) { fail_answers(40); }
/* Those that are made to find out whether it pays, too: it does. */
TEST_T(fault_net, each_call_of_finding_out_whether_it_pays_fails_in_turn, 120) {
    const char *told = getenv("WEFT_NO_IO_URING");
    if (told && strcmp(told, "0") == 0) unsetenv("WEFT_NO_IO_URING");
    weft__depart_gain = INT64_MIN;
    fail_answers(50);
}
