/* SPDX-License-Identifier: MIT */
/* Descriptors, connections, listeners, datagrams, names. */
#include <sys/un.h>

#include "try_once.h"

static int fd[2], extra[2];
static weft_chan *quiet;
static weft_conn *conn;
static weft_listener *listener;
static weft_udp *udp, *udp_peer;
static weft_addr udp_to;
static char buf[8];
static struct sockaddr_un at;
static socklen_t at_len;

static void set_nonblocking(int f) { CHECK_GE(fcntl(f, F_SETFL, fcntl(f, F_GETFL) | O_NONBLOCK), 0); }

/* A name for a Unix socket that no file has. */
static void set_name(const char *name) {
    at = (struct sockaddr_un){.sun_family = AF_UNIX};
    int n = snprintf(at.sun_path + 1, sizeof at.sun_path - 1, "weft-%s-%d", name, getpid());
    at_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}
static const struct sockaddr *name(void) { return (const struct sockaddr *)&at; }

/* ---- descriptors ---- */

static void make_pair(void) {
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    set_nonblocking(fd[1]);
}
static void make_readable(void) {
    make_pair();
    CHECK_EQ(write(fd[1], "x", 1), 1);
}
static void end_pair(void) {
    CHECK_EQ(weft_fd_close(fd[0]), 0);
    CHECK_EQ(close(fd[1]), 0);
}
static void fill(int f) {
    static char much[1 << 16];
    while (send(f, much, sizeof much, MSG_DONTWAIT) > 0) continue;
    while (send(f, much, 1, MSG_DONTWAIT) > 0) continue;
}
static void spoil_write(void) { fill(fd[0]); }

static ssize_t use_wait(weft_deadline d) { return weft_fd_wait(fd[0], WEFT_READABLE, d); }
static void drain(void) { CHECK_EQ(recv(fd[0], buf, sizeof buf, MSG_DONTWAIT), 1); }
static ssize_t use_read(weft_deadline d) { return weft_fd_read(fd[0], buf, 1, d); }
static ssize_t use_write(weft_deadline d) { return weft_fd_write(fd[0], "x", 1, d); }
static ssize_t use_recv(weft_deadline d) { return weft_fd_recv(fd[0], buf, 1, 0, d); }
static ssize_t use_send(weft_deadline d) { return weft_fd_send(fd[0], "x", 1, 0, d); }
static ssize_t use_recvfrom(weft_deadline d) { return weft_fd_recvfrom(fd[0], buf, 1, 0, NULL, NULL, d); }
static ssize_t use_errors(weft_deadline d) { return weft_fd_recv(fd[0], buf, 1, MSG_ERRQUEUE, d); }
static struct msghdr *message(void) {
    static struct iovec v = {buf, 1};
    static struct msghdr m;
    m = (struct msghdr){.msg_iov = &v, .msg_iovlen = 1};
    return &m;
}
static ssize_t use_recvmsg(weft_deadline d) { return weft_fd_recvmsg(fd[0], message(), 0, d); }
static ssize_t use_sendmsg(weft_deadline d) { return weft_fd_sendmsg(fd[0], message(), 0, d); }

static void make_select(void) {
    make_readable();
    quiet = weft_chan_new(1, 0);
}
static ssize_t use_select(weft_deadline d) {
    return weft_select(d, weft_on_recv(quiet, buf, NULL), weft_on_fd(fd[0], WEFT_READABLE));
}
static void end_select(void) {
    weft_chan_unref(quiet);
    end_pair();
}

/* Sent to an address whose queue may be full. */
static void make_sendto(void) {
    set_name("to");
    CHECK_GE(fd[0] = socket(AF_UNIX, SOCK_DGRAM, 0), 0);
    CHECK_GE(fd[1] = socket(AF_UNIX, SOCK_DGRAM, 0), 0);
    CHECK_EQ(bind(fd[1], name(), at_len), 0);
}
static ssize_t use_sendto(weft_deadline d) { return weft_fd_sendto(fd[0], "x", 1, 0, name(), at_len, d); }
static ssize_t use_sendmsg_to(weft_deadline d) {
    struct msghdr *m = message();
    m->msg_name = &at;
    m->msg_namelen = at_len;
    return weft_fd_sendmsg(fd[0], m, 0, d);
}
static void spoil_sendto(void) {
    while (sendto(fd[0], "x", 1, MSG_DONTWAIT, name(), at_len) == 1) continue;
}

/* ---- accept and connect ---- */

static void connect_one(int i) {
    CHECK_GE(extra[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0), 0);
    CHECK_EQ(connect(extra[i], name(), at_len), 0);
}
static void make_acceptor(void) {
    set_name("accept");
    CHECK_GE(fd[0] = socket(AF_UNIX, SOCK_STREAM, 0), 0);
    CHECK_EQ(bind(fd[0], name(), at_len), 0);
    CHECK_EQ(listen(fd[0], 4), 0);
    connect_one(0);
}
static ssize_t use_accept_fd(weft_deadline d) {
    int f = weft_fd_accept(fd[0], NULL, NULL, d);
    if (f < 0) return f;
    CHECK_EQ(weft_fd_close(f), 0);
    return 0;
}
static void end_acceptor(void) {
    CHECK_EQ(close(extra[0]), 0);
    CHECK_EQ(weft_fd_close(fd[0]), 0);
}

