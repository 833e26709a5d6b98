/* SPDX-License-Identifier: MIT */
/* What is said and done when a stack is used up, and when a fault is none of our business. */
#include "test.h"
#include "swapcontext.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "os/os.h"
#include "stack/stack.h"

static weft__stack_cache cache;
static ucontext_t home, away;

int dig_for_ever(int n);
void spawn_site(void);

/* Exported names, so that dladdr finds them in a program linked with -rdynamic; the report works without. */
WEFT_NOINLINE int dig_for_ever(int n) {
    volatile char frame[200];
    if (n < 0) return 0; /* or the compiler warns of what is meant */
    frame[0] = (char)n;
    int r = dig_for_ever(n + 1) + frame[0];
    __asm__ volatile("" : "+r"(r));
    return r;
}

static void dig(void) { dig_for_ever(1); }

/* A frame that touches its far end first and nothing on the way, even where the compiler would probe. */
#if defined(__clang__)
static void leap(void) {
#else
__attribute__((optimize("no-stack-clash-protection"))) static void leap(void) {
#endif
    size_t left = (size_t)((char *)__builtin_frame_address(0) - ((weft__stack *)home.uc_link)->low);
    volatile char *far = __builtin_alloca(left + (12 << 10));
    far[0] = 1;
}

void spawn_site(void) {}

static void who(weft__stack *s, weft__who *out) {
    (void)s;
    *out = (weft__who){17, "digger\033[2J", (void *)(uintptr_t)&dig_for_ever, (void *)(uintptr_t)&spawn_site};
}

static void run_on(weft__stack *s, void (*fn)(void)) {
    getcontext(&away);
    away.uc_stack.ss_sp = s->low;
    away.uc_stack.ss_size = (size_t)(s->high - s->low);
    away.uc_link = &home;
    home.uc_link = (void *)s; /* nobody else uses it */
    makecontext(&away, fn, 0);
    swapcontext(&home, &away);
}

static void open_pool(void) {
    CHECK_EQ(weft__stack_pool_open(), 0);
    CHECK_EQ(weft__stack_thread_open(), 0);
}

static void close_pool(void) {
    weft__stack_thread_close();
    weft__stack_pool_close();
    memset(&cache, 0, sizeof cache);
}

static int overflow(void *fn) {
    weft__stack_who = who;
    open_pool();
    run_on(weft__stack_get(&cache, weft__stack_class(0)), (void (*)(void))(uintptr_t)fn);
    return 0;
}

static void contains(const char *text, const char *part) {
    CHECK_MSG(strstr(text, part), "no \"%s\" in:\n%.1500s", part, text);
}

TEST(overflow, the_report_names_task_limit_remedy_and_place) {
    test_needs_guards();
    struct test_child c;
    test_child(overflow, (void *)(uintptr_t)dig, &c);
    CHECK_EQ(c.signal, SIGSEGV);
    contains(c.out, "weft: stack overflow in task 17 \"digger?[2J\": its stack of 256 KiB is used up.");
    contains(c.out, "weft_task_opts.stack_size");
    contains(c.out, "weft_config.stack_size");
    contains(c.out, "function:   0x");
    contains(c.out, "spawned at: 0x");
    contains(c.out, "backtrace, innermost first:\n");
    char *frames = strstr(c.out, "backtrace"), *line = frames;
    int lines = 0;
    while ((line = strchr(line + 1, '\n'))) lines++;
    CHECK_GE(lines, 20); /* it went through the handler down the stack that is used up */
}

static int overflow_of_nobody(void *fn) {
    open_pool();
    run_on(weft__stack_get(&cache, weft__stack_class(0)), (void (*)(void))(uintptr_t)fn);
    return 0;
}

TEST(overflow, a_stack_without_a_task_is_reported_too) {
    test_needs_guards();
    CHECK_DIES_ARG(overflow_of_nobody, (void *)(uintptr_t)dig, "weft: stack overflow in a task: ");
}

/* Not the lowest stack of all, below which there is nothing anyway. */
static int overflow_next_to_others(void *fn) {
    open_pool();
    for (int i = 0; i < 3; i++) weft__stack_get(&cache, weft__stack_class(0));
    weft__stack_who = who;
    run_on(weft__stack_get(&cache, weft__stack_class(0)), (void (*)(void))(uintptr_t)fn);
    return 0;
}

TEST(overflow, a_frame_of_twelve_kilobytes_cannot_step_over_the_guard) {
    test_needs_guards();
    CHECK_DIES_ARG(overflow_next_to_others, (void *)(uintptr_t)leap, "weft: stack overflow in task 17");
}

static int overflow_with_protected_pages(void *fn) {
    setenv("WEFT_STACK_GUARDS", "protect", 1);
    return overflow(fn);
}

TEST(overflow, protected_pages_report_as_well) {
    CHECK_DIES_ARG(overflow_with_protected_pages, (void *)(uintptr_t)dig, "weft: stack overflow in task 17");
}

static _Atomic int diggers;

/* Holds the first report up, so that the second thread has time to begin one. */
static void who_slowly(weft__stack *s, weft__who *out) {
    while (weft__load(&diggers, relaxed) < 2) weft__nap(WEFT_MS); /* a count; orders nothing */
    weft__nap(50 * WEFT_MS);
    who(s, out);
}

static void *overflow_on_thread(void *arg) {
    CHECK_EQ(weft__stack_thread_open(), 0);
    weft__stack_cache c = {0};
    ucontext_t back, there;
    weft__stack *s = weft__stack_get(&c, 2);
    getcontext(&there);
    there.uc_stack.ss_sp = s->low;
    there.uc_stack.ss_size = (size_t)(s->high - s->low);
    there.uc_link = &back;
    makecontext(&there, dig, 0);
    weft__add(&diggers, 1, relaxed); /* pairs with nothing */
    swapcontext(&back, &there);
    return arg;
}

static int two_at_once(void *arg) {
    (void)arg;
    weft__stack_who = who_slowly;
    CHECK_EQ(weft__stack_pool_open(), 0);
    pthread_t t[2];
    for (int i = 0; i < 2; i++) CHECK_EQ(weft__thread_start(&t[i], overflow_on_thread, NULL, NULL), 0);
    for (int i = 0; i < 2; i++) pthread_join(t[i], NULL);
    return 0;
}

TEST(overflow, two_threads_at_once_give_one_report) {
    test_needs_guards();
    struct test_child c;
    test_child(two_at_once, NULL, &c);
    CHECK_EQ(c.signal, SIGSEGV);
    contains(c.out, "its stack of 64 KiB is used up");
    CHECK(!strstr(strstr(c.out, "stack overflow") + 1, "stack overflow"));
}

/* ---- faults of others ---- */

static char *volatile forbidden; /* volatile: the compiler must not know that this is a trap */

/* A guard if possible: valgrind sees no error in touching it, only the signal. */
static void touch_forbidden(void) {
    size_t page = weft__page_size();
    char *p = weft__vm_reserve(page, page);
    if (weft__vm_guard(p, page, page, 1) != 0 || !weft__vm_faults(p)) weft__vm_protect_none(p, page);
    forbidden = p;
    *forbidden = 1;
}

static void say_and_leave(const char *s) {
    CHECK(write(STDERR_FILENO, s, strlen(s)) > 0);
    _exit(42);
}

static void plain_handler(int sig) { say_and_leave(sig == SIGSEGV ? "plain handler" : "?"); }

static void info_handler(int sig, siginfo_t *info, void *context) {
    say_and_leave(sig == SIGSEGV && info->si_addr == forbidden && context ? "info handler" : "?");
}

enum how { DEFAULT, IGNORE, PLAIN, INFO };

static void set_handler(enum how how) {
    struct sigaction a = {.sa_flags = SA_ONSTACK};
    if (how == INFO) {
        a.sa_flags |= SA_SIGINFO;
        a.sa_sigaction = info_handler;
    } else {
        a.sa_handler = how == PLAIN ? plain_handler : how == IGNORE ? SIG_IGN : SIG_DFL;
    }
    CHECK_EQ(sigaction(SIGSEGV, &a, NULL), 0);
}

static int foreign_fault(void *how) {
    set_handler((enum how)(intptr_t)how);
    open_pool();
    run_on(weft__stack_get(&cache, weft__stack_class(0)), touch_forbidden);
    return 0;
}

static void run_child(struct test_child *c, int (*fn)(void *), enum how how, int exit_code, int sig) {
    test_child(fn, (void *)(intptr_t)how, c);
    CHECK_MSG(c->exit_code == exit_code && c->signal == sig, "exit %d, signal %d:\n%.500s", c->exit_code, c->signal, c->out);
}

static void check_passed(int (*fn)(void *), enum how how, int exit_code, int sig, const char *says) {
    struct test_child c;
    run_child(&c, fn, how, exit_code, sig);
    CHECK(!strstr(c.out, "weft: "));
    contains(c.out, says);
}

static void check_reported(int (*fn)(void *), enum how how) {
    struct test_child c;
    run_child(&c, fn, how, -1, SIGSEGV);
    contains(c.out, "weft: SIGSEGV in a task: bad access to address 0x");
    CHECK(!strstr(c.out, "stack overflow"));
}

TEST(overflow, other_faults_are_reported_where_no_handler_was) {
    check_reported(foreign_fault, DEFAULT);
    check_reported(foreign_fault, IGNORE); /* the kernel does not ignore them either */
}

TEST(overflow, other_faults_go_to_the_handler_that_was_there_before) {
    check_passed(foreign_fault, PLAIN, 42, 0, "plain handler");
    check_passed(foreign_fault, INFO, 42, 0, "info handler");
}

static weft__stack *victim;
static void write_into_a_guard(void) { *(volatile char *)(victim->low - 1) = 1; }

/* A stray pointer into a guard is no overflow: the stack pointer is somewhere else. */
static int stray_pointer(void *how) {
    set_handler((enum how)(intptr_t)how);
    open_pool();
    victim = weft__stack_get(&cache, weft__stack_class(0));
    for (int i = 0; i < 3; i++) CHECK(weft__stack_get(&cache, weft__stack_class(0)));
    run_on(weft__stack_get(&cache, weft__stack_class(0)), write_into_a_guard);
    return 0;
}

static int stray_pointer_to_own_guard(void *how) {
    set_handler((enum how)(intptr_t)how);
    open_pool();
    victim = weft__stack_get(&cache, weft__stack_class(0));
    run_on(victim, write_into_a_guard);
    return 0;
}

TEST(overflow, a_stray_pointer_into_a_guard_is_not_called_an_overflow) {
    test_needs_guards();
    check_passed(stray_pointer, PLAIN, 42, 0, "plain handler");
    check_passed(stray_pointer_to_own_guard, PLAIN, 42, 0, "plain handler");
}

static int sent_signal(void *how) {
    set_handler((enum how)(intptr_t)how);
    open_pool();
    raise(SIGSEGV);
    close_pool();
    return 7;
}

TEST(overflow, a_signal_that_was_sent_is_passed_on) {
    check_passed(sent_signal, DEFAULT, -1, SIGSEGV, "");
    check_passed(sent_signal, IGNORE, 7, 0, "");
    check_passed(sent_signal, PLAIN, 42, 0, "plain handler");
}

static struct sigaction below;
static void pass_down(int sig, siginfo_t *info, void *context) { below.sa_sigaction(sig, info, context); }

/* Installed over ours, and ours over it again at the second opening: they use up the signal stack. */
static int circle(void *how) {
    set_handler((enum how)(intptr_t)how);
    open_pool();
    struct sigaction mine = {.sa_flags = SA_ONSTACK | SA_SIGINFO, .sa_sigaction = pass_down};
    CHECK_EQ(sigaction(SIGSEGV, &mine, &below), 0);
    close_pool();
    open_pool();
    run_on(weft__stack_get(&cache, weft__stack_class(0)), touch_forbidden);
    return 0;
}

TEST(overflow, handlers_that_call_each_other_come_to_an_end) { check_passed(circle, DEFAULT, -1, SIGSEGV, ""); }

TEST(overflow, closing_restores_handlers_and_the_signal_stack) {
    struct sigaction a;
    stack_t before, after;
    set_handler(PLAIN);
    CHECK_EQ(sigaltstack(NULL, &before), 0);
    open_pool();
    CHECK_EQ(sigaction(SIGSEGV, NULL, &a), 0);
    CHECK((a.sa_flags & SA_ONSTACK) && (a.sa_flags & SA_SIGINFO));
    CHECK_EQ(sigaltstack(NULL, &after), 0);
    CHECK(!(after.ss_flags & SS_DISABLE) && after.ss_sp != before.ss_sp);
    close_pool();
    CHECK_EQ(sigaction(SIGSEGV, NULL, &a), 0);
    CHECK(a.sa_handler == plain_handler);
    CHECK_EQ(sigaltstack(NULL, &after), 0);
    CHECK_EQ(after.ss_flags, before.ss_flags);
    CHECK((before.ss_flags & SS_DISABLE) || after.ss_sp == before.ss_sp);
    set_handler(INFO);
    open_pool();
    set_handler(PLAIN); /* somebody installs another one meanwhile: it stays */
    close_pool();
    CHECK_EQ(sigaction(SIGSEGV, NULL, &a), 0);
    CHECK(a.sa_handler == plain_handler);
}
