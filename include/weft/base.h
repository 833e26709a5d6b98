/* SPDX-License-Identifier: MIT */
/* Deadlines, durations and errors: what every other header of weft builds on.
 *
 * Return values: 0 or positive is success, negative is an error. An error is either -errno as the kernel gave it, or one
 * of the WEFT_E… codes below, which lie in a range of their own so that a kernel time-out and a deadline of yours are
 * told apart. weft never reports through errno. */
#ifndef WEFT_BASE_H
#define WEFT_BASE_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if !defined(WEFT_API) && defined(__GNUC__)
#define WEFT_API __attribute__((visibility("default")))
#elif !defined(WEFT_API)
#define WEFT_API
#endif
#if defined(__GNUC__)
#define WEFT_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))
#define WEFT_MUST_USE __attribute__((warn_unused_result))
#else
#define WEFT_PRINTF(fmt, first)
#define WEFT_MUST_USE
#endif

/* A pointer to a value, which need not have an address of its own. */
#if defined(__GNUC__)
#define WEFT__COPY_OF(...) ((const __typeof__(__VA_ARGS__)[]){__VA_ARGS__})
#else
#define WEFT__COPY_OF(...) (&(__VA_ARGS__))
#endif

#define WEFT_VERSION_MAJOR 0
#define WEFT_VERSION_MINOR 1
#define WEFT_VERSION_PATCH 0

/* Durations, in nanoseconds. */
#define WEFT_US INT64_C(1000)
#define WEFT_MS INT64_C(1000000)
#define WEFT_SECOND INT64_C(1000000000)

/* A moment on the monotonic clock. A type of its own, so that a duration cannot be passed by mistake. */
typedef struct {
    int64_t ns;
} weft_deadline;

static inline weft_deadline weft__deadline(int64_t ns) {
    weft_deadline d;
    d.ns = ns;
    return d;
}

/* One rule for every function that takes a deadline. In a cancelled scope it fails with
 * WEFT_ECANCELED before it tries, also if the deadline has passed. WEFT_POLL is the exception: what
 * can be done at once is done, in a cancelled scope too. What cannot gives WEFT_ECANCELED there, and
 * WEFT_EAGAIN elsewhere. Outside a cancelled scope a deadline that has passed still tries once.
 * For weft_scope_wait the scope that it waits for does not count; the others that the caller is in do. */
#define WEFT_FOREVER (weft__deadline(0))      /* wait as long as it takes */
#define WEFT_POLL (weft__deadline(INT64_MIN)) /* try once, never park */

/* The monotonic clock, in nanoseconds. */
WEFT_API int64_t weft_now(void);
/* The moment `duration` nanoseconds from now; zero or negative: now. Saturates instead of overflowing. */
WEFT_API weft_deadline weft_after(int64_t duration);
/* The moment `monotonic_ns` on weft_now's clock; zero or negative: a moment that has passed. */
WEFT_API weft_deadline weft_at(int64_t monotonic_ns);

enum {
    WEFT_ECANCELED = -5001,   /* the scope was cancelled, or its deadline passed; weft_cancel_cause says which */
    WEFT_ETIMEDOUT = -5002,   /* the operation's own deadline passed */
    WEFT_EAGAIN = -5003,      /* WEFT_POLL, it cannot be done now, and the scope is not cancelled */
    WEFT_ECLOSED = -5004,     /* the channel or descriptor is closed */
    WEFT_EEOF = -5005,        /* the stream ended before everything asked for had come */
    WEFT_ESTALE = -5006,      /* late, forged or recycled */
    WEFT_EOVERLOADED = -5007, /* above its high-water mark */
    WEFT_ETERMINATED = -5008, /* the runtime is not running, or stopping; or the scope is ending */
    WEFT_EALREADY = -5009,    /* done before, or running already */
    WEFT_EREENTRANT = -5010,  /* called from inside itself */
    WEFT_EDEADLOCK = -5011,   /* would wait for ever */
    WEFT_EPANIC = -5012,      /* the task panicked */
    WEFT_ELIMIT = -5013,      /* a configured limit is reached */
    WEFT_EBROKEN = -5014,     /* broken by an earlier error */
    WEFT_ENOMEM = -5015,      /* out of memory, address space or threads */
    WEFT_EINVAL = -5016,      /* an argument is wrong */
    WEFT_ENOHOST = -5017      /* there is no host of that name */
};

/* One sentence about an error: a WEFT_E… code or -errno. Never NULL; the string lives for ever. */
WEFT_API const char *weft_strerror(int err);
/* The version of the library, "0.1.0"; WEFT_VERSION_… are those of the header. */
WEFT_API const char *weft_version(void);

/* errno of the thread that this task runs on now. glibc promises the compiler that errno's address never changes within
 * a function, which is wrong for a task that parks and goes on on another thread; so errno is redefined here.
 * The runtime keeps its value per task. Define WEFT_KEEP_ERRNO before including weft to keep the C library's macro. */
WEFT_API int *weft_errno_location(void);
#ifndef WEFT_KEEP_ERRNO
#undef errno
#define errno (*weft_errno_location())
#endif

#ifdef __cplusplus
}
#endif
#endif
