/* SPDX-License-Identifier: MIT */
#include "context/sanitize.h"

#include <pthread.h>

weft__bounds weft__san_thread(void) {
    weft__bounds b = {NULL, 0, NULL};
#ifdef WEFT_ASAN
    pthread_attr_t attr;
    if (pthread_getattr_np(pthread_self(), &attr) == 0) {
        void *low;
        if (pthread_attr_getstack(&attr, &low, &b.size) == 0) b.low = low;
        pthread_attr_destroy(&attr);
    }
#endif
#ifdef WEFT_TSAN
    b.fiber = __tsan_get_current_fiber();
#endif
    return b;
}

#ifdef WEFT_TSAN
WEFT_NO_TSAN void weft__san_quiet_begin(bool *quiet) {
    if (!weft__san_tasks || *quiet) return;
    *quiet = true;
    weft__san_unchecked_begin();
}

WEFT_NO_TSAN void weft__san_quiet_end(bool *quiet) {
    if (!*quiet) return;
    *quiet = false;
    weft__san_unchecked_end();
}

WEFT_NO_TSAN void weft__san_start(weft__stack *s, bool *quiet, void *worker, void *key, _Atomic uint64_t *id) {
    if (!weft__san_tasks) return;
    if (__tsan_get_current_fiber() != worker) __tsan_switch_to_fiber(worker, __tsan_switch_to_fiber_no_sync);
    __tsan_switch_to_fiber(weft__san_stack(s).fiber, __tsan_switch_to_fiber_no_sync);
    weft__san_quiet_begin(quiet);
    __tsan_acquire(id);  /* pairs with weft__san_publish */
    __tsan_acquire(key); /* of the worker */
}
#endif

void weft__san_fiber_drop(void *fiber) {
#ifdef WEFT_TSAN
    __tsan_destroy_fiber(fiber);
#endif
    (void)fiber;
}
