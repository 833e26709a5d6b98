/* SPDX-License-Identifier: MIT */
/* Calls that are said to block: weft_block_enter, weft_block_exit.
 *
 * If somebody waits for the slot it is handed over at once. If nobody does, the slot is kept, and the worker notes that its task is in such a
 * call (`blocking`): then the watch need not find out whether the thread sleeps, and whoever makes work from outside wakes it. The
 * way back is an ordinary entry: if the slot is gone, another is taken, or the task queues up (handoff.c).
 *
 * A task may call the runtime in between, wait there and go on elsewhere. So the depth is the task's, and `blocking` names the task: it says
 * nothing while the worker runs another one. */
#include "block/block.h"
#include "sched/lane.h"
#include "task/task.h"

#include <weft/block.h>

/* Hints, all of them; joined so that there are two branches. */
WEFT_INLINE bool somebody_waits_here(weft__slot *s) {
    uintptr_t waits = (uintptr_t)weft__load(&s->next, relaxed);
    waits |= weft__load(&s->head, relaxed) ^ weft__load(&s->tail, relaxed);
    waits |= weft__load(&s->bottom, relaxed) ^ weft__load(&s->top, relaxed);
    return waits != 0;
}
WEFT_INLINE bool somebody_waits(weft__slot *s) {
    if (unlikely(somebody_waits_here(s))) return true;
    uint32_t waits = (uint32_t)weft__load(&weft__rt.wanting, relaxed);
    waits |= weft__load(&weft__rt.started.count, relaxed) | weft__load(&weft__rt.fresh.count, relaxed);
    waits |= weft__load(&weft__rt.lane[0].started.count, relaxed) | weft__load(&weft__rt.lane[0].fresh.count, relaxed);
    return waits != 0;
}

static void hand_over(weft__worker *w, weft__slot *s) {
    weft__slot_disown(w);
    weft__add(&weft__rt.handoffs, 1, relaxed); /* a counter */
    weft__idle_slot_give(s);
    weft__store(&w->in_rt, 0, release); /* as weft__leave, without a slot */
}

static WEFT_NOINLINE void enter_slow(void) {
    weft__worker *w;
    weft__slot *s = weft__enter_as(&w);
    if (!s) return;
    weft__task *t = weft__cur(w);
    if (!(t->b.linked & WEFT_LINK_PINNED)) { /* its end looks whether it is still in there */
        if (t->b.linked == WEFT_LINK_NONE) weft__block_link(&t->b);
        t->b.linked |= WEFT_LINK_PINNED;
    }
    if (t->blocks++ == 0) {
        if (somebody_waits(s)) {
            hand_over(w, s);
            return;
        }
        weft__store(&w->blocking, t, relaxed); /* a hint for the watch */
    }
    weft__leave_on(w);
}

/* The common case written out: the first of them, and nobody waits. It makes no call that it comes back from. */
void weft_block_enter(void) {
    weft__worker *w;
    weft__slot *s;
    if (unlikely(!weft__enter_fast(&w, &s))) {
        enter_slow();
        return;
    }
    weft__task *t = weft__cur(w);
    if (unlikely(t->blocks || !(t->b.linked & WEFT_LINK_PINNED) || somebody_waits(s))) {
        enter_slow();
        return;
    }
    t->blocks = 1;
    weft__store(&w->blocking, t, relaxed); /* as above */
    weft__leave_on(w);
}

static WEFT_NOINLINE void exit_slow(void) {
    weft__worker *w;
    weft__slot *s = weft__enter_as(&w);
    if (!s) return;
    weft__task *t = weft__cur(w);
    if (!t->blocks) weft__die("weft_block_exit: task %llu has not called weft_block_enter", (unsigned long long)t->id);
    if (--t->blocks == 0) weft__store(&w->blocking, NULL, relaxed); /* as above */
    weft__leave_on(w);
}

void weft_block_exit(void) {
    weft__worker *w;
    weft__slot *s;
    if (unlikely(!weft__enter_fast(&w, &s) || weft__cur(w)->blocks != 1)) {
        exit_slow();
        return;
    }
    weft__cur(w)->blocks = 0;
    weft__store(&w->blocking, NULL, relaxed); /* as above */
    weft__leave_on(w);
}
