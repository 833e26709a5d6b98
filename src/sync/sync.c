/* SPDX-License-Identifier: MIT */
#include "sync/sync.h"

#include <stdio.h>
#include <unistd.h>

weft__sync_line weft__sync_table[1 << WEFT_SYNC_BITS];
uint32_t weft__sync_forks;

/* ---- who ---- */

static __thread uint64_t thread_id; /* a plain thread does not move; a task never comes here */

uint64_t weft__sync_thread_id(void) {
    if (!thread_id) thread_id = WEFT_SYNC_THREAD | (uint64_t)gettid();
    return thread_id;
}

weft__who_text weft__sync_who(uint64_t id) {
    weft__who_text t = {"nobody"};
    if (id & WEFT_SYNC_THREAD)
        snprintf(t.s, sizeof t.s, "thread %llu", (unsigned long long)(id & ~WEFT_SYNC_THREAD));
    else if (id)
        snprintf(t.s, sizeof t.s, "task %llu", (unsigned long long)id);
    return t;
}

void weft__sync_step_back(void) {
    weft__slot *s = weft__enter(); /* which lets others run if it was asked to */
    if (!s) return;
    weft__task *me = weft__cur(weft__self());
    if (me->locks >= WEFT_SYNC_TURN) {
        me->locks = 0;
        (void)weft__yield_now(s);
    }
    weft__leave();
}

/* ---- waiting ---- */

static void enter(weft__sync_wait *w, const void *object) {
    w->slot = weft__enter();
    if (w->slot) w->slot = weft__spend(w->slot);
    w->block = weft__me();
    w->lock = weft__sync_lock_of(object);
    w->x.block = w->block;
    w->x.elem = NULL;
    w->x.index = 0;
    w->x.many = false;
    w->id = weft__sync_id(weft__self());
    w->timed.armed = false;
}

int weft__sync_begin(weft__sync_wait *w, const void *object, weft_deadline deadline) {
    enter(w, object);
    w->deaf = false;
    w->deadline = deadline;
    return weft__wait_prepare(&w->timed, w->block, deadline, w->slot);
}

/* weft__wait_prepare is not asked, so what it looks after is looked at here. */
void weft__sync_begin_deaf(weft__sync_wait *w, const void *object) {
    weft__task *me = weft__cur(weft__self());
    if (me && unlikely(me->timer_call != NULL)) weft__timer_must_not_wait(me, "a lock that somebody else holds");
    enter(w, object);
    w->deaf = true;
    w->deadline = WEFT_FOREVER;
}

/* A deaf wait is not `queued`: weft__interrupt finds nothing to end, and the claimer needs only the queue. */
int weft__sync_park(weft__sync_wait *w, int reason) {
    if (w->deaf) {
        w->slot = weft__wait_many(w->block, w->slot, WEFT_FOREVER, reason, weft__post_unlock, w->lock);
    } else {
        w->block->waiter = &w->x;
        w->slot = weft__wait_single(w->block, w->slot, w->deadline, reason, w->lock);
    }
    return w->block->result;
}

int weft__sync_wait_on(weft__sync_wait *w, weft__queue *q, int reason) {
    int err = weft__sync_ask(w);
    if (err) {
        weft__lock_leave(w->lock);
        return err;
    }
    weft__queue_add(q, &w->x);
    return weft__sync_park(w, reason);
}

void weft__sync_end(weft__sync_wait *w) {
    weft__wait_finish(&w->timed);
    if (w->slot) weft__leave();
}

/* ---- waking ---- */

void weft__sync_resume(weft__queue *woken, weft__slot *s) {
    for (weft__waiter *x; (x = woken->head);) {
        weft__queue_remove(x); /* its frame is gone once it runs */
        weft__resume(x->block, s);
    }
}

/* ---- the end ---- */

void weft__sync_forget(void) {
    weft__sync_forks++;
    for (size_t i = 0; i < weft__countof(weft__sync_table); i++) weft__lock_leave(&weft__sync_table[i].lock);
    weft__held_forget();
}

void weft__sync_destroyed(const char *what, const void *object, const weft__queue *q) {
    weft__sync_wait *w = weft__container(q->head, weft__sync_wait, x);
    weft__die("weft_%s_destroy: %s %p is destroyed while %s waits for it", what, what, object, weft__sync_who(w->id).s);
}

void weft__sync_destroy(const char *what, void *object, size_t size, weft__queue *q, uint32_t *forks) {
    weft__slot *s = weft__enter();
    weft__lock *l = weft__sync_lock_of(object);
    weft__lock_take(l);
    if (!weft__sync_inherited(q, forks) && q->head) weft__sync_destroyed(what, object, q);
    memset(object, 0, size);
    weft__lock_leave(l);
    if (s) weft__leave();
}
