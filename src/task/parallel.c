/* SPDX-License-Identifier: MIT */
/* A loop on all cores, and a call with a deadline: what is easily built from scopes, built once.
 *
 * The loop splits its range in halves: the right one becomes a task, the left one is split again. The first task spawned is the largest, and
 * thieves take the oldest: so each theft takes about half of what its victim still has to do, and the rest runs on the
 * opener's stack, in weft_scope_end, smallest first. */
#include "task/task.h"

typedef struct {
    void (*fn)(size_t lo, size_t hi, void *arg);
    void *arg;
    size_t grain;
    _Atomic int32_t error; /* 0, or why some of the range was left out */
} loop;

typedef struct {
    loop *loop;
    size_t lo, hi;
} range;

enum { RANGES_PER_SLOT = 8 }; /* enough for thieves to even out what takes unequal time */

static int run_range(void *arg) {
    range r = *(range *)arg;
    loop *l = r.loop;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    weft__scope_of(&s)->on_error = WEFT_KEEP_GOING; /* a refused half is done here instead */
    while (r.lo < r.hi) {
        size_t end = r.hi;
        if (weft_cancelled()) {
            weft__store(&l->error, WEFT_ECANCELED, relaxed); /* read after the join */
            break;
        }
        while (end - r.lo > l->grain) {
            range right = {l, r.lo + (end - r.lo) / 2, end};
            if (weft_spawn_copy(&s, run_range, &right, sizeof right) < 0) break;
            r.hi = end = right.lo;
        }
        if (end - r.lo > l->grain) end = r.lo + l->grain;
        l->fn(r.lo, end, l->arg);
        r.lo = end;
    }
    (void)weft_scope_end(&s);
    return 0;
}

int weft_parallel_for(size_t n, size_t grain, void (*fn)(size_t lo, size_t hi, void *arg), void *arg) {
    if (grain == 0) grain = n / ((size_t)(weft__rt.slots > 0 ? weft__rt.slots : 1) * RANGES_PER_SLOT);
    loop l = {.fn = fn, .arg = arg, .grain = grain ? grain : 1};
    range all = {&l, 0, n};
    (void)run_range(&all);
    return weft__load(&l.error, relaxed); /* the join orders it */
}

int weft_call(weft_fn *fn, void *arg, weft_deadline deadline) {
    weft_scope s;
    weft_scope_opts o = {.deadline = deadline};
    weft_scope_begin(&s, &o);
    int result = fn(arg), err = weft_scope_end(&s);
    if (result != WEFT_ECANCELED || !err) return result;
    return err == WEFT_ETIMEDOUT && deadline.ns == INT64_MIN ? WEFT_EAGAIN : err;
}
