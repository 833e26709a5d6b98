/* SPDX-License-Identifier: MIT */
#include "chan/chan.h"

#include "sched/switch.h"
#include "task/task.h"

_Static_assert(offsetof(weft_chan, refs) <= WEFT_LINE, "what an operation touches is one line");

enum { CHAN_SIZE = 2 * WEFT_LINE };
_Static_assert(sizeof(weft_chan) <= CHAN_SIZE, "a channel fits its slab");

weft__slab weft__chan_slab = {.size = CHAN_SIZE, .link_at = offsetof(weft_chan, slab_link)};

/* ---- making and freeing ---- */

static weft_chan *get(void) {
    weft__slot *s = weft__enter();
    if (!s) return weft__slab_get(&weft__chan_slab);
    weft_chan *c = weft__cache_get(&weft__chan_slab, &s->chans);
    weft__leave();
    return c;
}

static void put(weft_chan *c) {
    weft__slot *s = weft__enter();
    if (!s) {
        weft__slab_put(&weft__chan_slab, c);
        return;
    }
    weft__cache_put(&weft__chan_slab, &s->chans, c);
    weft__leave();
}

weft_chan *weft_chan_new(size_t elem_size, size_t capacity) {
    if (elem_size > INT32_MAX || capacity > INT32_MAX || (elem_size && capacity > INT32_MAX / elem_size)) return NULL;
    char *buffer = NULL;
    if (elem_size * capacity > 0 && !(buffer = weft__malloc(elem_size * capacity))) return NULL;
    weft_chan *c = get();
    if (!c) {
        weft__free(buffer);
        return NULL;
    }
    c->elem = (uint32_t)elem_size;
    c->cap = (uint32_t)capacity;
    c->count = c->first = 0;
    c->closed = false;
    c->buffer = buffer;
    c->receivers = c->senders = (weft__queue){NULL, NULL};
    weft__store(&c->refs, 1, relaxed); /* published with the channel */
    return c;
}

weft_chan *weft_chan_ref(weft_chan *c) {
    weft__add(&c->refs, 1, relaxed); /* the caller has one */
    return c;
}

static WEFT_COLD WEFT_NORETURN void freed_in_use(weft_chan *c) {
    weft__waiter *x = c->receivers.head ? c->receivers.head : c->senders.head;
    unsigned long long id = 0;
    if (weft__load(&x->block->kind, relaxed) != WEFT_BLOCK_THREAD)
        id = (unsigned long long)weft__container(x->block, weft__task, b)->id;
    weft__die("weft_chan_unref: the last reference to channel %p was dropped while task %llu still waits to %s on it",
              (void *)c, id, c->receivers.head ? "receive" : "send");
}

void weft_chan_unref(weft_chan *c) {
    if (!c || weft__sub(&c->refs, 1, acq_rel) != 1) return; /* the last one sees what the others did */
    weft__lock_take(&c->lock);                              /* a closer may still be inside */
    if (c->receivers.head || c->senders.head) freed_in_use(c);
    char *buffer = c->buffer;
    c->buffer = NULL;
    weft__lock_leave(&c->lock);
    weft__free(buffer);
    put(c);
}

/* ---- send and receive ----
 *
 * The fast path makes no call that it comes back from: every way out of it is a jump to one of the functions before it, so it needs
 * no frame and saves no register (measured: 14.4 -> 12.0 ns for a send and a receive). */

enum { SEND, RECV };

WEFT_INLINE int step(weft_chan *c, int what, void *elem, weft__block **wake, bool small) {
    return what == SEND ? weft__chan_send_locked(c, elem, wake, small) : weft__chan_recv_locked(c, elem, wake, small);
}

WEFT_INLINE void enqueue(weft_chan *c, int what, void *elem, weft__block *b, weft__waiter *x) {
    x->block = b;
    x->elem = elem;
    x->index = 0;
    x->many = false;
    b->waiter = x;
    weft__queue_add(what == SEND ? &c->senders : &c->receivers, x);
}

/* The general case: a deadline, a plain thread, a contended lock, large elements, a block that cancellation cannot find yet. The lock
 * is not held. */
