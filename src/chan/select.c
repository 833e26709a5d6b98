/* SPDX-License-Identifier: MIT */
/* Select: one of several operations.
 *
 * First it looks: at one case after the other, in a random order, each under the lock of its own channel. That is all for a select that
 * finds something; nothing is sorted or queued for it. Only then it waits, as park/many.h has it: with all locks held, in order, it looks
 * again, queues up everywhere, and leaves its stack.
 *
 * A select that must not wait (WEFT_POLL, a past deadline) makes that second look, too, if it has
 * several cases: one look after the other can find nothing although at every moment one was ready.
 * Cases that stand on one queue join it in a random order, since the first of them will be served.
 *
 * An ordered select begins with the look under all locks: looked at one after the other, a case may
 * become ready behind the looker's back, before a later one does.
 *
 * Two cases in a task, without a deadline, do not begin anew to wait: the look that found nothing at the lower address keeps that lock, says that
 * it is PARKING, and takes the other one (measured, rendezvous on two workers: 73 -> 60 ns).
 *
 * A select with descriptors among its cases is another one (select_fd.c), found out where unknown cases are.
 *
 * Rejected: all locks for the first look as well, with any number of cases (fetches lines of channels that are not asked); a look without
 * the lock before it (every store to `count` and the queues would have to be atomic). */
#include "chan/select.h"

enum { ON_STACK = WEFT_MANY_ON_STACK };
#define NONE WEFT_SELECT_NONE

typedef struct {
    weft__many many; /* the enabled channels */
    weft_case *cases;
    uint32_t n;
    weft__waiter *waiters;
    uint16_t *turn; /* more cases than ON_STACK: room for a random order */
    bool pair;      /* two cases, and none of them a task's; a constant where it is compiled in */
    bool ordered;   /* the first case that can be done, not a random one */
    bool crowded;   /* two cases stand on one queue, in a random order */
} selection;

/* ---- looking ---- */

uint32_t *weft__select_random(weft__slot *s) {
    static __thread uint32_t seed = 0x2545f491;
    return s ? &s->random : &seed;
}

/* Does the first case that can be done, in a random order: all that can be done are equally likely. */
WEFT_INLINE int32_t look_two(weft_case *cases, bool locked, weft__slot *slot, weft__block **wake) {
    uint32_t first = weft__random(weft__select_random(slot)) >> 31;
    int32_t r = weft__case_try(&cases[first], first, locked, false, slot, wake);
    return r != NONE ? r : weft__case_try(&cases[first ^ 1], first ^ 1, locked, false, slot, wake);
}

/* Up to 16 cases; those that are left are the nibbles of a word. */
WEFT_NOINLINE static int32_t look_few(weft_case *cases, uint32_t n, bool locked, weft__slot *slot, weft__block **wake) {
    uint32_t *random = weft__select_random(slot);
    uint64_t left = UINT64_C(0xfedcba9876543210);
    for (; n; n--) {
        uint32_t at = n > 1 ? 4 * weft__random_below(random, n) : 0;
        uint64_t index = left >> at & 15;
        left ^= (index ^ (left >> 4 * (n - 1) & 15)) << at; /* the last one takes its place */
        int32_t r = weft__case_try(&cases[index], (uint32_t)index, locked, true, slot, wake);
        if (r != NONE) return r;
    }
    return NONE;
}

static int32_t look_many(selection *s, bool locked, weft__slot *slot, weft__block **wake) {
    uint32_t *random = weft__select_random(slot);
    weft__turn_all(s->turn, s->n);
    for (uint32_t n = s->n; n; n--) {
        uint32_t index = weft__turn_next(s->turn, n, random);
        int32_t r = weft__case_try(&s->cases[index], index, locked, true, slot, wake);
        if (r != NONE) return r;
    }
    return NONE;
}

