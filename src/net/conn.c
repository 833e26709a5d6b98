/* SPDX-License-Identifier: MIT */
/* Connections.
 *
 *  N1  An operation counts itself among `users` while it is inside; the closer gives up the owner's. So a connection goes when nobody is in it.
 *  N2  A turn (desc.h) is held for a whole operation, however often it parks: two writes of all bytes do not mix.
 *  N3  No byte that was read is lost. Bytes that nobody asked for yet are in `ahead`, where there was
 *      room for them before they were read; an operation takes them out only if it succeeds, or says
 *      how many it took. A read that cannot say so breaks its side, as a write does that ended in the
 *      middle. A connection that has bytes is not released without them.
 *  N4  `buffered` is what the next reader finds. It is 0 while an operation that has those bytes waits
 *      for more. While it is not, or a side is broken, the descriptor is `sure` of that side (desc.h),
 *      so that those who wait for the connection are told.
 *  N5  A release looks at `ahead` while no operation changes it. An operation that may change it sets
 *      `reading`, and steps back if it then finds a release; a release counts itself in `releasing`,
 *      and waits while it finds `reading`, unless that reader is parked. (Each writes its own word
 *      before it reads the other's, both sequentially consistent: one of them sees the other.) */
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "io/depart.h"
#include "net/net.h"
#include "os/os.h"
#include "sched/switch.h"

#include <weft/io.h>

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

static const weft__layer socket_layer = {socket_read, socket_write, socket_shutdown, socket_end, NULL};

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
    weft_addr peer;
    if (!err && type != SOCK_STREAM) err = WEFT_EINVAL;
    if (!err) err = weft__sock_name(fd, true, &peer.sa, &peer.len); /* -ENOTCONN */
    if (!err) err = weft__desc_os_nonblock(fd);
    if (!err) err = weft__fd_verify(fd); /* from now on it is ours, and not checked any more */
    if (!err) err = weft__conn_new(out, fd);
    return err ? weft__net_failed(err, "adopt", "a descriptor", NULL) : 0;
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

/* ---- bytes that were read ahead ---- */

/* How many bytes reads get without the socket. Caller has the turn, or knows that no reader is
 * in the middle of a call. */
static size_t held(weft_conn *c) {
    size_t own = c->ahead ? c->ahead->have : 0;
    return c->layer->buffered ? own + c->layer->buffered(c) : own;
}

/* N4. With the turn. */
static void publish(weft_conn *c, size_t n) {
    size_t old = weft__load(&c->buffered, relaxed); /* our own */
    weft__store(&c->buffered, n, relaxed);          /* a snapshot for others */
    if (!old != !n) weft__fd_be_sure(&c->f, WEFT_READY_READ, n != 0);
}

/* At the end of an operation, with the turn: what is left is the next one's. A large buffer goes
 * when it is empty. */
static WEFT_NOINLINE void settle_all(weft_conn *c) {
    weft__ahead *a = c->ahead;
    if (a && !a->have && a->room > AHEAD) {
        weft__free(a);
        c->ahead = NULL;
    }
    publish(c, held(c));
}
WEFT_INLINE void settle(weft_conn *c) {
    size_t n = c->ahead ? c->ahead->have : 0;
    bool same = !n == !weft__load(&c->buffered, relaxed); /* our own */
    if (likely(same && c->layer == &socket_layer && (n || !c->ahead || c->ahead->room == AHEAD)))
        weft__store(&c->buffered, n, relaxed); /* as in publish */
    else
        settle_all(c);
}

/* With the turn. */
WEFT_INLINE size_t take_ahead(weft_conn *c, void *buf, size_t n) {
    weft__ahead *a = c->ahead;
    if (n > a->have) n = a->have;
    memcpy(buf, a->bytes + a->at, n);
    a->at += n;
    a->have -= n;
    return n;
}

/* Makes room behind the bytes that are there; at most `limit` bytes in all, or AHEAD. With the
 * turn. */
static bool make_room(weft_conn *c, size_t limit) {
    weft__ahead *a = c->ahead;
    if (a && a->have < a->room) {
        if (a->have) memmove(a->bytes, a->bytes + a->at, a->have); /* of a line that has begun */
        a->at = 0;
        return true;
    }
    size_t have = a ? a->have : 0, room = a ? a->room : AHEAD / 2;
    room = room > limit / 2 && limit > AHEAD ? limit : 2 * room;
    weft__ahead *more = weft__malloc(sizeof *more + room);
    if (!more) return false;
    *more = (weft__ahead){.room = room, .have = have};
    if (a) memcpy(more->bytes, a->bytes + a->at, have);
    weft__free(a);
    c->ahead = more;
    return true;
}

/* Reads more behind what is there, for an operation that takes at most `limit` bytes. With the
 * turn. */
