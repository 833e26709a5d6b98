/* SPDX-License-Identifier: MIT */
/* The operating system, as weft needs it. The only layer that makes system calls (with src/poll); everything returns 0 or a
 * value, or -errno. Every call and every allocation passes weft__fault first, so that tests can make each of them fail. */
#ifndef WEFT_SRC_OS_H
#define WEFT_SRC_OS_H

#include <pthread.h>

#include "base/base.h"

/* ---- failing on purpose (fault.c) ---- */

/* True: the caller must fail as if the kernel had said `weft__fault_errno`. Free when nothing is armed. */
bool weft__fault_hit(void);
extern _Atomic int weft__fault_armed;
extern int weft__fault_errno;          /* ENOMEM unless a test says otherwise, before it arms */
extern void (*weft__fault_hook)(void); /* called where one fails; NULL unless a test says otherwise, before it arms */
WEFT_INLINE bool weft__fault(void) {
    return unlikely(weft__load(&weft__fault_armed, relaxed)) && weft__fault_hit(); /* set by tests before the call */
}
/* Makes the nth call from now (1 = the next) fail, and all after it if `sticky`; n = 0 disarms. Counts from all threads. */
void weft__fault_arm(long nth, bool sticky);
/* Calls seen since it was armed. */
long weft__fault_calls(void);
/* Those of the calling thread, ever, while something was armed. */
long weft__fault_calls_here(void);

/* ---- the environment (env.c) ---- */

/* NULL: it is not there, or the program runs with more rights than its user. */
const char *weft__env(const char *name);
/* It is there, and is "1". */
bool weft__env_on(const char *name);

/* ---- ThreadSanitizer (tsan.c) ---- */

/* True: TSan checks the program and not the library (context/sanitize.h). Fixed before main; false in all other builds. */
#ifdef WEFT_TSAN
extern bool weft__san_tasks;
/* Between these TSan does not check what the caller reads and writes, and takes memory that it allocates for new. */
void weft__san_unchecked_begin(void);
void weft__san_unchecked_end(void);
/* The thread's tasks use it one after the other. */
void weft__san_threads_own(void *p, size_t n);
#else
enum { weft__san_tasks = 0 };
WEFT_INLINE void weft__san_unchecked_begin(void) {}
WEFT_INLINE void weft__san_unchecked_end(void) {}
WEFT_INLINE void weft__san_threads_own(void *p, size_t n) {
    (void)p, (void)n;
}
#endif

/* ---- memory ---- */

void *weft__malloc(size_t n);            /* NULL: none */
void *weft__calloc(size_t n, size_t sz); /* NULL: none */
void *weft__calloc_lines(size_t n);      /* whole lines, aligned to them; NULL: none */
void weft__free(void *p);

/* Reserves address space, readable and writable, committed by touching, `align` a power of two; NULL: none. */
void *weft__vm_reserve(size_t size, size_t align);
void weft__vm_release(void *p, size_t size);
/* True if reserving more than is needed takes it from others: addresses are limited (RLIMIT_AS), or the kernel counts what is reserved as
 * used (the file, /proc/sys/vm/overcommit_memory, says 2). */
bool weft__vm_scarce(const char *overcommit);
/* Lets the kernel drop the contents of whole pages; they read as zero afterwards. */
void weft__vm_discard(void *p, size_t size);
/* Gives whole pages back; they read as zero afterwards. 0, or -errno: they are as they were. */
int weft__vm_drop(void *p, size_t size);
/* How many pages of the range (whole pages) are in memory, and where the first of them is (the end: none); -errno: not to be known. */
long weft__vm_resident(char *p, size_t size, char **first);
/* Asks for small pages only: a stack of which one page is used must not cost two megabytes. Best effort. */
void weft__vm_small_pages(void *p, size_t size);
int weft__vm_protect_none(void *p, size_t size);
/* Guard regions without a mapping each (Linux 6.13): n ranges of `size` bytes, the first at p, `stride` apart. 0 or -errno. */
extern bool
    weft__vm_one_by_one; /* not many ranges in a call: as where there is no process_madvise(2). Set before there are workers */
int weft__vm_guard(void *p, size_t size, size_t stride, int n);
/* True if touching the byte at p faults (asked of the kernel, not tried); false also if the kernel cannot be asked. */
bool weft__vm_faults(void *p);

/* ---- fork ---- */

/* Not 0: this process is the child of a fork, and what is left of the parent's runtime is not cleared away yet. Looked at off the fast
 * paths only. weft__after_fork, supplied by the task layer (fork.c there), clears it away. */
extern _Atomic uint32_t weft__forked;
extern uint32_t weft__forks; /* between the first process and this one; changes while there is one thread */
WEFT_COLD void weft__after_fork(void);

/* ---- threads and sleeping ---- */

/* Starts a thread with all signals as the caller has them; 0 or -errno. */
int weft__thread_start(pthread_t *out, void *(*fn)(void *), void *arg, const char *name);
/* The same with a stack of at least so many bytes; 0: as many as is usual. `realtime`: its priority in SCHED_FIFO, which what it starts does not
 * inherit; 0: none. */
