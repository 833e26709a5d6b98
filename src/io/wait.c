/* SPDX-License-Identifier: MIT */
/* The waiter's side of a descriptor: waits for an edge, and for a turn. */
#include <poll.h>

#include "io/inner.h"
#include "os/os.h"
#include "os/socket.h"
#include "sched/switch.h"
#include "task/task.h"
#include "time/clock.h"

enum { OPERATION_COST = 8 }; /* of the slot's budget: a system call takes as long as some tens of channel operations */

/* ---- waiting ---- */

WEFT_HOT int weft__fd_begin(weft_deadline deadline) {
    weft__slot *s = weft__enter();
    if (s) {
        s->budget -= OPERATION_COST - 1;
        (void)weft__spend(s);
        weft__leave();
    }
    return weft__cancel_first(weft__me(), deadline);
}

/* What is waited for: an edge for a side, the side's turn, any edge. */
enum { EDGE_READ = WEFT_SIDE_READ, EDGE_WRITE = WEFT_SIDE_WRITE, TURN_READ, TURN_WRITE, ANY_EDGE };

static weft__queue *queue_of(weft__desc *d, int what) {
    if (what == ANY_EDGE) return &d->watchers;
    return what >= TURN_READ ? &d->line[what - TURN_READ] : &d->side[what].waiting;
}

/* Under the lock, and of the right generation: 1, it is ours; 0: LINE is set, and whoever has it
 * will pass it on (D3). */
static int take_or_line(weft__desc *d, int side) {
    _Atomic uint64_t *turn = &d->side[side].turn;
    uint64_t now = weft__load(turn, relaxed); /* the CAS decides */
    for (;;) {
        bool taken = now & WEFT_TURN_TAKEN;
        if (weft__cas(turn, &now, now | (taken ? WEFT_TURN_LINE : WEFT_TURN_TAKEN), acquire))
            return !taken; /* pairs with weft__turn_leave */
    }
}

/* Before parking, under the lock: 0, 1 (there is no need to), or an error. */
static WEFT_HOT int need(const weft__fd *f, int what, uint64_t seen) {
    weft__desc *d = f->d;
    if (weft__load(&d->generation, relaxed) != f->generation) return WEFT_ECLOSED; /* D4 */
    if (what == TURN_READ || what == TURN_WRITE) return take_or_line(d, what - TURN_READ);
    if (weft__load(&d->known, relaxed) != weft__load(&weft__rt.generation, relaxed)) return 1; /* known_again */
    uint64_t state = weft__load(&d->state, relaxed);                                           /* D2 */
    if (state / WEFT_STATE_EDGE == seen / WEFT_STATE_EDGE) return 0;
    return what == ANY_EDGE || (state & (what == EDGE_READ ? WEFT_READY_READ : WEFT_READY_WRITE)) != 0;
}

int weft__fd_news(const weft__fd *f, uint64_t seen, bool told) {
    if (told) return need(f, ANY_EDGE, seen);
    if (weft__load(&f->d->generation, relaxed) != f->generation) return WEFT_ECLOSED;     /* D4 */
    return weft__load(&f->d->state, relaxed) / WEFT_STATE_EDGE != seen / WEFT_STATE_EDGE; /* its object is SURE of it now */
}

