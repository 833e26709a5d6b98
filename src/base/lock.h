/* SPDX-License-Identifier: MIT */
/* The short lock: protects a few loads and stores, never a system call.
 *
 * A waiter backs off for 1 to 2 microseconds first (measured: one pause is much worse for both sides), and after some tens
 * of them gives its CPU away, because the holder may have been preempted by the kernel. In strict zero-spin mode it does so
 * at once. Zero-initialised memory is an unlocked lock.
 *
 * A lock may lean to one slot. Then whoever is inside the runtime on that slot, which is one thread at a time, takes it without a locked
 * instruction: these take 6 to 9 ns on some CPUs (Intel's), more than all the rest of a send into a buffer. Everybody else takes it as always,
 * and straightens it first, which takes a barrier in every thread: microseconds. So only a lock that was the same slot's for long is made to lean
 * (channels, chan.c), and for twice as long if that was of no use.
 *
 *     held         1: somebody has it, the usual way
 *     leans        0, or the slot it leans to
 *     kept         1: somebody has it on that slot
 *     tries[slot]  the lock that the slot's owner is about to take so
 *
 *     lean_take   leans is mine? tries = it; compiler barrier; leans is still mine? kept = 1, it is ours. tries = NULL
 *     take        held: 0 -> 1; leans? leans = 0; heavy barrier; until tries of that slot is another, and kept is 0
 *     leave       kept? kept = 0. Otherwise held = 0
 *
 *  K1  leans is written with `held` only; it becomes a slot only by somebody inside the runtime on it. (Who has it by leaning may find that it does not
 *      lean any more: somebody is straightening it, and has `held`.)
 *  K2  Dekker: the heavy barrier puts a full barrier at some point in each thread. The owner stored tries before it: who straightens sees it, or kept, and
 *      waits. After it: the owner's second look finds that it does not lean there.
 *  K3  kept is written by who has the lock, on the slot it leans to; so for whoever has it one look tells how.
 *  K4  tries is its slot's owner's, who passes it on with the slot (H6). It is not in the lock: an attempt that comes late, after the lock was
 *      straightened and leans to another slot, must not be seen there. (It was, and TSan found it.)
 *  K5  Nobody leans where barriers are fences (weft__fences): nothing would be gained.
 *
 * test/model/lean.pml proves that one has it at a time, with store buffers, and that each part is needed. */
#ifndef WEFT_SRC_LOCK_H
#define WEFT_SRC_LOCK_H

#include "base/base.h"

typedef struct weft__lock {
    _Atomic uint8_t held;   /* by exchange */
    _Atomic uint8_t kept;   /* K3 */
    _Atomic uint16_t leans; /* K1 */
} weft__lock;

enum { WEFT_LEAN_SLOTS = 1025 }; /* names of slots, and 0 for none */
typedef struct weft__lean {
    WEFT_ALIGNED _Atomic(weft__lock *) tries; /* K4 */
} weft__lean;
extern weft__lean weft__leans[WEFT_LEAN_SLOTS];

typedef void weft__lock_stuck(void);
WEFT_COLD void weft__lock_slow(weft__lock *l);
/* Not NULL: to be called by whoever waits long for a lock. In the child of a fork, whose holder may not exist. */
extern _Atomic(weft__lock_stuck *) weft__lock_is_stuck;
/* Process-wide: waiting for a lock gives the CPU away at once instead of backing off. */
void weft__lock_strict(bool on);
bool weft__lock_is_strict(void);

/* `held` is ours, and the lock leans: it does no more. Supplied by the layer that knows barriers (os/membarrier.c). */
WEFT_COLD void weft__lock_straighten(weft__lock *l);
/* Waits until nobody has it on that slot, nor is about to. */
void weft__lock_wait_kept(weft__lock *l, uint16_t slot);

/* acquire: sees what the last holder did; pairs with the release in weft__lock_leave. Where the parking protocol needs a full
 * barrier as well (P3), weft__lock_fence follows. */