/* The first of those that can be done; all locks are held. */
WEFT_NOINLINE static int32_t look_in_order(selection *s, weft__slot *slot, weft__block **wake) {
    int32_t r = NONE;
    for (uint32_t i = 0; i < s->n && r == NONE; i++) r = weft__case_try(&s->cases[i], i, true, true, slot, wake);
    return r;
}

/* ---- waiting ---- */

WEFT_INLINE bool look_locked(weft__many *m, weft__slot *slot, int *result, weft__block **wake) {
    selection *s = weft__container(m, selection, many);
    *result = s->pair            ? look_two(s->cases, true, slot, wake)
              : s->ordered       ? look_in_order(s, slot, wake)
              : s->n <= ON_STACK ? look_few(s->cases, s->n, true, slot, wake)
                                 : look_many(s, true, slot, wake);
    return *result != NONE;
}

WEFT_INLINE void queue_one(selection *s, uint32_t i) {
    weft_case *k = &s->cases[i];
    weft__waiter *x = &s->waiters[i];
    x->queue = NULL;
    if (!k->chan) return;
    x->block = s->many.block;
    x->elem = k->elem;
    x->index = i;
    x->many = true;
    weft__queue_add(weft__case_queue(k, !s->pair), x);
}

/* Of those on one queue the first is served. */
static WEFT_COLD void queue_at_random(selection *s, weft__slot *slot) {
    uint16_t few[ON_STACK], *turn = s->turn ? s->turn : few;
    uint32_t *random = weft__select_random(slot);
    weft__turn_all(turn, s->n);
    for (uint32_t n = s->n; n; n--) queue_one(s, weft__turn_next(turn, n, random));
}

WEFT_INLINE void queue_all(weft__many *m, weft__slot *slot) {
    selection *s = weft__container(m, selection, many);
    if (unlikely(s->crowded)) {
        queue_at_random(s, slot);
        return;
    }
    for (uint32_t i = 0; i < s->n; i++) queue_one(s, i);
}

/* The ones that did not win are still queued, or have been passed over. */
WEFT_INLINE void withdraw_all(weft__many *m, int32_t result, weft__slot *slot) {
    selection *s = weft__container(m, selection, many);
    uint32_t winner = weft__select_index(result);
    for (uint32_t i = 0; i < s->n; i++) {
        weft_case *k = &s->cases[i];
        if (!k->chan || i == winner) continue;
        weft__lock *l = weft__case_lock(k, !s->pair);
        weft__lock_take_on(l, slot);
        if (s->waiters[i].queue) weft__queue_remove(&s->waiters[i]);
        weft__lock_leave(l);
    }
}

static const weft__many_kind kind = {WEFT_WAIT_SELECT, look_locked, queue_all, withdraw_all};

/* Nothing could be done. The result of a look, or an error. */
WEFT_INLINE int32_t wait_for_one(selection *s, weft__block *b, weft_deadline deadline, weft__slot **slot) {
    uint32_t n = 0;
    int result;
    for (uint32_t i = 0; i < s->n; i++)
        if (s->cases[i].chan) s->many.order[n++] = weft__case_lock(&s->cases[i], !s->pair);
    s->many.block = b;
    weft__many_sort(&s->many, n);
    s->many.apart = s->ordered || (s->many.apart && n > 1); /* one case alone was looked at */
    s->crowded = s->many.locks < n && !s->ordered;
    (void)weft__many_wait(&s->many, kind, deadline, &result, slot);
    return result;
}

/* `apart`: as in weft__many. */
static WEFT_NOINLINE int32_t wait_two(weft_case *cases, weft__block *b, bool apart, weft_deadline deadline, weft__slot **slot) {
    weft__waiter waiters[2];
    weft__lock *order[2];
    selection s = {
        .many = {.order = order, .apart = apart}, .cases = cases, .n = 2, .waiters = waiters, .pair = true, .ordered = false};
    return wait_for_one(&s, b, deadline, slot);
}
static WEFT_NOINLINE int32_t wait_few(selection *s, weft__block *b, weft_deadline deadline, weft__slot **slot) {
    weft__waiter waiters[ON_STACK];
    weft__lock *order[ON_STACK];
    selection few = {
        .many = {.order = order, .apart = true}, .cases = s->cases, .n = s->n, .waiters = waiters, .ordered = s->ordered};
    return wait_for_one(&few, b, deadline, slot);
}