/* `wait`: what was prepared for it; NULL: it has no deadline, and cancellation finds it already. */
WEFT_INLINE int queue_up(const weft__fd *f, int what, uint64_t seen, weft_deadline deadline, weft__block *b, weft__slot **s,
                         weft__wait *wait, bool *parked, weft__landing *land) {
    weft__desc *d = f->d;
    bool turn = what <= EDGE_WRITE;
    weft__store(&b->wait_lock, &d->lock, release); /* P3; pairs with the acquire in weft__interrupt */
    weft__lock_take(&d->lock);
    weft__fence_after_rmw();
    int r = need(f, what, seen);
    if (!r) r = wait ? weft__wait_check(wait) : weft__cancel_check(b);
    if (r) {
        weft__lock_leave(&d->lock);
        return r;
    }
    weft__waiter x = {.block = b, .elem = land ? (void *)land : turn ? (void *)f : NULL, .index = land != NULL};
    b->waiter = &x;
    weft__queue_add(queue_of(d, what), &x);
    if (turn) {
        if (likely(*s != NULL)) (*s)->budget = WEFT_BUDGET; /* the next one does not step back for what others did */
        weft__store(&d->frames, (char *)&x, relaxed);       /* hints, for fetch */
        weft__store(&d->block, b, relaxed);
        weft__store(&d->use, f, relaxed);
    }
    *parked = true;
    int reason = what == EDGE_WRITE || what == TURN_WRITE ? WEFT_WAIT_WRITE : WEFT_WAIT_READ;
    *s = weft__wait_single(b, *s, deadline, reason, &d->lock);
    return b->result;
}

static WEFT_NOINLINE int queue_up_prepared(const weft__fd *f, int what, uint64_t seen, weft_deadline deadline, weft__block *b,
                                           weft__slot **s, bool *parked, weft__landing *land) {
    weft__wait wait = {.armed = false};
    int r = weft__wait_prepare(&wait, b, deadline, *s);
    if (!r) r = queue_up(f, what, seen, deadline, b, s, &wait, parked, land);
    weft__wait_finish(&wait);
    return r;
}

WEFT_INLINE int park(const weft__fd *f, int what, uint64_t seen, weft_deadline deadline, weft__landing *land) {
    weft__slot *s = weft__enter();
    weft__block *b = weft__me();
    bool parked = false, plain = deadline.ns == 0 && b->linked != WEFT_LINK_NONE;
    if (unlikely(!s)) land = NULL; /* a thread's stack begins and ends anywhere */
    int r = likely(plain) ? queue_up(f, what, seen, deadline, b, &s, NULL, &parked, land)
                          : queue_up_prepared(f, what, seen, deadline, b, &s, &parked, land);
    if (s) weft__leave();
    if (unlikely(r == WEFT_ECLOSED) && what <= EDGE_WRITE && !parked)
        weft__desc_last_leaves(f); /* who was parked has been counted out by the closer */
    return r < 0 ? r : 0;
}

/* Parks a plain thread without a runtime: on the same queue, but asleep in poll(2). *parked: it was
 * on the queue. */
static int queue_up_outside(const weft__fd *f, int what, uint64_t seen, weft_deadline deadline, weft__wait *wait,
                            bool *parked) {
    weft__desc *d = f->d;
    weft__block *b = wait->block;
    weft__store(&b->wait_lock, &d->lock, release); /* P3; pairs with the acquire in weft__interrupt */
    weft__lock_take(&d->lock);
    weft__fence_after_rmw();
    int r = weft__fd_news(f, seen, false);
    if (!r) r = weft__wait_check(wait);
    if (r) {
        weft__lock_leave(&d->lock);
        return r;
    }
    weft__waiter x = {.block = b, .elem = what <= EDGE_WRITE ? (void *)(uintptr_t)f : NULL};
    b->waiter = &x;
    weft__queue_add(queue_of(d, what), &x);
    *parked = true;
    (void)weft__wait_single(b, NULL, deadline, what == EDGE_WRITE ? WEFT_WAIT_WRITE : WEFT_WAIT_READ, &d->lock);
    return b->result == WEFT_ETERMINATED ? 0 : b->result; /* of a runtime that came and went meanwhile */
}

static WEFT_COLD int park_outside(const weft__fd *f, int what, int events, uint64_t seen, weft_deadline deadline,
                                  bool *parked) {
    struct pollfd p[2] = {[1] = {.fd = f->fd, .events = (short)events}};
    weft__polls polls = {p, 2, 0, -1};
    weft__wait wait = {.armed = false};
    weft__block *b = weft__me();
    weft__thread *t = weft__container(b, weft__thread, b);
    int r = weft__wait_prepare(&wait, b, deadline, NULL);
    if (!r) r = weft__fd_hold(f); /* the kernel has it as long as the thread is in poll(2) */
    if (r) return r;
    weft__thread_poll(t, &polls);
    r = queue_up_outside(f, what, seen, deadline, &wait, parked);
    weft__thread_poll_end(t);
    weft__fd_unhold(f);
    if (!r)
        (void)atomic_fetch_or_explicit(&f->d->state, WEFT_READY_READ | WEFT_READY_WRITE,
                                       memory_order_relaxed); /* hints: it looks */
    return r;
}

