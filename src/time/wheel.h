/* SPDX-License-Identifier: MIT */
/* The timer wheel of one slot: this header is the contract; wheel.c says how.
 *
 * Any thread may add to, remove from and run any wheel: a short lock protects it. A timer's function runs with that lock held,
 * so that a weft__timer_stop that returns has either prevented it or waited for its end; it must be short, must not park and must
 * not touch this wheel's timers. It may take channel locks: nobody takes a wheel's lock while holding one of those. */
#ifndef WEFT_SRC_WHEEL_H
#define WEFT_SRC_WHEEL_H

#include "base/base.h"
#include "base/lock.h"

typedef struct weft__timer weft__timer;
typedef struct weft__wheel weft__wheel;
typedef struct weft__timer_link weft__timer_link;

/* A ring of timers; a bucket is the ring's fixed point, so that no removal needs to know which bucket it is in. */
struct weft__timer_link {
    weft__timer_link *next, *prev;
};

/* All zero before its first start. Starts and stops of one timer are ordered by whoever owns it; stops may race each other. */
struct weft__timer {
    union {
        weft__timer_link link;
        struct {
            weft__timer_link *next, *prev; /* under the wheel's lock; prev NULL = not in the wheel */
        };
    };
    int64_t when; /* the moment, in nanoseconds; fixed while it is in the wheel */
    /* Runs once, when the moment has come, under the wheel's lock; `ctx` is what weft__wheel_run was given. */
    void (*fire)(weft__timer *t, void *ctx);
    weft__wheel *wheel; /* the wheel it was added to last */
    void *near;         /* what its function will touch, or NULL: fetched ahead when its moment comes near; any value will do */
};

#define WEFT_WHEEL_BITS 6    /* 64 buckets a level: one word says which are used */
#define WEFT_WHEEL_LEVELS 11 /* level 0 counts single nanoseconds; 11 levels hold every positive int64_t */
/* The last level has the 3 bits that the other ten leave of 63. */
#define WEFT_WHEEL_BUCKETS (((WEFT_WHEEL_LEVELS - 1) << WEFT_WHEEL_BITS) + 8)

/* Must not be moved once it is initialised: the buckets point to themselves. */
struct weft__wheel {
    weft__lock lock;
    _Atomic uint32_t waiting;         /* threads that want the lock while somebody has it; a hint for weft__wheel_run */
    uint32_t count;                   /* timers inside; under lock */
    uint16_t levels;                  /* levels that are not empty; under lock */
    uint16_t open;                    /* the bucket that is being emptied into lower levels, 0 = none; under lock */
    int64_t reached;                  /* every bucket that begins before this moment is empty; under lock */
    _Atomic int64_t next;             /* see weft__wheel_next; written under lock, read anywhere */
    weft__timer_link *back;           /* how far the open bucket was looked at from its end; NULL = not at all. Under lock */
    weft__timer_link due;             /* timers of users that have fired and wait for a runner (timer.c); under lock */
    uint64_t used[WEFT_WHEEL_LEVELS]; /* buckets that are not empty; under lock */
    weft__timer_link bucket[WEFT_WHEEL_BUCKETS];
};

void weft__wheel_init(weft__wheel *w, int64_t now);
/* t->when and t->fire are set. A moment in the past fires at the next run. True: it became the earliest, so whoever sleeps until
 * weft__wheel_next should be told; the caller needs a full barrier of its own before it looks for sleepers. */
bool weft__timer_start(weft__wheel *w, weft__timer *t);
/* True: it was in the wheel and will not fire. False: it has fired (its function has returned) or was never started. */
bool weft__timer_stop(weft__timer *t);
/* Fires what is due at `now`, at most `max` of them, in order of their moments, and those of one moment in the order of their
 * starts; returns how many. Never before its moment, to the nanosecond. A `now` before that of an earlier run fires nothing. */
int weft__wheel_run(weft__wheel *w, int64_t now, int max, void *ctx);
/* A moment not after the earliest timer (exact enough to sleep until it and run again); INT64_MAX = none. Without the lock. */
WEFT_INLINE int64_t weft__wheel_next(weft__wheel *w) {
    return weft__load(&w->next, acquire); /* pairs with the release stores in wheel.c */
}

/* ---- the same under the lock, for those who have more to do there (timer.c) ---- */

WEFT_COLD void weft__wheel_enter_slow(weft__wheel *w);
WEFT_INLINE void weft__wheel_enter(weft__wheel *w) {
    if (unlikely(!weft__lock_take_upright(&w->lock))) weft__wheel_enter_slow(w); /* it never leans */
}
WEFT_INLINE void weft__wheel_leave(weft__wheel *w) {
    weft__lock_leave_upright(&w->lock);
}
/* As weft__timer_start. */
bool weft__wheel_add(weft__wheel *w, weft__timer *t);
/* It is in the wheel. */
void weft__wheel_remove(weft__wheel *w, weft__timer *t);
/* Removes all timers with this function, the ring `due` included, and tells of each. */
void weft__wheel_drop(weft__wheel *w, void (*fire)(weft__timer *, void *), void (*dropped)(weft__timer *));

/* The ring `due`: a timer is in the wheel, or there, or nowhere. */
WEFT_INLINE void weft__due_add(weft__wheel *w, weft__timer *t) {
    weft__timer_link *last = w->due.prev;
    t->link.next = &w->due;
    t->link.prev = last;
    last->next = w->due.prev = &t->link;
}
WEFT_INLINE void weft__due_remove(weft__timer *t) {
    t->link.next->prev = t->link.prev;
    t->link.prev->next = t->link.next;
    t->link.prev = NULL;
}
WEFT_INLINE weft__timer *weft__due_first(weft__wheel *w) {
    return w->due.next == &w->due ? NULL : weft__container(w->due.next, weft__timer, link);
}

/* Somebody holds its lock at this moment; a hint. */
WEFT_INLINE bool weft__wheel_busy(weft__wheel *w) {
    return weft__load(&w->lock.held, relaxed);
}

/* Dies if an invariant of the essay is broken; walks everything. Debug builds only. */
#ifdef WEFT_DEBUG_CHECKS
void weft__wheel_check(weft__wheel *w);
#else
WEFT_INLINE void weft__wheel_check(weft__wheel *w) {
    (void)w;
}
#endif

#endif
