/* SPDX-License-Identifier: MIT */
/* Connections.
 *
 *  N1  An operation counts itself among `users` while it is inside; the closer gives up the owner's. So a connection goes when nobody is in it.
 *  N2  A turn (desc.h) is held for a whole operation, however often it parks: two writes of all bytes do not mix. */
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "io/depart.h"
#include "net/net.h"
#include "os/os.h"
#include "sched/switch.h"

enum { PIECES_MAX = 1024, AHEAD = 4096 };

/* ---- the layer at the bottom: the socket ---- */

typedef struct {
    void *buf;
    size_t n;
} span;
WEFT_HOT WEFT_INLINE ssize_t call_recv(int fd, void *arg) {
    span *s = arg;
    return weft__sock_recv(fd, s->buf, s->n, 0);
}
typedef struct {
    void *buf;
    size_t n;
    weft_deadline deadline;
} outgoing;
WEFT_INLINE ssize_t call_send(int fd, void *arg) {
    outgoing *o = arg;
    return weft__depart(fd, o->buf, o->n, o->deadline);
}
static ssize_t call_sendmsg(int fd, void *arg) {
    return weft__sock_sendmsg(fd, arg, 0);
}

WEFT_INLINE ssize_t read_socket(weft_conn *c, void *buf, size_t n, weft_deadline deadline, bool *mine) {
    span s = {buf, n};
    return weft__op_turn(&c->f, WEFT_SIDE_READ, call_recv, &s, buf, n, deadline, mine);
}
static ssize_t socket_read(weft_conn *c, void *buf, size_t n, weft_deadline deadline, bool *mine) {
    return read_socket(c, buf, n, deadline, mine);
}

WEFT_INLINE ssize_t write_socket(weft_conn *c, void *buf, size_t n, weft_deadline deadline, bool *mine) {
    outgoing o = {buf, n, deadline};
    return weft__op_turn(&c->f, WEFT_SIDE_WRITE, call_send, &o, NULL, n, deadline, mine);
}
static ssize_t socket_write(weft_conn *c, struct iovec *v, int n, weft_deadline deadline, bool *mine) {
    if (n == 1) return write_socket(c, v->iov_base, v->iov_len, deadline, mine);
    struct msghdr m = {.msg_iov = v, .msg_iovlen = (size_t)n};
    return weft__op_turn(&c->f, WEFT_SIDE_WRITE, call_sendmsg, &m, NULL, 0, deadline, mine);
}

static int socket_shutdown(weft_conn *c, int how) {
    return weft__sock_shutdown(c->f.fd, how);
}

static void socket_end(weft_conn *c) {
    (void)c;
}

static const weft__layer socket_layer = {socket_read, socket_write, socket_shutdown, socket_end};

/* ---- beginning and end ---- */

int weft__net_set(int fd, int family, const weft_net_opts *o) {
    int err = 0;
    if (family != AF_UNIX && !(o && o->delay)) err = weft__sock_set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    if (!o) return err;
    if (!err && o->send_buffer) err = weft__sock_set(fd, SOL_SOCKET, SO_SNDBUF, o->send_buffer);
    if (!err && o->recv_buffer) err = weft__sock_set(fd, SOL_SOCKET, SO_RCVBUF, o->recv_buffer);
    if (!err && o->keep_alive && family != AF_UNIX) {
        err = weft__sock_set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
        if (!err) err = weft__sock_set(fd, IPPROTO_TCP, TCP_KEEPIDLE, o->keep_alive);
    }
    return err;
}

int weft__conn_new(weft_conn **out, int fd) {
    weft_conn *c = weft__calloc_lines(sizeof *c);
    if (!c) return WEFT_ENOMEM;
    int err = weft__fd_get(fd, &c->f);
    if (err) {
        weft__free(c);
        return err;
    }
    c->layer = &socket_layer;
    weft__store(&c->users, 1, relaxed); /* published with the connection */
    *out = c;
    return 0;
}

int weft_conn_adopt(weft_conn **out, int fd) {
    int type, err = weft__sock_get(fd, SOL_SOCKET, SO_TYPE, &type);
    *out = NULL;
    if (!err && type != SOCK_STREAM) err = WEFT_EINVAL;
    if (!err) err = weft__desc_os_nonblock(fd);
    if (!err) err = weft__fd_verify(fd); /* from now on it is ours, and not checked any more */
    if (!err) err = weft__conn_new(out, fd);
    return err ? weft__net_failed(err, "adopt", "a descriptor") : 0;
}

