/* SPDX-License-Identifier: MIT */
/* Descriptors: what is known of each number, and who waits for it.
 *
 * An operation makes its system call first, and parks only if the kernel would have waited (EAGAIN). What is known spares even that: an edge
 * (poll.h) sets `ready`; a call that found nothing, and a read of a TCP socket that got less than it asked for, clears it; while it is
 * clear, the next operation parks at once. So a request costs the system calls that it needs and no others.
 *
 *   state   ready for reading, for writing; `ended`, `urgent` (both stay); and a count of edges above them. Clearing is a CAS against the
 *           state as it was before the system call, so an edge that came in between is not lost.
 *           `sure` is no edge's: a connection sets it while it has bytes that were read ahead (or a side
 *           that is broken, which fails at once), and counts an edge then, so that watchers look.
 *   side    reading and writing each have one turn, taken for a whole operation (a write of all bytes) and passed on in order. Who has
 *           it may park on `waiting` for an edge; who wants it parks on its `line`.
 *   watchers  take no turn (weft_fd_wait, select): every edge wakes all of them, and they look for themselves.
 *
 * Landing. Of many readers that have become ready, each with a system call to receive and one to send, all receive first: the kernel's code for it
 * stays in the cache that way (1 % of an echo server's time). So the teller receives for them, into their memory, as a channel's sender does.
 *
 * A short read means that nothing is left only for TCP, without urgent data and before its end: a Unix socket stops at ancillary data,
 * a pipe at a packet. At the end (`ended`) no edge comes any more, so `ready` is not cleared.
 *
 * Without a runtime there is no poller, and nothing is known: `state` and `kind` are hints. Plain
 * threads take turns all the same, and park on the same queues, so closing and cancellation reach
 * them; but they sleep in poll(2) with the descriptor, and take their readiness from there
 * (park/thread.c). A descriptor that was looked up before a runtime started is made known to it
 * when an operation is about to park: whatever is made early is as good as what is made late.
 *
 * Closing, and numbers that are used again. The generation is part of the poller's key, and whoever has looked a descriptor up remembers it: an
 * edge, or an operation, of an earlier generation finds another one, and is told so. It rises when the descriptor is closed, under the lock.
 * The number is given back to the kernel when nobody is in the middle of a system call with it: by the closer, or by the last of those who had a turn
 * and were not parked, or were guests. (Otherwise a read could get what was sent to the next connection of the same number, or a shutdown end it.) Who
 * releases it waits for them.
 *
 * Numbers that other code closed. A library closes its sockets with close(2), and the kernel gives
 * their numbers to others. What is known of such a number is then false: that the poller has it,
 * `ready`, `kind`. So an operation by number (weft_fd_…, weft_on_fd) checks before it parks
 * (weft__fd_check): it adds the number to the poller, with the key of the next generation.
 *     -EEXIST         the same descriptor: the operation parks
 *     0               another one, which is in the poller now: the generation ends, the kind is
 *                     read, both sides count as ready, and the operation begins again
 *     -EBADF, -EPERM  none, or one that no poller takes: likewise, but it is not known
 * So false readiness leads to a check, not to a wait. A false kind does no harm before that: a
 * receive that meets no socket becomes a read. An accept checks before each attempt, for it would
 * wait in the kernel if O_NONBLOCK is not set. Objects (connections, listeners, datagram sockets)
 * do not check: no other code closes their numbers. A waiter that is parked already does not
 * notice; the next check ends its wait, or weft_fd_forget. Nor is it noticed when a descriptor
 * comes back to a number (dup2) where another one was checked meanwhile: its registration has an
 * old key.
 * Rejected: EPOLL_CTL_MOD instead of the second ADD. It reports each time that the descriptor can
 * be written to; waiters for reading wake up, check, and so on for ever.
 *
 * Invariants
 *  D1  `waiting`, `line` and `watchers` change under the lock; a waiter on them waits on one object (park.h), or is a select's.
 *  D2  An edge that is told sets its bits before the lock is left, and after that nobody waits for one of them.
 *  D3  A turn that is not TAKEN: nobody has it, and nobody is on `line`. LINE is set before somebody parks there, under the lock.
 *  D4  With generation g, edges and operations of g alone have an effect. The turns carry it. An
 *      edge that comes between a check's ADD and the end of its generation is lost; both sides
 *      count as ready then.
 *  D5  Lock order: as any object (P5). No system call is made under it.
 *  D6  Who parks to read may leave word of what it will do then (a landing, in its frame). Whoever tells the edge does it, after the wait was claimed
 *      and before the task is resumed: so it is done once, by one of the two, with the turn held. Only into the reader's own stack: other memory may be a
 *      file's, and whoever waited for the disk inside the runtime could not lose its slot. For the same reason not while somebody uses the descriptor
 *      otherwise: a send from such memory keeps the socket locked, and a receive waits for that, whatever it was told. (Who begins to send between
 *      that look and the call, and other processes, are not seen: watch.c has it among the worst cases.) */
