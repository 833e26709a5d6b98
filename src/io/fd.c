/* SPDX-License-Identifier: MIT */
/* The operations on descriptors that people see. Each is by number: it looks the number up, and
 * does so again if it turns out to mean another descriptor (WEFT_FD_ANOTHER, desc.h). */
#include <poll.h>

#include "io/op.h"
#include "task/task.h"

#include <weft/io.h>
#include <weft/time.h>

/* What a call needs, whichever it is. */
typedef struct {
    void *buf;
    const void *from;
    size_t n;
    int flags;
    struct sockaddr *addr;
    const struct sockaddr *to;
    socklen_t *len, to_len;
    struct msghdr *m;
    const struct msghdr *msg;
    const weft__fd *f; /* an accept's */
} request;

#define CALL(name, expr)                                                                                                       \
    static ssize_t name(int fd, void *arg) {                                                                                   \
        request *q = arg;                                                                                                      \
        return (expr);                                                                                                         \
    }
CALL(call_read, weft__desc_os_read(fd, q->buf, q->n, false))
CALL(call_read_file, weft__desc_os_read(fd, q->buf, q->n, true))
CALL(call_write, weft__desc_os_write(fd, q->from, q->n, false))
CALL(call_write_file, weft__desc_os_write(fd, q->from, q->n, true))
CALL(call_recv, weft__sock_recv(fd, q->buf, q->n, q->flags))
CALL(call_send, weft__sock_send(fd, q->from, q->n, q->flags))
/* It was a socket when it was looked at last. */
static ssize_t call_read_socket(int fd, void *arg) {
    ssize_t r = call_recv(fd, arg);
    return likely(r != -ENOTSOCK) ? r : call_read(fd, arg);
}
static ssize_t call_write_socket(int fd, void *arg) {
    ssize_t r = call_send(fd, arg);
    return likely(r != -ENOTSOCK) ? r : call_write(fd, arg);
}
CALL(call_recvfrom, weft__sock_recvfrom(fd, q->buf, q->n, q->flags, q->addr, q->len))
CALL(call_sendto, weft__sock_sendto(fd, q->from, q->n, q->flags, q->to, q->to_len))
CALL(call_recvmsg, weft__sock_recvmsg(fd, q->m, q->flags))
CALL(call_sendmsg, weft__sock_sendmsg(fd, q->msg, q->flags))

/* Of a Unix listener that was shut down accept(2) says only that there is no connection; poll(2)
 * tells. */
static WEFT_COLD bool is_shut(const weft__fd *f) {
    if (weft__fd_renew(f) > 0 && !(weft__fd_state(f) & WEFT_READY_END)) return false; /* an edge would have told */
    int polled = weft__desc_os_poll(f->fd, POLLIN, WEFT_POLL_NOW);
    return polled > 0 && (polled & POLLHUP);
}
static ssize_t call_accept(int fd, void *arg) {
    request *q = arg;
    int r = weft__sock_accept(fd, q->addr, q->len);
    return r == -EAGAIN && is_shut(q->f) ? -EINVAL : r;
}

WEFT_INLINE ssize_t operate(int fd, int side, weft__attempt *call, request *q, size_t asked, weft_deadline deadline) {
    ssize_t r;
    do {
        weft__fd f;
        r = weft__fd_get(fd, &f);
        if (!r) r = weft__op_by(WEFT_BY_NUMBER, &f, side, call, q, NULL, asked, deadline);
    } while (unlikely(r == WEFT_FD_ANOTHER));
    return r;
}

/* Such flags ask for something else than the data: that it is not there says nothing of them, and reading them needs no turn. */
static bool aside(int flags) {
    return flags & (MSG_OOB | MSG_ERRQUEUE);
}

static ssize_t aside_on(const weft__fd *f, weft__attempt *call, request *q, weft_deadline deadline) {
    for (;;) {
        uint64_t seen = weft__fd_state(f);
        if (weft__fd_hold(f)) return weft__fd_over(f);
        ssize_t r = call(f->fd, q);
        weft__fd_unhold(f);
        if (r != -EAGAIN) return r;
        int err = weft__op_check(f, deadline);
        if (!err) err = weft__fd_watch(f, POLLPRI, seen, deadline); /* errors are always told */
        if (err) return err;
    }
}

