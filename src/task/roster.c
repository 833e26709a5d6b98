/* SPDX-License-Identifier: MIT */
/* Rosters: who may start, and who has ended. Of scopes with a limit, and of those whose children's results are asked for one by one.
 *
 * Limit. A child has a place from when it may start until it has ended; there are `limit` places. A place passes on directly: from the child
 * that ended to the oldest that waits, so nobody can overtake. Two kinds wait for one:
 *     the opener, and whoever else is not a task of the scope, parks in its spawn     spawners
 *     a task of the scope is never made to wait: its child is accepted, and started
 *     when there is room                                                              first … last, and these go first
 * If a scope's own tasks waited, a full scope of them that all spawn would wait for ever.
 *
 * Results. Kept in a ring that has room for every child that is accepted and not ended: so the spawn may fail for lack of memory, but
 * never the end.
 *  W1  running <= limit; running < limit  =>  nobody waits
 *  W2  keep  =>  count + outstanding <= cap
 *  W3  askers.head != NULL  =>  count == 0 */
#include "task/task.h"

static weft__slab rosters = {.size = (sizeof(weft__roster) + WEFT_LINE - 1) / WEFT_LINE * WEFT_LINE,
                             .link_at = offsetof(weft__roster, slab_link)}; /* type-stable: P4 */

void weft__roster_init(weft__roster *r, weft__block *opener, uint32_t limit, bool keep) {
    size_t from = offsetof(weft__roster, running);
    memset((char *)r + from, 0, offsetof(weft__roster, slab_link) - from);
    r->limit = limit;
    r->keep = keep;
    atomic_init(&r->ending, false);
    weft__store(&r->proxy.kind, WEFT_BLOCK_ROSTER, relaxed); /* fixed before the scope is known */
    r->opener = opener;
}

weft__roster *weft__roster_new(weft__block *opener, uint32_t limit, bool keep) {
    weft__roster *r = weft__slab_get(&rosters);
    if (r) weft__roster_init(r, opener, limit, keep);
    return r;
}

void weft__roster_free(weft__roster *r) {
    weft__free(r->results);
    weft__slab_put(&rosters, r);
}

static void check(weft__roster *r) {
    weft__check(!r->limit || r->running <= r->limit, "W1: no more than the limit run");
    weft__check(!r->limit || r->running == r->limit || (!r->first && !r->spawners.head), "W1: with room nobody waits");
    weft__check(!r->keep || r->count + r->outstanding <= r->cap, "W2: there is room for every result");
    weft__check(!r->askers.head || r->count == 0, "W3: nobody asks while there is a result");
    (void)r;
}

static bool has_room(weft__roster *r) {
    return !r->limit || r->running < r->limit;
}

/* ---- a place ---- */

/* Under the lock, which is left meanwhile: room for one more result. False: no memory. */
static bool reserve(weft__roster *r) {
    while (r->keep && r->count + r->outstanding + 1 > r->cap) {
        size_t seen = r->cap, cap = seen ? 2 * seen : 16;
        weft__lock_leave(&r->lock);
        int32_t *larger = weft__malloc(cap * sizeof *larger), *unused = larger;
        weft__lock_take(&r->lock);
        if (!larger) return false;
        if (r->cap == seen) { /* nobody else was quicker */
            for (size_t i = 0; i < r->count; i++) larger[i] = r->results[(r->head + i) % r->cap];
            unused = r->results;
            r->results = larger;
            r->cap = cap;
            r->head = 0;
        }
        weft__lock_leave(&r->lock);
        weft__free(unused);
        weft__lock_take(&r->lock);
    }
    return true;
}

/* Is it a task of the scope, or of a scope that such a task has opened? */
static bool is_within(weft__block *b, weft__scope *home) {
    for (; b && b->home; b = weft__scope_opener(b->home))
        if (b->home == home) return true;
    return false;
}

/* Parks until a child hands its place on; the lock is not held. */
static int wait_for_place(weft__roster *r, weft__block *b, weft__slot **s) {
    weft__wait wait;
    int err = weft__wait_prepare(&wait, b, WEFT_FOREVER, *s);
    if (err) return err;
    weft__store(&b->wait_lock, &r->lock, release); /* P3; pairs with the acquire in weft__interrupt */
    weft__lock_take(&r->lock);
    weft__fence_after_rmw();
    if (has_room(r)) {
        r->running++;
        weft__lock_leave(&r->lock);
    } else if ((err = weft__wait_check(&wait))) {
        weft__lock_leave(&r->lock);
    } else {
        weft__waiter x = {.block = b};
        b->waiter = &x;
        weft__queue_add(&r->spawners, &x);
        *s = weft__wait_single(b, *s, WEFT_FOREVER, WEFT_WAIT_SPAWN, &r->lock);
        err = b->result;
    }
    weft__wait_finish(&wait);
    return err;
}

static void give_up(weft__roster *r) {
    weft__lock_take(&r->lock);
    r->outstanding--;
    weft__lock_leave(&r->lock);
}

int weft__roster_admit(weft__roster *r, weft__scope *home, weft__block *me, weft__slot **s) {
    int place = is_within(me, home) ? WEFT_ROSTER_LATER : 0;
    weft__lock_take(&r->lock);
    if (!reserve(r)) {
        weft__lock_leave(&r->lock);
        return WEFT_ENOMEM;
    }
    r->outstanding++;
    bool room = has_room(r);
    if (room) r->running++;
    check(r);
    weft__lock_leave(&r->lock);
    if (!room && place == WEFT_ROSTER_LATER) return place;
    int err = room ? 0 : wait_for_place(r, me, s);
    if (err) {
        give_up(r);
    } else if (weft__scope_cause(home)) { /* the place may be that of a child which the cancellation reached before us */
        weft__roster_return(r, 0, *s);
        err = WEFT_ECANCELED;
    }
    return err;
}

