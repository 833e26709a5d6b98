/* SPDX-License-Identifier: MIT */
/* Opening, joining and ending scopes. */
#include "task/panic.h"
#include "task/task.h"

#include "time/clock.h"

_Static_assert(sizeof(weft__scope) <= sizeof(weft_scope), "a scope fits its public storage");

/* ---- deadlines ---- */

/* The scope's own moment; INT64_MAX: it has none. The opener may change it meanwhile. */
static int64_t moment_of(const weft__scope *s) {
    bool timed = weft__load(&s->timed, acquire); /* pairs with the release in weft__scope_arm */
    return timed ? weft__peek(&s->timer.when) : INT64_MAX;
}

/* A deadline counts from the moment when the shields between it and us are up. */
int64_t weft__scope_until(const weft__scope *s) {
    int64_t best = INT64_MAX, shielded = INT64_MIN;
    for (; s; s = s->parent) {
        int64_t when = moment_of(s);
        if (weft__load(&s->closed, acquire)) { /* as in weft__scope_cause */
            if (when == INT64_MAX) break;
            if (when > shielded) shielded = when;
            continue;
        }
        if (s->is_shield) when = INT64_MAX;
        if (shielded > INT64_MIN && weft__load(&s->cause, acquire)) when = shielded; /* as in weft__scope_cause */
        if (when < shielded) when = shielded;
        if (when < best) best = when;
    }
    return best;
}

weft_deadline weft_scope_deadline(void) {
    int64_t until = weft__scope_until(weft__me()->scope);
    return until == INT64_MAX ? WEFT_FOREVER : weft__deadline(until);
}

/* Is no deadline around this scope earlier than its own? By the moments, in whatever order the timers are run. */
static bool own_is_earliest(const weft__scope *s, int64_t *until) {
    *until = weft__scope_until(s->parent);
    return moment_of(s) <= *until;
}

/* A scope around this one is cancelled, for `outer`. Is its own deadline the first cause all the same? */
static bool own_is_first(const weft__scope *s, int outer) {
    int64_t until;
    if (outer != WEFT_ETIMEDOUT || moment_of(s) == INT64_MAX) return false; /* nor is there a need to climb */
    return own_is_earliest(s, &until) && until <= weft__clock_now();
}

/* A deadline around may have been earlier, and its timer is still to be run: then the scope is cancelled all the same, since that deadline
 * may be moved yet, but tidy decides which of the two it was. */
static void deadline_passed(weft__timer *t, void *slot) {
    weft__scope *s = weft__container(t, weft__scope, timer);
    int64_t until;
    int outer = weft__scope_outer(s);
    if (!outer)
        weft__scope_cancel_as(s, WEFT_ETIMEDOUT, own_is_earliest(s, &until) ? WEFT_ETIMEDOUT : 0, slot);
    else if (own_is_first(s, outer))
        weft__scope_cancel(s, WEFT_ETIMEDOUT, slot);
}

void weft__scope_arm(weft__scope *s, int64_t when, void (*fire)(weft__timer *t, void *slot)) {
    weft__timer *t = &s->timer;
    t->link = (weft__timer_link){NULL, NULL};
    t->fire = fire;
    t->wheel = NULL;
    t->near = NULL;
    weft__show(&t->when, when < 1 ? 1 : when);
    weft__store(&s->timed, true, release);  /* pairs with the acquire in moment_of */
    weft__store(&s->untidy, true, relaxed); /* the opener's own */
    weft__slot *slot = weft__enter();
    if (t->when <= weft__clock_now()) {
        fire(t, slot);
    } else {
        weft__timer_start(slot ? &slot->wheel : weft__outside_wheel(), t);
        if (!slot) weft__idle_kick();
        if (!slot) weft__store(&weft__thread_block()->epoch, WEFT_EPOCH_NONE, relaxed); /* our own */
    }
    if (slot) weft__leave();
}

