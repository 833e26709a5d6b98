/* SPDX-License-Identifier: MIT */
/* Timers: a function of the user's at a moment, once or again and again.
 *
 * They hang in the same wheels as deadlines do. What fires in a wheel runs under its lock, and a user's function must not: it may
 * start and stop timers. So a timer that is due moves to its wheel's ring `due`, and a task, the *runner*, takes it from there and
 * calls its function. A runner is started for each batch that becomes due, and ends when the ring is empty; so a function that takes
 * long delays what became due together with it, and nothing later. Being a task, it can lose its slot while a function computes.
 *
 *   place:  OUT -> WHEEL              weft_timer_start
 *           WHEEL -> DUE              fired
 *           WHEEL -> LATE             fired, while its function still runs: after that it is DUE
 *           DUE -> OUT                take_due: the function is called
 *           OUT -> WHEEL              settle, if it has an interval
 *           LATE -> DUE               settle
 *           any -> OUT                weft_timer_stop; the runtime stops
 *           any -> BARRED             weft_timer_stop_wait, while its function runs: that cannot start it any more
 *           BARRED -> OUT             settle
 *           BARRED -> WHEEL           weft_timer_start, by others
 *
 * Invariants
 *  T1  Everything but `home` and `run` is under the lock of the wheel that `home` names.
 *  T2  `home` changes only under the lock of the wheel it named; by CAS if that was of an earlier runtime; or, at the first start of all, when
 *      nobody else may start it, under that of the wheel it names then. Whoever has taken the lock looks again whether it is still the right one.
 *  T3  RUNNING is set under that lock and cleared by the runner after its last look at the timer, which may be gone then. So a function
 *      never runs twice at once, and whoever sees the timer OUT and not RUNNING, after a stop, may free it.
 *  T4  A wait for the end of the function is not a cancellation point. Whoever waits sets WAITED under the waiters' lock, in which the
 *      runner looks for him after it has cleared both. The waiters' lock is an object's: no wheel's lock is taken inside.
 *  T5  Once the root is cancelled nothing becomes due any more; those left in the wheels are taken out when the runtime closes, after
 *      the last runner has ended. Plain threads touch wheels only inside weft__foreign_enter, in a phase in which there are some.
 *  T6  BARRED is as OUT, with its function running; a start by that function is refused. So a timer whose weft_timer_stop_wait has begun
 *      is not armed when that returns, whatever its function does; unless another task starts it.
 *
 * Rejected: the function under the wheel's lock (see above); on the worker's own stack (it could neither lose its slot nor enter the
 * runtime); a task for each timer (a record and a stack each, when one does for 256); a lock in each timer (the wheel's is taken anyway). */
#include "sched/switch.h"
#include "task/panic.h"
#include "time/clock.h"
#include "time/timer.h"

#include <weft/time.h>

enum { OUT, WHEEL, DUE, LATE, BARRED }; /* place */
enum { RUNNING = 1, WAITED = 2 };       /* run */
enum { OUTSIDE = 0xffff, HOME_BITS = 16 };
enum { RUNNER_BATCH = 32 }; /* functions called before other tasks get a turn */

_Static_assert((int)WEFT_SLOTS_MAX < (int)OUTSIDE, "a wheel's number fits");

typedef struct timer {
    weft__timer node; /* near: the function's argument */
    weft_timer_fn *fn;
    int64_t interval;      /* 0 = once */
    _Atomic uint64_t home; /* T2: the runtime's generation, and which of its wheels; 0 = never started */
    _Atomic uint32_t run;  /* T3 */
    uint32_t place;
} timer;

/* Not a word more: compilers clear larger storage with an instruction that takes as long as a start and a stop. */
_Static_assert(sizeof(timer) == sizeof(weft_timer), "a timer fits its public storage");

static timer *timer_of(weft_timer *t) {
    return (timer *)(void *)t;
}

/* ---- which wheel ---- */

WEFT_INLINE uint64_t home_of(const weft__slot *s) {
    return weft__load(&weft__rt.generation, relaxed) << HOME_BITS | (s ? (uint64_t)s->index : OUTSIDE);
}

