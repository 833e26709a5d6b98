/* SPDX-License-Identifier: MIT */
#include "sched/switch.h"

#include <weft/task.h>

/* Leaves for a fresh task, on a warm stack. Without one, the worker's own stack starts it: a stack touched for the first time takes
 * a page fault, which must not happen while `post` is still to release somebody's lock. */
static WEFT_NOINLINE WEFT_NO_TSAN void leave_for_fresh(weft__worker *w, weft__slot *s, weft__task *me, weft__fresh *f) {
    weft__bounds bounds;
    if (unlikely(!s->stacks.free[f->shape.size_class])) {
        w->pending = weft__work_fresh(f);
        void *to = weft__destination(w, NULL, &bounds);
        weft__san_leave(&me->fake, bounds);
        weft__ctx_swap(&me->sp, to);
        return;
    }
    weft__stack *st = weft__stack_get(&s->stacks, (int)f->shape.size_class);
    weft__set_cur(w, weft__task_begin(s, f, st));
    weft__san_leave(&me->fake, weft__san_stack(st));
    weft__ctx_start(&me->sp, st->high);
}

/* Nothing lives in registers across the swap, so that they are saved once, by it, and not here as well. */
WEFT_INLINE WEFT_NO_TSAN void leave(weft__worker *w, weft__slot *s, weft__task *me, weft__work k) {
    me->saved_errno = *w->errno_at;
    if (unlikely(weft__is_fresh(k))) {
        leave_for_fresh(w, s, me, weft__as_fresh(k));
    } else {
        weft__bounds bounds;
        void *to = weft__destination(w, weft__as_task(k), &bounds);
        weft__san_leave(&me->fake, bounds);
        weft__ctx_swap(&me->sp, to);
    }
    w = weft__self(); /* H9 */
    me = weft__cur(w);
    weft__san_arrive(me->fake);
    *w->errno_at = me->saved_errno;
    weft__run_post(w);
}

/* Leaves in the middle of C++ exceptions: they go with the task. */
static WEFT_COLD WEFT_NO_TSAN void leave_with_exceptions(weft__worker *w, weft__slot *s, weft__task *me, weft__work k) {
    weft__eh kept = *w->eh;
    *w->eh = (weft__eh){NULL, 0};
    leave(w, s, me, k);
    *weft__self()->eh = kept; /* H9 */
}

/* The same for a program with C++: a switch of its own, so that those without pay for one look only. */
static WEFT_NOINLINE WEFT_NO_TSAN void switch_cxx(weft__worker *w, weft__slot *s, weft__task *me, weft__work k) {
    if (unlikely(weft__eh_busy(w->eh)))
        leave_with_exceptions(w, s, me, k);
    else
        leave(w, s, me, k);
}

WEFT_NO_TSAN void weft__switch(weft__worker *w, weft__slot *s, weft__task *me, weft__work k) {
    if (unlikely(weft__rt.cxx))
        switch_cxx(w, s, me, k);
    else
        leave(w, s, me, k);
}

void weft__post_ring(weft__slot *s, void *t) {
    weft__ring_push(s, t);
    weft__work_made(s);
}

WEFT_INLINE void yield(weft__slot *s) {
    weft__worker *w = weft__self();
    s->budget = WEFT_BUDGET;
    weft__work k = weft__pick(s);
    if (!k && s->rounds > 0) return; /* nobody else */
    if (weft__rt.many) {
        w->post = weft__post_ring;
        w->post_arg = weft__cur(w);
    } else {
        weft__ring_push(s, weft__cur(w)); /* R4: nobody can take it while we still stand on its stack */
    }
    weft__switch(w, s, weft__cur(w), k);
}

weft__slot *weft__yield_now(weft__slot *s) {
    yield(s);
    return weft__here(weft__self()); /* H9 */
}

void weft_yield(void) {
    weft__slot *s = weft__enter();
    if (unlikely(!s)) return;
    yield(s);
    weft__leave();
}
