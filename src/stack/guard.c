/* SPDX-License-Identifier: MIT */
/* What stops a task that runs off the end of its stack.
 *
 *  3  Guard regions (Linux 6.13): the page-table entry itself says "fault"; no mapping is added, so a million are possible.
 *  2  A protected page: splits the mapping, so each costs two of vm.max_map_count (65,530). Weft takes at most half of them:
 *     the program needs some too, and mmap and mprotect fail for everybody when they are used up.
 *  1  A canary: a pattern at the bottom, looked at when the stack is given back. Too late to prevent damage, and it touches a
 *     second page; but the damage has a name then, and so has the task.
 *
 * The best level that works is found when the pool opens, by trying: emulators accept the advice and do nothing,
 * so a test page is guarded and the kernel is asked whether it faults. WEFT_STACK_GUARDS=region|protect|canary in the
 * environment sets the best level to be used; WEFT_NO_PROCESS_MADVISE=1 has guard regions installed one by one. A magazine may fall below that level by itself (no memory, budget used up); its
 * stacks remember what they have.
 *
 * A frame larger than the guard can step over it into the neighbour's memory without touching it. Compilers prevent that with
 * -fstack-clash-protection, which several distributions switch on; for the others the guard is a sixteenth of the stack, at
 * least a page and at most 64 KiB: 16 KiB by default. The entries are in pages of page tables that the stack needs anyway, so
 * that is free up to 2 MiB of stack; four entries take 60 ns longer to install than one, of 800.
 * On AArch64 gcc's -fstack-clash-protection counts on a guard of 64 KiB and probes only larger frames (the C library guards its
 * threads with as much for that reason); so the guard is a quarter of the stack there, 64 KiB by default. */
#include "stack/slab.h"

#include <stdlib.h>

#include "os/os.h"

#define GUARD_MAX ((size_t)64 << 10)
#if defined(__aarch64__)
enum { GUARD_SHARE = 4 };
#else
enum { GUARD_SHARE = 16 };
#endif
enum { REGION = 3, PROTECT = 2, CANARY = 1 };
enum { MAPS_DEFAULT = 65530, MAPS_PER_GUARD = 2 };
static const uint64_t canary = UINT64_C(0x77656674c0de57ac); /* odd bytes and no pointer */

static int best;                          /* set before there are workers */
static _Atomic int weakest;               /* a figure for people */
static _Atomic long maps_left, maps_used; /* counters; they order nothing */

void (*weft__stack_who)(weft__stack *s, weft__who *out);

size_t weft__guard_size(int cls) {
    size_t size = weft__stack_class_size(cls) / GUARD_SHARE, page = weft__page_size();
    return size > GUARD_MAX ? GUARD_MAX : size < page ? page : size;
}

/* True if a guard region on a page of our own really faults. */
static bool region_works(void) {
    size_t page = weft__page_size();
    char *p = weft__vm_reserve(2 * page, page);
    if (!p) return false;
    bool works = weft__vm_guard(p, page, page, 1) == 0 && weft__vm_faults(p) && !weft__vm_faults(p + page);
    weft__vm_release(p, 2 * page);
    return works;
}

static long map_budget(void) {
    char text[32];
    long max = 0;
    if (weft__read_file("/proc/sys/vm/max_map_count", text, sizeof text) > 0) max = atol(text);
    return (max > 0 ? max : MAPS_DEFAULT) / 2;
}

static int wanted(void) {
    const char *s = weft__env("WEFT_STACK_GUARDS");
    if (!s || strcmp(s, "region") == 0) return REGION;
    return strcmp(s, "protect") == 0 ? PROTECT : strcmp(s, "canary") == 0 ? CANARY : REGION;
}

int weft__guards_open(void) {
    weft__vm_one_by_one = weft__env_on("WEFT_NO_PROCESS_MADVISE");
    best = wanted();
    if (best == REGION && !region_works()) best = PROTECT;
    weft__store(&weakest, best, relaxed);
    weft__store(&maps_left, map_budget(), relaxed);
    weft__store(&maps_used, 0, relaxed);
    return 0;
}

static void weaken(int level) {
    int now = weft__load(&weakest, relaxed);
    while (level < now &&
           !atomic_compare_exchange_weak_explicit(&weakest, &now, level, memory_order_relaxed, memory_order_relaxed))
        ;
}

/* All n pages or false; then some may be protected all the same, which does no harm. */
static bool protect(char *p, int cls, int n) {
    size_t stride = weft__stack_stride(cls);
    long cost = (long)n * MAPS_PER_GUARD;
    if (weft__sub(&maps_left, cost, relaxed) < cost) {
        weft__add(&maps_left, cost, relaxed);
        return false;
    }
    weft__add(&maps_used, cost, relaxed);
    for (int i = 0; i < n; i++)
        if (weft__vm_protect_none(p + (size_t)i * stride, weft__guard_size(cls)) != 0) return false;
    return true;
}

int weft__guards_install(char *p, int cls, int n) {
    int level = best;
    if (level == REGION && weft__vm_guard(p, weft__guard_size(cls), weft__stack_stride(cls), n) != 0) level = PROTECT;
    if (level == PROTECT && !protect(p, cls, n)) level = CANARY;
    weaken(level);
    return level;
}

uint64_t weft__guards_mappings(void) {
    return (uint64_t)weft__load(&maps_used, relaxed);
}

int weft__guards_weakest(void) {
    return weft__load(&weakest, relaxed);
}

void weft__guards_canary(weft__stack *s) {
    for (int i = 0; i < WEFT_STACK_CANARY; i += (int)sizeof canary)
        memcpy(s->low - WEFT_STACK_CANARY + i, &canary, sizeof canary);
}

void weft__guards_canary_check(weft__stack *s) {
    for (int i = 0; i < WEFT_STACK_CANARY; i += (int)sizeof canary) {
        if (memcmp(s->low - WEFT_STACK_CANARY + i, &canary, sizeof canary) == 0) continue;
        weft__who who = {0};
        if (weft__stack_who) weft__stack_who(s, &who);
        weft__die(
            "stack overflow in task %llu \"%s\", found when it ended: its stack of %zu KiB was too small and memory below it "
            "is damaged. Raise weft_task_opts.stack_size or weft_config.stack_size.",
            (unsigned long long)who.id, who.name ? who.name : "", weft__stack_class_size(s->size_class) >> 10);
    }
}
