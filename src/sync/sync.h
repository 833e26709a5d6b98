/* SPDX-License-Identifier: MIT */
/* Locks: the internal side. Why it is built like this: docs/adr/017-locks.md.
 *
 * An object of this layer lies in the user's memory: on a stack, in something that is freed the moment it is unlocked. Parking asks for
 * a lock in type-stable memory (P4: whoever ends a wait from outside takes it on the word of a stale pointer). So the lock is not in
 * the object: it is one of a fixed table, chosen by the object's address. The queue stays in the object. While somebody is
 * queued, the object is in use and hence there; while nobody is, the lock's holder finds `queued` clear and touches nothing.
 *
 * What an object's word says (the state) is changed by one CAS where that is enough; who needs the queue takes the lock.
 *  L1  The queue, and the bits of the state that speak of it, change only under the object's lock.
 *  L2  Whoever lets an object go (unlock, release, done) touches it for the last time with the very store that lets it go, and, where
 *      somebody has to be woken, does that under the lock: the next holder may free it at once. Those who are woken are resumed later.
 *  L3  Nobody holds two of these locks: two objects may have the same one. */
#ifndef WEFT_SRC_SYNC_H
#define WEFT_SRC_SYNC_H

#include "base/base.h"
#include "base/lock.h"
#include "park/park.h"
#include "sched/sched.h"
#include "sched/switch.h"
#include "task/task.h"

#include "sync/held.h"

#include <weft/sync.h>

/* ---- the table ---- */

enum { WEFT_SYNC_BITS = 8 }; /* 256 lines; a collision costs a wait of some ten nanoseconds */
typedef struct weft__sync_line {
    WEFT_ALIGNED weft__lock lock;
} weft__sync_line;
extern weft__sync_line weft__sync_table[1 << WEFT_SYNC_BITS];

/* The lock of the object at this address. */
WEFT_INLINE weft__lock *weft__sync_lock_of(const void *object) {
    uint64_t h = ((uint64_t)(uintptr_t)object >> 3) * UINT64_C(0x9e3779b97f4a7c15);
    return &weft__sync_table[h >> (64 - WEFT_SYNC_BITS)].lock;
}

/* ---- who ---- */

#define WEFT_SYNC_THREAD (UINT64_C(1) << 63) /* of an identity: a plain thread, and its number */
WEFT_COLD uint64_t weft__sync_thread_id(void);
WEFT_INLINE uint64_t weft__sync_task_id(weft__task *t) {
    return likely(!t->inner) ? t->id : weft__load(&t->inner->id, relaxed); /* it was set before the child ran */
}
/* The calling task's id, or the plain thread's: who holds a lock. */
WEFT_INLINE uint64_t weft__sync_id(weft__worker *w) {
    weft__task *t = weft__cur(w);
    return likely(t != NULL) ? weft__sync_task_id(t) : weft__sync_thread_id();
}
/* "task 5", "thread 1234", "nobody". */
typedef struct weft__who_text {
    char s[40];
} weft__who_text;
WEFT_COLD weft__who_text weft__sync_who(uint64_t id);

/* ---- stepping back ---- */

/* What finds its object free does not enter the runtime, so it does not spend the slot's budget. It must let others run all the same: each task
 * counts for itself, and steps back after WEFT_SYNC_TURN times, or when the worker is asked for its slot. A mutex is counted behind its locked
 * instruction, where it costs nothing (before it: 0.2 ns). */
enum {
    WEFT_SYNC_TURN = 256
}; /* a switch for each of them is 0.1 ns; so often, because what is done under a lock may take long */
WEFT_INLINE bool weft__sync_turn_over(weft__worker *w, weft__task *t) {
    return t->locks >= WEFT_SYNC_TURN || (weft__load(&w->gate, relaxed) & WEFT_GATE_REQUESTED); /* a hint; H2 is the entry's */
}
WEFT_COLD void weft__sync_step_back(void);
/* The same for all that is not counted elsewhere. */
WEFT_INLINE void weft__sync_pause(weft__worker *w) {
    weft__task *t = weft__cur(w);
    if (unlikely(!t)) return;
    t->locks++;
    if (unlikely(weft__sync_turn_over(w, t))) weft__sync_step_back();
}
/* Cancelled before it begins? As weft__cancel_first. */
WEFT_INLINE int weft__sync_check(weft_deadline deadline) {
    weft__sync_pause(weft__self());
    return weft__cancel_first(weft__me(), deadline);
}

