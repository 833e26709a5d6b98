/* SPDX-License-Identifier: MIT */
/* Echo load client: one thread, epoll.
 *   load tput  PORT NCONN SECONDS 0 PID       -> requests/s, each connection keeps one 64-byte message in flight
 *   load c10k  PORT NCONN SECONDS RATE PID    -> RSS of PID with NCONN idle connections, then latency at RATE req/s
 * Prints "name<TAB>value<TAB>unit". */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MSG 64
static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}
static void die(const char *s) {
    perror(s);
    exit(1);
}
static long rss(int pid) {
    char p[64];
    snprintf(p, sizeof p, "/proc/%d/statm", pid);
    FILE *f = fopen(p, "r");
    long a = 0, b = 0;
    if (!f) return 0;
    if (fscanf(f, "%ld %ld", &a, &b) != 2) b = 0;
    fclose(f);
    return b * sysconf(_SC_PAGESIZE);
}
static double cpu_us(int pid) { /* user+system CPU of the server, all threads */
    char p[64], b[1024];
    snprintf(p, sizeof p, "/proc/%d/stat", pid);
    FILE *f = fopen(p, "r");
    if (!f) return 0;
    size_t n = fread(b, 1, sizeof b - 1, f);
    fclose(f);
    b[n] = 0;
    char *q = strrchr(b, ')');
    unsigned long u = 0, s = 0;
    if (!q || sscanf(q + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &u, &s) != 2) return 0;
    return (u + s) * 1e6 / sysconf(_SC_CLK_TCK);
}
struct conn {
    int fd;
    int got;
    int busy;
    int64_t t0;
};
static struct conn *C;
static int cmp(const void *a, const void *b) {
    int64_t x = *(int64_t *)a, y = *(int64_t *)b;
    return x < y ? -1 : x > y;
}

static int dial(int port, int i) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0) die("socket");
    struct sockaddr_in s = {.sin_family = AF_INET};
    if (i >= 0) {
        int one = 1;
        setsockopt(fd, SOL_IP, 24 /* IP_BIND_ADDRESS_NO_PORT */, &one, sizeof one);
        s.sin_addr.s_addr = htonl(0x7f000002u + (unsigned)(i / 10000));
        if (bind(fd, (void *)&s, sizeof s)) die("bind");
    }
    struct sockaddr_in d = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (int k = 0; connect(fd, (void *)&d, sizeof d); k++) {
        if (k > 200) die("connect");
        usleep(10000);
    }
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

