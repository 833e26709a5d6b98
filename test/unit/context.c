/* SPDX-License-Identifier: MIT */
/* Switching contexts: what a task finds again after it was away, what a new one starts with, and signals in the middle of it. */
#include "test.h"

#include <fenv.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include <weft.h>

#include "context/context.h"
#include "context/sanitize.h"
#include "os/os.h"

#if defined(__x86_64__)
#include "unit/context_x86_64.h"
#elif defined(__aarch64__)
#include "unit/context_aarch64.h"
#else
#error "this file knows the registers of x86-64 and AArch64 only"
#endif

#ifndef sigev_notify_thread_id /* glibc before 2.38 keeps it to itself */
#define sigev_notify_thread_id _sigev_un._tid
#endif

static int run(int workers, weft_fn *fn, void *arg) {
    weft_config cfg = {.workers = workers};
    return weft_run(fn, arg, &cfg);
}

/* As a task with a stack of its own; its result. */
static int in_task(weft_fn *fn, void *arg) {
    weft_task *t;
    int result;
    CHECK_EQ(weft_task_start(&t, fn, arg, NULL), 0);
    CHECK_EQ(weft_task_join(t, &result, WEFT_FOREVER), 0);
    return result;
}

/* n tasks fn(0), fn(1), … at once. */
static void in_tasks(int n, weft_fn *fn) {
    weft_task *t[16];
    for (int i = 0; i < n; i++) CHECK_EQ(weft_task_start(&t[i], fn, (void *)(intptr_t)i, NULL), 0);
    for (int i = 0; i < n; i++) {
        int result;
        CHECK_EQ(weft_task_join(t[i], &result, WEFT_FOREVER), 0);
        CHECK_EQ(result, 0);
    }
}

/* ---- registers ---- */

static int keep_registers(void *arg) {
    uint64_t with = ((uint64_t)(uintptr_t)arg + 1) << 32;
    for (long i = test_scale(20000, 1000); i > 0; i--) CHECK_EQ(yield_with_registers(with += 7), 0);
    return 0;
}

static int registers_of_five(void *arg) {
    (void)arg;
    in_tasks(5, keep_registers);
    return 0;
}

TEST(context, callee_saved_registers_are_kept) {
    for (int w = 1; w <= 2; w++) CHECK_EQ(run(w, registers_of_five, NULL), 0);
}

/* ---- floating-point control words ---- */

static void check_words(struct words want) {
    struct words now = get_words();
    CHECK_MSG(now.a == want.a && now.b == want.b, "control words %#x and %#x instead of %#x and %#x", now.a, now.b, want.a,
              want.b);
}

static double divide(void) {
    volatile double one = 1, three = 3;
    return one / three;
}

static int keep_words(void *arg) {
    struct words mine = choose_words((int)(intptr_t)arg);
    double quotient = divide();
    for (long i = test_scale(20000, 1000); i > 0; i--) {
        weft_yield();
        check_words(mine);
        CHECK(divide() == quotient);
    }
    return 0;
}

static int words_of_twelve(void *arg) {
    (void)arg;
    struct words mine = choose_words(1);
    in_tasks(12, keep_words);
    check_words(mine);
    return 0;
}

TEST(context, rounding_and_precision_are_each_tasks_own) {
    struct words mine = get_words();
    for (int w = 1; w <= 2; w++) CHECK_EQ(run(w, words_of_twelve, NULL), 0);
    check_words(mine);
}

static bool flags_differ;

/* What has happened so far is in the same word as the modes, and on some CPUs that word is dear to change. */
static int yield_with_flags(void *arg) {
    feclearexcept(FE_ALL_EXCEPT);
    volatile double quotient = flags_differ && arg ? divide() : 0; /* inexact */
    (void)quotient;
    for (long i = test_scale(100000, 1000); i > 0; i--) weft_yield();
    return 0;
}

static int64_t yields_of_two(bool differ) {
    int64_t best = INT64_MAX;
    flags_differ = differ;
    for (int i = 0; i < 8; i++) {
        int64_t took = test_thread_cpu_ns();
        in_tasks(2, yield_with_flags);
        took = test_thread_cpu_ns() - took;
        if (took < best) best = took;
    }
    return best;
}

static int flags_of_two(void *arg) {
    (void)arg;
    int64_t same = yields_of_two(false), differ = yields_of_two(true);
    printf("%lld ns with the same flags, %lld with others\n", (long long)same, (long long)differ);
    if (test_slow_tools() == 1) CHECK_LT(differ, 3 * same);
    return 0;
}

TEST(context, flags_of_what_has_happened_do_not_make_a_switch_dear) {
    weft_config alone = {.workers = 1, .slice = 3600 * WEFT_SECOND, .max_threads = 1}; /* all on one thread */
    CHECK_EQ(weft_run(flags_of_two, NULL, &alone), 0);
}

static int starts_clean(void *arg) {
    (void)arg;
    check_words(words_at_start);
    CHECK_EQ(fegetround(), FE_TONEAREST);
    return 0;
}

