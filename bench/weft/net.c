/* SPDX-License-Identifier: MIT */
/* Servers for the load client (bench/peers/client): they run until they are killed. ARG is the port. */
#include <stdatomic.h>

#include "weftbench.h"

enum {
    PAGE = 4096,
    SAMPLE = 32 /* the connection that is looked at; the first ones resolve symbols, which goes deeper */
};

/* How much of the only page of its stack a connection's task has used: what was never touched is zero. */
static void print_used(const char *inside) {
    const volatile char *page = (const char *)((uintptr_t)inside & ~(uintptr_t)(PAGE - 1));
    int unused = 0;
    while (unused < PAGE && !page[unused]) unused++;
    wb_line("stack_used", PAGE - unused, "bytes");
}

static int hog(void *arg) {
    (void)arg;
    for (volatile int on = 1; on;) {
    }
    return 0;
}

static int echo(void *arg) {
    weft_conn *c = arg;
    char buf[1024];
    ssize_t n;
    static atomic_int connections;
    bool look = atomic_fetch_add(&connections, 1) == SAMPLE;
    while ((n = weft_conn_read(c, buf, sizeof buf, WEFT_FOREVER)) > 0) {
        if (weft_conn_write(c, buf, (size_t)n, WEFT_FOREVER) < 0) break;
        if (look) print_used(buf);
        look = false;
    }
    return weft_conn_close(c), 0;
}

static int hello(void *arg) {
    weft_conn *c = arg;
    char buf[1024];
    size_t have = 0;
    ssize_t n;
    while (have < sizeof buf && (n = weft_conn_read(c, buf + have, sizeof buf - have, WEFT_FOREVER)) > 0) {
        have += (size_t)n;
        if (have < 4 || memcmp(buf + have - 4, "\r\n\r\n", 4) != 0) continue;
        have = 0;
        if (weft_conn_write(c, bn_resp, BN_RESP_LEN, WEFT_FOREVER) < 0) break;
    }
    return weft_conn_close(c), 0;
}

static void serve(const struct wb_args *a, weft_fn *each) {
    char addr[64];
    weft_listener *l;
    bn_nofile();
    snprintf(addr, sizeof addr, "127.0.0.1:%ld", a->arg ? a->arg : 9000);
    wb_must(weft_tcp_listen(&l, addr, NULL), "weft_tcp_listen");
    for (;;) {
        weft_conn *c;
        wb_must(weft_accept(l, &c, WEFT_FOREVER), "weft_accept");
        wb_must(weft_go(each, c), "weft_go");
    }
}

void wb_echo(const struct wb_args *a) {
    serve(a, echo);
}

void wb_echo_hogs(const struct wb_args *a) {
    for (int i = 0; i < 2; i++) wb_must(weft_go(hog, NULL), "weft_go");
    serve(a, echo);
}

void wb_hello(const struct wb_args *a) {
    serve(a, hello);
}
