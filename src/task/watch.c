/* SPDX-License-Identifier: MIT */
/* Scopes that are watched: those with a limit, and those whose children's results are asked for one by one.
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

static weft__slab watches = {.size = (sizeof(weft__watch) + WEFT_LINE - 1) / WEFT_LINE * WEFT_LINE,
                             .link_at = offsetof(weft__watch, slab_link)}; /* type-stable: P4 */

weft__watch *weft__watch_new(weft__block *opener, uint32_t limit, bool keep) {
    weft__watch *w = weft__slab_get(&watches);
    if (!w) return NULL;
    size_t from = offsetof(weft__watch, running);
    memset((char *)w + from, 0, offsetof(weft__watch, slab_link) - from);
    w->limit = limit;
    w->keep = keep;
    w->proxy.kind = WEFT_BLOCK_WATCH;
    w->opener = opener;
    return w;
}

void weft__watch_free(weft__watch *w) {
    weft__free(w->results);
    weft__slab_put(&watches, w);
}

static void check(weft__watch *w) {
    weft__check(!w->limit || w->running <= w->limit, "W1: no more than the limit run");
    weft__check(!w->limit || w->running == w->limit || (!w->first && !w->spawners.head), "W1: with room nobody waits");
    weft__check(!w->keep || w->count + w->outstanding <= w->cap, "W2: there is room for every result");
    weft__check(!w->askers.head || w->count == 0, "W3: nobody asks while there is a result");
    (void)w;
}

static bool has_room(weft__watch *w) {
    return !w->limit || w->running < w->limit;
}

/* ---- a place ---- */