static WEFT_NOINLINE int operate_slow(weft_chan *c, int what, void *elem, weft_deadline deadline) {
    weft__slot *s = weft__enter();
    if (s) s = weft__spend(s);
    weft__block *b = weft__me(), *wake = NULL;
    weft__wait wait = {.armed = false};
    int r = weft__cancel_check(b), err = 0;
    for (int look = 0; r == 0; look++) {
        weft__store(&b->wait_lock, &c->lock, release); /* P3; pairs with the acquire in weft__interrupt */
        weft__lock_take(&c->lock);
        weft__fence_after_rmw();
        r = step(c, what, elem, &wake, false);
        if (r == WEFT_CHAN_WAIT && look && !(err = weft__wait_check(&wait))) {
            weft__waiter x;
            enqueue(c, what, elem, b, &x);
            s = weft__wait_single(b, s, deadline, what == SEND ? WEFT_WAIT_SEND : WEFT_WAIT_RECV, &c->lock);
            r = b->result;
            break;
        }
        weft__lock_leave(&c->lock);
        if (wake) weft__resume(wake, s);
        if (r != WEFT_CHAN_WAIT) break;
        r = look ? err : weft__wait_prepare(&wait, b, deadline, s); /* then look again: it may have come meanwhile */
    }
    weft__wait_finish(&wait);
    if (s) weft__leave();
    return r;
}

/* It cannot be done now, and the lock is held: queues up and parks, in the plain case. */
WEFT_INLINE int park_for(weft_chan *c, int what, void *elem, weft_deadline deadline, weft__slot *s) {
    weft__worker *w = weft__self();
    weft__block *b = &weft__cur(w)->b;
    weft__fence_after_rmw(); /* P3: wait_lock before the epoch. Only who parks needs it, so it is here and not behind the lock */
    /* P3: a cancellation since the check is seen here, or sees us */
    bool plain = deadline.ns == 0 && b->linked != WEFT_LINK_NONE &&
                 weft__load(&b->epoch, relaxed) == weft__load(&weft__rt.epoch, relaxed);
    if (unlikely(!plain)) {
        weft__lock_leave(&c->lock);
        return operate_slow(c, what, elem, deadline);
    }
    weft__waiter x;
    enqueue(c, what, elem, b, &x);
    weft__store(&b->reason, what == SEND ? WEFT_WAIT_SEND : WEFT_WAIT_RECV, relaxed); /* for people */
    weft__store(&b->since, weft__load(&s->now, relaxed), relaxed);
    weft__store(&b->queued, 1, release); /* P2; pairs with interrupt_single */
    weft__park_locked(w, s, &c->lock);
    b = &weft__cur(weft__self())->b;
    weft__store(&b->reason, WEFT_WAIT_NONE, relaxed);
    int r = b->result;
    weft__leave();
    return r;
}

static WEFT_NOINLINE int park_to_send(weft_chan *c, void *elem, weft_deadline deadline, weft__slot *s) {
    return park_for(c, SEND, elem, deadline, s);
}
static WEFT_NOINLINE int park_to_receive(weft_chan *c, void *elem, weft_deadline deadline, weft__slot *s) {
    return park_for(c, RECV, elem, deadline, s);
}

/* Somebody waits on the other side, and the lock is held: its element, or ours, changes hands. */
WEFT_INLINE int meet(weft_chan *c, int what, void *elem, weft_deadline deadline, weft__slot *s) {
    weft__block *wake = NULL;
    int r = step(c, what, elem, &wake, true);
    if (unlikely(r == WEFT_CHAN_WAIT)) /* it was won elsewhere meanwhile */
        return what == SEND ? park_to_send(c, elem, deadline, s) : park_to_receive(c, elem, deadline, s);
    weft__lock_leave(&c->lock);
    if (likely(wake && weft__load(&wake->kind, relaxed) == WEFT_BLOCK_TASK))
        weft__ready(s, weft__container(wake, weft__task, b));
    else if (wake)
        weft__resume(wake, s);
    (void)weft__spend(s);
    weft__leave();
    return r;
}
static WEFT_NOINLINE int meet_receiver(weft_chan *c, void *elem, weft_deadline deadline, weft__slot *s) {
    return meet(c, SEND, elem, deadline, s);
}
static WEFT_NOINLINE int meet_sender(weft_chan *c, void *elem, weft_deadline deadline, weft__slot *s) {
    return meet(c, RECV, elem, deadline, s);
}

/* Operations on the buffer are paid for when they pass its beginning, or every BILL places: not one store for each. */
enum { BILL = 256 };
WEFT_INLINE bool bill_due(uint32_t at) {
    return at % BILL == 0;
}
static WEFT_NOINLINE int pay_and_leave(weft_chan *c, weft__slot *s) {
    s->budget -= c->cap < BILL ? (int32_t)c->cap : BILL;
    if (s->budget <= 0) weft__yield_now(s);
    weft__leave();
    return 0;
}

