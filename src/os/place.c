/* SPDX-License-Identifier: MIT */
/* Which CPUs there are for slots, node by node, and how a thread is bound to one. */
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/os.h"

enum { NODES_MAX = 64, CPUS_MAX = 4096 };

/* "0-3,8,10-11": true if it has the number. */
static bool list_has(const char *list, int cpu) {
    while (*list) {
        char *end;
        long low = strtol(list, &end, 10), high = low;
        if (end == list) return false;
        if (*end == '-') high = strtol(end + 1, &end, 10);
        if (cpu >= low && cpu <= high) return true;
        list = *end == ',' ? end + 1 : "";
    }
    return false;
}

int weft__cpu_places(weft__place *place, int max, const char *root) {
    struct {
        char cpus[1024];
    } *node = weft__calloc(NODES_MAX, sizeof *node);
    cpu_set_t *allowed = CPU_ALLOC(CPUS_MAX);
    size_t size = CPU_ALLOC_SIZE(CPUS_MAX);
    int n = 0;
    bool known = node && allowed && !weft__fault() && sched_getaffinity(0, size, allowed) == 0;
    for (int i = 0; known && i < NODES_MAX; i++) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/node%d/cpulist", root, i);
        if (weft__read_file(path, node[i].cpus, sizeof node[i].cpus) < 0) node[i].cpus[0] = 0;
    }
    /* the last round is for those of no node */
    for (int i = 0; known && i <= NODES_MAX; i++) {
        for (int cpu = 0; cpu < CPUS_MAX && n < max; cpu++) {
            if (!CPU_ISSET_S((size_t)cpu, size, allowed) || (i < NODES_MAX && !list_has(node[i].cpus, cpu))) continue;
            place[n++] = (weft__place){.cpu = cpu, .node = i < NODES_MAX ? i : 0};
            CPU_CLR_S((size_t)cpu, size, allowed);
        }
    }
    if (allowed) CPU_FREE(allowed);
    weft__free(node);
    return n;
}

static __thread cpu_set_t *before __attribute__((tls_model("initial-exec"))); /* where it could run; NULL: it is not bound */

static void note_before(void) {
    if (before || !(before = CPU_ALLOC(CPUS_MAX))) return;
    if (sched_getaffinity(0, CPU_ALLOC_SIZE(CPUS_MAX), before) == 0) return;
    CPU_FREE(before);
    before = NULL;
}

void weft__thread_unbind(void) {
    if (!before) return;
    (void)sched_setaffinity(0, CPU_ALLOC_SIZE(CPUS_MAX), before); /* these CPUs may have gone: then it stays */
    CPU_FREE(before);
    before = NULL;
}

_Static_assert(sizeof((weft__cpus *)0)->mask * 8 == CPUS_MAX, "a mask for all of them");

static weft__cpus home; /* where the runtime was started */
/* This thread began with that, or with what somebody has made of it since. */
static __thread bool ours __attribute__((tls_model("initial-exec")));

void weft__cpus_note(void) {
    home.known = sched_getaffinity(0, sizeof home.mask, (cpu_set_t *)(void *)home.mask) == 0;
}

void weft__cpus_to_start(weft__cpus *out, bool serves) {
    if (serves && !ours) *out = home;
    out->ours = serves;
    if (!before || (serves && !ours)) return;
    out->known = true;
    memcpy(out->mask, before, sizeof out->mask);
}

void weft__cpus_take(const weft__cpus *c) {
    ours = c->ours;
    if (c->known) (void)sched_setaffinity(0, sizeof c->mask, (const cpu_set_t *)(const void *)c->mask); /* as above */
}

bool weft__cpu_allowed(int cpu) {
    cpu_set_t *mask = CPU_ALLOC(CPUS_MAX);
    size_t size = CPU_ALLOC_SIZE(CPUS_MAX);
    bool known = mask && (before || sched_getaffinity(0, size, mask) >= 0);
    if (known && before) memcpy(mask, before, size); /* a worker that is bound to its slot's CPU starts threads for others */
    bool ok = known && cpu >= 0 && cpu < CPUS_MAX && CPU_ISSET_S((size_t)cpu, size, mask);
    if (mask) CPU_FREE(mask);
    return ok;
}

int weft__thread_bind_for_now(int cpu) {
    note_before();
    return weft__thread_bind(cpu);
}

int weft__thread_bind(int cpu) {
    cpu_set_t *one = CPU_ALLOC(CPUS_MAX);
    size_t size = CPU_ALLOC_SIZE(CPUS_MAX);
    if (!one) return -ENOMEM;
    CPU_ZERO_S(size, one);
    CPU_SET_S((size_t)cpu, size, one);
    int err = weft__fault() ? -weft__fault_errno : sched_setaffinity(0, size, one) < 0 ? -errno : 0;
    CPU_FREE(one);
    return err;
}