static ssize_t read_ahead(weft_conn *c, size_t limit, weft_deadline deadline, bool *mine) {
    if (!make_room(c, limit)) return WEFT_ENOMEM;
    publish(c, 0); /* N4 */
    weft__ahead *a = c->ahead;
    ssize_t r = c->layer->read(c, a->bytes + a->have, a->room - a->have, deadline, mine);
    if (r > 0) a->have += (size_t)r;
    return r;
}

size_t weft_conn_buffered(weft_conn *c) {
    return weft__fd_valid(&c->f) ? weft__load(&c->buffered, relaxed) : 0; /* a snapshot */
}

/* N5. With the turn. False: the connection has been released. */
WEFT_INLINE bool claim(weft_conn *c) {
    for (int i = 0;; i++) {
        weft__store(&c->reading, true, seq_cst);                      /* N5; pairs with fits */
        if (likely(!weft__load(&c->releasing, seq_cst))) return true; /* N5; pairs with release_with */
        weft__store(&c->reading, false, release);
        if (!weft__fd_valid(&c->f)) return false;
        weft__fd_pause(i);
    }
}
WEFT_INLINE void unclaim(weft_conn *c) {
    weft__store(&c->reading, false, release); /* pairs with fits */
}

typedef struct {
    weft_conn *c;
    size_t n, there;
} handover;

/* The bytes that a layer has are its own: they cannot be handed over. */
static int fits(void *arg, bool rests) {
    handover *h = arg;
    if (weft__load(&h->c->reading, seq_cst) && !rests) return WEFT_EAGAIN; /* N5; pairs with claim and unclaim */
    h->there = held(h->c);
    return h->there == 0 || (!h->c->layer->buffered && h->there <= h->n) ? 1 : WEFT_ELIMIT;
}

int weft_conn_release_with(weft_conn *c, void *buf, size_t n, size_t *got) {
    handover h = {c, n, 0};
    weft__add(&c->releasing, 1, seq_cst); /* N5; pairs with claim */
    int fd = c->f.fd, err = weft__fd_release_if(&c->f, fits, &h);
    weft__sub(&c->releasing, 1, release); /* claim goes on */
    if (!err && buf && h.there) (void)take_ahead(c, buf, h.there);
    if (got) *got = err && err != WEFT_ELIMIT ? 0 : h.there;
    if (err != WEFT_ELIMIT) unuse(c);
    return err ? err : fd;
}

int weft_conn_release(weft_conn *c) {
    return weft_conn_release_with(c, NULL, 0, NULL);
}

/* ---- reading ---- */

/* Where bytes are to be had without the socket, or there is a layer. With the turn. */
static WEFT_NOINLINE ssize_t read_held(weft_conn *c, void *buf, size_t n, weft_deadline deadline, bool *mine) {
    if (!claim(c)) return WEFT_ECLOSED;
    bool own = c->ahead && c->ahead->have;
    ssize_t r = own ? (ssize_t)take_ahead(c, buf, n) : c->layer->read(c, buf, n, deadline, mine);
    if (*mine) settle(c);
    unclaim(c);
    return r;
}