static WEFT_COLD ssize_t operate_aside(int fd, weft__attempt *call, request *q, weft_deadline deadline) {
    ssize_t r = weft__fd_begin(deadline);
    if (r) return r;
    do {
        weft__fd f;
        r = weft__fd_get(fd, &f);
        if (!r) r = aside_on(&f, call, q, deadline);
    } while (r == WEFT_FD_ANOTHER);
    return r;
}

/* `socket`, `other`, `file`: the call for what the number was when it was looked at last. A receive
 * may land (op.h): `to`. */
WEFT_INLINE ssize_t transfer(int fd, int side, weft__attempt *socket, weft__attempt *other, weft__attempt *file, request *q,
                             void *to, weft_deadline deadline) {
    ssize_t r;
    do {
        weft__fd f;
        if ((r = weft__fd_get(fd, &f))) break;
        int kind = weft__fd_kind(&f);
        r = kind & WEFT_DESC_SOCKET
                ? weft__op_by(WEFT_BY_NUMBER, &f, side, socket, q, to, q->n, deadline)
                : weft__op_by(WEFT_BY_NUMBER, &f, side, kind & WEFT_DESC_ALWAYS ? file : other, q, NULL, 0, deadline);
    } while (unlikely(r == WEFT_FD_ANOTHER));
    return r;
}

/* A read of no bytes has nothing to wait for. */
static WEFT_COLD ssize_t read_nothing(int fd, weft_deadline deadline) {
    weft__fd f;
    int err = weft__fd_begin(deadline);
    return err ? err : weft__fd_get(fd, &f);
}
/* A receive of no bytes from a stream is one; from any other socket it takes a message. */
static bool is_nothing(int fd, size_t n, int flags) {
    int type;
    return n == 0 && flags == 0 && weft__sock_get(fd, SOL_SOCKET, SO_TYPE, &type) == 0 && type == SOCK_STREAM;
}

ssize_t weft_fd_read(int fd, void *buf, size_t n, weft_deadline deadline) {
    if (unlikely(n == 0)) return read_nothing(fd, deadline);
    request q = {.buf = buf, .n = n};
    return transfer(fd, WEFT_SIDE_READ, call_read_socket, call_read, call_read_file, &q, buf, deadline);
}

ssize_t weft_fd_write(int fd, const void *buf, size_t n, weft_deadline deadline) {
    request q = {.from = buf, .n = n};
    return transfer(fd, WEFT_SIDE_WRITE, call_write_socket, call_write, call_write_file, &q, NULL, deadline);
}

ssize_t weft_fd_recv(int fd, void *buf, size_t n, int flags, weft_deadline deadline) {
    request q = {.buf = buf, .n = n, .flags = flags};
    if (aside(flags)) return operate_aside(fd, call_recv, &q, deadline);
    if (unlikely(is_nothing(fd, n, flags))) return read_nothing(fd, deadline);
    return operate(fd, WEFT_SIDE_READ, call_recv, &q, flags ? 0 : n, deadline); /* a look (MSG_PEEK) leaves it there */
}

ssize_t weft_fd_send(int fd, const void *buf, size_t n, int flags, weft_deadline deadline) {
    request q = {.from = buf, .n = n, .flags = flags};
    return operate(fd, WEFT_SIDE_WRITE, call_send, &q, n, deadline);
}

ssize_t weft_fd_recvfrom(int fd, void *buf, size_t n, int flags, struct sockaddr *from, socklen_t *len,
                         weft_deadline deadline) {
    request q = {.buf = buf, .n = n, .flags = flags, .addr = from, .len = len};
    if (aside(flags)) return operate_aside(fd, call_recvfrom, &q, deadline);
    if (unlikely(is_nothing(fd, n, flags))) return read_nothing(fd, deadline);
    return operate(fd, WEFT_SIDE_READ, call_recvfrom, &q, 0, deadline);
}

/* No edge tells when there is room: it is tried again, after naps that grow. 0: now; or why not any more. */
enum { NAP_FIRST = 1000 * 1000, NAP_MAX = 32 * 1000 * 1000 }; /* ns */
static int nap_for(int64_t *nap, weft_deadline deadline) {
    if (weft__once(deadline)) return deadline.ns == INT64_MIN ? weft__cancel_poll(weft__me()) : WEFT_ETIMEDOUT;
    weft_deadline next = weft_after(*nap);
    if (deadline.ns && deadline.ns < next.ns) next = deadline;
    if (*nap < NAP_MAX) *nap *= 2;
    return weft_sleep(next);
}

