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

typedef struct weft_task_opts {
    const char *name;  /* copied; shown in reports */
    size_t stack_size; /* 0 = the runtime's default; up to 1 GiB */
} weft_task_opts;

/* Starts fn(arg) detached, in the root scope: it is cancelled when the runtime stops. WEFT_ECANCELED: the runtime is
 * stopping. WEFT_ETERMINATED: none runs. WEFT_ENOMEM. */
WEFT_API int weft_go(weft_fn *fn, void *arg);
/* As weft_go with a copy of `size` bytes as the argument. */
WEFT_API int weft_go_copy(weft_fn *fn, const void *arg, size_t size);

/* Starts fn(arg) in the root scope and gives a handle to it. The handle is released by a successful weft_task_join or by
 * weft_task_unref. Errors as weft_go; WEFT_EINVAL: an option is wrong. */
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
/* The calling task's id; 0 on a plain thread. */
WEFT_API uint64_t weft_self(void);

#ifdef __cplusplus
}
/* weft_go_with(fn, args{1, 2}): copies the argument struct into the task. */
template <class T>
inline int weft_go_with(weft_fn *fn, const T &arg) {
    static_assert(__is_trivially_copyable(T), "the argument is copied byte by byte");
    return weft_go_copy(fn, &arg, sizeof arg);
}
#else
/* weft_go_with(fn, (struct args){1, 2}): copies the argument struct into the task. */
#define weft_go_with(fn, ...) weft_go_copy((fn), &(__VA_ARGS__), sizeof(__VA_ARGS__))
#endif
#endif
