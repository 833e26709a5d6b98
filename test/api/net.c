/* SPDX-License-Identifier: MIT */
/* Listeners, connections, datagrams, names: all on loopback, with ports that the kernel chooses. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/common.h"

/* ---- both ends of a connection ---- */

struct ends {
    weft_listener *l;
    weft_conn *near, *far;
    char addr[WEFT_ADDR_MAX];
};

static void listen_any(struct ends *e, const char *addr) {
    CHECK_EQ(weft_tcp_listen(&e->l, addr, NULL), 0);
    CHECK_GT(weft_listener_addr(e->l, e->addr, sizeof e->addr), 0);
}
static void connect_ends(struct ends *e, const char *addr) {
    listen_any(e, addr);
    CHECK_EQ(weft_dial(&e->near, e->addr, WEFT_FOREVER), 0);
    CHECK_EQ(weft_accept(e->l, &e->far, WEFT_FOREVER), 0);
}
static void close_ends(struct ends *e) {
    CHECK_EQ(weft_conn_close(e->near), 0);
    CHECK_EQ(weft_conn_close(e->far), 0);
    CHECK_EQ(weft_listener_close(e->l), 0);
}

static int says(void *arg) {
    (void)arg;
    char own[40];
    snprintf(own, sizeof own, "unix:@weft-test-net-%d", (int)getpid()); /* another run of this test may have one, too */
    const char *const kinds[] = {"127.0.0.1:0", "[::1]:0", own, ":0"};
    for (size_t i = 0; i < COUNT(kinds); i++) {
        struct ends e;
        char buf[32] = {0}, at[WEFT_ADDR_MAX], peer[WEFT_ADDR_MAX];
        connect_ends(&e, kinds[i]);
        CHECK_EQ(weft_conn_write(e.near, "hello", 5, WEFT_FOREVER), 5);
        CHECK_EQ(weft_conn_read(e.far, buf, sizeof buf, WEFT_FOREVER), 5);
        CHECK_STR(buf, "hello");
        CHECK_EQ(weft_conn_shutdown(e.near, SHUT_WR), 0); /* half of it */
        CHECK_EQ(weft_conn_read(e.far, buf, sizeof buf, WEFT_FOREVER), 0);
        CHECK_EQ(weft_conn_write(e.far, "still there", 11, WEFT_FOREVER), 11);
        CHECK_EQ(weft_conn_read_full(e.near, buf, 11, NULL, WEFT_FOREVER), 11);
        CHECK_GT(weft_conn_local(e.near, at, sizeof at), 0);
        CHECK_GT(weft_conn_peer(e.near, peer, sizeof peer), 0);
        if (i < 3) CHECK_STR(peer, e.addr);
        CHECK_EQ(weft_conn_peer(e.near, peer, 3), WEFT_EINVAL);
        close_ends(&e);
    }
    return 0;
}
TEST(net, both_ends_talk_over_tcp_and_unix_sockets) {
    int fds = test_fds();
    run_each(says);
    test_wait_fds(fds);
}

static int whole(void *arg) {
    (void)arg;
    struct ends e;
    char buf[16], line[32];
    size_t got = 9;
    connect_ends(&e, "127.0.0.1:0");
    struct iovec v[4] = {{"one\nt", 5}, {"", 0}, {"wo\nthr", 6}, {"ee", 2}};
    CHECK_EQ(weft_conn_writev(e.near, v, 4, WEFT_FOREVER), 13);
    CHECK_EQ(v[0].iov_len, 5); /* the caller's */
    memset(line, 0, sizeof line);
    CHECK_EQ(weft_conn_read_until(e.far, line, sizeof line, '\n', NULL, WEFT_FOREVER), 4);
    CHECK_STR(line, "one\n");
    CHECK_EQ(weft_conn_read_until(e.far, line, 2, '\n', &got, WEFT_FOREVER), WEFT_ELIMIT);
    CHECK_EQ(got, 2);
    CHECK_EQ(weft_conn_read(e.far, line, 1, WEFT_FOREVER), 1);
    CHECK_EQ(line[0], 'o');
    CHECK_EQ(weft_conn_read_until(e.far, line, sizeof line, '\n', NULL, WEFT_FOREVER), 1);
    CHECK_EQ(weft_conn_read_until(e.far, line, sizeof line, '\n', &got, weft_after(5 * WEFT_MS)), WEFT_ETIMEDOUT);
    CHECK_EQ(got, 0); /* "three" stays */
    CHECK_EQ(weft_conn_write(e.near, "tail", 4, WEFT_FOREVER), 4);
    CHECK_EQ(weft_conn_shutdown(e.near, SHUT_WR), 0);
    CHECK_EQ(weft_conn_read_full(e.far, buf, 10, &got, WEFT_FOREVER), WEFT_EEOF);
    CHECK_EQ(got, 9);
    CHECK_EQ(weft_conn_read_until(e.far, line, sizeof line, '\n', NULL, WEFT_FOREVER), 0);
    CHECK_EQ(weft_conn_writev(e.near, v, 5000, WEFT_FOREVER), WEFT_EINVAL);
    CHECK_EQ(weft_conn_shutdown(e.near, 77), WEFT_EINVAL);
    close_ends(&e);
    return 0;
}
TEST(net, full_reads_lines_and_pieces) { run_each(whole); }

