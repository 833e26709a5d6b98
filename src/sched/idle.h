/* SPDX-License-Identifier: MIT */
/* Idle: going to sleep without losing a wake-up, and waking one, not all. idle.c has the essay. */
#ifndef WEFT_SRC_IDLE_H
#define WEFT_SRC_IDLE_H

#include "sched/sched.h"

/* Wakes a worker for an idle slot, if there is one and nobody searches already. `s`: the caller's; then it is the slot that became idle last.
 * NULL, from outside: `home`, if that is idle, by the worker that had it last; else, or NULL, one of them by turns. */
WEFT_COLD void weft__wake_one(weft__slot *s, weft__slot *home);

/* After making work that another slot could do: is there somebody to be woken for it? */
WEFT_INLINE bool weft__wake_wanted(void) {
    if (!weft__rt.many) return false;
    weft__light_barrier(); /* the work before the look at `idle`; pairs with the heavy barrier in weft__idle */
    return unlikely(weft__load(&weft__rt.idle, relaxed) > 0) && weft__load(&weft__rt.searching, relaxed) == 0;
}
/* The same behind weft__enter_fast, without looking whether barriers are fences (then it would have failed, handoff.h) or there is one slot only
 * (that is ours, and not idle). */
WEFT_INLINE bool weft__wake_wanted_fast(void) {
    weft__compiler_barrier(); /* as the light barrier above */
    return unlikely(weft__load(&weft__rt.idle, relaxed) > 0) && weft__load(&weft__rt.searching, relaxed) == 0;
}
WEFT_INLINE void weft__work_made(weft__slot *s) {
    if (weft__wake_wanted()) weft__wake_one(s, NULL);
}
/* Around what a plain thread does with the runtime's memory: weft_stop waits for its end. */
WEFT_INLINE void weft__foreign_enter(void) {
    weft__san_unchecked_begin();
    weft__add(&weft__rt.foreign_inside, 1,
              seq_cst); /* before the look at the phase, or at what keeps it; pairs with weft_stop */
}
WEFT_INLINE void weft__foreign_leave(void) {
    weft__sub(&weft__rt.foreign_inside, 1, release); /* pairs with the acquire in weft_stop */
    weft__san_unchecked_end();
}

/* After making work from outside any slot: somebody must look at the global queues soon, with the slot `home` if that is idle. */
void weft__work_injected(weft__slot *home);

WEFT_INLINE void weft__stop_searching(weft__worker *w) {
    if (!w->searching) return;
    w->searching = false;
    weft__sub(&weft__rt.searching, 1, seq_cst); /* I4; before the second look */
}

/* Before the second look at all queues; pairs with the light barrier in weft__work_made. `alone`: nobody else has a slot, and nobody makes work behind such a
 * barrier; whoever gets a slot from now on has the idle lock after us. A fence will do then, and pairs with that in weft__work_injected. (A heavy barrier
 * interrupts the waker's CPU, on the way from his event to our task.) */
WEFT_INLINE void weft__look_barrier(bool alone) {
    if (alone)
        atomic_thread_fence(memory_order_seq_cst);
    else
        weft__heavy_barrier();
}

/* The worker has found nothing: gives up the slot it may have and sleeps. Returns when it has a slot again; NULL: the runtime
 * stops. */
weft__slot *weft__idle(weft__worker *w);
/* There is work that somebody other than `s` (NULL: anybody) could take: in a global queue, in a ring, or at least `fresh` tasks in
 * a deque. A hint. */
bool weft__idle_work_waits(weft__slot *s, int fresh);
/* Something a computing owner keeps from others: see the essay in idle.c. */
bool weft__idle_neglected(void);
/* When others than the slot's owner are to look after its timers: at the moment of the first, or some time later if the owner is at
 * work and likely to do it. INT64_MAX: it has none. */
int64_t weft__idle_timer(weft__slot *v);
/* The first of all slots, and of those from outside. */
int64_t weft__idle_earliest(void);
/* Begins to count the owners' rounds anew, now and then. Under the idle lock. */
void weft__idle_watch_owners(int64_t now);
/* A slot that nobody holds, `prefer` if possible; NULL: none. For a worker that lost its own. */
weft__slot *weft__idle_slot_take(weft__slot *prefer);
/* Takes an idle slot for a short time, to look at what is its owner's; false: it is not idle. Its return is followed by a look for work
 * (T2 in trim.c), which the caller acts on. By a worker without a slot. */
