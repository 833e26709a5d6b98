/* SPDX-License-Identifier: MIT */
#include "chan/chan.h"

#include <stdio.h>

#include "sched/switch.h"
#include "task/task.h"

_Static_assert(offsetof(weft_chan, refs) == WEFT_LINE, "what an operation touches is one line");
_Static_assert(offsetof(weft_chan, on_undelivered) == 2 * WEFT_LINE, "what is fixed is not on a line that is written");

enum {
    CHAN_SIZE = 3 * WEFT_LINE,
    LEAN_AFTER = 4096, /* operations: 50 us or so, some ten times what straightening it takes */
};
#define LEAN_LEARNED UINT32_MAX /* lean_lasted: it has not leant since */
_Static_assert(sizeof(weft_chan) <= CHAN_SIZE, "a channel fits its slab");

uint32_t weft__chan_lean_after = LEAN_AFTER, weft__chan_lean_growth = 2;
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

/* An UNLIMITED channel's block: about a page, and a few elements at least. */
enum { BLOCK_BYTES = 4096, BLOCK_FEW = 4, BLOCK_MANY = 256 };
static size_t block_places(size_t elem_size) {
    size_t n = elem_size ? BLOCK_BYTES / elem_size : BLOCK_MANY;
    return n < BLOCK_FEW ? BLOCK_FEW : n > BLOCK_MANY ? BLOCK_MANY : n;
}

/* Bytes of what an operation may need besides the lock: a block, or room for an element. */
static size_t aid_size(int kind, size_t elem, size_t cap) {
    return kind == WEFT_CHAN_UNLIMITED ? sizeof(weft__chan_block) + elem * cap : elem ? elem : 1;
}

static bool sizes_fit(size_t elem, size_t cap) {
    return elem <= INT32_MAX && cap <= INT32_MAX && (elem == 0 || cap <= INT32_MAX / elem);
}

typedef struct {
    char *buffer, *name;
    void *spare;
} parts;

static void parts_free(parts *p, int kind) {
    weft__free(kind == WEFT_CHAN_UNLIMITED && p->buffer ? weft__container(p->buffer, weft__chan_block, data)
                                                        : (void *)p->buffer);
    weft__free(p->name);
    weft__free(p->spare);
}

static bool parts_get(parts *p, const weft_chan_opts *o, size_t elem, size_t cap) {
    size_t aid = aid_size(o->kind, elem, cap);
    if (o->kind == WEFT_CHAN_UNLIMITED) {
        weft__chan_block *b = weft__malloc(aid);
        if (!b) return false;
        p->buffer = b->data;
    } else if (elem * cap > 0 && !(p->buffer = weft__malloc(elem * cap))) {
        return false;
    }
    if (o->kind == WEFT_CHAN_LATEST && o->on_undelivered && !(p->spare = weft__malloc(aid))) return false;
    if (!o->name) return true;
    size_t n = strlen(o->name) + 1;
    if (!(p->name = weft__malloc(n))) return false;
    memcpy(p->name, o->name, n);
    return true;
}

static void chan_init(weft_chan *c, const weft_chan_opts *o, size_t elem, size_t cap, const parts *p) {
    c->elem = (uint32_t)elem;
    c->cap = (uint32_t)cap;
    c->count = c->first = c->bound = 0;
    c->buffer = p->buffer;
    c->receivers = c->senders = (weft__queue){NULL, NULL};
    c->flags = (o->kind != WEFT_CHAN_BUFFERED ? WEFT_CHAN_ODD : 0) | (cap ? WEFT_CHAN_LOW : 0);
    c->left = c->undelivered = 0;
    c->mark = c->more = 0;
    c->blocks = c->last = NULL;
    c->spare = p->spare;
    c->on_undelivered = o->on_undelivered;
    c->arg = o->arg;
    c->name = p->name;
    c->kind = o->kind;
    c->lean_slot = 0;
    c->lean_run = 0;
    c->lean_lasted = LEAN_LEARNED;
    c->lean_need = weft__chan_lean_after;
    weft__store(&c->lock.leans, 0, relaxed); /* nobody knows it yet; its memory may have been another channel's (P4) */
    weft__store(&c->refs, 1, relaxed);       /* published with the channel */
}