WEFT_INLINE weft__wheel *wheel_of(uint64_t home) {
    uint32_t i = home & OUTSIDE;
    return i == OUTSIDE ? &weft__rt.outside : &weft__rt.slot[i].wheel;
}

/* Of this runtime: it may hang somewhere. */
WEFT_INLINE bool at_home(uint64_t home) {
    return home >> HOME_BITS == weft__load(&weft__rt.generation, relaxed) && home;
}

/* Takes the lock that guards the timer; NULL: none does, because it was not started in this runtime. */
static weft__wheel *lock_timer(timer *t) {
    for (;;) {
        uint64_t home = weft__load(&t->home, acquire); /* T2; pairs with the changes in lock_for_start */
        if (!at_home(home)) return NULL;
        weft__wheel *w = wheel_of(home);
        weft__wheel_enter(w);
        if (likely(weft__load(&t->home, relaxed) == home)) return w; /* T2: ours now */
        weft__wheel_leave(w);
    }
}

/* Out of the wheel or ring it hangs in. True: it would have fired. Under the lock. */
static bool take_out(weft__wheel *w, timer *t) {
    uint32_t place = t->place;
    if (place == OUT || place == BARRED) return false;
    t->place = OUT;
    if (place == WHEEL) weft__wheel_remove(w, &t->node);
    if (place == DUE) weft__due_remove(&t->node);
    return true;
}

/* Its first start of all: nobody else may know it yet, so nobody else changes `home`. */
WEFT_INLINE weft__wheel *lock_first(timer *t, uint64_t want) {
    weft__wheel *w = wheel_of(want);
    weft__wheel_enter(w);
    weft__store(&t->home, want, release); /* T2; pairs with lock_timer */
    return w;
}

/* Takes the lock of the wheel it is to hang in: the one that is wanted, except while its function runs, which stays where it is. */
static weft__wheel *lock_for_start(timer *t, uint64_t want) {
    for (;;) {
        uint64_t home = weft__load(&t->home, acquire); /* T2, as in lock_timer */
        if (likely(!home)) return lock_first(t, want);
        if (!at_home(home)) {                                /* of an earlier runtime: others may know it */
            (void)weft__cas(&t->home, &home, want, acq_rel); /* T2; pairs with lock_timer */
            continue;
        }
        weft__wheel *w = wheel_of(home);
        weft__wheel_enter(w);
        if (likely(weft__load(&t->home, relaxed) == home)) {                    /* T2: ours now */
            if (likely(home == want || weft__load(&t->run, relaxed))) return w; /* T3: under the lock */
            take_out(w, t);
            weft__store(&t->home, want, release); /* T2; pairs with lock_timer */
        }
        weft__wheel_leave(w);
    }
}

/* ---- plain threads ---- */

/* A plain thread that wants to touch a wheel. True: it may, until weft__foreign_leave. False: there is none, and no timer is armed (a
 * runtime that is being closed has taken them all out by then). */
static bool enter_from_outside(void) {
    (void)weft__runtime_phase(); /* in the child of a fork, forgets who was inside */
    for (;;) {
        weft__foreign_enter(); /* before the look at the phase; pairs with weft_stop */
        int phase = weft__runtime_phase();
        if (phase == WEFT_PHASE_RUNNING || phase == WEFT_PHASE_STOPPING) return true;
        weft__foreign_leave();
        if (phase != WEFT_PHASE_CLOSING) return false;
        weft__futex_wait(&weft__rt.phase, WEFT_PHASE_CLOSING, 0);
    }
}

WEFT_INLINE bool in_task(void) {
    return weft__cur(weft__self()) != NULL;
}

/* ---- becoming due ---- */

/* Under the wheel's lock, on a worker's own stack. */
static void fired(weft__timer *node, void *slot) {
    timer *t = weft__container(node, timer, node);
    t->place = OUT;
    if (weft__load(&weft__root.cause, acquire)) return; /* T5; pairs with weft__root_cancel */
    if (weft__load(&t->run, relaxed)) {                 /* T3: under the lock */
        t->place = LATE;
        return;
    }
    t->place = DUE;
    weft__due_add(node->wheel, node);
    ((weft__slot *)slot)->due++;
}