/* A listener whose queue takes one: one more may be connected, and nobody accepts. */
static void make_connect(void) {
    set_name("connect");
    CHECK_GE(fd[1] = socket(AF_UNIX, SOCK_STREAM, 0), 0);
    CHECK_EQ(bind(fd[1], name(), at_len), 0);
    CHECK_EQ(listen(fd[1], 0), 0);
    CHECK_GE(fd[0] = socket(AF_UNIX, SOCK_STREAM, 0), 0);
}
static ssize_t use_connect(weft_deadline d) { return weft_fd_connect(fd[0], name(), at_len, d); }
static void spoil_connect(void) {
    CHECK_EQ(weft_fd_close(fd[0]), 0);
    CHECK_GE(fd[0] = socket(AF_UNIX, SOCK_STREAM, 0), 0);
}

static char where[WEFT_ADDR_MAX];
static void make_listener(void) {
    set_name("listen");
    snprintf(where, sizeof where, "unix:@%s", at.sun_path + 1);
    CHECK_EQ(weft_tcp_listen(&listener, where, &(weft_net_opts){.backlog = 1}), 0);
}
static void make_accept(void) {
    make_listener();
    connect_one(0);
}
static ssize_t use_accept(weft_deadline d) {
    weft_conn *c;
    int err = weft_accept(listener, &c, d);
    if (!err) CHECK_EQ(weft_conn_close(c), 0);
    return err;
}
static void end_accept(void) {
    CHECK_EQ(close(extra[0]), 0);
    CHECK_EQ(weft_listener_close(listener), 0);
}
static ssize_t use_dial(weft_deadline d) {
    weft_conn *c;
    int err = weft_dial(&c, where, d);
    if (!err) conn = c;
    return err;
}
static void spoil_dial(void) { connect_one(0); } /* two fit into the queue */
static void end_dial(void) {
    CHECK_EQ(weft_conn_close(conn), 0);
    end_accept();
}

/* ---- connections ---- */

static void make_conn(void) {
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    CHECK_EQ(weft_conn_adopt(&conn, fd[0]), 0);
    set_nonblocking(fd[1]);
}
static void make_line(void) {
    make_conn();
    CHECK_EQ(write(fd[1], "x\n", 2), 2);
}
static void end_conn(void) {
    CHECK_EQ(weft_conn_close(conn), 0);
    CHECK_EQ(close(fd[1]), 0);
}
static ssize_t use_conn_read(weft_deadline d) { return weft_conn_read(conn, buf, 2, d); }
static ssize_t use_conn_full(weft_deadline d) { return weft_conn_read_full(conn, buf, 2, NULL, d); }
static ssize_t use_conn_until(weft_deadline d) { return weft_conn_read_until(conn, buf, 8, '\n', NULL, d); }
static ssize_t use_conn_write(weft_deadline d) { return weft_conn_write(conn, "x", 1, d); }
static ssize_t use_conn_some(weft_deadline d) { return weft_conn_write_some(conn, "x", 1, d); }
static ssize_t use_conn_writev(weft_deadline d) { return weft_conn_writev(conn, (struct iovec[]){{buf, 1}, {buf, 1}}, 2, d); }

/* ---- datagrams and names ---- */

static void make_udp(void) {
    char text[WEFT_ADDR_MAX];
    weft_addrs a;
    CHECK_EQ(weft_udp_bind(&udp, "127.0.0.1:0", NULL), 0);
    CHECK_EQ(weft_udp_bind(&udp_peer, "127.0.0.1:0", NULL), 0);
    CHECK_GT(weft_udp_addr(udp, text, sizeof text), 0);
    CHECK_EQ(weft_resolve("127.0.0.1", strchr(text, ':') + 1, &a, WEFT_FOREVER), 0);
    udp_to = a.at[0];
}
static void make_datagram(void) {
    make_udp();
    CHECK_EQ(weft_udp_sendto(udp_peer, "x", 1, &udp_to, WEFT_FOREVER), 1);
}
static void end_udp(void) {
    CHECK_EQ(weft_udp_close(udp), 0);
    CHECK_EQ(weft_udp_close(udp_peer), 0);
}
static ssize_t use_udp_recv(weft_deadline d) { return weft_udp_recvfrom(udp, buf, 1, NULL, d); }
static ssize_t use_udp_recv_batch(weft_deadline d) {
    weft_datagram g[2] = {{.data = buf, .size = 1}, {.data = buf + 1, .size = 1}};
    return weft_udp_recv_batch(udp, g, 2, d);
}
static ssize_t use_udp_send(weft_deadline d) { return weft_udp_sendto(udp_peer, "x", 1, &udp_to, d); }
static ssize_t use_udp_send_batch(weft_deadline d) {
    weft_datagram g[1] = {{.data = buf, .size = 1, .peer = udp_to}};
    return weft_udp_send_batch(udp_peer, g, 1, d);
}

