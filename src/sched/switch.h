/* SPDX-License-Identifier: MIT */
/* The hot path: choosing what to run, making somebody ready, leaving a task.
 *
 * Order of choice (G4): `next`, then ring and deque alternating; every WEFT_GLOBAL_EVERY rounds the worker's own stack is visited,
 * which looks at the timers and the global queues (find.c). Timers must not run here: a task parks with a channel's lock held.
 *
 * A context that is left may have something to be done behind it (release a lock, put itself on a queue): `post`, run by the next
 * context before anything else. A task is put on a queue only there, never before the switch (another worker would run it on a
 * stack that is still in use). */
#ifndef WEFT_SRC_SWITCH_H
#define WEFT_SRC_SWITCH_H

#include "context/context.h"
#include "sched/handoff.h"
#include "sched/idle.h"
#include "sched/runq.h"

/* WEFT_GLOBAL_EVERY rounds are over: is there something that only the worker's own stack can look after? Otherwise the next begin. */
WEFT_COLD bool weft__rounds_over(weft__slot *s);

/* What to run now; 0: ask the worker's own stack. */
WEFT_INLINE weft__work weft__pick(weft__slot *s) {
    uint32_t picks = weft__load(&s->picks, relaxed) + 1;
    weft__store(&s->picks, picks, relaxed); /* thieves see that the owner is alive */
    if (unlikely(--s->rounds <= 0) && weft__rounds_over(s)) return 0;
    weft__task *t = weft__load(&s->next, relaxed);
    if (t) {
        if (weft__rt.many)
            t = weft__xchg(&s->next, NULL, acq_rel); /* against a thief's CAS in find.c */
        else
            weft__store(&s->next, NULL, relaxed);
        if (t && likely(++s->next_runs < WEFT_NEXT_MAX)) return weft__work_task(t);
        s->next_runs = 0;
        if (t) weft__ring_push(s, t);
    }
    if ((picks & 1) || s->boost) {
        if (s->boost) s->boost--;
        weft__fresh *f = weft__deque_take(s);
        if (f) return weft__work_fresh(f);
        return weft__work_task(weft__ring_pop(s));
    }
    t = weft__ring_pop(s);
    if (t) return weft__work_task(t);
    weft__fresh *f = weft__deque_take(s);
    return f ? weft__work_fresh(f) : 0;
}

/* Makes a task ready: it runs next on this slot. */
WEFT_INLINE void weft__ready(weft__slot *s, weft__task *t) {
    weft__task *old = weft__load(&s->next, relaxed);
    if (weft__rt.many)
        old = weft__xchg(&s->next, t, acq_rel); /* publishes the task; pairs with a thief's CAS in find.c */
    else
        weft__store(&s->next, t, relaxed);
    if (unlikely(old != NULL)) {
        weft__ring_push(s, old);
        weft__work_made(s);
    }
}

WEFT_INLINE void weft__run_post(weft__worker *w) {
    weft__post *post = w->post;
    if (post) {
        w->post = NULL;
        post(weft__here(w), w->post_arg);
    }
}

/* Where to go for the task t, NULL: the worker's own stack; and what the sanitizers want to know of it. Sets w->cur. */
WEFT_INLINE void *weft__destination(weft__worker *w, weft__task *t, weft__bounds *bounds) {
    weft__set_cur(w, t);
    *bounds = t ? weft__san_stack(t->stack) : w->bounds;
    return t ? t->sp : w->sp;
}

/* Leaves `me` for the work k (0: the worker's own stack). Returns when `me` is gone on with, maybe on another worker. The only
 * caller of weft__ctx_swap besides the worker's loop. */
void weft__switch(weft__worker *w, weft__slot *s, weft__task *me, weft__work k);

/* Behind a task that steps back for others. */
void weft__post_ring(weft__slot *s, void *task);

/* Leaves the current task; `post` runs behind it. */
WEFT_INLINE void weft__park(weft__worker *w, weft__slot *s, weft__post *post, void *arg) {
    w->post = post;
    w->post_arg = arg;
    weft__switch(w, s, weft__cur(w), weft__pick(s));
}

/* The slot's budget is used up, or the task asks for it: others first. Inside the runtime; returns the slot we are on then. */
weft__slot *weft__yield_now(weft__slot *s);

/* Each operation spends some budget, so that a task that always finds its object ready still yields. */
WEFT_INLINE weft__slot *weft__spend(weft__slot *s) {
    if (unlikely(--s->budget <= 0)) return weft__yield_now(s);
    return s;
}

/* Supplied by the task layer. Sets up a task on the stack from its record; consumes the record. */
weft__task *weft__task_begin(weft__slot *s, weft__fresh *f, weft__stack *st);

/* Supplied by timer.c: timers of users have become due in this wheel. */
void weft__timers_due(weft__slot *s, weft__wheel *w);

/* Work for a worker's own stack: everything in G4's order, timers included; 0: nothing, the slot was given up. */
weft__work weft__find_work(weft__worker *w);

#endif
