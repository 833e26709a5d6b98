/* SPDX-License-Identifier: MIT */
/* Entering and leaving the runtime, and taking a slot away from a worker that is outside of it.
 *
 * A task may be in a C call for any time. Whoever needs its slot takes it, without its help and without a fence on the fast path:
 *
 *   gate of a worker:  slot    open
 *                      slot|1  requested
 *                      1       no slot
 *   (without membarrier(2) bit 1 is set too, which sends every entry to weft__enter_slow for the fence)
 *
 *   enter    in_rt = 1 (relaxed); light barrier; g = gate (relaxed); g & 1 -> weft__enter_slow; otherwise the slot is g
 *   leave    in_rt = 0 (release), on the worker read anew: the task may have moved
 *   slow     1       lost: the old slot if idle, else any idle one, else leave the stack, then publish the task
 *            slot|1  CAS(gate, slot|1, slot): won = still ours; failed = look again
 *   take     under the requester lock: CAS(gate, slot, slot|1); heavy barrier; in_rt (acquire) != 0 -> postponed, stays
 *            requested; else CAS(gate, slot|1, 1): won = the slot is the taker's
 *
 * Invariants
 *  H1  A thread touches slot state only with in_rt = 1 and after reading an open gate, or winning the reopening CAS, since then.
 *  H2  Dekker: the heavy barrier puts a full barrier at some point in each thread. Gate read before it: in_rt = 1 was stored before
 *      it, the taker sees it (or the later release of 0). Gate read after it: it reads as closed.
 *  H3  One CAS on the gate decides commit against reopening. Neither side uses a plain store there.
 *  H4  Only the holder of the requester lock goes slot -> slot|1 and slot|1 -> 1.
 *  H5  From 1 only the worker itself writes its gate. A worker that lost its slot holds no pointer into it, only the hint `last`.
 *  H6  Slot data passes: old owner, leave (release), taker (acquire), idle lock, new owner. `owner` is a hint, stored with release.
 *  H7  Requested is not taken: inside, after a legal entry, the slot is gate & ~1 until in_rt = 0.
 *  H8  A task without slot is published only after its stack was left, by the worker's own stack.
 *  H9  No slot, worker or thread-local address survives a leave, a switch or a slow entry.
 *  H10 With in_rt = 1 and a slot that has work nobody blocks in the kernel, calls user code or takes long locks.
 *  H11 A worker with `yields_cpu`, which computes and runs in long slices of the kernel's, is outside the runtime, or its gate is requested or has
 *      no slot, and it has yet to pass one of the three places where that changes (reopening, giving the slot up, finding it lost), each of which
 *      ends it. Set before the gate is written, under the requester lock; so whoever takes that change back sees it.
 *
 * test/model/takeover.pml proves H1 to H8 with store buffers, and that each part is needed; test/stress/takeover.c takes slots away
 * at random, and must fail with the protocol mutated (WEFT_MUTANT).
 *
 * Rejected: rseq (cannot cover a switch, absent in
 * emulators), a signal to the thread (EINTR in user code), mprotect (x86 only). */
#ifndef WEFT_SRC_HANDOFF_H
#define WEFT_SRC_HANDOFF_H

#include "sched/sched.h"

enum { WEFT_GATE_REQUESTED = 1, WEFT_GATE_FENCED = 2, WEFT_GATE_NONE = WEFT_GATE_REQUESTED };
WEFT_INLINE weft__slot *weft__gate_slot(uintptr_t gate) {
    return (weft__slot *)(gate & ~(uintptr_t)(WEFT_GATE_REQUESTED | WEFT_GATE_FENCED));
}
WEFT_INLINE uintptr_t weft__gate_open(weft__slot *s) {
    return (uintptr_t)s | (weft__fences ? WEFT_GATE_FENCED : 0);
}

/* How long the kernel lets a worker run before others that computes, with or without a slot: the others come first then. (With 0.1 ms for workers they
 * were interrupted by other programs all the time.) */
#define WEFT_SLICE_COMPUTES (100 * WEFT_MS - 1) /* nobody else has just that */

/* Returns the slot, or NULL on a plain thread. */
WEFT_COLD weft__slot *weft__enter_slow(void);

/* H1, by plain accesses: an atomic one would hide the very reordering that breaks it. Checked builds only. */
WEFT_INLINE void weft__slot_inside(weft__slot *s, weft__worker *w) {
#ifdef WEFT_DEBUG_CHECKS
    weft__check(!s->inside || s->inside == w, "H1: a slot has one owner");
    s->inside = w;
#else
    (void)s, (void)w;
#endif
}
WEFT_INLINE void weft__slot_outside(weft__slot *s, weft__worker *w) {
#ifdef WEFT_DEBUG_CHECKS
    weft__check(s && s->inside == w, "H1: a slot has one owner, until it leaves");
    s->inside = NULL;
#else
    (void)s, (void)w;
#endif
}