/* The next moment of the grid that lies after now: moments that were missed are skipped. */
static int64_t next_tick(int64_t when, int64_t interval, int64_t now) {
    int64_t missed = now > when ? (now - when) / interval : 0;
    if (missed >= (INT64_MAX - when) / interval) return INT64_MAX;
    return when + (missed + 1) * interval;
}

/* ---- the runner ---- */

/* The next timer to call, and what to call: it may be started anew, with something else, while that goes on. */
typedef struct weft__call {
    timer *t;
    weft_timer_fn *fn;
    void *arg;
} call;

/* Whether the caller is the timer's own function. */
static WEFT_COLD bool is_inside(const timer *t) {
    weft__task *me = weft__cur(weft__self());
    return me && me->timer_call && me->timer_call->t == t;
}

static call take_due(weft__wheel *w) {
    weft__wheel_enter(w);
    weft__timer *node = weft__due_first(w);
    timer *t = node ? weft__container(node, timer, node) : NULL;
    call c = {.t = t};
    if (t) {
        c.fn = t->fn;
        c.arg = node->near;
        weft__due_remove(node);
        t->place = OUT;
        weft__store(&t->run, RUNNING, relaxed); /* T3: under the lock */
    }
    weft__wheel_leave(w);
    return c;
}

static void wake_waiters(timer *t);

/* The function has returned. The timer may be gone afterwards. True: it is the earliest of the wheel now. */
static bool settle(weft__wheel *w, timer *t) {
    bool earliest = false;
    weft__wheel_enter(w);                                   /* T2: while it runs its home stays */
    bool stopping = weft__load(&weft__root.cause, acquire); /* T5 */
    if (t->place == LATE) {
        t->place = DUE;
        weft__due_add(w, &t->node);
    } else if (t->place == OUT && t->interval && !stopping) {
        t->node.when = next_tick(t->node.when, t->interval, weft__clock_now());
        t->place = WHEEL;
        earliest = weft__wheel_add(w, &t->node);
    } else if (t->place == BARRED) {
        t->place = OUT; /* T6 */
    }
    uint32_t run = weft__xchg(&t->run, 0, acq_rel); /* T3; pairs with the looks in weft_timer_stop_wait */
    weft__wheel_leave(w);
    if (run & WAITED) wake_waiters(t);
    return earliest;
}

/* Whoever sleeps until the earliest timer must be told, unless it is our own worker, who looks before he sleeps. */
static bool somebody_elses(weft__wheel *w) {
    weft__slot *s = weft__gate_slot(weft__load(&weft__self()->gate, relaxed)); /* a hint */
    return w != &weft__rt.outside && (!s || w != &s->wheel);
}

/* What a runner does; in the frame of run_due, which a panic leaves standing. */
typedef struct {
    weft__wheel *wheel;
    call now;
} runner;

/* The function has returned, or has panicked, which is the same to its timer: others are due as well, and somebody may wait for its end. */
static void over(runner *r, weft__task *me) {
    me->timer_call = NULL;
    if (weft__task_fp_glance(me)) weft__ctx_fp_reset_seen(&me->fp); /* the next function is another's */
    if (settle(r->wheel, r->now.t) && somebody_elses(r->wheel)) weft__idle_kick();
}

static int call_all(void *arg) {
    runner *r = arg;
    weft__task *me = weft__cur(weft__self());
    for (int n = 1; (r->now = take_due(r->wheel)).t; n++) {
        me->timer_call = &r->now;
        r->now.fn(r->now.arg);
        over(r, me);
        if (n % RUNNER_BATCH == 0) weft_yield();
    }
    return 0;
}

/* The runner: calls the functions of all that are due in the wheel. It has `timer_call` set while it does, and whatever would park
 * looks at it (weft__block_link, weft_scope_end). */