/* ---- errors ---- */

/* A port that is nobody else's, and where nobody listens. */
static int bound_only(char *addr, size_t size) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK_EQ(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    CHECK_EQ(getsockname(fd, (struct sockaddr *)&a, &len), 0);
    snprintf(addr, size, "127.0.0.1:%d", ntohs(a.sin_port));
    return fd;
}

static int fails(void *arg) {
    (void)arg;
    weft_conn *c;
    weft_listener *l, *again;
    char addr[WEFT_ADDR_MAX], want[256];
    CHECK_EQ(weft_tcp_listen(&l, "127.0.0.1:0", NULL), 0);
    CHECK_GT(weft_listener_addr(l, addr, sizeof addr), 0);
    CHECK_EQ(weft_tcp_listen(&again, addr, NULL), -EADDRINUSE);
    snprintf(want, sizeof want, "listen %s: %s", addr, weft_strerror(-EADDRINUSE));
    CHECK_STR(weft_net_error(), want);
    CHECK_PTR(again, NULL);
    CHECK_EQ(weft_listener_close(l), 0);
    int deaf = bound_only(addr, sizeof addr);
    CHECK_EQ(weft_dial(&c, addr, WEFT_FOREVER), -ECONNREFUSED);
    snprintf(want, sizeof want, "dial %s: Connection refused", addr);
    CHECK_STR(weft_net_error(), want);
    CHECK_PTR(c, NULL);
    close(deaf);
    static const char *const wrong[] = {"", "127.0.0.1", "127.0.0.1:", "::1:80", "[::1]", "[]:1", "unix:", "[::1:80"};
    for (size_t i = 0; i < COUNT(wrong); i++) {
        CHECK_EQ(weft_dial(&c, wrong[i], WEFT_FOREVER), WEFT_EINVAL);
        CHECK_EQ(weft_tcp_listen(&l, wrong[i], NULL), WEFT_EINVAL);
    }
    CHECK_EQ(weft_dial(&c, NULL, WEFT_FOREVER), WEFT_EINVAL);
    CHECK_EQ(weft_dial(&c, "unix:/nowhere/at/all", WEFT_FOREVER), -ENOENT);
    CHECK_EQ(weft_conn_adopt(&c, 12345), -EBADF);
    int p[2];
    CHECK_EQ(pipe(p), 0);
    CHECK_EQ(weft_conn_adopt(&c, p[0]), -ENOTSOCK);
    close(p[0]);
    close(p[1]);
    return 0;
}
TEST(net, an_error_says_what_failed) { run_each(fails); }

static int other_errors(void *arg) {
    *(const char **)arg = weft_net_error();
    CHECK_STR(*(const char **)arg, "");
    return 0;
}
static int own_errors(void *arg) {
    (void)arg;
    weft_conn *c;
    const char *text = NULL;
    CHECK_EQ(weft_dial(&c, "x", WEFT_FOREVER), WEFT_EINVAL);
    weft_task *t;
    CHECK_EQ(weft_task_start(&t, other_errors, &text, NULL), 0);
    CHECK_EQ(weft_task_join(t, NULL, WEFT_FOREVER), 0);
    CHECK(strncmp(weft_net_error(), "dial x: ", 8) == 0);
    return 0;
}
TEST(net, an_error_is_its_tasks_own) { run_each(own_errors); }

/* ---- closing ---- */