static int leaves_a_mess(void *arg) {
    starts_clean(NULL);
    choose_words((int)(intptr_t)arg); /* and returns with it */
    return 0;
}

/* Started by a task with modes of its own, after one that left its modes behind, and by the worker. */
static int start_among_messes(void *arg) {
    (void)arg;
    struct words mine = choose_words(7);
    for (int i = 0; i < 200; i++) {
        in_tasks(i % 10, leaves_a_mess);
        CHECK_EQ(in_task(starts_clean, NULL), 0);
        check_words(mine);
    }
    return 0;
}

TEST(context, a_new_task_starts_with_the_modes_of_a_new_process) {
    choose_words(5); /* those of the thread that starts the runtime do not matter either */
    for (int w = 1; w <= 2; w++) CHECK_EQ(run(w, start_among_messes, NULL), 0);
}

/* ---- modes of children that run on their opener's stack ---- */

static int mess_and_panic(void *arg) {
    leaves_a_mess(arg);
    weft_panic("with modes of its own");
    return 0;
}

static struct words of_child;
static void same_as_child(void *arg) {
    (void)arg;
    check_words(of_child);
}

/* What a task leaves to be called at its end has the task's modes. */
static int mess_and_exit(void *arg) {
    CHECK_EQ(weft_at_exit(same_as_child, NULL), 0);
    leaves_a_mess(arg);
    of_child = get_words();
    return 0;
}

static int mess_and_wait(void *arg) {
    leaves_a_mess(arg);
    struct words mine = get_words();
    weft_yield();
    check_words(mine);
    return 0;
}

static int mess_and_spawn(void *arg) {
    leaves_a_mess(arg);
    struct words mine = get_words();
    in_tasks(3, leaves_a_mess);
    check_words(mine);
    return 0;
}

static int calculate(void *arg) {
    (void)arg;
    starts_clean(NULL);
    CHECK(divide() > 0.3); /* a flag: what has happened is not a mode */
    return 0;
}

static void spawn_and_check(weft_fn *fn, int n, int result) {
    struct words mine = get_words();
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 1; i <= n; i++)
        CHECK_EQ(weft_spawn(&s, i == n ? starts_clean : fn, (void *)(intptr_t)i), 0); /* the last is the first to run */
    CHECK_EQ(weft_spawn(&s, fn, (void *)(intptr_t)n), 0);
    CHECK_EQ(weft_scope_end(&s), result);
    check_words(mine);
}

static int openers_modes(void *arg) {
    (void)arg;
    for (int i = 0; i < 12; i++) {
        for (int n = 1; n < 5; n++) {
            spawn_and_check(leaves_a_mess, n, 0);
            spawn_and_check(mess_and_wait, n, 0);
            spawn_and_check(mess_and_spawn, n, 0);
            spawn_and_check(calculate, n, 0);
        }
        spawn_and_check(mess_and_exit, 1, 0);
        spawn_and_check(mess_and_panic, 1, WEFT_EPANIC);
        CHECK(divide() > 0.3);
        choose_words(i); /* the next round's */
    }
    return 0;
}

static void no_report(const weft_panic_info *info, void *arg) { (void)info, (void)arg; }

TEST(context, a_child_on_its_openers_stack_has_modes_of_its_own) {
    weft_config alone = {.workers = 1, .slice = 3600 * WEFT_SECOND, .max_threads = 1, .on_panic = no_report};
    CHECK_EQ(weft_run(openers_modes, NULL, &alone), 0); /* children run there if they can */
    CHECK_EQ(weft_run(openers_modes, NULL, &(weft_config){.workers = 2, .on_panic = no_report}), 0);
}

/* Functions that the runtime calls one after the other for different callers. */
static atomic_int fired;
static void fire_with_mess(void *arg) {
    leaves_a_mess(arg);
    atomic_fetch_add(&fired, 1);
}

static int called_by_the_runtime(void *arg) {
    static weft_timer t[20];
    (void)arg;
    for (int i = 0; i < 20; i++) {
        CHECK_EQ(weft_timer_start(&t[i], weft_at(1), 0, fire_with_mess, (void *)(intptr_t)i), 0);
        CHECK_EQ(weft_block(leaves_a_mess, (void *)(intptr_t)i, WEFT_FOREVER), 0);
    }
    while (atomic_load(&fired) < 20) weft_yield();
    for (int i = 0; i < 20; i++) CHECK_EQ(weft_timer_stop_wait(&t[i]), 0);
    return 0;
}

TEST(context, functions_of_timers_and_of_the_pool_start_with_those_of_a_new_process) {
    atomic_store(&fired, 0);
    CHECK_EQ(run(1, called_by_the_runtime, NULL), 0);
}

/* ---- the stack at the entry of a task ---- */

static void print_some(char *to, size_t size, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(to, size, fmt, ap);
    va_end(ap);
}

/* What a compiler does that trusts the alignment: aligned vector moves in a frame, varargs, long double. */
static int use_alignment(void *arg) {
    (void)arg;
    char text[64];
    _Alignas(16) volatile float v[4] = {1, 2, 3, 4};
    move_aligned(v);
    print_some(text, sizeof text, "%.2Lf %.1f %d %s", (long double)v[0] + 0.25L, (double)v[3], 7, "x");
    CHECK_STR(text, "1.25 4.0 7 x");
    return 0;
}

