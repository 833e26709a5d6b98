/* SPDX-License-Identifier: MIT */
/* The two queues of a slot, without locks for their owner.
 *
 * The ring holds started tasks, first in, first out. The owner pushes at the tail; owner and thieves take at the head by CAS.
 * The deque (Chase and Lev) holds fresh tasks: the owner pushes and takes the newest at the bottom, thieves take the oldest at
 * the top, one at a time (several at once with a stale bottom would run a task twice).
 *
 * Invariants
 *  R1  head <= tail <= head + WEFT_RING, top <= bottom + 1, in modular arithmetic.
 *  R2  Only the slot's owner writes tail and bottom.
 *  R3  An entry is read before the CAS that takes it; if the CAS succeeds, nobody has overwritten the entry, because the owner
 *      writes it again only after it has seen the advanced head (or top).
 *  R4  With one slot nobody steals, and the owner's operations need no CAS (weft__rt.many).
 *  R5  In the ring, the entries before ring_old came before the last look at the global queues, those from there on
 *      since.
 *
 * Measured: one FIFO for both kinds made fib(30) 10 times slower with 100,000 live stacks. */
#ifndef WEFT_SRC_RUNQ_H
#define WEFT_SRC_RUNQ_H

#include "sched/sched.h"

/* Moves what has come to the ring since the last look at the global queues (ring_old) to the global
 * queue, behind those that wait there. With t, which found the ring full, half of it stays at least, and
 * t goes last. NULL: none. */
WEFT_COLD void weft__ring_shed(weft__slot *s, weft__task *t);
WEFT_COLD void weft__deque_overflow(weft__slot *s);

WEFT_INLINE void weft__ring_push(weft__slot *s, weft__task *t) {
    uint32_t tail = weft__load(&s->tail, relaxed); /* R2 */
    /* acquire: a thief has read what we overwrite; pairs with the CAS in weft__ring_steal */
    if (unlikely(tail - weft__load(&s->head, acquire) >= WEFT_RING)) {
        weft__ring_shed(s, t);
        return;
    }
    weft__store(&s->ring[tail % WEFT_RING], t, relaxed);
    weft__store(&s->tail, tail + 1, release); /* publishes the entry; pairs with the acquire in weft__ring_steal */
}

WEFT_INLINE weft__task *weft__ring_pop(weft__slot *s) {
    uint32_t head = weft__load(&s->head, acquire), tail = weft__load(&s->tail, relaxed); /* R2; thieves advance head */
    while (head != tail) {
        weft__task *t = weft__load(&s->ring[head % WEFT_RING], relaxed);
        if (!weft__rt.many) {
            weft__store(&s->head, head + 1, relaxed); /* R4 */
            return t;
        }
        /* acq_rel against thieves; head is read again on failure */
        if (atomic_compare_exchange_strong_explicit(&s->head, &head, head + 1, memory_order_acq_rel, memory_order_acquire))
            return t;
    }
    return NULL;
}

/* The oldest fresh task; any thread. */
WEFT_INLINE weft__fresh *weft__deque_steal(weft__slot *s) {
    for (;;) {
        uint32_t top = weft__load(&s->top, acquire);       /* pairs with the CAS below of another thief */
        atomic_thread_fence(memory_order_seq_cst);         /* top before bottom; pairs with the exchange in weft__deque_take */
        uint32_t bottom = weft__load(&s->bottom, acquire); /* pairs with the release in weft__deque_push */
        if ((int32_t)(bottom - top) <= 0) return NULL;
        weft__fresh *f = weft__load(&s->deque[top % WEFT_DEQUE], relaxed);
        if (weft__cas(&s->top, &top, top + 1, seq_cst)) return f; /* R3; pairs with the one in weft__deque_take */
    }
}

/* The number of the oldest fresh task in the slot's deque; 0: there is none. A hint; any thread. */
WEFT_INLINE uint64_t weft__deque_oldest(weft__slot *s) {
    uint32_t top = weft__load(&s->top, acquire), bottom = weft__load(&s->bottom, acquire); /* pairs with weft__deque_put_at */
    if ((int32_t)(bottom - top) <= 0) return 0;
    weft__fresh *f = weft__load(&s->deque[top % WEFT_DEQUE], relaxed);
    return f ? weft__load(&f->id, relaxed) : 0; /* records are type-stable */
}

