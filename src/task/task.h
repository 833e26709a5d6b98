/* SPDX-License-Identifier: MIT */
/* Tasks and scopes: the internal side. */
#ifndef WEFT_SRC_TASK_H
#define WEFT_SRC_TASK_H

#include "sched/sched.h"
#include "sched/switch.h"

#include <weft/scope.h>
#include <weft/task.h>

_Static_assert(sizeof(weft__task) <= WEFT_STACK_HEAD, "a task fits at the top of its stack");

/* A scope, in the storage of a weft_scope (or in a handle, or the root).
 *
 * Joining. `spawned` is the opener's own count, plain; children add to `done`; both start at WEFT_SCOPE_BIAS, and when they are equal
 * all children have ended. An opener that has to wait settles: it subtracts `spawned` from `done`, once, after it has left its stack;
 * from then on done is minus the children that are still to end, and whoever brings it to 0 resumes the opener. The bias keeps done
 * away from 0 until then. A task of the scope that spawns into it subtracts 1 first, so that the sum cannot be reached too early.
 *  S1  Nobody touches the scope after the addition that counted it: it may be gone. The opener's pointer is read before.
 *  S2  spawned - done = children alive, before settling; -done = children alive, afterwards.
 * test/model/join.pml.
 *
 * Cancelling. A scope is cancelled by its own `cause` or by one around it; weft__rt.epoch rises with each cancellation, so a block
 * that has seen the epoch needs to look no further. A cancelled scope's waits are found through a tree that holds only those who
 * have ever waited: a block puts itself on the list of its home when it first parks (tasks that never do cost nothing), and the
 * scope then on the list of its parent, and so on up to the last below the root. The root's own cancellation concerns everybody and
 * goes through all stacks instead.
 *  S3  A scope's lists are under its lock; `listed` and its place among its siblings are under its parent's lock.
 *  S4  Locks are taken from parent to child. Whoever walks holds the locks of the path, so nothing on it can go. */
struct weft__scope {
    _Atomic int64_t done;
    int64_t spawned;       /* opener */
    weft__block *owner;    /* opener; NULL: the root, or a handle's */
    weft__scope *parent;   /* fixed; NULL: the root */
    _Atomic int32_t cause; /* 0, or why it is cancelled; the first one stays */
    _Atomic int32_t error; /* what weft_scope_end will return; the first one stays */
    int32_t on_error;      /* fixed */
    weft__lock lock;
    weft__block *blocks; /* tasks that have waited */
    weft__scope *kids;   /* scopes inside with such tasks */
    _Atomic bool listed;
    bool timed; /* has a deadline timer */
    weft__scope *next, *prev;
    weft__timer timer; /* opener; set up only if timed */
};
#define WEFT_SCOPE_BIAS (INT64_C(1) << 48)
#define WEFT_SCOPE_ZERO (offsetof(weft__scope, next) - offsetof(weft__scope, cause)) /* bytes that are zero in a new one */

WEFT_INLINE weft__scope *weft__scope_of(weft_scope *s) {
    return (weft__scope *)(void *)s;
}

/* A task that was started with a handle. In type-stable memory: joiners wait on its lock. */
struct weft_task {
    weft__lock lock;
    _Atomic uint32_t refs;
    bool ended;          /* under lock */
    _Atomic bool joined; /* only one may: it releases the handle */
    int32_t result;      /* under lock */
    uint64_t id;         /* fixed */
    weft__queue joiners; /* under lock */
    weft__scope scope;   /* the task's home: cancelling the task cancels this */
    void *slab_link[2];
};

/* What few tasks have. In type-stable memory. */
struct weft__extra {
    void *slab_link[2];
    weft_task *handle;           /* or NULL */
    void *args;                  /* copied arguments that do not fit into the record, or NULL */
    uint8_t lane;                /* WEFT_LANE_… */
    uint8_t pinned;              /* 1: WEFT_PINNED */
    char name[32];               /* "" = none */
    struct weft__exit *exits;    /* weft_at_exit, newest first; the task's own */
    struct weft__locals *locals; /* or NULL; the task's own */
};

/* The scope that detached tasks belong to. */
extern weft__scope weft__root;

/* The calling task's or plain thread's block. Not a look at the slot: no entry needed. */
WEFT_INLINE weft__block *weft__me(void) {
    weft__task *t = weft__cur(weft__self());
    return likely(t != NULL) ? &t->b : weft__thread_block();
}

/* ---- cancel.c ---- */

