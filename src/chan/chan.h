/* SPDX-License-Identifier: MIT */
/* Channels: the internal side.
 *
 * One lock, one line: everything that a send or a receive looks at is in the first 64 bytes. A value goes straight from the sender's
 * memory to the receiver's when one of them waits; with a receiver waiting the buffer is empty, with a sender waiting it is full.
 *  C1  receivers.head != NULL  =>  count == 0
 *  C2  senders.head != NULL    =>  count == cap, and the kind is BUFFERED
 *  C3  closed                  =>  nobody waits, and bound == 0
 *  C4  bound <= mark, bound <= cap: a send that finds count < bound just puts its element into the buffer
 *  C5  blocks != NULL          =>  bound == 0: an UNLIMITED channel's newer elements are behind its buffer, and new ones go there
 *  C6  received + undelivered = left + first, sent = that + count + more
 *  C7  the lock leans (lock.h)  =>  LEANT, and cap > 0
 * (A waiter of a select that has been won elsewhere may still stand in a queue: it counts as absent.)
 *
 * What is special goes through one hole. The fast paths know a buffer and two queues, nothing else; every other kind, a closed channel, and
 * a new high-water mark make `bound` so small that a send finds no room, and only who finds no room or no element looks at `flags`. So kinds and
 * counters cost the others nothing:
 *  - The high-water mark is exact because `bound` is never above it: the send that would raise it finds no room below `bound`, raises both,
 *    and is done. Each height of the buffer takes that way once.
 *  - Elements are counted by `first`, the place of the oldest, which each of them moves by one; whoever moves it back to 0 adds a lap to `left`.
 *    One that is handed over without the buffer moves it too. In a rendezvous it has no other use, and a lap is 2^32.
 *
 * Measured: a lock-free ring for the single-producer case is not needed to beat 10 ns an item. docs/adr/018-channels.md compares this with
 * cells that are claimed by fetch-and-add. */
#ifndef WEFT_SRC_CHAN_H
#define WEFT_SRC_CHAN_H

#include "base/base.h"
#include "base/lock.h"
#include "base/slab.h"
#include "park/park.h"

#include <weft/chan.h>

/* weft_chan.flags; under lock */
enum {
    WEFT_CHAN_CLOSED = 1,
    WEFT_CHAN_MORE = 2,   /* UNLIMITED: there are blocks behind the buffer */
    WEFT_CHAN_ODD = 4,    /* not BUFFERED: a send does not wait for room. Fixed */
    WEFT_CHAN_LOW = 8,    /* mark < cap: no room below `bound` does not mean that there is none */
    WEFT_CHAN_LEANT = 16, /* the lock has leant (lock.h), and may: it is looked at how it is held */
};

/* Elements of an UNLIMITED channel. The first block's `data` is the channel's buffer. */
typedef struct weft__chan_block {
    struct weft__chan_block *next;
    uint32_t count; /* unused in the first one */
    _Alignas(16) char data[];
} weft__chan_block;

struct weft_chan {
    weft__lock lock;
    uint32_t elem;  /* bytes of an element; fixed */
    uint32_t cap;   /* places of the buffer; fixed */
    uint32_t count; /* elements in the buffer */
    uint32_t first; /* the oldest element; C6 */
    uint32_t bound; /* C4 */
    char *buffer;   /* fixed, except UNLIMITED */
    weft__queue receivers, senders;
    /* Second line: only who finds no room, no element or the end of a lap comes here. */
    _Atomic uint32_t refs;
    uint32_t flags;
    uint64_t left; /* C6 */
    size_t mark;   /* the most elements there have been */
    uint64_t undelivered;
    weft__chan_block *blocks, *last; /* UNLIMITED: behind the buffer */
    size_t more;                     /* elements in them */
    void *spare;                     /* a block, or (LATEST) room for an element that gives way; NULL: none, or in use */
    /* Third line. */
    void (*on_undelivered)(void *elem, void *arg); /* fixed, as all here */
    void *arg;
    char *name;
    int kind;
    /* Once in a lap, under the lock: who took it lately, how often in a row, how often it must be until it leans, and how often it was taken so. */
    uint16_t lean_slot;
    uint32_t lean_run, lean_need, lean_lasted;
    void *slab_link[2];
};

/* Sends without waiting: into a full buffer in the place of its oldest element. 0, WEFT_ECLOSED, or WEFT_EAGAIN: a rendezvous, and
 * nobody waits. Elements are small. */
