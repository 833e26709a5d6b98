/* SPDX-License-Identifier: MIT */
/* Load for several servers by turns: one thread, epoll. All servers are there at once, each with its connections open; in each round each of
 * them gets a slice of load while the others are silent. So whatever else the machine does meets all of them alike, and figures of one round
 * can be divided by each other.
 *   turns echo|hello CONNS SLICE_MS ROUNDS PORT:PID...       closed loop: one request in flight on each connection
 *   turns rate CONNS SLICE_MS ROUNDS RATE PORT:PID...        open loop: RATE requests a second, on connections taken at random; latency
 *   turns open CONNS PORT:PID...                             opens them, one request on each; memory
 * Whose turn it is not stands still (SIGSTOP).
 * Prints "INDEX.name<TAB>value<TAB>unit" for each server, "INDEX.ROUND.name…" for each round. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SERVERS = 8, EVENTS = 1024, PER_SOURCE = 10000, FLIGHT = 256 };
#define SECOND 1000000000LL

typedef struct {
    int fd, got;
    int64_t sent; /* 0: nothing is under way */
} conn;

typedef struct {
    int port, pid, ep, in_flight;
    clockid_t cpu;
    conn *conns;
    int64_t *lat;
    long done, late;
} server;

static server servers[SERVERS];
static int n_servers, n_conns, rounds, rate; /* rate 0: closed loop */
static int64_t slice;
static char request[256];
static int request_len, reply_len;

static void die(const char *format, ...) {
    va_list v;
    va_start(v, format);
    vfprintf(stderr, format, v);
    va_end(v);
    fprintf(stderr, errno ? ": %s\n" : "\n", strerror(errno));
    exit(1);
}

static int64_t clock_of(clockid_t id) {
    struct timespec t;
    if (clock_gettime(id, &t)) die("clock_gettime");
    return t.tv_sec * SECOND + t.tv_nsec;
}
static int64_t now(void) {
    return clock_of(CLOCK_MONOTONIC);
}

static double resident_mib(int pid) {
    char path[64];
    long all = 0, resident = 0;
    snprintf(path, sizeof path, "/proc/%d/statm", pid);
    FILE *f = fopen(path, "r");
    if (!f || fscanf(f, "%ld %ld", &all, &resident) != 2) die("%s", path);
    fclose(f);
    return (double)resident * (double)sysconf(_SC_PAGESIZE) / 1048576;
}

/* ---- connections ---- */

static int dial(int port, int i) {
    int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0) die("socket");
    /* Another address of the loop for every ten thousand: there are not more ports. */
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000002u + (unsigned)(i / PER_SOURCE))};
    setsockopt(fd, SOL_IP, 24 /* IP_BIND_ADDRESS_NO_PORT */, &one, sizeof one);
    if (bind(fd, (void *)&from, sizeof from)) die("bind");
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (connect(fd, (void *)&to, sizeof to)) die("connect %d", i);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

static void ask(server *s, conn *c) {
    c->sent = now();
    s->in_flight++;
    if (write(c->fd, request, (size_t)request_len) != request_len) die("write");
}

/* One answer on a connection that still waits in the kernel; the first of all tells how long they are. */
static void ask_and_wait(conn *c) {
    char buf[4096];
    int got = 0;
    if (write(c->fd, request, (size_t)request_len) != request_len) die("write");
    do {
        ssize_t r = read(c->fd, buf, sizeof buf);
        if (r <= 0) die("the server has closed a connection");
        got += (int)r;
        if (!reply_len) reply_len = got; /* it fits a segment */
    } while (got < reply_len);
}

/* All of them, each with one request, so that each task of the server has run; never more ahead of the server than its queue holds. */
static void open_all(server *s) {
    s->ep = epoll_create1(0);
    s->conns = calloc((size_t)n_conns, sizeof *s->conns);
    for (int i = 0; i < n_conns; i++) {
        s->conns[i].fd = dial(s->port, i);
        if (i % FLIGHT == FLIGHT - 1 || i == n_conns - 1)
            for (int k = i - i % FLIGHT; k <= i; k++) ask_and_wait(&s->conns[k]);
    }
    for (int i = 0; i < n_conns; i++) {
        struct epoll_event e = {.events = EPOLLIN, .data.u32 = (uint32_t)i};
        fcntl(s->conns[i].fd, F_SETFL, O_NONBLOCK);
        if (epoll_ctl(s->ep, EPOLL_CTL_ADD, s->conns[i].fd, &e)) die("epoll_ctl");
    }
}

