/* SPDX-License-Identifier: MIT */
/* What was measured about stacks, for programs and for people. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "os/os.h"
#include "task/task.h"

#include <weft/debug.h>

int weft_stack_sites(void (*fn)(const weft_stack_site *site, void *arg), void *arg) {
    weft__stack_site x;
    int n = 0;
    for (; weft__stack_site_get((uint32_t)n, &x); n++) {
        weft_stack_site site = {.spawned_at = x.site,
                                .tasks = x.tasks,
                                .high_water = x.deepest,
                                .reserve = weft__stack_class_size(x.size_class),
                                .advice = weft__stack_class_size(x.advice)};
        memcpy(&site.fn, &x.fn, sizeof site.fn);
        if (fn) fn(&site, arg);
    }
    return n;
}

/* "parse+0x1f (./app)" or, without a symbol, what addr2line takes: "./app+0x581". */
static void name_address(FILE *out, void *p) {
    Dl_info d;
    if (!p || !dladdr(p, &d) || !d.dli_fname)
        fprintf(out, "%p", p);
    else if (d.dli_sname)
        fprintf(out, "%s+0x%zx (%s)", d.dli_sname, (size_t)((char *)p - (char *)d.dli_saddr), d.dli_fname);
    else
        fprintf(out, "%s+0x%zx", d.dli_fname, (size_t)((char *)p - (char *)d.dli_fbase));
}

static void line(const weft_stack_site *s, void *arg) {
    FILE *out = arg;
    void *fn;
    memcpy(&fn, &s->fn, sizeof fn);
    fprintf(out, "  ");
    name_address(out, s->spawned_at);
    fprintf(out, ", function ");
    name_address(out, fn);
    fprintf(out, ": %llu tasks, high-water %zu KiB of %zu KiB, advice %zu KiB\n", (unsigned long long)s->tasks,
            (s->high_water + 1023) >> 10, s->reserve >> 10, s->advice >> 10);
}

void weft_stack_report(FILE *out) {
    fprintf(out, "weft: stacks by spawn site (advice: room for twice the high-water mark)\n");
    if (weft_stack_sites(line, out) == 0) fprintf(out, "  no task has ended while stacks were measured\n");
}

/* ---- WEFT_STACK_REPORT ---- */

static void report_at_exit(void) {
    bool ours = !weft__load(&weft__forked, relaxed) && weft__rt.report_stacks; /* a child leaves it to its parent */
    if (ours && weft__load(&weft__rt.phase, relaxed) >= WEFT_PHASE_RUNNING) weft_stack_report(stderr);
}

static void watch_exit(void) {
    (void)atexit(report_at_exit);
}

void weft__report_stacks(bool now) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_exit);
    if (now) weft_stack_report(stderr);
}
