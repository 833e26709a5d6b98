/* SPDX-License-Identifier: MIT */
/* How long the kernel lets a thread run at a time, as sched_getattr(2) tells it. */
#ifndef WEFT_TEST_SLICES_H
#define WEFT_TEST_SLICES_H

#include <dirent.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef struct {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
} slice_attributes;

/* -1: it is not told. */
static inline int64_t slice_of(int tid) {
    slice_attributes a = {.size = sizeof a};
    return syscall(SYS_sched_getattr, tid, &a, sizeof a, 0) == 0 ? (int64_t)a.runtime : -1;
}

/* Of the calling thread; 0: whatever the kernel thinks. */
static inline bool slice_set(int64_t ns) {
    slice_attributes a = {.size = sizeof a};
    if (syscall(SYS_sched_getattr, 0, &a, sizeof a, 0) != 0) return false;
    a.size = sizeof a;
    a.runtime = (uint64_t)ns;
    return syscall(SYS_sched_setattr, 0, &a, 0) == 0;
}

/* Whether it can be set, and is told then (since Linux 6.12): tried with the calling thread, which has its own back. */
static inline bool slices_are_known(void) {
    int64_t mine = slice_of(0), other = 50 * INT64_C(1000000);
    bool known = mine > 0 && slice_set(other) && slice_of(0) == other;
    return slice_set(0) && known && slice_of(0) == mine;
}

/* How many threads of this process have another one than the calling thread. */
static inline int slices_that_differ(void) {
    int n = 0;
    DIR *d = opendir("/proc/self/task");
    for (struct dirent *e; d && (e = readdir(d));) {
        int tid = atoi(e->d_name);
        int64_t its = tid ? slice_of(tid) : -1;
        n += its >= 0 && its != slice_of(0); /* -1: it has ended meanwhile */
    }
    if (d) closedir(d);
    return n;
}

#endif
