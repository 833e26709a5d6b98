/* SPDX-License-Identifier: MIT */
/* State Threads: single OS thread, no channels (condition variables only). */
#include "../common/bench.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <st.h>
#include <sys/socket.h>
static long N, cnt;
static st_mutex_t mu;
static st_cond_t cv;
/* libst has no yield; st_usleep(0) is the idiom, and costs a clock read */
static void *y(void *p) {
    (void)p;
    for (long i = 0; i < N; i++) st_usleep(0);
    return NULL;
}

static void *nop(void *p) {
    return p;
}
static void *lk(void *p) {
    (void)p;
    for (long i = 0; i < N; i++) {
        st_mutex_lock(mu);
        cnt++;
        st_mutex_unlock(mu);
    }
    return NULL;
}

static void *park(void *p) {
    (void)p;
    cnt++;
    st_cond_wait(cv);
    return NULL;
}

static void *slp(void *p) {
    st_usleep((st_utime_t)(long)p);
    cnt++;
    return NULL;
}

static st_cond_t c1, c2;
static int turn;
static void *pong(void *p) {
    (void)p;
    for (;;) {
        while (turn != 1) st_cond_wait(c1);
        turn = 0;
        st_cond_signal(c2);
    }
    return NULL;
}

static int http;
static void *conn(void *p) {
    st_netfd_t fd = p;
    int have = 0;
    char b[1024];
    for (;;) {
        ssize_t n = st_read(fd, b + have, sizeof b - have, ST_UTIME_NO_TIMEOUT);
        if (n <= 0) break;
        if (!http) {
            if (st_write(fd, b, n, ST_UTIME_NO_TIMEOUT) != n) break;
            continue;
        }
        have += n;
        if (have >= 4 && !memcmp(b + have - 4, "\r\n\r\n", 4)) {
            have = 0;
            if (st_write(fd, bn_resp, BN_RESP_LEN, ST_UTIME_NO_TIMEOUT) < 0) break;
        }
    }
    st_netfd_close(fd);
    return NULL;
}

static void serve(int port) {
    int one = 1, l = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(l, (void *)&a, sizeof a) || listen(l, 4096)) abort();
    st_netfd_t s = st_netfd_open_socket(l);
    for (;;) {
        st_netfd_t c = st_accept(s, NULL, NULL, ST_UTIME_NO_TIMEOUT);
        if (!c) continue;
        setsockopt(st_netfd_fileno(c), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if (!st_thread_create(conn, c, 0, 16384)) st_netfd_close(c);
    }
}

static void b_switch(void) {
    N = 2000000;
    int64_t t = bn_now();
    st_thread_t a = st_thread_create(y, 0, 1, 0), c = st_thread_create(y, 0, 1, 0);
    st_thread_join(a, 0);
    st_thread_join(c, 0);
    bn_out("switch_usleep0", (double)(bn_now() - t) / (2 * N), "ns/switch");
}

static void b_pingpong(void) {
    long n = 2000000;
    c1 = st_cond_new();
    c2 = st_cond_new();
    st_thread_create(pong, 0, 0, 0);
    int64_t t = bn_now();
    for (long i = 0; i < n; i++) {
        turn = 1;
        st_cond_signal(c1);
        while (turn != 0) st_cond_wait(c2);
    }
    bn_out("cond_pingpong_1w", (double)(bn_now() - t) / n, "ns/roundtrip");
}

static void b_spawn_join(void) {
    long n = 500000;
    int64_t t = bn_now();
    for (long i = 0; i < n; i++) {
        st_thread_t a = st_thread_create(nop, 0, 1, 0);
        st_thread_join(a, 0);
    }
    bn_out("spawn_join", (double)(bn_now() - t) / n, "ns/task");
}

static void b_mutex(void) {
    N = 1000000;
    mu = st_mutex_new();
    st_thread_t h[8];
    int64_t t = bn_now();
    for (int i = 0; i < 8; i++) h[i] = st_thread_create(lk, 0, 1, 0);
    for (int i = 0; i < 8; i++) st_thread_join(h[i], 0);
    bn_out("mutex_contended_1w", (double)(bn_now() - t) / (8 * N), "ns/op");
}

static void b_mem(int n) {
    cv = st_cond_new();
    long r0 = bn_rss();
    int64_t t = bn_now();
    for (int i = 0; i < n; i++)
        if (!st_thread_create(park, 0, 0, 16384)) {
            fprintf(stderr, "create failed at %d errno %d\n", i, errno);
            exit(1);
        }
    while (cnt < n) st_usleep(0);
    double d = bn_now() - t;
    char nm[64];
    snprintf(nm, sizeof nm, "mem_parked_%d", n);
    bn_out(nm, (double)(bn_rss() - r0) / n, "bytes/task");
    snprintf(nm, sizeof nm, "create_parked_%d", n);
    bn_out(nm, d / n, "ns/task");
}

static void b_timers(void) {
    int n = 1000000;
    double c0 = bn_cpu_ms();
    int64_t t = bn_now();
    for (int i = 0; i < n; i++)
        if (!st_thread_create(slp, (void *)(long)((1 + bn_rnd(1000)) * 1000), 0, 16384)) {
            fprintf(stderr, "create failed at %d errno %d\n", i, errno);
            exit(1);
        }
    double tc = (bn_now() - t) / 1e6;
    while (cnt < n) st_usleep(1000);
    bn_out("timers_1M_wall", (bn_now() - t) / 1e6, "ms");
    bn_out("timers_1M_create", tc, "ms");
    bn_out("timers_1M_cpu", bn_cpu_ms() - c0, "cpu-ms");
    bn_out("timers_1M_maxrss", bn_maxrss_mib(), "MiB");
}

int main(int argc, char **argv) {
    const char *b = argc > 1 ? argv[1] : "";
    int arg = argc > 2 ? atoi(argv[2]) : 0;
    bn_nofile();
    st_set_eventsys(ST_EVENTSYS_ALT);
    if (st_init()) abort();
    if (!strcmp(b, "switch"))
        b_switch();
    else if (!strcmp(b, "pingpong"))
        b_pingpong();
    else if (!strcmp(b, "spawn_join"))
        b_spawn_join();
    else if (!strcmp(b, "mutex"))
        b_mutex();
    else if (!strcmp(b, "mem"))
        b_mem(arg);
    else if (!strcmp(b, "timers"))
        b_timers();
    else if (!strcmp(b, "echo") || !strcmp(b, "hello")) {
        http = b[0] == 'h';
        serve(arg);
    } else
        return 2;
    return 0;
}
