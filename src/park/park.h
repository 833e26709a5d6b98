/* SPDX-License-Identifier: MIT */
/* Parking: everything that waits, waits like this. docs/parking.md is the essay with the proof; in short:
 *
 * A weft__block is the token of whoever waits: a task or a plain thread. One wait has one winner: the partner that serves it,
 * a close, a deadline or a cancellation. Two forms:
 *
 *   One object (send, receive, join). The object's lock decides. The waiter stores wait_lock = the lock, takes the lock, looks
 *   at the cancel epoch, puts itself on the object's queue (queued = the lock) and leaves its stack with the lock still held; the next
 *   context releases it. Whoever wants to end the wait takes the same lock, finds it in queued, takes the waiter off, clears
 *   queued, writes the result, releases the lock and resumes the block.
 *
 *   Many objects or none (select, sleep). The word `state` decides:
 *       RUNNING -> PARKING  before the first lock          weft__many_begin
 *       PARKING -> PARKED   by the next context            weft__many_parked
 *       PARKED  -> CLAIMED  one CAS, by the winner         weft__many_claim
 *       CLAIMED -> RUNNING  by the waiter, resumed         weft__many_end
 *       PARKING -> RUNNING  the waiter did not park        weft__many_end
 *       PARKED <-> HELD     somebody looks at its stack    weft__hold, weft__unhold; claimers wait
 *   Queues are cleaned by the waiter itself after it was resumed. PARKED also means that the stack was left. The result
 *   WEFT_AWAIT_AGAIN: a cancellation took the wait, then saw that it does not concern it (a shield). The wait is begun anew.
 *
 * Invariants
 *  P1  A block is resumed once for each time it parked, by the winner, after its stack was left.
 *  P2  queued becomes a lock, and NULL again, only under that very lock; while it is, that lock's object has the waiter on a queue. So whoever
 *      holds a lock learns by one load whether the block waits there. (A flag and wait_lock are two loads: in between the block can be served,
 *      and come back for this lock.)
 *  P3  Dekker with cancellation: the waiter stores wait_lock (or PARKING), passes a full barrier (the lock's exchange), then loads
 *      the epoch; the canceller raises the epoch (a full barrier), then looks at the block. One of the two sees the other.
 *  P4  Memory that wait_lock names is type-stable: locking a stale one is harmless, and P2 tells that it was stale.
 *  P5  Nobody takes an object's lock while holding a run queue, and nobody holds two objects' locks except select, which takes them
 *      in the order of their addresses. Order: timer wheel < scope < object < idle list.
 *
 * Rejected: a CAS for every wake (about 6 ns each in the prototype); unlocking before the switch with a "leaving" state (one more
 * atomic exchange for each park); hazard pointers for wait_lock (a fence for each park). */
#ifndef WEFT_SRC_PARK_H
#define WEFT_SRC_PARK_H

#include "base/base.h"
#include "base/lock.h"
#include "base/slab.h"
#include "time/wheel.h"

typedef struct weft__block weft__block;
typedef struct weft__waiter weft__waiter;
typedef struct weft__scope weft__scope;
typedef struct weft__slot weft__slot;

enum { WEFT_RUNNING, WEFT_PARKING, WEFT_PARKED, WEFT_CLAIMED, WEFT_HELD }; /* block.state */
/* block.kind; SPECIAL: a task of lane.h; ROSTER: nobody's (task.h) */
enum { WEFT_BLOCK_TASK, WEFT_BLOCK_SPECIAL, WEFT_BLOCK_THREAD, WEFT_BLOCK_ROSTER };

enum {
    WEFT_LINK_NONE,
    WEFT_LINK_NEEDLESS,
    WEFT_LINK_LIST,
    WEFT_LINK_PINNED = 4
}; /* block.linked; PINNED is a bit: it has been */

/* Why somebody waits, for people. */
enum {
    WEFT_WAIT_NONE,
    WEFT_WAIT_SEND,
    WEFT_WAIT_RECV,
    WEFT_WAIT_SELECT,
    WEFT_WAIT_SLEEP,
    WEFT_WAIT_JOIN,
    WEFT_WAIT_SCOPE,
    WEFT_WAIT_SPAWN,
    WEFT_WAIT_CHILD,
    WEFT_WAIT_ANY,
    WEFT_WAIT_MUTEX,
    WEFT_WAIT_RWLOCK,
    WEFT_WAIT_COND,
    WEFT_WAIT_SEM,
    WEFT_WAIT_GROUP,
    WEFT_WAIT_ONCE,
    WEFT_WAIT_BARRIER,
    WEFT_WAIT_BLOCK,
    WEFT_WAIT_BIND,
    WEFT_WAIT_THREAD,
    WEFT_WAIT_READ,
    WEFT_WAIT_WRITE,
    WEFT_WAIT_CHILDREN,
};
const char *weft__wait_name(int reason);

/* The result of a wait on many that was ended for nothing: it is to be begun again, with weft__many_begin. */
#define WEFT_AWAIT_AGAIN INT32_MIN