WEFT_INLINE void use(weft_conn *c) {
    weft__add(&c->users, 1, relaxed); /* N1: the caller knows that it is there */
}

static WEFT_COLD void gone(weft_conn *c) {
    weft__free(c->ahead);
    weft__free(c);
}

WEFT_INLINE void unuse(weft_conn *c) {
    if (unlikely(weft__sub(&c->users, 1, acq_rel) == 1)) gone(c); /* N1: the last one sees what the others did */
}

weft_conn *weft_conn_ref(weft_conn *c) {
    use(c);
    return c;
}

void weft_conn_unref(weft_conn *c) {
    if (c) unuse(c);
}

int weft_conn_close(weft_conn *c) {
    if (!c) return 0;
    c->layer->end(c);
    int err = weft__fd_close(&c->f);
    unuse(c);
    return err;
}

int weft_conn_release(weft_conn *c) {
    int fd = c->f.fd, err = weft__fd_release(&c->f);
    unuse(c);
    return err ? err : fd;
}

/* ---- reading ---- */

/* What was read ahead; 0: nothing. */
static size_t take_ahead(weft_conn *c, char *buf, size_t n) {
    size_t have = c->ahead_end - c->ahead_at;
    if (have > n) have = n;
    memcpy(buf, c->ahead + c->ahead_at, have);
    c->ahead_at += have;
    return have;
}

/* With the turn. */
WEFT_INLINE ssize_t read_some(weft_conn *c, void *buf, size_t n, weft_deadline deadline, bool *mine) {
    if (unlikely(c->ahead_at != c->ahead_end)) return (ssize_t)take_ahead(c, buf, n);
    if (likely(c->layer == &socket_layer)) return read_socket(c, buf, n, deadline, mine); /* the same, in place */
    return c->layer->read(c, buf, n, deadline, mine);
}

/* Into the operation, with the turn; out of it again. (No hints at `err`: with them GCC took the common path for a seldom one.) */
WEFT_INLINE int begin(weft_conn *c, int side, weft_deadline deadline) {
    int err = weft__fd_begin(deadline);
    if (unlikely(err)) return err;
    use(c);
    err = weft__turn_take(&c->f, side, deadline);
    if (err) unuse(c);
    return err;
}
WEFT_INLINE void finish(weft_conn *c, int side, bool mine) {
    if (likely(mine)) weft__turn_leave(&c->f, side);
    unuse(c);
}

WEFT_HOT ssize_t weft_conn_read(weft_conn *c, void *buf, size_t n, weft_deadline deadline) {
    int err = begin(c, WEFT_SIDE_READ, deadline);
    if (err) return err;
    bool mine = true;
    ssize_t r = read_some(c, buf, n, deadline, &mine);
    finish(c, WEFT_SIDE_READ, mine);
    return r;
}

ssize_t weft_conn_read_full(weft_conn *c, void *buf, size_t n, size_t *got, weft_deadline deadline) {
    size_t at = 0;
    ssize_t r = begin(c, WEFT_SIDE_READ, deadline);
    if (got) *got = 0;
    if (r) return r;
    bool mine = true;
    while (at < n) {
        r = read_some(c, (char *)buf + at, n - at, deadline, &mine);
        if (r <= 0) break;
        at += (size_t)r;
    }
    if (got) *got = at;
    finish(c, WEFT_SIDE_READ, mine);
    return at == n ? (ssize_t)n : r == 0 ? WEFT_EEOF : r;
}

/* More into the part that is read ahead, which is empty. With the turn. */
static ssize_t read_ahead(weft_conn *c, weft_deadline deadline, bool *mine) {
    if (!c->ahead && !(c->ahead = weft__malloc(AHEAD))) return WEFT_ENOMEM;
    ssize_t r = c->layer->read(c, c->ahead, AHEAD, deadline, mine);
    if (r > 0) {
        c->ahead_at = 0;
        c->ahead_end = (size_t)r;
    }
    return r;
}

ssize_t weft_conn_read_until(weft_conn *c, void *buf, size_t n, char end, size_t *got, weft_deadline deadline) {
    size_t at = 0;
    bool mine = true, found = false;
    ssize_t r = begin(c, WEFT_SIDE_READ, deadline);
    if (got) *got = 0;
    if (r) return r;
    while (!found && at < n) {
        if (c->ahead_at == c->ahead_end && (r = read_ahead(c, deadline, &mine)) <= 0) break;
        char *from = c->ahead + c->ahead_at, *hit;
        size_t have = c->ahead_end - c->ahead_at;
        if (have > n - at) have = n - at;
        if ((hit = memchr(from, end, have))) {
            have = (size_t)(hit - from) + 1;
            found = true;
        }
        at += take_ahead(c, (char *)buf + at, have);
    }
    if (got) *got = at;
    finish(c, WEFT_SIDE_READ, mine);
    if (found) return (ssize_t)at;
    return at == n ? WEFT_ELIMIT : r < 0 ? r : at ? WEFT_EEOF : 0;
}