static struct ends shared;
static atomic_int inside;
static int read_closed(void *arg) {
    (void)arg;
    char c;
    atomic_fetch_add(&inside, 1);
    CHECK_EQ(weft_conn_read(shared.near, &c, 1, WEFT_FOREVER), WEFT_ECLOSED);
    return 0;
}
static int accept_closed(void *arg) {
    (void)arg;
    weft_conn *c;
    atomic_fetch_add(&inside, 1);
    CHECK_EQ(weft_accept(shared.l, &c, WEFT_FOREVER), WEFT_ECLOSED);
    return 0;
}
static int closes(void *arg) {
    (void)arg;
    atomic_store(&inside, 0);
    connect_ends(&shared, "127.0.0.1:0");
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(weft_spawn(&s, read_closed, NULL), 0);
        CHECK_EQ(weft_spawn(&s, accept_closed, NULL), 0);
    }
    task_wait_parked(&inside, 4);
    close_ends(&shared);
    CHECK_EQ(weft_scope_end(&s), 0);
    /* The port is free at once. */
    weft_listener *l;
    CHECK_EQ(weft_tcp_listen(&l, shared.addr, NULL), 0);
    CHECK_EQ(weft_listener_close(l), 0);
    CHECK_EQ(weft_listener_close(NULL), 0);
    CHECK_EQ(weft_conn_close(NULL), 0);
    return 0;
}
TEST(net, closing_ends_reads_and_accepts) { CHECK_EQ(run_on(1, closes, NULL), 0); }

/* ---- deadlines: a peer that stops ---- */

static int stops(void *arg) {
    (void)arg;
    struct ends e;
    static char many[1 << 20];
    char c;
    weft_conn *none;
    connect_ends(&e, "127.0.0.1:0");
    CHECK_EQ(weft_accept(e.l, &none, weft_after(WEFT_MS)), WEFT_ETIMEDOUT);
    CHECK_EQ(weft_accept(e.l, &none, WEFT_POLL), WEFT_EAGAIN);
    CHECK_EQ(weft_conn_read(e.far, &c, 1, weft_after(WEFT_MS)), WEFT_ETIMEDOUT);
    do { /* it does not read; but if the time was over before a part had gone, it makes room for one */
        ssize_t n = weft_conn_write(e.far, many, sizeof many, weft_after(20 * WEFT_MS));
        if (n == (ssize_t)sizeof many) continue;
        CHECK_EQ(n, WEFT_ETIMEDOUT);
        if (weft_conn_write_some(e.far, "x", 1, WEFT_POLL) != WEFT_EBROKEN)
            (void)weft_conn_read(e.near, many, sizeof many, WEFT_POLL);
    } while (weft_conn_write_some(e.far, "x", 1, WEFT_POLL) != WEFT_EBROKEN);
    CHECK_EQ(weft_conn_write(e.far, "x", 1, WEFT_FOREVER), WEFT_EBROKEN); /* a part has gone */
    CHECK_EQ(weft_conn_write_some(e.far, "x", 1, WEFT_FOREVER), WEFT_EBROKEN);
    close_ends(&e);
    return 0;
}
TEST(net, a_peer_that_stops_is_cut_by_the_deadline) { run_each(stops); }

/* ---- adopting and releasing ---- */

static int adopts(void *arg) {
    (void)arg;
    int p[2];
    weft_conn *a, *b;
    char c;
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, p), 0);
    CHECK_EQ(weft_conn_adopt(&a, p[0]), 0);
    CHECK_EQ(weft_conn_adopt(&b, p[1]), 0);
    CHECK_EQ(weft_conn_fd(a), p[0]);
    CHECK_EQ(weft_conn_write(a, "x", 1, WEFT_FOREVER), 1);
    CHECK_EQ(weft_conn_release(b), p[1]);
    CHECK_EQ(read(p[1], &c, 1), 1);
    CHECK_EQ(close(p[1]), 0);
    CHECK_EQ(weft_conn_read(a, &c, 1, WEFT_FOREVER), 0);
    CHECK_EQ(weft_conn_close(a), 0);
    return 0;
}
TEST(net, a_descriptor_is_adopted_and_released) { run_each(adopts); }

/* ---- options, files ---- */

