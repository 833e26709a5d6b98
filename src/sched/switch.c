/* SPDX-License-Identifier: MIT */
#include "sched/switch.h"

#include "sched/lane.h"

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
    weft__san_start(st, weft__task_quiet(st), w->bounds.fiber, &w->sp, &f->id);
    weft__set_cur(w, weft__task_begin(s, f, st));
    weft__san_leave(&me->fake, weft__san_stack(st));
    weft__ctx_start(&me->sp, st->high);
}

/* Nothing lives in registers across the swap, so that they are saved once, by it, and not here as well. */
WEFT_INLINE WEFT_NO_TSAN void leave_for_task(weft__worker *w, weft__task *me, weft__task *t) {
    weft__bounds bounds;
    void *to = weft__destination(w, t, &bounds);
    weft__san_leave(&me->fake, bounds);
    weft__ctx_swap(&me->sp, to);
}

/* Gone on with, on the worker that is returned. */
WEFT_INLINE WEFT_NO_TSAN weft__worker *arrive(void) {
    weft__worker *w = weft__self(); /* H9 */
    weft__task *me = weft__cur(w);
    weft__san_arrive(me->fake);
    weft__san_resumed(w, me);
    *w->errno_at = me->saved_errno;
    return w;
}

WEFT_INLINE WEFT_NO_TSAN void leave(weft__worker *w, weft__slot *s, weft__task *me, weft__work k) {
    me->saved_errno = *w->errno_at;
    weft__san_left(w);
    if (unlikely(weft__is_fresh(k)))
        leave_for_fresh(w, s, me, weft__as_fresh(k));
    else
        leave_for_task(w, me, weft__as_task(k));
    weft__run_post(arrive());
}

/* Leaves in the middle of C++ exceptions: they go with the task. */
static WEFT_COLD WEFT_NO_TSAN void leave_with_exceptions(weft__worker *w, weft__slot *s, weft__task *me, weft__work k) {
    weft__eh kept = *w->eh;
    *w->eh = (weft__eh){NULL, 0};
    leave(w, s, me, k);
    *weft__self()->eh = kept; /* H9 */
}

/* Somebody wants to know of every wait. */
static WEFT_NOINLINE void tell_hook(weft__task *me) {
    weft__hook *hook = weft__hooked();
    if (hook && weft__load(&me->b.reason, relaxed) != WEFT_WAIT_NONE) hook(&me->b); /* its own */
}

/* The same for a program with C++, or where locks are checked: a switch of its own, so that those without pay for one look only. */
static WEFT_NOINLINE WEFT_NO_TSAN void switch_odd(weft__worker *w, weft__slot *s, weft__task *me, weft__work k) {
    tell_hook(me);
    if (unlikely(weft__rt.cxx) && unlikely(weft__eh_busy(w->eh)))
        leave_with_exceptions(w, s, me, k);
    else
        leave(w, s, me, k);
}

WEFT_NO_TSAN WEFT_HOT void weft__switch(weft__worker *w, weft__slot *s, weft__task *me, weft__work k) {
    if (unlikely(weft__rt.odd_switch))
        switch_odd(w, s, me, k);
    else
        leave(w, s, me, k);
}

void weft__next_back(weft__slot *s) {
    bool ring = weft__load(&s->head, relaxed) != weft__load(&s->tail, relaxed);           /* thieves only take */
    if (!ring && weft__load(&s->bottom, relaxed) == weft__load(&s->top, relaxed)) return; /* likewise */
    weft__task *t = weft__xchg(&s->next, NULL, acq_rel);                                  /* as in weft__pick */
    if (!t) return;
    weft__ring_push(s, t);
    weft__work_made(s);
}

static WEFT_NOINLINE void post_and_go_on(weft__worker *w) {
    weft__run_post(w);
    weft__leave_on(w);
}

/* Instrumented, unlike its caller. */
static WEFT_NOINLINE void go_on(weft__worker *w) {
    if (unlikely(w->post != NULL))
        post_and_go_on(w);
    else
        weft__leave_on(w);
}

/* For another started task, and then back to our own. */
static WEFT_NOINLINE WEFT_NO_TSAN void step_aside(weft__worker *w, weft__task *me, weft__task *t) {
    me->saved_errno = *w->errno_at;
    weft__assume(t != NULL);
    leave_for_task(w, me, t);
    go_on(arrive());
}

