/* SPDX-License-Identifier: MIT */
/* Tasks: functions with a C stack of their own, by the million, on all cores. Most are spawned into a scope (scope.h); here
 * are those that belong to the root scope, and handles. */
#ifndef WEFT_TASK_H
#define WEFT_TASK_H

#include <weft/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_task weft_task;

/* weft_task_opts.priority. Whenever a slot chooses what to run, high comes first, as long as normal tasks get a quarter of the time;
 * low runs when there is nothing else to do, and at least once in 100 ms. Not inherited. */
enum { WEFT_PRIORITY_LOW = -1, WEFT_PRIORITY_NORMAL = 0, WEFT_PRIORITY_HIGH = 1 };

/* weft_task_opts.flags */
enum {
    WEFT_PINNED = 1, /* the task stays on the thread it starts on, as between weft_pin and weft_unpin */
    WEFT_BOUND =
        2 /* the task has an OS thread of its own, as after weft_bind; it waits for one before its function is called, as long as it takes */
};

typedef struct weft_task_opts {
    const char *name;  /* copied; shown in reports */
    size_t stack_size; /* 0 = the runtime's default; up to 1 GiB */
    int priority;      /* WEFT_PRIORITY_… */
    unsigned flags;    /* WEFT_PINNED or WEFT_BOUND */
    int cpu;           /* WEFT_BOUND: 1 + the CPU that its thread stays on; 0 = any */
} weft_task_opts;

/* Starts fn(arg) detached, in the root scope: it is cancelled when the runtime stops. WEFT_ECANCELED: the runtime is
 * stopping. WEFT_ETERMINATED: none runs. WEFT_ENOMEM. */
WEFT_API int weft_go(weft_fn *fn, void *arg);
/* As weft_go with a copy of `size` bytes as the argument. */
WEFT_API int weft_go_copy(weft_fn *fn, const void *arg, size_t size);

/* Starts fn(arg) in the root scope and gives a handle to it; *out is written before fn can run. The handle is released by a successful
 * weft_task_join or by weft_task_unref. Errors as weft_go; WEFT_EINVAL: an option is wrong. */
WEFT_API int weft_task_start(weft_task **out, weft_fn *fn, void *arg, const weft_task_opts *opts);
/* Waits for the task's end; *result (if not NULL) is what its function returned. On success the handle is released.
 * WEFT_ETIMEDOUT, WEFT_ECANCELED, WEFT_EAGAIN: the handle is still good. WEFT_EDEADLOCK: a task that joins itself. */
WEFT_API int weft_task_join(weft_task *t, int *result, weft_deadline deadline);
/* Waits for the first of n tasks to end; *which is its place in the array, *result what its function returned (either may be NULL). On success
 * that handle is released, the others are still good; of several that have ended it is the first in the array. A NULL in the array is
 * left out. WEFT_ETIMEDOUT, WEFT_ECANCELED, WEFT_EAGAIN; WEFT_EINVAL: no task; WEFT_EDEADLOCK: the calling task is one of them;
 * WEFT_ENOMEM (more than 16). */
WEFT_API int weft_task_any(weft_task **tasks, size_t n, size_t *which, int *result, weft_deadline deadline);
/* Cancels the task: its waits, and those of scopes it opened, end with WEFT_ECANCELED from now on. */
WEFT_API void weft_task_cancel(weft_task *t);
/* Releases the handle; the task goes on. NULL is allowed. */
WEFT_API void weft_task_unref(weft_task *t);
/* The task's id: never 0, never used again while the runtime runs. */
WEFT_API uint64_t weft_task_id(weft_task *t);

/* Lets other ready tasks run first. */
WEFT_API void weft_yield(void);
/* From weft_pin to weft_unpin the calling task stays on the thread it runs on, whatever it waits for: thread-local variables of C
 * libraries keep their values (other tasks run there meanwhile). They nest. On a plain thread they do nothing. A pinned task waits
 * longer for its turn: only one thread can run it. */
WEFT_API void weft_pin(void);
WEFT_API void weft_unpin(void);
/* The calling task's id; 0 on a plain thread. */
WEFT_API uint64_t weft_self(void);

/* ---- the end of a task ---- */

