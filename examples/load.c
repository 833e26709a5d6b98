/* SPDX-License-Identifier: MIT */
/* A load generator for HTTP servers: load [--start SERVER] [ADDRESS] [CONNECTIONS [SECONDS]]. A task for each connection asks, waits for the answer, asks
 * again; another one shows meanwhile what happens: connections, requests a second, and how long an answer takes for half and for 99 of 100 requests. With
 * --start it runs the server itself, at a port that the kernel chooses, as `make demo` does.
 *
 *     build/examples/load --start build/examples/hello_http 200 3
 *     build/examples/load 127.0.0.1:8080 64 10 */
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <weft.h>

extern char **environ;

enum { FINE = 32, BUCKETS = 40 * FINE, LINE = 1024, CONNECTIONS_MAX = 100000 };
#define PATIENCE (10 * WEFT_SECOND) /* for one connection, or one answer */

static struct {
    char addr[WEFT_ADDR_MAX];
    size_t connections;
    double seconds;
    pid_t server; /* 0: not ours */
} plan = {"127.0.0.1:8080", 64, 3, 0};

/* ---- what is counted; by all tasks, read by one ---- */

static struct {
    atomic_size_t connected, refused, failed;
    atomic_size_t took[BUCKETS]; /* requests by their time, 32 steps for each doubling: 3 % exact */
} count;

static void add_one(atomic_size_t *to) {
    atomic_fetch_add_explicit(to, 1, memory_order_relaxed); /* a counter, nothing hangs on it */
}
static size_t now_at(atomic_size_t *at) {
    return atomic_load_explicit(at, memory_order_relaxed);
}

static size_t bucket_of(int64_t ns) {
    if (ns < FINE) return ns < 0 ? 0 : (size_t)ns;
    int shift = 58 - __builtin_clzll((unsigned long long)ns); /* leaves a number from 32 to 63 */
    size_t b = (size_t)(shift + 1) * FINE + (size_t)(ns >> shift) - FINE;
    return b < BUCKETS ? b : BUCKETS - 1;
}
/* The middle of a bucket. */
static double time_of(size_t b) {
    if (b < FINE) return (double)b;
    int shift = (int)(b / FINE) - 1;
    return ((double)(b % FINE + FINE) + 0.5) * (double)(INT64_C(1) << shift);
}

typedef struct {
    int64_t at;
    size_t took[BUCKETS];
} moment;

static void look(moment *m) {
    m->at = weft_now();
    for (size_t i = 0; i < BUCKETS; i++) m->took[i] = now_at(&count.took[i]);
}

typedef struct {
    size_t requests;
    double rate, p50, p99; /* nanoseconds */
} figures;

/* The time that `part` of the requests between two moments did not exceed. */
static double quantile(const moment *from, const moment *to, size_t requests, double part) {
    size_t below = 0;
    for (size_t i = 0; i < BUCKETS; i++)
        if ((double)(below += to->took[i] - from->took[i]) >= part * (double)requests) return time_of(i);
    return 0;
}

static figures between(const moment *from, const moment *to) {
    figures f = {0, 0, 0, 0};
    for (size_t i = 0; i < BUCKETS; i++) f.requests += to->took[i] - from->took[i];
    if (!f.requests) return f;
    f.rate = (double)f.requests * 1e9 / (double)(to->at - from->at);
    f.p50 = quantile(from, to, f.requests, 0.5);
    f.p99 = quantile(from, to, f.requests, 0.99);
    return f;
}

static void say(FILE *out, const char *before, const figures *f, const char *after) {
    fprintf(out, "%s%5zu connections  %8.0f requests/s  p50 %7.0f us  p99 %7.0f us%s", before, now_at(&count.connected),
            f->rate, f->p50 / 1e3, f->p99 / 1e3, after);
    fflush(out);
}

/* ---- one connection ---- */

/* The answer's head and body; false: it is not what was expected. */
static bool read_answer(weft_conn *c, weft_deadline limit) {
    char line[LINE];
    size_t length = 0;
    for (int at = 0;; at++) {
        ssize_t n = weft_conn_read_until(c, line, sizeof line - 1, '\n', NULL, limit);
        if (n <= 0) return false;
        line[n] = 0;
        if (at == 0 && !strstr(line, " 200 ")) return false;
        if (strncasecmp(line, "Content-Length:", 15) == 0) length = strtoul(line + 15, NULL, 10);
        if (line[0] == '\r' || line[0] == '\n') break;
    }
    for (size_t n; length; length -= n) {
        n = length < sizeof line ? length : sizeof line;
        if (weft_conn_read_full(c, line, n, NULL, limit) != (ssize_t)n) return false;
    }
    return true;
}

