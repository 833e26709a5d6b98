/* SPDX-License-Identifier: MIT */
/* What the end of a task may involve: panics, weft_at_exit, task-locals, hooks. User code runs in all of it, so everything here is called outside the
 * runtime. */
#ifndef WEFT_SRC_PANIC_H
#define WEFT_SRC_PANIC_H

#include "task/task.h"

/* ---- panic.c ---- */

/* Calls fn(arg). A panic in it is reported as one that nobody catches, ends there, and gives WEFT_EPANIC. */
int weft__contain(weft_fn *fn, void *arg);
/* A panic has been caught at a boundary above, and its frames are being unwound: the scopes that it passes have ended. */
bool weft__unwinding(void);
/* Likewise, and this is the innermost of those that it has left open (NULL: it has left none). */
bool weft__unwound_to(const weft__scope *s);

/* ---- exit.c ---- */

/* The task's function has returned `result`, or panicked: runs what it left to be run, and tells the hook of detached tasks that failed. The
 * result that others see: WEFT_EPANIC if one of these functions panicked and there was no error before. */
WEFT_COLD int weft__task_finish(weft__task *t, int result);
/* The same for a child that ran inside its opener; takes its extra away. */
WEFT_COLD int weft__inside_finish(weft__fresh *f, int result);
/* What the calling task, or the child that runs inside it, has; made if it has none. NULL: no memory. */
weft__extra *weft__extra_mine(weft__task *t);

/* ---- local.c ---- */

enum { WEFT_LOCAL_ROUNDS = 4 }; /* destructors may set values again; as many as POSIX promises for threads */

/* One round over the values: calls their destructors. False: there was nothing to call. *panicked: one of them did. */
bool weft__locals_destroy(struct weft__locals **l, bool *panicked);

/* In the child of a fork: nobody makes a key, or prints a report. */
void weft__keys_forget(void);
void weft__panics_forget(void);

#endif