static int run_due(void *wheel) {
    weft__task *me = weft__cur(weft__self());
    runner r = {.wheel = wheel};
    me->b.linked = WEFT_LINK_NONE; /* so that a first wait goes through weft__block_link */
    while (weft__contain(call_all, &r) < 0) over(&r, me);
    me->b.linked = WEFT_LINK_NEEDLESS;
    return 0;
}

void weft__timers_due(weft__slot *s, weft__wheel *w) {
    s->due = 0;
    if (likely(weft__spawn_runner(s, run_due, w))) return;
    weft__wheel_enter(w); /* no memory: they go back, and are due again at once */
    for (weft__timer *node; (node = weft__due_first(w));) {
        weft__due_remove(node);
        weft__container(node, timer, node)->place = WHEEL;
        weft__wheel_add(w, node);
    }
    weft__wheel_leave(w);
    weft__nap(WEFT_MS);
}

void weft__timer_must_not_wait(const weft__task *t, const char *what) {
    weft__die("a timer's function (%p) must not wait, and it does in %s: start a task from it",
              (void *)(uintptr_t)t->timer_call->fn, what);
}

/* ---- the end of the runtime ---- */

static void dropped(weft__timer *node) {
    weft__container(node, timer, node)->place = OUT;
}

void weft__timers_drop(weft__wheel *w) {
    weft__wheel_enter(w);
    weft__wheel_drop(w, fired, dropped); /* T5 */
    weft__wheel_leave(w);
}

/* ---- starting ---- */

/* Takes out a timer that is to be started. Returns false if it is not to be: T6. Caller holds the wheel's lock. */
static WEFT_NOINLINE bool withdraw(weft__wheel *w, timer *t) {
    if (t->place == BARRED) return !is_inside(t);
    take_out(w, t);
    return true;
}

/* Arms a timer that is out. Returns whether it became the earliest of its wheel. Caller holds the wheel's lock. */
WEFT_INLINE bool arm(weft__wheel *w, timer *t, weft_deadline deadline, int64_t interval, weft_timer_fn *fn, void *arg) {
    t->node.when = deadline.ns == 0 ? INT64_MAX : deadline.ns < 1 ? 1 : deadline.ns;
    t->node.fire = fired;
    t->node.near = arg;
    t->fn = fn;
    t->interval = interval;
    t->place = WHEEL;
    return weft__wheel_add(w, &t->node);
}

int weft_timer_start(weft_timer *storage, weft_deadline deadline, int64_t interval, weft_timer_fn *fn, void *arg) {
    if (!fn || interval < 0) return WEFT_EINVAL;
    timer *t = timer_of(storage);
    weft__slot *s = weft__enter();
    if (!s && !enter_from_outside()) return WEFT_ETERMINATED;
    int err = 0;
    bool earliest = false;
    if (unlikely(weft__load(&weft__rt.phase, relaxed) != WEFT_PHASE_RUNNING)) { /* a hint for tasks: T5 sees to the rest */
        err = WEFT_ETERMINATED;
    } else {
        weft__wheel *w = lock_for_start(t, home_of(s));
        if (t->place != OUT && unlikely(!withdraw(w, t)))
            err = WEFT_ECANCELED;
        else
            earliest =
                arm(w, t, deadline, interval, fn, arg) && (!s || w != &s->wheel); /* our own worker looks before it sleeps */
        weft__wheel_leave(w);
    }
    if (s)
        weft__leave();
    else
        weft__foreign_leave();
    if (unlikely(earliest)) weft__idle_kick();
    return err;
}

/* ---- stopping ---- */

/* `bar`: the function that runs now, if it does, is not to start the timer again. */
static int stop(timer *t, bool bar) {
    weft__wheel *w = lock_timer(t);
    if (!w) return 0;
    int armed = take_out(w, t);
    t->interval = 0;                                                      /* if its function runs, settle leaves it at that */
    if (unlikely(bar) && weft__load(&t->run, relaxed)) t->place = BARRED; /* T6; `run` by T3, under the lock */
    weft__wheel_leave(w);
    return armed;
}

