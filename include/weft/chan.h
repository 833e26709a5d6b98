/* SPDX-License-Identifier: MIT */
/* Channels: values from task to task, in order, with back-pressure. Tasks and plain threads alike. */
#ifndef WEFT_CHAN_H
#define WEFT_CHAN_H

#include <weft/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_chan weft_chan;

/* A channel for elements of elem_size bytes (0 is allowed: a signal). capacity 0 is a rendezvous: a send ends when its
 * receiver has the element. NULL: out of memory, or sizes beyond 2^31 - 1 bytes in all. */
WEFT_API weft_chan *weft_chan_new(size_t elem_size, size_t capacity);
/* Another reference to the same channel, to be dropped on its own. */
WEFT_API weft_chan *weft_chan_ref(weft_chan *c);
/* Drops a reference; the last one frees the channel and the elements in it. close();unref() at once is legal; a waiter
 * still parked at the last unref is a bug and aborts. NULL is allowed. */
WEFT_API void weft_chan_unref(weft_chan *c);

/* Sends the element. WEFT_ECLOSED, WEFT_ETIMEDOUT, WEFT_ECANCELED, WEFT_EAGAIN (WEFT_POLL): it was not sent. */
WEFT_API int weft_chan_send(weft_chan *c, const void *elem, weft_deadline deadline);
/* Receives an element into *elem (NULL drops it). WEFT_ECLOSED: closed and drained. Errors as weft_chan_send: *elem is untouched. */
WEFT_API int weft_chan_recv(weft_chan *c, void *elem, weft_deadline deadline);
/* No more sends; what is buffered can still be received. Wakes everybody who waits and cannot be served. WEFT_ECLOSED:
 * it was closed before. */
WEFT_API int weft_chan_close(weft_chan *c);

/* Elements buffered now; it may be another number by the time you look at it. */
WEFT_API size_t weft_chan_len(weft_chan *c);
/* Elements buffered at most; 0 for a rendezvous. */
WEFT_API size_t weft_chan_cap(weft_chan *c);

/* Sends the element if that can be done at once. WEFT_EAGAIN, WEFT_ECLOSED, WEFT_ECANCELED: it was not sent. */
static inline int weft_chan_try_send(weft_chan *c, const void *elem) {
    return weft_chan_send(c, elem, WEFT_POLL);
}
/* Receives an element if there is one now. WEFT_EAGAIN, WEFT_ECLOSED, WEFT_ECANCELED: *elem is untouched. */
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