int weft__thread_start_opts(pthread_t *out, void *(*fn)(void *), void *arg, const char *name, size_t stack, int realtime);
/* Starts a thread that is never joined and may outlive the runtime. It keeps the object that weft is part of loaded. Returns 0 or -errno. */
int weft__thread_start_detached(void *(*fn)(void *), void *arg, const char *name);
/* Takes a reference to the object that weft is part of, or NULL if that is the program. Returns 0 or -errno. */
int weft__module_take(void **out);
/* Drops the reference. The caller is inside the object for another reason. */
void weft__module_drop(void *module);
/* Hands the reference to the calling thread, which drops it when it has ended. */
void weft__module_keep(void *module);
/* Sleeps while *word == expected, until `deadline` on the monotonic clock (0 = for ever). Spurious returns are normal.
 * 0, or -ETIMEDOUT. */
int weft__futex_wait(_Atomic uint32_t *word, uint32_t expected, int64_t deadline);
void weft__futex_wake(_Atomic uint32_t *word, int n);
/* Naps for a time that the caller bounds. */
void weft__nap(int64_t ns);
int64_t weft__os_now(void);         /* CLOCK_MONOTONIC */
int64_t weft__os_thread_time(void); /* CPU time of the calling thread: some tenths of a microsecond to ask for */

/* The kernel's number of the calling thread. */
int weft__thread_id(void);
/* The thread of this process sleeps in the kernel: it neither runs nor waits for a CPU. False also if that cannot be told. */
bool weft__thread_blocked(int tid);
/* CPU time that it has used, a few tenths of a microsecond to ask for; -1: it cannot be told. */
int64_t weft__thread_time(int tid);
/* How often it has slept in the kernel; -1: it does so now, or it cannot be told. Some ten microseconds. */
int64_t weft__thread_waits(int tid);
/* The kernel is to let the thread run for so long before others of the same priority (Linux 6.12, from 0.1 to 100 ms); what it starts does not inherit that.
 * Needs no rights. What it was before; -1: it could not be done, or is not to be. */
int64_t weft__thread_slice(int tid, int64_t ns);
/* As it was before, if it is still so. */
void weft__thread_slice_back(int tid, int64_t ns, int64_t before);
/* A runtime begins: whether any of that is wanted (WEFT_NO_SCHED_SETATTR). */
void weft__thread_slices_open(void);

/* CPUs this process may use: affinity mask and cgroup quota, at least 1. */
int weft__cpu_count(void);
/* What the cgroups named in the file `self` (/proc/self/cgroup) allow, with their tree at `root` (/sys/fs/cgroup): CPUs,
 * rounded up; 0: no limit. */
int weft__cpu_quota(const char *self, const char *root);
/* The CPUs this process may use, those of a NUMA node together, with the nodes described at `root` (/sys/devices/system/node). How many
 * were put into `place`; 0: they cannot be told. */
typedef struct weft__place {
    int cpu, node;
} weft__place;
int weft__cpu_places(weft__place *place, int max, const char *root);
/* The calling thread runs on this CPU only, from now on. 0 or -errno. */
int weft__thread_bind(int cpu);
/* The same until weft__thread_unbind, which does nothing without it. */
int weft__thread_bind_for_now(int cpu);
void weft__thread_unbind(void);
/* Where a thread may run that the calling one starts. The kernel would give it the starter's mask; but that is none of its business where the starter is
 * bound to a CPU by us, nor, if the thread is to serve the runtime (`ours`), where it is somebody else's. */
typedef struct weft__cpus {
    bool known; /* false: where its starter may */
    bool ours;
    unsigned long mask[4096 / (8 * sizeof(unsigned long))];
} weft__cpus;
/* The runtime's threads may run where the calling one may, which starts it. */
void weft__cpus_note(void);
void weft__cpus_to_start(weft__cpus *out, bool ours);
/* In the new thread. */
void weft__cpus_take(const weft__cpus *c);
/* The calling thread may run there. */
bool weft__cpu_allowed(int cpu);
size_t weft__page_size(void);
/* The start of a small file, as a string; its length or -errno. */
int weft__read_file(const char *path, char *buf, size_t size);

/* False: this program has unwind tables, but the unwinder cannot find them, and would abort. Only without glibc. */
bool weft__os_can_unwind(void);
/* Return addresses of the calling thread's frames, innermost first; how many. Async-signal-safe after the first call, but for a
 * lock of the dynamic linker. Printing them: a line each, names where they can be had. */
int weft__os_backtrace(void **frames, int max);
void weft__os_backtrace_print(void *const *frames, int n, int fd);

/* ---- barriers between threads that pay differently (membarrier.c) ----
 *
 * weft__light_barrier on a fast path and weft__heavy_barrier on a slow one, together, order a store before a later load as a
 * pair of full fences would. With membarrier(2) the light one is free. */
extern bool weft__fences; /* true: no membarrier here, the light barrier is a real fence. Set once by weft__barrier_init */
void weft__barrier_init(void);
/* In the child of a fork: says again that it will be used. */
void weft__barrier_after_fork(void);
void weft__heavy_barrier(void);
WEFT_INLINE void weft__light_barrier(void) {
    if (unlikely(weft__fences))
        atomic_thread_fence(memory_order_seq_cst); /* pairs with weft__heavy_barrier */
    else
        weft__compiler_barrier();
}

#endif
