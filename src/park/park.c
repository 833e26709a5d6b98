/* SPDX-License-Identifier: MIT */
/* Ending a wait from outside, and resuming whoever waited. */
#include "park/park.h"

#include <sched.h>

#include "os/os.h"
#include "sched/lane.h"
#include "sched/switch.h"

_Atomic(weft__hook *) weft__park_hook;

const char *weft__wait_name(int reason) {
    static const char *const names[] = {"running", "send",   "receive",   "select",    "sleep",      "join", "scope end",
                                        "mutex",   "rwlock", "condition", "semaphore", "wait group", "once", "barrier"};
    return (size_t)reason < weft__countof(names) ? names[reason] : "?";
}

void weft__resume(weft__block *b, weft__slot *s) {
    uint8_t kind = weft__load(&b->kind, relaxed); /* the wait orders it */
    if (likely(kind == WEFT_BLOCK_TASK)) {
        weft__task *t = weft__container(b, weft__task, b);
        if (likely(s != NULL)) {
            weft__ready(s, t);
        } else {
            weft__foreign_enter(); /* the task may run, end, and let the runtime end, while we are still in here */
            weft__inject_task(t);
            weft__work_injected();
            weft__foreign_leave();
        }
        return;
    }
    if (kind == WEFT_BLOCK_SPECIAL) {
        if (!s) weft__foreign_enter(); /* as above */
        weft__special_ready(s, weft__container(b, weft__task, b));
        if (!s) weft__foreign_leave();
        return;
    }
    weft__thread *t = weft__container(b, weft__thread, b);
    weft__store(&t->woken, 1, release); /* publishes the result; pairs with the acquire in weft__thread_sleep */
    weft__futex_wake(&t->woken, 1);     /* an address only: the thread may be gone */
}

/* The lock decides (P2). */
static bool interrupt_single(weft__block *b, weft__lock *l, int err) {
    weft__lock_take(l); /* waits until the stack was left (P1) */
    /* queued before wait_lock: what it was set for is what wait_lock names (pairs with the release in weft__wait_single) */
    bool mine = weft__load(&b->queued, acquire) && weft__load(&b->wait_lock, relaxed) == l;
    if (mine) {
        weft__queue_remove(b->waiter);
        weft__store(&b->queued, 0, release);
        b->result = err;
    }
    weft__lock_leave(l);
    return mine;
}

/* The state decides. PARKING passes soon: the waiter holds locks or is about to take them, as if it held one that we want. */
static bool interrupt_many(weft__block *b, int err) {
    for (int tries = 1;; tries++) {
        uint32_t state = weft__load(&b->state, acquire); /* pairs with the releases in weft__many_… */
        if (state == WEFT_PARKED && weft__cas(&b->state, &state, WEFT_CLAIMED, acq_rel)) {
            b->result = err;
            return true;
        }
        if (state != WEFT_PARKING && state != WEFT_PARKED) return false;
        if (tries % 64 && !weft__lock_is_strict())
            weft__cpu_relax();
        else
            sched_yield();
    }
}

bool weft__interrupt(weft__block *b, int err, weft__slot *s) {
    weft__lock *l = weft__load(&b->wait_lock, acquire); /* P3: after the epoch, or the timer's `fired` */
    if (!l) return false;
    bool won = l == WEFT_MANY ? interrupt_many(b, err) : interrupt_single(b, l, err);
    if (won) weft__resume(b, s);
    return won;
}