/* Into the runtime with the channel's lock taken. False: not as easily as that, and nothing is held; operate_slow must follow. */
WEFT_INLINE bool enter_locked(weft_chan *c, weft__worker **w, weft__slot **s) {
    if (unlikely(!weft__enter_fast(w, s))) return false;
    if (unlikely(c->elem > WEFT_CHAN_SMALL)) return false;
    weft__block *b = &weft__cur(*w)->b;
    bool cancelled = weft__load(&b->epoch, relaxed) != weft__load(&weft__rt.epoch, relaxed); /* or something else was */
    if (unlikely(cancelled)) return false;
    if (c->cap == 0 || weft__load(&b->wait_lock, relaxed) != &c->lock) /* a store that is not needed costs 0.5 ns */
        weft__store(&b->wait_lock, &c->lock, release);                 /* P3; pairs with the acquire in weft__interrupt */
    if (unlikely(!weft__lock_take_once(&c->lock))) return false;
    return true;
}

int weft_chan_send(weft_chan *c, const void *elem, weft_deadline deadline) {
    weft__worker *w;
    weft__slot *s;
    void *from = (void *)(uintptr_t)elem;
    if (unlikely(!enter_locked(c, &w, &s))) return operate_slow(c, SEND, from, deadline);
    if (c->receivers.head || unlikely(c->closed)) return meet_receiver(c, from, deadline, s);
    if (c->count == c->cap) return park_to_send(c, from, deadline, s);
    uint32_t at = weft__chan_put(c, elem, true);
    weft__lock_leave(&c->lock);
    if (unlikely(bill_due(at))) return pay_and_leave(c, s);
    weft__leave_on(w);
    return 0;
}

int weft_chan_recv(weft_chan *c, void *elem, weft_deadline deadline) {
    weft__worker *w;
    weft__slot *s;
    if (unlikely(!enter_locked(c, &w, &s))) return operate_slow(c, RECV, elem, deadline);
    if (c->senders.head || unlikely(c->closed)) return meet_sender(c, elem, deadline, s);
    if (c->count == 0) return park_to_receive(c, elem, deadline, s);
    uint32_t at = weft__chan_get(c, elem, true);
    weft__lock_leave(&c->lock);
    if (unlikely(bill_due(at))) return pay_and_leave(c, s);
    weft__leave_on(w);
    return 0;
}

int weft__chan_put_latest(weft_chan *c, const void *elem) {
    weft__slot *s = weft__enter();
    weft__block *wake = NULL;
    weft__lock_take(&c->lock);
    if (c->count && c->count == c->cap && !c->closed) { /* C1: nobody receives; C2 is true again after the send */
        c->first = c->first + 1 == c->cap ? 0 : c->first + 1;
        c->count--;
    }
    int r = weft__chan_send_locked(c, elem, &wake, true);
    weft__lock_leave(&c->lock);
    if (wake) weft__resume(wake, s);
    if (s) weft__leave();
    return r == WEFT_CHAN_WAIT ? WEFT_EAGAIN : r;
}

/* ---- close ---- */

/* Takes everybody off one queue; they are resumed after the lock is left. */
static void evict(weft__queue *q, weft__queue *out) {
    for (weft__waiter *x; (x = weft__queue_claim(q));) {
        x->block->result = x->many ? (int32_t)(WEFT_SELECT_CLOSED | x->index) : WEFT_ECLOSED;
        weft__queue_add(out, x);
    }
}

int weft_chan_close(weft_chan *c) {
    weft__slot *s = weft__enter();
    weft__queue woken = {NULL, NULL};
    weft__lock_take(&c->lock);
    bool again = c->closed;
    c->closed = true;
    evict(&c->receivers, &woken);
    evict(&c->senders, &woken);
    weft__lock_leave(&c->lock);
    for (weft__waiter *x; (x = woken.head);) {
        weft__queue_remove(x); /* its frame is gone once it runs */
        weft__resume(x->block, s);
    }
    if (s) weft__leave();
    return again ? WEFT_ECLOSED : 0;
}

/* An element that somebody was just putting in or taking out is lost with the others of its channel. */
static void forget(void *obj) {
    weft_chan *c = obj;
    if (!weft__lock_take_once(&c->lock)) c->count = 0;
    c->closed = true;
    c->receivers = c->senders = (weft__queue){NULL, NULL};
    weft__lock_leave(&c->lock);
}

void weft__chans_forget(void) {
    weft__slab_forget(&weft__chan_slab, forget);
}

/* ---- looking ---- */

size_t weft_chan_len(weft_chan *c) {
    weft__slot *s = weft__enter();
    weft__lock_take(&c->lock);
    size_t n = c->count;
    weft__lock_leave(&c->lock);
    if (s) weft__leave();
    return n;
}

size_t weft_chan_cap(weft_chan *c) {
    return c->cap;
}
