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
    if (x->block->kind == WEFT_BLOCK_TASK) id = (unsigned long long)weft__container(x->block, weft__task, b)->id;
    weft__die("weft_chan_unref: the last reference to channel %p was dropped while task %llu still waits to %s on it", (void *)c, id,
              c->receivers.head ? "receive" : "send");
}

void weft_chan_unref(weft_chan *c) {
    if (!c || weft__sub(&c->refs, 1, acq_rel) != 1) return; /* the last one sees what the others did */
    weft__lock_take(&c->lock);                               /* a closer may still be inside */
    if (c->receivers.head || c->senders.head) freed_in_use(c);
    char *buffer = c->buffer;
    c->buffer = NULL;
    weft__lock_leave(&c->lock);
    weft__free(buffer);
    put(c);
}

/* ---- send and receive ---- */

enum { SEND, RECV };

WEFT_INLINE int step(weft_chan *c, int what, void *elem, weft__block **wake) {
    return what == SEND ? weft__chan_send_locked(c, elem, wake) : weft__chan_recv_locked(c, elem, wake);
}

/* Queues up and parks, with the lock held. The result is in the block. */
WEFT_INLINE weft__slot *queue_up(weft_chan *c, int what, void *elem, weft__block *b, weft__slot *s, weft_deadline deadline) {
    weft__waiter x = {.block = b, .elem = elem, .index = 0, .many = false};
    b->waiter = &x;
    weft__queue_add(what == SEND ? &c->senders : &c->receivers, &x);
    return weft__wait_single(b, s, deadline, what == SEND ? WEFT_WAIT_SEND : WEFT_WAIT_RECV, &c->lock);
}

/* Ends an operation that was done at once. */
WEFT_INLINE int finish(int result, weft__block *wake, weft__slot *s) {
    if (wake) weft__resume(wake, s);
    if (likely(s != NULL)) weft__leave();
    return result;
}

/* The general case: a deadline, a plain thread, or a block that cancellation cannot find yet. The lock is not held. */
static WEFT_COLD int operate_slow(weft_chan *c, int what, void *elem, weft_deadline deadline, weft__block *b, weft__slot *s) {
    weft__wait wait;
    weft__block *wake = NULL;
    int err = weft__wait_prepare(&wait, b, deadline, s);
    if (err) return finish(err, NULL, s);
    weft__store(&b->wait_lock, &c->lock, release); /* P3; pairs with the acquire in weft__interrupt */
    weft__lock_take(&c->lock);
    weft__fence_after_rmw();
    int r = step(c, what, elem, &wake);
    if (r == WEFT_CHAN_WAIT && (err = weft__wait_check(&wait))) r = err;
    if (r != WEFT_CHAN_WAIT) {
        weft__lock_leave(&c->lock);
        if (wake) weft__resume(wake, s);
    } else {
        s = queue_up(c, what, elem, b, s, deadline);
        r = b->result;
    }
    weft__wait_finish(&wait);
    return finish(r, NULL, s);
}

WEFT_INLINE int operate(weft_chan *c, int what, void *elem, weft_deadline deadline) {
    weft__slot *s = weft__enter();
    weft__block *b, *wake = NULL;
    if (likely(s != NULL)) {
        s = weft__spend(s);
        b = &weft__cur(weft__self())->b;
    } else {
        b = weft__thread_block();
    }
    if (unlikely(weft__cancel_check(b))) return finish(WEFT_ECANCELED, NULL, s);
    weft__store(&b->wait_lock, &c->lock, release); /* P3; pairs with the acquire in weft__interrupt */
    weft__lock_take(&c->lock);
    weft__fence_after_rmw();
    int r = step(c, what, elem, &wake);
    if (r != WEFT_CHAN_WAIT) {
        weft__lock_leave(&c->lock);
        return finish(r, wake, s);
    }
    /* P3: a cancellation since the check is seen here, or sees us */
    bool plain = s && deadline.ns == 0 && b->linked != WEFT_LINK_NONE &&
                 weft__load(&b->epoch, relaxed) == weft__load(&weft__rt.epoch, relaxed);
    if (unlikely(!plain)) {
        weft__lock_leave(&c->lock);
        return operate_slow(c, what, elem, deadline, b, s);
    }
    queue_up(c, what, elem, b, s, deadline);
    weft__leave();
    return b->result;
}

int weft_chan_send(weft_chan *c, const void *elem, weft_deadline deadline) {
    return operate(c, SEND, (void *)(uintptr_t)elem, deadline);
}

int weft_chan_recv(weft_chan *c, void *elem, weft_deadline deadline) {
    return operate(c, RECV, elem, deadline);
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
