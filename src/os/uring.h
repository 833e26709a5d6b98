/* SPDX-License-Identifier: MIT */
/* Many sends in one system call, by Linux's io_uring. Nothing is left in the kernel when weft__uring_send returns: each of the sends is one that does
 * not wait, so it has been made, or has failed, by then. That is all the ring is used for here. */
#ifndef WEFT_SRC_URING_H
#define WEFT_SRC_URING_H

#include <stddef.h>
#include <sys/types.h>

#include "base/base.h"

enum { WEFT_URING_SENDS = 32 }; /* at once, at most; a power of two */

/* send(2) of a socket, as weft__sock_send makes it. */
typedef struct weft__send {
    int fd;
    const void *buf;
    size_t n;
    ssize_t got; /* what it returned, or -errno */
} weft__send;

/* Zeroed memory is a ring that is not open. */
typedef struct weft__uring {
    int fd;
    void *map, *entries; /* NULL: it is not open */
    size_t map_size;
    uint32_t sq_mask, cq_mask;
    _Atomic uint32_t *sq_head, *sq_tail, *cq_head, *cq_tail; /* shared with the kernel, as what follows */
    uint32_t *sq_array;
    void *cqes;
} weft__uring;

/* 0 or -errno: -ENOSYS also where the kernel has not all that is needed, or its header had not when this was built. */
int weft__uring_open(weft__uring *r);
void weft__uring_close(weft__uring *r);
WEFT_INLINE bool weft__uring_is_open(const weft__uring *r) {
    return r->entries != NULL;
}
/* Makes them, in order, and sets `got` of each: 0. By one thread at a time. -errno (-EBADF: it is somebody else's number): `got` is -EINPROGRESS of those that were not made, and the ring is
 * closed. */
int weft__uring_send(weft__uring *r, weft__send *const *sends, int n);
/* By how many nanoseconds a system call that does nothing takes longer than an entry of the ring that does nothing, of many at a time, into *ns: 0.
 * Takes some fifty microseconds. By one thread at a time. -errno: as weft__uring_send. */
int weft__uring_gain(weft__uring *r, int64_t *ns);
/* In the child of a fork, which has the number, and not the memory. */
void weft__uring_forget(weft__uring *r);

#endif