int main(int argc, char **argv) {
    if (argc < 5) return 2;
    int c10k = !strcmp(argv[1], "c10k");
    int port = atoi(argv[2]), n = atoi(argv[3]);
    double secs = atof(argv[4]);
    int rate = argc > 5 ? atoi(argv[5]) : 0, pid = argc > 6 ? atoi(argv[6]) : 0;
    struct rlimit rl = {1000000, 1000000};
    if (setrlimit(RLIMIT_NOFILE, &rl)) {
        getrlimit(RLIMIT_NOFILE, &rl);
        rl.rlim_cur = rl.rlim_max;
        setrlimit(RLIMIT_NOFILE, &rl);
    }
    {
        int fd = dial(port, -1);
        close(fd);
    }
    usleep(100000);
    long r0 = pid ? rss(pid) : 0;
    C = calloc(n, sizeof *C);
    int ep = epoll_create1(0);
    char msg[MSG];
    memset(msg, 'x', MSG);
    for (int i = 0; i < n; i++) {
        C[i].fd = dial(port, c10k ? i : -1);
        struct epoll_event e = {.events = EPOLLIN, .data.u32 = i};
        epoll_ctl(ep, EPOLL_CTL_ADD, C[i].fd, &e);
    }
    static struct epoll_event ev[1024];
    char buf[4096];
    if (!c10k) {
        int64_t t = now(), end, warm = t + 500000000LL;
        long ops = 0;
        int measuring = 0;
        int64_t ts = 0;
        double c0 = 0;
        end = warm + (int64_t)(secs * 1e9);
        for (int i = 0; i < n; i++)
            if (write(C[i].fd, msg, MSG) != MSG) die("write");
        for (;;) {
            int k = epoll_wait(ep, ev, 1024, 100);
            for (int j = 0; j < k; j++) {
                struct conn *c = &C[ev[j].data.u32];
                int r = read(c->fd, buf, sizeof buf);
                if (r <= 0) {
                    if (r < 0 && errno == EAGAIN) continue;
                    fprintf(stderr, "closed\n");
                    exit(1);
                }
                c->got += r;
                if (c->got >= MSG) {
                    c->got -= MSG;
                    ops++;
                    if (write(c->fd, msg, MSG) != MSG) die("write");
                }
            }
            t = now();
            if (!measuring && t >= warm) {
                measuring = 1;
                ops = 0;
                ts = t;
                c0 = pid ? cpu_us(pid) : 0;
                end = t + (int64_t)(secs * 1e9);
            }
            if (measuring && t >= end) break;
        }
        printf("tcp_echo_%d\t%.0f\treq/s\n", n, ops / ((t - ts) / 1e9));
        if (pid) {
            double c = cpu_us(pid) - c0;
            printf("tcp_echo_%d_srvcpu\t%.2f\tcpu-us/req\ntcp_echo_%d_srvbusy\t%.0f\tpercent\n", n, c / ops, n,
                   c / ((t - ts) / 1e3) * 100);
        }
        return 0;
    }
    /* touch every connection once, so that each server task has run once and is parked again */
    for (int i = 0; i < n; i++) {
        if (write(C[i].fd, msg, MSG) != MSG) die("write");
        if ((i & 63) == 63 || i == n - 1)
            for (int q = i & ~63; q <= i; q++) {
                int got = 0;
                int64_t dl = now() + 10000000000LL;
                while (got < MSG) {
                    int r = read(C[q].fd, buf, sizeof buf);
                    if (r > 0)
                        got += r;
                    else if (r == 0 || errno != EAGAIN || now() > dl) {
                        fprintf(stderr, "no echo conn %d\n", q);
                        exit(1);
                    }
                }
            }
    }
    usleep(500000);
    long r1 = rss(pid);
    printf("c10k_rss\t%.1f\tMiB\n", r1 / 1048576.0);
    printf("c10k_rss_per_conn\t%.0f\tbytes\n", (double)(r1 - r0) / n);
    fflush(stdout);
    if (!rate) return 0;
    long cap = (long)(rate * secs) + 16, nl = 0, late = 0, skipped = 0;
    int64_t *L = malloc(cap * sizeof *L);
    int64_t step = 1000000000LL / rate, start = now() + 1000000, next = start, end = start + (int64_t)(secs * 1e9);
    unsigned rnd = 12345;
    int inflight = 0;
    for (;;) {
        int64_t t = now();
        if (t >= end && (inflight == 0 || t > end + 2000000000LL)) break;
        while (next <= t && next < end) {
            int i;
            int tries = 0;
            do {
                rnd = rnd * 1664525u + 1013904223u;
                i = (rnd >> 8) % n;
            } while (C[i].busy && ++tries < 50);
            if (C[i].busy) {
                skipped++;
                next += step;
                continue;
            }
            C[i].busy = 1;
            C[i].t0 = now();
            inflight++; /* from the send itself; sends stay on schedule whatever the server does */
            if (t - next > 1000000) late++;
            if (write(C[i].fd, msg, MSG) != MSG) die("write");
            next += step;
        }
        /* sleep until the next send is due (no busy polling, so that it may run at real-time priority) */
        int64_t w = (next < end ? next : t + 1000000) - now();
        if (w < 0) w = 0;
        struct timespec to = {0, w};
        int k = epoll_pwait2(ep, ev, 1024, &to, NULL);
        t = now();
        for (int j = 0; j < k; j++) {
            struct conn *c = &C[ev[j].data.u32];
            int r = read(c->fd, buf, sizeof buf);
            if (r <= 0) {
                if (r < 0 && errno == EAGAIN) continue;
                fprintf(stderr, "closed\n");
                exit(1);
            }
            c->got += r;
            if (c->got >= MSG) {
                c->got = 0;
                c->busy = 0;
                inflight--;
                if (nl < cap) L[nl++] = t - c->t0;
            }
        }
    }
    qsort(L, nl, sizeof *L, cmp);
    if (nl) {
        printf("c10k_lat_p50\t%.1f\tus\n", L[nl / 2] / 1e3);
        printf("c10k_lat_p99\t%.1f\tus\n", L[nl * 99 / 100] / 1e3);
        printf("c10k_lat_p999\t%.1f\tus\n", L[nl * 999 / 1000] / 1e3);
        fprintf(stderr, "c10k done=%ld late=%ld skipped=%ld\n", nl, late, skipped);
    }
    return 0;
}