WEFT_INLINE void weft__lock_take(weft__lock *l) {
    if (unlikely(weft__xchg(&l->held, 1, acquire)))
        weft__lock_slow(l);
    else if (unlikely(weft__load(&l->leans, relaxed))) /* K1: under `held` */
        weft__lock_straighten(l);
}

/* One attempt on a lock that never leans, which costs as much as taking it. */
WEFT_INLINE bool weft__lock_take_upright(weft__lock *l) {
    return !weft__xchg(&l->held, 1, acquire); /* as in weft__lock_take */
}

/* One attempt, likewise; false also if it leans. No call is made: for fast paths, which would need a frame for it. */
WEFT_INLINE bool weft__lock_take_once(weft__lock *l) {
    if (unlikely(!weft__lock_take_upright(l))) return false;
    if (likely(!weft__load(&l->leans, relaxed))) return true; /* K1 */
    weft__store(&l->held, 0, release);                        /* as in weft__lock_leave */
    return false;
}

/* One attempt, cheap when it is held. */
WEFT_INLINE bool weft__lock_try(weft__lock *l) {
    return !weft__load(&l->held, relaxed) && weft__lock_take_once(l);
}

/* By whoever is inside the runtime on the slot `me`. False: it does not lean there. */
WEFT_INLINE bool weft__lean_take(weft__lock *l, uint16_t me) {
    if (weft__load(&l->leans, relaxed) != me) return false; /* a hint */
    _Atomic(weft__lock *) *tries = &weft__leans[me].tries;
    weft__store(tries, l, relaxed);                           /* K2 */
    weft__compiler_barrier();                                 /* K2; pairs with the heavy barrier in weft__lock_straighten */
    bool mine = likely(weft__load(&l->leans, relaxed) == me); /* K2; the slot orders what the last holder did */
    if (mine) weft__store(&l->kept, 1, relaxed);              /* K3 */
    weft__store(tries, NULL, release);                        /* kept before it; pairs with weft__lock_wait_kept */
    return mine;
}

/* It leans from now on; we have it, not so. */
WEFT_INLINE void weft__lean_begin(weft__lock *l, uint16_t me) {
    weft__check(weft__load(&l->held, relaxed) && !weft__load(&l->leans, relaxed), "K1: who makes it lean has it by exchange");
    weft__check(!weft__load(&l->kept, relaxed), "K1: who makes it lean has it by exchange");
    weft__store(&l->leans, me, relaxed); /* K1: published with `held` */
}

/* A full barrier behind taking it. After the exchange it is free on x86-64, where that has been one. */
WEFT_INLINE void weft__lock_fence(weft__lock *l) {
    if (unlikely(weft__load(&l->kept, relaxed)))   /* K3 */
        atomic_thread_fence(memory_order_seq_cst); /* P3 */
    else
        weft__fence_after_rmw();
}

/* release: publishes what the holder did; pairs with the acquire in weft__lock_take, weft__lock_wait_kept. The first form: by who knows that it has
 * it by exchange. */
WEFT_INLINE void weft__lock_leave_upright(weft__lock *l) {
    weft__store(&l->held, 0, release);
}
WEFT_INLINE void weft__lock_leave(weft__lock *l) {
    if (unlikely(weft__load(&l->kept, relaxed))) /* K3 */
        weft__store(&l->kept, 0, release);
    else
        weft__store(&l->held, 0, release);
}

/* In the child of a fork: whoever had it does not exist. True: somebody had. */
WEFT_INLINE bool weft__lock_forget(weft__lock *l) {
    bool had = weft__load(&l->held, relaxed) || weft__load(&l->kept, relaxed); /* there is one thread */
    weft__store(&l->leans, 0, relaxed);
    weft__store(&l->kept, 0, relaxed);
    weft__store(&l->held, 0, release); /* as in weft__lock_leave */
    return had;
}

#endif
