/* SPDX-License-Identifier: MIT */
/* Bound tasks: a task with an OS thread of its own.
 *
 * Its thread is a worker that serves this one task alone (own_thread): it takes nothing but what is in its inbox, so no other task ever touches
 * its thread-locals. While the task runs, the worker holds a slot like any other; when the task waits, or others wait and its slice is over, the
 * slot goes on, and the thread sleeps. So a thousand bound tasks are a thousand threads of which as many run as there are slots.
 *
 *     unused -> bound     weft_bind takes a worker from the list, or starts one; the task goes to its inbox
 *     bound -> no task    weft_unbind, or the task's end (weft__bind_end), on that thread
 *     no task -> unused   the worker's own stack (weft__bind_free), when nobody stands on the thread any more; or it goes to who waits
 *
 *  D1  count is the number of such workers, at most max; each has a task, is on the list, or on its way there.
 *  D2  A worker is on the list or given to a waiter only from its own stack.
 *  D3  Nobody but the task runs on its thread: its children do not run inside it (inside_limit), and when it ends, who waits for that is made
 *      ready like others and not gone on with there (its end is not plain).
 *
 * Rejected: pinning to an ordinary worker (others run there meanwhile); a thread that runs the task outside of all slots (then a thousand of
 * them would run at once). */
#include "block/block.h"

#include <sched.h>

#include "sched/lane.h"
#include "task/task.h"

#include <weft/thread.h>
#include <weft/time.h>

static struct {
    weft__lock lock;
    weft__worker *unused; /* linked through bound_next */
    weft__queue waiters;
    int count, max;
    _Atomic int tasks; /* bound now */
} own;

void weft__bind_open(int max) {
    weft__lock_take(&own.lock);
    own.unused = NULL; /* of a runtime that has ended */
    own.count = 0;
    own.max = max;
    weft__lock_leave(&own.lock);
}

/* ---- threads ---- */

/* Under the lock. From here on it serves the task, though it does not know it yet. */
static weft__worker *take_unused(weft__task *t) {
    weft__worker *w = own.unused;
    if (!w) return NULL;
    own.unused = w->bound_next;
    w->unused = false;
    w->serves = t;
    return w;
}

/* One that nobody has, or a new one. WEFT_EAGAIN: there are as many as may be. */
static int obtain(weft__worker **out, weft__task *t) {
    weft__lock_take(&own.lock);
    weft__worker *w = *out = take_unused(t);
    bool more = !w && own.count < own.max;
    if (more) own.count++;
    weft__lock_leave(&own.lock);
    if (!more) return w ? 0 : WEFT_EAGAIN;
    int err = weft__worker_start_own(out, t);
    if (!err) return 0;
    weft__lock_take(&own.lock);
    own.count--;
    weft__lock_leave(&own.lock);
    return err;
}

/* Waits until one is free. */
static int wait_for_one(weft__worker **out, weft__block *b, weft__slot **s, weft_deadline deadline) {
    weft__wait wait;
    int err = weft__wait_prepare(&wait, b, deadline, *s);
    if (err) return err;
    weft__store(&b->wait_lock, &own.lock, release); /* P3; pairs with the acquire in weft__interrupt */
    weft__lock_take(&own.lock);
    weft__fence_after_rmw();
    if ((*out = take_unused(weft__container(b, weft__task, b)))) {
        weft__lock_leave(&own.lock);
    } else if (!(err = weft__wait_check(&wait))) {
        weft__waiter x = {.block = b, .elem = out};
        b->waiter = &x;
        weft__queue_add(&own.waiters, &x);
        *s = weft__wait_single(b, *s, deadline, WEFT_WAIT_BIND, &own.lock);
        err = b->result;
    } else {
        weft__lock_leave(&own.lock);
    }
    weft__wait_finish(&wait);
    return err;
}

void weft__bind_free(weft__worker *w) {
    weft__thread_unbind();
    weft__lock_take(&own.lock);
    weft__waiter *x = w->unused ? NULL : weft__queue_claim(&own.waiters);
    if (!x && !w->unused) {
        w->bound_next = own.unused;
        own.unused = w;
        w->unused = true;
    }
    weft__block *b = x ? x->block : NULL;
    if (x) {
        *(weft__worker **)x->elem = w;
        w->serves = weft__container(b, weft__task, b);
        b->result = 0;
    }
    weft__lock_leave(&own.lock);
    if (b) weft__resume(b, NULL);
}

