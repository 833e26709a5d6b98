/* SPDX-License-Identifier: MIT */
/* Reference-counted buffers: bytes that several tasks share and a channel passes on without copying them. */
#ifndef WEFT_BUF_H
#define WEFT_BUF_H

#include <weft/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Some bytes and a count of those who hold them. Counting is atomic; who writes to the bytes while others may read them needs an order
 * of his own (a send and its receive are one). */
typedef struct weft_buf weft_buf;

/* Bytes that somebody else keeps: a pointer and a length, with what else belongs to an event. As an element of a channel it crosses by value,
 * and the bytes stay where they are. */
typedef struct weft_payload {
    void *ptr;
    size_t len;
    uint64_t tag;
    int status;
} weft_payload;

/* A new buffer of so many bytes (0 is allowed), aligned for any type and not cleared, with one reference. NULL: no memory. */
WEFT_API weft_buf *weft_buf_new(size_t len);
/* A buffer around bytes that are there already: free_fn(data, arg), unless it is NULL, is called when the last reference to it and to its
 * slices is dropped, by whoever drops it. NULL: no memory; then the bytes are still yours. */
WEFT_API weft_buf *weft_buf_wrap(void *data, size_t len, void (*free_fn)(void *data, void *arg), void *arg);
/* A part of the buffer as a buffer of its own, with one reference: it shares the bytes, and keeps them. NULL: no memory, or the part is not
 * inside. */
WEFT_API weft_buf *weft_buf_slice(weft_buf *b, size_t offset, size_t len);
/* One more reference; returns b. */
WEFT_API weft_buf *weft_buf_ref(weft_buf *b);
/* One reference less; with the last one the buffer is freed. NULL is allowed. */
WEFT_API void weft_buf_unref(weft_buf *b);
/* The first byte, and how many there are. */
WEFT_API void *weft_buf_data(const weft_buf *b);
WEFT_API size_t weft_buf_len(const weft_buf *b);

#ifdef __cplusplus
}
#endif
#endif
