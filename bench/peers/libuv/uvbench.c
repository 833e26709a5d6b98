/* SPDX-License-Identifier: MIT */
/* libuv: timers, loop wake, thread pool, echo and hello servers (callbacks). */
#include "../common/bench.h"
#include <pthread.h>
#include <uv.h>
static uv_loop_t *L;

/* ---- switch-like: one idle callback per loop turn (no poll block) ---- */
static long idle_n;
static void on_idle(uv_idle_t *h) {
    if (++idle_n == 5000000) uv_idle_stop(h);
}

static void b_loopturn(void) {
    uv_idle_t h;
    uv_idle_init(L, &h);
    uv_idle_start(&h, on_idle);
    int64_t t = bn_now();
    uv_run(L, UV_RUN_DEFAULT);
    bn_out("loop_turn", (double)(bn_now() - t) / idle_n, "ns/turn");
}

/* ---- timers ---- */
static long fired;
static void on_t(uv_timer_t *t) {
    (void)t;
    fired++;
}

static void b_timers(void) {
    int n = 1000000;
    double c0 = bn_cpu_ms();
    int64_t t = bn_now();
    uv_timer_t *ts = malloc(sizeof *ts * n);
    for (int i = 0; i < n; i++) {
        uv_timer_init(L, &ts[i]);
        if ((i & 1023) == 0) uv_update_time(L);
        uv_timer_start(&ts[i], on_t, 1 + bn_rnd(1000), 0);
    }
    int64_t tc = bn_now() - t;
    uv_run(L, UV_RUN_DEFAULT);
    if (fired != n) abort();
    bn_out("timers_1M_wall", (bn_now() - t) / 1e6, "ms");
    bn_out("timers_1M_create", tc / 1e6, "ms");
    bn_out("timers_1M_cpu", bn_cpu_ms() - c0, "cpu-ms");
    bn_out("timers_1M_maxrss", bn_maxrss_mib(), "MiB");
}

static void b_timer_cancel(void) {
    int live = 100000, n = 2000000;
    uv_timer_t *ts = malloc(sizeof *ts * live), x;
    uint64_t d[4096];
    for (int i = 0; i < live; i++) {
        uv_timer_init(L, &ts[i]);
        uv_timer_start(&ts[i], on_t, 3600000 + bn_rnd(3600000), 0);
    }
    for (int i = 0; i < 4096; i++) d[i] = 60000 + bn_rnd(7200000);
    uv_timer_init(L, &x);
    int64_t t = bn_now();
    for (int i = 0; i < n; i++) {
        uv_timer_start(&x, on_t, d[i & 4095], 0);
        uv_timer_stop(&x);
    }
    bn_out("timer_add_cancel", (double)(bn_now() - t) / n, "ns/pair");
}

/* ---- wake latency: an outside thread uv_async_send()s ---- */
static volatile int64_t sent;
static int64_t lat[2000];
static int nlat;
static uv_async_t as;
static volatile int adone;
static void on_async(uv_async_t *a) {
    int64_t n = bn_now();
    if (adone) {
        uv_close((uv_handle_t *)a, NULL);
        return;
    }
    if (nlat < 2000) lat[nlat++] = n - sent;
}

static void *pinger(void *p) {
    (void)p;
    for (int i = 0; i < 2000; i++) {
        struct timespec ts = {0, 1000000};
        nanosleep(&ts, NULL);
        sent = bn_now();
        uv_async_send(&as);
    }
    usleep(20000);
    adone = 1;
    uv_async_send(&as);
    return NULL;
}

static void b_wake(void) {
    uv_async_init(L, &as, on_async);
    pthread_t th;
    pthread_create(&th, NULL, pinger, NULL);
    uv_run(L, UV_RUN_DEFAULT);
    qsort(lat, nlat, sizeof *lat, bn_cmp64);
    bn_out("wake_latency_p50", lat[nlat / 2], "ns");
    bn_out("wake_latency_p99", lat[nlat * 99 / 100], "ns");
}

/* ---- blocking offload ---- */
static long left;
static void wnop(uv_work_t *w) {
    (void)w;
}
static void wms(uv_work_t *w) {
    (void)w;
    usleep(1000);
}

