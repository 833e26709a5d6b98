/* SPDX-License-Identifier: MIT */
#include "os/os.h"

#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MIN_STACK = 64 * 1024 }; /* thread-local storage, a signal frame and a call of printf fit into it */
enum { TIMER_SLACK = 1 };       /* ns that the kernel may be late on purpose; its default of 50 us is half of a short sleep */
/* From linux/futex.h, which comes with the kernel's headers: musl's compiler wrapper does not find those. */
enum { FUTEX_WAKE = 1, FUTEX_WAIT_BITSET = 9, FUTEX_PRIVATE_FLAG = 128 };
#define FUTEX_BITSET_MATCH_ANY UINT32_MAX

/* A thread names itself: naming another one goes through /proc and costs ten times as much. */
typedef struct start {
    void *(*fn)(void *);
    void *arg;
    void *module;  /* for a detached thread: what it keeps loaded */
    char name[16]; /* the kernel keeps 15 characters */
    weft__cpus cpus;
    int realtime;
} start;

/* The calling thread has this priority already; from now on what it starts is as usual. The attributes of a thread cannot say that. */
static void not_inherited(int realtime) {
    struct sched_param p = {.sched_priority = realtime};
    (void)sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &p); /* without it they inherit it, and work all the same */
}

static void *begin(void *p) {
    start s = *(start *)p;
    weft__free(p);
    weft__module_keep(s.module);
    weft__cpus_take(&s.cpus);
    if (s.realtime) not_inherited(s.realtime);
    if (s.name[0]) prctl(PR_SET_NAME, s.name, 0, 0, 0);
    prctl(PR_SET_TIMERSLACK, TIMER_SLACK, 0, 0, 0);
    return s.fn(s.arg);
}

static int make_realtime(pthread_attr_t *attr, int priority) {
    struct sched_param p = {.sched_priority = priority};
    int err = pthread_attr_setinheritsched(attr, PTHREAD_EXPLICIT_SCHED);
    if (!err) err = pthread_attr_setschedpolicy(attr, SCHED_FIFO);
    return err ? err : pthread_attr_setschedparam(attr, &p);
}

static int create(pthread_t *out, start *s, size_t stack) {
    pthread_attr_t attr;
    int err = pthread_attr_init(&attr);
    if (err) return err;
    if (stack && stack < MIN_STACK) stack = MIN_STACK;
    if (stack) err = pthread_attr_setstacksize(&attr, (stack + weft__page_size() - 1) & ~(weft__page_size() - 1));
    if (!err && s->realtime) err = make_realtime(&attr, s->realtime);
    if (!err) err = pthread_create(out, &attr, begin, s);
    pthread_attr_destroy(&attr);
    return err;
}

static int launch(pthread_t *out, start what, const char *name, size_t stack, bool ours) {
    if (weft__fault()) return -weft__fault_errno;
    start *s = weft__calloc(1, sizeof *s);
    if (!s) return -ENOMEM;
    *s = what;
    weft__cpus_to_start(&s->cpus, ours);
    if (name) strncpy(s->name, name, sizeof s->name - 1);
    int err = stack || s->realtime ? create(out, s, stack) : pthread_create(out, NULL, begin, s);
    if (err) weft__free(s);
    return -err;
}

int weft__thread_start(pthread_t *out, void *(*fn)(void *), void *arg, const char *name) {
    return launch(out, (start){.fn = fn, .arg = arg}, name, 0, true);
}

int weft__thread_start_opts(pthread_t *out, void *(*fn)(void *), void *arg, const char *name, size_t stack, int realtime) {
    return launch(out, (start){.fn = fn, .arg = arg, .realtime = realtime}, name, stack, false);
}

int weft__thread_start_detached(void *(*fn)(void *), void *arg, const char *name) {
    start s = {.fn = fn, .arg = arg};
    pthread_t thread;
    int err = weft__module_take(&s.module);
    if (err) return err;
    err = launch(&thread, s, name, 0, true);
    if (err)
        weft__module_drop(s.module);
    else
        pthread_detach(thread);
    return err;
}

int weft__futex_wait(_Atomic uint32_t *word, uint32_t expected, int64_t deadline) {
    if (weft__fault()) { /* as if interrupted, which takes a trip to the kernel: a loop of these must not keep others from a lock */
        sched_yield();
        return 0;
    }
    if (deadline < 0) return -ETIMEDOUT;
    struct timespec at = {(time_t)(deadline / WEFT_SECOND), (long)(deadline % WEFT_SECOND)};
    /* The bitset form takes an absolute time on the monotonic clock, so a late or repeated wait does not drift. */
    long r = syscall(SYS_futex, word, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, expected, deadline ? &at : NULL, NULL,
                     FUTEX_BITSET_MATCH_ANY);
    return r < 0 && errno == ETIMEDOUT ? -ETIMEDOUT : 0;
}

void weft__futex_wake(_Atomic uint32_t *word, int n) {
    syscall(SYS_futex, word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, n, NULL, NULL, 0);
}

void weft__nap(int64_t ns) {
    if (ns <= 0) return;
    struct timespec t = {(time_t)(ns / WEFT_SECOND), (long)(ns % WEFT_SECOND)};
    clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL);
}

int64_t weft__os_thread_time(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * WEFT_SECOND + t.tv_nsec;
}

WEFT_HOT int64_t weft__os_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * WEFT_SECOND + t.tv_nsec;
}