/* A Unix socket that sends to an address whose queue is full is told of no room there; the attempt itself makes an edge, so that who waited for one would
 * go round and round. */
static ssize_t send_to(int fd, weft__attempt *call, request *q, weft_deadline deadline) {
    int cancelled = weft__cancel_first(weft__me(), deadline); /* the attempts below are made with WEFT_POLL */
    if (cancelled) return cancelled;
    for (int64_t nap = NAP_FIRST;;) {
        int domain = AF_UNSPEC;
        ssize_t r = operate(fd, WEFT_SIDE_WRITE, call, q, 0, WEFT_POLL);
        if (r != WEFT_EAGAIN) return r;
        int err = weft__sock_get(fd, SOL_SOCKET, SO_DOMAIN, &domain);
        if (!err && domain != AF_UNIX) return operate(fd, WEFT_SIDE_WRITE, call, q, 0, deadline);
        if (!err) err = nap_for(&nap, deadline);
        if (err) return err;
    }
}

ssize_t weft_fd_sendto(int fd, const void *buf, size_t n, int flags, const struct sockaddr *to, socklen_t len,
                       weft_deadline deadline) {
    request q = {.from = buf, .n = n, .flags = flags, .to = to, .to_len = len};
    return to ? send_to(fd, call_sendto, &q, deadline) : operate(fd, WEFT_SIDE_WRITE, call_sendto, &q, 0, deadline);
}

ssize_t weft_fd_recvmsg(int fd, struct msghdr *m, int flags, weft_deadline deadline) {
    request q = {.m = m, .flags = flags};
    if (aside(flags)) return operate_aside(fd, call_recvmsg, &q, deadline);
    return operate(fd, WEFT_SIDE_READ, call_recvmsg, &q, 0, deadline);
}

ssize_t weft_fd_sendmsg(int fd, const struct msghdr *m, int flags, weft_deadline deadline) {
    request q = {.msg = m, .flags = flags};
    return m->msg_name ? send_to(fd, call_sendmsg, &q, deadline) : operate(fd, WEFT_SIDE_WRITE, call_sendmsg, &q, 0, deadline);
}

/* ---- accept and connect ---- */

int weft__fd_accept(const weft__fd *f, struct sockaddr *from, socklen_t *len, weft_deadline deadline) {
    request q = {.addr = from, .len = len, .f = f};
    int fd = (int)weft__op(f, WEFT_SIDE_READ, call_accept, &q, NULL, 0, deadline);
    if (fd >= 0) weft__fd_new(fd);
    return fd;
}

int weft_fd_accept(int fd, struct sockaddr *from, socklen_t *len, weft_deadline deadline) {
    request q = {.addr = from, .len = len};
    int got;
    do {
        weft__fd f;
        got = weft__fd_get(fd, &f);
        q.f = &f;
        if (!got) got = weft__fd_nonblock(&f);
        if (!got) got = (int)weft__op_by(WEFT_BY_NUMBER_CAREFUL, &f, WEFT_SIDE_READ, call_accept, &q, NULL, 0, deadline);
    } while (got == WEFT_FD_ANOTHER);
    if (got >= 0) weft__fd_new(got);
    return got;
}

/* A Unix socket whose listener's queue is full says so at once. */
static int connect_begin(int fd, const struct sockaddr *to, socklen_t len, weft_deadline deadline) {
    for (int64_t nap = NAP_FIRST;;) {
        int err = weft__sock_connect(fd, to, len);
        if (err != -EAGAIN || (err = nap_for(&nap, deadline))) return err;
    }
}

