/* SPDX-License-Identifier: MIT */
/* Channels: values from task to task, in order, with back-pressure. Tasks and plain threads alike. */
#ifndef WEFT_CHAN_H
#define WEFT_CHAN_H

#include <weft/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_chan weft_chan;

/* weft_chan_opts.kind */
enum {
    WEFT_CHAN_BUFFERED = 0,  /* up to `capacity` elements wait in the channel, then senders do; capacity 0 is a rendezvous */
    WEFT_CHAN_UNLIMITED = 1, /* a send never waits: the buffer grows, and shrinks again */
    WEFT_CHAN_LATEST = 2     /* a send never waits: when `capacity` elements (0 means 1) are there, the oldest gives way */
};

typedef struct weft_chan_opts {
    int kind;        /* WEFT_CHAN_… */
    size_t capacity; /* of WEFT_CHAN_UNLIMITED: ignored */
    /* Called with an element that was sent and will never be received: one that gave way, in a WEFT_CHAN_LATEST or to a
     * ticker, and those that are left when the last reference is dropped. By whoever sends, or drops; without locks. It may use the channel only
     * in the first case. It must not panic: memory would be lost. NULL: nothing is to be done. */
    void (*on_undelivered)(void *elem, void *arg);
    void *arg;
    const char *name; /* copied; shown in reports */
} weft_chan_opts;

/* What has happened in a channel. Each figure is right, and all are of the same moment. */
typedef struct weft_chan_stats {
    uint64_t sent;        /* elements that were sent */
    uint64_t received;    /* elements that were received */
    uint64_t undelivered; /* elements that gave way to newer ones */
    size_t len;           /* elements buffered now: sent - received - undelivered */
    size_t high_water;    /* the largest `len` there has been */
    size_t send_waiting;  /* who wait to send now; cases of a select included */
    size_t recv_waiting;  /* who wait to receive now */
    const char *name;     /* "" without one; good for as long as the channel is */
} weft_chan_stats;

/* A channel for elements of elem_size bytes (0 is allowed: a signal). capacity 0 is a rendezvous: a send ends when its
 * receiver has the element. NULL: out of memory, or sizes beyond 2^31 - 1 bytes in all. */
WEFT_API weft_chan *weft_chan_new(size_t elem_size, size_t capacity);
/* A channel of another kind; opts NULL is a rendezvous. NULL: out of memory, sizes beyond 2^31 - 1 bytes, or an unknown kind. */
WEFT_API weft_chan *weft_chan_new_opts(size_t elem_size, const weft_chan_opts *opts);
/* Another reference to the same channel, to be dropped on its own. */
WEFT_API weft_chan *weft_chan_ref(weft_chan *c);
/* Drops a reference; the last one frees the channel and the elements in it. close();unref() at once is legal; a waiter
 * still parked at the last unref is a bug and aborts. NULL is allowed. */
WEFT_API void weft_chan_unref(weft_chan *c);

/* Sends the element. WEFT_ECLOSED, WEFT_ETIMEDOUT, WEFT_ECANCELED, WEFT_EAGAIN (WEFT_POLL), WEFT_ENOMEM (only WEFT_CHAN_UNLIMITED, and
 * WEFT_CHAN_LATEST with on_undelivered): it was not sent. */
WEFT_API int weft_chan_send(weft_chan *c, const void *elem, weft_deadline deadline);
/* Receives an element into *elem (NULL drops it). WEFT_ECLOSED: closed and drained. Errors as weft_chan_send: *elem is untouched. */
WEFT_API int weft_chan_recv(weft_chan *c, void *elem, weft_deadline deadline);
/* No more sends; what is buffered can still be received. Wakes everybody who waits and cannot be served. WEFT_ECLOSED:
 * it was closed before. */
WEFT_API int weft_chan_close(weft_chan *c);

/* Whether it was closed. One that is closed stays so; there may be elements left to receive (weft_chan_len). Never waits. */
WEFT_API bool weft_chan_is_closed(weft_chan *c);
/* Elements buffered now; it may be another number by the time you look at it. */
WEFT_API size_t weft_chan_len(weft_chan *c);
/* Elements buffered at most; 0 for a rendezvous, SIZE_MAX for WEFT_CHAN_UNLIMITED. */
WEFT_API size_t weft_chan_cap(weft_chan *c);
/* What has happened so far. */
WEFT_API void weft_chan_stats_get(weft_chan *c, weft_chan_stats *out);

/* Sends the element if that can be done at once, in a cancelled scope too. WEFT_ECLOSED, WEFT_EAGAIN
 * (in a cancelled scope WEFT_ECANCELED): it was not sent. */
static inline int weft_chan_try_send(weft_chan *c, const void *elem) {
    return weft_chan_send(c, elem, WEFT_POLL);
}
/* Receives an element if there is one now, in a cancelled scope too. Errors as weft_chan_try_send:
 * *elem is untouched. */
static inline int weft_chan_try_recv(weft_chan *c, void *elem) {
    return weft_chan_recv(c, elem, WEFT_POLL);
}

/* WEFT_CHAN_EACH(c, &v) { … }: the body runs for each element until the channel is closed and drained (or the wait is
 * cancelled). */
#define WEFT_CHAN_EACH(c, elem) while (weft_chan_recv((c), (elem), WEFT_FOREVER) == 0)

#ifdef __cplusplus
}
#endif
#endif
