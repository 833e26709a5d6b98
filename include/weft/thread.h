/* SPDX-License-Identifier: MIT */
/* OS threads: tasks that have one of their own, 1:1 threads beside the tasks, and threads of the program's that serve as workers for a time. */
#ifndef WEFT_THREAD_H
#define WEFT_THREAD_H

#include <weft/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- bound tasks ---- */

/* Gives the calling task an OS thread of its own, for libraries that are tied to a thread (graphics contexts, thread-local state): until
 * weft_unbind, or its end, it runs on that thread, and nobody else does. It waits, sends and receives like any task. They nest. At
 * most weft_config.bound_threads_max tasks are bound; when so many are, it waits for one to be so no more. The next tasks that are spawned where the
 * caller was, with its function, start on a thread of their own if one is to be had at once, until one of them ends without having called it;
 * their binds and unbinds work as always. On a plain thread: nothing.
 * WEFT_ETIMEDOUT, WEFT_ECANCELED, WEFT_EAGAIN; WEFT_EINVAL: the task is pinned; WEFT_ENOMEM, -errno: no thread could be started. */
WEFT_API int weft_bind(weft_deadline deadline);
/* Back to the workers' threads. Aborts if the task is not bound. */
WEFT_API void weft_unbind(void);

/* ---- 1:1 threads ---- */

typedef struct weft_thread weft_thread;

typedef struct weft_thread_opts {
    const char *name;  /* the first 15 characters are the thread's name for the kernel */
    size_t stack_size; /* 0 = the system's default */
    int cpu;           /* 1 + the CPU it stays on; 0 = any */
    int realtime;      /* SCHED_FIFO with this priority, 1 to 99; 0 = as usual. Threads that it starts are not */
} weft_thread_opts;

/* Starts fn(arg) on an OS thread of its own, with or without a runtime. It uses channels, scopes, joins and sleeps as tasks do; what waits
 * there blocks the thread. A panic ends it with WEFT_EPANIC. Must be joined. WEFT_ENOMEM; WEFT_EINVAL: an option is wrong; -EPERM: the process has no
 * right to .realtime; -errno. */
WEFT_API int weft_thread_start(weft_thread **out, weft_fn *fn, void *arg, const weft_thread_opts *opts);
/* Waits for its end; *result (if not NULL) is what its function returned. On success the handle is gone, and so is the thread. From a task or
 * a thread. WEFT_ETIMEDOUT, WEFT_ECANCELED, WEFT_EAGAIN: the handle is still good. WEFT_EDEADLOCK: a thread that joins itself. */
WEFT_API int weft_thread_join(weft_thread *t, int *result, weft_deadline deadline);

/* The kernel's number (gettid) of the thread that the caller runs on: as top, gdb and weft's own reports show it. A task may be on another thread
 * after each call that may wait, unless it is pinned or bound. */
WEFT_API uint64_t weft_thread_id(void);

/* ---- threads that serve as workers ---- */

typedef struct weft_worker weft_worker;

/* The calling thread serves as a worker: it runs tasks, until weft_worker_release or the end of the runtime. *out is set before it begins.
 * 0: it was released. WEFT_ETERMINATED: the runtime has stopped, or none runs. WEFT_EINVAL: called by a task. WEFT_ELIMIT: there
 * are as many workers as there may be. WEFT_ENOMEM. */
WEFT_API int weft_thread_attach(weft_worker **out);
/* Lets it go, from any thread or task, once: weft_thread_attach returns as soon as the task that it runs calls the runtime. Its tasks go on
 * elsewhere; those that are pinned to it are waited for, until they are unpinned. A runtime that stops lets it go by itself: then,
 * and until another is started, this does nothing. */
WEFT_API void weft_worker_release(weft_worker *w);

#ifdef __cplusplus
}
#endif
#endif
