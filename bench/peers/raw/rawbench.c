/* SPDX-License-Identifier: MIT */
/* Floors: no runtime at all. pthread wake, epoll callback echo/hello server, eventfd wake, plain calls. */
#define _GNU_SOURCE
#include "../common/bench.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cv = PTHREAD_COND_INITIALIZER;
static int flag, efd, useefd;
static volatile int64_t sent;
static int64_t lat[2000];
static int nlat;
static void *waker(void *p) {
    (void)p;
    for (int i = 0; i < 2000; i++) {
        struct timespec ts = {0, 1000000};
        nanosleep(&ts, NULL);
        if (useefd) {
            uint64_t one = 1;
            sent = bn_now();
            if (write(efd, &one, 8) != 8) abort();
        } else {
            pthread_mutex_lock(&m);
            if (flag) { /* the last one has not been seen yet: none may be lost */
                pthread_mutex_unlock(&m);
                i--;
                continue;
            }
            flag = 1;
            sent = bn_now();
            pthread_mutex_unlock(&m);
            pthread_cond_signal(&cv);
        }
    }
    return NULL;
}

static void b_wake(int e) {
    useefd = e;
    nlat = 0;
    flag = 0;
    pthread_t t;
    efd = eventfd(0, 0);
    int ep = epoll_create1(0);
    struct epoll_event ev = {.events = EPOLLIN};
    epoll_ctl(ep, EPOLL_CTL_ADD, efd, &ev);
    pthread_create(&t, NULL, waker, NULL);
    while (nlat < 2000) {
        if (e) {
            uint64_t x;
            epoll_wait(ep, &ev, 1, -1);
            lat[nlat++] = bn_now() - sent;
            if (read(efd, &x, 8) != 8) abort();
            nlat += (int)x - 1;
        } else {
            pthread_mutex_lock(&m);
            while (!flag) pthread_cond_wait(&cv, &m);
            flag = 0;
            lat[nlat++] = bn_now() - sent;
            pthread_mutex_unlock(&m);
        }
        if (nlat >= 1990) break;
    }
    qsort(lat, nlat, sizeof *lat, bn_cmp64);
    bn_out(e ? "wake_latency_eventfd_epoll_p50" : "wake_latency_condvar_p50", lat[nlat / 2], "ns");
    bn_out(e ? "wake_latency_eventfd_epoll_p99" : "wake_latency_condvar_p99", lat[nlat * 99 / 100], "ns");
}

static void *nop(void *p) {
    return p;
}

static void b_pthread(void) {
    int n = 20000;
    int64_t t = bn_now();
    for (int i = 0; i < n; i++) {
        pthread_t th;
        pthread_create(&th, NULL, nop, NULL);
        pthread_join(th, NULL);
    }
    bn_out("spawn_join_pthread", (double)(bn_now() - t) / n, "ns/task");
}

struct conn {
    int fd, have;
    char buf[1024];
};
static void serve(int port, int http) {
    bn_nofile();
    int one = 1, l = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(l, (void *)&a, sizeof a) || listen(l, 4096)) abort();
    int ep = epoll_create1(0);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = NULL}, ev[256];
    epoll_ctl(ep, EPOLL_CTL_ADD, l, &e);
    for (;;) {
        int k = epoll_wait(ep, ev, 256, -1);
        for (int i = 0; i < k; i++) {
            struct conn *c = ev[i].data.ptr;
            if (!c) {
                int fd = accept4(l, NULL, NULL, SOCK_NONBLOCK);
                if (fd < 0) continue;
                setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                c = malloc(sizeof *c);
                c->fd = fd;
                c->have = 0;
                e.data.ptr = c;
                epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e);
                continue;
            }
            int r = read(c->fd, c->buf + c->have, sizeof c->buf - c->have);
            if (r <= 0) {
                if (r < 0 && errno == EAGAIN) continue;
                close(c->fd);
                free(c);
                continue;
            }
            if (!http) {
                if (write(c->fd, c->buf, r) != r) {
                }
                continue;
            }
            c->have += r;
            if (c->have >= 4 && !memcmp(c->buf + c->have - 4, "\r\n\r\n", 4)) {
                c->have = 0;
                if (write(c->fd, bn_resp, BN_RESP_LEN) < 0) {
                }
            }
        }
    }
}

static void *hog(void *p) {
    for (volatile int on = 1; on;) {
    }
    return p;
}

static void serve_beside_hogs(int port) {
    for (int i = 0; i < 2; i++) {
        pthread_t t;
        if (pthread_create(&t, NULL, hog, NULL)) abort();
    }
    serve(port, 0);
}

int main(int argc, char **argv) {
    const char *b = argc > 1 ? argv[1] : "";
    if (!strcmp(b, "wake")) {
        b_wake(0);
        b_wake(1);
    } else if (!strcmp(b, "pthread"))
        b_pthread();
    else if (!strcmp(b, "echo"))
        serve(atoi(argv[2]), 0);
    else if (!strcmp(b, "echo_hogs"))
        serve_beside_hogs(atoi(argv[2]));
    else if (!strcmp(b, "hello"))
        serve(atoi(argv[2]), 1);
    else
        return 2;
    return 0;
}
