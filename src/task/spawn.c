/* SPDX-License-Identifier: MIT */
/* Spawning: a record is filled in and put on the slot's deque. No atomic read-modify-write, no allocation, no stack.
 *
 * Back-pressure: when the deque is full because this very task makes a storm of children, it steps back and lets some of them run
 * (measured: 34-167 -> 14-21 ns a task). A recursive spawner is no storm: its children overflow to the global queue (helping there
 * doubled skynet's time). */
#include <stdarg.h>
#include <stdio.h>

#include "sched/lane.h"
#include "task/task.h"

#define CALLER __builtin_return_address(0)

/* The runtime's own class; a plain thread knows it only once it knows that the runtime runs. */
enum { DEFAULT_CLASS = -2 };

/* What is to be spawned. */
typedef struct {
    weft_fn *fn;
    void *arg;
    const void *copy;
    size_t copy_size;
    weft__extra *extra;
    int size_class;
    void *site;
    uint8_t lane, pinned; /* as in weft__extra */
    bool bound;
    int cpu; /* as in weft__extra */
} order;

/* ---- queueing ---- */

/* Called with the deque full: did the current task fill it all by itself since the last time? */
static WEFT_COLD bool made_a_storm(weft__slot *s, weft__task *me) {
    uint64_t last = weft__load(&s->last_id, relaxed), spawned = (last - s->burst_id) / weft__rt.id_step; /* the owner's */
    bool storm = s->burst_by == weft__work_task(me) && spawned < 2 * WEFT_DEQUE;
    s->burst_by = weft__work_task(me);
    s->burst_id = last;
    return storm;
}

/* Lets some of the children run; returns the slot we are on then. */
static weft__slot *step_back(weft__slot *s) {
    weft__worker *w = weft__self();
    weft__fresh *f = weft__deque_take(s);
    if (!f) return s;
    s->boost = WEFT_DEQUE / 2;
    w->post = weft__post_back;
    w->post_arg = weft__cur(w);
    weft__switch(w, s, weft__cur(w), weft__work_fresh(f));
    s = weft__here(weft__self()); /* H9 */
    s->boost = 0;
    return s;
}

static WEFT_COLD int push_full_and_leave(weft__slot *s, weft__fresh *f) {
    s->deque_top_seen = weft__load(&s->top, acquire); /* as in weft__deque_push: mostly thieves have made room */
    bool full = weft__deque_count(s) >= WEFT_DEQUE - 1;
    /* Not where tasks compute without end: one of the children might, and we would wait for it. */
    bool strays = weft__load(&weft__rt.strays, relaxed) > 0; /* a hint */
    if (full && made_a_storm(s, weft__cur(weft__self())) && !strays)
        s = weft__self()->own_thread ? weft__yield_now(s) : step_back(s); /* D3 in bind.c: they do not run on its thread */
    weft__deque_push(s, f);
    weft__work_made(s);
    weft__leave();
    return 0;
}

static WEFT_COLD int wake_and_leave(weft__slot *s) {
    weft__wake_one(s, NULL);
    weft__leave();
    return 0;
}

/* The end of a spawn. As in chan.c, the fast path makes no call that it comes back from. `fast`: we have entered through an open gate. */
WEFT_INLINE int push_and_leave(weft__worker *w, weft__slot *s, weft__fresh *f, const bool fast) {
    uint32_t bottom = weft__load(&s->bottom, relaxed), n = bottom - s->deque_top_seen; /* R2 */
    if (unlikely(n >= WEFT_DEQUE - 1)) return push_full_and_leave(s, f);
    weft__deque_put_at(s, bottom, f);
    bool wake = n && (fast ? weft__wake_wanted_fast() : weft__wake_wanted()); /* the first one is for us */
    if (unlikely(wake)) return wake_and_leave(s);
    weft__leave_on(w);
    return 0;
}

WEFT_INLINE uint64_t next_id(weft__slot *s) {
    uint64_t id = weft__load(&s->last_id, relaxed) + weft__rt.id_step; /* the owner's */
    weft__store(&s->last_id, id, relaxed);                             /* the monitor reads it (age.c) */
    return id;
}