/* Why the scope is cancelled, itself or through one around it; 0: it is not. */
int weft__scope_cause(const weft__scope *s);
/* 0, or WEFT_ECANCELED: the block's scope is cancelled. Free when nothing was cancelled since it was last asked. */
WEFT_COLD int weft__cancel_look(weft__block *b);
WEFT_INLINE int weft__cancel_check(weft__block *b) {
    /* relaxed: whoever must see it passes a lock after the canceller; P3 */
    if (likely(weft__load(&b->epoch, relaxed) == weft__load(&weft__rt.epoch, relaxed))) return 0;
    return weft__cancel_look(b);
}
/* Cancels the scope for `cause`, unless it is cancelled already, and ends every wait in it. `s`: the caller's slot or NULL. */
void weft__scope_cancel(weft__scope *scope, int cause, weft__slot *s);
/* The root: every task there is. */
void weft__root_cancel(void);
/* Makes the block findable by cancellation, before its first wait. */
WEFT_COLD void weft__block_link(weft__block *b);
WEFT_COLD void weft__block_unlink(weft__block *b);
void weft__scope_list(weft__scope *s);
void weft__scope_unlist(weft__scope *s);

/* ---- scope.c, life.c ---- */

/* The child has returned `result`, or was refused with it. */
WEFT_COLD void weft__child_failed(weft__scope *s, int result, weft__slot *slot);

/* A task that returns with a scope open is a bug: says so and aborts. */
WEFT_COLD WEFT_NORETURN void weft__scope_left_open(weft__task *t);
WEFT_INLINE void weft__task_check_scopes(weft__task *t) {
    if (unlikely(t->b.scope != t->b.home)) weft__scope_left_open(t);
}

/* ---- spawn.c, handle.c ---- */

/* A record that is not needed any more. */
WEFT_INLINE void weft__fresh_free(weft__slot *s, weft__fresh *f) {
    if (unlikely(s->fresh.count >= WEFT_MAGAZINE)) weft__cache_spill(&weft__rt.fresh_slab, &s->fresh);
    weft__cache_push(&s->fresh, f, offsetof(weft__fresh, link));
}

/* NULL: no memory. */
weft__extra *weft__extra_new(weft_task *handle, const char *name, const void *args, size_t size);
void weft__extra_free(weft__extra *x);
/* Spawns the task of a handle. */
int weft__spawn_handled(weft_task *h, weft_fn *fn, void *arg, const weft_task_opts *opts, void *site);
/* Spawns a task of the runtime's own, from a worker's own stack, even if the root is cancelled. False: no memory. */
bool weft__spawn_runner(weft__slot *s, weft_fn *fn, void *arg);
/* Tells the joiners and lets the task's reference go. */
void weft__handle_end(weft_task *h, int result, weft__slot *s);

/* ---- pin.c ---- */

/* The calling task has so many pins from now on. */
void weft__pin_set(weft__task *t, uint32_t pins);

/* ---- timer.c ---- */

/* A task that calls a timer's function is about to wait: says so and aborts. */
WEFT_COLD WEFT_NORETURN void weft__timer_must_not_wait(const weft__task *t, const char *what);

/* ---- runtime.c ---- */

/* Timers of those who have no slot. */
weft__wheel *weft__outside_wheel(void);
int weft__runtime_phase(void);

/* Supplied by the debug layer: prints what was measured about stacks, now or if the process exits. */
void weft__report_stacks(bool now);

/* ---- in the child of a fork (fork.c) ---- */

/* Every handle's task has ended, with WEFT_ETERMINATED. */
void weft__handles_forget(void);
void weft__extras_forget(void);
/* There is no runtime. `release`: its memory can be given back. */
void weft__runtime_forget(bool release);

/* ---- counting for the end of the runtime (life.c) ----
 *
 * Root tasks, and tasks of scopes that plain threads opened, keep the runtime alive. Each slot counts what it has spawned and what
 * has ended on it, plainly; whoever wants to know reads all `done` first, then all `spawned`: equal sums mean that there was a
 * moment in between when nothing was alive. */
bool weft__root_alive(void);
WEFT_COLD void weft__root_drained(void);
WEFT_INLINE void weft__root_spawned(weft__slot *s) {
    weft__store(&s->spawned, weft__load(&s->spawned, relaxed) + 1, release); /* pairs with the acquire in weft__root_alive */
}
WEFT_INLINE void weft__root_done(weft__slot *s) {
    weft__store(&s->done, weft__load(&s->done, relaxed) + 1, release); /* as above */
    weft__light_barrier();                                             /* pairs with the heavy barrier in weft_stop */
    if (unlikely(weft__load(&weft__rt.draining, relaxed))) weft__root_drained();
}
/* The same from outside any slot, and for scopes of plain threads. */
void weft__foreign_spawned(void);
void weft__foreign_done(void);

#endif
