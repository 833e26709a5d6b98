/* SPDX-License-Identifier: MIT */
/* Threads seen from outside: whether one is blocked in the kernel, how often it was, and how long the kernel lets it run at a time. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
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

int64_t weft__thread_waits(int tid) {
    enum { MOST = 4096 };
    static const char waits[] = "\nvoluntary_ctxt_switches:";
    char path[48], status[MOST];
    snprintf(path, sizeof path, "/proc/self/task/%d/status", tid);
    int64_t n = weft__read_file(path, status, sizeof status);
    const char *state = n > 0 ? strstr(status, "\nState:\t") : NULL, *count = n > 0 ? strstr(status, waits) : NULL;
    if (!state || !count || state[8] == 'S' || state[8] == 'D') return -1;
    return strtoll(count + sizeof waits - 1, NULL, 10);
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

/* Since Linux 6.12; before that slices of ordinary threads are 0, and setting them changes nothing. */
static bool attributes_of(int tid, attributes *a) {
    *a = (attributes){.size = sizeof *a};
    errno = weft__fault_errno;
    bool ok = !weft__fault() && syscall(SYS_sched_getattr, tid, a, sizeof *a, 0) == 0;
    a->size = sizeof *a;
    return ok;
}

/* Ordinary threads only. Those of negative nice too are left alone: what must be said for the slice not to be inherited would take that
 * from their children, and it cannot be taken back. */
int64_t weft__thread_slice(int tid, int64_t ns) {
    static _Atomic bool refused; /* orders nothing */
    attributes a;
    int kept = errno;
    int64_t before = -1;
    if (!tid || weft__load(&refused, relaxed)) return -1; /* 0: nobody's, and to the kernel our own */
    if (weft__env_on("WEFT_NO_SCHED_SETATTR") || !attributes_of(tid, &a)) {
        if (errno != ESRCH)
            weft__store(&refused, true, relaxed); /* told so, a filter, an old kernel; not a thread that has ended */
    } else if (a.policy == SCHED_OTHER && a.nice >= 0) {
        before = (int64_t)a.runtime;
        a.flags |= RESET_ON_FORK;
        a.runtime = (uint64_t)ns;
        bool ok = syscall(SYS_sched_setattr, tid, &a, 0) == 0;
        if (!ok && errno != ESRCH) weft__store(&refused, true, relaxed);
        if (!ok) before = -1;
    }
    errno = kept;
    return before;
}

/* Whatever its nice value has become since then. */
void weft__thread_slice_back(int tid, int64_t before) {
    attributes a;
    int kept = errno;
    bool fair = attributes_of(tid, &a) && (a.policy == SCHED_OTHER || a.policy == SCHED_BATCH || a.policy == SCHED_IDLE);
    if (fair) { /* the others have none, and mean something else by it */
        a.runtime = (uint64_t)before;
        (void)syscall(SYS_sched_setattr, tid, &a, 0);
    }
    errno = kept;
}
