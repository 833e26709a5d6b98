/* SPDX-License-Identifier: MIT */
/* weft's side of the benchmarks: what the files of this directory share. The work and the numbers are those of the peer
 * programs under ../peers, so that both sides of a comparison do the same. */
#ifndef WEFTBENCH_H
#define WEFTBENCH_H

#include "../peers/common/bench.h"
#include <weft.h>

/* What a benchmark gets from the command line. */
struct wb_args {
    int workers;
    long arg; /* 0 when none was given: the benchmark's default */
};

typedef void wb_fn(const struct wb_args *a);

/* Time, CPU time and the runtime's counters at the start of a measurement. */
struct wb_mark {
    int64_t ns;
    double cpu_ms;
    weft_stats stats;
};

void wb_start(struct wb_mark *m);
/* Nanoseconds since wb_start. The first call for a mark decides; print afterwards. */
int64_t wb_ns(const struct wb_mark *m);
/* Prints `name_<workers>w value unit` and, with more than one worker, what it took: a fine figure of a second thread that
 * never ran is not a fine figure. */
void wb_report(const struct wb_mark *m, const struct wb_args *a, const char *name, double value, const char *unit);
/* One more line without the counters. */
void wb_line(const char *name, double value, const char *unit);

/* Ends the program with a sentence when a call that must succeed did not. */
void wb_failed(int rc, const char *what);
static inline void wb_must(int rc, const char *what) { /* inline: the peers' programs check nothing */
    if (__builtin_expect(rc < 0, 0)) wb_failed(rc, what);
}
weft_chan *wb_chan(size_t capacity); /* of longs */

/* tasks.c */
wb_fn wb_switch, wb_yield_many, wb_spawn_join, wb_spawn_join_stack, wb_spawn_batch, wb_fib, wb_skynet, wb_skynet_scope;
/* chans.c */
wb_fn wb_pingpong, wb_spsc, wb_mpmc, wb_mpsc, wb_select2, wb_pipeline;
/* locks.c */
wb_fn wb_mutex, wb_mutex_wait;
/* waits.c */
wb_fn wb_mem, wb_timers, wb_timer_cancel, wb_sleep, wb_idle, wb_wake, wb_block1000;
/* away.c */
wb_fn wb_hogs, wb_usleep, wb_usleep_annotated, wb_pool1000, wb_annotated1000, wb_block_pair, wb_bind, wb_compute;
/* net.c */
wb_fn wb_echo, wb_echo_hogs, wb_hello;
/* prio.c */
wb_fn wb_high_latency, wb_low_gap;

#endif
