/* SPDX-License-Identifier: MIT */
/* Waiting for a scope's children without ending it: a join that can be given up.
 *
 *     waiting   the opener settles behind its stack, as weft_scope_end does, with the lock of its block held (S7)
 *     joined    the last child has brought done to 0 and resumes the opener, as in every join; the opener clears `queued`
 *     given up  done was below 0, and got `spawned` back in one step: no child can bring it to 0 any more
 *
 * Children never run inside an opener that waits here: one that takes long would keep it from giving up. They pay nothing for this wait;
 * the end of a child does not know of it.
 *
 * Rejected: a waiter that the last child claims, as on a channel (a look at the opener's state in every end of a child); a scope that is
 * told in advance (weft_scope_opts), with a counter under a lock; taking the settling back in the opener, after it was resumed (the last
 * child may resume it a second time meanwhile: a mutant of the model). */
#include "task/task.h"

/* Whether a scope that the block is in is cancelled, other than `but`. The block has opened that one, and waits for its children. What was opened
 * inside a cancelled scope has learned its cause (cancel.c), so there it says nothing. Caller sees to it that the scopes stay. */
static bool cancelled_beside(const weft__block *b, const weft__scope *but) {
    bool told = weft__load(&but->cause, acquire) != 0; /* as in weft__scope_cause, like all here */
    for (const weft__scope *s = b->scope; s; s = s->parent) {
        if (s == but)
            told = false;
        else if (!told && weft__load(&s->cause, acquire))
            return true;
        if (weft__load(&s->closed, acquire)) return false; /* S5 */
    }
    return false;
}

static int check(weft__block *b, const weft__scope *but) {
    return weft__cancel_check(b) && cancelled_beside(b, but) ? WEFT_ECANCELED : 0;
}

bool weft__children_give_up(weft__block *b, weft__scope *s, int err) {
    if (err == WEFT_ECANCELED && !cancelled_beside(b, s)) return false;
    int64_t done = weft__load(&s->done, relaxed), all = s->spawned; /* the CAS verifies it */
    do {
        if (done >= 0) return false;
    } while (
        !weft__cas(&s->done, &done, done + all, relaxed)); /* it continues the release sequences of the children's additions */
    return true;
}

/* Behind an opener that waits. The scope may be gone once the lock is left, unless all children had ended: then we resume the opener. */
static void post_settle(weft__slot *slot, void *arg) {
    weft__scope *s = arg;
    weft__block *b = weft__scope_opener(s); /* S1 */
    int64_t all = s->spawned;
    bool joined = weft__sub(&s->done, all, acq_rel) == all; /* pairs with the additions in life.c */
    weft__lock_leave(&b->lock);
    if (joined) weft__resume(b, slot);
}

/* The opener was resumed. Returns what the wait gave. */
static int resumed(weft__scope *s, weft__block *b) {
    if (!weft__load(&b->queued, relaxed)) return b->result; /* given up; the resumption orders it */
    weft__lock_take(&b->lock);                              /* S7 */
    weft__store(&b->queued, NULL, release);                 /* as in weft__queue_claim */
    weft__lock_leave(&b->lock);
    weft__add(&s->done, s->spawned, relaxed); /* S2: no child is left; the scope is as before it was settled */
    return 0;
}

static int wait_for_children(weft__scope *s, weft_deadline deadline, weft__block *b, weft__slot **slot) {
    weft__wait wait;
    weft__waiter x = {.block = b, .elem = s}; /* on no queue: S7 */
    int err = weft__wait_prepare(&wait, b, deadline, *slot);
    if (err) return err;
    weft__store(&b->wait_lock, &b->lock, release); /* P3; pairs with the acquire in weft__interrupt */
    weft__lock_take(&b->lock);
    weft__fence_after_rmw();
    if (weft__scope_joined(s) || (err = weft__wait_fired(&wait)) || (err = check(b, s))) {
        weft__lock_leave(&b->lock);
    } else {
        b->waiter = &x;
        weft__store(&b->queued, &b->lock, release); /* P2; pairs with interrupt_single */
        *slot = weft__wait_many(b, *slot, deadline, WEFT_WAIT_CHILDREN, post_settle, s);
        err = resumed(s, b);
    }
    weft__wait_finish(&wait);
    return err;
}

int weft_scope_wait(weft_scope *scope, weft_deadline deadline) {
    weft__scope *s = weft__scope_of(scope);
    bool poll = deadline.ns == INT64_MIN;
    if (!weft__scope_is_open(s)) return WEFT_EINVAL;
    weft__slot *slot = weft__enter();
    if (slot) slot = weft__spend(slot);
    weft__block *b = weft__me();
    int err = check(b, s);
    if ((poll || !err) && weft__scope_joined(s))
        err = 0;
    else if (!err)
        err = poll ? WEFT_EAGAIN : wait_for_children(s, deadline, b, &slot);
    if (slot) weft__leave();
    return err;
}