WEFT_INLINE int stop_anywhere(timer *t, bool bar) {
    if (likely(in_task())) return stop(t, bar); /* no slot is touched: no entry needed */
    if (!enter_from_outside()) return 0;
    int armed = stop(t, bar);
    weft__foreign_leave();
    return armed;
}

static bool is_armed(timer *t) {
    weft__wheel *w = lock_timer(t);
    if (!w) return false;
    bool armed = t->place != OUT && t->place != BARRED;
    weft__wheel_leave(w);
    return armed;
}

bool weft_timer_armed(weft_timer *storage) {
    if (in_task()) return is_armed(timer_of(storage)); /* as in stop_anywhere */
    if (!enter_from_outside()) return false;
    bool armed = is_armed(timer_of(storage));
    weft__foreign_leave();
    return armed;
}

int weft_timer_stop(weft_timer *storage) {
    return stop_anywhere(timer_of(storage), false);
}

/* ---- waiting for the function's end ---- */

static struct {
    weft__lock lock;
    weft__queue queue; /* waiter.elem: the timer */
} waiters;

void weft__timers_forget(void) {
    waiters.queue = (weft__queue){NULL, NULL};
    weft__lock_leave(&waiters.lock);
}

static void wake_waiters(timer *t) {
    weft__queue woken = {NULL, NULL};
    weft__lock_take(&waiters.lock);
    for (weft__waiter *x = waiters.queue.head, *next; x; x = next) {
        next = x->next;
        if (x->elem != t) continue; /* the timer may be gone: an address only */
        weft__queue_remove(x);
        weft__queue_add(&woken, x);
    }
    weft__lock_leave(&waiters.lock);
    weft__slot *s = weft__enter();
    for (weft__waiter *x; (x = woken.head);) {
        weft__queue_remove(x); /* its frame is gone once it runs */
        weft__resume(x->block, s);
    }
    weft__leave();
}

static void post_unlock(weft__slot *s, void *lock) {
    (void)s;
    weft__lock_leave(lock);
}

/* Parks until the runner looks for waiters of this timer; the waiters' lock is held. T4: neither cancelled nor timed. */
static void wait_locked(timer *t, weft__block *b, weft__slot *s) {
    weft__waiter x = {.block = b, .elem = t};
    weft__queue_add(&waiters.queue, &x);
    weft__store(&b->reason, WEFT_WAIT_JOIN, relaxed); /* for people */
    if (s) {
        weft__park(weft__self(), s, post_unlock, &waiters.lock);
    } else {
        weft__thread *thread = weft__container(b, weft__thread, b);
        weft__thread_ready(thread);
        weft__lock_leave(&waiters.lock);
        weft__thread_sleep(thread, 0);
    }
    weft__store(&b->reason, WEFT_WAIT_NONE, relaxed);
}

/* One wait for the end of the call that is going on. */
static void wait_once(timer *t) {
    weft__slot *s = weft__enter(); /* before the lock: it may take long */
    weft__block *b = weft__me();
    weft__lock_take(&waiters.lock);
    uint32_t run = weft__load(&t->run, relaxed);                /* the CAS verifies it */
    if (run && weft__cas(&t->run, &run, run | WAITED, acq_rel)) /* T4; pairs with settle */
        wait_locked(t, b, s);
    else
        weft__lock_leave(&waiters.lock);
    if (s) weft__leave();
}

static void wait_for_end(timer *t) {
    weft__task *me = weft__cur(weft__self());
    while (weft__load(&t->run, acquire)) { /* T3; pairs with settle */
        if (me && me->timer_call) weft__timer_must_not_wait(me, "weft_timer_stop_wait");
        wait_once(t);
    }
}

int weft_timer_stop_wait(weft_timer *storage) {
    timer *t = timer_of(storage);
    if (is_inside(t)) return stop(t, false);
    int armed = stop_anywhere(t, true);
    wait_for_end(t);
    return armed;
}

int64_t weft__timer_moment(const weft_timer *storage) {
    return ((const timer *)(const void *)storage)->node.when;
}
