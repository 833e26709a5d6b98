/* SPDX-License-Identifier: MIT */
/* Very many connections at once, a task for each: 5,000, 25,000 in the part `large`, and 50,000 with WEFT_TEST_SCALE=10. Clients and servers are processes of
 * their own, in pairs, as many as it takes: a process may have only so many descriptors. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
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
    PAIRS = 200,
};

typedef struct {
    int first, count; /* its connections, of all */
    int port;
    int up[2]; /* from the server: its port; later a byte: all of its connections are open */
    int go[2]; /* to the client: a byte, when those of all pairs are */
    pid_t server, client;
} pair;

static pair pairs[PAIRS];
static int n_pairs, n_conns;

/* ---- a client; no runtime ---- */

static int dial(int port, int i) {
    int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000002u + (unsigned)(i / PER_SOURCE))};
    CHECK(fd >= 0);
    /* An emulator that does not know the option has the port chosen by bind: there are enough from one address. */
    CHECK(setsockopt(fd, IPPROTO_IP, 24 /* IP_BIND_ADDRESS_NO_PORT */, &one, sizeof one) == 0 || errno == ENOPROTOOPT ||
          errno == EOPNOTSUPP);
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

static void be_client(const pair *p) {
    int *fd = calloc((size_t)p->count, sizeof *fd);
    char all_open;
    CHECK(fd != NULL);
    for (int i = 0; i < p->count; i++) {
        fd[i] = dial(p->port, p->first + i);
        say(fd, i, p->first + i);
        if (i % FLIGHT == FLIGHT - 1 || i == p->count - 1)
            for (int k = i - i % FLIGHT; k <= i; k++) hear(fd, k, p->first + k);
    }
    CHECK_EQ(read(p->go[0], &all_open, 1), 1);
    for (int i = 0; i < p->count; i++) say(fd, i, -i);
    for (int i = 0; i < p->count; i++) hear(fd, i, -i);
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

static int serve(void *arg) {
    const pair *p = arg;
    char where[WEFT_ADDR_MAX];
    weft_listener *l;
    weft_scope s;
    CHECK_EQ(weft_tcp_listen(&l, "127.0.0.1:0", NULL), 0);
    CHECK(weft_listener_addr(l, where, sizeof where) >= 0);
    int port = atoi(strrchr(where, ':') + 1);
    CHECK_EQ(write(p->up[1], &port, sizeof port), (ssize_t)sizeof port);
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < p->count; i++) {
        weft_conn *c;
        CHECK_EQ(weft_accept(l, &c, WEFT_FOREVER), 0);
        CHECK_EQ(weft_spawn(&s, echo, c), 0);
    }
    CHECK_EQ(write(p->up[1], "", 1), 1);
    CHECK_EQ(weft_scope_end(&s), 0);
    return weft_listener_close(l);
}

static void be_server(pair *p) {
    CHECK_EQ(weft_run(serve, p, &(weft_config){.workers = 2}), 0);
    exit(0);
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
    int most = descriptors_allowed() - SPARE;
    n_conns = (int)test_scale(MOST / 10, 300);
    if (n_conns > MOST) n_conns = MOST;
    if (most < 300) test_skip("a process may have too few descriptors (ulimit -Hn)");
    n_pairs = (n_conns + most - 1) / most;
    printf("%d connections, %d server%s\n", n_conns, n_pairs, n_pairs > 1 ? "s" : "");
    for (int i = 0; i < n_pairs; i++) {
        pairs[i].first = n_conns / n_pairs * i;
        pairs[i].count = (i == n_pairs - 1 ? n_conns : n_conns / n_pairs * (i + 1)) - pairs[i].first;
    }
}

/* A process that is gone when this one is. */
static pid_t child(void) {
    fflush(stdout);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (!pid) CHECK_EQ(prctl(PR_SET_PDEATHSIG, SIGKILL), 0);
    return pid;
}

/* Each end of a pipe is one process's, so that the others see it end. */
static void start(pair *p) {
    CHECK_EQ(pipe(p->up), 0);
    CHECK_EQ(pipe(p->go), 0);
    p->server = child();
    if (!p->server) {
        close(p->go[0]);
        be_server(p);
    }
    close(p->up[1]);
    CHECK_EQ(read(p->up[0], &p->port, sizeof p->port), (ssize_t)sizeof p->port);
    p->client = child();
    if (!p->client) be_client(p);
    close(p->go[0]);
}

/* A server whose client has ended would wait for the rest of its connections for ever. */
static void wait_until_open(const pair *p) {
    char open;
    struct pollfd either[] = {{.fd = p->up[0], .events = POLLIN}, {.fd = p->go[1], .events = 0}};
    CHECK(poll(either, 2, -1) > 0);
    CHECK_MSG(either[0].revents, "a client has ended before its connections were open");
    CHECK_EQ(read(p->up[0], &open, 1), 1);
}

static void ends_well(pid_t pid) {
    int status = -1;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
}

TEST_T(conns_stress, fifty_thousand_connections_each_get_their_own_bytes, 120) {
    choose_numbers();
    for (int i = 0; i < n_pairs; i++) start(&pairs[i]);
    for (int i = 0; i < n_pairs; i++) wait_until_open(&pairs[i]);
    for (int i = 0; i < n_pairs; i++)
        CHECK_EQ(write(pairs[i].go[1], "", 1), 1); /* none has been closed yet: they are all there at once */
    for (int i = 0; i < n_pairs; i++) {
        ends_well(pairs[i].client);
        ends_well(pairs[i].server);
    }
}
