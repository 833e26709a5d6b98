/* SPDX-License-Identifier: MIT */
/* The waiter's side: deadlines, being found by cancellation, leaving the stack. */
#include "park/park.h"

#include "sched/switch.h"
#include "task/task.h"
#include "time/clock.h"

static void deadline_passed(weft__timer *t, void *slot) {
    weft__wait *w = weft__container(t, weft__wait, timer);
    weft__store(&w->fired, 1, relaxed);        /* seen under the object's lock or after PARKING; then the block is looked at */
    atomic_thread_fence(memory_order_seq_cst); /* P3, as the epoch; pairs with the barrier before weft__wait_check */
    weft__interrupt(w->block, WEFT_ETIMEDOUT, slot);
}

int weft__wait_prepare(weft__wait *w, weft__block *b, weft_deadline deadline, weft__slot *s) {
    w->block = b;
    w->armed = false;
    weft__store(&w->fired, 0, relaxed); /* nobody knows it yet */
    if (deadline.ns == INT64_MIN) return WEFT_EAGAIN;
    if (deadline.ns != 0 && deadline.ns <= weft__clock_now()) return WEFT_ETIMEDOUT;
    if (b->linked == WEFT_LINK_NONE) weft__block_link(b);
    if (deadline.ns == 0 || !s) return 0; /* a plain thread sleeps with its deadline */
    w->timer = (weft__timer){.when = deadline.ns, .fire = deadline_passed};
    w->armed = true;
    weft__timer_start(&s->wheel, &w->timer);
    return 0;
}

int weft__wait_check(weft__wait *w) {
    if (weft__load(&w->fired, relaxed)) return WEFT_ETIMEDOUT; /* pairs with deadline_passed */
    return weft__cancel_check(w->block);
}

void weft__wait_finish(weft__wait *w) {
    if (w->armed) weft__timer_stop(&w->timer);
}

weft__slot *weft__wait_single(weft__block *b, weft__slot *s, weft_deadline deadline, int reason, weft__lock *held) {
    weft__store(&b->reason, (uint8_t)reason, relaxed); /* for people */
    if (unlikely(!s)) {
        weft__thread *t = weft__container(b, weft__thread, b);
        weft__thread_ready(t);
        weft__store(&b->queued, 1, release); /* P2 */
        weft__lock_leave(held);
        weft__thread_sleep(t, deadline.ns);
    } else {
        weft__store(&b->since, weft__load(&s->now, relaxed), relaxed); /* for people */
        weft__store(&b->queued, 1, release);                           /* P2; pairs with interrupt_single */
        weft__park_locked(weft__self(), s, held);
        s = weft__here(weft__self()); /* H9 */
    }
    weft__store(&b->reason, WEFT_WAIT_NONE, relaxed);
    return s;
}

weft__slot *weft__wait_many(weft__block *b, weft__slot *s, weft_deadline deadline, int reason, weft__parked *post, void *arg) {
    weft__store(&b->reason, (uint8_t)reason, relaxed); /* for people */
    if (unlikely(!s)) {
        weft__thread *t = weft__container(b, weft__thread, b);
        weft__thread_ready(t);
        post(NULL, arg);
        weft__thread_sleep(t, deadline.ns);
    } else {
        weft__store(&b->since, weft__load(&s->now, relaxed), relaxed); /* for people */
        weft__park(weft__self(), s, post, arg);
        s = weft__here(weft__self()); /* H9 */
    }
    weft__store(&b->reason, WEFT_WAIT_NONE, relaxed);
    return s;
}
