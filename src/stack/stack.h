/* SPDX-License-Identifier: MIT */
/* Stacks: where tasks run. This header is the contract; slab.c says how.
 *
 * A stack is a piece of a large reserved slab, of a power of two and a page, lowest page a guard. At its top, above the first frame, lie a
 * struct weft__stack and WEFT_STACK_HEAD bytes for the task that runs on it; so a parked task that uses little stack costs one
 * page and its page tables. A stack that is given back keeps its memory and is handed out again, last in, first out. */
#ifndef WEFT_SRC_STACK_H
#define WEFT_SRC_STACK_H

#include "base/base.h"

#define WEFT_STACK_MIN ((size_t)16 << 10)
#define WEFT_STACK_DEFAULT ((size_t)256 << 10)
#define WEFT_STACK_MAX ((size_t)1 << 30)
#define WEFT_STACK_HEAD 384               /* bytes at the top for the task; the task layer asserts that it fits */
#define WEFT_STACK_CLASSES 17             /* 16 KiB << 0 … 16 KiB << 16 */
#define WEFT_STACK_ASK WEFT_STACK_CLASSES /* no class: what is advised for the spawn site; measure.c */
#define WEFT_STACK_MAGAZINE 64            /* stacks that move between a slot and the shared pool at once */

#define WEFT_STACK_CANARY 64 /* bytes above the guard page that are watched where guards do not work */

typedef struct weft__stack_slab weft__stack_slab;
typedef struct weft__stack weft__stack;
struct weft__stack {
    weft__stack *next;      /* owner of the list it is on */
    weft__stack *magazine;  /* next magazine in the shared pool; under the pool's lock */
    char *low;              /* lowest usable byte, above the guard; fixed */
    char *high;             /* frames begin below this, 64-byte aligned; fixed */
    void *fiber;            /* sanitizer's handle, context.h; NULL without one */
    weft__stack_slab *slab; /* fixed */
    uint32_t valgrind_id;   /* fixed */
    uint32_t count;         /* first of a magazine: how many; under the pool's lock */
    uint32_t inside;        /* bytes below `high` that weft__stack_inside_limit leaves to the first task; fixed */
    uint8_t size_class;     /* fixed */
    uint8_t guards;         /* weft__stack_info.guards of this one; fixed */
    uint8_t again;          /* class of fresh tasks that may follow on it without giving it back; fixed */
    bool watched;           /* to be looked at when it comes back; fixed */
};

/* Stacks with guards that nobody has touched yet, side by side. */
typedef struct weft__stack_fresh {
    weft__stack_slab *slab;
    uint32_t index, left;
    int guards;
} weft__stack_fresh;

/* Warm stacks of one slot, one list per size class, and the fresh ones it has taken. Touched by the slot's owner only; zeroed
 * memory is an empty cache. */
typedef struct weft__stack_cache {
    weft__stack *free[WEFT_STACK_CLASSES + 1]; /* that of WEFT_STACK_ASK is always empty */
    uint32_t count[WEFT_STACK_CLASSES];
    weft__stack_fresh fresh[WEFT_STACK_CLASSES];
#ifdef WEFT_TSAN
    struct {
        weft__stack *first, *last;
        uint32_t count;
    } cooling[WEFT_STACK_CLASSES]; /* in the order they came back */
#endif
} weft__stack_cache;

/* The class whose stacks reserve at least `size` bytes, guard and top included (0 = WEFT_STACK_DEFAULT); -1: beyond
 * WEFT_STACK_MAX. */
int weft__stack_class(size_t size);
WEFT_INLINE size_t weft__stack_class_size(int cls) {
    return WEFT_STACK_MIN << cls;
}

/* Start and end of a runtime: finds out which guards work here, installs the overflow handler; the end returns every mapping
 * and restores the handler. 0 or -errno. */
int weft__stack_pool_open(void);
void weft__stack_pool_close(void);
/* In the child of a fork, where the parent's pool is open: forgets it. `release`: nobody is on a stack of it, and it was not just being
 * opened or closed; its memory goes back. */
void weft__stack_pool_forget(bool release);
/* Likewise: nobody notes a depth. */
void weft__stack_measure_forget(void);
/* On each worker thread, before it runs on a stack, and at its end: the alternate signal stack. 0 or -errno. */
int weft__stack_thread_open(void);
void weft__stack_thread_close(void);

/* Above this, so much of the stack is free that another task may run on it and not notice: 7/8. */
WEFT_INLINE char *weft__stack_inside_limit(const weft__stack *s) {
    return s->high - s->inside;
}

/* The task's place at the top of the stack, 64-byte aligned, WEFT_STACK_HEAD bytes. */
WEFT_INLINE void *weft__stack_head(weft__stack *s) {
    return s->high;
}

/* Slow parts of get and put. refill: a recycled magazine from the pool or one fresh stack; false = no memory, nothing changed.
 * spill: a magazine to the pool. look: at the canary, and dies if it is gone; at the depth, if that is measured. */
WEFT_COLD bool weft__stack_refill(weft__stack_cache *c, int cls);
WEFT_COLD void weft__stack_spill(weft__stack_cache *c, int cls);
WEFT_COLD void weft__stack_look(weft__stack *s);
/* TSan checks the program: the stack is free behind COOLING others. Returns the one that is free now; NULL: none. */
weft__stack *weft__stack_cool(weft__stack_cache *c, weft__stack *s);
/* Forgets what a task that left without returning told AddressSanitizer about its frames. */
void weft__stack_unpoison(weft__stack *s);
/* Set before the pool opens: no two tasks share a stack by running inside each other or one after the other on it. */
extern bool weft__stack_alone;

