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
    int limit;        /* children started and not ended at once; 0 = any number. A spawn then waits for room (see weft_spawn) */
    bool results;     /* keeps each child's result for weft_scope_wait_any: 4 bytes until it is asked for */
    int *result;      /* of a WEFT_SCOPE: where what weft_scope_end returned is stored; NULL = nowhere */
    int weft__unused; /* for WEFT_SCOPE without options */
} weft_scope_opts;

/* Opens a scope in the calling task or thread. Its deadline and its cancellation apply to the caller's own code up to
 * weft_scope_end too, as do those of the scopes around it: the earliest deadline counts. Scopes nest: the innermost is ended first.
 * Without memory for .limit or .results the scope is cancelled from the start, and weft_scope_end gives WEFT_ENOMEM.
 * A plain thread's scope that is open when the runtime stops is cancelled, and stays so. */
WEFT_API void weft_scope_begin(weft_scope *s, const weft_scope_opts *opts);

/* Starts fn(arg) as a task of the scope. Accepted (0): fn is called exactly once, even if the scope is cancelled before it
 * starts. Refused: fn is never called, and it counts as a failed child. WEFT_ECANCELED: the scope is cancelled.
 * WEFT_ETERMINATED: all children have ended, and weft_scope_end calls the deferred functions; or no runtime runs. WEFT_ENOMEM.
 *
 * Any task or thread may spawn that knows the scope to stay open until the call returns: the opener, the scope's own tasks,
 * tasks of scopes that these have opened, and a task or thread that one of them waits for.
 *
 * In a scope with a limit the opener's spawn waits until one of the children has ended, if there is no room; cancelled meanwhile:
 * WEFT_ECANCELED, refused. The scope's own tasks do not wait, because the room they wait for might be their own: their
 * children are accepted at once and started when there is room, before those of an opener that waits. */
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

/* Waits until every task of the scope has ended; never fails to. Returns the first of these to happen: a child's own error, that of a refused
 * spawn, WEFT_ETIMEDOUT (the scope's deadline). If none of them did: WEFT_ECANCELED (a cancellation from outside), or 0. The scope's own
 * weft_scope_cancel gives 0, and the WEFT_ECANCELED of children after it does not count. */
WEFT_API int weft_scope_end(weft_scope *s);

/* Waits until the scope has no child left, those included that are spawned meanwhile or wait for room (.limit). The scope stays open, and is
 * ended later by weft_scope_end. 0 says nothing of the children's errors: weft_scope_end does. Results stay for weft_scope_wait_any.
 * Neither the scope's own cancellation nor its deadline nor a child's error ends this wait; the children end with them. WEFT_ECANCELED: another
 * scope that the caller is in is cancelled, such as one around it. WEFT_ETIMEDOUT, WEFT_EAGAIN (WEFT_POLL): some children are left.
 * WEFT_EINVAL: the caller is not the opener, or weft_scope_end has begun (a deferred function). */
WEFT_API int weft_scope_wait(weft_scope *s, weft_deadline deadline);

/* Gives the scope another deadline, or its first one; WEFT_FOREVER takes it away. One that lies in the past cancels the scope at once. A scope
 * that is cancelled already stays so. For the opener, before weft_scope_end: any other call aborts. */
WEFT_API void weft_scope_set_deadline(weft_scope *s, weft_deadline deadline);

/* Waits until the next child has ended; *result (if not NULL) is what it returned. Each child that ran is reported once, in the order in which they
 * ended, those that ended before the call included. For the opener, in a scope with .results. WEFT_EEOF: no child is left.
 * WEFT_EAGAIN, WEFT_ETIMEDOUT, WEFT_ECANCELED. WEFT_EINVAL: the caller is not its opener, or the scope was opened without .results,
 * which is said on stderr. */
WEFT_API int weft_scope_wait_any(weft_scope *s, int *result, weft_deadline deadline);

/* The moment at which the calling task's innermost scope is cancelled: the earliest of its deadline and those around it. A shield puts
 * those outside it off until its own time is up. WEFT_FOREVER: there is none. */
WEFT_API weft_deadline weft_scope_deadline(void);

/* Has fn(arg) called by weft_scope_end in the opener, after all children have ended and in any case; the last one deferred is the first
 * called. The scope is over by then: its deadline and its cancellation do not apply to fn, those around it do (see weft_shield_begin).
 * It takes no more children (weft_spawn gives WEFT_ETERMINATED). fn may still ask for results and defer other functions, which are called next.
 * A panic that ends the scope has them called too. A panic in fn is reported and ends there: weft_scope_end gives WEFT_EPANIC if there was no
 * error before. For the opener. WEFT_ENOMEM: fn will not be called. WEFT_EINVAL: the caller is not the opener. */