/* Under the lock, which is left meanwhile: room for one more result. False: no memory. */
static bool reserve(weft__watch *w) {
    while (w->keep && w->count + w->outstanding + 1 > w->cap) {
        size_t seen = w->cap, cap = seen ? 2 * seen : 16;
        weft__lock_leave(&w->lock);
        int32_t *larger = weft__malloc(cap * sizeof *larger), *unused = larger;
        weft__lock_take(&w->lock);
        if (!larger) return false;
        if (w->cap == seen) { /* nobody else was quicker */
            for (size_t i = 0; i < w->count; i++) larger[i] = w->results[(w->head + i) % w->cap];
            unused = w->results;
            w->results = larger;
            w->cap = cap;
            w->head = 0;
        }
        weft__lock_leave(&w->lock);
        weft__free(unused);
        weft__lock_take(&w->lock);
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
static int wait_for_place(weft__watch *w, weft__block *b, weft__slot **s) {
    weft__wait wait;
    int err = weft__wait_prepare(&wait, b, WEFT_FOREVER, *s);
    if (err) return err;
    weft__store(&b->wait_lock, &w->lock, release); /* P3; pairs with the acquire in weft__interrupt */
    weft__lock_take(&w->lock);
    weft__fence_after_rmw();
    if (has_room(w)) {
        w->running++;
        weft__lock_leave(&w->lock);
    } else if ((err = weft__wait_check(&wait))) {
        weft__lock_leave(&w->lock);
    } else {
        weft__waiter x = {.block = b};
        b->waiter = &x;
        weft__queue_add(&w->spawners, &x);
        *s = weft__wait_single(b, *s, WEFT_FOREVER, WEFT_WAIT_SPAWN, &w->lock);
        err = b->result;
    }
    weft__wait_finish(&wait);
    return err;
}

static void give_up(weft__watch *w) {
    weft__lock_take(&w->lock);
    w->outstanding--;
    weft__lock_leave(&w->lock);
}

int weft__watch_admit(weft__watch *w, weft__scope *home, weft__block *me, weft__slot **s) {
    int place = is_within(me, home) ? WEFT_WATCH_LATER : 0;
    weft__lock_take(&w->lock);
    if (!reserve(w)) {
        weft__lock_leave(&w->lock);
        return WEFT_ENOMEM;
    }
    w->outstanding++;
    bool room = has_room(w);
    if (room) w->running++;
    check(w);
    weft__lock_leave(&w->lock);
    if (room) return 0;
    if (place == WEFT_WATCH_LATER) return place;
    int err = wait_for_place(w, me, s);
    if (err) give_up(w);
    return err;
}

/* Under the lock: a place is free. *f is to be started, or *wake resumed, or it stays free. */
static void pass_on(weft__watch *w, weft__fresh **f, weft__block **wake) {
    weft__waiter *x;
    *f = NULL;
    *wake = NULL;
    if (w->first) {
        *f = w->first;
        w->first = w->first->link;
        if (!w->first) w->last = NULL;
    } else if ((x = weft__queue_claim(&w->spawners))) {
        x->block->result = 0;
        *wake = x->block;
    } else {
        w->running--;
    }
}

static void start(weft__fresh *f, weft__slot *s) {
    if (s) {
        weft__deque_push(s, f);
        weft__work_made(s);
    } else {
        weft__foreign_enter();
        weft__inject_fresh(f);
        weft__work_injected();
        weft__foreign_leave();
    }
}

static void serve(weft__fresh *f, weft__block *wake, weft__slot *s) {
    if (f) start(f, s);
    if (wake) weft__resume(wake, s);
}

void weft__watch_return(weft__watch *w, int place, weft__slot *s) {
    weft__fresh *f = NULL;
    weft__block *wake = NULL;
    weft__lock_take(&w->lock);
    w->outstanding--;
    if (place != WEFT_WATCH_LATER) pass_on(w, &f, &wake);
    check(w);
    weft__lock_leave(&w->lock);
    serve(f, wake, s);
}

bool weft__watch_queue(weft__watch *w, weft__fresh *f) {
    weft__lock_take(&w->lock);
    bool room = has_room(w);
    if (room) {
        w->running++;
    } else {
        f->link = NULL;
        if (w->last)
            w->last->link = f;
        else
            w->first = f;
        w->last = f;
    }
    check(w);
    weft__lock_leave(&w->lock);
    return !room;
}

/* ---- ends ---- */

static weft__block *report(weft__watch *w, int result) {
    weft__waiter *x = weft__queue_claim(&w->askers);
    if (x) {
        *(int *)x->elem = result;
        x->block->result = 0;
        return x->block;
    }
    w->results[(w->head + w->count) % w->cap] = result; /* W2 */
    w->count++;
    return NULL;
}

void weft__watch_ended(weft__watch *w, int result, weft__slot *s) {
    weft__fresh *f;
    weft__block *wake, *asker = NULL;
    weft__lock_take(&w->lock);
    w->outstanding--;
    if (w->keep) asker = report(w, result);
    pass_on(w, &f, &wake);
    check(w);
    weft__lock_leave(&w->lock);
    serve(f, wake, s);
    if (asker) weft__resume(asker, s);
}

/* Under the lock: 0; WEFT_EAGAIN: none has ended yet; WEFT_EEOF: none is left. */
static int next_result(weft__watch *w, int *result) {
    if (!w->count) return w->outstanding ? WEFT_EAGAIN : WEFT_EEOF;
    *result = w->results[w->head];
    w->head = (w->head + 1) % w->cap;
    w->count--;
    return 0;
}

static int wait_for_result(weft__watch *w, int *result, weft_deadline deadline, weft__block *b, weft__slot **s) {
    weft__wait wait;
    int stop, err = weft__wait_prepare(&wait, b, deadline, *s);
    if (err) return err;
    weft__store(&b->wait_lock, &w->lock, release); /* P3; pairs with the acquire in weft__interrupt */
    weft__lock_take(&w->lock);
    weft__fence_after_rmw();
    err = next_result(w, result);
    if (err == WEFT_EAGAIN && !(stop = weft__wait_check(&wait))) {
        weft__waiter x = {.block = b, .elem = result};
        b->waiter = &x;
        weft__queue_add(&w->askers, &x);
        *s = weft__wait_single(b, *s, deadline, WEFT_WAIT_CHILD, &w->lock);
        err = b->result;
    } else {
        weft__lock_leave(&w->lock);
        if (err == WEFT_EAGAIN) err = stop;
    }
    weft__wait_finish(&wait);
    return err;
}

int weft_scope_wait_any(weft_scope *scope, int *result, weft_deadline deadline) {
    weft__scope *home = weft__scope_of(scope);
    weft__slot *s = weft__enter();
    weft__block *b = weft__me();
    weft__watch *w = weft__scope_watch(home);
    int r = 0, err = weft__cancel_check(b);
    if (!err && (!w || !w->keep || w->opener != b)) err = WEFT_EINVAL;
    if (!err) {
        weft__lock_take(&w->lock);
        err = next_result(w, &r);
        weft__lock_leave(&w->lock);
        if (err == WEFT_EAGAIN) err = wait_for_result(w, &r, deadline, b, &s);
    }
    if (!err && result) *result = r;
    if (s) weft__leave();
    return err;
}
