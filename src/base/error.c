/* SPDX-License-Identifier: MIT */
#define WEFT_KEEP_ERRNO
#include <stdio.h>

#include "base/base.h"

#define TEXT(n) #n
#define VERSION(a, b, c) TEXT(a) "." TEXT(b) "." TEXT(c)

const char *weft_version(void) {
    return VERSION(WEFT_VERSION_MAJOR, WEFT_VERSION_MINOR, WEFT_VERSION_PATCH);
}

/* Static strings: glibc's strerror may overwrite what it returned before, musl's does not. */
static const char *system_text(int number) {
#if defined(__GLIBC__)
    return strerrordesc_np(number);
#else
    return strerror(number);
#endif
}

const char *weft_strerror(int err) {
    switch (err) {
    case WEFT_ECANCELED:
        return "the scope was cancelled";
    case WEFT_ETIMEDOUT:
        return "the deadline has passed";
    case WEFT_EAGAIN:
        return "it cannot be done now";
    case WEFT_ECLOSED:
        return "the channel or descriptor is closed";
    case WEFT_EEOF:
        return "the stream ended too early";
    case WEFT_ESTALE:
        return "late, forged or recycled";
    case WEFT_EOVERLOADED:
        return "above the high-water mark";
    case WEFT_ETERMINATED:
        return "the runtime is not running, or the scope is ending";
    case WEFT_EALREADY:
        return "done before, or running already";
    case WEFT_EREENTRANT:
        return "called from inside itself";
    case WEFT_EDEADLOCK:
        return "it would wait for ever";
    case WEFT_EPANIC:
        return "the task panicked";
    case WEFT_ELIMIT:
        return "a configured limit is reached";
    case WEFT_EBROKEN:
        return "broken by an earlier error";
    case WEFT_ENOMEM:
        return "out of memory, address space or threads";
    case WEFT_EINVAL:
        return "an argument is wrong";
    case WEFT_ENOHOST:
        return "there is no host of that name";
    default:
        break;
    }
    if (err >= 0) return "success";
    const char *text = err > -4096 ? system_text(-err) : NULL;
    return text ? text : "unknown error";
}
