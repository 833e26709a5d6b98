/* SPDX-License-Identifier: MIT */
/* Waiting: memory of parked tasks, sleeping, being idle, being woken from outside. */
#include "weftbench.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdatomic.h>

enum { PARKED = 1000000, SLEEPERS = 1000000, IDLE_TASKS = 1000, WAKES = 2000, LIVE = 100000, PAIRS = 2000000 };

static long status_kib(const char *field) {
    char line[256];
    long v = 0;
    FILE *f = fopen("/proc/self/status", "r");
    if (!f) return 0;
    while (fgets(line, sizeof line, f))
        if (!strncmp(line, field, strlen(field))) v = atol(line + strlen(field));
    fclose(f);
    return v;
}

/* Resident pages and the page tables that map them: a wide reserve costs in the second, not in the first. */
static long memory(void) {
    return bn_rss() + status_kib("VmPTE:") * 1024;
}

static long mappings(void) {
    long n = 0;
    int ch;
    FILE *f = fopen("/proc/self/maps", "r");
    if (!f) return 0;
    while ((ch = getc(f)) != EOF) n += ch == '\n';
    fclose(f);
    return n;
}

struct crowd {
    weft_chan *gate, *all_there;
    long size;
    _Atomic long there;
};

static int parked(void *arg) {
    struct crowd *c = arg;
    long v = 0;
    if (atomic_fetch_add_explicit(&c->there, 1, memory_order_relaxed) + 1 == c->size) /* the channel orders the rest */
        wb_must(weft_chan_send(c->all_there, &v, WEFT_FOREVER), "weft_chan_send");
    return weft_chan_recv(c->gate, &v, WEFT_FOREVER) == WEFT_ECLOSED ? 0 : WEFT_EBROKEN;
}

static void crowd_gather(struct crowd *c, weft_scope *s, long size) {
    long v;
    c->gate = wb_chan(0);
    c->all_there = wb_chan(1);
    c->size = size;
    atomic_init(&c->there, 0);
    weft_scope_begin(s, NULL);
    for (long i = 0; i < size; i++) wb_must(weft_spawn(s, parked, c), "weft_spawn");
    wb_must(weft_chan_recv(c->all_there, &v, WEFT_FOREVER), "weft_chan_recv");
}

static void crowd_dismiss(struct crowd *c, weft_scope *s) {
    weft_chan_close(c->gate);
    wb_must(weft_scope_end(s), "weft_scope_end");
    weft_chan_unref(c->gate);
    weft_chan_unref(c->all_there);
}

void wb_mem(const struct wb_args *a) {
    long n = a->arg ? a->arg : PARKED;
    long before = memory(), maps = mappings();
    struct crowd c;
    struct wb_mark m;
    weft_scope s;
    wb_start(&m);
    crowd_gather(&c, &s, n);
    int64_t ns = wb_ns(&m);
    weft_sleep_for(50 * WEFT_MS); /* the last ones announce themselves just before they park */
    wb_line("mem_parked", (double)(memory() - before) / (double)n, "bytes/task");
    wb_line("mem_mappings", (double)(mappings() - maps), "mappings");
    wb_report(&m, a, "create_parked", (double)ns / (double)n, "ns/task");
    wb_start(&m);
    crowd_dismiss(&c, &s);
    wb_report(&m, a, "release_parked", (double)wb_ns(&m) / (double)n, "ns/task");
}

static int sleeper(void *arg) {
    return weft_sleep_for((int64_t)(long)arg * WEFT_MS);
}

void wb_timers(const struct wb_args *a) {
    long n = a->arg ? a->arg : SLEEPERS;
    struct wb_mark m;
    weft_scope s;
    wb_start(&m);
    weft_scope_begin(&s, NULL);
    for (long i = 0; i < n; i++) wb_must(weft_spawn(&s, sleeper, (void *)(long)(1 + bn_rnd(1000))), "weft_spawn");
    double created = (double)wb_ns(&m) / 1e6;
    wb_must(weft_scope_end(&s), "weft_scope_end");
    wb_report(&m, a, "timers", (double)wb_ns(&m) / 1e6, "ms");
    wb_line("timers_create", created, "ms");
    wb_line("timers_maxrss", bn_maxrss_mib(), "MiB");
}

static void never(void *arg) {
    (void)arg;
}

static double new_and_stop(const int64_t *after, bool clock) {
    int64_t now = weft_now();
    struct wb_mark m;
    wb_start(&m);
    for (long i = 0; i < PAIRS; i++) {
        weft_timer t = {{0}};
        weft_deadline d = clock ? weft_after(after[i & 4095]) : weft_at(now + after[i & 4095]);
        wb_must(weft_timer_start(&t, d, 0, never, NULL), "weft_timer_start");
        if (weft_timer_stop(&t) != 1) wb_must(WEFT_EBROKEN, "a timer of an hour fired");
    }
    return (double)wb_ns(&m) / PAIRS;
}

