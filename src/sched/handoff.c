/* SPDX-License-Identifier: MIT */
#include "sched/handoff.h"

#include "sched/lane.h"
#include "sched/switch.h"

static weft__lock requester; /* H4 */

/* Behind a task that lost its slot and left its stack (H8). */
static void post_publish(weft__slot *s, void *task) {
    weft__task *t = task;
    if (weft__load(&t->b.kind, relaxed) == WEFT_BLOCK_SPECIAL) {
        weft__special_ready(s, t);
        return;
    }
    weft__inject_task(t);
    weft__work_injected(NULL);
}

/* H11: the kernel lets the worker run in long slices, and others before it. Under the requester lock. */
static void yield_cpu(weft__worker *w) {
    if (weft__load(&w->yields_cpu, relaxed)) return; /* set here only */
    int tid = weft__load(&w->tid, relaxed);          /* its thread's; one that it had before gets it back, too */
    int64_t before = weft__thread_slice(tid, WEFT_SLICE_COMPUTES);
    if (before < 0) return;
    if (before == WEFT_SLICE_COMPUTES) /* somebody is about to give it back what it had when it was told of last */
        before = tid == (int)(w->yielded_cpu >> 32) ? (uint32_t)w->yielded_cpu : 0;
    w->yielded_cpu = (uint64_t)tid << 32 | (uint32_t)before;
    weft__store(&w->yields_cpu, w->yielded_cpu, release); /* pairs with the exchange below */
}

void weft__worker_hurry(weft__worker *w) {
    if (likely(!weft__load(&w->yields_cpu, relaxed))) return; /* the exchange decides */
    uint64_t who = weft__xchg(&w->yields_cpu, 0, acq_rel);
    if (who) weft__thread_slice_back((int)(who >> 32), WEFT_SLICE_COMPUTES, (uint32_t)who);
}

void weft__worker_yield_cpu(weft__slot *s, weft__worker *w) {
    weft__lock_take(&requester);
    uintptr_t gate = weft__load(&w->gate, relaxed); /* the CAS decides */
    if (weft__gate_slot(gate) == s) yield_cpu(w);
    bool told = weft__load(&w->yields_cpu, relaxed); /* the kernel may not listen */
    /* Written even where it is requested already: whoever changes the gate next has seen this, and so `yields_cpu` (H11). */
    while (told && weft__gate_slot(gate) == s && !weft__cas(&w->gate, &gate, gate | WEFT_GATE_REQUESTED, acq_rel)) {
    }
    if (weft__gate_slot(gate) != s) weft__worker_hurry(w); /* it has given its slot up meanwhile, and may be asleep */
    weft__lock_leave(&requester);
}

/* The worker is about to lose its slot computing. Before the commit, since behind it the worker may be back at once. */
static void stray(weft__worker *w) {
    weft__add(&weft__rt.strays, 1, relaxed); /* a hint for the watch */
    yield_cpu(w);
    weft__store(&w->stray, true, release); /* pairs with the exchange below */
}

/* It is back, or has not lost it: whoever finds out first. (It may have given its slot up itself meanwhile.) */
static void stray_no_more(weft__worker *w) {
    weft__worker_hurry(w);
    if (!weft__load(&w->stray, relaxed) || !weft__xchg(&w->stray, false, acq_rel)) return; /* the exchange decides */
    weft__sub(&weft__rt.strays, 1, relaxed);                                               /* hints for the watch, both */
    if (weft__crowd_wait() < WEFT_CROWD * weft__rt.slice) weft__store(&weft__rt.hold, 0, relaxed);
}

/* It is to be released (worker.c): what it runs goes on elsewhere, unless that is pinned to it. */
static bool is_leaving(weft__worker *w) {
    return unlikely(weft__load(&w->leaving, relaxed)) && !w->pinned; /* behind the request that sent us here, or found soon */
}