static int ask(void *until) {
    static const char request[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    weft_conn *c;
    if (weft_dial(&c, plan.addr, weft_after(PATIENCE)) < 0) {
        add_one(&count.refused);
        return 0;
    }
    add_one(&count.connected);
    do { /* once at least */
        int64_t start = weft_now();
        weft_deadline limit = weft_after(PATIENCE);
        if (weft_conn_write(c, request, sizeof request - 1, limit) < 0 || !read_answer(c, limit)) {
            add_one(&count.failed);
            break;
        }
        add_one(&count.took[bucket_of(weft_now() - start)]);
    } while (weft_now() < *(int64_t *)until);
    weft_conn_close(c);
    return 0;
}

/* ---- all of them ---- */

/* On a terminal a line that changes; elsewhere a line now and then. */
static int show(void *until) {
    static moment before, now;
    bool live = isatty(STDERR_FILENO);
    int64_t every = live ? WEFT_SECOND / 5 : WEFT_SECOND / 2;
    figures f = {0, 0, 0, 0};
    look(&before);
    do {
        if (weft_sleep_for(every) < 0) break;
        look(&now);
        f = between(&before, &now);
        say(stderr, live ? "\r\033[K" : "  ", &f, live ? "" : "\n");
        before = now;
    } while (weft_now() + every < *(int64_t *)until);
    if (live) fputs("\r\033[K", stderr);
    return 0;
}

static int run(void *arg) {
    static moment first, last;
    (void)arg;
    int64_t until = weft_now() + (int64_t)(plan.seconds * 1e9);
    weft_scope s;
    weft_scope_begin(&s, &(weft_scope_opts){.on_error = WEFT_KEEP_GOING});
    look(&first);
    int err = weft_spawn(&s, show, &until);
    for (size_t i = 0; i < plan.connections && !err; i++) err = weft_spawn(&s, ask, &until);
    if (err) weft_scope_cancel(&s);
    int end = weft_scope_end(&s);
    look(&last);
    figures f = between(&first, &last);
    say(stdout, "", &f, "\n");
    printf("%zu requests answered, %zu failed; %zu connections refused\n", f.requests, now_at(&count.failed),
           now_at(&count.refused));
    if (err || end) return err ? err : end;
    return f.requests && !now_at(&count.failed) && !now_at(&count.refused) ? 0 : WEFT_EBROKEN;
}

/* ---- the server ---- */

/* Runs it, and reads from its first line where it listens: "http://127.0.0.1:4711/". */
static bool start_server(char *program) {
    int p[2];
    char line[256] = "", many[24];
    if (pipe(p) < 0) return false;
    snprintf(many, sizeof many, "%zu", plan.connections); /* it ends by itself after so many */
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, p[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, p[0]);
    char any[] = "127.0.0.1:0", *argv[] = {program, any, many, NULL};
    int err = posix_spawn(&plan.server, program, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(p[1]);
    FILE *f = fdopen(p[0], "r");
    bool told = !err && f && fgets(line, sizeof line, f) && sscanf(line, "http://%63[^/]/", plan.addr) == 1;
    if (f) fclose(f);
    if (err) plan.server = 0;
    if (told) printf("%s at %s", program, line);
    return told;
}

/* It ends when its connections have; if not, it is told to. */
static void end_server(void) {
    const struct timespec nap = {0, 10 * 1000 * 1000};
    for (int i = 0; plan.server && i < 100; i++) {
        if (waitpid(plan.server, NULL, WNOHANG) == plan.server) return;
        nanosleep(&nap, NULL);
    }
    if (!plan.server) return;
    kill(plan.server, SIGKILL);
    waitpid(plan.server, NULL, 0);
}

/* ---- the command line ---- */

static int usage(FILE *out, int status) {
    fprintf(out, "usage: load [--start SERVER] [ADDRESS] [CONNECTIONS [SECONDS]]\n"
                 "  Asks an HTTP server (127.0.0.1:8080) with 64 connections for 3 seconds, or as told.\n"
                 "  --start SERVER  runs this program as the server, and takes no ADDRESS\n");
    return status;
}

/* False: they are not right. */
static bool read_numbers(int n, char **v) {
    char *end = NULL;
    if (n > 2) return false;
    if (n > 0) {
        plan.connections = strtoul(v[0], &end, 10);
        if (*end || !plan.connections || plan.connections > CONNECTIONS_MAX) return false;
    }
    if (n > 1) {
        plan.seconds = strtod(v[1], &end);
        if (*end || !(plan.seconds > 0 && plan.seconds < 1e6)) return false;
    }
    return true;
}

int main(int argc, char **argv) {
    char *server = NULL;
    argc--, argv++;
    if (argc == 1 && strcmp(argv[0], "--help") == 0) return usage(stdout, 0);
    if (argc > 1 && strcmp(argv[0], "--start") == 0) {
        server = argv[1];
        argc -= 2, argv += 2;
    } else if (argc && strpbrk(argv[0], ":.")) {
        snprintf(plan.addr, sizeof plan.addr, "%s", argv[0]);
        argc--, argv++;
    }
    if (!read_numbers(argc, argv)) return usage(stderr, 2);
    if (server && !start_server(server)) {
        fprintf(stderr, "load: %s does not start\n", server);
        end_server();
        return 1;
    }
    int err = weft_run(run, NULL, NULL);
    if (err) fprintf(stderr, "load: %s\n", err == WEFT_EBROKEN ? "not everything was answered" : weft_strerror(err));
    end_server();
    return err ? 1 : 0;
}