/* With the turn. */
WEFT_INLINE ssize_t read_some(weft_conn *c, void *buf, size_t n, weft_deadline deadline, bool *mine) {
    if (likely(c->layer == &socket_layer && !weft__load(&c->buffered, relaxed))) /* under the turn */
        return read_socket(c, buf, n, deadline, mine);                           /* the same, in place */
    return read_held(c, buf, n, deadline, mine);
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

/* Of no bytes: nothing is waited for, not even the turn. */
static WEFT_COLD int move_nothing(weft_conn *c, weft_deadline deadline) {
    int err = weft__fd_begin(deadline);
    return err ? err : weft__fd_valid(&c->f) ? 0 : WEFT_ECLOSED;
}

/* The side is broken; with its turn. */
WEFT_INLINE bool is_broken(weft_conn *c, uint32_t bit) {
    return unlikely(weft__load(&c->broken, relaxed) & bit); /* written under the turn */
}
static WEFT_COLD void break_side(weft_conn *c, uint32_t bit) {
    (void)atomic_fetch_or_explicit(&c->broken, (uint8_t)bit,
                                   memory_order_relaxed); /* as above; the other side may break, too */
    weft__fd_be_sure(&c->f, bit, true);
}

WEFT_HOT ssize_t weft_conn_read(weft_conn *c, void *buf, size_t n, weft_deadline deadline) {
    if (unlikely(n == 0)) return move_nothing(c, deadline);
    int err = begin(c, WEFT_SIDE_READ, deadline);
    if (err) return err;
    bool mine = true;
    ssize_t r = is_broken(c, WEFT_READY_READ) ? WEFT_EBROKEN : read_some(c, buf, n, deadline, &mine);
    finish(c, WEFT_SIDE_READ, mine);
    return r;
}

/* With the turn: how many bytes were read, and in *err why no more were. */
static size_t read_all(weft_conn *c, char *buf, size_t n, weft_deadline deadline, bool *mine, ssize_t *err) {
    size_t at = 0;
    while (at < n) {
        ssize_t r = read_some(c, buf + at, n - at, deadline, mine);
        *err = r == 0 ? WEFT_EEOF : r;
        if (r <= 0) break;
        at += (size_t)r;
    }
    return at;
}

ssize_t weft_conn_read_full(weft_conn *c, void *buf, size_t n, size_t *got, weft_deadline deadline) {
    if (got) *got = 0;
    if (n == 0) return move_nothing(c, deadline);
    ssize_t r = begin(c, WEFT_SIDE_READ, deadline);
    if (r) return r;
    bool mine = true, broken = is_broken(c, WEFT_READY_READ);
    size_t at = broken ? 0 : read_all(c, buf, n, deadline, &mine, &r);
    if (got) *got = at;
    if (at && at < n && !got && mine) break_side(c, WEFT_READY_READ); /* N3 */
    finish(c, WEFT_SIDE_READ, mine);
    return broken ? WEFT_EBROKEN : at == n ? (ssize_t)n : r;
}

/* With the turn. How many bytes of those ahead are the answer, `end` among them or `limit` in
 * all; 0: there are not enough, and why in *err (0: the stream has ended). */
WEFT_INLINE size_t find_end(weft_conn *c, char end, size_t limit, weft_deadline deadline, bool *mine, ssize_t *err) {
    for (size_t searched = 0;;) {
        weft__ahead *a = c->ahead;
        size_t have = a ? a->have : 0;
        if (have > limit) have = limit;
        char *from = a ? a->bytes + a->at : NULL, *hit = have > searched ? memchr(from + searched, end, have - searched) : NULL;
        if (hit) return (size_t)(hit - from) + 1;
        if (have == limit) return limit;
        searched = have;
        *err = read_ahead(c, limit, deadline, mine);
        if (*err <= 0) return 0;
    }
}

/* Of a stream that has ended in the middle. With got NULL the bytes stay. */
static ssize_t take_rest(weft_conn *c, void *buf, size_t *got) {
    size_t have = c->ahead->have;
    if (!have) return 0;
    if (got) *got = take_ahead(c, buf, have);
    return WEFT_EEOF;
}

/* With the turn. */
WEFT_INLINE ssize_t read_until(weft_conn *c, void *buf, size_t n, char end, size_t *got, weft_deadline deadline, bool *mine) {
    ssize_t r = 0;
    if (is_broken(c, WEFT_READY_READ)) return WEFT_EBROKEN;
    if (!claim(c)) return WEFT_ECLOSED;
    size_t len = find_end(c, end, n, deadline, mine, &r);
    if (len) {
        (void)take_ahead(c, buf, len);
        r = ((char *)buf)[len - 1] == end ? (ssize_t)len : WEFT_ELIMIT;
        if (got) *got = len;
    } else if (r == 0) {
        r = take_rest(c, buf, got);
    }
    if (*mine) settle(c);
    unclaim(c);
    return r;
}

ssize_t weft_conn_read_until(weft_conn *c, void *buf, size_t n, char end, size_t *got, weft_deadline deadline) {
    if (got) *got = 0;
    if (n == 0) return WEFT_ELIMIT;
    ssize_t r = begin(c, WEFT_SIDE_READ, deadline);
    if (r) return r;
    bool mine = true;
    r = read_until(c, buf, n, end, got, deadline, &mine);
    finish(c, WEFT_SIDE_READ, mine);
    return r;
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
            if (done && *mine) break_side(c, WEFT_READY_WRITE);
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
    if (!is_broken(c, WEFT_READY_WRITE)) r = all ? write_all(c, v, n, deadline, &mine) : write_some(c, v, n, deadline, &mine);
    finish(c, WEFT_SIDE_WRITE, mine);
    return r;
}

WEFT_HOT ssize_t weft_conn_write(weft_conn *c, const void *buf, size_t n, weft_deadline deadline) {
    if (unlikely(n == 0)) return move_nothing(c, deadline);
    struct iovec v = {(void *)(uintptr_t)buf, n};
    return write_pieces(c, &v, 1, true, deadline);
}

ssize_t weft_conn_write_some(weft_conn *c, const void *buf, size_t n, weft_deadline deadline) {
    if (n == 0) return move_nothing(c, deadline);
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

int weft_conn_wait(weft_conn *c, int events, weft_deadline deadline) {
    if (!events || (events & ~(WEFT_READABLE | WEFT_WRITABLE))) return WEFT_EINVAL;
    int r = weft__fd_begin(deadline);
    if (r) return r;
    use(c);
    r = weft__fd_wait(&c->f, true, events, deadline);
    unuse(c);
    return r;
}

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
