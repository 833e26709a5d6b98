/* SPDX-License-Identifier: MIT */
/* The hot path: choosing what to run, making somebody ready, leaving a task.
 *
 * Order of choice (G4): `next`, then ring and deque alternating; every WEFT_GLOBAL_EVERY rounds the worker's own stack is visited,
 * which looks at the timers and the global queues (find.c). Timers must not run here: a task parks with a channel's lock held.
 *
 * A chain is tasks that hand work to each other through `next`. They share one slice: the monitor sees
 * that nothing is taken from the other queues, and ends the chain (watch.c), with no clock and no count
 * in a pick. What a timer, a descriptor or another thread has made ready does not wait for that: at the
 * next look it comes before `next`, once.
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

/* The slot attends to what waits n rounds from now, if not earlier. */
WEFT_INLINE void weft__attend_soon(weft__slot *s, uint32_t n) {
    uint32_t picks = weft__load(&s->picks, relaxed), left = s->round_end - picks; /* the owner's own */
    if (left - 1 >= n) s->round_end = picks + n;                                  /* also if it was 0: that one has been */
}
/* The next WEFT_GLOBAL_EVERY rounds begin. */
WEFT_INLINE void weft__rounds_begin(weft__slot *s) {
    s->fair_end = weft__load(&s->picks, relaxed) + WEFT_GLOBAL_EVERY; /* the owner's own */
    weft__attend_soon(s, WEFT_GLOBAL_EVERY);
}
/* They end with the next one. */
WEFT_INLINE void weft__rounds_cut(weft__slot *s) {
    s->fair_end = weft__load(&s->picks, relaxed) + 1; /* the owner's own */
    weft__attend_soon(s, 1);
}
/* They are over: it is the global queues' and the timers' turn. */
WEFT_INLINE bool weft__rounds_over(weft__slot *s) {
    return (int32_t)(weft__load(&s->picks, relaxed) - s->fair_end) >= 0;
}

/* There is something to attend to, or WEFT_GLOBAL_EVERY rounds are over. False: go on as always. True: *k is to run now; 0: only the worker's
 * own stack can look after it. */
WEFT_COLD bool weft__attend(weft__slot *s, weft__work *k);

/* Sends the task in `next` to the ring's end, if others wait: it has gone on in the slice of the task
 * that made it ready. Caller owns the slot. */
WEFT_COLD void weft__next_back(weft__slot *s);

