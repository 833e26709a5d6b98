/* SPDX-License-Identifier: MIT */
/* Reads of nothing, ends of peers, descriptors that are no connections: what needs no waiting,
 * and what a wait tells. */
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/common.h"

static atomic_int begun;

static void open_pair(int p[2]) { CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, p), 0); }

/* ---- nothing is read at once ---- */

static int hold_the_turn(void *c) {
    char b;
    atomic_fetch_add(&begun, 1);
    CHECK_EQ(weft_conn_read(c, &b, 1, WEFT_FOREVER), WEFT_ECLOSED);
    return 0;
}
static int hold_the_turn_of(void *fd) {
    char b;
    atomic_fetch_add(&begun, 1);
    CHECK_EQ(weft_fd_read(*(int *)fd, &b, 1, WEFT_FOREVER), WEFT_ECLOSED);
    return 0;
}
static int read_nothing(void *arg) {
    (void)arg;
    int p[2], q[2];
    weft_conn *c;
    char b;
    size_t got = 9;
    atomic_store(&begun, 0);
    open_pair(p);
    open_pair(q);
    CHECK_EQ(weft_conn_adopt(&c, p[0]), 0);
    weft_conn *gone = weft_conn_ref(c);
    weft_scope s;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, hold_the_turn, c), 0);
    CHECK_EQ(weft_spawn(&s, hold_the_turn_of, &q[0]), 0);
    task_wait_parked(&begun, 2);
    weft_deadline ways[] = {WEFT_FOREVER, WEFT_POLL, weft_at(1)};
    for (size_t i = 0; i < COUNT(ways); i++) {
        CHECK_EQ(weft_conn_read(c, &b, 0, ways[i]), 0);
        CHECK_EQ(weft_conn_read_full(c, &b, 0, &got, ways[i]), 0);
        CHECK_EQ(got, 0);
        CHECK_EQ(weft_conn_read_until(c, &b, 0, 'x', &got, ways[i]), WEFT_ELIMIT);
        CHECK_EQ(weft_fd_read(q[0], &b, 0, ways[i]), 0);
        CHECK_EQ(weft_fd_recv(q[0], &b, 0, 0, ways[i]), 0);
        CHECK_EQ(weft_fd_recvfrom(q[0], &b, 0, 0, NULL, NULL, ways[i]), 0);
    }
    CHECK_EQ(weft_conn_close(c), 0);
    CHECK_EQ(weft_fd_close(q[0]), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(weft_conn_read(gone, &b, 0, WEFT_FOREVER), WEFT_ECLOSED);
    CHECK_EQ(weft_fd_read(900, &b, 0, WEFT_FOREVER), -EBADF);
    CHECK_EQ(weft_fd_recv(900, &b, 0, 0, WEFT_FOREVER), -EBADF);
    weft_conn_unref(gone);
    CHECK_EQ(close(p[1]) | close(q[1]), 0);
    return 0;
}
TEST(net_wait, nothing_is_read_without_a_turn_or_a_wait) { CHECK_EQ(run_on(1, read_nothing, NULL), 0); }

static int write_nothing(void *arg) {
    (void)arg;
    static char many[1 << 16];
    int p[2];
    weft_conn *c;
    open_pair(p);
    CHECK_EQ(weft_conn_adopt(&c, p[0]), 0);
    while (weft_conn_write_some(c, many, sizeof many, WEFT_POLL) > 0) continue;
    CHECK_EQ(weft_conn_write_some(c, many, 0, WEFT_FOREVER), 0);
    CHECK_EQ(weft_conn_write(c, many, 0, WEFT_FOREVER), 0);
    CHECK_EQ(weft_conn_close(c), 0);
    CHECK_EQ(close(p[1]), 0);
    return 0;
}
TEST(net_wait, nothing_is_written_without_a_wait) { run_each(write_nothing); }

/* A receive of no bytes takes a datagram, as recv(2) does. */
static int take_a_datagram(void *arg) {
    (void)arg;
    int p[2];
    char b;
    CHECK_EQ(socketpair(AF_UNIX, SOCK_DGRAM, 0, p), 0);
    CHECK_EQ(weft_fd_recv(p[0], &b, 0, 0, WEFT_POLL), WEFT_EAGAIN);
    CHECK_EQ(write(p[1], "a", 1) + write(p[1], "b", 1), 2);
    CHECK_EQ(weft_fd_recv(p[0], &b, 0, 0, WEFT_FOREVER), 0);
    CHECK_EQ(weft_fd_recv(p[0], &b, 1, 0, WEFT_FOREVER), 1);
    CHECK_EQ(b, 'b');
    CHECK_EQ(weft_fd_close(p[0]), 0);
    CHECK_EQ(close(p[1]), 0);
    return 0;
}
TEST(net_wait, a_receive_of_nothing_takes_a_datagram) { run_each(take_a_datagram); }