/* ---- tasks ---- */

static void set_bound(weft__task *t, weft__worker *w) {
    t->bound = w;
    t->inside_limit = w ? (char *)UINTPTR_MAX : weft__stack_inside_limit(t->stack); /* D3 */
    if (w && !t->extra) weft__show(&t->extra, &weft__extra_none);                   /* D3; to dump.c */
    weft__add(&own.tasks, w ? 1 : -1, relaxed);                                     /* a counter */
    weft__pin_set(t, t->pins);                                                      /* the kind of its block */
}

/* Leaves this thread for where the task is to be now. */
static weft__slot *move(weft__slot *s) {
    weft__worker *w = weft__self();
    w->post = weft__post_back;
    w->post_arg = weft__cur(w);
    weft__switch(w, s, weft__cur(w), weft__pick(s));
    return weft__here(weft__self()); /* H9 */
}

static int bind(int cpu, weft_deadline deadline) {
    weft__slot *s = weft__enter();
    if (!s) return 0;
    weft__task *t = weft__cur(weft__self());
    int err = t->pins ? WEFT_EINVAL : weft__cancel_check(&t->b);
    weft__worker *w = NULL;
    if (t->binds) err = 0;
    if (!err && !t->binds) {
        err = obtain(&w, t);
        if (err == WEFT_EAGAIN) err = wait_for_one(&w, &t->b, &s, deadline);
    }
    if (!err && t->binds++ == 0) {
        if (t->b.linked == WEFT_LINK_NONE) weft__block_link(&t->b);
        t->b.linked |= WEFT_LINK_PINNED; /* its end looks */
        t->pinned_to = w;
        set_bound(t, w);
        weft__add(&weft__rt.binds, 1, relaxed); /* a counter */
        s = move(s);
        if (cpu) (void)weft__thread_bind_for_now(cpu - 1); /* it may have gone since it was looked at */
    }
    weft__leave();
    return err;
}

void weft__bind_back(uint32_t binds) {
    while (weft__cur(weft__self())->binds > binds) weft_unbind();
}

/* A child that runs inside its opener borrows the opener's stack, so that is what it binds, until its own end. */
static void back_to(void *binds) {
    weft__bind_back((uint32_t)(uintptr_t)binds);
}

int weft_bind(weft_deadline deadline) {
    int err = bind(0, deadline);
    weft__task *t = weft__cur(weft__self());
    if (err || !t || !t->inner) return err;
    err = weft_at_exit(back_to, (void *)(uintptr_t)(t->binds - 1));
    if (err) weft_unbind();
    return err;
}

void weft__bind_end(weft__task *t) {
    t->bound->serves = NULL; /* we are on its thread */
    t->binds = 0;
    set_bound(t, NULL);
}

void weft_unbind(void) {
    weft__slot *s = weft__enter();
    if (!s) return;
    weft__task *t = weft__cur(weft__self());
    if (!t->binds) weft__die("weft_unbind: task %llu is not bound", (unsigned long long)t->id);
    if (t->binds == 1 && t->pins) weft__die("weft_unbind: task %llu is still pinned", (unsigned long long)t->id);
    if (--t->binds == 0) {
        weft__bind_end(t);
        (void)move(s);
    }
    weft__leave();
}

/* Shielded: it is called, even if it is cancelled by now. After an error some time has passed. */
static int start_bound(int cpu) {
    int err = weft_shield_begin(WEFT_FOREVER);
    if (err) {
        weft_yield();
        return err;
    }
    err = bind(cpu, WEFT_FOREVER);
    if (err) (void)weft_sleep_for(WEFT_MS);
    weft_shield_end();
    return err;
}

int weft__bound_main(void *arg) {
    weft__extra *x = arg;
    weft__show(&weft__cur(weft__self())->fn, x->bound_fn); /* to dump.c */
    while (start_bound(x->cpu)) continue; /* it was accepted: as one without a stack, it waits until there is a thread for it */
    return x->bound_fn(x->bound_arg);
}

int weft__bind_count(void) {
    return weft__load(&own.tasks, relaxed); /* a counter */
}

void weft__bind_forget(void) {
    memset(&own, 0, sizeof own);
}
