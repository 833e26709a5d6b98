/* SPDX-License-Identifier: MIT */
/* The condition variable: a queue. The waiter queues up under the condition's lock and leaves its stack with it; the context that comes next
 * releases it, and then unlocks the mutex. So a signal given after the mutex was unlocked finds the waiter, and no second
 * lock is needed (L3). A waiter that is signalled before that waits for the mutex like everybody else; it cannot pass, so the mutex
 * and its own frame are still there when they are needed. Waking goes to the one who waits longest, and is not passed on. */
#include "sync/mutex.h"

typedef struct weft__cond {
    weft__queue waiters; /* under the object's lock */
    weft__mutex *mutex;  /* of those who wait; under the object's lock */
    uint32_t forks;      /* weft__sync_inherited; likewise */
} weft__cond;
_Static_assert(sizeof(weft__cond) <= sizeof(weft_cond), "a condition variable fits its storage");

static weft__cond *cond_of(weft_cond *c) {
    return (weft__cond *)(void *)c;
}

struct behind {
    weft__lock *lock;
    weft__mutex *mutex;
};

static void post_release(weft__slot *s, void *arg) {
    struct behind b = *(struct behind *)arg; /* read first: the waiter may be resumed from here on */
    weft__lock_leave(b.lock);
    weft__mutex_release(b.mutex, s);
}

static int wait_with(weft__cond *c, weft__mutex *m, weft__sync_wait *w, bool *released) {
    weft__sync_take(w);
    (void)weft__sync_inherited(&c->waiters, &c->forks);
    int err = weft__sync_ask(w);
    if (err) {
        weft__lock_leave(w->lock);
        return err;
    }
    if (c->waiters.head && c->mutex != m)
        weft__die("weft_cond_wait: %s waits for condition %p with mutex %p, others wait with mutex %p", weft__sync_who(w->id).s,
                  (void *)c, (void *)m, (void *)c->mutex);
    c->mutex = m;
    weft__queue_add(&c->waiters, &w->x);
    struct behind behind = {w->lock, m};
    *released = true;
    if (weft__held_on()) weft__held_remove(m, w->id);
    weft__store(&m->owner, 0, relaxed); /* the holder's own, until behind is done */
    weft__san_release(w->lock);         /* as in weft__park; these are left behind us */
    weft__san_release(&m->state);
    w->block->waiter = &w->x;
    weft__store(&w->block->queued, w->lock, release); /* P2; pairs with interrupt_single */
    w->slot = weft__wait_many(w->block, w->slot, w->deadline, WEFT_WAIT_COND, post_release, &behind);
    return w->block->result;
}

int weft_cond_wait(weft_cond *cond, weft_mutex *mutex, weft_deadline deadline) {
    weft__cond *c = cond_of(cond);
    weft__mutex *m = weft__mutex_of(mutex);
    weft__mutex_mine(m, "weft_cond_wait");
    int err = weft__sync_check(deadline);
    if (err) return err;
    weft__sync_wait w;
    bool released = false, checked = weft__held_on();
    err = weft__sync_begin(&w, c, deadline);
    if (!err) err = wait_with(c, m, &w, &released);
    weft__sync_end(&w);
    if (released) weft__mutex_lock(m);
    if (checked && released) weft__held_add(m, "mutex", __builtin_return_address(0));
    return err;
}

static void wake(weft_cond *cond, bool all) {
    weft__cond *c = cond_of(cond);
    weft__slot *s = weft__enter();
    weft__lock *l = weft__sync_lock_of(c);
    weft__queue woken = {NULL, NULL};
    weft__lock_take(l);
    (void)weft__sync_inherited(&c->waiters, &c->forks);
    while (weft__sync_claim(&c->waiters, &woken) && all) continue;
    weft__lock_leave(l);
    weft__sync_resume(&woken, s);
    if (s) weft__leave();
}

void weft_cond_signal(weft_cond *c) {
    wake(c, false);
}

void weft_cond_broadcast(weft_cond *c) {
    wake(c, true);
}

void weft_cond_destroy(weft_cond *cond) {
    if (!cond) return;
    weft__cond *c = cond_of(cond);
    weft__sync_destroy("cond", c, sizeof *c, &c->waiters, &c->forks);
}