/* Calls fn(arg) at the end of the calling task, whether it returns, is cancelled or panics; the last one first, after the task's function is
 * through with its stack and before whoever joins the task is told. They may wait, and may add others. A panic in one ends that one; the
 * others run, and the task's result is WEFT_EPANIC if it was no error. WEFT_ENOMEM; WEFT_EINVAL: fn is NULL, or this is a plain thread. */
WEFT_API int weft_at_exit(void (*fn)(void *arg), void *arg);

/* ---- panics ---- */

enum { WEFT_PANIC_FRAMES = 32 };

/* What is known of a panic. */
typedef struct weft_panic_info {
    char message[256]; /* cut off if longer; of a C++ exception: its type and what() */
    const char *file;  /* where; NULL: not known */
    int line;
    void *site;       /* the address that weft_panic would have returned to; NULL: there was no panic */
    uint64_t task;    /* 0: a plain thread */
    char name[32];    /* of the task; "": none */
    void *function;   /* of the task; NULL on a plain thread */
    void *spawned_at; /* likewise */
    int frames;       /* of the backtrace, innermost first */
    void *frame[WEFT_PANIC_FRAMES];
} weft_panic_info;

#if defined(__GNUC__)
#define WEFT_NO_RETURN __attribute__((noreturn))
#else
#define WEFT_NO_RETURN
#endif

/* Gives up: ends the calling task, or what the innermost weft_try around it called. It is reported (unless a weft_try contains it), the scopes
 * opened since are cancelled and joined, the stack is unwound (C++ destructors run; C frames go), the functions of weft_at_exit run, and
 * whoever joins the task sees WEFT_EPANIC. On a plain thread outside weft_try: aborts. So does a panic during the unwinding of another.
 * Code on the stack without unwind tables aborts too; compilers make them by default. */
WEFT_API void weft_panic(const char *fmt, ...) WEFT_PRINTF(1, 2) WEFT_NO_RETURN;
/* As weft_panic with a place. */
WEFT_API void weft_panic_at(const char *file, int line, const char *fmt, ...) WEFT_PRINTF(3, 4) WEFT_NO_RETURN;
#define weft_panic(...) weft_panic_at(__FILE__, __LINE__, __VA_ARGS__)

/* Calls fn(arg) and returns its result, or WEFT_EPANIC if it panicked; then *info (if not NULL) says more. If it did not, info->site is NULL.
 * An exception that fn lets out is a panic, too. From a task or a plain thread. */
WEFT_API int weft_try(weft_fn *fn, void *arg, weft_panic_info *info);
/* Prints what is printed on stderr where there is no hook. */
WEFT_API void weft_panic_report(const weft_panic_info *info);

/* ---- task-local storage ---- */

enum { WEFT_KEYS_MAX = 1024 };

/* The name of one value in each task and each plain thread. All zero: no key. */
typedef struct weft_key {
    uint32_t index, generation;
} weft_key;

/* Makes a key. At the end of a task or thread that has a value for it, other than NULL, `destructor` (if not NULL) is called with the value,
 * after the functions of weft_at_exit; again up to four times while destructors set new ones. WEFT_ELIMIT: there are WEFT_KEYS_MAX. */
WEFT_API int weft_key_new(weft_key *out, void (*destructor)(void *value));
/* Deletes a key. Values that are still stored under it are forgotten, without destructor. WEFT_EINVAL: there is no such key. */
WEFT_API int weft_key_delete(weft_key key);
/* The calling task's (or plain thread's) value; NULL: none was set, or there is no such key. */
WEFT_API void *weft_local_get(weft_key key);
/* Sets it. The old value is forgotten, without destructor. WEFT_ENOMEM; WEFT_EINVAL: there is no such key. */
WEFT_API int weft_local_set(weft_key key, void *value);

#ifdef __cplusplus
}
/* weft_go_with(fn, args{1, 2}): copies the argument struct into the task. */
template <class T>
inline int weft_go_with(weft_fn *fn, const T &arg) {
    static_assert(__is_trivially_copyable(T), "the argument is copied byte by byte");
    return weft_go_copy(fn, &arg, sizeof arg);
}
#else
/* weft_go_with(fn, (struct args){1, 2}), weft_go_with(fn, i + 1): copies the value into the task, as weft_spawn_with does. */
#define weft_go_with(fn, ...) weft_go_copy((fn), WEFT__COPY_OF(__VA_ARGS__), sizeof(__VA_ARGS__))
#endif
#endif
