/* SPDX-License-Identifier: MIT */
/* What is going on inside. */
#ifndef WEFT_DEBUG_H
#define WEFT_DEBUG_H

#include <stdio.h>

#include <weft/runtime.h>

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
    uint64_t overflows;      /* times that a slot's queue was full, and half of it went to the queue of all */
    uint64_t takeovers;      /* slots taken from a worker that was away */
    uint64_t handoffs;       /* slots handed over at once, by weft_block_enter */
    uint64_t binds;          /* tasks that were given a thread of their own, so far */
    uint64_t binds_ahead;    /* of them, those that started so because another task of their spawn site had called weft_bind */
    int bound;               /* tasks that have one now */
    int block_threads;       /* threads of the blocking pool now */
    int block_queued;        /* calls that wait for one of them */
    int strays;              /* tasks that compute without a slot now: it was taken from them */
    uint64_t stacks;         /* stacks made so far */
    uint64_t stacks_used;    /* stacks that a task is on now, running or waiting */
    uint64_t stack_mappings; /* memory mappings that hold them */
    uint64_t
        stack_guards; /* the weakest in use: 3 = guard regions, 2 = protected pages, 1 = canaries only (no memory is guarded) */
    uint64_t stack_trims;   /* times that a stack gave back the memory of its deep part */
    uint64_t polls;         /* times that the kernel was asked which descriptors are ready; 0: no descriptor has been used */
    uint64_t poll_events;   /* how many it told of */
    uint64_t poll_stale;    /* of them, those of descriptors that had been closed; they may live on by dup or fork */
    uint64_t poll_landings; /* reads that whoever heard of an event made for the task that waited for it */
    uint64_t
        poll_departures; /* writes that were made together with others', by one system call; 0 without io_uring, or where that does not pay */
    uint64_t accept_waits; /* times that weft_accept had to wait because there were no descriptors or memory */
} weft_stats;

/* Prints a line for the runtime and one for each task that has a stack: whose child it is (the task that opened its scope, where that is a
 * local variable), its state, its function and where it was spawned. The state is running; runnable; blocked (in a C call); preempted (it
 * computes, and its slot was given to others meanwhile); or what it waits for, the object and since when. Tasks that have not started are counted in the
 * first line; those that have ended are gone. From anywhere; the tasks go on meanwhile. */
WEFT_API void weft_dump(FILE *out);

/* Fills in the counters; all zero when no runtime runs. From anywhere. */
WEFT_API void weft_stats_get(weft_stats *out);

/* How deep the tasks that were spawned at one place have gone; measured with the flag WEFT_STACK_MEASURE. */
typedef struct weft_stack_site {
    void *spawned_at;  /* the address behind the call that spawned them */
    weft_fn *fn;       /* what they ran */
    uint64_t tasks;    /* that have ended */
    size_t high_water; /* bytes of stack that the deepest of them touched, in whole pages */
    size_t reserve;    /* bytes that the stack of the last one had, guard included */
    size_t advice;     /* the weft_task_opts.stack_size with room for twice the high-water mark */
} weft_stack_site;

/* Calls fn for each spawn site (NULL: for none), in no order; returns how many there are: at most 1024 are noted. The figures are of
 * the runtime that runs, or of the last one. From anywhere; fn must not wait. */
WEFT_API int weft_stack_sites(void (*fn)(const weft_stack_site *site, void *arg), void *arg);
/* Prints a line for each of them. */
WEFT_API void weft_stack_report(FILE *out);

#ifdef __cplusplus
}
#endif
#endif
