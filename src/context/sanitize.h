/* SPDX-License-Identifier: MIT */
/* What the sanitizers must be told about a switch of stacks; nothing at all in normal builds.
 *
 * AddressSanitizer: where the stack that we go to lies, announced before the switch and confirmed after it.
 * ThreadSanitizer: one "fiber" for each stack and for each worker's own; switching is announced just before. */
#ifndef WEFT_SRC_SANITIZE_H
#define WEFT_SRC_SANITIZE_H

#include "base/base.h"
#include "stack/stack.h"

#ifdef WEFT_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef WEFT_TSAN
#include <sanitizer/tsan_interface.h>
#endif

/* A function that changes stacks inside must not be instrumented: its entry and its exit would be counted on different ones. */
#ifdef WEFT_TSAN
#define WEFT_NO_TSAN __attribute__((disable_sanitizer_instrumentation))
#else
#define WEFT_NO_TSAN
#endif

/* Where a stack lies: a task's, or a worker thread's own. */
typedef struct weft__bounds {
    const void *low;
    size_t size;
    void *fiber;
} weft__bounds;

/* Before leaving for the stack `to`. `fake` keeps this stack's state; NULL: this stack will not be gone on with. */
WEFT_INLINE void weft__san_leave(void **fake, weft__bounds to) {
#ifdef WEFT_ASAN
    __sanitizer_start_switch_fiber(fake, to.low, to.size);
#endif
#ifdef WEFT_TSAN
    __tsan_switch_to_fiber(to.fiber, 0);
#endif
    (void)fake, (void)to;
}

/* First thing after arriving on a stack. */
WEFT_INLINE void weft__san_arrive(void *fake) {
#ifdef WEFT_ASAN
    __sanitizer_finish_switch_fiber(fake, NULL, NULL);
#endif
    (void)fake;
}

WEFT_INLINE weft__bounds weft__san_stack(weft__stack *s) {
    weft__bounds b = {NULL, 0, NULL};
#if defined(WEFT_ASAN) || defined(WEFT_TSAN)
    b.low = s->low;
    b.size = (size_t)(s->high - s->low);
#ifdef WEFT_TSAN
    if (!s->fiber) s->fiber = __tsan_create_fiber(0);
#endif
    b.fiber = s->fiber;
#endif
    (void)s;
    return b;
}

#ifdef WEFT_TSAN
enum { weft__san_has_fibers = 1 };
#else
enum { weft__san_has_fibers = 0 };
#endif

/* The calling thread's own stack. */
weft__bounds weft__san_thread(void);
void weft__san_fiber_drop(void *fiber);

#endif
