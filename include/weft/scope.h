/* SPDX-License-Identifier: MIT */
/* Scopes: tasks that begin and end together. Whatever is spawned between weft_scope_begin and weft_scope_end has ended
 * when weft_scope_end returns. */
#ifndef WEFT_SCOPE_H
#define WEFT_SCOPE_H

#include <weft/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

struct weft_task_opts;

/* Storage for a scope, usually a local variable. Its contents are the runtime's. */
typedef struct weft_scope {
    uint64_t weft__private[26];
} weft_scope;

enum {
    WEFT_CANCEL_ALL = 0, /* the first error of a child cancels the scope */
    WEFT_KEEP_GOING = 1  /* errors are remembered, the others go on */
};

typedef struct weft_scope_opts {
    weft_deadline deadline; /* then the scope is cancelled, and weft_scope_end gives WEFT_ETIMEDOUT */
    int on_error;           /* WEFT_CANCEL_ALL or WEFT_KEEP_GOING */
} weft_scope_opts;

/* Opens a scope in the calling task or thread. Its deadline and its cancellation apply to the caller's own code up to
 * weft_scope_end too. Scopes nest: the innermost is ended first. */
WEFT_API void weft_scope_begin(weft_scope *s, const weft_scope_opts *opts);

/* Starts fn(arg) as a task of the scope. Accepted (0): fn is called exactly once, even if the scope is cancelled before it
 * starts. Refused: fn is never called, and it counts as a failed child. WEFT_ECANCELED: the scope is cancelled.
 * WEFT_ENOMEM. The opener spawns, and so may the scope's own tasks. */
WEFT_API int weft_spawn(weft_scope *s, weft_fn *fn, void *arg);
/* As weft_spawn with a name, a stack size, …; WEFT_EINVAL: an option is wrong. */
WEFT_API int weft_spawn_opts(weft_scope *s, weft_fn *fn, void *arg, const struct weft_task_opts *opts);
/* As weft_spawn; the rest is the task's name, formatted as printf does. */
WEFT_API int weft_spawnf(weft_scope *s, weft_fn *fn, void *arg, const char *name_fmt, ...) WEFT_PRINTF(4, 5);
/* As weft_spawn with a copy of `size` bytes as the argument, which lives as long as the task. */
WEFT_API int weft_spawn_copy(weft_scope *s, weft_fn *fn, const void *arg, size_t size);

/* Cancels the scope: whatever its tasks (and the tasks of scopes inside) wait for ends with WEFT_ECANCELED, now and from
 * now on. From any task or thread that knows the scope to be open. */
WEFT_API void weft_scope_cancel(weft_scope *s);
/* 1 if the calling task's innermost scope, or one around it, is cancelled. */
WEFT_API int weft_cancelled(void);
/* Why: WEFT_ECANCELED, WEFT_ETIMEDOUT (a scope's deadline), a child's error; 0 if nothing is cancelled. */
WEFT_API int weft_cancel_cause(void);

/* Waits until every task of the scope has ended; never fails to. Returns the first cause: a child's own error, WEFT_ETIMEDOUT
 * (the scope's deadline), WEFT_ECANCELED (a cancellation from outside), or 0. The scope's own weft_scope_cancel gives 0, and
 * the WEFT_ECANCELED of children after it does not count. */
WEFT_API int weft_scope_end(weft_scope *s);

#ifdef __cplusplus
}
/* weft_spawn_with(&s, fn, args{1, 2}): copies the argument struct into the task. */
template <class T>
inline int weft_spawn_with(weft_scope *s, weft_fn *fn, const T &arg) {
    static_assert(__is_trivially_copyable(T), "the argument is copied byte by byte");
    return weft_spawn_copy(s, fn, &arg, sizeof arg);
}
#else
/* weft_spawn_with(&s, fn, (struct args){1, 2}): copies the argument struct into the task. */
#define weft_spawn_with(s, fn, ...) weft_spawn_copy((s), (fn), &(__VA_ARGS__), sizeof(__VA_ARGS__))
#endif
#endif