/* It has not been closed, and yet no poller of this runtime knows it. */
static WEFT_HOT bool is_unknown(const weft__fd *f) {
    if (likely(weft__load(&f->d->known, relaxed) == weft__load(&weft__rt.generation, relaxed)))
        return false;             /* a hint; `need` decides */
    weft__lock_take(&f->d->lock); /* who closes it is between the two words */
    bool open = weft__load(&f->d->generation, relaxed) == f->generation;
    bool known = weft__load(&f->d->known, relaxed) == weft__load(&weft__rt.generation, relaxed);
    weft__lock_leave(&f->d->lock);
    return open && !known;
}

static WEFT_COLD int park_unknown(const weft__fd *f, int what, int events, uint64_t seen, weft_deadline deadline) {
    bool parked = false;
    int r = weft__desc_know(f);
    if (!r) r = park_outside(f, what, events, seen, deadline, &parked);
    if (r == WEFT_ECLOSED && what <= EDGE_WRITE && !parked) weft__desc_last_leaves(f); /* as in park */
    return r < 0 ? r : 0;
}

int weft__fd_renew(const weft__fd *f) {
    return is_unknown(f) ? weft__desc_know(f) : 1;
}

WEFT_HOT int weft__fd_park(const weft__fd *f, int side, uint64_t seen, weft_deadline deadline, weft__landing *land) {
    if (is_unknown(f)) return park_unknown(f, side, side == WEFT_SIDE_READ ? POLLIN : POLLOUT, seen, deadline);
    return park(f, side, seen, deadline, land);
}

int weft__fd_watch(const weft__fd *f, int events, uint64_t seen, weft_deadline deadline) {
    if (is_unknown(f)) return park_unknown(f, ANY_EDGE, events, seen, deadline);
    return park(f, ANY_EDGE, seen, deadline, NULL);
}

/* ---- turns ---- */

/* Once only: 0, or `err`. */
static int take_now(const weft__fd *f, int side, int err) {
    if (weft__turn_take_now(f, side)) return 0;
    return weft__fd_valid(f) ? err : WEFT_ECLOSED;
}

int weft__turn_take_slow(const weft__fd *f, int side, weft_deadline deadline) {
    if (deadline.ns == INT64_MIN) return take_now(f, side, weft__cancel_poll(weft__me()));
    if (deadline.ns && deadline.ns <= weft__clock_now()) return take_now(f, side, WEFT_ETIMEDOUT);
    return park(f, TURN_READ + side, 0, deadline, NULL);
}

/* Passes the turn on to the first in line. */
void weft__turn_leave_slow(const weft__fd *f, int side) {
    weft__desc *d = f->d;
    weft__slot *s = weft__enter();
    weft__waiter *x = NULL;
    weft__lock_take(&d->lock);
    bool over = weft__load(&d->generation, relaxed) != f->generation; /* D4: it was taken from us; under the lock */
    if (!over) {
        weft__side *at = &d->side[side];
        x = weft__queue_claim(&d->line[side]);
        uint32_t flags = !x ? 0 : d->line[side].head ? WEFT_TURN_TAKEN | WEFT_TURN_LINE : WEFT_TURN_TAKEN;
        weft__store(&at->turn, weft__turn_of(f->generation, flags), release); /* as in weft__turn_leave */
        if (x) x->block->result = 0;
    }
    weft__lock_leave(&d->lock);
    if (x) weft__resume(x->block, s);
    if (s) weft__leave();
    if (over) weft__desc_last_leaves(f);
}
