/* SPDX-License-Identifier: MIT */
/* Channels: the internal side.
 *
 * One lock, one line: everything that a send or a receive looks at is in the first 64 bytes. A value goes straight from the sender's
 * memory to the receiver's when one of them waits; with a receiver waiting the buffer is empty, with a sender waiting it is full.
 *  C1  receivers.head != NULL  =>  count == 0
 *  C2  senders.head != NULL    =>  count == cap
 *  C3  closed                  =>  no sender waits, and a receiver waits only for the moment until close wakes it
 * (A waiter of a select that has been won elsewhere may still stand in a queue: it counts as absent.)
 * Measured: a lock-free ring for the single-producer case is not needed to beat 10 ns an item. */
#ifndef WEFT_SRC_CHAN_H
#define WEFT_SRC_CHAN_H

#include "base/base.h"
#include "base/lock.h"
#include "base/slab.h"
#include "park/park.h"

#include <weft/chan.h>

struct weft_chan {
    weft__lock lock;
    uint32_t elem; /* bytes of an element; fixed */
    uint32_t cap;  /* fixed */
    uint32_t count;
    uint32_t first; /* the oldest element */
    bool closed;
    char *buffer; /* fixed */
    weft__queue receivers, senders;
    /* second line */
    _Atomic uint32_t refs;
    void *slab_link[2];
};

/* Sends without waiting: into a full buffer in the place of its oldest element. 0, WEFT_ECLOSED, or WEFT_EAGAIN: a rendezvous, and
 * nobody waits. Elements are small. */
int weft__chan_put_latest(weft_chan *c, const void *elem);

extern weft__slab weft__chan_slab; /* type-stable: P4 */
/* In the child of a fork: those who waited do not exist, and whoever held a lock does not. Every channel is closed. */
void weft__chans_forget(void);

enum { WEFT_CHAN_WAIT = 1 };          /* it cannot be done now */
#define WEFT_SELECT_CLOSED 0x40000000 /* in a select's result, beside the case's index: the channel was closed */

/* Elements up to this size are copied without a call. */
enum { WEFT_CHAN_SMALL = 16 };

WEFT_INLINE void weft__chan_copy_small(char *to, const char *from, uint32_t n) {
    if (likely(n == 8)) {
        memcpy(to, from, 8);
    } else if (n > 8) { /* two overlapping halves */
        memcpy(to, from, 8);
        memcpy(to + n - 8, from + n - 8, 8);
    } else if (n >= 4) {
        memcpy(to, from, 4);
        memcpy(to + n - 4, from + n - 4, 4);
    } else {
        for (uint32_t i = 0; i < n; i++) to[i] = from[i];
    }
}

WEFT_INLINE void weft__chan_copy(void *to, const void *from, uint32_t n, bool small) {
    if (small)
        weft__chan_copy_small(to, from, n);
    else if (n)
        memcpy(to, from, n);
}

/* Into the buffer, which has room; under the lock. Returns the place. */
WEFT_INLINE uint32_t weft__chan_put(weft_chan *c, const void *elem, bool small) {
    uint32_t at = c->first + c->count++;
    if (at >= c->cap) at -= c->cap;
    weft__chan_copy(c->buffer + (size_t)at * c->elem, elem, c->elem, small);
    return at;
}

/* Out of the buffer, which is not empty; under the lock. Returns the place. */
WEFT_INLINE uint32_t weft__chan_get(weft_chan *c, void *elem, bool small) {
    uint32_t at = c->first, next = at + 1;
    c->first = next == c->cap ? 0 : next;
    c->count--;
    if (likely(elem != NULL)) weft__chan_copy(elem, c->buffer + (size_t)at * c->elem, c->elem, small);
    return at;
}

/* The decisive step of a send, under the lock: 0, WEFT_ECLOSED or WEFT_CHAN_WAIT. *wake is to be resumed after the lock is left.
 * `small`: the caller knows that elements are. */
WEFT_INLINE int weft__chan_send_locked(weft_chan *c, const void *elem, weft__block **wake, bool small) {
    if (unlikely(c->closed)) return WEFT_ECLOSED;
    if (c->receivers.head) {
        weft__waiter *x = weft__queue_claim(&c->receivers);
        if (likely(x != NULL)) {
            if (x->elem) weft__chan_copy(x->elem, elem, c->elem, small);
            x->block->result = (int32_t)x->index;
            *wake = x->block;
            return 0;
        }
    }
    if (c->count == c->cap) return WEFT_CHAN_WAIT;
    weft__chan_put(c, elem, small);
    return 0;
}

/* The decisive step of a receive. */
WEFT_INLINE int weft__chan_recv_locked(weft_chan *c, void *elem, weft__block **wake, bool small) {
    if (c->count) {
        weft__chan_get(c, elem, small);
        if (c->senders.head) {
            weft__waiter *x = weft__queue_claim(&c->senders); /* its element takes the free place */
            if (x) {
                weft__chan_put(c, x->elem, small);
                x->block->result = (int32_t)x->index;
                *wake = x->block;
            }
        }
        return 0;
    }
    if (c->senders.head) {
        weft__waiter *x = weft__queue_claim(&c->senders);
        if (x) {
            if (elem) weft__chan_copy(elem, x->elem, c->elem, small);
            x->block->result = (int32_t)x->index;
            *wake = x->block;
            return 0;
        }
    }
    return c->closed ? WEFT_ECLOSED : WEFT_CHAN_WAIT;
}

#endif