static int options(void *arg) {
    (void)arg;
    int value = 0;
    socklen_t len = sizeof value;
    char path[64], addr[80];
    weft_listener *l, *m;
    weft_conn *c;
    weft_net_opts o = {
        .backlog = 5, .reuse_port = true, .recv_buffer = 20000, .send_buffer = 20000, .keep_alive = 30, .mode = 0600};
    CHECK_EQ(weft_tcp_listen(&l, "127.0.0.1:0", &o), 0);
    CHECK_GT(weft_listener_addr(l, addr, sizeof addr), 0);
    CHECK_EQ(weft_tcp_listen(&m, addr, &o), 0); /* reuse_port */
    CHECK_EQ(weft_dial_opts(&c, addr, &o, WEFT_FOREVER), 0);
    CHECK_EQ(getsockopt(weft_conn_fd(c), IPPROTO_TCP, TCP_NODELAY, &value, &len), 0);
    CHECK(value);
    CHECK_EQ(getsockopt(weft_conn_fd(c), IPPROTO_TCP, TCP_KEEPIDLE, &value, &len), 0);
    CHECK_EQ(value, 30);
    CHECK_EQ(weft_conn_close(c), 0);
    CHECK_EQ(weft_listener_close(l), 0);
    CHECK_EQ(weft_listener_close(m), 0);

    snprintf(path, sizeof path, "/tmp/weft-test-%d", (int)getpid());
    snprintf(addr, sizeof addr, "unix:%s", path);
    struct stat st;
    CHECK_EQ(weft_tcp_listen(&l, addr, &o), 0);
    CHECK_EQ(stat(path, &st), 0);
    CHECK_EQ(st.st_mode & 0777, 0600);
    CHECK_EQ(weft_tcp_listen(&m, addr, NULL), -EADDRINUSE); /* somebody listens */
    CHECK_EQ(weft_listener_close(l), 0);
    CHECK(stat(path, &st) < 0);
    CHECK_EQ(weft_tcp_listen(&l, addr, NULL), 0); /* left behind, as after a crash */
    int copy = dup(weft_listener_fd(l));
    CHECK_EQ(shutdown(copy, SHUT_RDWR), 0);
    close(copy);
    CHECK_EQ(weft_tcp_listen(&m, addr, NULL), 0); /* nobody listens there any more */
    CHECK_EQ(weft_listener_close(l), 0);
    CHECK_EQ(weft_listener_close(m), 0);
    return 0;
}
TEST(net, options_and_files_of_unix_sockets) { CHECK_EQ(run_on(2, options, NULL), 0); }

/* ---- names ---- */

static int names(void *arg) {
    (void)arg;
    weft_addrs at;
    char text[WEFT_ADDR_MAX];
    CHECK_EQ(weft_resolve("127.0.0.1", "80", &at, WEFT_FOREVER), 0);
    CHECK_EQ(at.count, 1);
    CHECK_GT(weft_addr_text(&at.at[0], text, sizeof text), 0);
    CHECK_STR(text, "127.0.0.1:80");
    CHECK_EQ(weft_resolve("::1", "81", &at, WEFT_FOREVER), 0);
    CHECK_GT(weft_addr_text(&at.at[0], text, sizeof text), 0);
    CHECK_STR(text, "[::1]:81");
    CHECK_EQ(weft_resolve(NULL, "81", &at, WEFT_FOREVER), WEFT_EINVAL);
    if (weft_resolve("localhost", "82", &at, WEFT_FOREVER) == 0) CHECK_GE(at.count, 1);
    struct ends e;
    listen_any(&e, "127.0.0.1:0");
    snprintf(text, sizeof text, "localhost:%s", strrchr(e.addr, ':') + 1);
    int err = weft_dial(&e.near, text, WEFT_FOREVER); /* ::1 refuses, 127.0.0.1 answers */
    if (err == WEFT_ENOHOST || err == WEFT_EAGAIN) test_skip("localhost has no address here");
    CHECK_EQ(err, 0);
    CHECK_EQ(weft_accept(e.l, &e.far, WEFT_FOREVER), 0);
    close_ends(&e);
    return 0;
}
TEST(net, a_name_is_looked_up_and_its_addresses_tried) { run_each(names); }

