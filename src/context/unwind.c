/* SPDX-License-Identifier: MIT */
#include "context/unwind.h"

#include "os/os.h"

#ifdef WEFT_TSAN
#include <setjmp.h>
#endif

static _Unwind_Reason_Code boundary(_Unwind_Action actions, struct _Unwind_Exception *e, struct _Unwind_Context *ctx,
                                    bool in_try) {
    if (actions & _UA_FORCE_UNWIND) weft__die("a task ended the thread it runs on (pthread_exit or pthread_cancel)");
    if (actions & _UA_SEARCH_PHASE) {
        weft__unwind_caught(e, in_try);
        return _URC_HANDLER_FOUND;
    }
    if (!(actions & _UA_HANDLER_FRAME)) return _URC_CONTINUE_UNWIND;
    weft__unwind_landed(e, in_try);
    _Unwind_SetGR(ctx, __builtin_eh_return_data_regno(0), (_Unwind_Word)WEFT_EPANIC); /* where a result is returned, too */
    return _URC_INSTALL_CONTEXT;                                                      /* behind the call */
}

#define PERSONALITY(name, in_try)                                                                                              \
    __attribute__((used, visibility("hidden"))) _Unwind_Reason_Code name(                                                      \
        int version, _Unwind_Action actions, _Unwind_Exception_Class class, struct _Unwind_Exception *e,                       \
        struct _Unwind_Context *ctx);                                                                                          \
    _Unwind_Reason_Code name(int version, _Unwind_Action actions, _Unwind_Exception_Class class, struct _Unwind_Exception *e,  \
                             struct _Unwind_Context *ctx) {                                                                    \
        (void)class;                                                                                                           \
        return version == 1 ? boundary(actions, e, ctx, in_try) : _URC_FATAL_PHASE1_ERROR;                                     \
    }
PERSONALITY(weft__task_personality, false)
PERSONALITY(weft__try_personality, true)

#ifdef WEFT_TSAN
/* ThreadSanitizer counts the frames of C functions, and the unwinder does not tell it that they are gone; longjmp does. */
#define CALL(fn, arg, personality)                                                                                             \
    do {                                                                                                                       \
        jmp_buf here;                                                                                                          \
        if (setjmp(here)) return WEFT_EPANIC;                                                                                  \
        WEFT_BOUNDARY(personality);                                                                                            \
        int result = fn(arg);                                                                                                  \
        if (result == WEFT_EPANIC) longjmp(here, 1);                                                                           \
        return result;                                                                                                         \
    } while (0)

WEFT_NOINLINE int weft__call_tsan(weft_fn *fn, void *arg) {
    CALL(fn, arg, weft__task_personality);
}
WEFT_NOINLINE int weft__call_try(weft_fn *fn, void *arg) {
    CALL(fn, arg, weft__try_personality);
}
#else
WEFT_NOINLINE int weft__call_try(weft_fn *fn, void *arg) {
    __asm__("" : "+r"(fn)); /* not known to the compiler, not even at link time */
    WEFT_BOUNDARY(weft__try_personality);
    int result = fn(arg);
    __asm__ volatile("" ::: "memory"); /* not a jump to fn: this frame is the boundary */
    return result;
}
#endif

void weft__unwind_raise(struct _Unwind_Exception *exception) {
    if (weft__os_can_unwind()) (void)_Unwind_RaiseException(exception);
}

/* ---- backtraces ---- */

typedef struct {
    void **frames;
    int n, max;
    bool (*first)(void *pc, void *arg);
    void *arg;
    bool found;
} walk;

static _Unwind_Reason_Code step(struct _Unwind_Context *ctx, void *arg) {
    walk *w = arg;
    void *pc = (void *)_Unwind_GetIP(ctx);
    if (!pc) return _URC_END_OF_STACK;
    if (!w->found && w->first(pc, w->arg)) {
        w->found = true;
        w->n = 0;
    }
    if (w->n < w->max) w->frames[w->n++] = pc;
    return w->found && w->n == w->max ? _URC_END_OF_STACK : _URC_NO_REASON;
}

int weft__unwind_backtrace(void **frames, int max, bool (*first)(void *pc, void *arg), void *arg) {
    walk w = {.frames = frames, .max = max, .first = first, .arg = arg};
    if (weft__os_can_unwind()) _Unwind_Backtrace(step, &w);
    return w.n;
}

void __cxa_throw(void) __attribute__((weak));
void __cxa_rethrow(void) __attribute__((weak));

bool weft__unwind_is_throw(void *pc) {
    uintptr_t f =
        (uintptr_t)_Unwind_FindEnclosingFunction((char *)pc - 1); /* -1: a call that does not return may be a function's last */
    return f && (f == (uintptr_t)_Unwind_RaiseException || f == (uintptr_t)_Unwind_Resume_or_Rethrow ||
                 f == (uintptr_t)__cxa_throw || f == (uintptr_t)__cxa_rethrow);
}