/* Takes what has come within `wait`; each answer to `done`. */
static void serve(server *s, int64_t wait, void (*done)(server *s, conn *c, int64_t at)) {
    static struct epoll_event ev[EVENTS];
    char buf[4096];
    struct timespec t = {(time_t)(wait / SECOND), (long)(wait % SECOND)};
    int n = epoll_pwait2(s->ep, ev, EVENTS, &t, NULL);
    int64_t at = now();
    for (int i = 0; i < n; i++) {
        conn *c = &s->conns[ev[i].data.u32];
        ssize_t r = read(c->fd, buf, sizeof buf);
        if (r < 0 && errno == EAGAIN) continue;
        if (r <= 0) die("the server has closed a connection");
        c->got += (int)r;
        if (c->got < reply_len) continue;
        c->got = 0;
        s->in_flight--;
        s->done++;
        done(s, c, at);
    }
}

static void drain(server *s, void (*done)(server *s, conn *c, int64_t at)) {
    int64_t end = now() + 5 * SECOND;
    while (s->in_flight) {
        serve(s, SECOND / 100, done);
        if (now() > end) errno = 0, die("%d answers have not come after 5 s", s->in_flight);
    }
}

/* ---- as many as it can ---- */

static bool again;
static void ask_again(server *s, conn *c, int64_t at) {
    (void)at;
    if (again) ask(s, c);
}

static void closed_slice(server *s, int64_t length, double *wall, double *cpu) {
    s->done = 0;
    again = true;
    int64_t used = clock_of(s->cpu), start = now(), end = start + length;
    for (int i = 0; i < n_conns; i++) ask(s, &s->conns[i]);
    while (now() < end) serve(s, SECOND / 100, ask_again);
    again = false;
    drain(s, ask_again);
    *wall = (double)(now() - start) / 1000 / (double)s->done;
    *cpu = (double)(clock_of(s->cpu) - used) / 1000 / (double)s->done;
}

/* ---- at a rate ---- */

static void note(server *s, conn *c, int64_t at) {
    s->lat[s->done - 1] = at - c->sent;
    c->sent = 0;
}

static conn *pick(server *s) {
    static uint32_t random = 12345;
    for (int i = 0; i < 50; i++) {
        random = random * 1664525u + 1013904223u;
        conn *c = &s->conns[(random >> 8) % (uint32_t)n_conns];
        if (!c->sent) return c;
    }
    return NULL;
}

/* Sends keep to their schedule whatever the server does. */
static void open_slice(server *s, int64_t length, int requests) {
    s->done = s->late = 0;
    int64_t step = SECOND / requests, start = now(), next = start, end = start + length;
    while (next < end) {
        int64_t t = now();
        for (; next <= t && next < end; next += step) {
            conn *c = pick(s);
            if (c) ask(s, c);
            if (!c || t - next > SECOND / 1000) s->late++;
        }
        int64_t wait = next - now();
        serve(s, wait > 0 ? wait : 0, note);
    }
    drain(s, note);
}

/* ---- figures ---- */

static int by_value(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}
static void print_latency(const char *prefix, int64_t *lat, long n) {
    static const struct {
        const char *name;
        double at;
    } parts[] = {{"p50", 0.5}, {"p99", 0.99}, {"p999", 0.999}};
    if (!n) errno = 0, die("no answers");
    qsort(lat, (size_t)n, sizeof *lat, by_value);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        printf("%s.%s\t%.1f\tus\n", prefix, parts[i].name, (double)lat[(long)((double)n * parts[i].at)] / 1000);
}

/* ---- turns: a process for each server, so that each has all the descriptors that a process may have ---- */

enum { SETTLE = 20000, QUIET = 200000 }; /* us: a server is at full speed again; it has given back what it gives back */

static void signal_of(int fd) {
    if (write(fd, "", 1) != 1) die("write");
}
static void wait_for(int fd) {
    char c;
    if (read(fd, &c, 1) != 1) exit(1); /* somebody has given up, and said why */
}