/* A thread answers, at once or not: with WEFT_POLL both may happen. */
static ssize_t use_resolve(weft_deadline d) {
    weft_addrs a;
    return weft_resolve("localhost", "80", &a, d);
}

static const struct op ops[] = {
    {"weft_fd_wait", make_readable, use_wait, WEFT_READABLE, drain, end_pair, 0},
    {"weft_fd_read", make_readable, use_read, 1, NULL, end_pair, 0},
    {"weft_fd_write", make_pair, use_write, 1, spoil_write, end_pair, 0},
    {"weft_fd_recv", make_readable, use_recv, 1, NULL, end_pair, 0},
    {"weft_fd_send", make_pair, use_send, 1, spoil_write, end_pair, 0},
    {"weft_fd_recvfrom", make_readable, use_recvfrom, 1, NULL, end_pair, 0},
    {"weft_fd_recv of errors", make_pair, use_errors, 0, NULL, end_pair, NEVER},
    {"weft_fd_recvmsg", make_readable, use_recvmsg, 1, NULL, end_pair, 0},
    {"weft_fd_sendmsg", make_pair, use_sendmsg, 1, spoil_write, end_pair, 0},
    {"weft_fd_sendto", make_sendto, use_sendto, 1, spoil_sendto, end_pair, 0},
    {"weft_fd_sendmsg with an address", make_sendto, use_sendmsg_to, 1, spoil_sendto, end_pair, 0},
    {"a select with a descriptor", make_select, use_select, 1, drain, end_select, 0},
    {"weft_fd_accept", make_acceptor, use_accept_fd, 0, NULL, end_acceptor, 0},
    {"weft_fd_connect", make_connect, use_connect, 0, spoil_connect, end_pair, 0},
    {"weft_accept", make_accept, use_accept, 0, NULL, end_accept, 0},
    {"weft_dial", make_listener, use_dial, 0, spoil_dial, end_dial, 0},
    {"weft_conn_read", make_line, use_conn_read, 2, NULL, end_conn, 0},
    {"weft_conn_read_full", make_line, use_conn_full, 2, NULL, end_conn, 0},
    {"weft_conn_read_until", make_line, use_conn_until, 2, NULL, end_conn, 0},
    {"weft_conn_write", make_conn, use_conn_write, 1, spoil_write, end_conn, 0},
    {"weft_conn_write_some", make_conn, use_conn_some, 1, spoil_write, end_conn, 0},
    {"weft_conn_writev", make_conn, use_conn_writev, 2, spoil_write, end_conn, 0},
    {"weft_udp_recvfrom", make_datagram, use_udp_recv, 1, NULL, end_udp, 0},
    {"weft_udp_recv_batch", make_datagram, use_udp_recv_batch, 1, NULL, end_udp, 0},
    {"weft_udp_sendto", make_udp, use_udp_send, 1, NULL, end_udp, ALWAYS},
    {"weft_udp_send_batch", make_udp, use_udp_send_batch, 1, NULL, end_udp, ALWAYS},
    {"weft_resolve of a name", NULL, use_resolve, 0, NULL, NULL, NEVER | ALWAYS},
};

TEST(try_once_net, a_cancelled_task_does_what_can_be_done_at_once) { check_tasks(ops, COUNT(ops), CANCELLED); }
TEST(try_once_net, a_task_does_what_can_be_done_at_once) { check_tasks(ops, COUNT(ops), FREE); }
TEST(try_once_net, a_shielded_task_does_what_can_be_done_at_once) { check_tasks(ops, COUNT(ops), SHIELDED); }
TEST(try_once_net, a_plain_thread_beside_a_runtime_likewise) { check_thread(ops, COUNT(ops), true); }
TEST(try_once_net, a_plain_thread_without_a_runtime_likewise) { check_thread(ops, COUNT(ops), false); }

/* ---- somebody else has the turn ---- */

static atomic_int reading;
static int read_on(void *arg) {
    char byte;
    (void)arg;
    atomic_store(&reading, 1);
    return weft_fd_read(fd[0], &byte, 1, WEFT_FOREVER) == 1 ? 0 : 1;
}
static int no_turn(void *arg) {
    (void)arg;
    weft_task *t;
    weft_scope s;
    make_pair();
    atomic_store(&reading, 0);
    CHECK_EQ(weft_task_start(&t, read_on, NULL, NULL), 0);
    task_wait_parked(&reading, 1);
    CHECK_EQ(weft_fd_read(fd[0], buf, 1, WEFT_POLL), WEFT_EAGAIN);
    weft_scope_begin(&s, NULL);
    weft_scope_cancel(&s);
    CHECK_EQ(weft_fd_read(fd[0], buf, 1, WEFT_POLL), WEFT_ECANCELED);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(write(fd[1], "x", 1), 1);
    int r = 1;
    CHECK_EQ(weft_task_join(t, &r, WEFT_FOREVER), 0);
    CHECK_EQ(r, 0);
    end_pair();
    return 0;
}
TEST(try_once_net, a_turn_that_is_taken_cannot_be_had_at_once) { run_each(no_turn); }