#ifndef WEFT_SRC_DESC_H
#define WEFT_SRC_DESC_H

#include <stddef.h>
#include <sys/types.h>

#include "park/park.h"
#include "poll/poll.h"

enum { WEFT_SIDE_READ, WEFT_SIDE_WRITE };
enum { WEFT_TURN_TAKEN = 1, WEFT_TURN_LINE = 2 };
enum {
    WEFT_DESC_STREAM = 1,
    WEFT_DESC_SOCKET = 2,
    WEFT_DESC_PLAIN = 4,
    WEFT_DESC_ALWAYS = 8,
    WEFT_DESC_NONBLOCK = 16
}; /* desc.kind */
/* desc.state, above the WEFT_READY_… bits: SURE, an operation of the object that has the descriptor
 * returns at once, whatever the kernel says; EDGE, one edge. */
enum { WEFT_STATE_SURE_READ = 16, WEFT_STATE_SURE_WRITE = 32, WEFT_STATE_SURE = 48, WEFT_STATE_EDGE = 64 };

typedef struct weft__fd weft__fd;
typedef struct weft__side {
    _Atomic uint64_t turn; /* the generation, TAKEN, LINE */
    weft__queue waiting;   /* for an edge: who has the turn */
} weft__side;

/* Two lines for what each request touches, and one for the rest. */
typedef struct weft__desc {
    _Alignas(WEFT_LINE) weft__lock lock;
    _Atomic uint32_t generation;   /* under lock; read without it as a hint */
    _Atomic uint64_t state;        /* WEFT_READY_… and the count of edges */
    _Atomic uint64_t known;        /* the runtime's generation in whose poller it is; 0: none. Under lock */
    _Atomic(char *) frames;        /* where the last one parked that had a turn, in its stack; hints, as the next two */
    _Atomic(weft__block *) block;  /* its block, */
    _Atomic(const weft__fd *) use; /* and by what it knows the descriptor */
    uint32_t guests;               /* who use the number without a turn; under lock */
    uint32_t
        holders; /* of turns of the generation that ended last, and its guests, in the middle of an operation; under lock */
    _Atomic uint8_t kind; /* WEFT_DESC_…: STREAM = TCP; PLAIN = no socket; ALWAYS = no poller takes it. As it was found last */
    bool opening;         /* somebody is about to make it known, or checks it; under lock */
    bool to_close;        /* the last of `holders` closes it, */
    bool to_keep;         /* or leaves it open, and somebody waits for that; under lock */
    bool
        closing; /* somebody is about to, or about to take it out of the poller: what comes with the number waits a moment, for it
                   * may mean the next one; under lock */
    weft__side side[2];
    weft__queue watchers;
    weft__queue line[2]; /* for the turn of a side */
    uint32_t
        closed; /* the generation that began when it was closed or released last; later ones began with a check; under lock */
} weft__desc;
_Static_assert(offsetof(weft__desc, side) == WEFT_LINE && offsetof(weft__desc, line) == 2 * (size_t)WEFT_LINE,
               "two lines are hot");

/* A descriptor as an operation found it. */
struct weft__fd {
    weft__desc *d;
    uint32_t generation;
    int fd;
};

/* Looks the descriptor up, and puts it into the poller if there is one and it is not there. 0;
 * -EBADF, -errno; WEFT_ENOMEM; WEFT_ELIMIT: its number is too large. */
int weft__fd_get(int fd, weft__fd *out);
/* f's generation has ended, but not by a close here: the number means another descriptor. Users
 * never see this. */
