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
    char *end;
    int64_t times = strtoll(count + sizeof waits - 1, &end, 10);
    return *end == '\n' ? times : -1; /* else the rest did not fit */
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

static bool attributes_of(int tid, attributes *a) {
    *a = (attributes){.size = sizeof *a};
    errno = weft__fault_errno;
    bool ok = !weft__fault() && syscall(SYS_sched_getattr, tid, a, sizeof *a, 0) == 0;
    a->size = sizeof *a;
    return ok;
}

static _Atomic bool refused; /* orders nothing */

void weft__thread_slices_open(void) {
    weft__store(&refused, weft__env_on("WEFT_NO_SCHED_SETATTR"), relaxed);
}

/* Ordinary threads only. Those of negative nice too are left alone: what must be said for the slice not to be inherited would take that
 * from their children, and it cannot be taken back. Before Linux 6.12 a slice is 0, and setting it changes nothing. */
static int64_t set_slice(int tid, int64_t ns) {
    attributes a;
    if (!attributes_of(tid, &a)) return -1;
    if (a.policy != SCHED_OTHER || a.nice < 0) return errno = ESRCH, -1;
    int64_t before = (int64_t)a.runtime;
    if (!before) return errno = ENOSYS, -1;
    a.flags |= RESET_ON_FORK;
    a.runtime = (uint64_t)ns;
    return syscall(SYS_sched_setattr, tid, &a, 0) == 0 ? before : -1;
}

int64_t weft__thread_slice(int tid, int64_t ns) {
    int kept = errno;
    if (!tid || weft__load(&refused, relaxed)) return -1; /* 0: nobody's, and to the kernel our own */
    int64_t before = set_slice(tid, ns);
    if (before < 0 && errno != ESRCH)
        weft__store(&refused, true, relaxed); /* a filter, an old kernel; not a thread that has ended */
    errno = kept;
    return before;
}

/* Whatever its nice value has become since then. Policies without slices mean something else by that. */
void weft__thread_slice_back(int tid, int64_t ns, int64_t before) {
    attributes a;
    int kept = errno;
    bool fair = attributes_of(tid, &a) && (a.policy == SCHED_OTHER || a.policy == SCHED_BATCH || a.policy == SCHED_IDLE);
    if (fair && a.runtime == (uint64_t)ns) {
        a.runtime = (uint64_t)before;
        (void)syscall(SYS_sched_setattr, tid, &a, 0);
    }
    errno = kept;
}