weft_chan *weft_chan_new_opts(size_t elem_size, const weft_chan_opts *opts) {
    static const weft_chan_opts none;
    const weft_chan_opts *o = opts ? opts : &none;
    size_t cap = o->capacity;
    if (o->kind == WEFT_CHAN_LATEST && cap == 0) cap = 1;
    if (o->kind == WEFT_CHAN_UNLIMITED) cap = block_places(elem_size);
    if (o->kind < WEFT_CHAN_BUFFERED || o->kind > WEFT_CHAN_LATEST || !sizes_fit(elem_size, cap)) return NULL;
    parts p = {NULL, NULL, NULL};
    weft_chan *c = parts_get(&p, o, elem_size, cap) ? get() : NULL;
    if (!c) {
        parts_free(&p, o->kind);
        return NULL;
    }
    weft__san_acquire(c); /* its last life; pairs with weft_chan_unref */
    chan_init(c, o, elem_size, cap, &p);
    return c;
}

weft_chan *weft_chan_new(size_t elem_size, size_t capacity) {
    weft_chan_opts o = {.kind = WEFT_CHAN_BUFFERED, .capacity = capacity};
    return weft_chan_new_opts(elem_size, &o);
}

weft_chan *weft_chan_ref(weft_chan *c) {
    weft__add(&c->refs, 1, relaxed); /* the caller has one */
    return c;
}

static WEFT_COLD WEFT_NORETURN void freed_in_use(weft_chan *c) {
    weft__waiter *x = c->receivers.head ? c->receivers.head : c->senders.head;
    char who[40] = "a plain thread";
    if (weft__load(&x->block->kind, relaxed) != WEFT_BLOCK_THREAD) /* the wait orders it */
        snprintf(who, sizeof who, "task %llu", (unsigned long long)weft__container(x->block, weft__task, b)->id);
    weft__die("weft_chan_unref: the last reference to channel %p%s%s was dropped while %s still waits to %s on it", (void *)c,
              c->name ? " " : "", c->name ? c->name : "", who, c->receivers.head ? "receive" : "send");
}

/* The last reference is gone: nobody else can come here. */
static void drop_elements(weft_chan *c) {
    if (c->on_undelivered) {
        for (uint32_t i = 0; i < c->count; i++) {
            uint32_t at = c->first + i;
            c->on_undelivered(c->buffer + (size_t)(at >= c->cap ? at - c->cap : at) * c->elem, c->arg);
        }
    }
    for (weft__chan_block *b = c->blocks, *next; b; b = next) {
        for (uint32_t i = 0; i < b->count && c->on_undelivered; i++) c->on_undelivered(b->data + (size_t)i * c->elem, c->arg);
        next = b->next;
        weft__free(b);
    }
}

void weft_chan_unref(weft_chan *c) {
    if (!c || weft__sub(&c->refs, 1, acq_rel) != 1) return; /* the last one sees what the others did */
    weft__lock_take(&c->lock);                              /* a closer may still be inside */
    if (c->receivers.head || c->senders.head) freed_in_use(c);
    weft__lock_leave(&c->lock);
    drop_elements(c);
    parts p = {c->buffer, c->name, c->spare};
    parts_free(&p, c->kind);
    c->buffer = NULL;
    weft__san_release(c); /* the slot's cache may be all that orders its next life */
    put(c);
}

/* ---- when there is no room, or no element ---- */

/* There may be more elements than ever before, or room again below the mark. Under the lock, as all of this part. */
static void set_bound(weft_chan *c) {
    size_t n = c->count + c->more;
    if (n > c->mark) c->mark = n;
    bool low = c->mark < c->cap;
    c->flags = low ? c->flags | WEFT_CHAN_LOW : c->flags & ~(uint32_t)WEFT_CHAN_LOW;
    c->bound = c->flags & (WEFT_CHAN_CLOSED | WEFT_CHAN_MORE) ? 0 : low ? (uint32_t)c->mark : c->cap; /* C3, C4, C5 */
}