#define WEFT_FD_ANOTHER (INT32_MIN + 4)
/* Asks the poller whether the number still means f's descriptor; if not, ends the generation.
 * Returns 0: it does, or there is no runtime; WEFT_FD_ANOTHER; WEFT_ECLOSED; -errno. The caller has
 * no lock; if it has a turn, it leaves it as always. One system call. */
int weft__fd_check(const weft__fd *f);
/* Why f's generation is over: WEFT_ECLOSED or WEFT_FD_ANOTHER. */
int weft__fd_over(const weft__fd *f);
/* Returns whether a check has found another descriptor at f's number since f was looked up. */
bool weft__fd_replaced(const weft__fd *f);
/* Forgets what is known of the number if that was another descriptor. Returns 0, WEFT_ECLOSED, or
 * as weft__fd_get. */
int weft__fd_verify(int fd);
/* The same, to be closed: it need not be known. False: nobody can know it. */
bool weft__fd_find(int fd, weft__fd *out);
/* The number has just come from the kernel: whatever was known of it was of another descriptor, closed behind our back. */
void weft__fd_new(int fd);
/* Ends every wait on it with WEFT_ECLOSED, takes it out of the poller, and closes it, as soon as nobody uses it. 0, -errno of close(2);
 * WEFT_ECLOSED: somebody has done so. */
int weft__fd_close(const weft__fd *f);
/* The same, and waits until the number has been given back to the kernel. */
int weft__fd_close_wait(const weft__fd *f);
/* The same, but the number stays open; nothing is known of it any more. Waits until nobody that is
 * known uses it. WEFT_ECLOSED. */
int weft__fd_release(const weft__fd *f);

/* Releases it if may(arg) returns 1, which is asked under the lock. `rests`: the reader that has
 * the turn waits; it goes on only after the lock has been left, unless the descriptor was
 * released. While may(arg) is WEFT_EAGAIN it is asked again and again; another error is
 * returned, and nothing has changed. Returns 0, WEFT_ECLOSED, or that error. */
int weft__fd_release_if(const weft__fd *f, int (*may)(void *arg, bool rests), void *arg);

/* The turn. 0, WEFT_ECLOSED, or what weft__wait_… give. */
int weft__turn_take_slow(const weft__fd *f, int side, weft_deadline deadline);
void weft__turn_leave_slow(const weft__fd *f, int side);
WEFT_INLINE uint64_t weft__turn_of(uint32_t generation, uint32_t flags) {
    return (uint64_t)generation << 32 | flags;
}
WEFT_INLINE bool weft__turn_take_now(const weft__fd *f, int side) {
    uint64_t none = weft__turn_of(f->generation, 0), taken = weft__turn_of(f->generation, WEFT_TURN_TAKEN);
    return likely(weft__cas(&f->d->side[side].turn, &none, taken, acquire)); /* pairs with the release below */
}
WEFT_INLINE int weft__turn_take(const weft__fd *f, int side, weft_deadline deadline) {
    return weft__turn_take_now(f, side) ? 0 : weft__turn_take_slow(f, side, deadline);
}
/* Takes the turn by number: checks first if it is not free. Also WEFT_FD_ANOTHER. */
WEFT_INLINE int weft__turn_take_checked(const weft__fd *f, int side, weft_deadline deadline) {
    if (weft__turn_take_now(f, side)) return 0;
    int err = weft__fd_check(f);
    return err ? err : weft__turn_take_slow(f, side, deadline);
}
WEFT_INLINE void weft__turn_leave(const weft__fd *f, int side) {
    uint64_t none = weft__turn_of(f->generation, 0), taken = weft__turn_of(f->generation, WEFT_TURN_TAKEN);
    if (unlikely(!weft__cas(&f->d->side[side].turn, &taken, none, release)))
        weft__turn_leave_slow(f, side); /* pairs with the above */
}

/* What it was when it was looked at last: WEFT_DESC_…. */
WEFT_INLINE int weft__fd_kind(const weft__fd *f) {
    return weft__load(&f->d->kind, relaxed); /* published with `known` */
}