/* A moment of a fake clock cannot be slept until: there the workers do it all. */
int64_t weft__thread_tick(weft__block *b) {
    int64_t next = INT64_MAX;
    if (weft__clock_is_fake()) return next;
    for (weft__scope *s = b->scope; s; s = s->parent) {
        if (!weft__load(&s->timed, relaxed)) continue; /* our own */
        if (s->timer.when > weft__clock_now())
            next = s->timer.when < next ? s->timer.when : next;
        else if (weft__timer_stop(&s->timer)) /* nobody has fired it */
            s->timer.fire(&s->timer, NULL);
    }
    return next;
}

static void tick_if_thread(weft__block *b) {
    if (weft__load(&b->kind, relaxed) == WEFT_BLOCK_THREAD) (void)weft__thread_tick(b); /* our own */
}

/* A child that runs inside its opener has the opener's block. */
bool weft__scope_is_mine(const weft__scope *s) {
    const weft__task *t = weft__cur(weft__self());
    for (const weft__fresh *f = t ? t->inner : NULL; f; f = f->link)
        if (f->home == s) return false;
    return weft__scope_opener(s) == weft__me();
}

bool weft__scope_is_open(const weft__scope *s) {
    const weft__task *t = weft__cur(weft__self());
    const weft__block *b = weft__me();
    const weft__scope *until = !t ? NULL : t->inner ? t->inner->home : b->home;
    for (const weft__scope *x = b->scope; x && x != until; x = x->parent)
        if (x == s) return true;
    return false;
}

void weft_scope_set_deadline(weft_scope *scope, weft_deadline deadline) {
    weft__scope *s = weft__scope_of(scope);
    if (!weft__scope_is_open(s)) weft__die("weft_scope_set_deadline: scope %p is not one that the caller has open", (void *)s);
    tick_if_thread(weft__me());
    if (weft__scope_cause(s)) return;     /* it stays so */
    if (weft__load(&s->timed, relaxed)) { /* our own */
        weft__timer_stop(&s->timer);
        weft__store(&s->timed, false, relaxed); /* an earlier moment is as good for those that read it now */
    }
    if (deadline.ns) weft__scope_arm(s, deadline.ns, deadline_passed);
}

/* ---- beginning ---- */

static void begin_roster(weft__scope *s, const weft_scope_opts *o) {
    weft__roster *r = weft__roster_new(s->owner, (uint32_t)o->limit, o->results);
    if (!r) {
        weft__scope_cancel(s, WEFT_ENOMEM, NULL); /* as if a child had failed: nobody else knows it yet */
        return;
    }
    s->owner = &r->proxy;
    weft__store(&s->untidy, true, relaxed); /* the opener's own */
}

static WEFT_COLD void begin_with(weft__scope *s, const weft_scope_opts *o) {
    if (o->on_error != WEFT_CANCEL_ALL && o->on_error != WEFT_KEEP_GOING)
        weft__die("weft_scope_begin: on_error is %d; it must be WEFT_CANCEL_ALL or WEFT_KEEP_GOING", o->on_error);
    if (o->limit < 0) weft__die("weft_scope_begin: limit is %d; it must be positive, or 0 for none", o->limit);
    s->on_error = o->on_error;
    if (o->limit || o->results) begin_roster(s, o);
}

/* On a plain thread the root's cancellation would not find the opener: it goes through the stacks of tasks only. Once the scope is listed,
 * `owner` is fixed. */
static WEFT_COLD void begin_special(weft__scope *s, const weft_scope_opts *opts) {
    bool thread = weft__load(&s->owner->kind, relaxed) == WEFT_BLOCK_THREAD; /* our own */
    if (opts) begin_with(s, opts);
    if (thread) weft__scope_list_of_thread(s);
    /* Last: a deadline that passes while the runtime stops leaves the scope to the root's cancellation, which
     * finds it by the list. */
    if (opts && opts->deadline.ns) weft__scope_arm(s, opts->deadline.ns, deadline_passed);
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
    if (s->on_error == WEFT_CANCEL_ALL) weft__scope_cancel(s, result, slot);
    weft__scope_error(s, result);
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
    weft__block *b = weft__me();
    tick_if_thread(b);
    return weft__scope_cause(b->scope);
}

