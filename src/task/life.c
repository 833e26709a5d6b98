/* SPDX-License-Identifier: MIT */
/* The life of a task: its beginning, its end, and who is told.
 *
 * A finished task's stack is used for the next fresh one at once, without a switch; it goes back to the cache only when something
 * else is to be run. */
#include "task/panic.h"
#include "task/task.h"

#include "sched/lane.h"

WEFT_INLINE void become_special(weft__task *t, const weft__extra *x) {
    t->lane = x->lane;
    t->pinned_to = weft__self();
    weft__pin_set(t, x->pinned);
}

static WEFT_NOINLINE void become_asking(weft__task *t, weft__fresh *f) {
    if (f->extra) become_special(t, f->extra);
    weft__site_begin(t);
}

/* What few tasks have: copied arguments, a name, a priority, a pin, a site to be asked for. The record, soon free, keeps no `extra`: spawn_fast
 * does not clear it. */
static WEFT_NOINLINE void become_odd(weft__task *t, weft__fresh *f) {
    weft__show(&t->extra, f->extra); /* to dump.c */
    if (f->shape.args) {
        memcpy(t->copy, f->copy, sizeof t->copy);
        t->arg = t->copy;
    }
    if (unlikely(f->shape.extra & WEFT_ASK_SITE))
        become_asking(t, f);
    else if (f->extra)
        become_special(t, f->extra);
    f->extra = NULL;
}

/* Makes the record's task out of the one that lies on the stack already; consumes the record. The block is left as the last task left
 * it, or zero: weft__root_cancel may look at any stack's block at any time. */
WEFT_INLINE void become(weft__slot *s, weft__task *t, weft__fresh *f) {
    weft__check(!weft__self()->own_thread, "D3: no fresh task on a bound thread");
    weft__check(!t->extra, "nothing extra is left of the last one");
    t->b.linked = f->shape.linked;
    t->b.scope = f->home;
    weft__show(&t->b.home, f->home);                       /* these to dump.c */
    uint64_t epoch = weft__load(&weft__rt.epoch, relaxed); /* unchanged since it was spawned: nothing to look at */
    weft__store(&t->b.epoch, (uint32_t)epoch == f->shape.epoch ? epoch : 0, relaxed);
    weft__show(&t->fn, f->fn);
    t->arg = f->arg;
    weft__show(&t->id, weft__load(&f->id, relaxed));
    weft__show(&t->site, f->site);
    if (unlikely(f->shape.needs & WEFT_SHAPE_ODD)) become_odd(t, f);
    weft__fresh_free(s, f);
}

weft__task *weft__task_begin(weft__slot *s, weft__fresh *f, weft__stack *st) {
    weft__task *t = weft__stack_head(st);
    t->stack = st;
    t->size_class = st->size_class;
    t->again = st->again;
    t->inside_limit = weft__stack_inside_limit(st);
    weft__show(&t->inner, NULL);
    t->timer_call = NULL;
    become(s, t, f);
    weft__store(&s->taken, weft__load(&s->taken, relaxed) + 1, relaxed); /* a counter */
    weft__store(&t->alive, true, release);                               /* pairs with the acquire in dump.c */
    return t;
}

void weft__scope_left_open(weft__task *t) {
    weft__die("task %llu \"%s\" returned with %s %p still open: weft_%s_end is missing",
              (unsigned long long)(t->inner ? weft__load(&t->inner->id, relaxed) : t->id), t->extra ? t->extra->name : "",
              weft__scope_kind(t->b.scope), (void *)t->b.scope, weft__scope_kind(t->b.scope));
}

/* The next task on this stack is like any other. */
WEFT_INLINE void unpin(weft__task *t) {
    t->lane = WEFT_LANE_NORMAL;
    if (t->bound) weft__bind_end(t);
    if (t->guessed) weft__site_missed(t);
    weft__pin_set(t, 0); /* nobody waits for it any more */
}

static WEFT_COLD void end_extra(weft__slot *s, weft__task *t, int result) {
    weft__extra *x = t->extra;
    weft__show(&t->extra, NULL);
    unpin(t);
    if (x->handle) weft__handle_end(x->handle, result, s);
    weft__extra_free(x);
}

/* The opener, which waits for nothing else any more: it runs now, unless it is special. */
WEFT_INLINE weft__work opener(weft__block *owner, weft__slot *s) {
    if (likely(weft__load(&owner->kind, relaxed) == WEFT_BLOCK_TASK)) /* it waits; the counter orders it */
        return weft__work_task(weft__container(owner, weft__task, b));
    weft__resume(owner, s);
    return 0;
}

/* A task that waited, or was pinned. */
static WEFT_COLD void end_linked(weft__task *t) {
    if (t->pins > (t->extra ? t->extra->pinned : 0))
        weft__die("task %llu \"%s\" ended pinned: weft_unpin is missing", (unsigned long long)t->id,
                  t->extra ? t->extra->name : "");
    if (weft__load(&t->blocks, relaxed)) /* its own */
        weft__die("task %llu \"%s\" ended in a call that blocks: weft_block_exit is missing", (unsigned long long)t->id,
                  t->extra ? t->extra->name : "");
    if (t->b.linked & WEFT_LINK_LIST) weft__block_unlink(&t->b);
    if (!t->extra) unpin(t);
}