/* Small arguments are copied word by word, without a call. */
WEFT_INLINE char *copy_args(char *to, const char *from, size_t n) {
    if (unlikely(n % 8)) return memcpy(to, from, n);
    for (size_t i = 0; i < n; i += 8) memcpy(to + i, from + i, 8);
    return to;
}

/* The record, from the order. `epoch`: the scope was looked at, and not cancelled up to then. */
WEFT_INLINE void fill(weft__fresh *f, weft__scope *home, const order *o, uint64_t id, uint64_t epoch) {
    weft__store(&f->id, id, relaxed); /* published with the record */
    weft__san_publish(&f->id);
    weft__show(&f->fn, o->fn); /* these to dump.c, while it runs inside another */
    f->arg = o->arg;
    f->home = home;
    weft__show(&f->site, o->site);
    f->extra = o->extra;
    f->shape.needs = weft__load(&weft__rt.plain, relaxed); /* WEFT_ASK_SITE is a hint */
    if (o->size_class != DEFAULT_CLASS) f->shape.size_class = (uint8_t)o->size_class;
    f->shape.extra |= o->extra != NULL;
    f->shape.args = (uint8_t)o->copy_size;
    f->shape.linked = home == &weft__root ? WEFT_LINK_NEEDLESS : WEFT_LINK_NONE;
    f->shape.epoch = (uint32_t)epoch;
    if (o->copy_size) f->arg = copy_args(f->copy, o->copy, o->copy_size);
    if (o->extra && o->extra->handle) o->extra->handle->id = id;
}

/* ---- accounting ---- */

/* Counts the child, before it can end. */
WEFT_INLINE void count(weft__slot *s, weft__scope *home, weft__block *me) {
    if (likely(home->owner == me)) {
        home->spawned++;
    } else if (!home->owner) {
        weft__root_spawned(s);
    } else {
        weft__sub(&home->done, 1, relaxed); /* S2: we are a child ourselves, the scope is not at its end */
        if (weft__load(&home->owner->kind, relaxed) == WEFT_BLOCK_THREAD) weft__foreign_spawned();
    }
}

WEFT_COLD static int refused(weft__scope *home, int err, weft__slot *s) {
    if (home->owner) weft__child_failed(home, err, s);
    if (s) weft__leave();
    return err;
}

/* ---- from a task ---- */

WEFT_COLD static int spawn_outside(weft__scope *home, const order *o);

/* Whether the scope takes no more children. */
WEFT_INLINE bool closed(weft__scope *home, weft__block *me) {
    (void)weft__cancel_check(me);
    bool current = weft__load(&me->epoch, relaxed) == weft__load(&weft__rt.epoch, relaxed); /* as in weft__cancel_check */
    if (likely(current && home->owner == me)) return false;                                 /* it is one of ours */
    return weft__scope_cause(home) != 0;
}

/* A record for the order; NULL: there is no memory for it, or none for stacks. */
WEFT_INLINE weft__fresh *record(weft__slot *s) {
    weft__fresh *f = weft__cache_get(&weft__rt.fresh_slab, &s->fresh);
    if (likely(f && !weft__load(&weft__rt.no_stacks, relaxed))) return f;
    if (f) weft__fresh_free(s, f);
    return NULL;
}

/* The end of a spawn, whatever the task's priority. */
WEFT_INLINE int start_and_leave(weft__slot *s, weft__fresh *f) {
    if (likely(!f->extra || !f->extra->lane)) return push_and_leave(weft__self(), s, f, false);
    weft__lane_spawn(s, f, f->extra->lane);
    weft__leave();
    return 0;
}

bool weft__fresh_alone(const weft__fresh *f) {
    return f->home == &weft__root || (f->extra && f->extra->handle);
}

void weft__fresh_start(weft__fresh *f, weft__slot *s) {
    int lane = f->extra ? f->extra->lane : WEFT_LANE_NORMAL;
    weft__san_release(&f->id);     /* besides what its spawner did, who may be another */
    if (!s) weft__foreign_enter(); /* the task may run, end, and let the runtime end, while we are still in here */
    if (lane) {
        weft__lane_spawn(s, f, lane);
    } else if (s) {
        weft__deque_push(s, f);
        weft__work_made(s);
    } else {
        weft__inject_fresh(f);
        weft__work_injected(NULL);
    }
    if (!s) weft__foreign_leave();
}

