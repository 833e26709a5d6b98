/* SPDX-License-Identifier: MIT */
/* One operation on a descriptor: its turn, the system call, parking, again. Inlined into each, so that the call is a direct one. */
#ifndef WEFT_SRC_OP_H
#define WEFT_SRC_OP_H

#include "io/desc.h"
#include "os/socket.h"
#include "stack/stack.h"
#include "time/clock.h"

/* Such a deadline allows one attempt, whatever is known. */
WEFT_INLINE bool weft__once(weft_deadline deadline) {
    return deadline.ns == INT64_MIN || (deadline.ns && deadline.ns <= weft__clock_now());
}

/* The memory is that of a task's stack, the caller's: above this frame, and in the same aligned piece of the size of the smallest stack, in which there is
 * nothing but stacks (slab.c): a neighbour's at the worst, if somebody reads to there. */
WEFT_INLINE bool weft__is_stack(const void *to, size_t n) {
    uintptr_t frame = (uintptr_t)__builtin_frame_address(0), first = (uintptr_t)to, last = first + n - 1;
    return first > frame && last >= first && (frame ^ last) < WEFT_STACK_MIN;
}

/* How an operation knows its descriptor: by an object that owns it (a connection), or by its
 * number, which other code may have closed (desc.h). CAREFUL: the call itself would wait at another
 * descriptor. */
enum { WEFT_BY_OBJECT, WEFT_BY_NUMBER, WEFT_BY_NUMBER_CAREFUL };

/* Before an operation by number parks. Returns 0 also if the deadline does not allow it to park. */
WEFT_INLINE int weft__op_check(const weft__fd *f, weft_deadline deadline) {
    return weft__once(deadline) ? 0 : weft__fd_check(f);
}

/* The caller has the turn. `to`: where to, of a read that may land (D6); else NULL. `asked`: with a result below it nothing is left (desc.h); 0: a result
 * says nothing. *mine: false if the turn is gone. */
WEFT_INLINE ssize_t weft__op_turn_by(int by, const weft__fd *f, int side, weft__attempt *call, void *arg, void *to,
                                     size_t asked, weft_deadline deadline, bool *mine) {
    uint32_t bit = side == WEFT_SIDE_READ ? WEFT_READY_READ : WEFT_READY_WRITE;
    bool lands = side == WEFT_SIDE_READ && to && asked && weft__is_stack(to, asked);
    for (;;) {
        uint64_t seen = weft__fd_state(f);
        int err = by == WEFT_BY_NUMBER_CAREFUL ? weft__fd_check(f) : 0;
        if (unlikely(err)) return err;
        if (likely(seen & bit) || weft__once(deadline)) {
            ssize_t r = weft__fd_attempt(f, bit, seen, call, arg, asked);
            if (likely(r != -EAGAIN)) return r;
        }
        if (by == WEFT_BY_NUMBER && unlikely(err = weft__op_check(f, deadline))) return err;
        weft__landing land = {f, call, arg, asked, -EAGAIN};
        err = weft__fd_park(f, side, seen, deadline, lands ? &land : NULL);
        if (unlikely(err)) {
            *mine = err != WEFT_ECLOSED;
            return err;
        }
        if (lands && likely(land.got != -EAGAIN)) return land.got;
    }
}

WEFT_INLINE ssize_t weft__op_turn(const weft__fd *f, int side, weft__attempt *call, void *arg, void *to, size_t asked,
                                  weft_deadline deadline, bool *mine) {
    return weft__op_turn_by(WEFT_BY_OBJECT, f, side, call, arg, to, asked, deadline, mine);
}

/* The turn, and the operation. By number also WEFT_FD_ANOTHER. */
WEFT_INLINE ssize_t weft__op_by(int by, const weft__fd *f, int side, weft__attempt *call, void *arg, void *to, size_t asked,
                                weft_deadline deadline) {
    int err = weft__fd_begin(deadline);
    if (!err) err = by ? weft__turn_take_checked(f, side, deadline) : weft__turn_take(f, side, deadline);
    if (unlikely(err)) return err;
    bool mine = true;
    ssize_t r = weft__op_turn_by(by, f, side, call, arg, to, asked, deadline, &mine);
    if (likely(mine)) weft__turn_leave(f, side);
    if (by && unlikely(r == -EBADF)) (void)weft__fd_check(f); /* ends the waits of what was there */
    return r;
}
WEFT_INLINE ssize_t weft__op(const weft__fd *f, int side, weft__attempt *call, void *arg, void *to, size_t asked,
                             weft_deadline deadline) {
    return weft__op_by(WEFT_BY_OBJECT, f, side, call, arg, to, asked, deadline);
}

/* accept(2) of a listener, which is O_NONBLOCK. */
int weft__fd_accept(const weft__fd *f, struct sockaddr *from, socklen_t *len, weft_deadline deadline);
/* weft_fd_wait of one that was looked up; `object`: an object has it, so its number is not checked. */
int weft__fd_wait(const weft__fd *f, bool object, int events, weft_deadline deadline);

#endif