/* ---- joining ---- */

/* Behind an opener that waits: settles; if all children have ended meanwhile, it goes on at once. */
static void post_settle(weft__slot *slot, void *arg) {
    weft__scope *s = arg;
    weft__block *owner = weft__scope_opener(s); /* S1 */
    int64_t all = s->spawned;
    if (weft__sub(&s->done, all, acq_rel) == all) weft__resume(owner, slot); /* pairs with the additions in life.c */
}

static WEFT_NOINLINE void park_for_children(weft__scope *s) {
    weft__worker *w = weft__self();
    weft__slot *slot = weft__here(w);
    weft__block *b = &weft__cur(w)->b;
    if (unlikely(weft__cur(w)->timer_call != NULL)) weft__timer_must_not_wait(weft__cur(w), "weft_scope_end");
    weft__store(&b->reason, WEFT_WAIT_SCOPE, relaxed); /* for people */
    weft__store(&b->since, weft__load(&slot->now, relaxed), relaxed);
    weft__park(w, slot, post_settle, s);
    weft__san_acquire(&s->done); /* of the children: post_settle has seen it, on another stack */
    weft__store(&b->reason, WEFT_WAIT_NONE, relaxed);
}

static WEFT_COLD void join_as_thread(weft__scope *s) {
    weft__thread *t = weft__container(weft__scope_opener(s), weft__thread, b);
    weft__thread_ready(t);
    int64_t all = s->spawned;
    if (weft__sub(&s->done, all, acq_rel) == all) return; /* as in post_settle */
    weft__thread_sleep(t, 0);
}

/* It is no plain child of the scope, and goes back; unless it only seems so because its site is to be asked for: somewhere tasks bind. */
static WEFT_NOINLINE weft__fresh *ask_or_put_back(weft__slot *slot, weft__scope *s, weft__task *me, weft__fresh *f) {
    if (f->home == s && f->shape.extra & WEFT_ASK_SITE && !weft__site_binds(f->site, f->fn)) {
        f->shape.extra &= (uint8_t)~WEFT_ASK_SITE;
        if (f->shape.inside <= me->size_class && weft__ctx_stack_above(&me->inside_limit)) return f;
    }
    weft__deque_put(slot, f);
    return NULL;
}

/* The newest fresh task of the slot, if it is a plain child of this scope and nearly all of the stack is left for it. It is taken before it
 * is looked at: until then a thief may have it, and its record may be somebody else's already. *at: as in run_inside. */
WEFT_INLINE weft__fresh *own_child(weft__worker **at, weft__slot *slot, weft__scope *s, weft__task *me) {
    weft__fresh *f = weft__deque_take(slot);
    if (unlikely(!f)) return NULL;
    bool fits = f->shape.inside <= me->size_class && weft__ctx_stack_above(&me->inside_limit);
    if (likely(f->home == s && fits)) return f;
    f = ask_or_put_back(slot, s, me, f);
    *at = weft__self(); /* still the same */
    return f;
}

/* A child that ran inside has functions to call at its end, or an error. Returns the slot we are on then. */
static WEFT_COLD weft__slot *inside_special(weft__task *me, weft__scope *s, int result) {
    result = weft__inside_finish(me->inner, result);
    weft__ctx_fp_reset();
    weft__slot *slot = weft__enter();
    if (result < 0) weft__child_failed(s, result, slot);
    return slot;
}

/* A child that ran inside may have left floating-point modes, which must not leak into the next, nor into its opener. If there is more to be
 * called at its end, that has them too, and inside_special sees to it. Gives the child's result back: so it is in no register across the call. */
static WEFT_NOINLINE int reset_modes(weft__task *me, int result) {
    if (!me->inner->extra) weft__ctx_fp_reset_seen(&me->fp);
    return result;
}

