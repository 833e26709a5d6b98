/* SPDX-License-Identifier: MIT */
/* What slab.c, guard.c and overflow.c know of each other. */
#ifndef WEFT_SRC_STACK_SLAB_H
#define WEFT_SRC_STACK_SLAB_H

#include "stack/stack.h"

/* A reservation that holds stacks of one class. Fields without a word are fixed once the slab is on the list. */
struct weft__stack_slab {
    weft__stack_slab *next;
    char *base;
    size_t size; /* of the reservation */
    uint32_t stacks;
    uint32_t carved; /* taken from the bottom so far; under the grower's mutex */
    int size_class;
    _Atomic uint64_t made[]; /* a bit per stack: its struct is filled in */
};

/* The newest slab, linked to the older ones: read by anyone at any time, also in a signal handler. */
weft__stack_slab *weft__stack_slab_first(void);
/* Stack number i of a slab, whether made or not; made: false also if there is none. */
weft__stack *weft__stack_slab_at(weft__stack_slab *slab, uint32_t i);
bool weft__stack_slab_made(weft__stack_slab *slab, uint32_t i);

/* From one stack of a slab to the next. */
size_t weft__stack_stride(int cls);
/* Bytes of a stack's piece, from its bottom, that are its guard. */
size_t weft__guard_size(int cls);
/* Which guards work here; 0 or -errno. */
int weft__guards_open(void);
/* Puts guards below n stacks of a class, the first piece at p; returns which kind it became: as in weft__stack_info. */
int weft__guards_install(char *p, int cls, int n);
/* Mappings that protected pages cost, and the weakest kind in use. */
uint64_t weft__guards_mappings(void);
int weft__guards_weakest(void);
/* Writes the canary below s->low; looks whether it is still there, and dies if not. */
void weft__guards_canary(weft__stack *s);
void weft__guards_canary_check(weft__stack *s);
/* Notes how deep it was, and makes it shallow again. It may be the one we run on. */
void weft__stack_measure(weft__stack *s);
/* A magazine that was not trimmed since it came to the pool; and back, trimmed or not. */
weft__stack *weft__stack_magazine_take(int cls);
void weft__stack_magazine_give(int cls, weft__stack *first, bool trimmed);
/* The end of a stack's piece: of its top page. */
char *weft__stack_top(const weft__stack *s);
/* The part of a stack that frames may use, in whole pages: from where to the end of its top page. */
char *weft__stack_first_page(const weft__stack *s);

/* The overflow handler: on the whole process. 0 or -errno. */
int weft__overflow_open(void);
void weft__overflow_close(void);

#endif