/* The task's function has returned: tells whoever waits for it. Returns the waiter if it is to run now, or 0. The task is gone
 * afterwards, its stack is not. `plain`: it has nothing extra and no error. */
WEFT_INLINE weft__work end(weft__slot *s, weft__task *t, int result, const bool plain) {
    weft__scope *home = t->b.home;
    weft__san_release(&weft__rt); /* pairs with close_runtime */
    weft__task_check_scopes(t);
    if (unlikely(t->b.linked > WEFT_LINK_NEEDLESS)) end_linked(t);
    weft__block *owner = home->owner; /* S1; and before the handle, which may hold the scope, is let go */
    if (!plain && t->extra) end_extra(s, t, result);
    if (!owner) {
        weft__root_done(s);
        return 0;
    }
    if (!plain && result < 0) weft__child_failed(home, result, s);
    weft__roster *r = plain ? NULL : weft__scope_roster(home); /* its children are not plain */
    if (!plain && r) owner = weft__roster_ended(r, result, s);
    bool thread = weft__load(&owner->kind, relaxed) == WEFT_BLOCK_THREAD; /* that much of it is fixed */
    /* acq_rel: the opener sees what all children did; pairs with post_settle and joined */
    bool last = weft__add(&home->done, 1, acq_rel) == -1;
    if (!plain && last && unlikely(weft__self()->own_thread)) { /* D3 in bind.c */
        weft__resume(owner, s);
        last = false;
    }
    if (likely(!thread)) return last ? opener(owner, s) : 0;
    if (last) weft__resume(owner, s);
    weft__foreign_done();
    return 0;
}

/* The same for those who need more. User code runs here, so the runtime is entered afterwards. */
static WEFT_COLD weft__work end_special(weft__task *t, int result) {
    result = weft__task_finish(t, result);
    return end(weft__enter(), t, result, false);
}

/* ---- the life of a stack ---- */

/* Runs the task that was begun on this stack, then fresh ones of the same class for as long as they are next; returns what to
 * go on with. A finished task starts the next one without a switch. */
static WEFT_NOINLINE weft__work live(void) {
    weft__worker *w = weft__self();
    weft__task *t = weft__cur(w);
    weft__run_post(w);
    for (;;) {
        if (weft__task_fp_glance(t)) weft__ctx_fp_reset_seen(&t->fp); /* the starter's must not leak into it */
        weft__leave_on(w);
        int result = weft__call(t->fn, t->arg);
        weft__slot *s;
        weft__work k;
        if (likely(!t->extra && result >= 0)) {
            s = weft__enter_as(&w);
            k = end(s, t, result, true);
        } else {
            k = end_special(t, result);
            w = weft__self(); /* H9 */
            s = weft__here(w);
        }
        if (likely(!k)) k = weft__pick(s);
        if (unlikely(!weft__is_fresh(k) || weft__as_fresh(k)->shape.size_class != t->again)) {
            weft__store(&t->alive, false, relaxed);                              /* for people */
            weft__store(&s->given, weft__load(&s->given, relaxed) + 1, relaxed); /* a counter */
            weft__stack_put(&s->stacks, t->stack);
            return k;
        }
        become(s, t, weft__as_fresh(k));
    }
}

WEFT_NO_TSAN void *weft__task_main(void) {
    weft__san_arrive(NULL);
    weft__work k = live();
    weft__worker *w = weft__self();
    weft__san_left(w);
    weft__san_exit(w); /* a fiber must not end without */
    if (weft__is_fresh(k)) {
        w->pending = k;
        k = 0;
    }
    weft__bounds bounds;
    void *to = weft__destination(w, weft__as_task(k), &bounds);
    weft__san_leave(NULL, bounds);
    return to;
}

/* ---- counting ---- */

bool weft__root_alive(void) {
    uint64_t done = weft__load(&weft__rt.foreign_done, acquire), spawned; /* pair with the releases of the counters */
    for (int i = 0; i < weft__rt.slots; i++) done += weft__load(&weft__rt.slot[i].done, acquire);
    atomic_thread_fence(memory_order_seq_cst); /* all `done` before any `spawned` */
    spawned = weft__load(&weft__rt.foreign_spawned, acquire);
    for (int i = 0; i < weft__rt.slots; i++) spawned += weft__load(&weft__rt.slot[i].spawned, acquire);
    return done != spawned;
}

void weft__root_drained(void) {
    weft__add(&weft__rt.drained, 1, release); /* pairs with the acquire in weft_stop */
    weft__futex_wake(&weft__rt.drained, INT32_MAX);
}

void weft__foreign_spawned(void) {
    weft__add(&weft__rt.foreign_spawned, 1, seq_cst); /* before the looks at phase and cause; pairs with weft_stop */
    weft__fence_after_rmw();                          /* the cause is not read in sequentially consistent order */
}

void weft__foreign_done(void) {
    weft__add(&weft__rt.foreign_done, 1, seq_cst);
    if (weft__load(&weft__rt.draining, seq_cst)) weft__root_drained(); /* pairs with weft_stop */
}
