/* SPDX-License-Identifier: MIT */
/* Select: one block on several queues; its state decides who wins (park.h). All channels are locked, in the order of their addresses,
 * while the cases are looked at and queued, so no case can become ready unseen in between. */
#include "chan/chan.h"

#include <stdlib.h>

#include "sched/switch.h"
#include "task/task.h"

#include <weft/select.h>

enum { ON_STACK = 16, CASES_MAX = 0xffff }; /* index and closed flag share a word */

typedef struct {
    weft_case *cases;
    size_t n;
    weft__waiter *waiters;
    weft_chan **order; /* the enabled channels by address, each once */
    size_t channels;
    uint16_t *turn; /* the cases not looked at yet */
    weft__block *block;
} selection;

/* ---- locks ---- */

static int by_address(const void *a, const void *b) {
    uintptr_t x = (uintptr_t) * (weft_chan *const *)a, y = (uintptr_t) * (weft_chan *const *)b;
    return x < y ? -1 : x > y;
}

/* Collects the enabled channels, each once, by address. */
static void sort(selection *s) {
    weft_chan **order = s->order;
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++)
        if (s->cases[i].chan) order[n++] = s->cases[i].chan;
    if (n > ON_STACK) qsort(order, n, sizeof *order, by_address);
    for (size_t i = 1; i < n && n <= ON_STACK; i++) {
        weft_chan *c = order[i];
        size_t k = i;
        for (; k > 0 && (uintptr_t)order[k - 1] > (uintptr_t)c; k--) order[k] = order[k - 1];
        order[k] = c;
    }
    s->channels = 0;
    for (size_t i = 0; i < n; i++)
        if (i == 0 || order[i] != order[i - 1]) order[s->channels++] = order[i];
}

static void lock_all(selection *s) {
    for (size_t i = 0; i < s->channels; i++) weft__lock_take(&s->order[i]->lock);
}

static void unlock_all(weft_chan **order, size_t n) {
    for (size_t i = 0; i < n; i++) weft__lock_leave(&order[i]->lock);
}

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

/* Does the first case that can be done, in a random order: all that can be done are equally likely. False: none can. */
static bool try_all(selection *s, uint32_t *random, int *result, weft__block **wake) {
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

static void queue_all(selection *s) {
    for (size_t i = 0; i < s->n; i++) {
        weft_case *k = &s->cases[i];
        weft__waiter *x = &s->waiters[i];
        x->queue = NULL;
        if (!k->chan) continue;
        x->block = s->block;
        x->elem = k->elem;
        x->index = (uint32_t)i;
        x->many = true;
        weft__queue_add(k->op == WEFT_CASE_SEND ? &k->chan->senders : &k->chan->receivers, x);
    }
}

/* The ones that did not win are still queued. */
static void withdraw_all(selection *s) {
    for (size_t i = 0; i < s->n; i++) {
        weft_chan *c = s->cases[i].chan;
        if (!c) continue;
        weft__lock_take(&c->lock);
        if (s->waiters[i].queue) weft__queue_remove(&s->waiters[i]);
        weft__lock_leave(&c->lock);
    }
}

/* ---- the wait ---- */

/* Once PARKED is stored, a cancellation may resume the waiter at any time. It then takes every one of these locks before its frame
 * goes; so the frame is not touched any more after the last one is left. */
static void post_parked(weft__slot *slot, void *arg) {
    (void)slot;
    selection *s = arg;
    weft_chan **order = s->order;
    size_t n = s->channels;
    weft__many_parked(s->block);
    unlock_all(order, n);
}

static uint32_t *random_of(weft__slot *s) {
    static __thread uint32_t seed = 0x2545f491;
    return s ? &s->random : &seed;
}

static int settle(selection *s, int32_t result) {
    if (result < 0) return result;
    size_t index = (size_t)(result & CASES_MAX);
    return outcome(&s->cases[index], index, result & WEFT_SELECT_CLOSED);
}

/* None was ready at the first look, and the locks are free again. */
static int wait_for_one(selection *s, weft_deadline deadline, weft__slot **slot) {
    weft__wait wait;
    weft__block *b = s->block, *wake = NULL;
    int result, err = weft__wait_prepare(&wait, b, deadline, *slot);
    if (err) return err;
    weft__many_begin(b);
    lock_all(s);
    atomic_thread_fence(memory_order_seq_cst); /* P3: also with no channel at all */
    if (try_all(s, random_of(*slot), &result, &wake) || (result = weft__wait_check(&wait)) != 0) {
        unlock_all(s->order, s->channels);
        weft__many_end(b);
        if (wake) weft__resume(wake, *slot);
    } else {
        queue_all(s);
        *slot = weft__wait_many(b, *slot, deadline, WEFT_WAIT_SELECT, post_parked, s);
        withdraw_all(s);
        weft__many_end(b);
        result = settle(s, b->result);
    }
    weft__wait_finish(&wait);
    return result;
}

static int select_from(selection *s, weft_deadline deadline) {
    weft__slot *slot = weft__enter();
    if (slot) slot = weft__spend(slot);
    weft__block *b = s->block = weft__me(), *wake = NULL;
    int result = weft__cancel_check(b);
    if (!result) {
        lock_all(s);
        bool done = s->n && try_all(s, random_of(slot), &result, &wake);
        unlock_all(s->order, s->channels);
        if (wake) weft__resume(wake, slot);
        if (!done) result = wait_for_one(s, deadline, &slot);
    }
    if (slot) weft__leave();
    return result;
}

static WEFT_COLD int select_many(selection *s, weft_deadline deadline) {
    char *memory = weft__calloc(s->n, sizeof *s->waiters + sizeof *s->order + sizeof *s->turn);
    if (!memory) return WEFT_ENOMEM;
    s->waiters = (weft__waiter *)(void *)memory;
    s->order = (weft_chan **)(void *)(memory + s->n * sizeof *s->waiters);
    s->turn = (uint16_t *)(void *)(s->order + s->n);
    sort(s);
    int r = select_from(s, deadline);
    weft__free(memory);
    return r;
}

int weft_selectv(weft_case *cases, size_t n, weft_deadline deadline) {
    if (n > CASES_MAX) return WEFT_EINVAL;
    for (size_t i = 0; i < n; i++)
        if (cases[i].chan && cases[i].op != WEFT_CASE_RECV && cases[i].op != WEFT_CASE_SEND) return WEFT_EINVAL;
    selection s = {.cases = cases, .n = n};
    if (n > ON_STACK) return select_many(&s, deadline);
    weft__waiter waiters[ON_STACK];
    weft_chan *order[ON_STACK];
    uint16_t turn[ON_STACK];
    s.waiters = waiters;
    s.order = order;
    s.turn = turn;
    sort(&s);
    return select_from(&s, deadline);
}
