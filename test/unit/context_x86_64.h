/* SPDX-License-Identifier: MIT */
/* What test/unit/context.c knows of x86-64. context_aarch64.h has the same functions. */
#ifndef WEFT_TEST_CONTEXT_X86_64_H
#define WEFT_TEST_CONTEXT_X86_64_H

/* Fills the callee-saved registers with functions of `with`, yields, and returns a bit for each one that has changed. */
int yield_with_registers(uint64_t with);
__asm__(".text\n"
        ".type yield_with_registers, @function\n"
        "yield_with_registers:\n"
        "push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n push %rdi\n"
        "lea 1(%rdi), %rbx\n lea 2(%rdi), %rbp\n lea 3(%rdi), %r12\n"
        "lea 4(%rdi), %r13\n lea 5(%rdi), %r14\n lea 6(%rdi), %r15\n"
        "call weft_yield\n"
        "pop %rdi\n xor %eax, %eax\n"
        "inc %rdi\n cmp %rdi, %rbx\n je 1f\n or $1, %eax\n"
        "1: inc %rdi\n cmp %rdi, %rbp\n je 1f\n or $2, %eax\n"
        "1: inc %rdi\n cmp %rdi, %r12\n je 1f\n or $4, %eax\n"
        "1: inc %rdi\n cmp %rdi, %r13\n je 1f\n or $8, %eax\n"
        "1: inc %rdi\n cmp %rdi, %r14\n je 1f\n or $16, %eax\n"
        "1: inc %rdi\n cmp %rdi, %r15\n je 1f\n or $32, %eax\n"
        "1: pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n"
        "ret\n"
        ".size yield_with_registers, .-yield_with_registers\n");

/* *(int *)arg = the stack pointer's distance from where the ABI wants it (a multiple of 16, before the call). */
int entry_alignment(void *arg);
__asm__(".text\n"
        ".type entry_alignment, @function\n"
        "entry_alignment:\n"
        "lea 8(%rsp), %eax\n and $15, %eax\n mov %eax, (%rdi)\n xor %eax, %eax\n ret\n"
        ".size entry_alignment, .-entry_alignment\n");

enum {
    MXCSR_FLAGS = 0x3f, /* what has happened so far; not a mode */
    MXCSR_START = 0x1f80,
    X87_START = 0x037f,
};

/* The floating-point control words: mxcsr without its flags, and the x87's. */
struct words {
    uint32_t a;
    uint16_t b;
};
static const struct words words_at_start = {MXCSR_START, X87_START};

static struct words get_words(void) {
    struct words w;
    __asm__ volatile("stmxcsr %0\n\tfnstcw %1" : "=m"(w.a), "=m"(w.b));
    w.a &= ~(uint32_t)MXCSR_FLAGS;
    return w;
}

static void set_words(uint32_t mxcsr, uint16_t x87) { __asm__ volatile("ldmxcsr %0\n\tfldcw %1" ::"m"(mxcsr), "m"(x87)); }

/* Rounding in all four ways, precision of the x87 in all three, flushing of denormals. */
static struct words choose_words(int i) {
    static const uint16_t precision[] = {0x000, 0x200, 0x300};
    uint32_t rounding = (uint32_t)i % 4;
    uint32_t flush = i % 2 ? 0x8040 : 0;
    set_words(MXCSR_START | rounding << 13 | flush, (uint16_t)(0x7f | precision[i % 3] | rounding << 10));
    return get_words(); /* what this machine (valgrind, say) makes of it */
}

/* Through a vector register, by moves that fault if v is not aligned. */
static void move_aligned(volatile float v[4]) {
    __asm__ volatile("movaps (%0), %%xmm7\n\tmovaps %%xmm7, (%0)" ::"r"(v) : "xmm7", "memory");
}

/* Over control words and registers that a signal handler may use. */
static void make_a_mess(void) {
    set_words(MXCSR_START | 0x6000, 0x7f);
    __asm__ volatile("pcmpeqd %%xmm0, %%xmm0\n\tmovdqa %%xmm0, %%xmm15\n\tmov $-1, %%r11" ::: "xmm0", "xmm15", "r11");
}

#endif