/* Gives every cached stack back to the pool (a slot that ends); never from one of them. */
void weft__stack_cache_flush(weft__stack_cache *c);

/* A stack of the class; NULL: no memory. */
WEFT_INLINE weft__stack *weft__stack_get(weft__stack_cache *c, int cls) {
    if (unlikely(!c->free[cls]) && !weft__stack_refill(c, cls)) return NULL;
    weft__stack *s = c->free[cls];
    c->free[cls] = s->next;
    c->count[cls]--;
#ifdef WEFT_ASAN
    weft__stack_unpoison(s);
#endif
    return s;
}

/* Gives a stack back. The last one given may still be the one we run on, until the next switch: nothing is unmapped or
 * discarded here, and a spill keeps it. */
WEFT_INLINE void weft__stack_put(weft__stack_cache *c, weft__stack *s) {
    int cls = s->size_class;
    if (unlikely(s->watched)) weft__stack_look(s);
#ifdef WEFT_TSAN
    if (weft__stack_alone && !(s = weft__stack_cool(c, s))) return;
#endif
    s->next = c->free[cls];
    c->free[cls] = s;
    if (unlikely(++c->count[cls] >= 4 * WEFT_STACK_MAGAZINE)) weft__stack_spill(c, cls);
}

/* ---- giving back what lies deep (trim.c) ---- */

/* True: the caller is wanted elsewhere, and stops in the middle. */
typedef bool weft__stack_stop(void *arg);
/* Stacks that nobody is on: the first n of each class of a cache (those used last), and all magazines of the pool that came since the
 * last time. False: stopped. By the cache's owner, never from one of its stacks. */
bool weft__stack_cache_trim(weft__stack_cache *c, uint32_t n, weft__stack_stop *stop, void *arg);
bool weft__stack_pool_trim(weft__stack_stop *stop, void *arg);
extern _Atomic uint64_t weft__stack_trims; /* times that a stack has given something back; a figure */
/* What a stack has in memory. */
typedef struct weft__stack_depth {
    char *lowest; /* page of it */
    size_t bytes;
} weft__stack_depth;
/* True if so much of the stack is in memory that its task may be using less than a quarter. A hint, from anywhere. */
bool weft__stack_is_deep(weft__stack *s, weft__stack_depth *d);
/* If less than a quarter of what there was is in use: gives back what is below `sp` (saved by a task that cannot run at this moment), a
 * piece at a time. True: there is more; let the task go in between. */
bool weft__stack_trim(weft__stack *s, char *sp, weft__stack_depth *d);
/* Where a walk over all stacks is; zero: at the beginning. */
typedef struct weft__stack_walk {
    weft__stack_slab *slab;
    uint32_t index;
    bool begun;
} weft__stack_walk;
/* The next stack that was handed out; NULL: there is none. From any thread, while the pool is open. */
weft__stack *weft__stack_next(weft__stack_walk *w);

/* ---- how deep they go (measure.c) ---- */

/* Set before the pool opens: every stack's depth is noted when it comes back, for the spawn site of the task it held. Such stacks are
 * not shared by tasks, and start each time with their top page only. */
extern bool weft__stack_measuring;
typedef struct weft__stack_site {
    void *site, *fn;
    uint64_t tasks;
    size_t deepest; /* bytes, in whole pages */
    int size_class; /* of the last one */
    int advice;     /* the class with room for twice as much */
} weft__stack_site;
/* Forgets everything. */
void weft__stack_measure_clear(void);
/* Site number i in no order; false: there is none. From any thread. */
bool weft__stack_site_get(uint32_t i, weft__stack_site *out);
/* The class advised for tasks from there; `otherwise` if too few of them have ended yet. */
int weft__stack_advised(void *site, void *fn, int otherwise);

/* Calls fn for every stack that was ever handed out (their memory stays valid until the pool closes), from any thread. */
void weft__stack_each(void (*fn)(weft__stack *s, void *arg), void *arg);
/* The stack that the address is on; NULL: none of ours. As above. */
weft__stack *weft__stack_of(const void *address);

/* For the stats. */
typedef struct weft__stack_info {
    uint64_t stacks;   /* handed out at least once */
    uint64_t mappings; /* that the kernel keeps for them */
    uint64_t trims;    /* times that one gave memory back */
    int guards;        /* the weakest in use: 3 = guard regions, 2 = protected pages, 1 = canaries */
} weft__stack_info;
void weft__stack_info_get(weft__stack_info *out);

/* Who runs on a stack, for the overflow report. Supplied by the task layer; async-signal-safe. */
typedef struct weft__who {
    uint64_t id;      /* 0 = nobody */
    const char *name; /* NULL = none */
    void *fn, *site;  /* the task's function; the return address of its spawn */
} weft__who;
extern void (*weft__stack_who)(weft__stack *s, weft__who *out);
/* Called when the pool closes, for each stack whose `fiber` is not NULL. Supplied by the context layer; NULL: none to drop. */
extern void (*weft__stack_fiber_drop)(void *fiber);

#endif
