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
/* The control words a task starts with: every exception masked, round to nearest, as the ABI has them at process entry. Written only if they
 * change: that is dear, as x86_64.S and aarch64.S say. */
WEFT_INLINE void weft__ctx_fp_reset(void) {
#if defined(__x86_64__)
    enum { MXCSR = 0x1f80, MXCSR_FLAGS = 0x3f, X87 = 0x037f };
    uint32_t mxcsr;
    uint16_t x87;
    __asm__ volatile("stmxcsr %0\n\tfnstcw %1" : "=m"(mxcsr), "=m"(x87));
    if (unlikely((mxcsr & ~(uint32_t)MXCSR_FLAGS) != MXCSR)) __asm__ volatile("ldmxcsr %0" ::"m"((uint32_t){MXCSR}));
    if (unlikely(x87 != X87)) __asm__ volatile("fldcw %0" ::"m"((uint16_t){X87}));
#else
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    if (unlikely(fpcr)) __asm__ volatile("msr fpcr, xzr");
#endif
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