int weft__chan_put_latest(weft_chan *c, const void *elem);
/* What a select has found that can be done, but not with the lock alone (WEFT_CHAN_AID). As weft_chan_send and weft_chan_recv with WEFT_POLL. */
int weft__chan_send_aided(weft_chan *c, const void *elem);
int weft__chan_recv_aided(weft_chan *c, void *elem);

/* Operations in a row on one slot, after which a new channel's lock leans to it, and by what that grows when it was of no use. Variables for tests. */
extern uint32_t weft__chan_lean_after, weft__chan_lean_growth;
extern weft__slab weft__chan_slab; /* type-stable: P4 */
/* In the child of a fork: those who waited do not exist, and whoever held a lock does not. Every channel is closed. */
void weft__chans_forget(void);

enum {
    WEFT_CHAN_WAIT = 1, /* it cannot be done now */
    WEFT_CHAN_AID = 2,  /* it can, but needs memory, or has something to be called or freed without the lock */
};
#define WEFT_SELECT_CLOSED 0x40000000 /* in a select's result, beside the case's index: the channel was closed */
#define WEFT_SELECT_AIDED 0x20000000  /* likewise: it is still to be done, by weft__chan_send_aided or weft__chan_recv_aided */

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

/* Operations on the buffer are paid for when they come to its beginning, or to every WEFT_CHAN_LUMP-th place: not one store for each. */
enum { WEFT_CHAN_LUMP = 256 };
WEFT_INLINE bool weft__chan_lump(uint32_t place) {
    return place % WEFT_CHAN_LUMP == 0;
}
/* A receive has come to such a place: counts the lap, leaves the lock, pays, leaves the runtime. 0. */
WEFT_NOINLINE int weft__chan_received_lump(weft_chan *c, weft__slot *s);

/* Into the buffer, which has room; under the lock. Returns the place. */
WEFT_INLINE uint32_t weft__chan_put(weft_chan *c, const void *elem, bool small) {
    uint32_t at = c->first + c->count++;
    if (at >= c->cap) at -= c->cap;
    weft__chan_copy(c->buffer + (size_t)at * c->elem, elem, c->elem, small);
    return at;
}

/* Out of the buffer, which is not empty; under the lock. Returns the place of the next one: 0 is the end of a lap, to be counted. */
WEFT_INLINE uint32_t weft__chan_get_uncounted(weft_chan *c, void *elem, bool small) {
    uint32_t at = c->first, next = at + 1;
    next = next == c->cap ? 0 : next;
    c->first = next;
    c->count--;
    if (likely(elem != NULL)) weft__chan_copy(elem, c->buffer + (size_t)at * c->elem, c->elem, small);
    return next;
}
WEFT_INLINE void weft__chan_get(weft_chan *c, void *elem, bool small) {
    if (weft__chan_get_uncounted(c, elem, small) == 0) c->left += c->cap; /* C6 */
}

/* An element goes from hand to hand: counted as if it had been in the buffer. */
WEFT_INLINE void weft__chan_count_handed(weft_chan *c) {
    if (likely(++c->first != c->cap)) return;
    c->left += c->cap ? c->cap : UINT64_C(1) << 32; /* C6 */
    c->first = 0;
}

/* The rest of a send that finds no room below `bound`, nobody who receives, and has the lock. */
WEFT_NOINLINE int weft__chan_send_full(weft_chan *c, const void *elem);

/* The decisive step of a send, under the lock: 0, WEFT_ECLOSED, WEFT_CHAN_WAIT or WEFT_CHAN_AID. *wake is to be resumed after the lock is left.
 * `small`: the caller knows that elements are. */
WEFT_INLINE int weft__chan_send_locked(weft_chan *c, const void *elem, weft__block **wake, bool small) {
    if (c->receivers.head) {
        weft__waiter *x = weft__queue_claim(&c->receivers);
        if (likely(x != NULL)) {
            if (x->elem) weft__chan_copy(x->elem, elem, c->elem, small);
            weft__chan_count_handed(c);
            x->block->result = (int32_t)x->index;
            *wake = x->block;
            return 0;
        }
    }
    if (c->count >= c->bound) return weft__chan_send_full(c, elem);
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
            weft__chan_count_handed(c);
            x->block->result = (int32_t)x->index;
            *wake = x->block;
            return 0;
        }
    }
    if (likely(!(c->flags & (WEFT_CHAN_CLOSED | WEFT_CHAN_MORE)))) return WEFT_CHAN_WAIT;
    return c->flags & WEFT_CHAN_MORE ? WEFT_CHAN_AID : WEFT_ECLOSED;
}

#endif