static int look_up(void *arg) {
    weft_addrs at;
    int rc = weft_resolve("localhost", "80", &at, WEFT_FOREVER);
    CHECK_MSG(rc == 0 || rc == WEFT_ENOHOST || rc == WEFT_EAGAIN, "%d", rc); /* not every machine has one */
    atomic_fetch_add((atomic_int *)arg, 1);
    return 0;
}
/* More than there are threads for, in turns: each gives its place back. */
static int look_up_many(void *arg) {
    enum { NAMES = 200 };
    (void)arg;
    atomic_int n = 0;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < NAMES; i++) CHECK_EQ(weft_spawn(&s, look_up, &n), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(atomic_load(&n), NAMES);
    return 0;
}
TEST(net, many_names_are_looked_up_at_once) { run_each(look_up_many); }

/* ---- no descriptors left ---- */

static atomic_int served;
static int accept_two(void *arg) {
    struct ends *e = arg;
    for (int i = 0; i < 2; i++) {
        weft_conn *c;
        CHECK_EQ(weft_accept(e->l, &c, WEFT_FOREVER), 0);
        atomic_fetch_add(&served, 1);
        CHECK_EQ(weft_conn_close(c), 0);
    }
    return 0;
}
static bool waited(void *arg) {
    (void)arg;
    weft_stats s;
    weft_stats_get(&s);
    return s.accept_waits > 0;
}
static int exhausted(void *arg) {
    (void)arg;
    struct ends e;
    struct rlimit old, few;
    struct sockaddr_in at;
    socklen_t len = sizeof at;
    listen_any(&e, "127.0.0.1:0");
    CHECK_EQ(getsockname(weft_listener_fd(e.l), (struct sockaddr *)&at, &len), 0);
    int a = socket(AF_INET, SOCK_STREAM, 0), b = socket(AF_INET, SOCK_STREAM, 0),
        spare = dup(0); /* alone: no thread takes a number and gives it back */
    CHECK_EQ(weft_fd_wait(a, WEFT_WRITABLE, WEFT_POLL) > 0, 1);
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
    few = old;
    few.rlim_cur = (rlim_t)spare + 1;
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    CHECK_EQ(weft_fd_connect(a, (struct sockaddr *)&at, sizeof at, WEFT_FOREVER), 0);
    CHECK_EQ(weft_fd_connect(b, (struct sockaddr *)&at, sizeof at, WEFT_FOREVER), 0);
    weft_scope s;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, accept_two, &e), 0);
    while (!waited(NULL)) CHECK_EQ(weft_sleep_for(WEFT_MS), 0);
    CHECK_EQ(atomic_load(&served), 0);
    CHECK_EQ(close(spare), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(atomic_load(&served), 2);
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &old), 0);
    CHECK_EQ(weft_fd_close(a), 0);
    CHECK_EQ(weft_fd_close(b), 0);
    CHECK_EQ(weft_listener_close(e.l), 0);
    return 0;
}
TEST(net, without_descriptors_accept_waits_and_goes_on) {
    test_skip_under("the tools have descriptors of their own", NULL);
    CHECK_EQ(run_on(1, exhausted, NULL), 0);
}

/* ---- datagrams ---- */

static int udp(void *arg) {
    (void)arg;
    weft_udp *a, *b;
    char addr[WEFT_ADDR_MAX], buf[8][32], port[16];
    weft_addrs to;
    CHECK_EQ(weft_udp_bind(&a, "127.0.0.1:0", NULL), 0);
    CHECK_EQ(weft_udp_bind(&b, "127.0.0.1:0", NULL), 0);
    CHECK_GT(weft_udp_addr(b, addr, sizeof addr), 0);
    snprintf(port, sizeof port, "%s", strrchr(addr, ':') + 1);
    CHECK_EQ(weft_resolve("127.0.0.1", port, &to, WEFT_FOREVER), 0);
    weft_addr from;
    CHECK_EQ(weft_udp_sendto(a, "one", 3, &to.at[0], WEFT_FOREVER), 3);
    CHECK_EQ(weft_udp_recvfrom(b, buf[0], sizeof buf[0], &from, WEFT_FOREVER), 3);
    CHECK_EQ(weft_udp_sendto(b, "back", 4, &from, WEFT_FOREVER), 4);
    CHECK_EQ(weft_udp_recvfrom(a, buf[0], sizeof buf[0], NULL, WEFT_FOREVER), 4);
    weft_datagram out[5], in[8];
    for (int i = 0; i < 5; i++) out[i] = (weft_datagram){.data = "batch", .size = (size_t)i + 1, .peer = to.at[0]};
    for (int i = 0; i < 8; i++) in[i] = (weft_datagram){.data = buf[i], .size = sizeof buf[i]};
    CHECK_EQ(weft_udp_send_batch(a, out, 5, WEFT_FOREVER), 5);
    int got = 0;
    while (got < 5) {
        int n = weft_udp_recv_batch(b, in + got, 8 - got, WEFT_FOREVER);
        CHECK_GT(n, 0);
        got += n;
    }
    for (int i = 0; i < 5; i++) CHECK_EQ(in[i].len, i + 1);
    CHECK_EQ(weft_udp_recv_batch(b, in, 8, weft_after(WEFT_MS)), WEFT_ETIMEDOUT);
    CHECK_EQ(weft_udp_recv_batch(b, in, 0, WEFT_FOREVER), WEFT_EINVAL);
    weft_udp *none;
    CHECK_EQ(weft_udp_bind(&none, addr, NULL), -EADDRINUSE);
    CHECK_EQ(weft_udp_bind(&none, "unix:/x", NULL), WEFT_EINVAL);
    CHECK_EQ(weft_udp_close(a), 0);
    CHECK_EQ(weft_udp_close(b), 0);
    CHECK_EQ(weft_udp_close(NULL), 0);
    return 0;
}
TEST(net, datagrams_one_by_one_and_in_batches) { run_each(udp); }

