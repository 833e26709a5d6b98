/* SPDX-License-Identifier: MIT */
/* Calls that are said to block: weft_block_enter, weft_block_exit.
 *
 * If somebody waits for the slot it is handed over at once. If nobody does, the slot is kept, and the task's depth says that it is in such a
 * call (`blocks`): then the watch need not find out whether the thread sleeps, and whoever makes work from outside wakes it. The
 * way back is an ordinary entry: if the slot is gone, another is taken, or the task queues up (handoff.c).
 *
 * A task may call the runtime in between, wait there and go on elsewhere. So the worker has no note of it. (It had one, which was left behind
 * where the task had begun, and held for whoever ran there later on the same stack.) */
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
    weft__idle_slot_give(s, false);
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
    uint32_t depth = weft__load(&t->blocks, relaxed);
    weft__store(&t->blocks, depth + 1, relaxed); /* a hint for the watch */
    if (depth == 0 && somebody_waits(s))
        hand_over(w, s);
    else
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
    if (unlikely(weft__load(&t->blocks, relaxed) || !(t->b.linked & WEFT_LINK_PINNED) || somebody_waits(s))) {
        enter_slow();
        return;
    }
    weft__store(&t->blocks, 1, relaxed); /* as above */
    weft__leave_on(w);
}

static WEFT_NOINLINE void exit_slow(void) {
    weft__worker *w;
    weft__slot *s = weft__enter_as(&w);
    if (!s) return;
    weft__task *t = weft__cur(w);
    uint32_t depth = weft__load(&t->blocks, relaxed);
    if (!depth) weft__die("weft_block_exit: task %llu has not called weft_block_enter", (unsigned long long)t->id);
    weft__store(&t->blocks, depth - 1, relaxed); /* as above */
    weft__leave_on(w);
}

void weft_block_exit(void) {
    weft__worker *w;
    weft__slot *s;
    if (unlikely(!weft__enter_fast(&w, &s) || weft__load(&weft__cur(w)->blocks, relaxed) != 1)) {
        exit_slow();
        return;
    }
    weft__store(&weft__cur(w)->blocks, 0, relaxed); /* as above */
    weft__leave_on(w);
}
