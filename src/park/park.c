/* SPDX-License-Identifier: MIT */
/* Ending a wait from outside, and resuming whoever waited. */
#include "park/park.h"

#include <sched.h>

#include "os/os.h"
#include "os/socket.h"
#include "sched/lane.h"
#include "sched/switch.h"
#include "task/task.h"

_Atomic(weft__hook *) weft__park_hook;

const char *weft__wait_name(int reason) {
    static const char *const names[] = {"running",      "send",      "receive",    "select",   "sleep",       "join",
                                        "scope end",    "spawn",     "next child", "any task", "mutex",       "rwlock",
                                        "condition",    "semaphore", "wait group", "once",     "barrier",     "blocking call",
                                        "bound thread", "thread",    "readable",   "writable", "all children"};
    return (size_t)reason < weft__countof(names) ? names[reason] : "?";
}

WEFT_HOT void weft__resume_last(weft__block *b, weft__slot *s) {
    if (s && weft__load(&b->kind, relaxed) == WEFT_BLOCK_TASK) /* as below */
        weft__ready_last(s, weft__container(b, weft__task, b));
    else
        weft__resume(b, s);
}

WEFT_HOT void weft__resume(weft__block *b, weft__slot *s) {
    uint8_t kind = weft__load(&b->kind, relaxed); /* the wait orders it */
    if (likely(kind == WEFT_BLOCK_TASK)) {
        weft__task *t = weft__container(b, weft__task, b);
        if (likely(s != NULL)) {
            weft__ready(s, t);
        } else {
            weft__foreign_enter(); /* the task may run, end, and let the runtime end, while we are still in here */
            weft__san_woken(t);
            weft__slot *last = weft__since_where(weft__load(&b->since, relaxed)); /* written before it parked */
            weft__inject_task(t);
            weft__work_injected(last);
            weft__foreign_leave();
        }
        return;
    }
    if (kind == WEFT_BLOCK_SPECIAL) {
        if (!s) weft__foreign_enter(); /* as above */
        weft__san_woken(weft__container(b, weft__task, b));
        weft__special_ready(s, weft__container(b, weft__task, b));
        if (!s) weft__foreign_leave();
        return;
    }
    weft__thread *t = weft__container(b, weft__thread, b);
    if (unlikely(t->polls != NULL)) weft__bell_ring(t->polls->bell); /* first: it goes when `woken` is seen */
    weft__store(&t->woken, 1, release); /* publishes the result; pairs with the acquire in weft__thread_sleep */
    weft__futex_wake(&t->woken, 1);     /* an address only: the thread may be gone */
}

/* Does `err` concern the block? The caller sees to it that it is parked and stays so: its scopes do not change. */
static bool concerns(weft__block *b, int err) {
    return err != WEFT_ECANCELED || weft__scope_cause(b->scope);
}

/* Takes a block that is queued off what it waits for. False: it stays. Caller holds the lock that decides the wait. */
static bool withdraw(weft__block *b, int err) {
    weft__waiter *x = b->waiter;
    if (unlikely(!x->queue)) return weft__children_give_up(b, x->elem, err); /* S7 */
    if (!concerns(b, err)) return false;
    weft__queue_remove(x);
    return true;
}

/* The lock decides (P2). */
static bool interrupt_single(weft__block *b, weft__lock *l, int err, weft__slot *s) {
    weft__lock_take_on(l, s);                                             /* waits until the stack was left (P1) */
    bool mine = weft__load(&b->queued, acquire) == l && withdraw(b, err); /* pairs with the release in weft__wait_single */
    if (mine) {
        weft__store(&b->queued, NULL, release);
        b->result = err;
    }
    weft__lock_leave(l);
    return mine;
}

/* The state decides. PARKING and HELD pass soon: somebody is between two short steps, as if it held a lock that we want. Whoever else
 * wants a claimed wait has gone on without it, so a wait that was claimed for nothing has to look for itself again. */
static bool interrupt_many(weft__block *b, int err) {
    for (int tries = 1;; tries++) {
        uint32_t state = weft__load(&b->state, acquire); /* pairs with the releases in weft__many_… */
        if (state == WEFT_PARKED && weft__cas(&b->state, &state, WEFT_CLAIMED, acq_rel)) {
            b->result = concerns(b, err) ? err : WEFT_AWAIT_AGAIN;
            return true;
        }
        if (state == WEFT_RUNNING || state == WEFT_CLAIMED) return false;
        if (tries % 64 && !weft__lock_is_strict())
            weft__cpu_relax();
        else
            sched_yield();
    }
}

weft__lock *weft__hold(weft__block *b) {
    weft__lock *l = weft__load(&b->wait_lock, acquire); /* as in weft__interrupt */
    uint32_t parked = WEFT_PARKED;
    if (!l) return NULL;
    if (l == WEFT_MANY) return weft__cas(&b->state, &parked, WEFT_HELD, acq_rel) ? l : NULL; /* pairs with weft__many_parked */
    weft__lock_take(l);
    if (weft__load(&b->queued, acquire) == l && b->waiter->queue) return l; /* as in interrupt_single; not children (S7) */
    weft__lock_leave(l);
    return NULL;
}

void weft__unhold(weft__block *b, weft__lock *held) {
    if (held == WEFT_MANY)
        weft__store(&b->state, WEFT_PARKED, release); /* pairs with the claiming CAS */
    else
        weft__lock_leave(held);
}

bool weft__interrupt(weft__block *b, int err, weft__slot *s) {
    weft__lock *l = weft__load(&b->wait_lock, acquire); /* P3: after the epoch, or the timer's `fired` */
    if (!l) return false;
    bool won = l == WEFT_MANY ? interrupt_many(b, err) : interrupt_single(b, l, err, s);
    if (won) weft__resume(b, s);
    return won;
}