/* A child's record, with the cache full. Returns the slot. */
static WEFT_COLD weft__slot *free_full(weft__slot *slot, weft__fresh *f) {
    weft__fresh_free(slot, f);
    return slot;
}

/* Runs a child on the opener's stack: the opener has nothing else to do, and the newest is likely to be in the cache. The child
 * borrows the opener's task and block as well: while it runs, the opener waits for it and for nothing else, and both are in the
 * same scope, so whatever ends a wait of one ends that of the other. Only its identity is its own, errno, and the floating-point modes,
 * which are plain before and afterwards (join_specially sees to the opener's). Returns the slot we are on then, and the worker in *at.
 * Both and the record are read anew behind every call, even one that does not change them: kept in registers across it, each would cost
 * the fast path a push and a pop. */
WEFT_INLINE weft__slot *run_inside(weft__worker **at, weft__task *me, weft__scope *s, weft__fresh *f) {
    f->link = me->inner;
    weft__show(&me->inner, f); /* to dump.c */
    int saved_errno = *(*at)->errno_at;
    weft__leave_on(*at);
    int result = weft__call(f->fn, f->arg);
    if (weft__task_fp_glance(me)) result = reset_modes(me, result);
    weft__slot *slot;
    f = me->inner;
    bool plain = !f->extra && result >= 0;
    if (unlikely(!plain || !weft__enter_fast(at, &slot))) {
        slot = plain ? weft__enter_slow() : inside_special(me, s, result);
        *at = weft__self(); /* H9 */
        f = me->inner;
    }
    *(*at)->errno_at = saved_errno;
    if (unlikely(me->b.scope != s)) weft__scope_left_open(me);
    weft__show(&me->inner, f->link);
    if (unlikely(slot->fresh.count >= WEFT_MAGAZINE)) {
        slot = free_full(slot, f);
        *at = weft__self(); /* still the same */
    } else {
        weft__fresh_free(slot, f);
    }
    return slot;
}

/* The slot is late, and starts the oldest first: of several children none runs inside (age.h). */
WEFT_INLINE bool waits_its_turn(weft__slot *slot, weft__scope *s) {
    return unlikely(weft__load(&slot->late, relaxed)) && s->spawned - weft__load(&s->done, relaxed) > 1; /* hints, both */
}

WEFT_INLINE void join(weft__worker *w, weft__task *me, weft__scope *s) {
    weft__slot *slot;
    if (unlikely(!weft__enter_with(w, &slot))) {
        slot = weft__enter_slow();
        w = weft__self(); /* H9 */
    }
    do {
        weft__fresh *f = unlikely(waits_its_turn(slot, s)) ? NULL : own_child(&w, slot, s, me);
        if (unlikely(!f)) {
            park_for_children(s);
            w = weft__self(); /* H9 */
            break;
        }
        slot = run_inside(&w, me, s, f);
        s->spawned--;
        if (unlikely((slot->budget -= WEFT_BUDGET / WEFT_INSIDE_MAX) < 0)) { /* timers and other tasks want their turn */
            slot = weft__yield_now(slot);
            w = weft__self(); /* H9 */
        }
    } while (unlikely(!weft__scope_joined(s))); /* so that each join is spared the padding of a loop */
    weft__leave_on(w);
}

/* The opener is in a C++ handler or destructor, or may have set floating-point modes; children that run inside are not, and have not. */
static WEFT_NOINLINE void join_specially(weft__task *me, weft__scope *s) {
    weft__eh kept = weft__eh_take();
    weft__fp modes;
    weft__ctx_fp_get(&modes);
    bool odd = weft__ctx_fp_is_odd(&modes);
    if (odd) weft__ctx_fp_reset_seen(&modes);
    join(weft__self(), me, s);
    if (odd) weft__ctx_fp_set(&modes);
    weft__eh_put(kept);
}

