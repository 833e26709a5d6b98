/* SPDX-License-Identifier: MIT */
/* What the sanitizers must be told about a switch of stacks; nothing at all in normal builds.
 *
 * AddressSanitizer: where the stack that we go to lies, announced before the switch and confirmed after it.
 * ThreadSanitizer: one "fiber" for each stack and for each worker's own; switching is announced just before. What it checks is one of two things.
 *
 * The program (the default). Tasks that share a slot are not ordered by that, so a switch is no synchronisation. But a slot's own data is ordered by
 * nothing else, and TSan must not look at it: a task's accesses are not checked while it is inside the runtime, nor are a worker's on its own
 * stack. Atomics are still seen, and with them what locks order. What only the slot orders is told to TSan:
 *
 *     spawn -> start            through the record's id: weft__san_publish, weft__san_start
 *     wake -> go on             through the task: weft__san_woken, weft__san_resumed
 *     park -> the waker         likewise: weft__san_parks, weft__san_woken
 *     lock -> park -> unlock    the next context releases the lock behind a task that parks. The task has passed on what it did, by weft__san_parks; the
 *                               next context has no part in it: what it does in `post` orders nothing
 *
 * Tasks do not run inside each other then, no lock leans, and a stack is used again only behind COOLING others (stack/slab.c): two tasks on one stack are
 * ordered, because they are one fiber.
 *
 * The library itself (WEFT_TSAN_INSIDE=1 in the environment: its own tests). A switch counts as synchronisation, and every access is checked. */
#ifndef WEFT_SRC_SANITIZE_H
#define WEFT_SRC_SANITIZE_H

#include "base/base.h"
#include "os/os.h"
#include "stack/stack.h"

#ifdef WEFT_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef WEFT_TSAN
#include <sanitizer/tsan_interface.h>
void AnnotateIgnoreSyncBegin(const char *file, int line); /* of TSan */
void AnnotateIgnoreSyncEnd(const char *file, int line);
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
    if (!weft__san_tasks)
        __tsan_switch_to_fiber(to.fiber, 0);
    else if (to.fiber != __tsan_get_current_fiber())
        __tsan_switch_to_fiber(to.fiber, __tsan_switch_to_fiber_no_sync);
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

/* From here on (to the end) TSan does not check what the calling stack does. `quiet` is that stack's. */
#ifdef WEFT_TSAN
void weft__san_quiet_begin(bool *quiet);
void weft__san_quiet_end(bool *quiet);
#else
WEFT_INLINE void weft__san_quiet_begin(bool *quiet) {
    (void)quiet;
}
WEFT_INLINE void weft__san_quiet_end(bool *quiet) {
    (void)quiet;
}
#endif

/* What the caller has done is ordered before what is done behind weft__san_acquire of the same key. */
WEFT_INLINE void weft__san_release(void *key) {
#ifdef WEFT_TSAN
    if (weft__san_tasks) __tsan_release(key);
#endif
    (void)key;
}
WEFT_INLINE void weft__san_acquire(void *key) {
#ifdef WEFT_TSAN
    if (weft__san_tasks) __tsan_acquire(key);
#endif
    (void)key;
}
/* The same, but forgets what was released there before. The word has been written, and is not published yet. */
WEFT_INLINE void weft__san_publish(_Atomic uint64_t *word) {
#ifdef WEFT_TSAN
    weft__store(word, weft__load(word, relaxed), release); /* pairs with weft__san_start */
#endif
    (void)word;
}

/* Between these nothing is ordered by what the caller does. */
WEFT_INLINE void weft__san_post_begin(void) {
#ifdef WEFT_TSAN
    if (weft__san_tasks) AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
#endif
}
WEFT_INLINE void weft__san_post_end(void) {
#ifdef WEFT_TSAN
    if (weft__san_tasks) AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
#endif
}

/* Goes over to the stack's fiber, which is about to start the task whose record has the id; made from the worker's own, so that it is not ordered
 * behind the task that is left. */
#ifdef WEFT_TSAN
void weft__san_start(weft__stack *s, bool *quiet, void *worker, void *key, _Atomic uint64_t *id);
#else
WEFT_INLINE void weft__san_start(weft__stack *s, bool *quiet, void *worker, void *key, _Atomic uint64_t *id) {
    (void)s, (void)quiet, (void)worker, (void)key, (void)id;
}
#endif

#ifdef WEFT_TSAN
enum { weft__san_has_fibers = 1 };
#else
enum { weft__san_has_fibers = 0 };
#endif

/* The calling thread's own stack. */
weft__bounds weft__san_thread(void);
void weft__san_fiber_drop(void *fiber);

#endif
