/* SPDX-License-Identifier: MIT */
/* weftbench BENCH WORKERS [ARG]: one benchmark in one process, `bench<TAB>value<TAB>unit` lines on stdout. */
#include "weftbench.h"

static const struct {
    const char *name;
    wb_fn *fn;
    const char *help;
} benches[] = {
    {"switch", wb_switch, "yield between 2 tasks"},
    {"yield_many", wb_yield_many, "yield between 1,000 tasks"},
    {"spawn_join", wb_spawn_join, "a scope with one empty task, 2M times"},
    {"spawn_join_stack", wb_spawn_join_stack, "the same through weft_task_start and weft_task_join"},
    {"spawn_batch", wb_spawn_batch, "ARG (1M) empty tasks in one scope"},
    {"fib", wb_fib, "fib(30), a task per call down to ARG (1)"},
    {"skynet", wb_skynet, "a tree of 1.1M detached tasks that sum over channels"},
    {"skynet_scope", wb_skynet_scope, "the same with a scope for each node"},
    {"pingpong", wb_pingpong, "round trips over two rendezvous channels"},
    {"spsc", wb_spsc, "one producer, one consumer, capacity ARG (128)"},
    {"mpmc", wb_mpmc, "4 producers, 4 consumers, capacity ARG (128)"},
    {"mpsc", wb_mpsc, "4 producers, 1 consumer, capacity ARG (128)"},
    {"select2", wb_select2, "select over two channels of capacity ARG (0)"},
    {"pipeline", wb_pipeline, "two stages with ARG (1000) ns of work for each item"},
    {"mutex", wb_mutex, "8 tasks that lock, count and unlock"},
    {"mutex_wait", wb_mutex_wait, "8 tasks that lock and unlock for ARG (10) seconds: the longest wait"},
    {"mem", wb_mem, "memory of ARG (1M) tasks parked in receive"},
    {"timers", wb_timers, "ARG (1M) tasks that sleep 1 to 1000 ms"},
    {"timer_cancel", wb_timer_cancel, "start and stop of a timer among 100,000"},
    {"sleep", wb_sleep, "how late sleeps of ARG (100) microseconds are"},
    {"idle", wb_idle, "1,000 parked tasks for ARG (3) seconds"},
    {"hogs", wb_hogs, "a sleeper of 5 ms beside ARG (8) tasks that compute without end"},
    {"usleep", wb_usleep, "ARG (64) tasks that each make a C call of 100 ms"},
    {"usleep_annotated", wb_usleep_annotated, "the same between weft_block_enter and weft_block_exit, 200 of them"},
    {"annotated1000", wb_annotated1000, "1,000 tasks that each make a C call of 1 ms, annotated"},
    {"pool1000", wb_pool1000, "1,000 calls of 1 ms on the blocking pool"},
    {"block_pair", wb_block_pair, "weft_block_enter and weft_block_exit, nobody waits"},
    {"bind", wb_bind, "weft_bind and weft_unbind"},
    {"compute", wb_compute, "200 tasks that compute for some milliseconds"},
    {"block1000", wb_block1000, "1,000 tasks that each make a C call of 1 ms"},
    {"high_latency", wb_high_latency, "from a timer to a task of high, and of normal priority, under full load"},
    {"low_gap", wb_low_gap, "longest time that a task of low, and of normal priority does not run, under full load"},
    {"echo", wb_echo, "a TCP echo server at port ARG, a task for each connection; until it is killed"},
    {"echo_hogs", wb_echo_hogs, "the same beside two tasks that compute without end"},
    {"hello", wb_hello, "the same for HTTP requests"},
    {"wake", wb_wake, "latency from a plain thread to a parked task"},
};

static wb_fn *chosen;

void wb_start(struct wb_mark *m) {
    weft_stats_get(&m->stats);
    m->cpu_ms = bn_cpu_ms();
    m->ns = bn_now();
}

int64_t wb_ns(const struct wb_mark *m) {
    return bn_now() - m->ns;
}

void wb_line(const char *name, double value, const char *unit) {
    bn_out(name, value, unit);
}

void wb_report(const struct wb_mark *m, const struct wb_args *a, const char *name, double value, const char *unit) {
    double cpu = bn_cpu_ms() - m->cpu_ms;
    weft_stats now;
    char line[96];
    weft_stats_get(&now);
    snprintf(line, sizeof line, "%s_%dw", name, a->workers);
    bn_out(line, value, unit);
    if (a->workers < 2) return;
    snprintf(line, sizeof line, "%s_%dw.cpu", name, a->workers);
    bn_out(line, cpu, "cpu-ms");
    snprintf(line, sizeof line, "%s_%dw.steals", name, a->workers);
    bn_out(line, (double)(now.steals - m->stats.steals), "steals");
    snprintf(line, sizeof line, "%s_%dw.wakes", name, a->workers);
    bn_out(line, (double)(now.wakes - m->stats.wakes), "wakes");
    snprintf(line, sizeof line, "%s_%dw.sleeps", name, a->workers);
    bn_out(line, (double)(now.sleeps - m->stats.sleeps), "sleeps");
}

void wb_failed(int rc, const char *what) {
    fprintf(stderr, "weftbench: %s: %s\n", what, weft_strerror(rc));
    exit(1);
}

weft_chan *wb_chan(size_t capacity) {
    weft_chan *c = weft_chan_new(sizeof(long), capacity);
    if (!c) wb_must(WEFT_ENOMEM, "weft_chan_new");
    return c;
}

static int body(void *arg) {
    chosen(arg);
    return 0;
}

static int usage(FILE *to, int rc) {
    fprintf(to, "usage: weftbench BENCH WORKERS [ARG]\n\n");
    for (size_t i = 0; i < sizeof benches / sizeof *benches; i++) fprintf(to, "  %-18s %s\n", benches[i].name, benches[i].help);
    return rc;
}

int main(int argc, char **argv) {
    if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) return usage(stdout, 0);
    if (argc < 3) return usage(stderr, 2);
    struct wb_args a = {.workers = atoi(argv[2]), .arg = argc > 3 ? atol(argv[3]) : 0};
    for (size_t i = 0; i < sizeof benches / sizeof *benches; i++)
        if (!strcmp(argv[1], benches[i].name)) chosen = benches[i].fn;
    if (!chosen || a.workers < 1) return usage(stderr, 2);
    weft_config cfg = {.workers = a.workers};
    wb_must(weft_run(body, &a, &cfg), "weft_run");
    return 0;
}