static void open_server(int i) {
    server *s = &servers[i];
    double before = resident_mib(s->pid);
    int64_t start = now();
    open_all(s);
    printf("%d.open\t%.0f\tms\n", i, (double)(now() - start) / 1e6);
    usleep(QUIET);
    double after = resident_mib(s->pid);
    printf("%d.rss\t%.1f\tMiB\n%d.rss_conn\t%.0f\tbytes\n", i, after, i, (after - before) * 1048576 / n_conns);
}

static void closed_turn(int i, int round) {
    double wall, cpu;
    closed_slice(&servers[i], slice, &wall, &cpu);
    if (round >= 0) printf("%d.%d.wall\t%.3f\tus\n%d.%d.cpu\t%.3f\tus\n", i, round, wall, i, round, cpu);
}

static void rate_turn(int i, int round) {
    server *s = &servers[i];
    char prefix[32];
    if (!s->lat) s->lat = calloc((size_t)((double)slice * rate / SECOND) + 16, sizeof *s->lat);
    open_slice(s, slice, rate);
    if (round < 0) return;
    snprintf(prefix, sizeof prefix, "%d.%d", i, round);
    print_latency(prefix, s->lat, s->done);
    printf("%s.late\t%ld\t\n", prefix, s->late);
}

/* The first turn opens the connections, the second one warms up. */
static void take_turns(int i, int turn, int back) {
    for (int round = -2; round < rounds; round++) {
        wait_for(turn);
        if (round == -2)
            open_server(i);
        else if (rate)
            rate_turn(i, round);
        else
            closed_turn(i, round);
        fflush(stdout);
        signal_of(back);
    }
}

static void give_turns(const int *turn, const int *back) {
    for (int round = -2; round < rounds; round++)
        for (int i = 0; i < n_servers; i++) {
            kill(servers[i].pid, SIGCONT);
            usleep(SETTLE);
            signal_of(turn[i]);
            wait_for(back[i]);
            kill(servers[i].pid, SIGSTOP);
        }
}

static void raise_limit(void) {
    struct rlimit l;
    rlim_t need = (rlim_t)n_conns + 64;
    if (getrlimit(RLIMIT_NOFILE, &l)) die("getrlimit");
    if (l.rlim_max < need) l.rlim_max = need;
    l.rlim_cur = l.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &l)) die("no %d descriptors in a process", (int)need);
}

static bool parse(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    bool at_rate = !strcmp(mode, "rate"), open_only = !strcmp(mode, "open"), hello = !strcmp(mode, "hello");
    int first = open_only ? 3 : at_rate ? 6 : 5;
    if (argc <= first || argc - first > SERVERS || !(at_rate || open_only || hello || !strcmp(mode, "echo"))) return false;
    n_conns = atoi(argv[2]);
    n_servers = argc - first;
    slice = open_only ? 0 : atoll(argv[3]) * 1000000;
    rounds = open_only ? -1 : atoi(argv[4]);
    rate = at_rate ? atoi(argv[5]) : 0;
    strcpy(request,
           hello ? "GET / HTTP/1.1\r\nHost: x\r\n\r\n" : "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef");
    request_len = (int)strlen(request);
    reply_len = hello ? 0 : request_len;
    for (int i = 0; i < n_servers; i++)
        if (sscanf(argv[first + i], "%d:%d", &servers[i].port, &servers[i].pid) != 2) return false;
    return true;
}

int main(int argc, char **argv) {
    int turn[SERVERS], back[SERVERS], failed = 0, status;
    if (!parse(argc, argv)) return 2;
    signal(SIGPIPE, SIG_IGN);
    raise_limit();
    for (int i = 0; i < n_servers; i++) {
        int there[2], here[2];
        errno = clock_getcpuclockid(servers[i].pid, &servers[i].cpu);
        if (errno || pipe2(there, O_CLOEXEC) || pipe2(here, O_CLOEXEC)) die("server %d", i);
        kill(servers[i].pid, SIGSTOP);
        pid_t child = fork();
        if (child < 0) die("fork");
        if (!child) {
            close(there[1]);
            close(here[0]);
            take_turns(i, there[0], here[1]);
            exit(0);
        }
        close(there[0]);
        close(here[1]);
        turn[i] = there[1];
        back[i] = here[0];
    }
    give_turns(turn, back);
    while (wait(&status) > 0) failed |= status;
    return failed != 0;
}
