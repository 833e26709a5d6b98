/* SPDX-License-Identifier: MIT */
/* Giving back what lies deep.
 *
 * A task that went deep once keeps the memory it touched, and so does its stack when it comes back to a cache. What is in memory is
 * asked of the kernel (mincore), 1.2 to 1.7 us for a stack of 256 KiB: too much for a switch, nothing for a worker that has nothing to do. So
 * nothing is noted on the way; when to look, and at which stacks, is sched/trim.c's business.
 *
 *  - A stack with a task on it gives back everything below the task's stack pointer, if less than a quarter of what it has is in use.
 *  - A free one keeps KEEP bytes, since the next task will touch them; it is worth the calls if it has twice that.
 * A piece of PIECE bytes at a time: whoever wants to wake the task waits meanwhile. */
#include "stack/slab.h"

#include "os/os.h"

#define KEEP ((size_t)16 << 10) /* 4 pages: more than most tasks touch */
#define PIECE ((size_t)128 << 10)
enum { RED_ZONE = 128, QUARTER = 4 };

_Atomic uint64_t weft__stack_trims;

static char *page_of(char *p) {
    return (char *)((uintptr_t)p & ~(weft__page_size() - 1));
}

/* Bytes in memory between the guard and the end of the top page. */
static size_t committed(weft__stack *s, char **lowest) {
    char *from = weft__stack_first_page(s);
    long pages = weft__vm_resident(from, (size_t)(weft__stack_top(s) - from), lowest);
    return pages < 0 ? 0 : (size_t)pages * weft__page_size();
}

static void count(void) {
    weft__add(&weft__stack_trims, 1, relaxed); /* a figure for people */
}

/* ---- with a task on it ---- */

bool weft__stack_is_deep(weft__stack *s, weft__stack_depth *d) {
    d->bytes = committed(s, &d->lowest);
    return d->bytes > QUARTER * weft__page_size();
}

/* The task may have run since the look, and be deeper or less deep: what is below its stack pointer is not in use in any case. */
bool weft__stack_trim(weft__stack *s, char *sp, weft__stack_depth *d) {
    char *keep = page_of(sp - RED_ZONE);
    if (d->lowest >= keep || d->bytes <= QUARTER * (size_t)(weft__stack_top(s) - keep)) return false;
    size_t left = (size_t)(keep - d->lowest), size = left > PIECE ? PIECE : left;
    if (weft__vm_drop(d->lowest, size) != 0) return false;
    d->lowest += size;
    if (left == size) count();
    return left > size;
}

/* ---- free ---- */

static void trim_free(weft__stack *s) {
    char *lowest, *top = weft__stack_top(s), *keep = page_of(top - KEEP);
    if (committed(s, &lowest) > 2 * KEEP && weft__vm_drop(lowest, (size_t)(keep - lowest)) == 0) count();
}

bool weft__stack_cache_trim(weft__stack_cache *c, uint32_t n, weft__stack_stop *stop, void *arg) {
    for (int cls = 0; cls < WEFT_STACK_CLASSES; cls++) {
        weft__stack *s = c->free[cls];
        for (uint32_t i = 0; s && i < n; i++, s = s->next) {
            if (stop(arg)) return false;
            trim_free(s);
        }
    }
    return true;
}

bool weft__stack_pool_trim(weft__stack_stop *stop, void *arg) {
    weft__stack *first;
    for (int cls = 0; cls < WEFT_STACK_CLASSES; cls++) {
        while ((first = weft__stack_magazine_take(cls))) {
            weft__stack *s = first;
            for (; s && !stop(arg); s = s->next) trim_free(s);
            weft__stack_magazine_give(cls, first, !s);
            if (s) return false;
        }
    }
    return true;
}
