/* SPDX-License-Identifier: MIT */
#include "base/slab.h"

#include "os/os.h"

enum { CHUNK_OBJECTS = 4 * WEFT_MAGAZINE, CHUNK_HEAD = WEFT_LINE };

static char *first_of(void *chunk) {
    return (char *)(((uintptr_t)chunk + CHUNK_HEAD + WEFT_LINE - 1) & ~(uintptr_t)(WEFT_LINE - 1));
}

/* Room for at least one magazine of objects that were never used; under the lock. */
static bool grow(weft__slab *s) {
    size_t need = (size_t)s->size * WEFT_MAGAZINE;
    if ((size_t)(s->end - s->fresh) >= need) return true;
    size_t bytes = CHUNK_HEAD + (size_t)s->size * CHUNK_OBJECTS;
    char *chunk = weft__calloc(1, bytes + WEFT_LINE);
    if (!chunk) return false;
    *(void **)chunk = s->chunks;
    s->chunks = chunk;
    s->fresh = first_of(chunk);
    s->end = s->fresh + (size_t)s->size * CHUNK_OBJECTS;
    return true;
}

/* A magazine of objects that were never used; under the lock. */
static void *carve(weft__slab *s) {
    if (!grow(s)) return NULL;
    void *list = NULL;
    char *base = s->fresh;
    s->fresh += (size_t)s->size * WEFT_MAGAZINE;
    for (int i = WEFT_MAGAZINE - 1; i >= 0; i--) {
        void *obj = base + (size_t)i * s->size;
        *weft__slab_link(s, obj) = list;
        list = obj;
    }
    return list;
}

/* Up to a magazine of single objects; under the lock. */
static void *gather(weft__slab *s, uint32_t *count) {
    void *list = s->loose, *last = NULL;
    uint32_t n = 0;
    for (; s->loose && n < WEFT_MAGAZINE; n++) {
        last = s->loose;
        s->loose = *weft__slab_link(s, last);
    }
    if (last) *weft__slab_link(s, last) = NULL;
    *count = n;
    return list;
}

bool weft__cache_refill(weft__slab *s, weft__cache *c) {
    void *mag = c->full;
    uint32_t n = WEFT_MAGAZINE;
    c->full = NULL;
    if (!mag) {
        weft__lock_take(&s->lock);
        if ((mag = s->magazines) != NULL)
            s->magazines = weft__slab_link(s, mag)[1];
        else if (s->loose)
            mag = gather(s, &n);
        else
            mag = carve(s);
        weft__lock_leave(&s->lock);
    }
    if (!mag) return false;
    c->first = mag;
    c->count = n;
    return true;
}

static void give_magazine(weft__slab *s, void *mag) {
    weft__lock_take(&s->lock);
    weft__slab_link(s, mag)[1] = s->magazines;
    s->magazines = mag;
    weft__lock_leave(&s->lock);
}

void weft__cache_spill(weft__slab *s, weft__cache *c) {
    if (c->full) give_magazine(s, c->full);
    c->full = c->first;
    c->first = NULL;
    c->count = 0;
}

void weft__cache_flush(weft__slab *s, weft__cache *c) {
    if (c->full) give_magazine(s, c->full);
    while (c->first) {
        void *obj = c->first;
        c->first = *weft__slab_link(s, obj);
        weft__slab_put(s, obj);
    }
    c->full = NULL;
    c->count = 0;
}

void *weft__slab_get(weft__slab *s) {
    weft__lock_take(&s->lock);
    if (!s->loose) {
        s->loose = s->magazines;
        if (s->loose)
            s->magazines = weft__slab_link(s, s->loose)[1];
        else
            s->loose = carve(s);
    }
    void *obj = s->loose;
    if (obj) s->loose = *weft__slab_link(s, obj);
    weft__lock_leave(&s->lock);
    return obj;
}

void weft__slab_put(weft__slab *s, void *obj) {
    weft__lock_take(&s->lock);
    *weft__slab_link(s, obj) = s->loose;
    s->loose = obj;
    weft__lock_leave(&s->lock);
}

void weft__slab_forget(weft__slab *s, void (*fn)(void *obj)) {
    for (void *chunk = s->chunks; fn && chunk; chunk = *(void **)chunk)
        for (int i = 0; i < CHUNK_OBJECTS; i++) fn(first_of(chunk) + (size_t)i * s->size);
    s->magazines = s->loose = NULL;
    s->fresh = s->end = NULL;
    weft__lock_leave(&s->lock);
}