const char *weft__scope_kind(const weft__scope *s) {
    return s->is_shield ? "shield" : "scope";
}

/* A panic ends the scopes that it passes before it unwinds; a destructor that does so once more is no mistake. */
static WEFT_COLD int not_innermost(weft__scope *s, weft__block *b) {
    weft__scope *in = b->scope;
    if (weft__unwinding()) return WEFT_EPANIC;
    if (weft__scope_opener(s) != b) weft__die("weft_scope_end: scope %p was opened by another task", (void *)s);
    if (in && in->is_shield)
        weft__die("weft_scope_end: scope %p has a shield still open inside: weft_shield_end is missing", (void *)s);
    weft__die("weft_scope_end: scope %p is not the innermost open scope (%p is)", (void *)s, (void *)in);
}

/* Calls what was deferred. Nothing can be spawned into the scope meanwhile: its roster, or one for this purpose alone, refuses. On that one
 * nobody waits, so it need not be in type-stable memory. Returns 0, or what the scope ends with if there was no error before. */
static WEFT_COLD int run_deferred(weft__scope *s, weft__roster *r) {
    weft__roster none;
    if (!r) {
        memset(&none, 0, sizeof none);
        weft__roster_init(&none, s->owner, 0, false);
        s->owner = &none.proxy;
        r = &none;
    }
    weft__store(&r->ending, true, relaxed); /* our own: no child is left */
    weft__defer_run(s);
    s->owner = r->opener;
    return weft__load(&s->error, relaxed); /* of a refused spawn or a panic, whichever came first; likewise our own */
}

/* What the scope ended with, if none of its children had an error and no deadline was found to be the first. */
static int outer_error(const weft__scope *s) {
    int64_t until;
    int outer = weft__scope_outer(s);
    if (outer) return own_is_first(s, outer) ? WEFT_ETIMEDOUT : WEFT_ECANCELED;
    if (weft__load(&s->cause, relaxed) != WEFT_ETIMEDOUT) return 0;      /* the end of the timer orders it */
    return own_is_earliest(s, &until) ? WEFT_ETIMEDOUT : WEFT_ECANCELED; /* see deadline_passed */
}

/* All children have ended: nobody lists it or its deadline any more. Returns what the scope ended with. */
static WEFT_COLD int tidy(weft__scope *s) {
    weft__roster *r = weft__scope_roster(s);
    if (weft__load(&s->timed, relaxed)) weft__timer_stop(&s->timer); /* our own */
    if (weft__load(&s->listed, relaxed)) weft__scope_unlist(s);      /* the join orders it */
    int error = weft__load(&s->error, relaxed);                      /* the join, and the end of the timer, order it */
    if (!error) error = outer_error(s);
    int late = s->deferring ? run_deferred(s, r) : 0;
    if (r) weft__roster_free(r);
    return error ? error : late;
}

static WEFT_COLD int end_on_thread(weft__scope *s) {
    weft__block *b = weft__thread_block();
    if (b->scope != s) return not_innermost(s, b);
    if (!weft__scope_joined(s)) join_as_thread(s);
    (void)weft__thread_tick(b);
    b->scope = s->parent == &weft__root ? NULL : s->parent;
    return tidy(s);
}

int weft_scope_end(weft_scope *scope) {
    weft__scope *s = weft__scope_of(scope);
    weft__worker *w = weft__self();
    weft__task *t = weft__cur(w);
    if (unlikely(!t)) return end_on_thread(s);
    if (unlikely(t->b.scope != s)) return not_innermost(s, &t->b);
    if (!weft__scope_joined(s)) {
        if ((unlikely(weft__rt.cxx) && unlikely(weft__eh_busy(w->eh))) || weft__task_fp_glance(t))
            join_specially(t, s);
        else
            join(w, t, s);
    }
    t->b.scope = s->parent;
    return unlikely(weft__load(&s->untidy, relaxed)) ? tidy(s) : weft__cancel_check(&t->b); /* the join orders it */
}
