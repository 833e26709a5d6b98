/* SPDX-License-Identifier: MIT */
/* The test harness; test.h says what it offers. It includes nothing of weft, so that a broken library cannot break it. */
#include "test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Under TSan the library itself is checked, unless it was said otherwise; before the library looks. */
__attribute__((constructor(101))) static void check_the_library(void) { setenv("WEFT_TSAN_INSIDE", "1", 0); }

static struct test *tests, **tests_tail = &tests;
static struct test *current; /* the test this process runs */

void test_register(struct test *t) {
    *tests_tail = t;
    tests_tail = &t->next;
}

/* ---- checks ---- */

#define EXIT_SKIPPED 77

void test_fail(const char *file, int line, const char *fmt, ...) {
    char text[2048];
    int n = snprintf(text, sizeof text, "%s:%d: ", file, line);
    va_list ap;
    va_start(ap, fmt);
    n += vsnprintf(text + n, sizeof text - (size_t)n, fmt, ap);
    va_end(ap);
    if (n > (int)sizeof text - 2) n = (int)sizeof text - 2;
    text[n++] = '\n';
    fflush(stdout);
    /* One write: other threads may fail at the same moment. _exit: nothing may run on a state that is known to be wrong. */
    ssize_t ignored = write(STDERR_FILENO, text, (size_t)n);
    (void)ignored;
    _exit(1);
}

void test_skip(const char *why) {
    printf("skipped: %s\n", why);
    fflush(stdout);
    _exit(EXIT_SKIPPED);
}

/* ---- tools and amounts ---- */

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#endif

bool test_emulated(void) { return getenv("WEFT_TEST_EMULATED") != NULL; }

int test_slow_tools(void) {
    const char *preload = getenv("LD_PRELOAD"); /* valgrind puts its own library there */
    if (preload && strstr(preload, "vgpreload")) return 50;
    if (test_emulated()) return 10;
#ifdef SANITIZED
    return 10;
#else
    return 1;
#endif
}

void test_skip_under(const char *tools, const char *emulator) {
    const char *why = test_emulated() ? emulator : test_slow_tools() > 1 ? tools : NULL;
    if (why) test_skip(why);
}

void test_needs_guards(void) {
    const char *level = getenv("WEFT_STACK_GUARDS");
    if (level && strcmp(level, "canary") == 0) test_skip("WEFT_STACK_GUARDS=canary: nothing stops an overflow");
}

static double env_factor(const char *name) {
    const char *v = getenv(name);
    double f = v ? strtod(v, NULL) : 1;
    return f > 0 ? f : 1;
}

long test_scale(long n, long floor) {
    long scaled = (long)((double)n * env_factor("WEFT_TEST_SCALE")) / test_slow_tools();
    if (floor > n) floor = n;
    return scaled < floor ? floor : scaled;
}

int64_t test_long_enough(void) { return test_clock_ns() + (int64_t)(15e9 * env_factor("WEFT_TEST_SCALE")); }

/* ---- time-outs ---- */

static void on_alarm(int sig) {
    (void)sig;
    const char *part[] = {"time-out: ", current ? current->suite : "?", ".", current ? current->name : "?", " hangs\n"};
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        ssize_t ignored = write(STDERR_FILENO, part[i], strlen(part[i]));
        (void)ignored;
    }
    abort();
}

static int timeout_of(const struct test *t) {
    int slow = test_slow_tools();
    double seconds = t->seconds * env_factor("WEFT_TEST_TIMEOUT") * (slow >= 50 ? 20 : slow > 1 ? 5 : 1);
    return seconds < 1 ? 1 : (int)seconds;
}

static void arm_timeout(const struct test *t) {
    struct sigaction sa;
    memset(&sa, 0, sizeof sa);
    sa.sa_handler = on_alarm;
    sa.sa_flags = SA_ONSTACK; /* it may come on a small stack */
    sigaction(SIGALRM, &sa, NULL);
    alarm((unsigned)timeout_of(t));
}

void test_forked(void) {
    if (current) arm_timeout(current);
}

/* ---- random numbers ---- */

#define GOLDEN UINT64_C(0x9e3779b97f4a7c15)

static uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static _Atomic uint64_t the_seed, drawn;
static atomic_int seed_state; /* 0 = none, 1 = being made, 2 = there */