/* What to run now; 0: ask the worker's own stack. */
WEFT_INLINE weft__work weft__pick(weft__slot *s) {
    uint32_t picks = weft__load(&s->picks, relaxed) + 1;
    weft__store(&s->picks, picks, relaxed); /* thieves see that the owner is alive */
    if (unlikely(picks == s->round_end)) {
        weft__work k;
        if (weft__attend(s, &k)) return k;
    }
    weft__task *t = weft__load(&s->next, relaxed);
    if (t) {
        if (weft__rt.many)
            t = weft__xchg(&s->next, NULL, acq_rel); /* against a thief's CAS in find.c */
        else
            weft__store(&s->next, NULL, relaxed);
        if (likely(t != NULL)) return weft__work_task(t);
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

/* What TSan is told of a wait (context/sanitize.h): by the task that is about to park, with what `post` will be given; by its waker; by the task when
 * it goes on. */
WEFT_INLINE void weft__san_parks(weft__task *t, void *arg) {
    weft__san_release(arg);
    weft__san_release(&t->link);
}
WEFT_INLINE void weft__san_woken(weft__task *t) {
    weft__san_acquire(&t->link);
    weft__san_release(&t->sp);
}
WEFT_INLINE void weft__san_resumed(weft__worker *w, weft__task *t) {
    weft__san_acquire(&t->sp);
    weft__san_acquire(&w->sp); /* pairs with open_thread */
}

/* A task leaves the worker: on a bound thread, whose own variables the next one may use. */
WEFT_INLINE void weft__san_left(weft__worker *w) {
    if (weft__san_tasks && w->own_thread) weft__san_release(&w->sp); /* pairs with weft__san_resumed */
}

/* Makes a task ready: it runs next on this slot. */
WEFT_INLINE void weft__ready(weft__slot *s, weft__task *t) {
    weft__san_woken(t);
    weft__task *old = weft__load(&s->next, relaxed); /* thieves only take: it stays empty if it is */
    if (likely(!old) || !weft__rt.many)              /* publishes the task; pairs with a thief's CAS in find.c */
        weft__store(&s->next, t, release);
    else
        old = weft__xchg(&s->next, t, acq_rel); /* likewise, and against that CAS */
    if (unlikely(old != NULL)) {
        weft__ring_push(s, old);
        weft__work_made(s);
    }
}

/* The same, but it runs behind those who are ready. With nobody else it is the next one, and no thief is called for it. */
WEFT_INLINE void weft__ready_last(weft__slot *s, weft__task *t) {
    weft__san_woken(t);
    bool alone = weft__load(&s->head, relaxed) == weft__load(&s->tail, relaxed); /* R2; thieves only take */
    if (alone && !weft__load(&s->next, relaxed)) {
        weft__store(&s->next, t, release); /* as in weft__ready */
        return;
    }
    weft__ring_push(s, t);
    weft__work_made(s);
}

/* For the sanitizer: of the stack, whether a task has been on it yet or not. */
WEFT_INLINE bool *weft__task_quiet(weft__stack *s) {
    return &((weft__task *)weft__stack_head(s))->quiet;
}

WEFT_INLINE void weft__run_post(weft__worker *w) {
    weft__post *post = w->post;
    if (post) {
        w->post = NULL;
        weft__san_post_begin();
        post(weft__here(w), w->post_arg);
        weft__san_post_end();
    }
}

/* Where to go for the task t, NULL: the worker's own stack; and what the sanitizers want to know of it. Sets w->cur. */
WEFT_INLINE void *weft__destination(weft__worker *w, weft__task *t, weft__bounds *bounds) {
    weft__check(!t || !w->own_thread || t->bound == w, "D3: only its task on a bound thread");
    weft__set_cur(w, t);
    *bounds = t ? weft__san_stack(t->stack) : w->bounds;
    return t ? t->sp : w->sp;
}

/* Leaves `me` for the work k (0: the worker's own stack). Returns when `me` is gone on with, maybe on another worker. The only
 * caller of weft__ctx_swap besides the worker's loop. */
void weft__switch(weft__worker *w, weft__slot *s, weft__task *me, weft__work k);

/* Behind a task that steps back for others: back on its queue. */
void weft__post_back(weft__slot *s, void *task);

/* Leaves the current task; `post` runs behind it. */
WEFT_INLINE void weft__park(weft__worker *w, weft__slot *s, weft__post *post, void *arg) {
    w->post = post;
    w->post_arg = arg;
    weft__san_parks(weft__cur(w), arg);
    weft__switch(w, s, weft__cur(w), weft__pick(s));
}

/* The same with an object's lock held, which is released behind it. With one slot too: releasing it before saves 1.5 ns of a ping-pong, but lets
 * plain threads make ready, and the sentry trim, a task whose stack is still in use. */
void weft__post_unlock(weft__slot *s, void *lock);
WEFT_INLINE void weft__park_locked(weft__worker *w, weft__slot *s, weft__lock *held) {
    weft__park(w, s, weft__post_unlock, held);
}

/* The slot's budget is used up, or the task asks for it: others first. Inside the runtime; returns the slot we are on then. */
weft__slot *weft__yield_now(weft__slot *s);

/* Each operation spends some budget, so that a task that always finds its object ready still yields. */
WEFT_INLINE weft__slot *weft__spend(weft__slot *s) {
    if (unlikely(--s->budget < 0)) return weft__yield_now(s); /* below 0: then it is one instruction on memory */
    return s;
}

/* Supplied by the task layer. Sets up a task on the stack from its record; consumes the record. */
weft__task *weft__task_begin(weft__slot *s, weft__fresh *f, weft__stack *st);

/* Supplied by the task layer: why the scope is cancelled; 0: it is not. */
int weft__scope_cause(const weft__scope *s);
/* Likewise: the task is the only child of its scope, or of none. */
bool weft__fresh_alone(const weft__fresh *f);

/* Supplied by timer.c: timers of users have become due in this wheel. */
void weft__timers_due(weft__slot *s, weft__wheel *w);

/* Supplied by the block layer (bind.c): a worker that serves one task alone has none now, and may be given another. */
void weft__bind_free(weft__worker *w);

/* Work for a worker's own stack: everything in G4's order, timers included; 0: nothing, the slot was given up. */
weft__work weft__find_work(weft__worker *w);

#endif