/* ---- hanging up ---- */

/* Until no more goes in. */
static void fill(int fd) {
    static char many[4096];
    while (send(fd, many, sizeof many, MSG_DONTWAIT) > 0) continue;
}
static int hang_up(void *arg) {
    (void)arg;
    int p[2];
    open_pair(p);
    CHECK_EQ(weft_fd_wait(p[0], WEFT_WRITABLE, WEFT_FOREVER), WEFT_WRITABLE);
    CHECK_EQ(shutdown(p[1], SHUT_WR), 0); /* it still reads */
    CHECK_EQ(weft_fd_wait(p[0], WEFT_WRITABLE, WEFT_FOREVER), WEFT_WRITABLE | WEFT_HANGUP);
    CHECK_EQ(weft_fd_wait(p[0], WEFT_READABLE, WEFT_FOREVER), WEFT_READABLE | WEFT_HANGUP);
    CHECK_EQ(weft_fd_wait(p[0], WEFT_READABLE | WEFT_WRITABLE, WEFT_FOREVER), WEFT_READABLE | WEFT_WRITABLE | WEFT_HANGUP);
    fill(p[0]); /* that it will send no more makes no room */
    CHECK_EQ(weft_fd_wait(p[0], WEFT_WRITABLE, WEFT_POLL), WEFT_EAGAIN);
    int64_t before = test_thread_cpu_ns();
    CHECK_EQ(weft_fd_wait(p[0], WEFT_WRITABLE, weft_after(100 * WEFT_MS)), WEFT_ETIMEDOUT);
    CHECK_LT(test_thread_cpu_ns() - before, 30 * WEFT_MS * test_slow_tools()); /* it does not go round */
    CHECK_EQ(close(p[1]), 0);
    CHECK_EQ(weft_fd_wait(p[0], WEFT_WRITABLE, WEFT_FOREVER), WEFT_WRITABLE | WEFT_HANGUP);
    CHECK_EQ(weft_fd_close(p[0]), 0);
    return 0;
}
TEST(net_wait, a_writer_is_told_of_a_peer_that_has_hung_up) {
    run_each(hang_up);
    CHECK_EQ(hang_up(NULL), 0); /* without a runtime */
}

static int hang_up_tcp(void *arg) {
    (void)arg;
    weft_listener *l;
    weft_conn *near, *far;
    char addr[WEFT_ADDR_MAX];
    CHECK_EQ(weft_tcp_listen(&l, "127.0.0.1:0", NULL), 0);
    CHECK_GT(weft_listener_addr(l, addr, sizeof addr), 0);
    CHECK_EQ(weft_dial(&near, addr, WEFT_FOREVER), 0);
    CHECK_EQ(weft_accept(l, &far, WEFT_FOREVER), 0);
    CHECK_EQ(weft_conn_wait(near, WEFT_WRITABLE, WEFT_FOREVER), WEFT_WRITABLE);
    CHECK_EQ(weft_conn_close(far), 0);
    CHECK_EQ(weft_conn_wait(near, WEFT_READABLE, WEFT_FOREVER), WEFT_READABLE | WEFT_HANGUP); /* it has come */
    CHECK_EQ(weft_conn_wait(near, WEFT_WRITABLE, WEFT_FOREVER), WEFT_WRITABLE | WEFT_HANGUP);
    CHECK_EQ(weft_conn_close(near), 0);
    CHECK_EQ(weft_listener_close(l), 0);
    return 0;
}
TEST(net_wait, a_connection_tells_of_a_peer_that_has_hung_up) { run_each(hang_up_tcp); }

/* ---- adopting ---- */

static int adopt_others(void *arg) {
    (void)arg;
    weft_conn *c;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK_EQ(weft_conn_adopt(&c, fd), -ENOTCONN);
    CHECK(strstr(weft_net_error(), "not connected") != NULL);
    CHECK_EQ(listen(fd, 1), 0);
    CHECK_EQ(weft_conn_adopt(&c, fd), -ENOTCONN);
    CHECK_EQ(close(fd), 0); /* it stayed ours */
    fd = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK_EQ(weft_conn_adopt(&c, fd), WEFT_EINVAL);
    CHECK_EQ(close(fd), 0);
    return 0;
}
TEST(net_wait, a_socket_that_is_not_connected_is_not_adopted) { run_each(adopt_others); }
