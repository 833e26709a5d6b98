/* SPDX-License-Identifier: MIT */
/* Slabs: objects of one size in type-stable memory, with a cache of two magazines for each slot.
 *
 * Type-stable: an object that was freed stays an object of its kind for ever; a stale pointer may be looked at (its lock taken,
 * say), and finds something valid that it is not. Memory never goes back; it is bounded by the most objects ever alive.
 * A freed object keeps its contents except for the two words at `link_at`. */
#ifndef WEFT_SRC_SLAB_H
#define WEFT_SRC_SLAB_H

#include "base/base.h"
#include "base/lock.h"

enum { WEFT_MAGAZINE = 128 }; /* objects that move between a slot and the shared pool at once */

typedef struct weft__slab {
    weft__lock lock;
    uint32_t size, link_at;
    void *magazines;   /* full ones, linked through the second word of their first object; under lock */
    void *loose;       /* single objects, linked through the first word; under lock */
    char *fresh, *end; /* never used yet; under lock */
    void *chunks;      /* all memory ever taken, so that leak checkers find it; under lock */
} weft__slab;

/* Owner: the slot. */
typedef struct weft__cache {
    void *first;
    uint32_t count;
    void *full; /* a second, full magazine or NULL */
} weft__cache;

WEFT_INLINE void **weft__slab_link(const weft__slab *s, void *obj) {
    return (void **)((char *)obj + s->link_at);
}

WEFT_COLD bool weft__cache_refill(weft__slab *s, weft__cache *c);
WEFT_COLD void weft__cache_spill(weft__slab *s, weft__cache *c);
/* Gives everything back: the slot ends. */
void weft__cache_flush(weft__slab *s, weft__cache *c);

/* From a cache that is not empty. `link_at` is the slab's; where the caller knows it as a constant it is not looked up. (An array of
 * pointers instead of the list was slower by 1 ns a spawn.) */
WEFT_INLINE void *weft__cache_pop(weft__cache *c, size_t link_at) {
    void *obj = c->first;
    memcpy(&c->first, (char *)obj + link_at, sizeof c->first);
    c->count--;
    return obj;
}
/* Into a cache that has room. */
WEFT_INLINE void weft__cache_push(weft__cache *c, void *obj, size_t link_at) {
    uint32_t count = c->count; /* the caller has just looked at it: it is not read again */
    memcpy((char *)obj + link_at, &c->first, sizeof c->first);
    c->first = obj;
    c->count = count + 1;
}

/* NULL: no memory. Memory never used before is zero. */
WEFT_INLINE void *weft__cache_get(weft__slab *s, weft__cache *c) {
    if (unlikely(!c->first) && !weft__cache_refill(s, c)) return NULL;
    return weft__cache_pop(c, s->link_at);
}

WEFT_INLINE void weft__cache_put(weft__slab *s, weft__cache *c, void *obj) {
    if (unlikely(c->count >= WEFT_MAGAZINE)) weft__cache_spill(s, c);
    weft__cache_push(c, obj, s->link_at);
}

/* In the child of a fork: its lists may have been in the middle of a change. What is in them is lost, what is in use stays. `fn` is
 * called for every object, used or not. */
void weft__slab_forget(weft__slab *s, void (*fn)(void *obj));
/* The same without a cache, for threads that have no slot. */
void *weft__slab_get(weft__slab *s);
void weft__slab_put(weft__slab *s, void *obj);

#endif