/* ---- a thousand connections that stay ---- */

enum { ROUNDS = 20 };
static int echo_one(void *arg) {
    weft_conn *c = arg;
    char buf[256];
    ssize_t n;
    while ((n = weft_conn_read(c, buf, sizeof buf, WEFT_FOREVER)) > 0)
        if (weft_conn_write(c, buf, (size_t)n, WEFT_FOREVER) != n) break;
    CHECK_EQ(n, 0);
    return weft_conn_close(c);
}
struct crowd {
    struct ends e;
    weft_scope servers;
    int clients;
};
static int serve(void *arg) {
    struct crowd *k = arg;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < k->clients; i++) {
        weft_conn *c;
        CHECK_EQ(weft_accept(k->e.l, &c, WEFT_FOREVER), 0);
        CHECK_EQ(weft_spawn(&s, echo_one, c), 0);
    }
    return weft_scope_end(&s);
}
static int client(void *arg) {
    struct crowd *k = arg;
    weft_conn *c;
    char out[100], in[100];
    uint64_t random = test_random();
    CHECK_EQ(weft_dial(&c, k->e.addr, WEFT_FOREVER), 0);
    for (int i = 0; i < ROUNDS; i++) {
        size_t n = 1 + (size_t)test_below(&random, sizeof out);
        for (size_t b = 0; b < n; b++) out[b] = (char)test_random_from(&random);
        CHECK_EQ(weft_conn_write(c, out, n, WEFT_FOREVER), n);
        CHECK_EQ(weft_conn_read_full(c, in, n, NULL, WEFT_FOREVER), n);
        CHECK_EQ(memcmp(in, out, n), 0);
    }
    return weft_conn_close(c);
}
static int crowd(void *arg) {
    (void)arg;
    struct crowd k = {.clients = (int)test_scale(1000, 40)};
    struct rlimit r;
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &r), 0);
    r.rlim_cur = r.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &r);
    if (r.rlim_cur < 2100 && k.clients > 400) k.clients = 400;
    listen_any(&k.e, "127.0.0.1:0");
    weft_scope s;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, serve, &k), 0);
    for (int i = 0; i < k.clients; i++) CHECK_EQ(weft_spawn(&s, client, &k), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(weft_listener_close(k.e.l), 0);
    return 0;
}
TEST_T(net, a_thousand_connections_each_get_their_own_bytes, 120) {
    int fds = test_fds();
    EACH_WORKERS(w) CHECK_EQ(run_on(w, crowd, NULL), 0);
    test_wait_fds(fds);
}

/* ---- a plain thread, without a runtime ---- */

TEST(net, plain_threads_need_no_runtime) {
    struct ends e;
    char c;
    connect_ends(&e, "127.0.0.1:0");
    CHECK_EQ(weft_conn_write(e.near, "x", 1, WEFT_FOREVER), 1);
    CHECK_EQ(weft_conn_read(e.far, &c, 1, WEFT_FOREVER), 1);
    CHECK_EQ(weft_conn_read(e.far, &c, 1, weft_after(WEFT_MS)), WEFT_ETIMEDOUT);
    close_ends(&e);
}
