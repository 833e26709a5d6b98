/* SPDX-License-Identifier: MIT */
/* Contexts: leaving one stack and going on on another. This header is the contract that each architecture fills in.
 *
 * A saved context is a stack pointer; the callee-saved registers and the floating-point control words (the ABI makes them
 * callee-saved too) lie on the stack above it. Signals may arrive at any instruction: there is always a valid stack under
 * the stack pointer, and no signal mask is touched.
 *
 * The return predictor decides what a switch costs. weft__ctx_swap ends in `ret` and is called from one place only, so that
 * the address it returns to is the predicted one; a fresh task is started by a `call` (weft__ctx_start), never by returning
 * into a made-up frame, and its main function *returns* the context to go on with. (Measured: a fabricated frame costs spawn
 * and join twice as much.)
 *
 * Rejected: ucontext (a system call for the signal mask, 320 ns), fxsave (120 ns). */
#ifndef WEFT_SRC_CONTEXT_H
#define WEFT_SRC_CONTEXT_H

#include "base/base.h"

/* Saves this context in *save and goes on with `to`. Returns when somebody goes on with *save. */
void weft__ctx_swap(void **save, void *to);
/* Saves this context in *save and calls weft__task_main on the stack that ends at `top` (16-byte aligned); when that
 * returns a context, goes on with it. Returns when somebody goes on with *save. */
void weft__ctx_start(void **save, void *top);

/* ---- floating-point modes: the control words without the flags that tell what has happened ---- */

#if defined(__x86_64__)
typedef struct {
    uint32_t mxcsr;
    uint16_t x87; /* at 4 */
} weft__fp;
enum { WEFT_MXCSR = 0x1f80, WEFT_X87 = 0x037f };
#else
typedef uint64_t weft__fp; /* fpcr; the flags are in another register */
#endif

/* Reads the control words. */
WEFT_INLINE void weft__ctx_fp_get(weft__fp *f) {
#if defined(__x86_64__)
    __asm__ volatile("stmxcsr %0\n\tfnstcw %1" : "=m"(f->mxcsr), "=m"(f->x87));
#else
    __asm__ volatile("mrs %0, fpcr" : "=r"(*f));
#endif
}

/* Sets the modes of *f. Dear where they change, as x86_64.S and aarch64.S say. */
WEFT_INLINE void weft__ctx_fp_set(const weft__fp *f) {
#if defined(__x86_64__)
    __asm__ volatile("ldmxcsr %0\n\tfldcw %1" ::"m"(f->mxcsr), "m"(f->x87));
#else
    __asm__ volatile("msr fpcr, %0" ::"r"(*f));
#endif
}

/* Whether *f has other modes than those a task starts with: every exception masked, round to nearest, as the ABI has them at process entry. */
bool weft__ctx_fp_is_odd(const weft__fp *f);
/* Sets those a task starts with, if *f, which has just been read, has others. */
void weft__ctx_fp_reset_seen(const weft__fp *f);
/* The same, and reads them. */
void weft__ctx_fp_reset(void);

/* Reads the words into the weft__fp that lies `at` bytes, a constant, behind `base`: so no register is taken for its address. `odd` is false if
 * the modes are plain; else there may only be flags, and it has to be looked at. */
#if defined(__x86_64__)
#define WEFT_CTX_FP_GLANCE(odd, base, at)                                                                                      \
    __asm__ volatile("stmxcsr %c2(%1)\n\tfnstcw %c2+4(%1)\n\tcmpl %3, %c2(%1)\n\tjne 1f\n\tcmpw %4, %c2+4(%1)\n1:"             \
                     : "=@ccne"(odd)                                                                                           \
                     : "r"(base), "i"(at), "i"(WEFT_MXCSR), "i"(WEFT_X87)                                                      \
                     : "memory")
#else
#define WEFT_CTX_FP_GLANCE(odd, base, at)                                                                                      \
    do {                                                                                                                       \
        weft__fp *weft__now = (weft__fp *)(void *)((char *)(base) + (at));                                                     \
        weft__ctx_fp_get(weft__now);                                                                                           \
        (odd) = *weft__now != 0;                                                                                               \
    } while (0)
#endif

/* ---- the stack ---- */

/* Whether the stack pointer is not below *limit. */
WEFT_INLINE bool weft__ctx_stack_above(char *const *limit) {
    bool above;
#if defined(__x86_64__)
    __asm__ volatile("cmp %1, %%rsp" : "=@ccae"(above) : "m"(*limit));
#else
    char *sp;
    __asm__ volatile("mov %0, sp" : "=r"(sp));
    above = sp >= *limit;
#endif
    return above;
}
/* About where the stack is now. (Asking the compiler for its frame would make it build one.) */
WEFT_INLINE char *weft__ctx_stack_pointer(void) {
    char *sp;
#if defined(__x86_64__)
    __asm__ volatile("mov %%rsp, %0" : "=r"(sp));
#else
    __asm__ volatile("mov %0, sp" : "=r"(sp));
#endif
    return sp;
}
/* Supplied by the task layer: the life of a stack, from its first task to the last; returns the context to go on with. */
void *weft__task_main(void);

#endif
