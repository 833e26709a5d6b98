/* SPDX-License-Identifier: MIT */
/* Select: waits for several channel operations, ends of tasks, descriptors or connections, and
 * does exactly one of them. */
#ifndef WEFT_SELECT_H
#define WEFT_SELECT_H

#include <weft/chan.h>
#include <weft/io.h>
#include <weft/net.h>
#include <weft/task.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One case; made by weft_on_recv, weft_on_send, weft_on_send_open, weft_on_task, weft_on_fd and
 * weft_on_conn. */
typedef struct weft_case {
    union { /* NULL, or no events: the case is disabled */
        weft_chan *chan;
        weft_task *task;
        weft_conn *conn;
        uintptr_t events;
    };
    union {
        void *elem;
        int fd; /* of a connection's case: the events */
    };
    bool *open;
    int op;
} weft_case;

enum { WEFT_CASE_RECV = 1, WEFT_CASE_SEND = 2, WEFT_CASE_TASK = 3, WEFT_CASE_FD = 4, WEFT_CASE_CONN = 5 };

/* Receive into *elem. On a closed, drained channel the case happens with *open = false; if `open` is NULL, the select
 * returns WEFT_ECLOSED instead. Otherwise *open = true. */
static inline weft_case weft_on_recv(weft_chan *c, void *elem, bool *open) {
    weft_case k;
    k.chan = c;
    k.elem = elem;
    k.open = open;
    k.op = WEFT_CASE_RECV;
    return k;
}
/* Send *elem. On a closed channel the select returns WEFT_ECLOSED. */
static inline weft_case weft_on_send(weft_chan *c, const void *elem) {
    weft_case k;
    k.chan = c;
    k.elem = (void *)(uintptr_t)elem;
    k.open = NULL;
    k.op = WEFT_CASE_SEND;
    return k;
}
/* Send *elem. On a closed channel the case happens with *open = false, and nothing was sent; otherwise
 * *open = true. `open` NULL: as weft_on_send. */
static inline weft_case weft_on_send_open(weft_chan *c, const void *elem, bool *open) {
    weft_case k = weft_on_send(c, elem);
    k.open = open;
    return k;
}
/* The task has ended: *result (if not NULL) is what its function returned, and the handle is released, as weft_task_join does. A NULL task:
 * the case is disabled. A task may stand in one case only. */
static inline weft_case weft_on_task(weft_task *t, int *result) {
    weft_case k;
    k.task = t;
    k.elem = result;
    k.open = NULL;
    k.op = WEFT_CASE_TASK;
    return k;
}

/* The descriptor is ready for one of `events`, WEFT_READABLE or WEFT_WRITABLE or both, as weft_fd_wait has it; nothing is read or written. The same one
 * may stand in several cases. If it is closed by weft_fd_close meanwhile, the select returns WEFT_ECLOSED. io.h says what happens if other code
 * closes it. Descriptor -1, or no events: the case is
 * disabled. */
static inline weft_case weft_on_fd(int fd, int events) {
    weft_case k;
    k.events = fd == -1 ? 0 : (uintptr_t)(unsigned)events;
    k.elem = NULL;
    k.fd = fd;
    k.open = NULL;
    k.op = WEFT_CASE_FD;
    return k;
}

/* The connection is ready for one of `events`, as weft_conn_wait has it: bytes that were read ahead
 * count. Nothing is read or written. If the connection is closed meanwhile, the select returns
 * WEFT_ECLOSED. A NULL connection, or no events: the case is disabled. */
static inline weft_case weft_on_conn(weft_conn *c, int events) {
    weft_case k;
    k.conn = events ? c : NULL;
    k.elem = NULL;
    k.fd = events;
    k.open = NULL;
    k.op = WEFT_CASE_CONN;
    return k;
}

/* Waits until one case can be done, does it and returns its index; among several that can, one is
 * chosen at random, also among several on one channel that were waited for. With WEFT_POLL, or a
 * deadline that has passed, WEFT_EAGAIN or WEFT_ETIMEDOUT says of one moment that no channel and no
 * task was ready. Descriptors are not part of that moment: the kernel is asked about them before it.
 * WEFT_EAGAIN (WEFT_POLL and none is ready; in a cancelled scope WEFT_ECANCELED), WEFT_ETIMEDOUT, WEFT_ECANCELED, WEFT_ECLOSED, WEFT_ENOMEM (more than 16 cases, or as
 * weft_chan_send), WEFT_EDEADLOCK (the calling task is one of those waited for), WEFT_EINVAL (an unknown case or event, or more than 65,535 cases); with
 * descriptors also what weft_fd_wait gives (-EBADF: there is no such descriptor), and on a plain thread WEFT_ETERMINATED: the runtime ended
 * meanwhile. With every case disabled it waits for the deadline or cancellation. */
WEFT_API int weft_selectv(weft_case *cases, size_t n, weft_deadline deadline);
/* The same, but among several cases that can be done at one moment it does the first in the order
 * given; descriptors are asked before that moment. If it has to wait, it does the first that becomes
 * ready. A case that is always ready keeps those behind it from ever being done. */
WEFT_API int weft_selectv_ordered(weft_case *cases, size_t n, weft_deadline deadline);

#ifdef __cplusplus
}
/* weft_select(deadline, weft_on_recv(a, &x, &ok), weft_on_send(b, &y)) */
template <class... C>
inline int weft_select(weft_deadline deadline, C... c) {
    weft_case v[] = {c...};
    return weft_selectv(v, sizeof...(c), deadline);
}
/* The same with weft_selectv_ordered. */
template <class... C>
inline int weft_select_ordered(weft_deadline deadline, C... c) {
    weft_case v[] = {c...};
    return weft_selectv_ordered(v, sizeof...(c), deadline);
}
#else
/* weft_select(deadline, weft_on_recv(a, &x, &ok), weft_on_send(b, &y)) */
#define weft_select(deadline, ...)                                                                                             \
    weft_selectv((weft_case[]){__VA_ARGS__}, sizeof((weft_case[]){__VA_ARGS__}) / sizeof(weft_case), (deadline))
/* The same with weft_selectv_ordered. */
#define weft_select_ordered(deadline, ...)                                                                                     \
    weft_selectv_ordered((weft_case[]){__VA_ARGS__}, sizeof((weft_case[]){__VA_ARGS__}) / sizeof(weft_case), (deadline))
#endif
#endif
