/* SPDX-License-Identifier: MIT */
/* AArch64, AAPCS64. Layout of a saved context, from its stack pointer upwards: FPCR (8 bytes) and 8 unused, d8 to d15, x19 to
 * x28, x29, return address: 176 bytes, so that the stack pointer stays aligned to 16. The CFI lets debuggers unwind a running
 * task through these functions; at a task's first frame the return address is marked undefined, so that every backtrace ends
 * there.
 *
 * FPCR is written only if it changes: reading it is cheap, while writing it makes many cores drain their pipeline. Of the
 * vector registers the ABI keeps the low halves of v8 to v15 only, with SVE as well. FPSR (what has happened so far) belongs to
 * nobody. x18 is the platform's; Linux does not use it.
 *
 * With branch protection (-mbranch-protection) the functions are landing pads, and the return address is signed for the stack
 * pointer that it will be used with; the keys are the process's, so any thread can check it. */

#if defined(__ARM_FEATURE_BTI_DEFAULT) && __ARM_FEATURE_BTI_DEFAULT
#define HAS_BTI 1
#else
#define HAS_BTI 0
#endif
#if defined(__ARM_FEATURE_PAC_DEFAULT) && __ARM_FEATURE_PAC_DEFAULT
#define HAS_PAC 1
#else
#define HAS_PAC 0
#endif

#define SIZE 176
#define FP_CONTROL 0
#define VECTORS 16
#define REGISTERS 80
#define FRAME 160

        .section .text.hot, "ax", %progbits

        .macro landing
#if HAS_PAC
        hint #25                        /* paciasp: a landing pad, too */
        .cfi_negate_ra_state
#elif HAS_BTI
        hint #34                        /* bti c */
#endif
        .endm

        .macro pair first, second, at
        stp \first, \second, [sp, #\at]
        .cfi_rel_offset \first, \at
        .cfi_rel_offset \second, \at + 8
        .endm

        .macro save_context             /* leaves the FPCR in x9 */
        landing
        sub sp, sp, #SIZE
        .cfi_adjust_cfa_offset SIZE
        pair x29, x30, FRAME
        pair x19, x20, REGISTERS
        pair x21, x22, REGISTERS + 16
        pair x23, x24, REGISTERS + 32
        pair x25, x26, REGISTERS + 48
        pair x27, x28, REGISTERS + 64
        pair d8, d9, VECTORS
        pair d10, d11, VECTORS + 16
        pair d12, d13, VECTORS + 32
        pair d14, d15, VECTORS + 48
        mrs x9, fpcr
        str x9, [sp, #FP_CONTROL]
        mov x10, sp
        str x10, [x0]
        .endm

        .macro restore_context          /* the FPCR is in x9 */
        ldr x10, [sp, #FP_CONTROL]
        cmp x9, x10
        b.eq 1f
        msr fpcr, x10
1:      ldp d14, d15, [sp, #VECTORS + 48]
        ldp d12, d13, [sp, #VECTORS + 32]
        ldp d10, d11, [sp, #VECTORS + 16]
        ldp d8, d9, [sp, #VECTORS]
        ldp x27, x28, [sp, #REGISTERS + 64]
        ldp x25, x26, [sp, #REGISTERS + 48]
        ldp x23, x24, [sp, #REGISTERS + 32]
        ldp x21, x22, [sp, #REGISTERS + 16]
        ldp x19, x20, [sp, #REGISTERS]
        ldp x29, x30, [sp, #FRAME]
        add sp, sp, #SIZE
        .cfi_adjust_cfa_offset -SIZE
        .irp r, x19, x20, x21, x22, x23, x24, x25, x26, x27, x28, x29, x30
        .cfi_restore \r
        .endr
        .irp r, d8, d9, d10, d11, d12, d13, d14, d15
        .cfi_restore \r
        .endr
#if HAS_PAC
        hint #29                        /* autiasp */
        .cfi_negate_ra_state
#endif
        ret
        .endm

        .globl weft__ctx_swap
        .hidden weft__ctx_swap
        .type weft__ctx_swap, %function
        .p2align 5
weft__ctx_swap:                         /* x0 = void **save, x1 = void *to */
        .cfi_startproc
        save_context
        mov sp, x1
        restore_context
        .cfi_endproc
        .size weft__ctx_swap, .-weft__ctx_swap

        .globl weft__ctx_start
        .hidden weft__ctx_start
        .type weft__ctx_start, %function
        .p2align 5
weft__ctx_start:                        /* x0 = void **save, x1 = top of an empty stack */
        .cfi_startproc
        save_context
        mov sp, x1
        mov x29, xzr                    /* frame-pointer chains end here */
        .cfi_remember_state
        .cfi_undefined x30              /* and so does the unwinder */
        bl weft__task_main
        .cfi_restore_state
        mrs x9, fpcr
        mov sp, x0
        restore_context
        .cfi_endproc
        .size weft__ctx_start, .-weft__ctx_start

#if HAS_BTI || HAS_PAC
        .section .note.gnu.property, "a"
        .p2align 3
        .word 4, 16, 5                  /* name, description, NT_GNU_PROPERTY_TYPE_0 */
        .asciz "GNU"
        .word 0xc0000000, 4             /* GNU_PROPERTY_AARCH64_FEATURE_1_AND */
        .word HAS_BTI | HAS_PAC << 1, 0
#endif
        .section .note.GNU-stack, "", %progbits
