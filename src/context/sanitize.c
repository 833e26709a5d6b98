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

void weft__san_fiber_drop(void *fiber) {
#ifdef WEFT_TSAN
    __tsan_destroy_fiber(fiber);
#endif
    (void)fiber;
}
