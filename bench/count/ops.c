/* SPDX-License-Identifier: MIT */
/* ops NAME N: makes one operation N times, on one worker. bench/count/run counts the instructions of two
 * sizes under callgrind: their difference, divided by the difference of N, is the operation's cost. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <weft.h>

typedef void op(long n);

static void must(int rc, const char *what) {
    if (rc >= 0) return;
    fprintf(stderr, "ops: %s: %s\n", what, weft_strerror(rc));
    exit(1);
}

static int nothing(void *arg) {
    (void)arg;
    return 0;
}

/* Runs fn beside the caller, in a scope; the caller makes the other half of the operation. */
static void beside(weft_fn *fn, void *arg, op *mine, long n) {
    weft_scope s;
    weft_scope_begin(&s, NULL);
    must(weft_spawn(&s, fn, arg), "spawn");
    mine(n);
    must(weft_scope_end(&s), "scope_end");
}

static void yield(long n) {
    for (long i = 0; i < n; i++) weft_yield();
}
static int yield_task(void *arg) {
    yield(*(long *)arg);
    return 0;
}
static void op_yield(long n) {
    beside(yield_task, &n, yield, n);
}

static void op_spawn_join(long n) {
    for (long i = 0; i < n; i++) {
        weft_scope s;
        weft_scope_begin(&s, NULL);
        must(weft_spawn(&s, nothing, NULL), "spawn");
        must(weft_scope_end(&s), "scope_end");
    }
}

static void op_spawn_batch(long n) {
    enum { BATCH = 100 };
    for (long i = 0; i < n / BATCH; i++) {
        weft_scope s;
        weft_scope_begin(&s, NULL);
        for (int k = 0; k < BATCH; k++) must(weft_spawn(&s, nothing, NULL), "spawn");
        must(weft_scope_end(&s), "scope_end");
    }
}

static void op_task_join(long n) {
    for (long i = 0; i < n; i++) {
        weft_task *t;
        must(weft_task_start(&t, nothing, NULL, NULL), "task_start");
        must(weft_task_join(t, NULL, WEFT_FOREVER), "task_join");
    }
}

static long fib(long n);
static int fib_task(void *arg) {
    *(long *)arg = fib(*(long *)arg);
    return 0;
}
static long fib(long n) {
    if (n < 2) return n;
    long a = n - 1;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    must(weft_spawn(&s, fib_task, &a), "spawn");
    long b = fib(n - 2);
    must(weft_scope_end(&s), "scope_end");
    return a + b;
}
static void op_fib15(long n) { /* 986 tasks each */
    for (long i = 0; i < n / 1000; i++) (void)fib(15);
}

static weft_chan *there, *back;

static int pong(void *arg) {
    long v;
    (void)arg;
    while (weft_chan_recv(there, &v, WEFT_FOREVER) == 0) must(weft_chan_send(back, &v, WEFT_FOREVER), "send");
    return 0;
}
static void ping(long n) {
    for (long i = 0; i < n; i++) {
        must(weft_chan_send(there, &i, WEFT_FOREVER), "send");
        must(weft_chan_recv(back, &i, WEFT_FOREVER), "recv");
    }
    weft_chan_close(there);
}
static void op_round_trip(long n) {
    there = weft_chan_new(sizeof(long), 0), back = weft_chan_new(sizeof(long), 0);
    beside(pong, NULL, ping, n);
}

static int drain(void *arg) {
    long v;
    (void)arg;
    while (weft_chan_recv(there, &v, WEFT_FOREVER) == 0) {
    }
    return 0;
}
static void fill(long n) {
    for (long i = 0; i < n; i++) must(weft_chan_send(there, &i, WEFT_FOREVER), "send");
    weft_chan_close(there);
}
static void op_buffered(long n) {
    there = weft_chan_new(sizeof(long), 128);
    beside(drain, NULL, fill, n);
}

static int select_task(void *arg) {
    long v, n = *(long *)arg;
    bool open;
    for (long i = 0; i < n; i++)
        must(weft_select(WEFT_FOREVER, weft_on_recv(there, &v, &open), weft_on_recv(back, &v, &open)), "select");
    return 0;
}
static void feed(long n) {
    for (long i = 0; i < n; i++) must(weft_chan_send(i & 1 ? there : back, &i, WEFT_FOREVER), "send");
}
static void op_select2(long n) {
    there = weft_chan_new(sizeof(long), 0), back = weft_chan_new(sizeof(long), 0);
    beside(select_task, &n, feed, n);
}

static void op_mutex(long n) {
    static weft_mutex m;
    for (long i = 0; i < n; i++) {
        weft_mutex_lock(&m);
        weft_mutex_unlock(&m);
    }
}

static void never(void *arg) {
    (void)arg;
}
static void op_timer(long n) {
    static weft_timer t;
    for (long i = 0; i < n; i++) {
        must(weft_timer_start(&t, weft_after(WEFT_SECOND), 0, never, NULL), "timer_start");
        (void)weft_timer_stop(&t);
    }
}

static weft_conn *ends[2];
static int echo(void *arg) {
    char c[64];
    (void)arg;
    for (ssize_t r; (r = weft_conn_read(ends[1], c, sizeof c, WEFT_FOREVER)) > 0;)
        must((int)weft_conn_write(ends[1], c, (size_t)r, WEFT_FOREVER), "write");
    return 0;
}
static void talk(long n) {
    char c[64] = "";
    for (long i = 0; i < n; i++) {
        must((int)weft_conn_write(ends[0], c, sizeof c, WEFT_FOREVER), "write");
        must((int)weft_conn_read(ends[0], c, sizeof c, WEFT_FOREVER), "read");
    }
    must(weft_conn_shutdown(ends[0], SHUT_WR), "shutdown");
}
static void op_socket(long n) {
    int fd[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fd)) exit(1);
    for (int i = 0; i < 2; i++) must(weft_conn_adopt(&ends[i], fd[i]), "adopt");
    beside(echo, NULL, talk, n);
}

static const struct {
    const char *name;
    op *run;
} ops[] = {{"yield", op_yield},         {"spawn_join", op_spawn_join}, {"spawn_batch", op_spawn_batch},
           {"task_join", op_task_join}, {"fib15", op_fib15},           {"round_trip", op_round_trip},
           {"buffered", op_buffered},   {"select2", op_select2},       {"mutex", op_mutex},
           {"timer", op_timer},         {"socket", op_socket}};

typedef struct {
    op *run;
    long n;
} job;

static int app(void *arg) {
    job *j = arg;
    j->run(j->n);
    return 0;
}

int main(int argc, char **argv) {
    job j = {NULL, argc == 3 ? atol(argv[2]) : 0};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        if (argc == 2 && !strcmp(argv[1], "--list")) puts(ops[i].name);
        if (argc == 3 && !strcmp(argv[1], ops[i].name)) j.run = ops[i].run;
    }
    if (argc == 2 && !strcmp(argv[1], "--list")) return 0;
    if (!j.run || j.n < 1) return fprintf(stderr, "usage: ops NAME N | --list\n"), 2;
    must(weft_run(app, &j, &(weft_config){.workers = 1}), "weft_run");
    return 0;
}