void weft__post_unlock(weft__slot *s, void *lock) {
    (void)s;
    weft__lock_leave(lock);
}

void weft__post_back(weft__slot *s, void *task) {
    weft__task *t = task;
    if (unlikely(weft__load(&t->b.kind, relaxed) != WEFT_BLOCK_TASK)) {
        weft__special_ready(s, t);
        return;
    }
    weft__ring_push(s, t);
    weft__work_made(s);
}

/* Back to a queue, and k runs (0: the worker's own stack). */
WEFT_INLINE void go_back(weft__worker *w, weft__slot *s, weft__work k) {
    if (weft__rt.many || weft__load(&weft__cur(w)->b.kind, relaxed) != WEFT_BLOCK_TASK) {
        w->post = weft__post_back;
        w->post_arg = weft__cur(w);
    } else {
        weft__ring_push(s, weft__cur(w)); /* R4: nobody can take it while we still stand on its stack */
    }
    weft__switch(w, s, weft__cur(w), k);
}

WEFT_INLINE void yield(weft__slot *s) {
    weft__work k = weft__pick(s);
    if (unlikely(!k) && !weft__rounds_over(s)) return; /* nobody else */
    go_back(weft__self(), s, k);
}

weft__slot *weft__yield_now(weft__slot *s) {
    s->budget = WEFT_BUDGET;
    yield(s);
    return weft__here(weft__self()); /* H9 */
}

static WEFT_NOINLINE void yield_inside(weft__slot *s) {
    yield(s);
    weft__leave();
}

static WEFT_NOINLINE void yield_slow(void) {
    weft__slot *s = weft__enter();
    if (s) yield_inside(s);
}

/* The ring turns by one: its first task for us, who go to its end. */
WEFT_INLINE void turn(weft__worker *w, weft__slot *s, weft__task *me, uint32_t head, uint32_t tail) {
    weft__task *t = weft__load(&s->ring[head % WEFT_RING], relaxed); /* R4, and the stores */
    weft__store(&s->head, head + 1, relaxed);
    weft__store(&s->ring[tail % WEFT_RING], me, relaxed);
    weft__store(&s->tail, tail + 1, relaxed);
    step_aside(w, me, t);
}

/* The rounds are over. True: it has yielded, for something that had to be attended to. */
static WEFT_NOINLINE bool attended(weft__worker *w, weft__slot *s) {
    weft__work k;
    weft__store(&s->picks, weft__load(&s->picks, relaxed) + 1, relaxed); /* as in weft__pick */
    if (!weft__attend(s, &k)) return false;
    go_back(w, s, k);
    weft__leave();
    return true;
}

/* Who has only looked goes on by the same way as always: a CPU expects that a task goes on where the last one was left. */
static WEFT_NOINLINE void attend_and_turn(weft__worker *w, weft__slot *s) {
    if (!attended(w, s)) turn(w, s, weft__cur(w), weft__load(&s->head, relaxed), weft__load(&s->tail, relaxed)); /* R4 */
}

/* The common case with one slot written out: only started tasks are around, so the ring turns by one. What weft__pick would do, and as
 * in chan.c without a call that it comes back from (measured: 126 -> 98 instructions). */
void weft_yield(void) {
    weft__worker *w;
    weft__slot *s;
    if (unlikely(!weft__enter_fast(&w, &s))) {
        yield_slow();
        return;
    }
    uint32_t picks = weft__load(&s->picks, relaxed) + 1, head = weft__load(&s->head, relaxed),
             tail = weft__load(&s->tail, relaxed);
    bool fresh = weft__load(&s->bottom, relaxed) != weft__load(&s->top, relaxed); /* R4, all of these */
    weft__task *me = weft__cur(w);
    bool turns = weft__rt.ring_turns && !fresh && head != tail && !weft__load(&s->next, relaxed) &&
                 weft__load(&me->b.kind, relaxed) == WEFT_BLOCK_TASK;
    if (unlikely(!turns)) {
        yield_inside(s);
        return;
    }
    if (unlikely(picks == s->round_end)) {
        attend_and_turn(w, s);
        return;
    }
    weft__store(&s->picks, picks, relaxed); /* as in weft__pick */
    turn(w, s, me, head, tail);
}