/* ---- the select ---- */

int weft__select_aided(weft_case *cases, size_t n, bool ordered, weft_deadline deadline, uint32_t index) {
    weft_case *k = &cases[index];
    int r = k->op == WEFT_CASE_SEND ? weft__chan_send_aided(k->chan, k->elem) : weft__chan_recv_aided(k->chan, k->elem);
    if (r == WEFT_EAGAIN || r == WEFT_ECANCELED) /* others may be ready */
        return ordered ? weft_selectv_ordered(cases, n, deadline) : weft_selectv(cases, n, deadline);
    if (k->open && (r == 0 || r == WEFT_ECLOSED)) {
        *k->open = r == 0;
        r = 0;
    }
    return r ? r : (int)index;
}

static int check(const weft_case *cases, size_t n, const weft__block *b) {
    for (size_t i = 0; i < n; i++) {
        if (!cases[i].chan) continue;
        if (cases[i].op < WEFT_CASE_RECV || cases[i].op > WEFT_CASE_TASK)
            return weft__case_is_fd(&cases[i]) ? WEFT_SELECT_WITH_FDS : WEFT_EINVAL;
        if (cases[i].op == WEFT_CASE_TASK && b->home == &cases[i].task->scope) return WEFT_EDEADLOCK;
    }
    return 0;
}

/* Any number of cases. An ordered one looks at all of them together at once, as if it were to wait. */
static int32_t select_any(selection *s, weft_deadline deadline) {
    weft__slot *slot = weft__enter();
    if (slot) slot = weft__spend(slot);
    weft__block *b = weft__me(), *wake = NULL;
    int32_t result = check(s->cases, s->n, b);
    if (!result) result = weft__cancel_first(b, deadline);
    if (!result) {
        result = s->ordered ? NONE : s->turn ? look_many(s, false, slot, &wake) : look_few(s->cases, s->n, false, slot, &wake);
        if (wake) weft__resume(wake, slot);
        if (result == NONE) result = s->turn ? wait_for_one(s, b, deadline, &slot) : wait_few(s, b, deadline, &slot);
    }
    if (slot) weft__leave();
    return result;
}

static WEFT_NOINLINE int select_few(weft_case *cases, size_t n, bool ordered, weft_deadline deadline) {
    selection s = {.cases = cases, .n = (uint32_t)n, .ordered = ordered};
    return weft__select_outcome(cases, n, ordered, deadline, select_any(&s, deadline), true);
}

static WEFT_COLD int select_many(weft_case *cases, size_t n, bool ordered, weft_deadline deadline) {
    selection s = {.many = {.apart = true}, .cases = cases, .n = (uint32_t)n, .ordered = ordered};
    if (n > WEFT_SELECT_MAX) return WEFT_EINVAL;
    char *memory = weft__calloc(n, sizeof *s.waiters + sizeof *s.many.order + sizeof *s.turn);
    if (!memory) return WEFT_ENOMEM;
    s.waiters = (weft__waiter *)(void *)memory;
    s.many.order = (weft__lock **)(void *)(s.waiters + n);
    s.turn = (uint16_t *)(void *)(s.many.order + n);
    int32_t result = select_any(&s, deadline);
    weft__free(memory);
    return weft__select_outcome(cases, n, ordered, deadline, result, true);
}

int weft_selectv_ordered(weft_case *cases, size_t n, weft_deadline deadline) {
    return n > ON_STACK ? select_many(cases, n, true, deadline) : select_few(cases, n, true, deadline);
}

/* Two sends or receives: WEFT_CASE_RECV and WEFT_CASE_SEND are 1 and 2. */
WEFT_INLINE bool two_known(const weft_case *cases, size_t n) {
    return n == 2 && (((unsigned)cases[0].op - 1) | ((unsigned)cases[1].op - 1)) <= 1;
}