/* The oldest element makes room; it was copied, or nobody wants it. */
static void give_way(weft_chan *c) {
    weft__chan_get(c, NULL, false);
    c->undelivered++;
}

static void append(weft_chan *c, const void *elem) {
    weft__chan_copy(c->last->data + (size_t)c->last->count++ * c->elem, elem, c->elem, false);
    c->more++;
    set_bound(c);
}

int weft__chan_send_full(weft_chan *c, const void *elem) {
    if (c->flags & WEFT_CHAN_CLOSED) return WEFT_ECLOSED;
    if (c->count < c->cap && !c->blocks) { /* C4: a new mark */
        weft__chan_put(c, elem, false);
        set_bound(c);
        return 0;
    }
    if (c->kind == WEFT_CHAN_BUFFERED) return WEFT_CHAN_WAIT;
    if (c->kind == WEFT_CHAN_LATEST && !c->on_undelivered) {
        give_way(c);
        weft__chan_put(c, elem, false);
        return 0;
    }
    if (!c->last || c->last->count == c->cap) return WEFT_CHAN_AID;
    append(c, elem);
    return 0;
}

/* What an operation needs besides the lock, or leaves behind. */
typedef struct {
    void *memory;
    bool undelivered; /* `memory` is an element that gave way */
} aid;

static bool aid_at_hand(weft_chan *c, aid *a) {
    if (a->memory || !c->spare) return a->memory;
    a->memory = c->spare;
    c->spare = NULL;
    return true;
}

/* A send that found WEFT_CHAN_AID, still under the lock: 0, or WEFT_CHAN_AID again, to be fetched without it. */
static int send_aided(weft_chan *c, const void *elem, aid *a) {
    if (!aid_at_hand(c, a)) return WEFT_CHAN_AID;
    if (c->kind == WEFT_CHAN_LATEST) {
        weft__chan_copy(a->memory, c->buffer + (size_t)c->first * c->elem, c->elem, false);
        a->undelivered = true;
        give_way(c);
        weft__chan_put(c, elem, false);
        return 0;
    }
    weft__chan_block *b = a->memory;
    a->memory = NULL;
    b->next = NULL;
    b->count = 0;
    if (c->last)
        c->last->next = b;
    else
        c->blocks = b;
    c->last = b;
    c->flags |= WEFT_CHAN_MORE;
    append(c, elem);
    return 0;
}

/* The buffer is empty, and there are blocks behind it: the first of them becomes the buffer. */
static int recv_aided(weft_chan *c, void *elem, aid *a) {
    weft__chan_block *old = weft__container(c->buffer, weft__chan_block, data), *b = c->blocks;
    c->blocks = b->next;
    if (!c->blocks) {
        c->last = NULL;
        c->flags &= ~(uint32_t)WEFT_CHAN_MORE;
    }
    c->buffer = b->data;
    c->count = b->count;
    c->more -= b->count;
    c->left += c->first; /* C6 */
    c->first = 0;
    set_bound(c);
    if (c->spare)
        a->memory = old;
    else
        c->spare = old;
    weft__chan_get(c, elem, false);
    return 0;
}

