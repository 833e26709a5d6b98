/* SPDX-License-Identifier: MIT */
/* Select: one block on the queues of several channels. How it waits is in park/many.h; what it does with a channel is here. */
#include "chan/chan.h"
#include "park/many.h"
#include "sched/switch.h"
#include "task/task.h"

#include <weft/select.h>

enum { ON_STACK = WEFT_MANY_ON_STACK, CASES_MAX = 0xffff }; /* index and closed flag share a word */

typedef struct {
    weft__many many; /* the enabled channels */
    weft_case *cases;
    size_t n;
    weft__waiter *waiters;
    uint16_t *turn; /* the cases not looked at yet */
} selection;

/* ---- cases ---- */

/* What a case that happened means for the caller. */
static int outcome(weft_case *k, size_t index, bool closed) {
    if (!closed) {
        if (k->open) *k->open = true;
        return (int)index;
    }
    if (k->op == WEFT_CASE_SEND || !k->open) return WEFT_ECLOSED;
    *k->open = false;
    return (int)index;
}

static uint32_t *random_of(weft__slot *s) {
    static __thread uint32_t seed = 0x2545f491;
    return s ? &s->random : &seed;
}

/* Does the first case that can be done, in a random order: all that can be done are equally likely. False: none can. */
static bool try_all(weft__many *m, weft__slot *slot, int *result, weft__block **wake) {
    selection *s = weft__container(m, selection, many);
    uint32_t *random = random_of(slot);
    for (size_t i = 0; i < s->n; i++) s->turn[i] = (uint16_t)i;
    for (size_t i = 0; i < s->n; i++) {
        size_t pick = i + weft__random(random) % (s->n - i), at = s->turn[pick];
        s->turn[pick] = s->turn[i];
        weft_case *k = &s->cases[at];
        if (!k->chan) continue;
        int r = k->op == WEFT_CASE_SEND ? weft__chan_send_locked(k->chan, k->elem, wake, false)
                                        : weft__chan_recv_locked(k->chan, k->elem, wake, false);
        if (r == WEFT_CHAN_WAIT) continue;
        *result = outcome(k, at, r == WEFT_ECLOSED);
        return true;
    }
    return false;
}

static void queue_all(weft__many *m) {
    selection *s = weft__container(m, selection, many);
    for (size_t i = 0; i < s->n; i++) {
        weft_case *k = &s->cases[i];
        weft__waiter *x = &s->waiters[i];
        x->queue = NULL;
        if (!k->chan) continue;
        x->block = m->block;
        x->elem = k->elem;
        x->index = (uint32_t)i;
        x->many = true;
        weft__queue_add(k->op == WEFT_CASE_SEND ? &k->chan->senders : &k->chan->receivers, x);
    }
}

/* The ones that did not win are still queued. */
static void withdraw_all(weft__many *m) {
    selection *s = weft__container(m, selection, many);
    for (size_t i = 0; i < s->n; i++) {
        weft_chan *c = s->cases[i].chan;
        if (!c) continue;
        weft__lock_take(&c->lock);
        if (s->waiters[i].queue) weft__queue_remove(&s->waiters[i]);
        weft__lock_leave(&c->lock);
    }
}

/* ---- the wait ---- */

static int settle(selection *s, int32_t result) {
    if (result < 0) return result;
    size_t index = (size_t)(result & CASES_MAX);
    return outcome(&s->cases[index], index, result & WEFT_SELECT_CLOSED);
}

static int select_from(selection *s, weft_deadline deadline) {
    weft__slot *slot = weft__enter();
    if (slot) slot = weft__spend(slot);
    weft__many *m = &s->many;
    weft__block *b = m->block = weft__me(), *wake = NULL;
    int result = weft__cancel_check(b);
    if (!result) {
        weft__many_lock(m);
        bool done = s->n && try_all(m, slot, &result, &wake);
        weft__many_unlock(m->order, m->locks);
        if (wake) weft__resume(wake, slot);
        if (!done && weft__many_wait(m, deadline, WEFT_WAIT_SELECT, &result, &slot)) result = settle(s, result);
    }
    if (slot) weft__leave();
    return result;
}

/* The enabled channels' locks. */
static void sort(selection *s) {
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++)
        if (s->cases[i].chan) s->many.order[n++] = &s->cases[i].chan->lock;
    weft__many_sort(&s->many, n);
}

static WEFT_COLD int select_many(selection *s, weft_deadline deadline) {
    char *memory = weft__calloc(s->n, sizeof *s->waiters + sizeof *s->many.order + sizeof *s->turn);
    if (!memory) return WEFT_ENOMEM;
    s->waiters = (weft__waiter *)(void *)memory;
    s->many.order = (weft__lock **)(void *)(memory + s->n * sizeof *s->waiters);
    s->turn = (uint16_t *)(void *)(s->many.order + s->n);
    sort(s);
    int r = select_from(s, deadline);
    weft__free(memory);
    return r;
}

int weft_selectv(weft_case *cases, size_t n, weft_deadline deadline) {
    if (n > CASES_MAX) return WEFT_EINVAL;
    for (size_t i = 0; i < n; i++)
        if (cases[i].chan && cases[i].op != WEFT_CASE_RECV && cases[i].op != WEFT_CASE_SEND) return WEFT_EINVAL;
    selection s = {.many = {.look = try_all, .queue = queue_all, .withdraw = withdraw_all}, .cases = cases, .n = n};
    if (n > ON_STACK) return select_many(&s, deadline);
    weft__waiter waiters[ON_STACK];
    weft__lock *order[ON_STACK];
    uint16_t turn[ON_STACK];
    s.waiters = waiters;
    s.many.order = order;
    s.turn = turn;
    sort(&s);
    return select_from(&s, deadline);
}