static int check_entry(void *arg) {
    (void)arg;
    for (int i = 0; i < 50; i++) {
        int off = -1;
        CHECK_EQ(in_task(entry_alignment, &off), 0); /* often on the stack that the last one left */
        CHECK_EQ(off, 0);
        weft_scope s;
        weft_scope_begin(&s, NULL);
        off = -1;
        CHECK_EQ(weft_spawn(&s, entry_alignment, &off), 0); /* on this stack */
        CHECK_EQ(weft_scope_end(&s), 0);
        CHECK_EQ(off, 0);
        in_tasks(i % 16, use_alignment);
    }
    return use_alignment(NULL);
}

TEST(context, the_stack_is_aligned_at_the_entry_of_a_task) {
    for (int w = 1; w <= 2; w++) CHECK_EQ(run(w, check_entry, NULL), 0);
}

/* ---- backtraces ---- */

enum { FRAMES = 64 };

static __attribute__((noinline)) int trace(int depth) {
    if (depth > 0) {
        int r = trace(depth - 1);
        __asm__ volatile("" ::: "memory"); /* not a jump */
        return r;
    }
    void *at[FRAMES];
    int n = weft__os_backtrace(at, FRAMES);
    CHECK_GT(n, 3);
    CHECK_LT(n, FRAMES);
    uintptr_t start = (uintptr_t)weft__ctx_start, last = (uintptr_t)at[n - 1];
    CHECK_MSG(last > start && last < start + 256, "the last of %d frames is %p, not in weft__ctx_start at %p", n, at[n - 1],
              (void *)start);
    return n;
}

static int trace_from(void *arg) { return trace((int)(intptr_t)arg); }

static int trace_after_yield(void *arg) {
    weft_yield();
    return trace((int)(intptr_t)arg);
}

static int check_traces(void *arg) {
    (void)arg;
    int shallow = in_task(trace_from, (void *)1), deep = in_task(trace_from, (void *)21);
    CHECK_EQ(deep, shallow + 20);
    CHECK_GT(in_task(trace_after_yield, (void *)3), 3);
    return trace(2) > 0 ? 0 : 1;
}

TEST(context, a_backtrace_ends_at_the_entry_of_its_task) {
    for (int w = 1; w <= 2; w++) CHECK_EQ(run(w, check_traces, NULL), 0);
}

/* ---- signals ---- */

static struct {
    atomic_long seen, switches;
    long want_signals, want_switches;
} storm;

/* On whatever stack there is: writes a good part of a page below it, and over every register a handler may use. */
static void on_signal(int sig) {
    volatile char mess[1024];
    for (size_t i = 0; i < sizeof mess; i++) mess[i] = (char)sig;
    make_a_mess();
    atomic_fetch_add(&storm.seen, 1);
}

/* A signal for the calling thread every 20 us (tools: less often, or it gets nowhere). */
static timer_t start_signals(void) {
    struct sigaction sa = {.sa_handler = on_signal}; /* not on a stack of its own */
    CHECK_EQ(sigaction(SIGUSR1, &sa, NULL), 0);
    struct sigevent to = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1};
    to.sigev_notify_thread_id = gettid();
    timer_t timer;
    CHECK_EQ(timer_create(CLOCK_MONOTONIC, &to, &timer), 0);
    struct timespec every = {.tv_nsec = 20 * WEFT_US * test_slow_tools()};
    CHECK_EQ(timer_settime(timer, 0, &(struct itimerspec){every, every}, NULL), 0);
    return timer;
}

static bool storm_over(void) {
    return atomic_load(&storm.seen) >= storm.want_signals && atomic_load(&storm.switches) >= storm.want_switches;
}

static int switch_in_storm(void *arg) {
    struct words mine = choose_words((int)(intptr_t)arg);
    uint64_t with = ((uint64_t)(uintptr_t)arg + 1) << 40;
    while (!storm_over()) {
        for (int i = 0; i < 100; i++) CHECK_EQ(yield_with_registers(with += 11), 0);
        check_words(mine);
        atomic_fetch_add(&storm.switches, 100);
        CHECK_EQ(in_task(starts_clean, NULL), 0); /* starting and ending a task, too */
    }
    return 0;
}

static int weather_storm(void *arg) {
    (void)arg;
    timer_t timer = start_signals(); /* for the one and only worker */
    in_tasks(4, switch_in_storm);
    timer_delete(timer);
    return 0;
}

TEST(context, signals_in_the_middle_of_a_switch_do_no_harm) {
    if (weft__san_has_fibers) test_skip("ThreadSanitizer puts signals off to moments of its own");
    storm.want_signals = test_scale(20000, 200);
    storm.want_switches = test_scale(2000000, 10000);
    CHECK_EQ(run(1, weather_storm, NULL), 0);
    printf("%ld signals in %ld switches\n", atomic_load(&storm.seen), atomic_load(&storm.switches));
}
