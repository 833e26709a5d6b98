/* SPDX-License-Identifier: MIT */
/* What is going on inside. */
#ifndef WEFT_DEBUG_H
#define WEFT_DEBUG_H

#include <stdio.h>

#include <weft/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_stats {
    int slots;               /* tasks that can run at the same time */
    int threads;             /* worker threads there are now */
    uint64_t tasks;          /* detached tasks and those with a handle, started or not */
    uint64_t steals;         /* tasks taken from another slot */
    uint64_t wakes;          /* sleeping workers woken for work */
    uint64_t sleeps;         /* times a worker went to sleep */
    uint64_t takeovers;      /* slots taken from a worker that was away */
    uint64_t stacks;         /* stacks made so far */
    uint64_t stacks_used;    /* stacks that a task is on now, running or waiting */
    uint64_t stack_mappings; /* memory mappings that hold them */
    uint64_t stack_guards;   /* 3 = guard regions, 2 = protected pages, 1 = canaries only */
} weft_stats;

/* Prints a line for the runtime and one for each task that has a stack: whose child it is (the task that opened its scope, where that is a
 * local variable), its state, what it waits for and since when, its function and
 * where it was spawned. From anywhere; the tasks go on meanwhile. */
WEFT_API void weft_dump(FILE *out);

/* Fills in the counters; all zero when no runtime runs. From anywhere. */
WEFT_API void weft_stats_get(weft_stats *out);

#ifdef __cplusplus
}
#endif
#endif
