/* SPDX-License-Identifier: MIT */
/* The test harness: one process per file of tests, a time-out for each test, checks that work on any thread or task stack.
 *
 *     TEST(chan, close_wakes_parked_receivers) { … CHECK(…); }
 *
 * TEST and TEST_T stand at the start of a line, because the build finds the tests by that. `test_x` runs every test of the
 * file, each in a process of its own; `test_x suite.name` runs one (or several names, or a whole `suite`) right here;
 * `test_x --list` lists them. A failed check prints where, and ends the process with 1: it unwinds nothing, so it may stand in
 * a task, a thread or a child process. Exit 77 is a skipped test.
 *
 * Environment: WEFT_TEST_SEED (the seed of test_random), WEFT_TEST_SCALE (a factor for test_scale), WEFT_TEST_TIMEOUT (a
 * factor for the time-outs). */
#ifndef WEFT_TEST_H
#define WEFT_TEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

struct test {
    const char *suite, *name;
    void (*fn)(void);
    int seconds; /* on an idle machine without tools; tools stretch it */
    struct test *next;
};
void test_register(struct test *t);

/* A hang is a bug; this only bounds how long it takes to be told. A machine may have ten times as much to do as it can. */
#define TEST_SECONDS 120

#define TEST(suite, name) TEST_T(suite, name, TEST_SECONDS)
#define TEST_T(suite, name, seconds)                                                                                           \
    static void test_##suite##_##name(void);                                                                                   \
    __attribute__((constructor)) static void test_reg_##suite##_##name(void) {                                                 \
        static struct test t = {#suite, #name, test_##suite##_##name, seconds, NULL};                                          \
        test_register(&t);                                                                                                     \
    }                                                                                                                          \
    static void test_##suite##_##name(void)

/* The same for tests that measure the machine: the build runs them alone. */
#define TEST_SOLO(suite, name) TEST_T(suite, name, TEST_SECONDS)
#define TEST_SOLO_T(suite, name, seconds) TEST_T(suite, name, seconds)

/* ---- checks ---- */

/* Prints "file:line: …" and ends the process with 1, from wherever it is called. */
void test_fail(const char *file, int line, const char *fmt, ...) __attribute__((noreturn, format(printf, 3, 4)));
/* Ends the process with 77: this machine cannot run the test. */
void test_skip(const char *why) __attribute__((noreturn));
/* The same under a sanitizer or valgrind, because of `tools`; in an emulator because of `emulator`, unless that is NULL. */
void test_skip_under(const char *tools, const char *emulator);

/* The same where stacks are told to have canaries only (WEFT_STACK_GUARDS=canary): an overflow is not stopped there. */
void test_needs_guards(void);

#define CHECK(cond) ((cond) ? (void)0 : test_fail(__FILE__, __LINE__, "CHECK(%s)", #cond))
#define CHECK_MSG(cond, ...) ((cond) ? (void)0 : test_fail(__FILE__, __LINE__, __VA_ARGS__))

