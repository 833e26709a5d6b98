/* SPDX-License-Identifier: MIT */
/* What test/unit/context.c knows of AArch64. context_x86_64.h has the same functions. */
#ifndef WEFT_TEST_CONTEXT_AARCH64_H
#define WEFT_TEST_CONTEXT_AARCH64_H

/* Fills the callee-saved registers with functions of `with`, yields, and returns a bit for each one that has changed. */
int yield_with_registers(uint64_t with);
__asm__(".text\n"
        ".type yield_with_registers, %function\n"
        /* n, general register: with + n; vector register d(n): the same bits */
        ".macro test_differs n, r\n"
        "add x9, x0, #\\n\n cmp x9, \\r\n b.eq 1f\n orr w10, w10, #1 << \\n\n 1:\n"
        ".endm\n"
        "yield_with_registers:\n"
        "stp x29, x30, [sp, #-176]!\n"
        "stp x19, x20, [sp, #16]\n stp x21, x22, [sp, #32]\n stp x23, x24, [sp, #48]\n"
        "stp x25, x26, [sp, #64]\n stp x27, x28, [sp, #80]\n"
        "stp d8, d9, [sp, #96]\n stp d10, d11, [sp, #112]\n stp d12, d13, [sp, #128]\n stp d14, d15, [sp, #144]\n"
        "str x0, [sp, #160]\n"
        ".irp n, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29\n add x\\n, x0, #\\n\n .endr\n"
        ".irp n, 8, 9, 10, 11, 12, 13, 14, 15\n add x9, x0, #\\n\n fmov d\\n, x9\n .endr\n"
        "bl weft_yield\n"
        "ldr x0, [sp, #160]\n mov w10, wzr\n"
        ".irp n, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29\n test_differs \\n, x\\n\n .endr\n"
        ".irp n, 8, 9, 10, 11, 12, 13, 14, 15\n fmov x11, d\\n\n test_differs \\n, x11\n .endr\n"
        "mov w0, w10\n"
        "ldp d14, d15, [sp, #144]\n ldp d12, d13, [sp, #128]\n ldp d10, d11, [sp, #112]\n ldp d8, d9, [sp, #96]\n"
        "ldp x27, x28, [sp, #80]\n ldp x25, x26, [sp, #64]\n"
        "ldp x23, x24, [sp, #48]\n ldp x21, x22, [sp, #32]\n ldp x19, x20, [sp, #16]\n"
        "ldp x29, x30, [sp], #176\n"
        "ret\n"
        ".size yield_with_registers, .-yield_with_registers\n");

/* *(int *)arg = the stack pointer's distance from where the ABI wants it (a multiple of 16). */
int entry_alignment(void *arg);
__asm__(".text\n"
        ".globl entry_alignment\n" /* binutils forget the offset of a local symbol whose address goes through the GOT */
        ".type entry_alignment, %function\n"
        "entry_alignment:\n"
        "hint #34\n" /* bti c: it is called through a pointer */
        "mov x9, sp\n and w9, w9, #15\n str w9, [x0]\n mov w0, wzr\n ret\n"
        ".size entry_alignment, .-entry_alignment\n");

/* The floating-point control word; there is only one. */
struct words {
    uint32_t a;
    uint16_t b;
};
static const struct words words_at_start = {0, 0};

static struct words get_words(void) {
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    return (struct words){(uint32_t)fpcr, 0};
}

static void set_words(uint64_t fpcr) { __asm__ volatile("msr fpcr, %0" ::"r"(fpcr)); }

/* Rounding in all four ways, flushing of denormals, default NaNs. */
static struct words choose_words(int i) {
    uint64_t rounding = (uint64_t)i % 4, flush = (uint64_t)i % 2, nans = (uint64_t)i % 3 == 1;
    set_words(rounding << 22 | flush << 24 | nans << 25);
    return get_words();
}

/* Through a vector register. AArch64 allows any alignment here; what it demands is that of the stack pointer. */
static void move_aligned(volatile float v[4]) { __asm__ volatile("ldr q7, [%0]\n\tstr q7, [%0]" ::"r"(v) : "v7", "memory"); }

/* Over control words and registers that a signal handler may use. */
static void make_a_mess(void) {
    set_words(UINT64_C(3) << 22);
    __asm__ volatile("movi v0.16b, #0xff\n\tmovi v31.16b, #0xff\n\tmov x17, #-1" ::: "v0", "v31", "x17");
}

#endif
