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

static bool somebody_waits(weft__slot *s) {
    return weft__others_wait(s) || weft__load(&weft__rt.wanting, relaxed) || weft__lane_waits(WEFT_LANE_HIGH); /* hints */
}

/* The task's end looks whether it is still in there. */
static WEFT_COLD void remember(weft__task *t) {
    if (t->b.linked == WEFT_LINK_NONE) weft__block_link(&t->b);
    t->b.linked |= WEFT_LINK_PINNED;
}

static WEFT_NOINLINE void hand_over(weft__worker *w, weft__slot *s) {
    weft__slot_disown(w);
    weft__add(&weft__rt.handoffs, 1, relaxed); /* a counter */
    weft__idle_slot_give(s);
    weft__store(&w->in_rt, 0, release); /* as weft__leave, without a slot */
}

void weft_block_enter(void) {
    weft__worker *w;
    weft__slot *s = weft__enter_as(&w);
    if (unlikely(!s)) return;
    weft__task *t = weft__cur(w);
    if (unlikely(!(t->b.linked & WEFT_LINK_PINNED))) remember(t);
    if (t->blocks++ == 0) {
        if (unlikely(somebody_waits(s))) {
            hand_over(w, s);
            return;
        }
        weft__store(&w->blocking, t, relaxed); /* a hint for the watch */
    }
    weft__leave_on(w);
}

void weft_block_exit(void) {
    weft__worker *w;
    weft__slot *s = weft__enter_as(&w);
    if (unlikely(!s)) return;
    weft__task *t = weft__cur(w);
    if (unlikely(!t->blocks))
        weft__die("weft_block_exit: task %llu has not called weft_block_enter", (unsigned long long)t->id);
    if (--t->blocks == 0) weft__store(&w->blocking, NULL, relaxed); /* as above */
    weft__leave_on(w);
}