#define TEST_OP(a, op, b)                                                                                                      \
    do {                                                                                                                       \
        long long test_a = (long long)(a), test_b = (long long)(b);                                                            \
        if (!(test_a op test_b)) test_fail(__FILE__, __LINE__, "%s %s %s: %lld and %lld", #a, #op, #b, test_a, test_b);        \
    } while (0)
/* Integers, printed as long long. */
#define CHECK_EQ(a, b) TEST_OP(a, ==, b)
#define CHECK_NE(a, b) TEST_OP(a, !=, b)
#define CHECK_LT(a, b) TEST_OP(a, <, b)
#define CHECK_LE(a, b) TEST_OP(a, <=, b)
#define CHECK_GT(a, b) TEST_OP(a, >, b)
#define CHECK_GE(a, b) TEST_OP(a, >=, b)

#define CHECK_PTR(a, b)                                                                                                        \
    do {                                                                                                                       \
        const void *test_a = (a), *test_b = (b);                                                                               \
        if (test_a != test_b) test_fail(__FILE__, __LINE__, "%s == %s: %p and %p", #a, #b, test_a, test_b);                    \
    } while (0)
#define CHECK_STR(a, b)                                                                                                        \
    do {                                                                                                                       \
        const char *test_a = (a), *test_b = (b);                                                                               \
        if (!test_a || !test_b || strcmp(test_a, test_b) != 0)                                                                 \
            test_fail(__FILE__, __LINE__, "%s == %s: \"%s\" and \"%s\"", #a, #b, test_a ? test_a : "(null)",                   \
                      test_b ? test_b : "(null)");                                                                             \
    } while (0)
/* |a - b| <= tolerance, as doubles. */
#define CHECK_NEAR(a, b, tolerance)                                                                                            \
    do {                                                                                                                       \
        double test_a = (double)(a), test_b = (double)(b), test_d = test_a - test_b;                                           \
        if (!((test_d < 0 ? -test_d : test_d) <= (double)(tolerance)))                                                         \
            test_fail(__FILE__, __LINE__, "%s near %s (%s): %g and %g", #a, #b, #tolerance, test_a, test_b);                   \
    } while (0)

/* ---- random numbers ---- */

/* The run's seed: WEFT_TEST_SEED, or made up. Printed once, as "seed N". */
uint64_t test_seed(void);
/* A random number from the seed; from any thread. With several threads the order, and so who gets which, varies. */
uint64_t test_random(void);
/* The same sequence every time for a given state: start it with test_random() or a function of test_seed(). */
uint64_t test_random_from(uint64_t *state);
/* A number in [0, n); n > 0. */
static inline uint64_t test_below(uint64_t *state, uint64_t n) { return test_random_from(state) % n; }

/* ---- amounts ---- */

/* The program runs in an emulator of another architecture (the build sets WEFT_TEST_EMULATED): slow, and with an emulated kernel
 * interface. */
bool test_emulated(void);
/* How many times slower the tools make us: 1, or 10 (thread, address or memory sanitizer, emulator), or 50 (valgrind). */
int test_slow_tools(void);
/* n, times WEFT_TEST_SCALE, divided by test_slow_tools(); at least `floor` (and never above n because of the floor). */
long test_scale(long n, long floor);

/* For tests that repeat what takes a turn of the kernel's each time: they do as much as they can by this moment of test_clock_ns, and no more. A machine
 * whose CPUs are all busy would need minutes for the whole. */
int64_t test_long_enough(void);

/* What other programs can spoil by their share of the CPUs is measured up to so often, and has to be right once. */
#define TEST_ATTEMPTS 5

/* ---- child processes ---- */

struct test_child {
    int exit_code;   /* -1: killed by a signal */
    int signal;      /* 0: it exited */
    bool hung;       /* it was killed because it ran longer than a test may */
    size_t len;      /* of out; what did not fit was dropped */
    char out[32768]; /* stdout and stderr in the order written, NUL-terminated */
};

/* Runs fn(arg) in a forked child, which exits with what fn returns, and waits for it. Only while this process has one thread
 * (before weft_run, after it, not inside): a fork copies no others. */
void test_child(int (*fn)(void *), void *arg, struct test_child *out);
/* fn(NULL) in a child must end with a signal or a non-zero exit that is no failed check, and print `substring`. */
#define CHECK_DIES(fn, substring) test_check_dies((fn), NULL, (substring), __FILE__, __LINE__)
#define CHECK_DIES_ARG(fn, arg, substring) test_check_dies((fn), (arg), (substring), __FILE__, __LINE__)
void test_check_dies(int (*fn)(void *), void *arg, const char *substring, const char *file, int line);
/* fn(NULL) in a child must exit with 0; what it printed is shown if not. */
#define CHECK_CHILD(fn) test_check_child((fn), NULL, __FILE__, __LINE__)
#define CHECK_CHILD_ARG(fn, arg) test_check_child((fn), (arg), __FILE__, __LINE__)
void test_check_child(int (*fn)(void *), void *arg, const char *file, int line);
/* To be called first in a child that a test forks itself: it may take as long as the test may. (Alarms are not inherited.) */
void test_forked(void);

/* ---- waiting for a state ---- */

typedef bool test_cond(void *arg);
/* Waits until cond(arg) is true; if it never is, the test's time-out tells. From a plain thread: it yields and naps. */
void test_until(test_cond *cond, void *arg);
/* The same in a task: it lets other tasks run between the looks. */
void weft_yield(void);
static inline void test_task_until(test_cond *cond, void *arg) {
    while (!cond(arg)) weft_yield();
}
/* Condition: the int at arg (read atomically) is not zero. */
bool test_is_set(void *arg);
/* A look at a state that should not be reached: naps `tries` short times, true as soon as cond holds. */
bool test_within(test_cond *cond, void *arg, int tries);

/* ---- what the process holds ---- */

int test_fds(void);               /* open descriptors */
int test_threads(void);           /* threads */
int test_maps(void);              /* memory mappings */
long test_switches(void);         /* context switches of all threads alive; not those that another process forced on them */
int64_t test_cpu_ns(void);        /* CPU time of the process */
int64_t test_thread_cpu_ns(void); /* of this thread */
int64_t test_clock_ns(void);      /* the kernel's monotonic clock, whatever clock weft uses */
long test_rss_kb(void);           /* resident memory */
/* Threads that have been joined leave /proc a moment later: waits until no more than n are there. */
void test_wait_threads(int n);
void test_wait_fds(int n); /* the same for descriptors: a runtime that runs opens some for a moment (/proc) */

#ifdef __cplusplus
}
#endif
#endif