/* Called by whoever is about to wait, on its own stack, maybe with an object's lock held; NULL: nobody wants to know. Set while no runtime runs. */
typedef void weft__hook(weft__block *b);
extern _Atomic(weft__hook *) weft__park_hook;
WEFT_INLINE weft__hook *weft__hooked(void) {
    return weft__load(&weft__park_hook, relaxed); /* pairs with nothing: the start of the runtime orders it */
}

/* What wait_lock says when `state` decides. */
#define WEFT_MANY ((weft__lock *)(uintptr_t)1)

struct weft__block {
    _Atomic(weft__lock *) wait_lock;   /* written by the waiter while it runs; read by interrupters */
    _Atomic(weft__lock *) queued;      /* the lock that decides the wait it is in, or NULL (P2) */
    weft__waiter *waiter;              /* the one to take off its queue; under *queued */
    _Atomic uint32_t state;            /* waits on many: see above */
    int32_t result;                    /* written by the winner before it resumes; read by the waiter after */
    _Atomic uint8_t kind;              /* the waiter; read by whoever resumes it, ordered by the wait */
    _Atomic uint8_t reason;            /* the waiter; read from outside */
    uint8_t linked;                    /* WEFT_LINK_…: how cancellation finds it; the waiter */
    weft__lock lock;                   /* of a wait for children that can be given up (S7); as valid as the block */
    _Atomic uint64_t epoch;            /* no cancellation concerns it up to this one; the waiter */
    weft__scope *scope;                /* innermost open scope; the waiter */
    weft__scope *home;                 /* the scope it was spawned into; fixed */
    _Atomic(weft__block *) next, prev; /* home's list of blocks; under home's lock, read without it as a hint */
    _Atomic int64_t since;             /* when it began to wait, and on which slot (weft__since); the waiter */
};

/* A place in a queue. Lives in the waiter's frame. */
struct weft__waiter {
    weft__waiter *next, *prev;
    struct weft__queue
        *queue; /* where it is; NULL = taken off, if `many`; otherwise `elem` is a scope whose children are waited
                                  for (S7). Under the object's lock */
    weft__block *block;
    void *elem;
    uint32_t index; /* select: which case; a reader of a descriptor: 1, `elem` is a landing (io/desc.h) */
    uint32_t many;  /* true: state decides, not the lock; as wide as index, so that both are one store */
};

typedef struct weft__queue {
    weft__waiter *head, *tail;
} weft__queue;

WEFT_INLINE void weft__queue_add(weft__queue *q, weft__waiter *x) {
    x->next = NULL;
    x->prev = q->tail;
    x->queue = q;
    if (q->tail)
        q->tail->next = x;
    else
        q->head = x;
    q->tail = x;
}

WEFT_INLINE void weft__queue_remove(weft__waiter *x) {
    weft__queue *q = x->queue;
    if (x->prev)
        x->prev->next = x->next;
    else
        q->head = x->next;
    if (x->next)
        x->next->prev = x->prev;
    else
        q->tail = x->prev;
    x->queue = NULL;
}

/* The first one. */
WEFT_INLINE void weft__queue_behead(weft__queue *q, weft__waiter *first) {
    q->head = first->next;
    if (q->head)
        q->head->prev = NULL;
    else
        q->tail = NULL;
}

/* The wait is ours if nobody else has it. It is not lost while somebody merely holds it, which takes a few microseconds; no call is made
 * here, since a channel's fast path would need a frame for it. */
WEFT_INLINE bool weft__many_claim(weft__block *b) {
    for (;;) {
        uint32_t parked = WEFT_PARKED;
        /* acq_rel: we see what the waiter prepared; the losers see that they lost. Pairs with weft__many_parked, weft__unhold. */
        if (weft__cas(&b->state, &parked, WEFT_CLAIMED, acq_rel)) return true;
        if (likely(parked != WEFT_HELD)) return false;
        weft__give_cpu();
    }
}

/* Takes off the first waiter that can still be had; the caller holds the object's lock and now owns its wait: it writes the
 * element and the result, releases the lock and resumes the block. NULL: nobody. */
WEFT_INLINE weft__waiter *weft__queue_claim(weft__queue *q) {
    for (weft__waiter *x = q->head; x; x = q->head) {
        weft__queue_behead(q, x);
        weft__block *b = x->block;
        if (likely(!x->many)) {
            weft__store(&b->queued, NULL, release); /* under the lock; acquire in weft__interrupt reads it without */
            return x;
        }
        x->queue = NULL;
        if (weft__many_claim(b)) return x;
    }
    return NULL;
}

/* Ends the block's wait, whatever it is, with `err`, if nobody else has won it; with WEFT_ECANCELED only if the scope that the block is in
 * is cancelled, looked at when it can neither run nor be resumed (a shield may have been put up since the caller found it). `s` is the caller's slot, NULL on a plain
 * thread. The caller makes sure that the block itself stays valid. True: it was us. */
bool weft__interrupt(weft__block *b, int err, weft__slot *s);