/* The outcome, once it is known. */
static int connect_end(const weft__fd *f, weft_deadline deadline) {
    int err = weft__turn_take_checked(f, WEFT_SIDE_WRITE, deadline);
    if (err) return err;
    for (;;) {
        uint64_t seen = weft__fd_state(f);
        int ready = weft__desc_os_poll(f->fd, POLLOUT, WEFT_POLL_NOW), error = 0;
        err = ready > 0 ? weft__sock_get(f->fd, SOL_SOCKET, SO_ERROR, &error) : ready;
        if (!err && !ready) err = weft__op_check(f, deadline);
        if (ready || err) {
            weft__turn_leave(f, WEFT_SIDE_WRITE);
            return err ? err : -error;
        }
        err = weft__fd_park(f, WEFT_SIDE_WRITE, seen, deadline, NULL);
        if (!err) continue;
        if (err != WEFT_ECLOSED) weft__turn_leave(f, WEFT_SIDE_WRITE);
        return err;
    }
}

/* The poller gets the descriptor after the call: one that is not connected yet counts as hung up. */
int weft_fd_connect(int fd, const struct sockaddr *to, socklen_t len, weft_deadline deadline) {
    int err = weft__fd_begin(deadline);
    if (!err) err = weft__desc_os_nonblock(fd);
    if (!err) err = connect_begin(fd, to, len, deadline);
    if (err != -EINPROGRESS) return err;
    do {
        weft__fd f;
        err = weft__fd_get(fd, &f);
        if (!err) err = connect_end(&f, deadline);
    } while (err == WEFT_FD_ANOTHER);
    return err;
}

/* ---- waiting and closing ---- */

/* What poll(2) says, as WEFT_READABLE, …. The end of the peer's side is news for a writer, but no
 * reason to end its wait. */
static int ready_from(int polled, int events) {
    int r = 0;
    if (polled & (POLLIN | POLLHUP | POLLERR | POLLRDHUP)) r |= WEFT_READABLE;
    if (polled & (POLLOUT | POLLERR)) r |= WEFT_WRITABLE;
    if (polled & POLLHUP) r |= events & WEFT_READABLE ? WEFT_READABLE : WEFT_WRITABLE;
    return r & events;
}
static int hung_up(int polled) {
    return polled & (POLLHUP | POLLERR | POLLRDHUP) ? WEFT_HANGUP : 0;
}

static int poll_events(int events) {
    return (events & WEFT_READABLE ? POLLIN | POLLRDHUP : 0) | (events & WEFT_WRITABLE ? POLLOUT : 0);
}

int weft__fd_wait(const weft__fd *f, bool object, int events, weft_deadline deadline) {
    for (;;) {
        uint64_t seen = weft__fd_state(f);
        int sure = (int)weft__fd_sure(seen) & events;
        int polled = weft__desc_os_poll(f->fd, poll_events(events) | POLLRDHUP, WEFT_POLL_NOW);
        if (!weft__fd_valid(f)) return object ? WEFT_ECLOSED : weft__fd_over(f);
        if (polled == -EBADF && !object) (void)weft__fd_check(f); /* ends the waits of what was there */
        if (polled < 0) return polled;
        int ready = ready_from(polled, events) | sure;
        if (ready) return ready | hung_up(polled);
        int err = object ? 0 : weft__op_check(f, deadline);
        if (!err) err = weft__fd_watch(f, poll_events(events), seen, deadline);
        if (err) return err;
    }
}

int weft_fd_wait(int fd, int events, weft_deadline deadline) {
    if (!events || (events & ~(WEFT_READABLE | WEFT_WRITABLE))) return WEFT_EINVAL;
    int r = weft__fd_begin(deadline);
    if (r) return r;
    do {
        weft__fd f;
        r = weft__fd_get(fd, &f);
        if (!r) r = weft__fd_wait(&f, false, events, deadline);
    } while (r == WEFT_FD_ANOTHER);
    return r;
}

/* A check by another task may end the generation between the look-up and the close. */
int weft_fd_close(int fd) {
    weft__fd f;
    int r;
    do {
        if (!weft__fd_find(fd, &f)) return fd < 0 ? -EBADF : weft__desc_os_close(fd);
        r = weft__fd_close(&f);
    } while (r == WEFT_ECLOSED && weft__fd_replaced(&f));
    return r;
}

int weft_fd_forget(int fd) {
    weft__fd f;
    int r;
    if (fd < 0) return -EBADF;
    do {
        if (!weft__fd_find(fd, &f)) return 0;
        r = weft__fd_release(&f);
    } while (r == WEFT_ECLOSED && weft__fd_replaced(&f)); /* as in weft_fd_close */
    return r;
}