/* The task that runs on the worker is inside the runtime, and is there no more (context/sanitize.h). */
#ifdef WEFT_TSAN
void weft__san_enter(weft__worker *w);
void weft__san_exit(weft__worker *w);
#else
WEFT_INLINE void weft__san_enter(weft__worker *w) {
    (void)w;
}
WEFT_INLINE void weft__san_exit(weft__worker *w) {
    (void)w;
}
#endif

/* Into the runtime: *w and *s are the worker and the slot this task runs on. False: not as easily as that (a plain thread, or somebody
 * wants the slot); then weft__enter must follow, before anything else. For fast paths that make no calls. */
WEFT_INLINE bool weft__enter_with(weft__worker *w, weft__slot **s) {
    weft__san_enter(w);
    weft__store(&w->in_rt, 1, relaxed); /* H2; pairs with the acquire in weft__slot_take */
    weft__compiler_barrier();
    uintptr_t gate = weft__load(&w->gate, relaxed); /* H2 */
    if (unlikely(gate & (WEFT_GATE_REQUESTED | WEFT_GATE_FENCED))) return false;
    *s = (weft__slot *)gate;
    weft__slot_inside(*s, w);
    return true;
}
WEFT_INLINE bool weft__enter_fast(weft__worker **w, weft__slot **s) {
    return weft__enter_with(*w = weft__self(), s);
}

/* Into the runtime: the slot this task runs on, NULL on a plain thread (which then must not call weft__leave). */
WEFT_INLINE weft__slot *weft__enter(void) {
    weft__worker *w;
    weft__slot *s;
    return likely(weft__enter_fast(&w, &s)) ? s : weft__enter_slow();
}

/* The same where the worker is wanted too. */
WEFT_INLINE weft__slot *weft__enter_as(weft__worker **w) {
    weft__slot *s;
    if (likely(weft__enter_fast(w, &s))) return s;
    s = weft__enter_slow();
    *w = weft__self(); /* H9 */
    return s;
}

/* Back to the task; `w` was read since the last switch (H9). */
WEFT_INLINE void weft__leave_on(weft__worker *w) {
#ifdef WEFT_DEBUG_CHECKS
    weft__slot_outside(weft__gate_slot(weft__load(&w->gate, relaxed)), w);
#endif
    weft__san_exit(w);
    weft__store(&w->in_rt, 0, release); /* H6; pairs with the acquire in weft__slot_take */
}
WEFT_INLINE void weft__leave(void) {
    weft__leave_on(weft__self());
}

/* Inside the runtime, after a switch: the slot of the worker we are on now (H7). */
WEFT_INLINE weft__slot *weft__here(weft__worker *w) {
    return weft__gate_slot(weft__load(&w->gate, relaxed));
}

_Static_assert((int)WEFT_LEAN_SLOTS > (int)WEFT_SLOTS_MAX, "each slot has a name, and 0 is none");
/* Takes the lock from inside the runtime on the slot s (NULL: from outside), the way it leans if it does. */
WEFT_INLINE void weft__lock_take_on(weft__lock *l, weft__slot *s) {
    if (!s || !weft__lean_take(l, s->lean)) weft__lock_take(l);
}

/* Takes the slot from a worker that is outside the runtime and gives it to another. False: it was not to be had now; the worker
 * will meet the request at its next entry. From any thread that is not inside the runtime. */
bool weft__slot_take(weft__slot *s);
/* The same for several, with one barrier; the workers of those that the watch found computing become strays. How many it took; n is at most
 * WEFT_TAKE_MAX. */
int weft__slots_take(weft__slot **s, int n);
/* The first half of that: those that it took, which are put in front, are the caller's. */
int weft__slots_seize(weft__slot **s, int n);
enum { WEFT_TAKE_MAX = 64 };
/* Sends the worker's next entry the slow way, where it lets others run first. From any thread. */
void weft__worker_request(weft__worker *w);
/* The slot's owner computes: the kernel is to run others before it, until its next entry, which is sent the slow way as well. From any thread that
 * is not inside the runtime. */
void weft__worker_yield_cpu(weft__slot *s, weft__worker *w);
/* No more: it has come back, or does not compute. */
void weft__worker_hurry(weft__worker *w);
/* In the child of a fork: nobody requests anything. */
void weft__slot_take_forget(void);
/* The worker's thread goes to the slot's CPU. */
WEFT_COLD void weft__slot_place(weft__slot *s, weft__worker *w);
/* The worker becomes the slot's owner; it had none (H5). */
WEFT_INLINE void weft__slot_own(weft__slot *s, weft__worker *w) {
    weft__store(&s->owner, w, release);                 /* H6: a hint */
    weft__store(&w->gate, weft__gate_open(s), release); /* pairs with the CAS in weft__slot_take */
    w->last = s;
    s->lane_since = 0; /* another thread's time */
    if (unlikely(weft__rt.places)) weft__slot_place(s, w);
    weft__slot_inside(s, w);
}
/* The worker, inside, gives its slot up: it is free for others from the caller's next release on. */
void weft__slot_disown(weft__worker *w);

#endif