/* The end of a roster's child is not plain. */
static void count_in(weft__fresh *f) {
    if (!f->extra) f->extra = &weft__extra_none;
    f->shape.extra |= 1;
}

/* Into a scope with a roster: it may have to wait for room. */
static WEFT_COLD int spawn_listed(weft__roster *r, weft__scope *home, const order *o, weft__slot *s) {
    weft__block *me = &weft__cur(weft__self())->b;
    int place = weft__roster_admit(r, home, me, &s);
    if (place < 0) return refused(home, place, s);
    weft__fresh *f = record(s);
    if (!f) {
        weft__roster_return(r, place, s);
        return refused(home, WEFT_ENOMEM, s);
    }
    fill(f, home, o, next_id(s), 0);
    count_in(f);
    if (r->opener == me)
        home->spawned++;
    else
        weft__sub(&home->done, 1, relaxed);                                   /* as in count */
    bool thread = weft__load(&r->opener->kind, relaxed) == WEFT_BLOCK_THREAD; /* that much of it is fixed */
    if (thread && r->opener != me) weft__foreign_spawned();
    if (place != WEFT_ROSTER_LATER || !weft__roster_queue(r, f)) return start_and_leave(s, f);
    weft__leave();
    return 0;
}

WEFT_INLINE int spawn(weft__scope *home, const order *o) {
    weft__slot *s = weft__enter();
    if (unlikely(!s)) {
        order outside = *o; /* a copy, so that in here the order need not be in memory */
        return spawn_outside(home, &outside);
    }
    weft__block *me = &weft__cur(weft__self())->b;
    weft__roster *r = home->owner == me ? NULL : weft__scope_roster(home);
    if (unlikely(r && weft__load(&r->ending, relaxed)))
        return refused(home, WEFT_ETERMINATED, s); /* as in weft__scope_ending */
    if (unlikely(closed(home, me))) return refused(home, WEFT_ECANCELED, s);
    if (unlikely(r != NULL)) {
        order listed = *o; /* as above */
        return spawn_listed(r, home, &listed, s);
    }
    weft__fresh *f = record(s);
    if (unlikely(!f)) return refused(home, WEFT_ENOMEM, s);
    fill(f, home, o, next_id(s), weft__load(&me->epoch, relaxed));
    count(s, home, me);
    return start_and_leave(s, f);
}

bool weft__spawn_runner(weft__slot *s, weft_fn *fn, void *arg) {
    weft__fresh *f = weft__fault() ? NULL : weft__cache_get(&weft__rt.fresh_slab, &s->fresh);
    if (!f) return false;
    order o = {.fn = fn, .arg = arg, .size_class = DEFAULT_CLASS, .site = CALLER};
    fill(f, &weft__root, &o, next_id(s), 0);
    weft__root_spawned(s);
    weft__deque_push(s, f);
    weft__work_made(s);
    return true;
}

/* ---- from a plain thread ---- */

static int enqueue_outside(weft__scope *home, const order *o) {
    weft__block *opener = weft__scope_opener(home), *me = weft__thread_block();
    weft__roster *r = weft__scope_roster(home);
    weft__slot *none = NULL;
    int err = r ? weft__roster_admit(r, home, me, &none) : 0; /* a thread is no child: it waits for room */
    if (err < 0) return err;
    weft__fresh *f = weft__slab_get(&weft__rt.fresh_slab);
    if (!f) {
        if (r) weft__roster_return(r, 0, NULL);
        return WEFT_ENOMEM;
    }
    uint64_t n = weft__add(&weft__rt.foreign_id, 1, relaxed) + 1;
    fill(f, home, o, n * weft__rt.id_step, 0);
    if (r) count_in(f);
    if (opener == me)
        home->spawned++;
    else if (opener)
        weft__sub(&home->done, 1, relaxed); /* S2: the caller knows that the scope is open */
    /* a task's scope itself keeps the runtime going */
    bool kept = opener && weft__load(&opener->kind, relaxed) != WEFT_BLOCK_THREAD; /* that much of it is fixed */
    weft__fresh_start(f, NULL);
    if (kept) weft__foreign_done();
    return 0;
}

