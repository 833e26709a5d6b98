/* SPDX-License-Identifier: MIT */
/* Tasks and scopes: the internal side. */
#ifndef WEFT_SRC_TASK_H
#define WEFT_SRC_TASK_H

#include "sched/sched.h"
#include "sched/switch.h"

#include <weft/scope.h>
#include <weft/task.h>

_Static_assert(sizeof(weft__task) <= WEFT_STACK_HEAD, "a task fits at the top of its stack");

typedef struct weft__roster weft__roster;
typedef struct weft__defer weft__defer;

/* A scope, in the storage of a weft_scope (or in a handle, or the root).
 *
 * Joining. `spawned` is the opener's own count, plain; children add to `done`; both start at WEFT_SCOPE_BIAS, and when they are equal
 * all children have ended. An opener that has to wait settles: it subtracts `spawned` from `done`, once, after it has left its stack;
 * from then on done is minus the children that are still to end, and whoever brings it to 0 resumes the opener. The bias keeps done
 * away from 0 until then. A task of the scope that spawns into it subtracts 1 first, so that the sum cannot be reached too early.
 *  S1  Nobody touches the scope after the addition that counted it: it may be gone. The opener's pointer is read before.
 *  S2  spawned - done = children alive, before settling; -done = children alive, afterwards.
 *
 * Waiting without ending (weft_scope_wait, children.c). The opener settles as above, but its wait can be given up: by a deadline, or by
 * cancellation. Then the settling is taken back, and the scope is as before. The counter decides between the last child, which brings
 * done to 0, and what gives the wait up, which adds `spawned` to done in one step, and only while done is below 0.
 *  S7  During such a wait the opener's block is queued under the block's own lock, and its waiter has no queue. An opener that its last
 *      child has resumed clears `queued` under that lock before it goes on: so the scope is there while `queued` is seen under the lock.
 * test/model/join.pml.
 *
 * Cancelling. A scope is cancelled by its own `cause` or by one around it; weft__rt.epoch rises with each cancellation, so a block
 * that has seen the epoch needs to look no further. A cancelled scope's waits are found through a tree that holds only those who
 * have ever waited: a block puts itself on the list of its home when it first parks (tasks that never do cost nothing), and the
 * scope then on the list of its parent, and so on up to the last below the root. The root's own cancellation concerns everybody and
 * goes through all stacks instead. Finding somebody is only a hint: whether his wait is ended is decided by another look at his
 * scopes once he cannot run on (park.c).
 *  S3  A scope's lists are under its lock; `listed` and its place among its siblings are under its parent's lock.
 *  S4  Locks are taken from parent to child. Whoever walks holds the locks of the path, so nothing on it can go.
 *
 *  S6  Of a crowd (a thousand that wait in one scope, and a good part of all tasks) those that come later do not list themselves: two locks
 *      and the neighbours' cold lines for each. Its cancellation goes through all stacks. Dekker as P3, with `home` in the place of the
 *      list: it was stored before the waiter stored wait_lock. And who has seen `crowded` has seen the epoch of whoever cancelled before
 *      it was set, since both have had the lock in between.
 *
 * Shielding. A shield is a scope without children of its own (shield.c): while it is `closed`, cancellation of those around it does
 * not come in, neither by looking up nor by walking down.
 *  S5  Dekker: the canceller stores the cause, passes a full barrier, then looks at `closed`; a shield whose time is up clears `closed`,
 *      passes a full barrier, then looks at the causes around it. It raises the epoch in between, so whoever has looked looks again.
 *
 * Counting in. A scope with a limit, or with results to be asked for, has a weft__roster (roster.c). Its `owner` is then not the opener's
 * block but the roster's own, which is of another kind: so the fast paths, which expect a task's, leave it to the general ones, and
 * scopes without a roster pay nothing.
 *
 * Ending. Deferred functions run after the join, when no child may come any more. While they do, every scope has a roster, and that
 * roster is `ending`: it refuses whatever is spawned. */
