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
    weft__work_injected();
}

/* The worker has no slot: takes an idle one, or leaves the task to somebody who has. Returns the slot we are on then. */
static weft__slot *lost(weft__worker *w) {
    weft__slot *s = weft__idle_slot_take(w->last);
    if (s) {
        weft__slot_own(s, w);
        return s;
    }
    weft__task *me = weft__cur(w);
    w->post = post_publish;
    w->post_arg = me;
    weft__switch(w, NULL, me, 0);
    return weft__here(weft__self()); /* H9 */
}

weft__slot *weft__enter_slow(void) {
    weft__worker *w = weft__self();
    if (w == &weft__nobody) {
        if (unlikely(weft__load(&weft__forked, relaxed))) weft__after_fork(); /* set when there was one thread */
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
            weft__rounds_cut(s); /* somebody waits: the others first */
            return weft__yield_now(s);
        }
    }
}

/* The system call is made with in_rt = 1 (against H10), but by a worker that has just been given its slot, and only with a new CPU. */
void weft__slot_place(weft__slot *s, weft__worker *w) {
    if (w->cpu == s->place.cpu + 1) return;
    w->cpu =
        weft__thread_bind(s->place.cpu) == 0 ? s->place.cpu + 1 : 0; /* the CPU may have gone: then wherever the kernel likes */
}

void weft__slot_disown(weft__worker *w) {
    /* A taker that has just requested it fails its commit: the gate has changed (H3). */
    weft__slot_outside(weft__here(w), w);
    weft__slot *s = weft__gate_slot(weft__xchg(&w->gate, WEFT_GATE_NONE, acq_rel));
    weft__store(&s->owner, NULL, release); /* H6: a hint */
}

/* The request and the commit; under the requester lock. */
static bool take(weft__slot *s) {
    weft__worker *w = weft__load(&s->owner, acquire); /* H6: a hint */
    if (!w) return false;
    uintptr_t open = weft__gate_open(s), requested = open | WEFT_GATE_REQUESTED, seen = open;
    if (!weft__cas(&w->gate, &seen, requested, acq_rel) && seen != requested) return false; /* pairs with weft__enter */
#ifndef WEFT_MUTANT_NO_BARRIER
    weft__heavy_barrier(); /* H2; pairs with the light barrier in weft__enter */
#endif
#ifndef WEFT_MUTANT_NO_IN_RT
    if (weft__load(&w->in_rt, acquire)) return false; /* H6; pairs with the release in weft__leave. Stays requested */
#endif
    seen = requested;
#ifdef WEFT_MUTANT_PLAIN_COMMIT
    weft__store(&w->gate, WEFT_GATE_NONE, release);
#else
    if (!weft__cas(&w->gate, &seen, WEFT_GATE_NONE, acq_rel)) return false; /* H3: against the reopening in weft__enter_slow */
#endif
#ifdef WEFT_DEBUG_CHECKS
    for (int i = 0; i < 32; i++) weft__cpu_relax(); /* time for a wrong owner to show up */
    weft__check(!s->inside, "H1: a slot that was taken has no owner");
#endif
    weft__add(&weft__rt.takeovers, 1, relaxed); /* a counter */
    return true;
}

void weft__worker_request(weft__worker *w) {
    weft__lock_take(&requester);
    uintptr_t gate = weft__load(&w->gate, relaxed); /* the CAS decides */
    if (!(gate & WEFT_GATE_REQUESTED))
        (void)weft__cas(&w->gate, &gate, gate | WEFT_GATE_REQUESTED, acq_rel); /* pairs with weft__enter */
    weft__lock_leave(&requester);
}

bool weft__slot_take(weft__slot *s) {
    weft__lock_take(&requester);
    bool taken = take(s);
    weft__lock_leave(&requester);
    if (taken) weft__idle_slot_give(s);
    return taken;
}

void weft__slot_take_forget(void) {
    weft__lock_leave(&requester);
}