/* The worker has no slot: takes an idle one, or leaves the task to somebody who has. Returns the slot we are on then. */
static weft__slot *lost(weft__worker *w) {
    stray_no_more(w);
    weft__slot *s = is_leaving(w) ? NULL : weft__idle_slot_take(w->last);
    if (s) {
        weft__slot_own(s, w);
        if (w->own_thread) weft__rounds_cut(s); /* see weft__attend */
        return s;
    }
    weft__task *me = weft__cur(w);
    w->post = post_publish;
    w->post_arg = me;
    weft__switch(w, NULL, me, 0);
    return weft__here(weft__self()); /* H9 */
}

#ifdef WEFT_TSAN
WEFT_NO_TSAN void weft__san_enter(weft__worker *w) {
    weft__task *t = weft__cur(w);
    if (t) weft__san_quiet_begin(&t->quiet);
}

WEFT_NO_TSAN void weft__san_exit(weft__worker *w) {
    weft__task *t = weft__cur(w);
    if (t) weft__san_quiet_end(&t->quiet);
}
#endif

weft__slot *weft__enter_slow(void) {
    weft__worker *w = weft__self();
    if (w == &weft__nobody) {
        if (unlikely(weft__load(&weft__forked, acquire)))
            weft__after_fork(); /* pairs with the release there: another thread may have been first */
        return NULL;
    }
    if (w == &weft__orphan)
        weft__die(
            "a task forked, and its child process goes on using weft or returned from the task: there it may only call exec, "
            "_exit or exit. Fork from a plain thread to do more.");
    if (weft__fences) atomic_thread_fence(memory_order_seq_cst); /* H2: in_rt before the gate */
    uintptr_t gate = weft__load(&w->gate, acquire);              /* pairs with the taker's CAS */
    for (;;) {
        if (gate == WEFT_GATE_NONE) return lost(w);
        uintptr_t open = gate & ~(uintptr_t)WEFT_GATE_REQUESTED;
#ifdef WEFT_MUTANT_PLAIN_REOPEN
        gate = open;
#endif
        /* H3: against the commit in weft__slot_take */
        if (gate == open || weft__cas(&w->gate, &gate, open, acq_rel)) {
            weft__slot *s = weft__gate_slot(open);
            weft__slot_inside(s, w);
            if (gate == open) return s;
            weft__worker_hurry(w); /* H11 */
            weft__next_back(s);
            weft__rounds_cut(s);                                      /* somebody waits: the others first */
            if (is_leaving(w)) s->fair -= s->fair % WEFT_FRESH_EVERY; /* then a visit to its own stack is certain (find.c) */
            return weft__yield_now(s);
        }
    }
}

/* The system call is made with in_rt = 1 (against H10), but by a worker that has just been given its slot, and only with a new CPU. */
void weft__slot_place(weft__slot *s, weft__worker *w) {
    if (w->cpu == s->place.cpu + 1 || w->own_thread) return; /* a bound task's CPU is its own business */
    w->cpu = weft__thread_bind_for_now(s->place.cpu) == 0 ? s->place.cpu + 1
                                                          : 0; /* the CPU may have gone: then wherever the kernel likes */
}

void weft__slot_disown(weft__worker *w) {
    /* A taker that has just requested it fails its commit: the gate has changed (H3). */
    weft__slot_outside(weft__here(w), w);
    weft__slot *s = weft__gate_slot(weft__xchg(&w->gate, WEFT_GATE_NONE, acq_rel));
    weft__worker_hurry(w);                 /* H11: it may have met no request before */
    weft__store(&s->owner, NULL, release); /* H6: a hint */
}

/* The first half: false, it is not to be had. Under the requester lock, as the second. */
static bool request(weft__slot *s, weft__worker **w) {
    *w = weft__load(&s->owner, acquire); /* H6: a hint */
    if (!*w) return false;
    uintptr_t open = weft__gate_open(s), requested = open | WEFT_GATE_REQUESTED, seen = open;
    return weft__cas(&(*w)->gate, &seen, requested, acq_rel) || seen == requested; /* pairs with weft__enter */
}

