/* SPDX-License-Identifier: MIT */
/* Reference-counted buffers.
 *
 * A buffer is a header and its bytes in one allocation; one around foreign bytes is a header only, and so is a slice, which holds a reference to the
 * buffer that has the bytes: never to another slice, so that a slice of a slice of a slice keeps nothing but the bytes.
 *
 * Rejected: slices as values of pointer and length (a channel would pass two words and a rule about who drops what); headers from a slab
 * (malloc is as fast for objects that are mostly freed by another thread than made them, and the bytes are larger anyway). */
#include <stddef.h>

#include "base/base.h"
#include "os/os.h"

#include <weft/buf.h>

struct weft_buf {
    _Atomic uint32_t refs;
    weft_buf *whole; /* of a slice: who has the bytes; else NULL; fixed, as the rest */
    char *data;
    size_t len;
    void (*free_fn)(void *data, void *arg);
    void *arg;
    _Alignas(max_align_t) char bytes[];
};

static weft_buf *header(void *data, size_t len, size_t bytes) {
    weft_buf *b = bytes <= SIZE_MAX / 2 ? weft__malloc(sizeof *b + bytes) : NULL;
    if (!b) return NULL;
    *b = (weft_buf){.data = data, .len = len};
    weft__store(&b->refs, 1, relaxed); /* published with the buffer */
    return b;
}

weft_buf *weft_buf_new(size_t len) {
    weft_buf *b = header(NULL, len, len);
    if (b) b->data = b->bytes;
    return b;
}

weft_buf *weft_buf_wrap(void *data, size_t len, void (*free_fn)(void *data, void *arg), void *arg) {
    weft_buf *b = header(data, len, 0);
    if (!b) return NULL;
    b->free_fn = free_fn;
    b->arg = arg;
    return b;
}

weft_buf *weft_buf_slice(weft_buf *b, size_t offset, size_t len) {
    if (offset > b->len || len > b->len - offset) return NULL;
    weft_buf *s = header(offset ? b->data + offset : b->data, len, 0);
    if (s) s->whole = weft_buf_ref(b->whole ? b->whole : b);
    return s;
}

weft_buf *weft_buf_ref(weft_buf *b) {
    weft__add(&b->refs, 1, relaxed); /* the caller has one */
    return b;
}

void weft_buf_unref(weft_buf *b) {
    while (b) {
        if (weft__sub(&b->refs, 1, acq_rel) != 1) return; /* the last one sees what the others did */
        weft_buf *whole = b->whole;                       /* a slice's own reference goes with it */
        if (b->free_fn) b->free_fn(b->data, b->arg);
        weft__free(b);
        b = whole;
    }
}

void *weft_buf_data(const weft_buf *b) {
    return b->data;
}

size_t weft_buf_len(const weft_buf *b) {
    return b->len;
}