struct weft__scope {
    _Atomic int64_t done;
    int64_t spawned; /* opener */
    weft__block
        *owner; /* opener, or its roster (see weft__scope_opener); fixed until the join; NULL: the root, or a handle's */
    weft__scope *parent;   /* fixed; NULL: the root */
    _Atomic int32_t cause; /* 0, or why it is cancelled; the first one stays */
    _Atomic int32_t error; /* what weft_scope_end will return; the first one stays */
    int32_t on_error;      /* fixed */
    weft__lock lock;
    uint32_t count;      /* of `blocks` */
    weft__block *blocks; /* tasks that have waited; not all of them, if `crowded` */
    weft__scope *kids;   /* scopes inside with such tasks */
    _Atomic bool listed;
    _Atomic bool crowded; /* S6; it stays so */
    _Atomic bool
        untidy; /* something is left to do after the join, which orders it: an error, a list, a timer, a roster, deferred functions */
    _Atomic bool timed; /* `timer` has a deadline; the opener changes it (weft_scope_set_deadline), its tasks read it */
    bool deferring;     /* `deferred` is valid; opener */
    bool is_shield;     /* fixed */
    _Atomic bool
        stopped; /* of a plain thread, directly below the root: a runtime was stopped since it was opened, or was stopping then */
    _Atomic bool closed; /* a shield, and its time is not up (S5) */
    weft__scope *next, *prev;
    weft__timer timer;     /* opener; set up only if timed. Tasks of the scope read `when` (weft__peek) */
    weft__defer *deferred; /* last first; opener */
    int *result;           /* of a scope in block form: where its result goes, or NULL; fixed */
};
#define WEFT_SCOPE_BIAS (INT64_C(1) << 48)
#define WEFT_SCOPE_ZERO (offsetof(weft__scope, next) - offsetof(weft__scope, cause)) /* bytes that are zero in a new one */

/* What weft_scope_end returns, if nothing else came before. Read after the join. */
WEFT_INLINE void weft__scope_error(weft__scope *s, int error) {
    int32_t none = 0;
    (void)weft__cas(&s->error, &none, error, relaxed);
    weft__store(&s->untidy, true, relaxed);
}

WEFT_INLINE weft__scope *weft__scope_of(weft_scope *s) {
    return (weft__scope *)(void *)s;
}

/* What a scope with a limit, or with results to be asked for, has besides; roster.c. In type-stable memory: P4. */
struct weft__roster {
    weft__lock lock;
    uint32_t limit;            /* children that may be started and not ended; 0 = any number; fixed */
    bool keep;                 /* results are kept; fixed */
    _Atomic bool ending;       /* takes no child: the deferred functions run; set by the opener, and it stays so */
    weft__block proxy;         /* the scope's `owner`; only its kind says something */
    weft__block *opener;       /* fixed */
    size_t running;            /* started, or about to be; under lock, as all that follows */
    size_t outstanding;        /* accepted or about to be, and not ended */
    weft__fresh *first, *last; /* accepted, waiting for room */
    weft__queue spawners;      /* likewise, not accepted yet */
    weft__queue askers;        /* in weft_scope_wait_any */
    int32_t *results;          /* ring of those nobody has asked for */
    size_t cap, head, count;
    void *slab_link[2];
};

