/* SPDX-License-Identifier: MIT */
/* Datagrams. */
#include <netinet/in.h>

#include "net/net.h"
#include "os/os.h"

#include <weft/io.h>

enum { BATCH = 64 };

struct weft_udp {
    weft__fd f;
    _Atomic uint32_t users; /* as a connection's: N1 */
};

static int bind_at(const weft_addr *a, const weft_net_opts *o) {
    int fd = weft__sock_new(a->sa.ss_family, SOCK_DGRAM, 0), err = 0;
    if (fd < 0) return fd;
    if (o && o->reuse_port) err = weft__sock_set(fd, SOL_SOCKET, SO_REUSEPORT, 1);
    if (!err && a->sa.ss_family == AF_INET6) err = weft__sock_set(fd, IPPROTO_IPV6, IPV6_V6ONLY, o && o->ipv6_only);
    if (!err && o && o->send_buffer) err = weft__sock_set(fd, SOL_SOCKET, SO_SNDBUF, o->send_buffer);
    if (!err && o && o->recv_buffer) err = weft__sock_set(fd, SOL_SOCKET, SO_RCVBUF, o->recv_buffer);
    if (!err) err = weft__sock_bind(fd, (const struct sockaddr *)&a->sa, a->len);
    if (!err) return fd;
    (void)weft__desc_os_close(fd);
    return err;
}

static int bind_first(weft_udp *u, const char *addr, const weft_net_opts *o, weft__target *t) {
    weft_addrs at;
    int err = weft__addr_parse(addr, t), fd = WEFT_EINVAL;
    if (!err && t->is_unix) err = weft__addr_wrong(&t->why, "a datagram socket's address is host:port");
    if (!err) err = weft__addr_find(t, true, &at, WEFT_FOREVER);
    if (err) return err;
    for (int i = 0; i < at.count; i++) {
        fd = bind_at(&at.at[i], o);
        if (fd != -EAFNOSUPPORT && fd != -EADDRNOTAVAIL) break;
    }
    if (fd < 0) return fd;
    weft__fd_new(fd);
    if ((err = weft__fd_get(fd, &u->f)) < 0) (void)weft__desc_os_close(fd);
    return err;
}

int weft_udp_bind(weft_udp **out, const char *addr, const weft_net_opts *opts) {
    weft__target t;
    *out = NULL;
    weft_udp *u = weft__calloc(1, sizeof *u);
    if (!u) return weft__net_failed(WEFT_ENOMEM, "bind", addr, NULL);
    weft__store(&u->users, 1, relaxed); /* published with the socket */
    int err = bind_first(u, addr, opts, &t);
    if (err) {
        weft__free(u);
        return weft__net_failed(err, "bind", addr, &t.why);
    }
    *out = u;
    return 0;
}

static void unuse(weft_udp *u) {
    if (weft__sub(&u->users, 1, acq_rel) == 1) weft__free(u); /* N1 */
}

int weft_udp_close(weft_udp *u) {
    if (!u) return 0;
    int err = weft__fd_close(&u->f);
    unuse(u);
    return err;
}

int weft_udp_addr(weft_udp *u, char *buf, size_t size) {
    return weft__fd_text(&u->f, false, buf, size);
}

int weft_udp_fd(weft_udp *u) {
    return weft__fd_valid(&u->f) ? u->f.fd : WEFT_ECLOSED;
}

/* ---- one ---- */

typedef struct {
    void *buf;
    const void *from;
    size_t n;
    weft_addr *peer;
    const weft_addr *to;
    struct mmsghdr *m;
    unsigned count;
} request;

static ssize_t call_recvfrom(int fd, void *arg) {
    request *q = arg;
    if (q->peer) q->peer->len = sizeof q->peer->sa;
    return weft__sock_recvfrom(fd, q->buf, q->n, 0, q->peer ? (struct sockaddr *)&q->peer->sa : NULL,
                               q->peer ? &q->peer->len : NULL);
}
static ssize_t call_sendto(int fd, void *arg) {
    request *q = arg;
    return weft__sock_sendto(fd, q->from, q->n, 0, (const struct sockaddr *)&q->to->sa, q->to->len);
}
static ssize_t call_recvmmsg(int fd, void *arg) {
    request *q = arg;
    return weft__sock_recvmmsg(fd, q->m, q->count, 0);
}
static ssize_t call_sendmmsg(int fd, void *arg) {
    request *q = arg;
    return weft__sock_sendmmsg(fd, q->m, q->count, 0);
}

static ssize_t operate(weft_udp *u, int side, weft__attempt *call, request *q, weft_deadline deadline) {
    weft__add(&u->users, 1, relaxed); /* N1: the caller knows that it is there */
    ssize_t r = weft__op(&u->f, side, call, q, NULL, 0, deadline);
    unuse(u);
    return r;
}

ssize_t weft_udp_sendto(weft_udp *u, const void *buf, size_t n, const weft_addr *to, weft_deadline deadline) {
    request q = {.from = buf, .n = n, .to = to};
    return operate(u, WEFT_SIDE_WRITE, call_sendto, &q, deadline);
}

ssize_t weft_udp_recvfrom(weft_udp *u, void *buf, size_t n, weft_addr *from, weft_deadline deadline) {
    request q = {.buf = buf, .n = n, .peer = from};
    return operate(u, WEFT_SIDE_READ, call_recvfrom, &q, deadline);
}

/* ---- several ---- */

static void describe(struct mmsghdr *m, struct iovec *v, const weft_datagram *d, bool receive) {
    memset(m, 0, sizeof *m);
    *v = (struct iovec){d->data, d->size};
    m->msg_hdr.msg_iov = v;
    m->msg_hdr.msg_iovlen = 1;
    m->msg_hdr.msg_name = (void *)(uintptr_t)&d->peer.sa;
    m->msg_hdr.msg_namelen = receive ? sizeof d->peer.sa : d->peer.len;
}

int weft_udp_recv_batch(weft_udp *u, weft_datagram *d, int n, weft_deadline deadline) {
    struct mmsghdr m[BATCH];
    struct iovec v[BATCH];
    if (n <= 0) return WEFT_EINVAL;
    if (n > BATCH) n = BATCH;
    for (int i = 0; i < n; i++) describe(&m[i], &v[i], &d[i], true);
    request q = {.m = m, .count = (unsigned)n};
    int got = (int)operate(u, WEFT_SIDE_READ, call_recvmmsg, &q, deadline);
    for (int i = 0; i < got; i++) {
        d[i].len = m[i].msg_len;
        d[i].peer.len = m[i].msg_hdr.msg_namelen;
    }
    return got;
}

int weft_udp_send_batch(weft_udp *u, const weft_datagram *d, int n, weft_deadline deadline) {
    struct mmsghdr m[BATCH];
    struct iovec v[BATCH];
    if (n <= 0) return WEFT_EINVAL;
    if (n > BATCH) n = BATCH;
    for (int i = 0; i < n; i++) describe(&m[i], &v[i], &d[i], false);
    request q = {.m = m, .count = (unsigned)n};
    return (int)operate(u, WEFT_SIDE_WRITE, call_sendmmsg, &q, deadline);
}