/* Among LIVE timers that stay: a timer is made, started and stopped; for a moment that is known, and for one that takes a look at the
 * clock. */
void wb_timer_cancel(const struct wb_args *a) {
    static int64_t after[4096];
    struct wb_mark m;
    weft_timer *live = calloc(LIVE, sizeof *live);
    if (!live) wb_must(WEFT_ENOMEM, "calloc");
    for (long i = 0; i < LIVE; i++)
        wb_must(weft_timer_start(&live[i], weft_after((3600 + (int64_t)bn_rnd(3600)) * WEFT_SECOND), 0, never, NULL),
                "weft_timer_start");
    for (int i = 0; i < 4096; i++) after[i] = (60 + (int64_t)bn_rnd(7200)) * WEFT_SECOND;
    wb_start(&m);
    wb_report(&m, a, "timer_add_cancel", new_and_stop(after, false), "ns/pair");
    wb_report(&m, a, "timer_after_cancel", new_and_stop(after, true), "ns/pair");
    for (long i = 0; i < LIVE; i++) weft_timer_stop_wait(&live[i]);
    free(live);
}

/* How late sleeps of ARG microseconds are. */
void wb_sleep(const struct wb_args *a) {
    static int64_t late[WAKES];
    int64_t us = a->arg ? a->arg : 100;
    for (int i = 0; i < WAKES; i++) {
        weft_deadline d = weft_after(us * WEFT_US);
        wb_must(weft_sleep(d), "weft_sleep");
        late[i] = weft_now() - d.ns;
    }
    qsort(late, WAKES, sizeof *late, bn_cmp64);
    wb_line("sleep_late_p50", (double)late[WAKES / 2], "ns");
    wb_line("sleep_late_p99", (double)late[WAKES * 99 / 100], "ns");
}

static int call_that_blocks(void *arg) {
    struct timespec ts = {0, 1000000};
    (void)arg;
    return nanosleep(&ts, NULL);
}

/* A call into C that the runtime knows nothing of, 1,000 at once: slots go to other threads. */
void wb_block1000(const struct wb_args *a) {
    struct wb_mark m;
    weft_scope s;
    wb_start(&m);
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 1000; i++) wb_must(weft_spawn(&s, call_that_blocks, NULL), "weft_spawn");
    wb_must(weft_scope_end(&s), "weft_scope_end");
    wb_report(&m, a, "block1000", (double)wb_ns(&m) / 1e6, "ms");
}

static long context_switches(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_nvcsw + u.ru_nivcsw;
}

void wb_idle(const struct wb_args *a) {
    long seconds = a->arg ? a->arg : 3;
    struct crowd c;
    weft_scope s;
    crowd_gather(&c, &s, IDLE_TASKS);
    weft_sleep_for(200 * WEFT_MS); /* workers have stopped searching by then */
    long switches = context_switches();
    double cpu = bn_cpu_ms();
    weft_sleep_for(seconds * WEFT_SECOND);
    wb_line("idle_switches", (double)(context_switches() - switches), "switches");
    wb_line("idle_cpu", bn_cpu_ms() - cpu, "cpu-ms");
    crowd_dismiss(&c, &s);
}

/* A plain thread that knows nothing of the runtime but a channel. */
static void *outside(void *arg) {
    weft_chan *c = arg;
    for (int i = 0; i < WAKES; i++) {
        struct timespec ts = {0, 1000000};
        nanosleep(&ts, NULL);
        long now = (long)bn_now();
        wb_must(weft_chan_send(c, &now, WEFT_FOREVER), "weft_chan_send");
    }
    weft_chan_close(c);
    return NULL;
}

void wb_wake(const struct wb_args *a) {
    static int64_t latency[WAKES];
    weft_chan *c = wb_chan(0);
    struct wb_mark m;
    pthread_t t;
    long sent;
    int n = 0;
    wb_start(&m);
    wb_must(-pthread_create(&t, NULL, outside, c), "pthread_create");
    while (weft_chan_recv(c, &sent, WEFT_FOREVER) == 0) latency[n++] = bn_now() - sent;
    pthread_join(t, NULL);
    if (n != WAKES) wb_must(WEFT_EBROKEN, "wake-ups were lost");
    qsort(latency, WAKES, sizeof *latency, bn_cmp64);
    wb_report(&m, a, "wake_p50", (double)latency[WAKES / 2], "ns");
    wb_line("wake_p99", (double)latency[WAKES * 99 / 100], "ns");
    weft_chan_unref(c);
}