uint64_t test_seed(void) {
    int none = 0;
    if (atomic_compare_exchange_strong(&seed_state, &none, 1)) {
        const char *v = getenv("WEFT_TEST_SEED");
        uint64_t s = v ? strtoull(v, NULL, 0) : mix((uint64_t)test_clock_ns() ^ ((uint64_t)getpid() << 32)) % 1000000000;
        printf("seed %llu\n", (unsigned long long)s);
        fflush(stdout); /* a later abort must not swallow it */
        atomic_store(&the_seed, s);
        atomic_store(&seed_state, 2);
    }
    while (atomic_load(&seed_state) != 2) sched_yield();
    return atomic_load(&the_seed);
}

uint64_t test_random(void) {
    uint64_t s = test_seed();
    return mix(mix(s) + GOLDEN * (atomic_fetch_add(&drawn, 1) + 1));
}

uint64_t test_random_from(uint64_t *state) { return mix(*state += GOLDEN); }

/* ---- child processes ---- */

static int64_t clock_ns(clockid_t id) {
    struct timespec ts;
    clock_gettime(id, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* Reads until the child has closed its end; kills it when it takes longer than a test may. */
static void capture(int fd, pid_t pid, struct test_child *out) {
    int64_t end = test_clock_ns() + (int64_t)(current ? timeout_of(current) : TEST_SECONDS) * 900000000;
    char drop[4096];
    for (;;) {
        int64_t left = (end - test_clock_ns()) / 1000000;
        struct pollfd p = {.fd = fd, .events = POLLIN, .revents = 0};
        if (left <= 0 && !out->hung) {
            out->hung = true;
            kill(pid, SIGKILL);
        }
        if (poll(&p, 1, left <= 0 ? 1000 : (int)left) <= 0) {
            if (out->hung) return; /* someone else holds the pipe */
            continue;
        }
        size_t room = sizeof out->out - 1 - out->len;
        ssize_t n = room ? read(fd, out->out + out->len, room) : read(fd, drop, sizeof drop);
        if (n == 0) return;
        if (n > 0 && room) out->len += (size_t)n;
    }
}

void test_child(int (*fn)(void *), void *arg, struct test_child *out) {
    int fd[2];
    memset(out, 0, sizeof *out);
    if (pipe(fd) != 0) test_fail(__FILE__, __LINE__, "pipe: %s", strerror(errno));
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0) test_fail(__FILE__, __LINE__, "fork: %s", strerror(errno));
    if (pid == 0) {
        dup2(fd[1], STDOUT_FILENO);
        dup2(fd[1], STDERR_FILENO);
        close(fd[0]);
        close(fd[1]);
        test_forked();
        exit(fn(arg));
    }
    close(fd[1]);
    capture(fd[0], pid, out);
    close(fd[0]);
    out->out[out->len] = 0;
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    out->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    out->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (out->exit_code != EXIT_SKIPPED) return;
    printf("%s", out->out); /* what the child cannot do here, the test cannot */
    fflush(stdout);
    _exit(EXIT_SKIPPED);
}

void test_check_dies(int (*fn)(void *), void *arg, const char *substring, const char *file, int line) {
    struct test_child c;
    test_child(fn, arg, &c);
    if (c.hung) test_fail(file, line, "the child hung instead of dying with \"%s\":\n%.1500s", substring, c.out);
    if (c.exit_code == 0) test_fail(file, line, "the child lived on instead of dying with \"%s\":\n%.1500s", substring, c.out);
    if (!strstr(c.out, substring))
        test_fail(file, line, "the child (exit %d, signal %d) did not say \"%s\":\n%.1500s", c.exit_code, c.signal, substring,
                  c.out);
}

void test_check_child(int (*fn)(void *), void *arg, const char *file, int line) {
    struct test_child c;
    test_child(fn, arg, &c);
    if (c.exit_code != 0)
        test_fail(file, line, "the child ended with exit %d, signal %d%s:\n%.1500s", c.exit_code, c.signal,
                  c.hung ? " (hung)" : "", c.out);
}

/* ---- waiting for a state ---- */

static void nap(long ns) {
    struct timespec ts = {.tv_sec = 0, .tv_nsec = ns};
    nanosleep(&ts, NULL);
}

void test_until(test_cond *cond, void *arg) {
    for (int i = 0; !cond(arg); i++) {
        if (i < 100)
            sched_yield();
        else
            nap(i < 1000 ? 50000 : 1000000);
    }
}

bool test_within(test_cond *cond, void *arg, int tries) {
    for (int i = 0; i < tries; i++) {
        if (cond(arg)) return true;
        nap(1000000);
    }
    return cond(arg);
}

bool test_is_set(void *arg) { return atomic_load((atomic_int *)arg) != 0; }

/* ---- what the process holds ---- */

/* Entries of a directory, without . and ..; the descriptor used to look is among those of /proc/self/fd. */
static int entries(const char *dir) {
    DIR *d = opendir(dir);
    if (!d) test_fail(__FILE__, __LINE__, "%s: %s", dir, strerror(errno));
    int n = 0;
    for (struct dirent *e; (e = readdir(d));) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

int test_fds(void) { return entries("/proc/self/fd") - 1; }

int test_threads(void) { return entries("/proc/self/task"); }

static bool threads_at_most(void *arg) { return test_threads() <= *(int *)arg; }

void test_wait_threads(int n) { test_until(threads_at_most, &n); }

static bool fds_at_most(void *n) { return test_fds() <= *(int *)n; }

void test_wait_fds(int n) { test_until(fds_at_most, &n); }

int test_maps(void) {
    char buf[8192];
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC), lines = 0;
    if (fd < 0) test_fail(__FILE__, __LINE__, "/proc/self/maps: %s", strerror(errno));
    for (ssize_t n; (n = read(fd, buf, sizeof buf)) > 0;)
        for (ssize_t i = 0; i < n; i++) lines += buf[i] == '\n';
    close(fd);
    return lines;
}

/* The sum of the numbers behind `key` in a file of "key:\tvalue" lines; 0 if the file has gone (a thread that ended). */
static long status_sum(const char *path, const char *key) {
    char line[256];
    long sum = 0;
    FILE *f = fopen(path, "re");
    if (!f) return 0;
    while (fgets(line, sizeof line, f)) {
        if (strncmp(line, key, strlen(key)) == 0) sum += strtol(line + strlen(key), NULL, 10);
    }
    fclose(f);
    return sum;
}

long test_switches(void) {
    DIR *d = opendir("/proc/self/task");
    if (!d) test_fail(__FILE__, __LINE__, "/proc/self/task: %s", strerror(errno));
    long sum = 0;
    for (struct dirent *e; (e = readdir(d));) {
        char path[300];
        snprintf(path, sizeof path, "/proc/self/task/%s/status", e->d_name);
        if (e->d_name[0] != '.') sum += status_sum(path, "voluntary_ctxt_switches:");
    }
    closedir(d);
    return sum;
}

long test_rss_kb(void) { return status_sum("/proc/self/status", "VmRSS:"); }

int64_t test_cpu_ns(void) { return clock_ns(CLOCK_PROCESS_CPUTIME_ID); }

int64_t test_thread_cpu_ns(void) { return clock_ns(CLOCK_THREAD_CPUTIME_ID); }

int64_t test_clock_ns(void) { return clock_ns(CLOCK_MONOTONIC); }

/* ---- running ---- */

static int run_here(struct test *t) {
    current = t;
    arm_timeout(t);
    t->fn();
    alarm(0);
    fflush(stdout);
    return 0;
}

/* In a process of its own, so that a test that dies takes no other with it. */
static int run_apart(struct test *t) {
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0) {
        perror("fork");
        return 1;
    }
    if (pid == 0) exit(run_here(t));
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    printf("%s %s.%s\n", code == 0 ? "ok     " : code == EXIT_SKIPPED ? "skipped" : "FAILED ", t->suite, t->name);
    fflush(stdout);
    return code != 0 && code != EXIT_SKIPPED;
}

static bool named(const struct test *t, const char *arg) {
    size_t n = strlen(t->suite);
    return strcmp(arg, t->suite) == 0 || (strncmp(arg, t->suite, n) == 0 && arg[n] == '.' && strcmp(arg + n + 1, t->name) == 0);
}

int main(int argc, char **argv) {
    int failed = 0;
    if (argc > 1 && strcmp(argv[1], "--list") == 0) {
        for (struct test *t = tests; t; t = t->next) printf("%s.%s\n", t->suite, t->name);
        return 0;
    }
    if (argc == 1) {
        for (struct test *t = tests; t; t = t->next) failed += run_apart(t);
        return failed != 0;
    }
    for (int i = 1; i < argc; i++) {
        int found = 0;
        for (struct test *t = tests; t; t = t->next)
            if (named(t, argv[i])) {
                found++;
                run_here(t);
            }
        if (!found) {
            fprintf(stderr, "no test %s\n", argv[i]);
            failed = 1;
        }
    }
    return failed;
}
