/* SPDX-License-Identifier: MIT */
/* A loop on all cores, and a call with a deadline: what is easily built from scopes, built once.
 *
 * The loop splits its range in halves: the right one becomes a task, the left one is split again. The first task spawned is the largest, and
 * thieves take the oldest: so each theft takes about half of what its victim still has to do, and the rest runs on the
 * opener's stack, in weft_scope_end, smallest first.
 *
 * What is called here may be left by a panic or a C++ exception, and an exception may be caught further up. So the scopes are ended by
 * cleanups, which the unwinder calls: this file is compiled with -fexceptions. A panic has ended the scope before it unwinds (X2 in panic.c), and
 * then the cleanup's end does nothing. */
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

/* The scope of one range, and what its cleanup has to know. */
typedef struct {
    weft_scope s;
    loop *loop;
    bool returned; /* fn has, each time it was called */
} halves;

enum { RANGES_PER_SLOT = 8 }; /* enough for thieves to even out what takes unequal time */

/* A panic is the reason that counts: what it cancels is left out because of it. */
static void leave_out(loop *l, int why) {
    int32_t none = 0;
    if (why == WEFT_EPANIC)
        weft__store(&l->error, why, relaxed); /* both are read after the join */
    else
        (void)weft__cas(&l->error, &none, why, relaxed);
}

/* Joins the halves, on whatever way the range is left. */
static void join_halves(halves *h) {
    if (unlikely(!h->returned)) {
        leave_out(h->loop, WEFT_EPANIC);
        weft_scope_cancel(&h->s);
    }
    (void)weft_scope_end(&h->s);
}

static int run_range(void *arg) {
    range r = *(range *)arg;
    loop *l = r.loop;
    halves h __attribute__((cleanup(join_halves)));
    h.loop = l;
    h.returned = false;
    weft_scope_begin(&h.s, NULL);
    weft__scope_of(&h.s)->on_error = WEFT_KEEP_GOING; /* a refused half is done here instead */
    while (r.lo < r.hi) {
        size_t end = r.hi;
        if (weft_cancelled()) {
            leave_out(l, WEFT_ECANCELED);
            break;
        }
        while (end - r.lo > l->grain) {
            range right = {l, r.lo + (end - r.lo) / 2, end};
            if (weft_spawn_copy(&h.s, run_range, &right, sizeof right) < 0) break;
            r.hi = end = right.lo;
        }
        if (end - r.lo > l->grain) end = r.lo + l->grain;
        l->fn(r.lo, end, l->arg);
        r.lo = end;
    }
    h.returned = true;
    return 0;
}

int weft_parallel_for(size_t n, size_t grain, void (*fn)(size_t lo, size_t hi, void *arg), void *arg) {
    if (grain == 0) grain = n / ((size_t)(weft__rt.slots > 0 ? weft__rt.slots : 1) * RANGES_PER_SLOT);
    loop l = {.fn = fn, .arg = arg, .grain = grain ? grain : 1};
    range all = {&l, 0, n};
    (void)run_range(&all);
    return weft__load(&l.error, relaxed); /* the join orders it */
}

/* The scope of a weft_call, and whether it has ended. */
typedef struct {
    weft_scope s;
    bool ended;
} called;

static void end_call(called *c) {
    if (unlikely(!c->ended)) (void)weft_scope_end(&c->s); /* fn has not returned; nothing was spawned into it */
}

int weft_call(weft_fn *fn, void *arg, weft_deadline deadline) {
    called c __attribute__((cleanup(end_call)));
    weft_scope_opts o = {.deadline = deadline};
    c.ended = false;
    weft_scope_begin(&c.s, &o);
    int result = fn(arg), err = weft_scope_end(&c.s);
    c.ended = true;
    if (result != WEFT_ECANCELED || !err) return result;
    return err == WEFT_ETIMEDOUT && deadline.ns == INT64_MIN ? WEFT_EAGAIN : err;
}
