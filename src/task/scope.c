/* SPDX-License-Identifier: MIT */
/* Opening, joining and ending scopes. */
#include "task/panic.h"
#include "task/task.h"

#include "time/clock.h"

_Static_assert(sizeof(weft__scope) <= sizeof(weft_scope), "a scope fits its public storage");

/* ---- beginning ---- */

static void deadline_passed(weft__timer *t, void *slot) {
    weft__scope_cancel(weft__container(t, weft__scope, timer), WEFT_ETIMEDOUT, slot);
}

static WEFT_COLD void begin_with(weft__scope *s, const weft_scope_opts *o) {
    if (o->on_error != WEFT_CANCEL_ALL && o->on_error != WEFT_KEEP_GOING)
        weft__die("weft_scope_begin: on_error is %d; it must be WEFT_CANCEL_ALL or WEFT_KEEP_GOING", o->on_error);
    s->on_error = o->on_error;
    if (o->deadline.ns == 0) return;
    s->timed = true;
    s->timer = (weft__timer){.when = o->deadline.ns < 1 ? 1 : o->deadline.ns, .fire = deadline_passed};
    if (s->timer.when <= weft__clock_now()) {
        deadline_passed(&s->timer, NULL);
        return;
    }
    weft__slot *slot = weft__enter();
    if (slot) {
        weft__timer_start(&slot->wheel, &s->timer);
        weft__leave();
    } else {
        weft__timer_start(weft__outside_wheel(), &s->timer);
        weft__idle_kick();
    }
}

/* On a plain thread the root's cancellation would not find the opener: it goes through the stacks of tasks only. */
static WEFT_COLD void begin_special(weft__scope *s, const weft_scope_opts *opts) {
    if (weft__load(&s->owner->kind, relaxed) == WEFT_BLOCK_THREAD) weft__scope_list(s);
    if (opts) begin_with(s, opts);
}

WEFT_INLINE void begin(weft__scope *s, weft__block *owner, weft__scope *parent) {
    atomic_init(&s->done, WEFT_SCOPE_BIAS);
    s->spawned = WEFT_SCOPE_BIAS;
    s->owner = owner;
    s->parent = parent;
    memset(&s->cause, 0, WEFT_SCOPE_ZERO); /* not cancelled, no error, WEFT_CANCEL_ALL, unlocked, no lists */
    owner->scope = s;
}

static WEFT_COLD void begin_on_thread(weft__scope *s, const weft_scope_opts *opts) {
    weft__block *b = weft__thread_block();
    begin(s, b, b->scope ? b->scope : &weft__root);
    begin_special(s, opts);
}

void weft_scope_begin(weft_scope *scope, const weft_scope_opts *opts) {
    weft__scope *s = weft__scope_of(scope);
    weft__task *t = weft__cur(weft__self());
    if (unlikely(!t)) {
        begin_on_thread(s, opts);
        return;
    }
    begin(s, &t->b, t->b.scope);
    if (unlikely(opts != NULL)) begin_special(s, opts);
}

/* ---- results ---- */

void weft__child_failed(weft__scope *s, int result, weft__slot *slot) {
    if (result == WEFT_ECANCELED && weft__scope_cause(s)) return; /* it was told to */
    int32_t none = 0;
    if (s->on_error == WEFT_CANCEL_ALL) weft__scope_cancel(s, result, slot);
    (void)weft__cas(&s->error, &none, result, relaxed); /* the first one; read after the join */
}

void weft_scope_cancel(weft_scope *scope) {
    weft__slot *slot = weft__enter();
    weft__scope_cancel(weft__scope_of(scope), WEFT_ECANCELED, slot);
    if (slot) weft__leave();
}

int weft_cancelled(void) {
    return weft__cancel_check(weft__me()) != 0;
}

int weft_cancel_cause(void) {
    return weft__scope_cause(weft__me()->scope);
}

/* ---- joining ---- */

WEFT_INLINE bool joined(weft__scope *s) {
    return weft__load(&s->done, acquire) == s->spawned; /* S2; pairs with the children's additions */
}

/* Behind an opener that waits: settles; if all children have ended meanwhile, it goes on at once. */
static void post_settle(weft__slot *slot, void *arg) {
    weft__scope *s = arg;
    weft__block *owner = s->owner; /* S1 */
    int64_t all = s->spawned;
    if (weft__sub(&s->done, all, acq_rel) == all) weft__resume(owner, slot); /* pairs with the additions in life.c */
}

static WEFT_NOINLINE void park_for_children(weft__slot *slot, weft__scope *s) {
    weft__worker *w = weft__self();
    weft__block *b = s->owner;
    if (unlikely(weft__cur(w)->timer_fn != NULL)) weft__timer_must_not_wait(weft__cur(w), "weft_scope_end");
    weft__store(&b->reason, WEFT_WAIT_SCOPE, relaxed); /* for people */
    weft__store(&b->since, weft__load(&slot->now, relaxed), relaxed);
    weft__park(w, slot, post_settle, s);
    weft__store(&b->reason, WEFT_WAIT_NONE, relaxed);
}

static WEFT_COLD void join_as_thread(weft__scope *s) {
    weft__thread *t = weft__container(s->owner, weft__thread, b);
    weft__thread_ready(t);
    int64_t all = s->spawned;
    if (weft__sub(&s->done, all, acq_rel) == all) return; /* as in post_settle */
    weft__thread_sleep(t, 0);
}

