/* SPDX-License-Identifier: MIT */
/* Handles: joining and cancelling one task. */
#include "task/task.h"

enum { HANDLE_SIZE = (sizeof(weft_task) + WEFT_LINE - 1) / WEFT_LINE * WEFT_LINE };
static weft__slab handles = {.size = HANDLE_SIZE, .link_at = offsetof(weft_task, slab_link)}; /* type-stable: P4 */

static void handle_init(weft_task *h) {
    weft__store(&h->refs, 2, relaxed); /* the caller's and the task's; published with the record */
    h->ended = false;
    atomic_init(&h->joined, false);
    h->result = 0;
    h->joiners = (weft__queue){NULL, NULL};
    memset(&h->scope, 0, sizeof h->scope);
    h->scope.parent = &weft__root;
}

static void drop(weft_task *h) {
    if (weft__sub(&h->refs, 1, acq_rel) != 1) return; /* the last one sees what the others did */
    weft__slab_put(&handles, h);
}

int weft_task_start(weft_task **out, weft_fn *fn, void *arg, const weft_task_opts *opts) {
    *out = NULL;
    if (weft__runtime_phase() < WEFT_PHASE_RUNNING) return WEFT_ETERMINATED;
    weft_task *h = weft__slab_get(&handles);
    if (!h) return WEFT_ENOMEM;
    handle_init(h);
    *out = h; /* before it runs: the task may look for itself there */
    int err = weft__spawn_handled(h, fn, arg, opts, __builtin_return_address(0));
    if (!err) return 0;
    *out = NULL;
    weft__slab_put(&handles, h);
    return err;
}

/* The task is over. Its scope has no children any more: it can be taken off the tree. */
void weft__handle_end(weft_task *h, int result, weft__slot *s) {
    if (weft__load(&h->scope.listed, acquire)) weft__scope_unlist(&h->scope); /* its children, who listed it, have ended */
    weft__queue woken = {NULL, NULL};
    weft__waiter *x;
    weft__lock_take(&h->lock);
    h->ended = true;
    h->result = result;
    while ((x = weft__queue_claim(&h->joiners))) {
        x->block->result = (int32_t)x->index; /* which of the tasks it waits for */
        weft__queue_add(&woken, x);
    }
    weft__lock_leave(&h->lock);
    while ((x = woken.head)) {
        weft__queue_remove(x); /* its frame is gone once it runs */
        weft__resume(x->block, s);
    }
    drop(h);
}

/* Waits with the handle's lock until the task has ended. 0 or an error. */
static int wait_for_end(weft_task *h, weft_deadline deadline, weft__block *b, weft__slot **s) {
    weft__wait wait;
    int err = weft__wait_prepare(&wait, b, deadline, *s);
    if (err) return err;
    weft__store(&b->wait_lock, &h->lock, release); /* P3; pairs with the acquire in weft__interrupt */
    weft__lock_take(&h->lock);
    weft__fence_after_rmw();
    if (!h->ended && !(err = weft__wait_check(&wait))) {
        weft__waiter x = {.block = b};
        b->waiter = &x;
        weft__queue_add(&h->joiners, &x);
        *s = weft__wait_single(b, *s, deadline, WEFT_WAIT_JOIN, &h->lock);
        err = b->result;
    } else {
        weft__lock_leave(&h->lock);
    }
    weft__wait_finish(&wait);
    return err;
}

int weft__handle_take(weft_task *h) {
    if (weft__xchg(&h->joined, true, relaxed)) /* only one sees false */
        weft__die("weft_task_join: task %llu was joined twice", (unsigned long long)h->id);
    int result = h->result; /* ended: it does not change any more */
    drop(h);
    return result;
}

int weft_task_join(weft_task *h, int *result, weft_deadline deadline) {
    weft__slot *s = weft__enter();
    weft__block *b = weft__me();
    int err = weft__cancel_first(b, deadline);
    if (!err && b->home == &h->scope) err = WEFT_EDEADLOCK;
    if (!err) {
        weft__lock_take(&h->lock);
        bool ended = h->ended;
        weft__lock_leave(&h->lock);
        if (!ended) err = wait_for_end(h, deadline, b, &s);
    }
    if (!err) {
        int r = weft__handle_take(h);
        if (result) *result = r;
    }
    if (s) weft__leave();
    return err;
}

void weft_task_cancel(weft_task *h) {
    weft__slot *s = weft__enter();
    weft__scope_cancel(&h->scope, WEFT_ECANCELED, s);
    if (s) weft__leave();
}

void weft_task_unref(weft_task *h) {
    if (h) drop(h);
}

uint64_t weft_task_id(weft_task *h) {
    return h->id;
}

/* ---- in the child of a fork ---- */

static void forget(void *obj) {
    weft_task *h = obj;
    if (!weft__lock_take_once(&h->lock) || !h->ended) h->result = WEFT_ETERMINATED;
    h->ended = true;
    h->joiners = (weft__queue){NULL, NULL};
    memset(&h->scope, 0, sizeof h->scope);
    h->scope.parent = &weft__root;
    weft__lock_leave(&h->lock);
}

void weft__handles_forget(void) {
    weft__slab_forget(&handles, forget);
}