WEFT_API int weft_scope_defer(weft_scope *s, void (*fn)(void *arg), void *arg);

/* From here to weft_shield_end, cancellation from outside is not seen by the calling task, nor by the tasks of scopes opened in between:
 * operations work, weft_cancelled gives 0. When the deadline passes, it is seen again. Scopes opened inside can be cancelled as
 * always. Shields nest, with scopes too: what was begun last is ended first; a shield left open when its task or scope ends is a bug
 * and aborts. A panic ends the shields that it passes. WEFT_ENOMEM: there is no shield, and none is to be ended. */
WEFT_API int weft_shield_begin(weft_deadline deadline);
WEFT_API void weft_shield_end(void);

/* Calls fn for parts of [0, n), on all cores, until each number was in exactly one of them; returns when all calls have. A part is at
 * most `grain` long; 0 = chosen by n and the cores. Without memory, or without a runtime, it runs in the caller alone.
 * WEFT_EPANIC: fn panicked in a part, and others may have been left out because of it. Else WEFT_ECANCELED: the caller's scope was cancelled
 * before it was through. What was left out was not begun. The caller runs some parts itself, the first one in any case. A panic or a
 * C++ exception of such a part goes on to the caller, after the other parts were cancelled and have ended. */
WEFT_API int weft_parallel_for(size_t n, size_t grain, void (*fn)(size_t lo, size_t hi, void *arg), void *arg);

/* Calls fn(arg) in the calling task, in a scope with this deadline, and returns what it returns; if that is WEFT_ECANCELED because
 * the deadline passed: WEFT_ETIMEDOUT (WEFT_EAGAIN for WEFT_POLL). A panic or a C++ exception of fn goes on to the caller, and ends
 * the scope. */
WEFT_API int weft_call(weft_fn *fn, void *arg, weft_deadline deadline);

/* weft_scope_begin and weft_scope_end for WEFT_SCOPE, which also store the result. */
WEFT_API weft_scope *weft_scope_enter(weft_scope *s, const weft_scope_opts *opts);
WEFT_API void weft_scope_leave(weft_scope *s);

#ifdef __cplusplus
}
/* weft_spawn_with(&s, fn, args{1, 2}): copies the argument struct into the task. */
template <class T>
inline int weft_spawn_with(weft_scope *s, weft_fn *fn, const T &arg) {
    static_assert(__is_trivially_copyable(T), "the argument is copied byte by byte");
    return weft_spawn_copy(s, fn, &arg, sizeof arg);
}

/* A scope that ends with its block. */
struct weft_scope_block : weft_scope {
    explicit weft_scope_block(const weft_scope_opts &opts = weft_scope_opts()) {
        weft_scope_enter(this, &opts);
    }
    ~weft_scope_block() {
        weft_scope_leave(this);
    }
    weft_scope_block(const weft_scope_block &) = delete;
    weft_scope_block &operator=(const weft_scope_block &) = delete;
    bool weft__first = true;
};
/* WEFT_SCOPE(s) { … } or WEFT_SCOPE(s, opts) { … }: a scope named s for the block; leaving it in any way joins. */
#define WEFT_SCOPE(...) WEFT__SCOPE(__VA_ARGS__, )
#define WEFT__SCOPE(s, ...) for (weft_scope_block s{__VA_ARGS__}; s.weft__first; s.weft__first = false)
#else
/* weft_spawn_with(&s, fn, (struct args){1, 2}), weft_spawn_with(&s, fn, i + 1): copies the value into the task, which gets a pointer to the copy. The
 * value is of any type but an array: for those there is weft_spawn_copy. */
#define weft_spawn_with(s, fn, ...) weft_spawn_copy((s), (fn), WEFT__COPY_OF(__VA_ARGS__), sizeof(__VA_ARGS__))

#if defined(__GNUC__)
/* WEFT_SCOPE(s) { … } or WEFT_SCOPE(s, .deadline = …, .result = &err) { … }: a scope named s for the block; leaving it in any way (its end,
 * break, continue, return, goto) joins. */
#define WEFT_SCOPE(...) WEFT__SCOPE(__VA_ARGS__, )
#define WEFT__SCOPE(s, ...)                                                                                                    \
    for (weft_scope s __attribute__((cleanup(weft_scope_leave))),                                                              \
         *weft__##s = weft_scope_enter(&s, &(weft_scope_opts){.weft__unused = 0, __VA_ARGS__});                                \
         weft__##s; weft__##s = NULL)
#endif
#endif
#endif
