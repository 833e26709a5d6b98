/* SPDX-License-Identifier: MIT */
/* Starting and stopping the runtime. There is one runtime in a process; it can be started again after it has stopped. */
#ifndef WEFT_RUNTIME_H
#define WEFT_RUNTIME_H

#include <weft/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a task runs. Zero or positive is success, negative is an error that whoever joins it sees. */
typedef int weft_fn(void *arg);

struct weft_panic_info;

/* weft_config.flags */
enum {
    WEFT_PANIC_ABORT = 1u << 0, /* a panic that no weft_try contains aborts the process, where it happens */
    WEFT_LOCK_CHECK =
        1u << 1 /* whoever waits while it holds a lock is reported on stderr; also with WEFT_LOCK_CHECK=1 in the environment */
};

/* All zero is the default of everything. */
typedef struct weft_config {
    int workers;       /* slots: tasks that run at the same time; 0 = the CPUs this process may use (mask and cgroup) */
    size_t stack_size; /* reserve of a task's stack in bytes; 0 = 256 KiB; committed only as far as it is touched */
    int max_threads;   /* worker threads at most, those in long C calls included; 0 = 10,000 */
    int64_t search;    /* nanoseconds an idle worker looks for work before it sleeps; 0 = 20 us; negative: not at all, and
                          locks go to the kernel instead of spinning (strict zero-spin) */
    int64_t
        slice; /* nanoseconds a task may run while others wait; at its next call into the runtime after that it steps back for
                          them; 0 = 10 ms */
    unsigned flags; /* WEFT_PANIC_ABORT, WEFT_LOCK_CHECK */
    /* A panic that no weft_try contains, before anything is unwound; instead of the report on stderr (weft_panic_report). Runs on the
     * panicking task; if it panics itself, the process aborts. */
    void (*on_panic)(const struct weft_panic_info *info, void *hook_arg);
    /* A task of weft_go ended with an error, WEFT_EPANIC included; not with the WEFT_ECANCELED of a runtime that stops. Runs on that task, last
     * of all; the name is "" if it has none. Without it, errors of detached tasks are lost; their panics are reported all the same. */
    void (*on_task_error)(uint64_t id, const char *name, int result, void *hook_arg);
    void *hook_arg;
} weft_config;

/* Starts the runtime, runs main(arg) as its first task, and stops it again: when main returns, the root scope is cancelled
 * and joined. Returns main's result, or WEFT_EALREADY if a runtime runs, WEFT_EINVAL for a configuration that cannot be
 * (said on stderr with the value), WEFT_ENOMEM, or -errno. */
WEFT_API int weft_run(weft_fn *main, void *arg, const weft_config *cfg);

/* Starts the runtime beside an existing main. Errors as weft_run. */
WEFT_API int weft_start(const weft_config *cfg);
/* Cancels the root scope and waits for all tasks and worker threads to end. WEFT_ETIMEDOUT: some task is still running (a
 * C call that does not return, say); the runtime stays stopping, and weft_stop may be called again. WEFT_ETERMINATED: no
 * runtime runs. WEFT_EINVAL: called from a task. */
WEFT_API int weft_stop(weft_deadline deadline);

/* From a plain thread: runs fn(arg) as a task, waits for it and returns its result. From a task: calls it.
 * WEFT_ETERMINATED without a runtime. */
WEFT_API int weft_block_on(weft_fn *fn, void *arg);

#ifdef __cplusplus
}
#endif
#endif
