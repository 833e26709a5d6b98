/* SPDX-License-Identifier: MIT */
/* Very many connections at once, a task for each. The clients are processes of their own, so that each side has all the descriptors that a process may have:
 * 5,000 connections, and 50,000 with WEFT_TEST_SCALE=10 (the part `large`). */
#include <arpa/inet.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

#include <weft.h>

enum {
    MOST = 50000,
    SPARE = 100,        /* descriptors for everything else */
    PER_SOURCE = 10000, /* connections from one address of the loop: there are not more ports */
    FLIGHT = 256,       /* connections that a client is ahead of the server: less than its queue */
    CLIENTS = 64,
};

typedef struct {
    int first, count; /* its connections, of all */
    int go[2];        /* the port; later a byte: all are open */
    pid_t pid;
} client;

static client clients[CLIENTS];
static int n_clients, n_conns;

/* ---- a client; no runtime ---- */

static int dial(int port, int i) {
    int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000002u + (unsigned)(i / PER_SOURCE))};
    CHECK(fd >= 0);
    CHECK_EQ(setsockopt(fd, IPPROTO_IP, 24 /* IP_BIND_ADDRESS_NO_PORT */, &one, sizeof one), 0);
    CHECK_EQ(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    at.sin_port = htons((uint16_t)port);
    CHECK_EQ(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    return fd;
}

/* Each connection gets its own number back. */
static void say(const int *fd, int i, int number) { CHECK_EQ(write(fd[i], &number, sizeof number), (ssize_t)sizeof number); }
static void hear(const int *fd, int i, int number) {
    int got = -1;
    CHECK_EQ(recv(fd[i], &got, sizeof got, MSG_WAITALL), (ssize_t)sizeof got);
    CHECK_EQ(got, number);
}

static void be_client(const client *c) {
    int *fd = calloc((size_t)c->count, sizeof *fd), port;
    char all_open;
    CHECK(fd != NULL);
    CHECK_EQ(read(c->go[0], &port, sizeof port), (ssize_t)sizeof port);
    for (int i = 0; i < c->count; i++) {
        fd[i] = dial(port, c->first + i);
        say(fd, i, c->first + i);
        if (i % FLIGHT == FLIGHT - 1 || i == c->count - 1)
            for (int k = i - i % FLIGHT; k <= i; k++) hear(fd, k, c->first + k);
    }
    CHECK_EQ(read(c->go[0], &all_open, 1), 1);
    for (int i = 0; i < c->count; i++) say(fd, i, -i);
    for (int i = 0; i < c->count; i++) hear(fd, i, -i);
    _exit(0); /* closes them all */
}

/* ---- the server ---- */

static int echo(void *arg) {
    weft_conn *c = arg;
    char buf[64];
    ssize_t n;
    while ((n = weft_conn_read(c, buf, sizeof buf, WEFT_FOREVER)) > 0)
        CHECK_EQ(weft_conn_write(c, buf, (size_t)n, WEFT_FOREVER), n);
    return weft_conn_close(c);
}

static void tell_clients(const void *what, size_t n) {
    for (int i = 0; i < n_clients; i++) CHECK_EQ(write(clients[i].go[1], what, n), (ssize_t)n);
}

static int serve(void *arg) {
    char where[WEFT_ADDR_MAX];
    weft_listener *l;
    weft_scope s;
    (void)arg;
    CHECK_EQ(weft_tcp_listen(&l, "127.0.0.1:0", NULL), 0);
    CHECK(weft_listener_addr(l, where, sizeof where) >= 0);
    int port = atoi(strrchr(where, ':') + 1);
    tell_clients(&port, sizeof port);
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < n_conns; i++) {
        weft_conn *c;
        CHECK_EQ(weft_accept(l, &c, WEFT_FOREVER), 0);
        CHECK_EQ(weft_spawn(&s, echo, c), 0);
    }
    tell_clients("", 1); /* none has been closed yet: they are all there at once */
    CHECK_EQ(weft_scope_end(&s), 0);
    return weft_listener_close(l);
}

/* ---- how many ---- */

static int descriptors_allowed(void) {
    struct rlimit l;
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &l), 0);
    l.rlim_cur = l.rlim_max;
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &l), 0);
    return l.rlim_max > 2 * MOST ? 2 * MOST : (int)l.rlim_max;
}

static void choose_numbers(void) {
    int most = descriptors_allowed() - SPARE, wanted = (int)test_scale(MOST / 10, 300);
    if (wanted > MOST) wanted = MOST;
    if (most < 300) test_skip("a process may have too few descriptors (ulimit -Hn)");
    n_conns = wanted < most ? wanted : most;
    if (n_conns < wanted) printf("%d connections instead of %d: a process may have no more descriptors\n", n_conns, wanted);
    n_clients = (n_conns + most - 1) / most;
    for (int i = 0; i < n_clients; i++) {
        clients[i].first = n_conns / n_clients * i;
        clients[i].count = (i == n_clients - 1 ? n_conns : n_conns / n_clients * (i + 1)) - clients[i].first;
    }
}

static void start_clients(void) {
    fflush(stdout);
    for (int i = 0; i < n_clients; i++) {
        CHECK_EQ(pipe(clients[i].go), 0);
        clients[i].pid = fork();
        CHECK(clients[i].pid >= 0);
        if (!clients[i].pid) be_client(&clients[i]);
    }
}

TEST_T(conns_stress, fifty_thousand_connections_each_get_their_own_bytes, 120) {
    weft_config config = {.workers = 2};
    choose_numbers();
    start_clients();
    CHECK_EQ(weft_run(serve, NULL, &config), 0);
    for (int i = 0; i < n_clients; i++) {
        int status = -1;
        CHECK_EQ(waitpid(clients[i].pid, &status, 0), clients[i].pid);
        CHECK_EQ(status, 0);
    }
}