bool weft__idle_borrow(weft__slot *s);
void weft__idle_return(weft__slot *s);
/* A slot that was taken away: to a worker that wants it, to the calling one, if it is idle, to another, to a new one, or to the idle list. `owed`:
 * tasks and timers wait that the last owner did not look after; they wait for no worker that wants the slot later than they. */
void weft__idle_slot_give(weft__slot *s, bool owed);
/* If nobody sleeps, a worker is started to watch: the only one has gone for good, or none could be started for a while. `now`: it is tried even
 * if the last attempt failed a moment ago. */
void weft__idle_mend(bool now);
/* The sentry looks at the clocks again: a timer was armed from outside, or the fake clock moved. */
void weft__idle_kick(void);
/* Every slot is idle: a runtime begins. And there is none: it has ended. */
void weft__idle_open(void);
void weft__idle_close(void);
/* In the child of a fork, where somebody may have held the lock: there is none. */
void weft__idle_forget(void);
/* After that a worker that is of no use ends. A variable for tests. */
extern int64_t weft__idle_retire;
/* Nothing runs and nothing is ready: for tests. */
bool weft__idle_all(void);

/* ---- the watch (watch.c): what the sentry does besides, each time it wakes of its own accord ---- */

/* What it found a slot's owner doing at the last look; slot.watch_finds. */
enum { WEFT_FOUND_MOVING, WEFT_FOUND_COMPUTING, WEFT_FOUND_BLOCKED };
/* Looks at all slots; takes those that are needed from tasks that block or compute. True: it took one, or it is calm no more, and it is to look again soon. */
bool weft__watch(void);
/* How long fresh tasks wait for those that compute: a slice, and the longer the more of these have no slot. */
int64_t weft__crowd_wait(void);
enum { WEFT_CROWD = 4 }; /* from so many slices on they are not even begun meanwhile: there are two strays to a slot */
/* A runtime begins. */
void weft__watch_open(void);
enum {
    WEFT_NAP_FIRST = 50 * 1000, /* ns */
    WEFT_NAP_LISTENS =
        400 * 1000, /* ns; until its naps are as long, the sentry leaves listening to whoever is about to be idle */
};
/* The nap until the next look, after one of that length (0: the first), and when the look is due at the latest, on the kernel's clock. */
int64_t weft__watch_nap(int64_t now, int64_t before);
int64_t weft__watch_until(void);
/* Work has come, and every slot is held: one of them by somebody who was found blocked. */
bool weft__watch_wanted(void);

/* ---- who computes (slices.c): what the watch tells the kernel ---- */

/* The slot has moved since the last look. */
void weft__slices_moved(weft__slot *s, int64_t now);
/* It has not. `blocks`: its task says that it is in a call that blocks. */
void weft__slices_look(weft__slot *s, weft__worker *w, int64_t now, bool blocks);
/* Those who have no slot. */
void weft__slices_strays(int64_t now);

/* ---- pinned tasks ---- */

/* The pinned task is ready: into its worker's inbox. `s`: the caller's slot or NULL. */
void weft__pinned_ready(weft__slot *s, weft__task *t);
/* The first in the worker's own inbox; NULL: none. */
weft__task *weft__pinned_take(weft__worker *w);
/* On its own stack: hands the slot to a worker that wants one. Returns the slot if nobody does, else NULL. */
weft__slot *weft__slot_yield(weft__worker *w, weft__slot *s);

/* ---- worker threads (worker.c) ---- */

/* Starts another worker thread with the slot, or, NULL, to wait for one. 0; WEFT_ELIMIT: as many as allowed; -errno. */
int weft__worker_start(weft__slot *s, bool searching);
/* Starts one that serves one task alone. */
int weft__worker_start_own(weft__worker **out, weft__task *t);
/* The calling thread, which is no worker, becomes one: first the worker, then its service until it is told to leave (true), or the
 * runtime stops. */
int weft__worker_attach(weft__worker **out);
bool weft__worker_serve(weft__worker *w);
/* From any thread, while it serves. */
void weft__worker_leave(weft__worker *w);
/* Wakes the worker, whatever it sleeps for. */
void weft__worker_kick(weft__worker *w);
/* All workers leave their loops, and their threads end. No task is left. */
void weft__workers_stop(void);
int weft__workers_count(void);
/* Strays of whom the kernel was told (H11), up to `most`: how many. They may have come back meanwhile; their memory stays until the runtime ends. */
int weft__workers_stray(weft__worker **out, int most);
/* Whose thread the task is on, with or without a slot; NULL: nobody's. A hint. */
weft__worker *weft__worker_running(weft__task *t);
/* In the child of a fork: there are none. */
void weft__workers_forget(void);

#endif
