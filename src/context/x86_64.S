/* SPDX-License-Identifier: MIT */
/* x86-64, System V ABI. Layout of a saved context, from its stack pointer upwards: mxcsr and x87 control word (8 bytes),
 * r15, r14, r13, r12, rbx, rbp, return address. The CFI lets debuggers unwind a running task through these functions; at
 * a task's first frame the return address is marked undefined, so that every backtrace ends there.
 *
 * The control words are written only if they change: on some CPUs (Intel's) the next look at an mxcsr that was written with another value takes
 * 35 ns. Its flags (what has happened so far) belong to nobody: the ABI keeps the modes only, and flags differ from task to task wherever
 * somebody calculates. Each word is read back with the width it was stored with, else it would have to come from the cache. */

#if defined(__CET__)
#include <cet.h>
#else
#define _CET_ENDBR
#endif

#define MODES 0xffc0                    /* of mxcsr; the rest are flags */

        .section .text.hot, "ax", @progbits

        .macro words_at place           /* mxcsr to ecx, the x87's to edx */
        stmxcsr \place(%rsp)
        fnstcw \place + 4(%rsp)
        mov \place(%rsp), %ecx
        movzwl \place + 4(%rsp), %edx
        .endm

        .macro save_context             /* leaves the control words in ecx and edx */
        push %rbp
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset rbp, 0
        push %rbx
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset rbx, 0
        push %r12
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset r12, 0
        push %r13
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset r13, 0
        push %r14
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset r14, 0
        push %r15
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset r15, 0
        sub $8, %rsp
        .cfi_adjust_cfa_offset 8
        words_at 0
        mov %rsp, (%rdi)
        .endm

        .macro restore_context          /* the control words are in ecx and edx */
        xor (%rsp), %ecx
        test $MODES, %ecx
        je 1f
        ldmxcsr (%rsp)
1:      cmp %dx, 4(%rsp)
        je 2f
        fldcw 4(%rsp)
2:      add $8, %rsp
        .cfi_adjust_cfa_offset -8
        pop %r15
        .cfi_adjust_cfa_offset -8
        .cfi_restore r15
        pop %r14
        .cfi_adjust_cfa_offset -8
        .cfi_restore r14
        pop %r13
        .cfi_adjust_cfa_offset -8
        .cfi_restore r13
        pop %r12
        .cfi_adjust_cfa_offset -8
        .cfi_restore r12
        pop %rbx
        .cfi_adjust_cfa_offset -8
        .cfi_restore rbx
        pop %rbp
        .cfi_adjust_cfa_offset -8
        .cfi_restore rbp
        ret
        .endm

        .globl weft__ctx_swap
        .hidden weft__ctx_swap
        .type weft__ctx_swap, @function
        .p2align 5
weft__ctx_swap:                         /* rdi = void **save, rsi = void *to */
        .cfi_startproc
        _CET_ENDBR
        save_context
        mov %rsi, %rsp
        restore_context
        .cfi_endproc
        .size weft__ctx_swap, .-weft__ctx_swap

        .globl weft__ctx_start
        .hidden weft__ctx_start
        .type weft__ctx_start, @function
        .p2align 5
weft__ctx_start:                        /* rdi = void **save, rsi = top of an empty stack */
        .cfi_startproc
        _CET_ENDBR
        save_context
        mov %rsi, %rsp
        xor %ebp, %ebp                  /* frame-pointer chains end here */
        .cfi_remember_state
        .cfi_undefined rip              /* and so does the unwinder */
        call weft__task_main
        .cfi_restore_state
        words_at -8                     /* below the stack pointer, where signals leave 128 bytes alone */
        mov %rax, %rsp
        restore_context
        .cfi_endproc
        .size weft__ctx_start, .-weft__ctx_start

        .section .note.GNU-stack, "", @progbits