/* The runtime may be stopping at this moment: it waits for us from foreign_spawned on, or we see that it stops. */
static int spawn_outside(weft__scope *home, const order *o) {
    weft__foreign_spawned();
    int err = 0;
    if (weft__runtime_phase() < WEFT_PHASE_RUNNING || weft__scope_ending(home))
        err = WEFT_ETERMINATED;
    else if (weft__scope_cause(home))
        err = WEFT_ECANCELED;
    else
        err = enqueue_outside(home, o);
    if (!err) return 0;
    weft__foreign_done();
    if (err == WEFT_ECANCELED)
        (void)weft__thread_tick(weft__thread_block()); /* it may be by the clock only: the cause is to be known */
    return refused(home, err, NULL);
}

/* ---- names, handles, large arguments ---- */

weft__extra weft__extra_none;                             /* never written */
static weft__slab extras = {.size = sizeof(weft__extra)}; /* type-stable: weft_dump may look at a name at any time */

weft__extra *weft__extra_new(weft_task *handle, const char *name, const void *args, size_t size) {
    void *copy = args ? weft__malloc(size) : NULL;
    weft__extra *x = args && !copy ? NULL : weft__slab_get(&extras);
    if (!x) {
        weft__free(copy);
        return NULL;
    }
    weft__san_unchecked_begin();
    if (copy) memcpy(copy, args, size);
    x->handle = handle;
    x->args = copy;
    x->lane = x->pinned = 0;
    x->bound_fn = NULL;
    x->exits = NULL;
    x->locals = NULL;
    for (size_t i = 0; i < sizeof x->name; i++) { /* to dump.c, which may look at it as one of a task that has ended */
        char c = name && i < sizeof x->name - 1 ? name[i] : 0;
        weft__show(&x->name[i], c);
        if (!c) break;
    }
    weft__san_unchecked_end();
    return x;
}

void weft__extra_free(weft__extra *x) {
    if (x == &weft__extra_none) return;
    weft__free(x->args);
    weft__slab_put(&extras, x);
}

void weft__extras_forget(void) {
    weft__slab_forget(&extras, NULL);
}

static int spawn_extra(weft__scope *home, order *o) {
    o->extra->lane = o->lane;
    o->extra->pinned = o->pinned;
    if (o->bound) {
        o->extra->bound_fn = o->fn;
        o->extra->bound_arg = o->arg;
        o->extra->cpu = o->cpu;
        o->fn = weft__bound_main;
        o->arg = o->extra;
    }
    int err = spawn(home, o);
    if (err) weft__extra_free(o->extra);
    return err;
}

/* Arguments that do not fit into the record. */
static WEFT_COLD int spawn_large(weft__scope *home, weft_fn *fn, const void *arg, size_t size, void *site) {
    order o = {.fn = fn, .size_class = DEFAULT_CLASS, .site = site};
    o.extra = weft__extra_new(NULL, NULL, arg, size);
    if (!o.extra) {
        weft__slot *s = weft__enter();
        return refused(home, WEFT_ENOMEM, s);
    }
    o.arg = o.extra->args;
    return spawn_extra(home, &o);
}

static int spawn_named(weft__scope *home, order *o, const char *name) {
    int err = WEFT_EINVAL;
    if (o->size_class != -1) {
        o->extra = weft__extra_new(NULL, name, NULL, 0);
        if (o->extra) return spawn_extra(home, o);
        err = WEFT_ENOMEM;
    }
    weft__slot *s = weft__enter();
    return refused(home, err, s);
}

/* What the options ask for, into the order; a size_class of -1: they cannot be. */
static void wish(order *o, const weft_task_opts *w) {
    static const uint8_t lanes[] = {WEFT_LANE_LOW, WEFT_LANE_NORMAL, WEFT_LANE_HIGH};
    bool bound = w->flags & WEFT_BOUND;
    bool ok = w->priority >= WEFT_PRIORITY_LOW && w->priority <= WEFT_PRIORITY_HIGH;
    if (w->flags & ~(unsigned)(WEFT_PINNED | WEFT_BOUND) || (bound && w->flags & WEFT_PINNED)) ok = false;
    if (w->cpu && (!bound || !weft__cpu_allowed(w->cpu - 1))) ok = false;
    o->bound = bound;
    o->cpu = w->cpu;
    o->lane = ok ? lanes[w->priority - WEFT_PRIORITY_LOW] : 0;
    o->pinned = (w->flags & WEFT_PINNED) != 0;
    if (w->stack_size) o->size_class = weft__stack_class(w->stack_size);
    if (!ok) o->size_class = -1;
}