WEFT_INLINE weft__roster *weft__scope_roster(const weft__scope *s) {
    bool has = s->owner && weft__load(&s->owner->kind, relaxed) == WEFT_BLOCK_ROSTER; /* that much of a kind is fixed */
    return has ? weft__container(s->owner, weft__roster, proxy) : NULL;
}
/* The scope takes no child any more, not even one that would be refused because it is cancelled. */
WEFT_INLINE bool weft__scope_ending(const weft__scope *s) {
    weft__roster *r = weft__scope_roster(s);
    return r && weft__load(&r->ending, relaxed); /* the opener's own, or the caller knows that the scope is open */
}
/* The block of the task or thread that opened it; NULL: the root, or a handle's. */
WEFT_INLINE weft__block *weft__scope_opener(const weft__scope *s) {
    weft__roster *r = weft__scope_roster(s);
    return unlikely(r != NULL) ? r->opener : s->owner;
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
    weft_task *handle; /* or NULL */
    void *args;        /* copied arguments that do not fit into the record, or NULL */
    uint8_t lane;      /* WEFT_LANE_… */
    uint8_t pinned;    /* 1: WEFT_PINNED */
    int cpu;           /* WEFT_BOUND: + 1; 0: any */
    weft_fn *bound_fn; /* WEFT_BOUND: what it is to run, NULL: not bound */
    void *bound_arg;
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

/* 0, or WEFT_ECANCELED: the block's scope is cancelled. Free when nothing was cancelled since it was last asked. */
WEFT_COLD int weft__cancel_look(weft__block *b);
WEFT_INLINE int weft__cancel_check(weft__block *b) {
    /* relaxed: whoever must see it passes a lock after the canceller; P3 */
    if (likely(weft__load(&b->epoch, relaxed) == weft__load(&weft__rt.epoch, relaxed))) return 0;
    return weft__cancel_look(b);
}
/* Asks before an operation with this deadline is tried: with WEFT_POLL it is tried in a cancelled
 * scope, too (base.h). Returns 0 or WEFT_ECANCELED. */
WEFT_INLINE int weft__cancel_first(weft__block *b, weft_deadline deadline) {
    int err = weft__cancel_check(b); /* with WEFT_POLL, too: the block remembers that nothing is cancelled */
    return unlikely(err) && deadline.ns == INT64_MIN ? 0 : err;
}
/* Says why an operation with WEFT_POLL was not done. Returns WEFT_ECANCELED or WEFT_EAGAIN. */
WEFT_INLINE int weft__cancel_poll(weft__block *b) {
    int err = weft__cancel_check(b);
    return err ? err : WEFT_EAGAIN;
}
/* Cancels the scope for `cause`, unless it is cancelled already, and ends every wait in it. `error` is what weft_scope_end will return,
 * if nothing came before; 0: this cancellation is no error. `s`: the caller's slot or NULL. */
void weft__scope_cancel_as(weft__scope *scope, int cause, int error, weft__slot *s);
WEFT_INLINE void weft__scope_cancel(weft__scope *scope, int cause, weft__slot *s) {
    weft__scope_cancel_as(scope, cause, cause == WEFT_ECANCELED ? 0 : cause, s);
}
/* The root: every task there is. */
void weft__root_cancel(void);
/* Why what is around the scope is cancelled; 0: it is not. A plain thread's scope may have seen the root cancelled, which it is no more. */
int weft__scope_outer(const weft__scope *s);
/* So many that wait in one scope are a crowd (S6). A variable for tests. */
extern uint32_t weft__cancel_crowd;
/* Makes the block findable by cancellation, before its first wait. */
WEFT_COLD void weft__block_link(weft__block *b);
WEFT_COLD void weft__block_unlink(weft__block *b);
void weft__scope_list(weft__scope *s);
/* The same for a scope or shield of a plain thread, which is listed from its beginning: the root's cancellation finds plain threads by that. */
void weft__scope_list_of_thread(weft__scope *s);
void weft__scope_unlist(weft__scope *s);

/* ---- scope.c, life.c ---- */

/* Whether the calling task or thread has opened the scope, which may be ending. */
bool weft__scope_is_mine(const weft__scope *s);
/* Whether the calling task or thread has opened the scope, and its end has not begun. */
bool weft__scope_is_open(const weft__scope *s);
/* Whether all children have ended. Caller is the opener. */
WEFT_INLINE bool weft__scope_joined(weft__scope *s) {
    return weft__load(&s->done, acquire) == s->spawned; /* S2; pairs with the children's additions */
}
/* Starts the scope's timer, which is not in a wheel. If the moment has passed, `fire` is called at once. */
void weft__scope_arm(weft__scope *s, int64_t when, void (*fire)(weft__timer *t, void *slot));
/* The moment at which a task in this scope is cancelled by deadlines, shields considered; INT64_MAX: never. */
int64_t weft__scope_until(const weft__scope *s);
/* What is to be said of a scope or shield that was left open. */
const char *weft__scope_kind(const weft__scope *s);

/* The child has returned `result`, or was refused with it. */
WEFT_COLD void weft__child_failed(weft__scope *s, int result, weft__slot *slot);

/* A task that returns with a scope open is a bug: says so and aborts. */
WEFT_COLD WEFT_NORETURN void weft__scope_left_open(weft__task *t);
WEFT_INLINE void weft__task_check_scopes(weft__task *t) {
    if (unlikely(t->b.scope != t->b.home)) weft__scope_left_open(t);
}

/* ---- children.c ---- */

/* Gives up the wait for the scope's children with `err`. False: the last of them has ended, or the cancellation does not concern the wait.
 * Caller holds the block's lock, under which the block is queued (S7). */
WEFT_COLD bool weft__children_give_up(weft__block *b, weft__scope *s, int err);

/* ---- roster.c ---- */

/* A roster, in whatever memory. */
void weft__roster_init(weft__roster *r, weft__block *opener, uint32_t limit, bool keep);
/* NULL: no memory. */
weft__roster *weft__roster_new(weft__block *opener, uint32_t limit, bool keep);
void weft__roster_free(weft__roster *r);
/* A place for one more child. 0: it may start. WEFT_ROSTER_LATER: see weft__roster_queue. An error: WEFT_ECANCELED, WEFT_ENOMEM. May park:
 * *s is the slot we are on then. */
enum { WEFT_ROSTER_LATER = 1 };
int weft__roster_admit(weft__roster *r, weft__scope *home, weft__block *me, weft__slot **s);
/* The place is not used after all; `place` is what weft__roster_admit gave. */
void weft__roster_return(weft__roster *r, int place, weft__slot *s);
/* Keeps a child until there is room. False: there is, it is to be started now. */
bool weft__roster_queue(weft__roster *r, weft__fresh *f);
/* A child has ended. Before it is counted: the roster may be gone then. Returns the opener. */
weft__block *weft__roster_ended(weft__roster *r, int result, weft__slot *s);

/* ---- deadlines of plain threads (scope.c) ----
 *
 * The timers of their scopes and shields hang in the wheel `outside`, which workers look after. A thread may have a scope open where there is no
 * runtime. So it looks after its own timers too: before it sleeps, and when it asks or ends a scope. Only the thread can be inside such a scope then. */

/* Fires those timers of the calling plain thread's scopes that are due; returns when the next one is, INT64_MAX: there is none. Not with a lock of
 * something waited for. */
int64_t weft__thread_tick(weft__block *b);
/* Marks the block as one that has to look at its scopes at its next check, whatever the epoch. */
#define WEFT_EPOCH_NONE UINT64_MAX

/* ---- shield.c ---- */

/* Ends the block's innermost scope, which is a shield. By itself. */
void weft__shield_end(weft__block *b, weft__scope *s);

/* ---- defer.c ---- */

/* Runs what was deferred, last first. A panic in one of the functions is an error of the scope. */
void weft__defer_run(weft__scope *s);

/* ---- spawn.c, handle.c ---- */

/* A record that is not needed any more. */
WEFT_INLINE void weft__fresh_free(weft__slot *s, weft__fresh *f) {
    weft__check(!f->extra, "a free record has nothing extra");
    if (unlikely(s->fresh.count >= WEFT_MAGAZINE)) weft__cache_spill(&weft__rt.fresh_slab, &s->fresh);
    weft__cache_push(&s->fresh, f, offsetof(weft__fresh, link));
}

/* Queues a child that was counted and may start now. `s`: the caller's slot, NULL outside. */
void weft__fresh_start(weft__fresh *f, weft__slot *s);
/* Nothing extra, but not NULL: a child that does not run inside, and whose end is not plain. */
extern weft__extra weft__extra_none;
/* NULL: no memory. */
weft__extra *weft__extra_new(weft_task *handle, const char *name, const void *args, size_t size);
void weft__extra_free(weft__extra *x);
/* Spawns the task of a handle. */
int weft__spawn_handled(weft_task *h, weft_fn *fn, void *arg, const weft_task_opts *opts, void *site);
/* Spawns a task of the runtime's own, from a worker's own stack, even if the root is cancelled. False: no memory. */
bool weft__spawn_runner(weft__slot *s, weft_fn *fn, void *arg);
/* The task has ended and was joined by the caller, who gets its result and gives up the handle. */
int weft__handle_take(weft_task *h);
/* Tells the joiners and lets the task's reference go. */
void weft__handle_end(weft_task *h, int result, weft__slot *s);

/* ---- pin.c ---- */

/* The calling task has so many pins from now on. */
void weft__pin_set(weft__task *t, uint32_t pins);

/* ---- supplied by the block layer (bind.c) ---- */

/* The task ends, or is bound no more: its thread is free once it stands on its own stack. On that thread. */
void weft__bind_end(weft__task *t);
/* The calling task has called weft_bind only so often, again. */
void weft__bind_back(uint32_t binds);
/* What a task of WEFT_BOUND runs first: binds it and calls its function. */
weft_fn weft__bound_main;

/* ---- likewise (site.c): spawn sites whose tasks bind ---- */

/* Whether the tasks of this function that are spawned there bind: a hint. */
bool weft__site_binds(void *at, weft_fn *fn);
/* The task, just made from its record, is to start bound if its site's tasks bind. */
void weft__site_begin(weft__task *t);
/* It ends and has not called weft_bind: its site is forgotten. */
void weft__site_missed(weft__task *t);

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
void weft__shields_forget(void);
void weft__defers_forget(void);
void weft__rosters_forget(void);
/* A roster of the survivor's: nobody is on it. */
void weft__roster_forget(weft__roster *r);
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
