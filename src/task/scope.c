/* SPDX-License-Identifier: MIT */
/* Opening, joining and ending scopes. */
#include "task/task.h"

#include "time/clock.h"

_Static_assert(sizeof(weft__scope) <= sizeof(weft_scope), "a scope fits its public storage");

/* ---- beginning ---- */

static void deadline_passed(weft__timer *t, void *slot) {
    weft__scope *s = weft__container(t, weft__scope, timer);
    int32_t none = 0;
    if (weft__scope_cause(s) == 0) (void)weft__cas(&s->error, &none, WEFT_ETIMEDOUT, relaxed); /* read after the join */
    weft__scope_cancel(s, WEFT_ETIMEDOUT, slot);
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
    } else if (weft__rt.slot) {
        weft__timer_start(&weft__rt.slot[0].wheel, &s->timer);
        weft__idle_kick();
    } else {
        weft__die("weft_scope_begin: a deadline on a plain thread needs a running runtime");
    }
}

void weft_scope_begin(weft_scope *scope, const weft_scope_opts *opts) {
    weft__scope *s = weft__scope_of(scope);
    weft__block *b = weft__me();
    weft__store(&s->done, WEFT_SCOPE_BIAS, relaxed); /* published with the first child */
    s->spawned = 0;
    s->owner = b;
    s->parent = likely(b->scope != NULL) ? b->scope : &weft__root;
    weft__store(&s->cause, 0, relaxed); /* as done */
    weft__store(&s->error, 0, relaxed);
    s->on_error = WEFT_CANCEL_ALL;
    weft__store(&s->lock.held, 0, relaxed);
    s->blocks = NULL;
    s->kids = NULL;
    s->listed = s->timed = false;
    b->scope = s;
    if (unlikely(b->kind == WEFT_BLOCK_THREAD)) weft__scope_list(s); /* the root's cancellation finds tasks by their stacks only */
    if (unlikely(opts != NULL)) begin_with(s, opts);
}

/* ---- results ---- */

void weft__child_failed(weft__scope *s, int result, weft__slot *slot) {
    if (result == WEFT_ECANCELED && weft__scope_cause(s)) return; /* it was told to */
    int32_t none = 0;
    (void)weft__cas(&s->error, &none, result, relaxed); /* the first one; read after the join */
    if (s->on_error == WEFT_CANCEL_ALL) weft__scope_cancel(s, result, slot);
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
    return weft__load(&s->done, acquire) - WEFT_SCOPE_BIAS == s->spawned; /* S2; pairs with the children's additions */
}

/* Behind an opener that waits: settles; if all children have ended meanwhile, it goes on at once. */
static void post_settle(weft__slot *slot, void *arg) {
    weft__scope *s = arg;
    weft__block *owner = s->owner; /* S1 */
    int64_t all = WEFT_SCOPE_BIAS + s->spawned;
    if (weft__sub(&s->done, all, acq_rel) == all) weft__resume(owner, slot); /* pairs with the additions in life.c */
}

/* Runs one of the scope's own fresh children on the opener's stack: the opener has nothing else to do, and the newest is likely
 * to be in the cache. The child borrows the opener's task and block as well: while it runs, the opener waits for it and for nothing else, and
 * both are in the same scope, so whatever ends a wait of one ends that of the other. Only its identity is its own. Returns the slot we
 * are on then. */
WEFT_INLINE weft__slot *run_inside(weft__task *me, weft__scope *s, weft__fresh *f) {
    weft__fresh *outer = me->inner;
    me->inner = f;
    weft__leave();
    int result = f->fn(f->arg);
    weft__slot *slot = weft__enter();
    if (unlikely(me->b.scope != s)) weft__scope_left_open(me);
    me->inner = outer;
    if (unlikely(result < 0)) weft__child_failed(s, result, slot);
    weft__cache_put(&weft__rt.fresh_slab, &slot->fresh, f);
    return slot;
}

/* The newest fresh task of the slot, if it is a plain child of this scope and half of the stack is left for it. (The newest cannot
 * change under us: a thief takes it only when it is the last one, and then weft__deque_take gives NULL.) */
WEFT_INLINE weft__fresh *own_child(weft__slot *slot, weft__scope *s, weft__task *me) {
    uint32_t bottom = weft__load(&slot->bottom, relaxed); /* R2 */
    if (bottom == weft__load(&slot->top, relaxed)) return NULL;
    weft__fresh *f = weft__load(&slot->deque[(bottom - 1) % WEFT_DEQUE], relaxed);
    if (f->home != s || f->extra || (char *)__builtin_frame_address(0) < weft__stack_middle(me->stack)) return NULL;
    return weft__deque_take(slot);
}

static void join_as_task(weft__scope *s) {
    weft__slot *slot = weft__enter();
    do {
        weft__worker *w = weft__self();
        weft__task *me = w->cur;
        weft__fresh *f = own_child(slot, s, me);
        if (unlikely(!f)) {
            weft__store(&me->b.reason, WEFT_WAIT_SCOPE, relaxed); /* for people */
            weft__park(w, slot, post_settle, s);
            weft__store(&me->b.reason, WEFT_WAIT_NONE, relaxed);
            break;
        }
        slot = run_inside(me, s, f);
        s->spawned--;
    } while (!joined(s));
    weft__leave();
}

static void join_as_thread(weft__scope *s) {
    weft__thread *t = weft__container(s->owner, weft__thread, b);
    weft__thread_ready(t);
    int64_t all = WEFT_SCOPE_BIAS + s->spawned;
    if (weft__sub(&s->done, all, acq_rel) == all) return; /* as in post_settle */
    weft__thread_sleep(t, 0);
}

static WEFT_COLD WEFT_NORETURN void not_innermost(weft__scope *s, weft__block *b) {
    if (s->owner != b) weft__die("weft_scope_end: scope %p was opened by another task", (void *)s);
    weft__die("weft_scope_end: scope %p is not the innermost open scope (%p is)", (void *)s, (void *)b->scope);
}

int weft_scope_end(weft_scope *scope) {
    weft__scope *s = weft__scope_of(scope);
    weft__block *b = weft__me();
    if (unlikely(b->scope != s)) not_innermost(s, b);
    if (!joined(s)) {
        if (b->kind == WEFT_BLOCK_TASK)
            join_as_task(s);
        else
            join_as_thread(s);
    }
    if (unlikely(s->timed)) weft__timer_stop(&s->timer);
    if (unlikely(s->listed)) weft__scope_unlist(s); /* all children have ended: nobody lists it any more */
    b->scope = likely(b->kind == WEFT_BLOCK_TASK) || s->parent != &weft__root ? s->parent : NULL;
    int error = weft__load(&s->error, relaxed); /* all children have ended; the join orders it */
    return unlikely(error != 0) ? error : weft__cancel_check(b);
}
