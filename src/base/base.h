/* SPDX-License-Identifier: MIT */
/* Small words used everywhere: branch hints, the atomics vocabulary, the last sentence before an abort.
 *
 * Every atomic access in weft names its order, and a comment beside it names its partner. The short names below keep such
 * lines readable; they add nothing. */
#ifndef WEFT_SRC_BASE_H
#define WEFT_SRC_BASE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <weft/base.h>

/* Which sanitizer this is built for, if any. */
#if defined(__SANITIZE_ADDRESS__)
#define WEFT_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__)
#define WEFT_TSAN 1
#endif
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WEFT_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define WEFT_TSAN 1
#endif
#endif

/* A function that changes stacks inside must not be instrumented: its entry and its exit would be counted on different ones. */
#ifdef WEFT_TSAN
#define WEFT_NO_TSAN __attribute__((disable_sanitizer_instrumentation))
#else
#define WEFT_NO_TSAN
#endif

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define weft__assume(x) ((x) ? (void)0 : __builtin_unreachable())
#define WEFT_COLD __attribute__((noinline, cold))
/* Side by side in the program: what runs between two system calls should be on few pages, and in few lines of the caches that the kernel fills as well. */
#define WEFT_HOT __attribute__((hot))
#define WEFT_NOINLINE __attribute__((noinline))
#define WEFT_INLINE static inline __attribute__((always_inline))
#define WEFT_NORETURN __attribute__((noreturn))
#define WEFT_LINE 64 /* bytes of a cache line: what two cores fight for */
#define WEFT_ALIGNED _Alignas(WEFT_LINE)

#define weft__container(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))
#define weft__countof(a) (sizeof(a) / sizeof((a)[0]))

#define weft__load(p, order) atomic_load_explicit((p), memory_order_##order)
#define weft__store(p, v, order) atomic_store_explicit((p), (v), memory_order_##order)
#define weft__xchg(p, v, order) atomic_exchange_explicit((p), (v), memory_order_##order)
#define weft__add(p, v, order) atomic_fetch_add_explicit((p), (v), memory_order_##order)
#define weft__sub(p, v, order) atomic_fetch_sub_explicit((p), (v), memory_order_##order)
#define weft__or(p, v, order) atomic_fetch_or_explicit((p), (v), memory_order_##order)
#define weft__cas(p, expected, v, order)                                                                                       \
    atomic_compare_exchange_strong_explicit((p), (expected), (v), memory_order_##order, memory_order_relaxed)

/* Words that belong to one thread at a time, which reads them as it likes, and that people look at from outside at any moment (dump.c): shown and
 * peeked at in one piece, and ordered by nothing. */
#define weft__show(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
#define weft__peek(p) __atomic_load_n((p), __ATOMIC_RELAXED)

/* The compiler must not move memory accesses across; the CPU may. */
#define weft__compiler_barrier() __asm__ volatile("" ::: "memory")
/* A full barrier (every access before it, before every access after it) behind an atomic read-modify-write of this thread.
 * On x86-64 the locked instruction has been one. On AArch64 it is none, whatever its order: an acquiring exchange lets an earlier
 * store pass below its own, and with the single instructions of ARMv8.1 (LSE) even a sequentially consistent one lets later plain
 * loads pass above its store. So there it is a fence. */
#if defined(__x86_64__)
#define weft__fence_after_rmw() weft__compiler_barrier()
#else
#define weft__fence_after_rmw() atomic_thread_fence(memory_order_seq_cst)
#endif

/* A short pause in a loop that waits for another CPU; the numbers of pauses in lock.c and find.c are chosen for some tens of
 * nanoseconds each. AArch64's `yield` takes no time at all on most cores; `isb` empties the pipeline. */
WEFT_INLINE void weft__cpu_relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    __asm__ volatile("isb" ::: "memory");
#endif
}

/* sched_yield without a call and without a register of the compiler's, for loops that must cost the path around them nothing. */
WEFT_INLINE void weft__give_cpu(void) {
#if defined(__x86_64__)
    /* below the red zone; 24 = SYS_sched_yield */
    __asm__ volatile("lea -128(%%rsp), %%rsp\n\tpush %%rax\n\tpush %%rcx\n\tpush %%r11\n\tmov $24, %%eax\n\tsyscall\n\t"
                     "pop %%r11\n\tpop %%rcx\n\tpop %%rax\n\tlea 128(%%rsp), %%rsp" ::
                         : "memory", "cc");
#elif defined(__aarch64__)
    __asm__ volatile("mov x8, #124\n\tsvc #0" ::: "x0", "x8", "memory"); /* SYS_sched_yield */
#else
    weft__cpu_relax();
#endif
}

/* A bug in the caller: prints "weft: " and the sentence to stderr, then aborts. */
WEFT_COLD WEFT_NORETURN void weft__die(const char *fmt, ...) WEFT_PRINTF(1, 2);
/* Something the user should know, once: "weft: " and the sentence to stderr. */
WEFT_COLD void weft__say(const char *fmt, ...) WEFT_PRINTF(1, 2);

/* An invariant of our own, by its number in the essay; checked in debug builds only. */
#ifdef WEFT_DEBUG_CHECKS
#define weft__check(cond, what)                                                                                                \
    do {                                                                                                                       \
        if (unlikely(!(cond))) weft__die("invariant broken: %s (%s:%d)", what, __FILE__, __LINE__);                            \
    } while (0)
#else
#define weft__check(cond, what) ((void)0)
#endif

/* xorshift: never 0 if the seed is not. */
WEFT_INLINE uint32_t weft__random(uint32_t *state) {
    uint32_t x = *state;
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    return *state = x;
}

#endif
