/* SPDX-License-Identifier: MIT */
/* Threads beside the workers: the blocking pool, bound threads, 1:1 threads. The inner side. */
#ifndef WEFT_SRC_BLOCK_H
#define WEFT_SRC_BLOCK_H

#include "base/base.h"

#include <weft/runtime.h>

/* ---- pool.c ---- */

/* With a runtime, and when it has ended: no call is under way, all threads end. */
void weft__pool_open(int max, int64_t idle);
void weft__pool_close(void);
/* The fake clock moved. */
void weft__pool_kick(void);
/* Threads, and calls that wait for one. */
void weft__pool_counts(int *threads, int *queued);
/* In the child of a fork: there are none. */
void weft__pool_forget(void);

/* ---- bind.c, thread.c ---- */

/* With a runtime: as many threads for bound tasks at most. */
void weft__bind_open(int max);
/* Bound tasks there are. */
int weft__bind_count(void);
/* In the child of a fork. */
void weft__bind_forget(void);
void weft__threads_forget(void);

/* Calls a function of the user's on a thread of ours (`where`, for people): a panic gives WEFT_EPANIC, a scope that is left open dies. */
int weft__thread_call(weft_fn *fn, void *arg, const char *where);

#endif
