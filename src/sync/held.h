/* SPDX-License-Identifier: MIT */
/* Locks held across a wait (A6), on request: WEFT_LOCK_CHECK in weft_config.flags or in the environment.
 *
 * While it is on, every lock is noted with its holder and place, in a table of fixed size (what does not fit is not noted). A task or thread
 * that is about to wait, for anything but another lock, is looked up there. One report for each place that locks. Off, it costs each
 * lock and unlock one load of a flag that never changes. */
#ifndef WEFT_SRC_HELD_H
#define WEFT_SRC_HELD_H

#include "base/base.h"

extern _Atomic bool weft__held_checked; /* written while no runtime runs */
WEFT_INLINE bool weft__held_on(void) {
    return unlikely(weft__load(&weft__held_checked, relaxed)); /* pairs with nothing: the start of the runtime orders it */
}
/* On or off, when the runtime starts. */
void weft__held_check(bool on);

WEFT_COLD void weft__held_add(const void *lock, const char *kind, void *place);
WEFT_COLD void weft__held_remove(const void *lock, uint64_t holder);
/* In the child of a fork. */
void weft__held_forget(void);

#endif