/* Without the lock, and outside the runtime: user code is called. */
static WEFT_COLD void aid_finish(weft_chan *c, aid *a) {
    if (a->undelivered) c->on_undelivered(a->memory, c->arg);
    weft__slot *s = weft__enter();
    weft__lock_take_on(&c->lock, s);
    if (!c->spare) {
        c->spare = a->memory;
        a->memory = NULL;
    }
    weft__lock_leave(&c->lock);
    if (s) weft__leave();
    weft__free(a->memory);
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

WEFT_INLINE int step_aided(weft_chan *c, int what, void *elem, weft__block **wake, aid *a) {
    int r = step(c, what, elem, wake, false);
    if (likely(r != WEFT_CHAN_AID)) return r;
    return what == SEND ? send_aided(c, elem, a) : recv_aided(c, elem, a);
}

static int aid_fetch(weft_chan *c, aid *a) {
    a->memory = weft__malloc(aid_size(c->kind, c->elem, c->cap));
    return a->memory ? 0 : WEFT_ENOMEM;
}

/* The general case: a deadline, a plain thread, a contended lock, large elements, other kinds, a block that cancellation cannot find yet. The
 * lock is not held. */
static WEFT_NOINLINE int operate_slow(weft_chan *c, int what, void *elem, weft_deadline deadline) {
    weft__slot *s = weft__enter();
    if (s) s = weft__spend(s);
    weft__block *b = weft__me(), *wake = NULL;
    weft__wait wait = {.armed = false};
    aid aid = {NULL, false};
    bool ready = false; /* to wait */
    int r = weft__cancel_first(b, deadline), err = 0;
    while (r == 0) {
        weft__store(&b->wait_lock, &c->lock, release); /* P3; pairs with the acquire in weft__interrupt */
        weft__lock_take_on(&c->lock, s);
        weft__lock_fence(&c->lock);
        r = step_aided(c, what, elem, &wake, &aid);
        if (r == WEFT_CHAN_WAIT && ready && !(err = weft__wait_check(&wait))) {
            weft__waiter x;
            enqueue(c, what, elem, b, &x);
            s = weft__wait_single(b, s, deadline, what == SEND ? WEFT_WAIT_SEND : WEFT_WAIT_RECV, &c->lock);
            r = b->result;
            break;
        }
        weft__lock_leave(&c->lock);
        if (wake) weft__resume(wake, s);
        if (r == WEFT_CHAN_AID) {
            r = aid_fetch(c, &aid);
        } else if (r == WEFT_CHAN_WAIT) {
            r = ready ? err : weft__wait_prepare(&wait, b, deadline, s); /* then look again: it may have come meanwhile */
            ready = true;
        } else {
            break;
        }
    }
    weft__wait_finish(&wait);
    if (s) weft__leave();
    if (unlikely(aid.memory != NULL)) aid_finish(c, &aid);
    return r;
}

int weft__chan_send_aided(weft_chan *c, const void *elem) {
    return operate_slow(c, SEND, (void *)(uintptr_t)elem, WEFT_POLL);
}
int weft__chan_recv_aided(weft_chan *c, void *elem) {
    return operate_slow(c, RECV, elem, WEFT_POLL);
}

static void post_unlock(weft__slot *s, void *lock) {
    (void)s;
    weft__lock_leave_upright(lock);
}

/* It cannot be done now, and the lock is held, by exchange: queues up and parks, in the plain case. */
WEFT_INLINE int park_for(weft_chan *c, int what, void *elem, weft_deadline deadline, weft__worker *w, weft__slot *s) {
    weft__block *b = &weft__cur(w)->b;
    weft__fence_after_rmw(); /* P3: wait_lock before the epoch. Only who parks needs it, so it is here and not behind the lock */
    /* P3: a cancellation since the check is seen here, or sees us */
    bool plain = deadline.ns == 0 && b->linked != WEFT_LINK_NONE &&
                 weft__load(&b->epoch, relaxed) == weft__load(&weft__rt.epoch, relaxed);
    if (unlikely(!plain)) {
        weft__lock_leave_upright(&c->lock);
        return operate_slow(c, what, elem, deadline);
    }
    weft__waiter x;
    enqueue(c, what, elem, b, &x);
    weft__store(&b->reason, what == SEND ? WEFT_WAIT_SEND : WEFT_WAIT_RECV, relaxed); /* for people */
    weft__store(&b->since, weft__load(&s->now, relaxed), relaxed);
    weft__store(&b->queued, &c->lock, release); /* P2; pairs with interrupt_single */
    weft__park(w, s, post_unlock, &c->lock);
    w = weft__self(); /* H9 */
    b = &weft__cur(w)->b;
    weft__store(&b->reason, WEFT_WAIT_NONE, relaxed);
    int r = b->result;
    weft__leave_on(w);
    return r;
}

/* No room below `bound` means something else than to wait, or the lock is not held by exchange. */
static WEFT_NOINLINE int send_without_waiting(weft_chan *c, void *elem, weft_deadline deadline, weft__slot *s) {
    int r = weft__chan_send_full(c, elem);
    weft__lock_leave(&c->lock);
    if (r > 0) return operate_slow(c, SEND, elem, deadline);
    (void)weft__spend(s);
    weft__leave();
    return r;
}
static WEFT_NOINLINE int park_to_send(weft_chan *c, void *elem, weft_deadline deadline, weft__worker *w, weft__slot *s) {
    if (unlikely(c->flags & (WEFT_CHAN_CLOSED | WEFT_CHAN_ODD | WEFT_CHAN_LOW | WEFT_CHAN_LEANT)))
        return send_without_waiting(c, elem, deadline, s);
    return park_for(c, SEND, elem, deadline, w, s);
}
static WEFT_NOINLINE int park_to_receive(weft_chan *c, void *elem, weft_deadline deadline, weft__worker *w, weft__slot *s) {
    if (unlikely(c->flags & (WEFT_CHAN_CLOSED | WEFT_CHAN_MORE | WEFT_CHAN_LEANT))) {
        weft__lock_leave(&c->lock);
        return operate_slow(c, RECV, elem, deadline);
    }
    return park_for(c, RECV, elem, deadline, w, s);
}

static WEFT_NOINLINE int step_back(weft__slot *s) {
    (void)weft__yield_now(s);
    weft__leave();
    return 0;
}

/* Leaves the runtime, and lets others run first when it is time. */
WEFT_INLINE int pay(weft__worker *w, weft__slot *s) {
    if (unlikely(--s->budget < 0)) return step_back(s);
    weft__leave_on(w);
    return 0;
}

/* The element has changed hands with somebody who waited; the lock is held, `upright`: by exchange. */
WEFT_INLINE int met(weft_chan *c, weft__waiter *x, weft__worker *w, weft__slot *s, bool upright) {
    weft__block *wake = x->block;
    wake->result = (int32_t)x->index;
    if (upright)
        weft__lock_leave_upright(&c->lock);
    else
        weft__lock_leave(&c->lock);
    if (likely(weft__load(&wake->kind, relaxed) == WEFT_BLOCK_TASK))
        weft__ready(s, weft__container(wake, weft__task, b));
    else
        weft__resume(wake, s);
    return pay(w, s);
}

/* Who waited were selects that have been won elsewhere: with the lock held, as if nobody had waited. */
static WEFT_COLD int met_nobody(weft_chan *c, int what, void *elem, weft_deadline deadline, weft__worker *w, weft__slot *s) {
    if (what == SEND && c->count >= c->bound) return park_to_send(c, elem, deadline, w, s);
    if (what == RECV && c->count == 0) return park_to_receive(c, elem, deadline, w, s);
    if (what == SEND)
        weft__chan_put(c, elem, true);
    else
        weft__chan_get(c, elem, true);
    weft__lock_leave(&c->lock);
    return pay(w, s);
}

/* Somebody waits on the other side, and the lock is held. As weft__chan_send_locked and weft__chan_recv_locked. */
static WEFT_NOINLINE int meet_receiver(weft_chan *c, void *elem, weft_deadline deadline, weft__worker *w, weft__slot *s) {
    weft__waiter *x = weft__queue_claim(&c->receivers);
    if (unlikely(!x)) return met_nobody(c, SEND, elem, deadline, w, s);
    if (x->elem) weft__chan_copy(x->elem, elem, c->elem, true);
    weft__chan_count_handed(c);
    return met(c, x, w, s, false);
}
/* The waiting sender's element takes the place of the oldest. */
static WEFT_NOINLINE int take_over_place(weft_chan *c, weft__waiter *x, void *elem, weft__worker *w, weft__slot *s) {
    weft__chan_get(c, elem, true);
    weft__chan_put(c, x->elem, true);
    return met(c, x, w, s, false);
}
static WEFT_NOINLINE int meet_sender(weft_chan *c, void *elem, weft_deadline deadline, weft__worker *w, weft__slot *s) {
    weft__waiter *x = weft__queue_claim(&c->senders);
    if (unlikely(!x)) return met_nobody(c, RECV, elem, deadline, w, s);
    if (c->count) return take_over_place(c, x, elem, w, s);
    if (likely(elem != NULL)) weft__chan_copy(elem, x->elem, c->elem, true);
    if (unlikely(++c->first == 0)) c->left += UINT64_C(1) << 32; /* C2: a rendezvous; as weft__chan_count_handed */
    return met(c, x, w, s, true);                                /* C2: cap == 0, so C7 */
}

/* It has been straightened. If that was before it had been of use, it has to be longer in one place until it leans again. */
static void learn(weft_chan *c) {
    if (c->lean_lasted == LEAN_LEARNED) return;
    if (c->lean_lasted < c->lean_need)
        c->lean_need *= c->lean_need < UINT32_MAX / 4 ? weft__chan_lean_growth : 1;
    else if (c->lean_need > weft__chan_lean_after)
        c->lean_need /= weft__chan_lean_growth;
    c->lean_lasted = LEAN_LEARNED;
}

/* Now and then, under the lock: if it was always somebody on this slot lately who came this way, the lock leans there from now on. */
WEFT_INLINE void lean(weft_chan *c, weft__slot *s, uint32_t operations) {
    if (weft__load(&c->lock.kept, relaxed) || weft__fences ||
        weft__san_tasks) { /* K1: it leans, or somebody is straightening it; K5 */
        c->lean_lasted += c->lean_lasted < UINT32_MAX / 2 ? operations : 0;
        return;
    }
    learn(c);
    c->lean_run = c->lean_slot == s->lean ? c->lean_run + operations : 0;
    c->lean_slot = s->lean;
    if (likely(c->lean_run < c->lean_need)) return;
    c->lean_run = c->lean_lasted = 0;
    c->flags |= WEFT_CHAN_LEANT; /* C7 */
    weft__lean_begin(&c->lock, s->lean);
}

static WEFT_NOINLINE int pay_and_leave(weft_chan *c, weft__slot *s) {
    uint32_t lump = c->cap < WEFT_CHAN_LUMP ? c->cap : WEFT_CHAN_LUMP;
    s->budget -= (int32_t)lump;
    lean(c, s, lump);
    weft__lock_leave(&c->lock); /* whoever got the element may drop the channel now */
    if (s->budget < 0) return step_back(s);
    weft__leave();
    return 0;
}

int weft__chan_received_lump(weft_chan *c, weft__slot *s) {
    if (c->first == 0) c->left += c->cap; /* C6 */
    return pay_and_leave(c, s);
}

/* Into the runtime with the channel's lock taken. False: not as easily as that, and nothing is held; operate_slow must follow. */
WEFT_INLINE bool enter_locked(weft_chan *c, weft__worker **w, weft__slot **s) {
    if (unlikely(!weft__enter_fast(w, s))) return false;
    if (unlikely(c->elem > WEFT_CHAN_SMALL)) return false;
    weft__block *b = &weft__cur(*w)->b;
    bool cancelled = weft__load(&b->epoch, relaxed) != weft__load(&weft__rt.epoch, relaxed); /* or something else was */
    if (unlikely(cancelled)) return false;
    if (c->cap == 0) {                                 /* C7 */
        weft__store(&b->wait_lock, &c->lock, release); /* P3; pairs with the acquire in weft__interrupt */
        return likely(weft__lock_take_upright(&c->lock));
    }
    if (weft__load(&b->wait_lock, relaxed) != &c->lock) /* a store that is not needed costs 0.5 ns */
        weft__store(&b->wait_lock, &c->lock, release);  /* as above */
    return weft__lean_take(&c->lock, (*s)->lean) || likely(weft__lock_take_once(&c->lock));
}

int weft_chan_send(weft_chan *c, const void *elem, weft_deadline deadline) {
    weft__worker *w;
    weft__slot *s;
    void *from = (void *)(uintptr_t)elem;
    if (unlikely(!enter_locked(c, &w, &s))) return operate_slow(c, SEND, from, deadline);
    if (c->receivers.head) return meet_receiver(c, from, deadline, w, s);
    if (c->count >= c->bound) return park_to_send(c, from, deadline, w, s);
    uint32_t at = weft__chan_put(c, elem, true);
    if (unlikely(weft__chan_lump(at))) return pay_and_leave(c, s);
    weft__lock_leave(&c->lock);
    weft__leave_on(w);
    return 0;
}

int weft_chan_recv(weft_chan *c, void *elem, weft_deadline deadline) {
    weft__worker *w;
    weft__slot *s;
    if (unlikely(!enter_locked(c, &w, &s))) return operate_slow(c, RECV, elem, deadline);
    if (c->senders.head) return meet_sender(c, elem, deadline, w, s);
    if (c->count == 0) return park_to_receive(c, elem, deadline, w, s);
    uint32_t next = weft__chan_get_uncounted(c, elem, true);
    if (unlikely(weft__chan_lump(next))) return weft__chan_received_lump(c, s);
    weft__lock_leave(&c->lock);
    weft__leave_on(w);
    return 0;
}

int weft__chan_put_latest(weft_chan *c, const void *elem) {
    weft__slot *s = weft__enter();
    weft__block *wake = NULL;
    _Alignas(16) char old[WEFT_CHAN_SMALL]; /* as an element of a buffer is */
    bool gave_way = false;
    weft__lock_take_on(&c->lock, s);
    int r = weft__chan_send_locked(c, elem, &wake, true);
    if (r > 0 && c->count) { /* C1: nobody receives; C2 is true again after the put */
        weft__chan_copy(old, c->buffer + (size_t)c->first * c->elem, c->elem, true);
        gave_way = true;
        give_way(c);
        weft__chan_put(c, elem, true);
        r = 0;
    }
    weft__lock_leave(&c->lock);
    if (wake) weft__resume(wake, s);
    if (s) weft__leave();
    if (gave_way && c->on_undelivered) c->on_undelivered(old, c->arg);
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
    weft__lock_take_on(&c->lock, s);
    bool again = c->flags & WEFT_CHAN_CLOSED;
    c->flags |= WEFT_CHAN_CLOSED;
    c->bound = 0; /* C3 */
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
    if (weft__lock_forget(&c->lock)) {
        c->count = 0;
        c->blocks = c->last = NULL; /* their memory is lost */
        c->more = 0;
    }
    c->flags |= WEFT_CHAN_CLOSED;
    if (!c->blocks) c->flags &= ~(uint32_t)WEFT_CHAN_MORE;
    c->bound = 0; /* C3 */
    c->receivers = c->senders = (weft__queue){NULL, NULL};
}

void weft__chans_forget(void) {
    for (int i = 0; i < WEFT_LEAN_SLOTS; i++) weft__store(&weft__leans[i].tries, NULL, relaxed); /* there is one thread */
    weft__slab_forget(&weft__chan_slab, forget);
}

/* ---- looking ---- */

size_t weft_chan_len(weft_chan *c) {
    weft__slot *s = weft__enter();
    weft__lock_take_on(&c->lock, s);
    size_t n = c->count + c->more;
    weft__lock_leave(&c->lock);
    if (s) weft__leave();
    return n;
}

bool weft_chan_is_closed(weft_chan *c) {
    weft__slot *s = weft__enter();
    weft__lock_take_on(&c->lock, s);
    bool closed = c->flags & WEFT_CHAN_CLOSED;
    weft__lock_leave(&c->lock);
    if (s) weft__leave();
    return closed;
}

size_t weft_chan_cap(weft_chan *c) {
    return c->kind == WEFT_CHAN_UNLIMITED ? SIZE_MAX : c->cap;
}

static size_t waiting(const weft__queue *q) {
    size_t n = 0;
    for (weft__waiter *x = q->head; x; x = x->next) n++;
    return n;
}

void weft_chan_stats_get(weft_chan *c, weft_chan_stats *out) {
    weft__slot *s = weft__enter();
    weft__lock_take_on(&c->lock, s);
    size_t len = c->count + c->more;
    uint64_t gone = c->left + c->first; /* C6 */
    *out = (weft_chan_stats){.sent = gone + len,
                             .received = gone - c->undelivered,
                             .undelivered = c->undelivered,
                             .len = len,
                             .high_water = c->mark,
                             .send_waiting = waiting(&c->senders),
                             .recv_waiting = waiting(&c->receivers),
                             .name = c->name ? c->name : ""};
    weft__lock_leave(&c->lock);
    if (s) weft__leave();
}
