/* SPDX-License-Identifier: MIT */
/* The mutex.
 *
 *   state   LOCKED   somebody has it; `owner` says who
 *           WAITERS  somebody may be on the queue
 *           WOKEN    one of those who waited has been woken and is on its way: nobody else need be
 *           HANDED   with LOCKED: it was given to a waiter that does not run yet; spinning is in vain
 *
 *   lock     any state without LOCKED -> the same with it                          one fetch-or; also by whoever comes by
 *   unlock   LOCKED off, while nobody is to be woken                               one CAS
 *            otherwise under the object's lock, still LOCKED: takes the first waiter off; has it waited for less than WEFT_MUTEX_FAIR:
 *            LOCKED off, WOKEN on, in one store, and it is resumed to try its luck; for longer: LOCKED stays, HANDED on: it is its
 *   wait     under the object's lock, one CAS that sees LOCKED: WAITERS on (and WOKEN off by the one who was woken); a newcomer
 *            queues up last, one who was woken first
 *
 *  M1  WAITERS, WOKEN and the queue change under the object's lock only (L1). So with that lock held and LOCKED ours, nobody changes the
 *      state but us.
 *  M2  A waiter on the queue => WAITERS is set; and LOCKED or WOKEN is: there is somebody who will look at the queue.
 *  M3  WOKEN is cleared only by its bearer, by a CAS that takes the lock or sees LOCKED: then the holder's unlock sees WAITERS without
 *      WOKEN. Hence a woken waiter whose deadline has passed leaves nobody behind.
 *      In the child of a fork its bearer does not exist: whoever finds the queue inherited clears it.
 *  M4  After the store that takes LOCKED off the mutex is not touched (L2).
 * test/model/mutex.pml. */
#ifndef WEFT_SRC_MUTEX_H
#define WEFT_SRC_MUTEX_H

#include "sync/sync.h"

enum { WEFT_LOCKED = 1, WEFT_WAITERS = 2, WEFT_WOKEN = 4, WEFT_HANDED = 8 };

#define WEFT_MUTEX_FAIR WEFT_MS /* nobody is overtaken for longer */

typedef struct weft__mutex {
    _Atomic uint32_t state;
    uint32_t forks;         /* weft__sync_inherited; under the object's lock */
    _Atomic uint64_t owner; /* weft__sync_id of the holder, who alone writes it; others read a hint */
    weft__queue waiters;    /* under the object's lock */
} weft__mutex;
_Static_assert(sizeof(weft__mutex) <= sizeof(weft_mutex), "a mutex fits its storage");

WEFT_INLINE weft__mutex *weft__mutex_of(weft_mutex *m) {
    return (weft__mutex *)(void *)m;
}

/* Waits for it, whatever happens. */
void weft__mutex_lock(weft__mutex *m);
/* Lets it go, inside the runtime; `owner` has been cleared. */
void weft__mutex_release(weft__mutex *m, weft__slot *s);
/* Dies unless the caller holds it; `what` is the public function. */
void weft__mutex_mine(weft__mutex *m, const char *what);

#endif
