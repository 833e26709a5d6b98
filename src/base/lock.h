/* SPDX-License-Identifier: MIT */
/* The short lock: protects a few loads and stores, never a system call.
 *
 * A waiter backs off for 1 to 2 microseconds first (measured: one pause is much worse for both sides), and after some tens
 * of them gives its CPU away, because the holder may have been preempted by the kernel. In strict zero-spin mode it does so
 * at once. Zero-initialised memory is an unlocked lock. */
#ifndef WEFT_SRC_LOCK_H
#define WEFT_SRC_LOCK_H

#include "base/base.h"

typedef struct weft__lock {
    _Atomic uint32_t held;
} weft__lock;

typedef void weft__lock_stuck(void);
WEFT_COLD void weft__lock_slow(weft__lock *l);
/* Not NULL: to be called by whoever waits long for a lock. In the child of a fork, whose holder may not exist. */
extern _Atomic(weft__lock_stuck *) weft__lock_is_stuck;
/* Process-wide: waiting for a lock gives the CPU away at once instead of backing off. */
void weft__lock_strict(bool on);
bool weft__lock_is_strict(void);

/* acquire: sees what the last holder did; pairs with the release in weft__lock_leave. Where the parking protocol needs a full
 * barrier as well (P3), weft__fence_after_rmw follows: free on x86-64, where the exchange has been one. */
WEFT_INLINE void weft__lock_take(weft__lock *l) {
    if (unlikely(weft__xchg(&l->held, 1, acquire))) weft__lock_slow(l);
}

/* One attempt, which costs as much as taking it. */
WEFT_INLINE bool weft__lock_take_once(weft__lock *l) {
    return !weft__xchg(&l->held, 1, acquire); /* as in weft__lock_take */
}

/* One attempt, cheap when it is held. */
WEFT_INLINE bool weft__lock_try(weft__lock *l) {
    return !weft__load(&l->held, relaxed) && !weft__xchg(&l->held, 1, acquire);
}

/* release: publishes what the holder did; pairs with the acquire in weft__lock_take. */
WEFT_INLINE void weft__lock_leave(weft__lock *l) {
    weft__store(&l->held, 0, release);
}

#endif