int weft__spawn_handled(weft_task *h, weft_fn *fn, void *arg, const weft_task_opts *opts, void *site) {
    order o = {.fn = fn, .arg = arg, .size_class = DEFAULT_CLASS, .site = site};
    if (opts) wish(&o, opts);
    if (o.size_class == -1) return WEFT_EINVAL;
    o.extra = weft__extra_new(h, opts ? opts->name : NULL, NULL, 0);
    return o.extra ? spawn_extra(&h->scope, &o) : WEFT_ENOMEM;
}

/* ---- the public functions ---- */

static WEFT_NOINLINE int spawn_slow(weft__scope *home, weft_fn *fn, void *arg, const void *copy, size_t size, void *site) {
    if (size > WEFT_FRESH_ARGS) return spawn_large(home, fn, copy, size, site);
    order o = {.fn = fn, .arg = arg, .copy = copy, .copy_size = size, .size_class = DEFAULT_CLASS, .site = site};
    return spawn(home, &o);
}

/* The common case written out: the opener spawns, or anybody into the root; a record is at hand. Everything else takes the
 * general way. */
WEFT_INLINE int spawn_fast(const bool root, weft__scope *home, weft_fn *fn, void *arg, const void *copy, size_t size,
                           void *site) {
    weft__worker *w;
    weft__slot *s;
    if (unlikely(!weft__enter_fast(&w, &s) || size > WEFT_FRESH_ARGS)) return spawn_slow(home, fn, arg, copy, size, site);
    weft__block *me = &weft__cur(w)->b;
    uint64_t epoch = weft__load(&me->epoch, relaxed);
    weft__fresh *f = s->fresh.first;
    bool common = f && (root || home->owner == me) && epoch == weft__load(&weft__rt.epoch, relaxed);
    if (unlikely(!common)) return spawn_slow(home, fn, arg, copy, size, site);
    s->fresh.first = f->link;
    s->fresh.count--;
    weft__store(&f->id, next_id(s), relaxed); /* published with the record */
    weft__san_publish(&f->id);
    weft__show(&f->fn, fn); /* as in fill */
    f->arg = size ? copy_args(f->copy, copy, size) : arg;
    f->home = home;
    weft__show(&f->site, site);
    weft__check(!f->extra, "a free record has nothing extra");
    weft__shape its = {.args = (uint8_t)size, .linked = root ? WEFT_LINK_NEEDLESS : WEFT_LINK_NONE};
    f->shape.all = epoch << 32 | weft__load(&weft__rt.plain, relaxed) | its.needs; /* as in fill */
    if (root)
        weft__root_spawned(s);
    else
        home->spawned++;
    return push_and_leave(w, s, f, true);
}

int weft_spawn(weft_scope *s, weft_fn *fn, void *arg) {
    return spawn_fast(false, weft__scope_of(s), fn, arg, NULL, 0, CALLER);
}

int weft_spawn_copy(weft_scope *s, weft_fn *fn, const void *arg, size_t size) {
    return spawn_fast(false, weft__scope_of(s), fn, NULL, arg, size, CALLER);
}

int weft_go(weft_fn *fn, void *arg) {
    return spawn_fast(true, &weft__root, fn, arg, NULL, 0, CALLER);
}

int weft_go_copy(weft_fn *fn, const void *arg, size_t size) {
    return spawn_fast(true, &weft__root, fn, NULL, arg, size, CALLER);
}

int weft_spawn_opts(weft_scope *s, weft_fn *fn, void *arg, const weft_task_opts *opts) {
    if (!opts) return weft_spawn(s, fn, arg);
    order o = {.fn = fn, .arg = arg, .size_class = DEFAULT_CLASS, .site = CALLER};
    wish(&o, opts);
    return spawn_named(weft__scope_of(s), &o, opts->name);
}

int weft_spawnf(weft_scope *s, weft_fn *fn, void *arg, const char *fmt, ...) {
    char name[sizeof((weft__extra *)0)->name];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    order o = {.fn = fn, .arg = arg, .size_class = DEFAULT_CLASS, .site = CALLER};
    return spawn_named(weft__scope_of(s), &o, name);
}
