/* SPDX-License-Identifier: MIT */
/* Calls that block. A task may call any C function: while it blocks or computes, the other tasks go on, since its slot is taken over by
 * another worker (docs/guide/blocking.md). What is here makes that cheaper, or does it elsewhere. */
#ifndef WEFT_BLOCK_H
#define WEFT_BLOCK_H

#include <weft/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Around a call that is known to block: if others wait for the slot, they have it at once, instead of when the runtime has noticed. Costs a few
 * nanoseconds if nobody does. They nest; functions of weft may be called in between. On a plain thread they do nothing. An exit without
 * enter, and a task that ends in between, abort. */
WEFT_API void weft_block_enter(void);
WEFT_API void weft_block_exit(void);

/* Runs fn(arg) on a thread of the blocking pool, waits for it, and returns its result. For what must not run on a worker at all; an
 * ordinary call needs no pool. First come, first served; the pool has as many threads as there are calls, up to
 * weft_config.block_threads_max, and one that has had nothing to do for weft_config.block_idle ends. On the pool's thread fn is no task: weft_self
 * is 0, and what waits blocks the thread. A panic there gives WEFT_EPANIC. On a plain thread: calls fn.
 * WEFT_ETIMEDOUT, WEFT_ECANCELED, WEFT_EAGAIN (WEFT_POLL): fn was not called, and will not be. Once it has begun it is waited for, whatever
 * comes: a C function cannot be stopped. WEFT_ENOMEM, -errno: the pool has no thread, and none could be started. */
WEFT_API int weft_block(weft_fn *fn, void *arg, weft_deadline deadline);

#ifdef __cplusplus
}
#endif
#endif