/* Under the lock: a place is free. *f is to be started, or *wake resumed, or it stays free. */
static void pass_on(weft__roster *r, weft__fresh **f, weft__block **wake) {
    weft__waiter *x;
    *f = NULL;
    *wake = NULL;
    if (r->first) {
        *f = r->first;
        r->first = r->first->link;
        if (!r->first) r->last = NULL;
    } else if ((x = weft__queue_claim(&r->spawners))) {
        x->block->result = 0;
        *wake = x->block;
    } else {
        r->running--;
    }
}

static void serve(weft__fresh *f, weft__block *wake, weft__slot *s) {
    if (f) weft__fresh_start(f, s);
    if (wake) weft__resume(wake, s);
}

void weft__roster_return(weft__roster *r, int place, weft__slot *s) {
    weft__fresh *f = NULL;
    weft__block *wake = NULL;
    weft__lock_take(&r->lock);
    r->outstanding--;
    if (place != WEFT_ROSTER_LATER) pass_on(r, &f, &wake);
    check(r);
    weft__lock_leave(&r->lock);
    serve(f, wake, s);
}

bool weft__roster_queue(weft__roster *r, weft__fresh *f) {
    weft__lock_take(&r->lock);
    bool room = has_room(r);
    if (room) {
        r->running++;
    } else {
        f->link = NULL;
        if (r->last)
            r->last->link = f;
        else
            r->first = f;
        r->last = f;
    }
    check(r);
    weft__lock_leave(&r->lock);
    return !room;
}

/* ---- ends ---- */

static weft__block *report(weft__roster *r, int result) {
    weft__waiter *x = weft__queue_claim(&r->askers);
    if (x) {
        *(int *)x->elem = result;
        x->block->result = 0;
        return x->block;
    }
    r->results[(r->head + r->count) % r->cap] = result; /* W2 */
    r->count++;
    return NULL;
}

weft__block *weft__roster_ended(weft__roster *r, int result, weft__slot *s) {
    weft__fresh *f;
    weft__block *wake, *asker = NULL;
    weft__lock_take(&r->lock);
    r->outstanding--;
    if (r->keep) asker = report(r, result);
    pass_on(r, &f, &wake);
    check(r);
    weft__lock_leave(&r->lock);
    serve(f, wake, s);
    if (asker) weft__resume(asker, s);
    return r->opener;
}

/* Under the lock: 0; WEFT_EAGAIN: none has ended yet; WEFT_EEOF: none is left. */
static int next_result(weft__roster *r, int *result) {
    if (!r->count) return r->outstanding ? WEFT_EAGAIN : WEFT_EEOF;
    *result = r->results[r->head];
    r->head = (r->head + 1) % r->cap;
    r->count--;
    return 0;
}

static int wait_for_result(weft__roster *r, int *result, weft_deadline deadline, weft__block *b, weft__slot **s) {
    weft__wait wait;
    int stop = 0, err = weft__wait_prepare(&wait, b, deadline, *s);
    if (err) return err;
    weft__store(&b->wait_lock, &r->lock, release); /* P3; pairs with the acquire in weft__interrupt */
    weft__lock_take(&r->lock);
    weft__fence_after_rmw();
    err = next_result(r, result);
    if (err == WEFT_EAGAIN && !(stop = weft__wait_check(&wait))) {
        weft__waiter x = {.block = b, .elem = result};
        b->waiter = &x;
        weft__queue_add(&r->askers, &x);
        *s = weft__wait_single(b, *s, deadline, WEFT_WAIT_CHILD, &r->lock);
        err = b->result;
    } else {
        weft__lock_leave(&r->lock);
        if (err == WEFT_EAGAIN) err = stop;
    }
    weft__wait_finish(&wait);
    return err;
}

/* Says once which option is missing: the code alone cannot. */
static WEFT_COLD int no_results(const weft__scope *home) {
    static _Atomic bool said;
    if (!weft__xchg(&said, true, relaxed)) /* the first one sees false */
        weft__say("weft_scope_wait_any: scope %p keeps no results: .results is missing in its weft_scope_opts",
                  (const void *)home);
    return WEFT_EINVAL;
}

int weft_scope_wait_any(weft_scope *scope, int *result, weft_deadline deadline) {
    weft__scope *home = weft__scope_of(scope);
    weft__slot *s = weft__enter();
    weft__block *b = weft__me();
    weft__roster *r = weft__scope_roster(home);
    int value = 0, err = weft__cancel_first(b, deadline);
    if (!err && !weft__scope_is_mine(home))
        err = WEFT_EINVAL;
    else if (!err && (!r || !r->keep))
        err = no_results(home);
    if (!err) {
        weft__lock_take(&r->lock);
        err = next_result(r, &value);
        weft__lock_leave(&r->lock);
        if (err == WEFT_EAGAIN) err = wait_for_result(r, &value, deadline, b, &s);
    }
    if (!err && result) *result = value;
    if (s) weft__leave();
    return err;
}

/* ---- in the child of a fork ---- */

/* The ring is lost: somebody may have been changing it. */
void weft__roster_forget(weft__roster *r) {
    size_t from = offsetof(weft__roster, running);
    memset((char *)r + from, 0, offsetof(weft__roster, slab_link) - from);
    weft__lock_leave(&r->lock);
}

void weft__rosters_forget(void) {
    weft__slab_forget(&rosters, NULL);
}