/* One more task computes without a slot. If there are many, what is fresh waits for a while, in the global queue. The slot is ours. */
static void hold_back(weft__slot *s) {
    int64_t wait = weft__crowd_wait();
    if (wait < WEFT_CROWD * weft__rt.slice) return;
    weft__store(&weft__rt.hold, weft__os_now() + wait, relaxed); /* a hint */
    while (weft__load(&s->bottom, relaxed) != weft__load(&s->top, relaxed)) weft__deque_overflow(s);
}

/* The second half, behind the heavy barrier. */
static bool commit(weft__slot *s, weft__worker *w) {
#ifndef WEFT_MUTANT_NO_IN_RT
    if (weft__load(&w->in_rt, acquire)) return false; /* H6; pairs with the release in weft__leave. Stays requested */
#endif
    bool computing =
        weft__load(&s->watch_finds, relaxed) == WEFT_FOUND_COMPUTING; /* the watch's own, or a test's: then nobody's */
    if (computing) stray(w);
#ifdef WEFT_MUTANT_PLAIN_COMMIT
    weft__store(&w->gate, WEFT_GATE_NONE, release);
#else
    uintptr_t requested = weft__gate_open(s) | WEFT_GATE_REQUESTED;
    if (!weft__cas(&w->gate, &requested, WEFT_GATE_NONE, acq_rel)) { /* H3: against the reopening in weft__enter_slow */
        if (computing) stray_no_more(w);
        return false;
    }
#endif
#ifdef WEFT_DEBUG_CHECKS
    for (int i = 0; i < 32; i++) weft__cpu_relax(); /* time for a wrong owner to show up */
    weft__check(!s->inside, "H1: a slot that was taken has no owner");
#endif
    /* It is ours now. Those who have given way before come first, then the fresh ones, of whom the next may compute as well. */
    if (computing) hold_back(s);
    s->boost = 0;
    weft__store(&s->picks, weft__load(&s->picks, relaxed) | 1, relaxed);
    weft__rounds_cut(s);
    if (s->fair % WEFT_FRESH_EVERY == 0) s->fair++;
    weft__store(&s->watch_finds, WEFT_FOUND_MOVING, relaxed);
    weft__store(&s->watch_picks, weft__load(&s->picks, relaxed) - 1, relaxed); /* whoever gets it has the time from then on */
    weft__add(&weft__rt.takeovers, 1, relaxed);                                /* a counter */
    return true;
}

void weft__worker_request(weft__worker *w) {
    weft__lock_take(&requester);
    uintptr_t gate = weft__load(&w->gate, relaxed); /* the CAS decides */
    if (!(gate & WEFT_GATE_REQUESTED))
        (void)weft__cas(&w->gate, &gate, gate | WEFT_GATE_REQUESTED, acq_rel); /* pairs with weft__enter */
    weft__lock_leave(&requester);
}

int weft__slots_seize(weft__slot **s, int n) {
    weft__worker *w[WEFT_TAKE_MAX];
    int asked = 0, taken = 0;
    weft__lock_take(&requester);
    for (int i = 0; i < n; i++)
        if (request(s[i], &w[asked])) s[asked++] = s[i];
#ifndef WEFT_MUTANT_NO_BARRIER
    if (asked) weft__heavy_barrier(); /* H2; pairs with the light barrier in weft__enter */
#endif
    for (int i = 0; i < asked; i++)
        if (commit(s[i], w[i])) s[taken++] = s[i];
    weft__lock_leave(&requester);
    return taken;
}

int weft__slots_take(weft__slot **s, int n) {
    int taken = weft__slots_seize(s, n);
    for (int i = 0; i < taken; i++) weft__idle_slot_give(s[i], false);
    return taken;
}

bool weft__slot_take(weft__slot *s) {
    return weft__slots_take(&s, 1) == 1;
}

void weft__slot_take_forget(void) {
    weft__lock_leave(&requester);
}