static void wdone(uv_work_t *w, int s) {
    (void)s;
    if (--left > 0) uv_queue_work(L, w, wnop, wdone);
}

static void wdone1(uv_work_t *w, int s) {
    (void)w;
    (void)s;
    left--;
}

static void b_blocking(void) {
    uv_work_t w;
    int n = 200000;
    left = 1000;
    uv_queue_work(L, &w, wnop, wdone);
    uv_run(L, UV_RUN_DEFAULT);
    left = n;
    int64_t t = bn_now();
    uv_queue_work(L, &w, wnop, wdone);
    uv_run(L, UV_RUN_DEFAULT);
    bn_out("blocking_offload", (double)(bn_now() - t) / n, "ns/call");
    uv_work_t *ws = calloc(1000, sizeof *ws);
    left = 1000;
    t = bn_now();
    for (int i = 0; i < 1000; i++) uv_queue_work(L, &ws[i], wms, wdone1);
    uv_run(L, UV_RUN_DEFAULT);
    char nm[64];
    snprintf(nm, sizeof nm, "blocking_1000x1ms_pool%s", getenv("UV_THREADPOOL_SIZE") ? getenv("UV_THREADPOOL_SIZE") : "4");
    bn_out(nm, (bn_now() - t) / 1e6, "ms");
}

/* ---- servers ---- */
typedef struct {
    uv_tcp_t h;
    int have;
    char buf[1024];
} conn_t;
static int http;
static void on_close(uv_handle_t *h) {
    free(h);
}
static void alloc_cb(uv_handle_t *h, size_t s, uv_buf_t *b) {
    (void)s;
    conn_t *c = (conn_t *)h;
    b->base = c->buf + c->have;
    b->len = sizeof c->buf - c->have;
}

static void on_w(uv_write_t *w, int s) {
    (void)s;
    free(w);
}

static void on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *b) {
    (void)b;
    conn_t *c = (conn_t *)s;
    if (n < 0) {
        uv_close((uv_handle_t *)s, on_close);
        return;
    }
    uv_buf_t o;
    if (http) {
        c->have += n;
        if (c->have < 4 || memcmp(c->buf + c->have - 4, "\r\n\r\n", 4)) return;
        c->have = 0;
        o = uv_buf_init((char *)bn_resp, BN_RESP_LEN);
    } else
        o = uv_buf_init(c->buf, n);
    int r = uv_try_write(s, &o, 1);
    if (r == (int)o.len) return;
    if (r > 0) {
        o.base += r;
        o.len -= r;
    }
    uv_write_t *w = malloc(sizeof *w);
    uv_write(w, s, &o, 1, on_w); /* loopback with one message in flight: not reached */
}

static void on_conn(uv_stream_t *s, int st) {
    if (st < 0) return;
    conn_t *c = malloc(sizeof *c);
    c->have = 0;
    uv_tcp_init(L, &c->h);
    if (uv_accept(s, (uv_stream_t *)&c->h)) {
        uv_close((uv_handle_t *)&c->h, on_close);
        return;
    }
    uv_tcp_nodelay(&c->h, 1);
    uv_read_start((uv_stream_t *)&c->h, alloc_cb, on_read);
}

static void serve(int port) {
    bn_nofile();
    uv_tcp_t s;
    uv_tcp_init(L, &s);
    struct sockaddr_in a;
    uv_ip4_addr("127.0.0.1", port, &a);
    uv_tcp_bind(&s, (struct sockaddr *)&a, 0);
    if (uv_listen((uv_stream_t *)&s, 4096, on_conn)) abort();
    uv_run(L, UV_RUN_DEFAULT);
}

int main(int argc, char **argv) {
    const char *b = argc > 1 ? argv[1] : "";
    L = uv_default_loop();
    if (!strcmp(b, "loopturn"))
        b_loopturn();
    else if (!strcmp(b, "timers"))
        b_timers();
    else if (!strcmp(b, "timer_cancel"))
        b_timer_cancel();
    else if (!strcmp(b, "wake"))
        b_wake();
    else if (!strcmp(b, "blocking"))
        b_blocking();
    else if (!strcmp(b, "echo"))
        serve(atoi(argv[2]));
    else if (!strcmp(b, "hello")) {
        http = 1;
        serve(atoi(argv[2]));
    } else
        return 2;
    return 0;
}