/* ---- writing ---- */

/* Steps over n bytes; how many pieces are left. */
WEFT_INLINE int advance(struct iovec **v, int left, size_t n) {
    while (left && n >= (*v)->iov_len) {
        n -= (*v)->iov_len;
        (*v)++;
        left--;
    }
    if (left) {
        (*v)->iov_base = (char *)(*v)->iov_base + n;
        (*v)->iov_len -= n;
    }
    return left;
}

/* With the turn. */
WEFT_INLINE ssize_t write_some(weft_conn *c, struct iovec *v, int n, weft_deadline deadline, bool *mine) {
    if (likely(n == 1 && c->layer == &socket_layer)) /* the same, in place */
        return write_socket(c, v->iov_base, v->iov_len, deadline, mine);
    return c->layer->write(c, v, n, deadline, mine);
}

/* All of it, with the turn. Changes the pieces. */
WEFT_INLINE ssize_t write_all(weft_conn *c, struct iovec *v, int left, weft_deadline deadline, bool *mine) {
    size_t done = 0;
    left = advance(&v, left, 0);
    while (left) {
        ssize_t r = write_some(c, v, left, deadline, mine);
        if (r < 0) {
            if (done)
                weft__store(&c->broken, true,
                            relaxed); /* under the turn; read before the next one is taken as a hint, and under it again */
            return r;
        }
        done += (size_t)r;
        left = advance(&v, left, (size_t)r);
    }
    return (ssize_t)done;
}

WEFT_INLINE ssize_t write_pieces(weft_conn *c, struct iovec *v, int n, bool all, weft_deadline deadline) {
    int err = begin(c, WEFT_SIDE_WRITE, deadline);
    if (err) return err;
    bool mine = true;
    ssize_t r = WEFT_EBROKEN;
    if (likely(!weft__load(&c->broken, relaxed))) /* under the turn */
        r = all ? write_all(c, v, n, deadline, &mine) : write_some(c, v, n, deadline, &mine);
    finish(c, WEFT_SIDE_WRITE, mine);
    return r;
}

WEFT_HOT ssize_t weft_conn_write(weft_conn *c, const void *buf, size_t n, weft_deadline deadline) {
    struct iovec v = {(void *)(uintptr_t)buf, n};
    return write_pieces(c, &v, 1, true, deadline);
}

ssize_t weft_conn_write_some(weft_conn *c, const void *buf, size_t n, weft_deadline deadline) {
    struct iovec v = {(void *)(uintptr_t)buf, n};
    return write_pieces(c, &v, 1, false, deadline);
}

ssize_t weft_conn_writev(weft_conn *c, const struct iovec *v, int n, weft_deadline deadline) {
    enum { ON_STACK = 16 };
    struct iovec some[ON_STACK], *mine = some;
    if (n < 0 || n > PIECES_MAX) return WEFT_EINVAL;
    if (n > ON_STACK && !(mine = weft__malloc((size_t)n * sizeof *mine))) return WEFT_ENOMEM;
    memcpy(mine, v, (size_t)n * sizeof *mine);
    ssize_t r = write_pieces(c, mine, n, true, deadline);
    if (mine != some) weft__free(mine);
    return r;
}

/* ---- the rest ---- */

int weft_conn_shutdown(weft_conn *c, int how) {
    if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR) return WEFT_EINVAL;
    use(c);
    int r = weft__fd_hold(&c->f);
    if (!r) {
        r = c->layer->shutdown(c, how);
        weft__fd_unhold(&c->f);
    }
    unuse(c);
    return r;
}

int weft_conn_fd(weft_conn *c) {
    return weft__fd_valid(&c->f) ? c->f.fd : WEFT_ECLOSED;
}

int weft_conn_peer(weft_conn *c, char *buf, size_t size) {
    return weft__fd_text(&c->f, true, buf, size);
}

int weft_conn_local(weft_conn *c, char *buf, size_t size) {
    return weft__fd_text(&c->f, false, buf, size);
}
