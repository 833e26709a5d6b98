/* SPDX-License-Identifier: MIT */
/* The C library declares __errno_location const, so a compiler may keep its result across a call in which the task moved to
 * another thread, and then reads or writes the errno of somebody else. This accessor is opaque: not const, not inlined, and
 * the asm keeps link-time optimisation from finding out that it could be. */
#ifndef WEFT_KEEP_ERRNO
#define WEFT_KEEP_ERRNO
#endif
#include "base/base.h"

#include <errno.h>

WEFT_API WEFT_NOINLINE int *weft_errno_location(void) {
    __asm__ volatile("" ::: "memory");
    int *where = &errno;
    __asm__ volatile("" : "+r"(where)::"memory");
    return where;
}