/* Two such cases, in a task; the lock of the one at `at` is held. `last`: the other one has been looked at. */
static WEFT_NOINLINE int select_two(weft_case *cases, uint32_t at, bool last, weft_deadline deadline, weft__slot *slot) {
    weft__block *wake = NULL;
    int32_t result = weft__case_try_locked(&cases[at], at, false, &wake);
    weft__lock_leave(&cases[at].chan->lock);
    if (result == NONE && !last) result = weft__case_try(&cases[at ^ 1], at ^ 1, false, false, slot, &wake);
    if (result == NONE) {
        result = wait_two(cases, &weft__cur(weft__self())->b, true, deadline, &slot);
    } else if (wake) {
        if (likely(weft__load(&wake->kind, relaxed) == WEFT_BLOCK_TASK))
            weft__ready(slot, weft__container(wake, weft__task, b));
        else
            weft__resume(wake, slot);
    }
    (void)weft__spend(slot);
    weft__leave();
    return weft__select_outcome(cases, 2, false, deadline, result, false);
}

/* Nothing can be done, and both locks are held, taken in order, the second one after weft__many_begin. As weft__many_park and its loop. */
static WEFT_NOINLINE int32_t wait_held(weft_case *cases, uint32_t lower, weft__block *b, weft__slot **slot) {
    weft__waiter waiters[2];
    weft__lock *order[2] = {&cases[lower].chan->lock, &cases[lower ^ 1].chan->lock};
    selection s = {.many = {.block = b, .order = order, .locks = 2}, .cases = cases, .n = 2, .waiters = waiters, .pair = true};
    queue_all(&s.many, *slot);
    *slot = weft__wait_many(b, *slot, WEFT_FOREVER, WEFT_WAIT_SELECT, weft__many_post, &s.many);
    int32_t result = b->result;
    withdraw_all(&s.many, result, *slot);
    weft__many_end(b);
    return likely(result != WEFT_AWAIT_AGAIN) ? result : wait_two(cases, b, false, WEFT_FOREVER, slot);
}

/* Nothing can be done at the channel of the lower address. Both locks are held, that of the other taken after weft__many_begin; so if there is
 * nothing either, it waits with what it has: two or three exchanges instead of four. */
static WEFT_NOINLINE int select_held(weft_case *cases, uint32_t lower, weft_deadline deadline, weft__slot *slot) {
    weft__block *b = &weft__cur(weft__self())->b, *wake = NULL;
    weft_case *k = &cases[lower ^ 1];
    weft__lock_fence(&k->chan->lock); /* P3 */
    int32_t result = weft__case_try_locked(k, lower ^ 1, false, &wake);
    bool plain = deadline.ns == 0 && b->linked != WEFT_LINK_NONE; /* otherwise there is something to prepare first */
    if (likely(result == NONE && plain) && weft__cancel_check(b)) result = WEFT_ECANCELED;
    if (likely(result == NONE && plain)) {
        result = wait_held(cases, lower, b, &slot);
    } else {
        weft__lock_leave(&k->chan->lock);
        weft__lock_leave(&cases[lower].chan->lock);
        weft__many_end(b);
        if (wake) weft__resume(wake, slot);
        if (result == NONE) result = wait_two(cases, b, false, deadline, &slot); /* they were looked at together */
    }
    (void)weft__spend(slot);
    weft__leave();
    return weft__select_outcome(cases, 2, false, deadline, result, false);
}

/* The same after the other was looked at first, and is not locked. */
static WEFT_NOINLINE int select_downward(weft_case *cases, uint32_t lower, weft_deadline deadline, weft__slot *slot) {
    weft__many_begin(&weft__cur(weft__self())->b); /* P3: before the exchange */
    weft__lock_take_on(&cases[lower ^ 1].chan->lock, slot);
    return select_held(cases, lower, deadline, slot);
}