/* ---- waiting ---- */

enum { WEFT_SYNC_SERVED = 0 };

/* One wait of the calling task or thread. In its frame. */
typedef struct weft__sync_wait {
    weft__waiter x;
    weft__block *block;
    weft__slot *slot; /* NULL: a plain thread */
    weft__lock *lock;
    weft_deadline deadline;
    bool deaf;        /* only its partner ends it: no deadline, no cancellation */
    bool writes;      /* rwlock */
    int64_t since;    /* mutex: when it first came */
    uint64_t id;      /* weft__sync_id */
    weft__wait timed; /* unless deaf */
} weft__sync_wait;

/* Into the runtime, with a deadline armed. 0, or the error that ends it before it began; weft__sync_end must follow either way. */
int weft__sync_begin(weft__sync_wait *w, const void *object, weft_deadline deadline);
/* The same for a wait without deadline and cancellation. */
void weft__sync_begin_deaf(weft__sync_wait *w, const void *object);
/* Takes the object's lock, for the decisive look. */
WEFT_INLINE void weft__sync_take(weft__sync_wait *w) {
    if (!w->deaf) weft__store(&w->block->wait_lock, w->lock, release); /* P3; pairs with the acquire in weft__interrupt */
    weft__lock_take(w->lock);
    weft__fence_after_rmw();
}
/* With the lock held, about to park: 0, or why not. */
WEFT_INLINE int weft__sync_ask(weft__sync_wait *w) {
    return w->deaf ? 0 : weft__wait_check(&w->timed);
}
/* Parks with the lock held and the waiter on a queue; the lock is released behind it. Gives the block's result. */
int weft__sync_park(weft__sync_wait *w, int reason);
/* Asks, queues up at the end of q, which is of this process, and parks; the lock is released in any case. */
int weft__sync_wait_on(weft__sync_wait *w, weft__queue *q, int reason);
void weft__sync_end(weft__sync_wait *w);

WEFT_INLINE void weft__queue_add_first(weft__queue *q, weft__waiter *x) {
    x->prev = NULL;
    x->next = q->head;
    x->queue = q;
    if (q->head)
        q->head->prev = x;
    else
        q->tail = x;
    q->head = x;
}

/* ---- waking ---- */

/* Takes the first waiter off and puts it on `woken`, served; under the lock. False: there is none. */
WEFT_INLINE bool weft__sync_claim(weft__queue *q, weft__queue *woken) {
    weft__waiter *x = weft__queue_claim(q);
    if (!x) return false;
    x->block->result = WEFT_SYNC_SERVED;
    weft__queue_add(woken, x);
    return true;
}
/* Without locks, inside the runtime. */
void weft__sync_resume(weft__queue *woken, weft__slot *s);

/* ---- in the child of a fork ----
 *
 * Those who waited do not exist there, and the stacks that they waited on may be gone; but the queues are in the user's memory, where nobody
 * finds them to clear them. So each object says in which process its queue was last used. */

extern uint32_t weft__sync_forks; /* forks on the way to this process; changes while there is nobody else */
/* Under the object's lock, before the queue is looked at. `forks` is the object's, and begins as zero like the rest of it. True: the queue
 * was another process's, and is empty now. */
WEFT_INLINE bool weft__sync_inherited(weft__queue *q, uint32_t *forks) {
    if (likely(*forks == weft__sync_forks)) return false;
    *forks = weft__sync_forks;
    *q = (weft__queue){NULL, NULL};
    return true;
}
/* Nobody else is there. */
void weft__sync_forget(void);

/* An object that is destroyed, or used wrongly, while somebody waits. */
WEFT_COLD WEFT_NORETURN void weft__sync_destroyed(const char *what, const void *object, const weft__queue *q);
/* For all that have nothing but a queue to look at: dies if somebody waits, and clears `size` bytes. */
void weft__sync_destroy(const char *what, void *object, size_t size, weft__queue *q, uint32_t *forks);

#endif