/* About how many there are; never too few. */
WEFT_INLINE uint32_t weft__deque_count(weft__slot *s) {
    return weft__load(&s->bottom, relaxed) - s->deque_top_seen; /* R2 */
}

/* With room for it. */
WEFT_INLINE void weft__deque_put_at(weft__slot *s, uint32_t bottom, weft__fresh *f) {
    weft__store(&s->deque[bottom % WEFT_DEQUE], f, relaxed);
    weft__store(&s->bottom, bottom + 1, release); /* publishes the entry; pairs with the acquire in weft__deque_steal */
}
WEFT_INLINE void weft__deque_put(weft__slot *s, weft__fresh *f) {
    weft__deque_put_at(s, weft__load(&s->bottom, relaxed), f); /* R2 */
}

WEFT_INLINE void weft__deque_push(weft__slot *s, weft__fresh *f) {
    if (unlikely(weft__deque_count(s) >= WEFT_DEQUE - 1)) {
        s->deque_top_seen = weft__load(&s->top, acquire); /* R3; pairs with the thieves' CAS */
        if (weft__deque_count(s) >= WEFT_DEQUE - 1) weft__deque_overflow(s);
    }
    weft__deque_put(s, f);
}

/* The newest fresh task, or NULL; owner only. */
WEFT_INLINE weft__fresh *weft__deque_take(weft__slot *s) {
    uint32_t bottom = weft__load(&s->bottom, relaxed), top = weft__load(&s->top, relaxed); /* R2; re-read below */
    if (bottom == top) return NULL;
    bottom--;
    weft__fresh *f = weft__load(&s->deque[bottom % WEFT_DEQUE], relaxed);
    if (!f) __builtin_unreachable(); /* spares the callers a look */
    /* likely: with several slots the exchange takes so long that a jump to it costs nothing */
    if (likely(!weft__rt.many)) {
        weft__store(&s->bottom, bottom, relaxed); /* R4 */
        return f;
    }
    __asm__("" : "+r"(s));                         /* the addresses below are not computed above, where they are not needed */
    (void)weft__xchg(&s->bottom, bottom, seq_cst); /* bottom before top; pairs with the fence in weft__deque_steal */
    weft__fence_after_rmw();
    top = weft__load(&s->top, relaxed);
    if ((int32_t)(bottom - top) < 0) {
        weft__store(&s->bottom, bottom + 1, relaxed); /* thieves took it */
        return NULL;
    }
    if (bottom != top) return f;
    if (!weft__cas(&s->top, &top, top + 1, seq_cst)) f = NULL; /* the last one: thieves want it too */
    weft__store(&s->bottom, bottom + 1, relaxed);
    return f;
}

/* Half of the victim's ring, into our own (empty) ring; one of them is returned. */
weft__task *weft__ring_steal(weft__slot *s, weft__slot *victim);

/* Tasks without priorities wait that the slot could run; any thread. Hints, all of them. */
WEFT_INLINE bool weft__others_wait(weft__slot *s) {
    if (weft__load(&s->next, relaxed) || weft__load(&s->head, relaxed) != weft__load(&s->tail, relaxed)) return true;
    if (weft__load(&s->bottom, relaxed) != weft__load(&s->top, relaxed)) return true;
    return weft__load(&weft__rt.started.count, relaxed) || weft__load(&weft__rt.fresh.count, relaxed);
}

/* ---- global queues ---- */

void weft__inject_task(weft__task *t);
void weft__inject_fresh(weft__fresh *f);
/* The same for any such queue. */
void weft__inject_push_task(weft__inject *q, weft__task *t);
void weft__inject_push_fresh(weft__inject *q, weft__fresh *f);
weft__task *weft__inject_pop_task(weft__inject *q);
weft__fresh *weft__inject_pop_fresh(weft__inject *q);
/* The number of the first fresh task there; 0: there is none. */
uint64_t weft__inject_oldest(weft__inject *q);
/* Nothing fresh is to be started from there or stolen for the moment: too many tasks compute without a slot (watch.c). */
WEFT_INLINE bool weft__fresh_held(void) {
    int64_t until = weft__load(&weft__rt.hold, relaxed); /* a hint */
    return unlikely(until != 0) && until > weft__os_now();
}
/* Takes our share, `max` at most, into the slot's own queues; one of them is returned. */
weft__work weft__inject_take_tasks(weft__slot *s, uint32_t max);
weft__work weft__inject_take_fresh(weft__slot *s, uint32_t max);

#endif
