/* SPDX-License-Identifier: MIT */
/* Threads seen from outside: whether one is blocked in the kernel, and how long the kernel lets it run at a time. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "os/os.h"

int weft__thread_id(void) {
    return (int)syscall(SYS_gettid);
}

bool weft__thread_blocked(int tid) {
    char path[48], stat[128];
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    if (weft__read_file(path, stat, sizeof stat) <= 0) return false;
    const char *name_end = strrchr(stat, ')'); /* of "tid (name) state …"; the name may have anything in it */
    return name_end && (name_end[2] == 'S' || name_end[2] == 'D');
}

int64_t weft__thread_time(int tid) {
    struct timespec t;
    clockid_t clock =
        (clockid_t)(~(unsigned)tid << 3 | 6); /* as the kernel has it: the CPU time (2) of a thread (4) by its number */
    return clock_gettime(clock, &t) == 0 ? (int64_t)t.tv_sec * WEFT_SECOND + t.tv_nsec : -1;
}

/* From linux/sched/types.h, which is younger than some systems we build on. */
typedef struct {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
} attributes;
enum { RESET_ON_FORK = 1 };

/* Ordinary threads only. Those of negative nice too are left alone: what must be said for the slice not to be inherited would take that
 * from their children, and it cannot be taken back. */
void weft__thread_slice(int tid, int64_t ns) {
    static _Atomic bool refused;
    attributes a = {.size = sizeof a};
    if (!tid || weft__load(&refused, relaxed)) return; /* 0: nobody's, and to the kernel our own; `refused` orders nothing */
    int kept = errno;
    errno = weft__fault_errno;
    bool ok = !weft__fault() && syscall(SYS_sched_getattr, tid, &a, sizeof a, 0) == 0;
    if (ok && a.policy == SCHED_OTHER && a.nice >= 0) {
        a.size = sizeof a;
        a.flags = RESET_ON_FORK;
        a.runtime = (uint64_t)ns;
        ok = syscall(SYS_sched_setattr, tid, &a, 0) == 0;
    }
    if (!ok && errno != ESRCH) weft__store(&refused, true, relaxed); /* a filter, an old kernel; not a thread that has ended */
    errno = kept;
}
