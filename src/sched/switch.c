/* SPDX-License-Identifier: MIT */
#include "sched/switch.h"

/* Where to go for the work k, from the point of view of worker w: the context, and its stack for the sanitizers. Sets w->cur. */
WEFT_INLINE void *destination(weft__worker *w, weft__work k, weft__bounds *bounds) {
    weft__task *t = weft__as_task(k);
    w->cur = t;
    *bounds = t ? weft__san_stack(t->stack) : w->bounds;
    return t ? t->sp : w->sp;
}

/* A fresh task on a warm stack. Without one, the worker's own stack starts it: a stack touched for the first time takes a page
 * fault, which must not happen while `post` is still to release somebody's lock. */
static bool start_here(weft__worker *w, weft__slot *s, weft__task *me, weft__fresh *f) {
    if (!s->stacks.free[f->size_class]) {
        w->pending = weft__work_fresh(f);
        return false;
    }
    weft__stack *st = weft__stack_get(&s->stacks, (int)f->size_class);
    w->cur = weft__task_begin(s, f, st);
    weft__san_leave(&me->fake, weft__san_stack(st));
    weft__ctx_start(&me->sp, st->high);
    return true;
}

WEFT_NO_TSAN void weft__switch(weft__worker *w, weft__slot *s, weft__task *me, weft__work k) {
    int err = *w->errno_at;
    if (unlikely(weft__is_fresh(k))) {
        if (start_here(w, s, me, weft__as_fresh(k))) goto arrived;
        k = 0;
    }
    weft__bounds bounds;
    void *to = destination(w, k, &bounds);
    weft__san_leave(&me->fake, bounds);
    weft__ctx_swap(&me->sp, to);
arrived:
    weft__san_arrive(me->fake);
    w = weft__self(); /* H9 */
    *w->errno_at = err;
    weft__run_post(w);
}

static void post_ring(weft__slot *s, void *t) {
    weft__ring_push(s, t);
    weft__work_made(s);
}

weft__slot *weft__yield_now(weft__slot *s) {
    weft__worker *w = weft__self();
    s->budget = WEFT_BUDGET;
    weft__work k = weft__pick(s);
    if (!k && s->tick % WEFT_GLOBAL_EVERY != 0) return s; /* nobody else */
    w->post = post_ring;
    w->post_arg = w->cur;
    weft__switch(w, s, w->cur, k);
    return weft__here(weft__self());
}

/* ---- the life of a stack ---- */

/* Runs the task that was begun on this stack, then fresh ones of the same class for as long as they are next; returns what to
 * go on with. A finished task starts the next one without a switch. */
static weft__work live(void) {
    weft__run_post(weft__self());
    for (;;) {
        weft__task *t = weft__self()->cur;
        weft__ctx_fp_reset(); /* the starter's must not leak into it */
        weft__leave();
        int result = t->fn(t->arg);
        weft__slot *s = weft__enter();
        weft__work k = weft__task_end(s, t, result);
        if (!k) k = weft__pick(s);
        if (!weft__is_fresh(k) || weft__as_fresh(k)->size_class != t->stack->size_class) {
            weft__stack_put(&s->stacks, t->stack);
            return k;
        }
        weft__self()->cur = weft__task_begin(s, weft__as_fresh(k), t->stack);
    }
}

WEFT_NO_TSAN void *weft__task_main(void) {
    weft__san_arrive(NULL);
    weft__work k = live();
    weft__worker *w = weft__self();
    if (weft__is_fresh(k)) {
        w->pending = k;
        k = 0;
    }
    weft__bounds bounds;
    void *to = destination(w, k, &bounds);
    weft__san_leave(NULL, bounds);
    return to;
}
