/* SPDX-License-Identifier: MIT */
/* Threads beside the workers: the blocking pool, bound threads, 1:1 threads. The inner side. */
#ifndef WEFT_SRC_BLOCK_H
#define WEFT_SRC_BLOCK_H

#include "sched/sched.h"

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

/* With a runtime: as many threads for bound tasks at most. And when it has ended, with all its threads. */
void weft__bind_open(int max);
void weft__bind_close(void);
/* Bound tasks there are. */
int weft__bind_count(void);
/* In the child of a fork. */
void weft__bind_forget(void);
void weft__threads_forget(void);

/* ---- site.c ---- */

/* A task that was spawned there has called weft_bind, with success: the next ones start bound. */
void weft__site_note(void *at, weft_fn *fn);
/* One that may have started bound has called weft_bind. */
void weft__site_hit(weft__task *t);
/* What a task runs first whose site is remembered: it tries to bind it, and calls its function. */
weft_fn weft__site_main;
/* With a runtime: nothing is remembered. */
void weft__sites_open(void);
/* In the child of a fork. */
void weft__sites_forget(void);
/* The calling task gets a thread of its own if there is one at once (bind.c). */
void weft__bind_ahead(void);

/* Calls a function of the user's on a thread of ours (`where`, for people): a panic gives WEFT_EPANIC, a scope that is left open dies. */
int weft__thread_call(weft_fn *fn, void *arg, const char *where);

#endif