/* Before a system call: the state, to be given to the functions below. */
WEFT_INLINE uint64_t weft__fd_state(const weft__fd *f) {
    return weft__load(&f->d->state, acquire); /* pairs with the release in weft__desc_tell */
}
/* The call found nothing, or all there was. */
WEFT_INLINE void weft__fd_drained(const weft__fd *f, uint64_t seen, uint32_t bit) {
    (void)weft__cas(&f->d->state, &seen, seen & ~(uint64_t)bit, relaxed); /* fails if an edge came in between */
}
typedef ssize_t weft__attempt(int fd, void *arg);
/* The system call, with the turn; `seen`: the state before it. -EAGAIN: nothing, and that is known now. `asked`: as in op.h. */
WEFT_INLINE ssize_t weft__fd_attempt(const weft__fd *f, uint32_t bit, uint64_t seen, weft__attempt *call, void *arg,
                                     size_t asked) {
    ssize_t r = call(f->fd, arg);
    bool less = asked && r > 0 && (size_t)r < asked && !(seen & (WEFT_READY_END | WEFT_READY_URGENT));
    if (unlikely(r == -EAGAIN) || (less && (weft__fd_kind(f) & WEFT_DESC_STREAM))) weft__fd_drained(f, seen, bit);
    return r;
}
/* What somebody who parks until he can read is about to do then (D6). Only a teller with a slot does it: others are to hear of the next edge soon. */
typedef struct weft__landing {
    const weft__fd *f;
    weft__attempt *call;
    void *arg;
    size_t asked;
    ssize_t got; /* -EAGAIN: nobody has done it, or there was nothing */
} weft__landing;
/* Notes whether operations of a side return at once, whatever the kernel says, and tells
 * watchers if they do now. The caller has the side's turn. */
void weft__fd_be_sure(const weft__fd *f, uint32_t bit, bool on);
/* For which sides that is so: WEFT_READY_… bits. `seen`: the state. */
WEFT_INLINE uint32_t weft__fd_sure(uint64_t seen) {
    return (uint32_t)(seen & WEFT_STATE_SURE) / WEFT_STATE_SURE_READ;
}
/* Parks until an edge other than those in `seen` makes the side ready: 0. WEFT_ECLOSED, WEFT_ECANCELED, WEFT_ETIMEDOUT, WEFT_EAGAIN, WEFT_ETERMINATED.
 * The caller has the side's turn; after WEFT_ECLOSED it has not, and must not leave it. */
int weft__fd_park(const weft__fd *f, int side, uint64_t seen, weft_deadline deadline, weft__landing *land);
/* The same without a turn, for any edge. `events` (POLLIN, …): what is waited for where there is no runtime, and the kernel is asked. */
int weft__fd_watch(const weft__fd *f, int events, uint64_t seen, weft_deadline deadline);
/* For who waits for somebody who is about to be done: others first, and from some rounds on a nap. */
void weft__fd_pause(int round);
/* Between the two the number means this descriptor, whoever closes it: for a system call without a turn. 0 or WEFT_ECLOSED. */
int weft__fd_hold(const weft__fd *f);
void weft__fd_unhold(const weft__fd *f);
/* Asks what has come since `seen`, for a wait that is about to queue up among `watchers`. `told`: a
 * poller tells of edges; else only an object does. Returns 0; 1: there has been an edge, or no poller
 * knows it any more; WEFT_ECLOSED. Caller holds the lock. */
int weft__fd_news(const weft__fd *f, uint64_t seen, bool told);
/* It may have been looked up before this runtime started: makes it known to it. Returns 1: edges
 * are told; 0: there is no runtime; WEFT_ECLOSED; as weft__fd_get. */
int weft__fd_renew(const weft__fd *f);
/* Calls must not wait: O_NONBLOCK, where the call itself cannot be told. 0; -errno; as
 * weft__fd_over. By number. */
int weft__fd_nonblock(const weft__fd *f);
/* The descriptor is the one that was looked up. */
WEFT_INLINE bool weft__fd_valid(const weft__fd *f) {
    return weft__load(&f->d->generation, acquire) == f->generation; /* pairs with end_generation; a hint */
}
/* Spends what an operation costs of the slot's budget, before it. Returns as weft__cancel_first. */
int weft__fd_begin(weft_deadline deadline);

/* The runtime has ended: nothing is known, and plain threads that wait ask the kernel. */
void weft__descs_close(void);
void weft__descs_forget(void);
uint64_t weft__descs_stale(void);
uint64_t weft__descs_landings(void);

#endif