/* The other channel's lock is not to be had at once. */
static WEFT_COLD int select_upward(weft_case *cases, uint32_t lower, weft_deadline deadline, weft__slot *slot) {
    weft__lock_take(&cases[lower ^ 1].chan->lock);
    return select_held(cases, lower, deadline, slot);
}

static WEFT_NOINLINE int received_lump(weft_chan *c, const weft_case *k, int index, weft__slot *slot) {
    (void)weft__chan_received_lump(c, slot);
    if (k->open) *k->open = true;
    return index;
}

/* Under the lock: a small element can be taken from the buffer, and that is all. */
WEFT_INLINE bool plain_element(const weft_chan *c, const weft_case *k) {
    return k->op == WEFT_CASE_RECV && c->count && !c->senders.head && likely(c->elem <= WEFT_CHAN_SMALL);
}
/* Under the lock: there is nothing to be received. */
WEFT_INLINE bool plain_nothing(const weft_chan *c, const weft_case *k) {
    return k->op == WEFT_CASE_RECV && !c->count && !c->senders.head && !(c->flags & (WEFT_CHAN_CLOSED | WEFT_CHAN_MORE));
}

WEFT_INLINE bool above(const weft_chan *a, const weft_chan *b) {
    return (uintptr_t)a > (uintptr_t)b;
}

/* As weft__lock_take_on, but one attempt, and without a call. */
WEFT_INLINE bool take_once(weft_chan *c, weft__slot *s) {
    return weft__lean_take(&c->lock, s->lean) || likely(weft__lock_take_once(&c->lock));
}

/* The most common one is written out: two cases, and one can be received from a buffer. As in chan.c, every way out is a jump. */
int weft_selectv(weft_case *cases, size_t n, weft_deadline deadline) {
    weft__worker *w;
    weft__slot *slot;
    if (unlikely(!two_known(cases, n) || !weft__enter_fast(&w, &slot)))
        return n > ON_STACK ? select_many(cases, n, false, deadline) : select_few(cases, n, false, deadline);
    weft__block *b = &weft__cur(w)->b;
    if (unlikely(weft__load(&b->epoch, relaxed) != weft__load(&weft__rt.epoch, relaxed))) /* as in weft__cancel_check */
        return select_few(cases, n, false, deadline);
    uint32_t at = weft__random(&slot->random) >> 31;
    weft_case *k = &cases[at];
    weft_chan *c = k->chan;
    if (unlikely(!c) || unlikely(!take_once(c, slot))) return select_few(cases, n, false, deadline);
    if (!plain_element(c, k)) {
        if (!plain_nothing(c, k)) return select_two(cases, at, false, deadline, slot);
        weft_chan *other = cases[at ^ 1].chan, *lower = above(other, c) ? c : NULL;
        if (lower)
            weft__many_begin(b); /* P3: before the exchange */
        else
            weft__lock_leave(&c->lock);
        at ^= 1;
        k = &cases[at];
        c = other;
        if (unlikely(!c)) return select_few(cases, n, false, deadline);
        if (unlikely(!take_once(c, slot)))
            return lower ? select_upward(cases, at ^ 1, deadline, slot) : select_few(cases, n, false, deadline);
        if (!plain_element(c, k)) {
            if (lower) return select_held(cases, at ^ 1, deadline, slot);
            if (plain_nothing(c, k) && above(cases[at ^ 1].chan, c)) return select_downward(cases, at, deadline, slot);
            return select_two(cases, at, true, deadline, slot);
        }
        if (lower) {
            weft__many_end(b);
            weft__lock_leave(&lower->lock);
        }
    }
    uint32_t next = weft__chan_get_uncounted(c, k->elem, true);
    if (unlikely(weft__chan_lump(next))) return received_lump(c, k, (int)at, slot);
    weft__lock_leave(&c->lock);
    weft__leave_on(w);
    if (k->open) *k->open = true;
    return (int)at;
}
