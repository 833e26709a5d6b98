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
    WEFT_STACK_MEASURE =
        1u << 0, /* remember how deep the stacks of each spawn site's tasks become: weft_stack_sites in debug.h. Slower */
    WEFT_STACK_REPORT = 1u << 1,  /* measure, and print the result when the runtime stops or the process exits */
    WEFT_STACK_ADVISED = 1u << 2, /* measure, and give later tasks of a spawn site a stack of the size that is advised for it */
    WEFT_PANIC_ABORT = 1u << 3,   /* a panic that no weft_try contains aborts the process, where it happens */
    WEFT_PIN_WORKERS =
        1u << 4, /* a slot is a CPU: whoever holds it runs there only; slots steal from those of their NUMA node first */
    WEFT_LOCK_CHECK =
        1u << 5 /* whoever waits while it holds a lock is reported on stderr, once for each place: sync.h. Slower */
};

/* All zero is the default of everything. Each field has a variable in the environment (WEFT_WORKERS, WEFT_STACK_SIZE, …; a flag
 * has one of its own name), which counts where the field is zero: the table is in docs/guide/embedding.md. */
typedef struct weft_config {
    int workers;       /* slots: tasks that run at the same time; 0 = the CPUs this process may use (mask and cgroup) */
    size_t stack_size; /* reserve of a task's stack in bytes; 0 = 256 KiB; committed only as far as it is touched */
    int max_threads;   /* worker threads at most, those in long C calls included; 0 = 10,000 */
    int64_t search; /* nanoseconds an idle worker looks for work before it sleeps, at most; 0 = 20 us; negative: not at all, and
                          locks go to the kernel instead of spinning (strict zero-spin). Where it is 0, WEFT_SEARCH in the environment */
    int64_t
        slice; /* nanoseconds a task may run while others wait; at its next call into the runtime after that it steps back for
                          them; 0 = 10 ms */
    int bound_threads_max; /* tasks that are bound at most (weft_bind), each with a thread; 0 = 1,000 */
    int block_threads_max; /* threads of the blocking pool at most (weft_block); 0 = 512 */
    int64_t block_idle;    /* nanoseconds after which one of them that has nothing to do ends; 0 = 60 s */
    unsigned flags;        /* WEFT_STACK_…, WEFT_PANIC_ABORT and the others above */
    /* A panic that no weft_try contains, before anything is unwound; instead of the report on stderr (weft_panic_report). Runs on the
     * panicking task, or on the panicking plain thread (in a deferred function, say; info->task is 0): it must not call weft_stop there, which
     * waits for it. If it panics itself, the process aborts. */
    void (*on_panic)(const struct weft_panic_info *info, void *hook_arg);
    /* A task of weft_go ended with an error, WEFT_EPANIC included; not with the WEFT_ECANCELED of a runtime that stops. Runs on that task, last
     * of all; the name is "" if it has none. Without it, errors of detached tasks are lost; their panics are reported all the same. */
    void (*on_task_error)(uint64_t id, const char *name, int result, void *hook_arg);
    void *hook_arg;
} weft_config;

/* Starts the runtime, runs main(arg) as its first task, and stops it again: when main returns, the root scope is cancelled
 * and joined. Returns main's result, or WEFT_EALREADY if a runtime runs, WEFT_EINVAL for a configuration that cannot be, in *cfg or
 * in the environment (said on stderr with the value), WEFT_ENOMEM, or -errno. */
WEFT_API int weft_run(weft_fn *main, void *arg, const weft_config *cfg);

/* What the function of WEFT_MAIN gets as its argument. */
typedef struct weft_args {
    int argc;
    char **argv;
} weft_args;

/* WEFT_MAIN(fn), at file scope and without a semicolon: main(), which runs fn(arg) by weft_run, with the configuration from the
 * environment. `arg` points to a weft_args. The process ends with fn's result (at most 255); a negative one is said on stderr, and
 * gives 1. */
#define WEFT_MAIN(fn)                                                                                                          \
    int main(int argc, char **argv) {                                                                                          \
        return weft_main((fn), argc, argv);                                                                                    \
    }
/* What WEFT_MAIN calls. */
WEFT_API int weft_main(weft_fn *fn, int argc, char **argv);

/* Starts the runtime beside an existing main. Errors as weft_run. */
WEFT_API int weft_start(const weft_config *cfg);
/* Cancels the root scope and waits for all tasks and worker threads to end. Scopes that plain threads have open are cancelled, and stay so.
 * WEFT_ETIMEDOUT: some task is still running (a C call that does not return, say); the runtime stays stopping, and weft_stop may be
 * called again. WEFT_ETERMINATED: no runtime runs. WEFT_EINVAL: called from a task. */
WEFT_API int weft_stop(weft_deadline deadline);

/* How many tasks run at the same time: the slots of the runtime (weft_config.workers, or what was chosen for 0). From anywhere. 0: no runtime
 * runs. */
WEFT_API int weft_workers(void);

/* From a plain thread: runs fn(arg) as a task, waits for it and returns its result. From a task: calls it.
 * WEFT_ETERMINATED without a runtime. */
WEFT_API int weft_block_on(weft_fn *fn, void *arg);

#ifdef __cplusplus
}
#endif
#endif