/* Keeps a task that waits from being resumed, for a short time, and without ending its wait: whoever wants to end it waits for
 * weft__unhold, which takes what this gave. NULL: it does not wait, or for its children, which nothing can keep from ending. The caller
 * makes sure that the block stays valid, and holds no lock of an object. */
weft__lock *weft__hold(weft__block *b);
void weft__unhold(weft__block *b, weft__lock *held);

/* Makes whoever it is run again. Once for each park, by its winner, holding no lock of an object. */
void weft__resume(weft__block *b, weft__slot *s);
/* The same, but behind those who are ready already. */
void weft__resume_last(weft__block *b, weft__slot *s);

/* ---- the waiter's side (wait.c) ---- */

/* A wait's deadline. From a slab, not in the waiter's frame: a wheel with a million of them goes through them again and again, and
 * frames lie on a page each. */
typedef struct weft__alarm {
    weft__timer timer;      /* near: the block */
    _Atomic uint32_t fired; /* the deadline passed; written under the wheel's lock */
} weft__alarm;

extern weft__slab weft__alarm_slab;

/* A wait that needs more than a queue: a deadline, or to be found by cancellation for the first time. */
typedef struct weft__wait {
    weft__block *block;
    weft__alarm *alarm; /* if armed */
    weft__alarm own;    /* when there is no memory for another */
    bool armed;
    bool expired; /* the deadline ended the wait: its timer has fired, and is done with us */
} weft__wait;

/* Before the object's lock is taken for the decisive look. Returns 0; WEFT_EAGAIN, in a cancelled scope
 * WEFT_ECANCELED: WEFT_POLL; WEFT_ETIMEDOUT: the deadline lies in the past. */
int weft__wait_prepare(weft__wait *w, weft__block *b, weft_deadline deadline, weft__slot *s);
/* Under the object's lock (or after PARKING and a full barrier), about to park: 0; WEFT_ETIMEDOUT; WEFT_ECANCELED. */
int weft__wait_check(weft__wait *w);
/* The same without a look at the scopes: 0; WEFT_ETIMEDOUT. */
WEFT_INLINE int weft__wait_fired(const weft__wait *w) {
    return w->armed && weft__load(&w->alarm->fired, relaxed) ? WEFT_ETIMEDOUT : 0; /* pairs with deadline_passed in wait.c */
}
/* After the wait, without locks: the deadline cannot come any more. */
void weft__wait_finish(weft__wait *w);
/* Parks the block with the object's lock held, which is released behind it. Returns the slot we are on then. */
weft__slot *weft__wait_single(weft__block *b, weft__slot *s, weft_deadline deadline, int reason, weft__lock *held);
/* The same for a wait on many: `post` publishes PARKED (weft__many_parked) and releases what is held. */
typedef void weft__parked(weft__slot *s, void *arg);
weft__slot *weft__wait_many(weft__block *b, weft__slot *s, weft_deadline deadline, int reason, weft__parked *post, void *arg);

WEFT_INLINE void weft__many_begin(weft__block *b) {
    weft__store(&b->wait_lock, WEFT_MANY, release); /* P3; pairs with the acquire in weft__interrupt */
    weft__store(&b->state, WEFT_PARKING, release);  /* P3; pairs with the acquire in weft__interrupt */
}
WEFT_INLINE void weft__many_parked(weft__block *b) {
    weft__store(&b->state, WEFT_PARKED, release); /* the stack was left; pairs with the claiming CAS */
}
WEFT_INLINE void weft__many_end(weft__block *b) {
    weft__store(&b->state, WEFT_RUNNING, release); /* pairs with the acquire in weft__interrupt */
}

/* ---- plain threads ---- */

/* Descriptors that end a plain thread's wait as well, where no poller tells of them. In the
 * waiter's frame. */
typedef struct weft__polls {
    struct pollfd *p; /* the first is the bell's, the rest the caller's */
    unsigned n;
    int32_t ready; /* the wait's result when one of the rest is ready */
    int bell;      /* ends the poll (os/socket.h); -1: there is none to be had */
} weft__polls;

typedef struct weft__thread {
    weft__block b;
    _Atomic uint32_t woken; /* futex: 1 = resumed */
    weft__polls *polls;     /* NULL: it sleeps on the futex. The waiter; its winner reads it, ordered by the wait */
} weft__thread;

/* The calling plain thread's block; lives as long as the thread. The second form also in the child of a fork, before anything else. */
weft__block *weft__thread_block(void);
weft__block *weft__thread_block_as_it_is(void);
/* Before it can be resumed. */
WEFT_INLINE void weft__thread_ready(weft__thread *t) {
    weft__store(&t->woken, 0, relaxed); /* published with the lock or counter that lets others resume it */
}
/* Makes the thread's next waits end also when one of the descriptors is ready; without a bell
 * (there is none to be had) it looks now and then whether it was resumed. The second ends that. */
void weft__thread_poll(weft__thread *t, weft__polls *polls);
void weft__thread_poll_end(weft__thread *t);
/* Sleeps until the block is resumed; when the deadline (0 = none) passes, interrupts its own wait with WEFT_ETIMEDOUT. */
void weft__thread_sleep(weft__thread *t, int64_t deadline);

#endif