/* The newest fresh task of the slot, if it is a plain child of this scope and nearly all of the stack is left for it. It is taken before it
 * is looked at: until then a thief may have it, and its record may be somebody else's already. */
WEFT_INLINE weft__fresh *own_child(weft__slot *slot, weft__scope *s, weft__task *me) {
    weft__fresh *f = weft__deque_take(slot);
    if (unlikely(!f)) return NULL;
    bool fits = f->shape.inside <= me->size_class && weft__ctx_stack_pointer() >= me->inside_limit;
    if (likely(f->home == s && fits)) return f;
    weft__deque_put(slot, f);
    return NULL;
}

/* A child that ran inside has functions to call at its end, or an error. Returns the slot we are on then. */
static WEFT_COLD weft__slot *inside_special(weft__task *me, weft__scope *s, int result) {
    result = weft__inside_finish(me->inner, result);
    weft__slot *slot = weft__enter();
    if (result < 0) weft__child_failed(s, result, slot);
    return slot;
}

/* Runs a child on the opener's stack: the opener has nothing else to do, and the newest is likely to be in the cache. The child
 * borrows the opener's task and block as well: while it runs, the opener waits for it and for nothing else, and both are in the
 * same scope, so whatever ends a wait of one ends that of the other. Only its identity is its own, and errno. Returns the slot we are on
 * then, and the worker in *at. */
WEFT_INLINE weft__slot *run_inside(weft__worker **at, weft__task *me, weft__scope *s, weft__fresh *f) {
    f->link = me->inner;
    me->inner = f;
    int saved_errno = *(*at)->errno_at;
    weft__leave_on(*at);
    int result = weft__call(f->fn, f->arg);
    weft__slot *slot;
    if (likely(!f->extra && result >= 0)) {
        slot = weft__enter_as(at);
    } else {
        slot = inside_special(me, s, result);
        *at = weft__self(); /* H9 */
    }
    *(*at)->errno_at = saved_errno;
    if (unlikely(me->b.scope != s)) weft__scope_left_open(me);
    me->inner = f->link;
    weft__fresh_free(slot, f);
    s->spawned--;
    return slot;
}

WEFT_INLINE void join(weft__task *me, weft__scope *s) {
    weft__worker *w;
    weft__slot *slot = weft__enter_as(&w);
    do {
        weft__fresh *f = own_child(slot, s, me);
        if (unlikely(!f)) {
            park_for_children(slot, s);
            w = weft__self(); /* H9 */
            break;
        }
        slot = run_inside(&w, me, s, f);
        if (unlikely((slot->budget -= WEFT_BUDGET / WEFT_INSIDE_MAX) <= 0)) { /* timers and other tasks want their turn */
            slot = weft__yield_now(slot);
            w = weft__self(); /* H9 */
        }
    } while (!joined(s));
    weft__leave_on(w);
}

/* The opener is in a C++ handler or destructor; children that run inside are not. */
static WEFT_COLD void join_with_exceptions(weft__task *me, weft__scope *s) {
    weft__eh kept = weft__eh_take();
    join(me, s);
    weft__eh_put(kept);
}

/* A panic ends the scopes that it passes before it unwinds; a destructor that does so once more is no mistake. */
static WEFT_COLD int not_innermost(weft__scope *s, weft__block *b) {
    if (weft__unwinding()) return WEFT_EPANIC;
    if (s->owner != b) weft__die("weft_scope_end: scope %p was opened by another task", (void *)s);
    weft__die("weft_scope_end: scope %p is not the innermost open scope (%p is)", (void *)s, (void *)b->scope);
}

/* All children have ended: nobody lists it or its deadline any more. */
static WEFT_COLD void tidy(weft__scope *s) {
    if (s->timed) weft__timer_stop(&s->timer);
    if (weft__load(&s->listed, relaxed)) weft__scope_unlist(s); /* the join orders it */
}

static WEFT_COLD int end_on_thread(weft__scope *s) {
    weft__block *b = weft__thread_block();
    if (b->scope != s) return not_innermost(s, b);
    if (!joined(s)) join_as_thread(s);
    tidy(s);
    b->scope = s->parent == &weft__root ? NULL : s->parent;
    int error = weft__load(&s->error, relaxed); /* the join orders it */
    return error ? error : weft__scope_cause(s->parent) ? WEFT_ECANCELED : 0;
}

int weft_scope_end(weft_scope *scope) {
    weft__scope *s = weft__scope_of(scope);
    weft__task *t = weft__cur(weft__self());
    if (unlikely(!t)) return end_on_thread(s);
    if (unlikely(t->b.scope != s)) return not_innermost(s, &t->b);
    if (!joined(s)) {
        if (unlikely(weft__rt.cxx) && unlikely(weft__eh_busy(weft__self()->eh)))
            join_with_exceptions(t, s);
        else
            join(t, s);
    }
    if (unlikely(s->timed || weft__load(&s->listed, relaxed))) tidy(s); /* the join orders it */
    t->b.scope = s->parent;
    int error = weft__load(&s->error, relaxed); /* the join orders it */
    return unlikely(error != 0) ? error : weft__cancel_check(&t->b);
}
