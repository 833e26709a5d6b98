/* SPDX-License-Identifier: MIT */
/* The waiter's side: deadlines, being found by cancellation, leaving the stack. */
#include "park/many.h"

#include "sched/switch.h"
#include "task/task.h"
#include "time/clock.h"

weft__slab weft__alarm_slab = {.size = (sizeof(weft__alarm) + WEFT_LINE - 1) & ~(uint32_t)(WEFT_LINE - 1)};

static void deadline_passed(weft__timer *t, void *slot) {
    weft__block *b = t->near;
    __builtin_prefetch(weft__load(&b->next, relaxed), 1); /* the task is likely to end soon, and to leave home's list */
    __builtin_prefetch(weft__load(&b->prev, relaxed), 1);
    weft__store(&weft__container(t, weft__alarm, timer)->fired, 1,
                relaxed);                      /* seen under the object's lock or after PARKING; then the block is looked at */
    atomic_thread_fence(memory_order_seq_cst); /* P3, as the epoch; pairs with the barrier before weft__wait_check */
    weft__interrupt(b, WEFT_ETIMEDOUT, slot);  /* if it ends the wait, neither the block nor the timer is ours any more */
}

static void arm(weft__wait *w, int64_t when, weft__slot *s) {
    weft__alarm *a = weft__cache_get(&weft__alarm_slab, &s->alarms);
    w->alarm = a = a ? a : &w->own;
    w->armed = true;
    a->timer = (weft__timer){.when = when, .fire = deadline_passed, .near = w->block};
    weft__store(&a->fired, 0, relaxed); /* nobody knows it yet */
    weft__timer_start(&s->wheel, &a->timer);
}

int weft__wait_prepare(weft__wait *w, weft__block *b, weft_deadline deadline, weft__slot *s) {
    w->block = b;
    w->armed = w->expired = false;
    if (deadline.ns == INT64_MIN) return weft__cancel_poll(b);
    if (deadline.ns != 0 && deadline.ns <= weft__clock_now()) return WEFT_ETIMEDOUT;
    if (b->linked == WEFT_LINK_NONE) weft__block_link(b);
    if (deadline.ns == 0 || !s) return 0; /* a plain thread sleeps with its deadline */
    arm(w, deadline.ns, s);
    return 0;
}

int weft__wait_check(weft__wait *w) {
    int err = weft__wait_fired(w);
    return err ? err : weft__cancel_check(w->block);
}

void weft__wait_finish(weft__wait *w) {
    if (!w->armed) return;
    if (!w->expired) weft__timer_stop(&w->alarm->timer);
    if (w->alarm != &w->own) weft__cache_put(&weft__alarm_slab, &weft__here(weft__self())->alarms, w->alarm);
}

WEFT_HOT weft__slot *weft__wait_single(weft__block *b, weft__slot *s, weft_deadline deadline, int reason, weft__lock *held) {
    weft__store(&b->reason, (uint8_t)reason, relaxed); /* for people */
    if (unlikely(!s)) {
        weft__thread *t = weft__container(b, weft__thread, b);
        weft__thread_ready(t);
        weft__store(&b->queued, held, release); /* P2 */
        weft__lock_leave(held);
        weft__thread_sleep(t, deadline.ns);
    } else {
        weft__store(&b->since, weft__load(&s->now, relaxed), relaxed); /* for people */
        weft__store(&b->queued, held, release);                        /* P2; pairs with interrupt_single */
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
        if (post == weft__many_post) weft__many_san_parks(arg);
        weft__park(weft__self(), s, post, arg);
        s = weft__here(weft__self()); /* H9 */
    }
    weft__store(&b->reason, WEFT_WAIT_NONE, relaxed);
    return s;
}
