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
 *  D1  At most max tasks have called weft_bind (counted). Others may have started bound (ahead, see site.c) without having called it; they
 *      do so only if there are fewer than max of both, and nobody ever waits for one of them: whoever calls weft_bind meanwhile gets another
 *      thread. So there are at most twice max of them, besides those that end; one that is beyond max ends when its task is gone.
 *  D2  A worker is on the list or given to a waiter only from its own stack.
 *  D3  Nobody but the task runs on its thread: its children do not run inside it (inside_limit), nor when it has made too many of them (spawn.c), and
 *      when it ends, who waits for that is made ready like others and not gone on with there (its end is not plain).
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
    weft__queue waiters;  /* for a place among the counted */
    int threads, max;
    int counted;       /* tasks that have called weft_bind, or are about to get what they called it for */
    int ahead;         /* tasks that started bound and have not */
    _Atomic int tasks; /* bound now */
} own;

void weft__bind_open(int max) {
    weft__lock_take(&own.lock);
    own.unused = NULL; /* of a runtime that has ended */
    own.threads = own.counted = own.ahead = 0;
    own.max = max;
    weft__lock_leave(&own.lock);
    weft__sites_open();
}

void weft__bind_close(void) {
    weft__check(own.counted == 0 && own.ahead == 0, "D1: places are given back"); /* no task or worker is there any more */
    weft__check(own.waiters.head == NULL, "D1: nobody waits who is gone");
}

/* ---- threads ---- */

/* Under the lock: one that nobody has, for the task, which it serves from here on, though it does not know it yet. NULL: one is to be started. */
static weft__worker *take_thread(weft__task *t, bool counted) {
    weft__worker *w = own.unused;
    if (!w) {
        own.threads++;
        weft__check(own.threads <= 2 * own.max, "D1: at most twice as many threads as tasks may be bound");
        return NULL;
    }
    own.unused = w->bound_next;
    w->unused = false;
    w->serves = t;
    w->counted = counted;
    return w;
}

/* Under the lock: the task becomes one of the counted, with the thread *out unless it has one. NULL: that is to be started. */
static void count(weft__task *t, weft__worker **out) {
    own.counted++;
    *out = NULL;
    if (t->bound) {
        own.ahead--;
        t->bound->counted = true;
    } else {
        *out = take_thread(t, true);
    }
}

/* Under the lock: a place among the counted has become free. Who is to be resumed, having got it; NULL: nobody waits. */
static weft__block *pass_on(void) {
    own.counted--;
    weft__waiter *x = weft__queue_claim(&own.waiters);
    if (!x) return NULL;
    count(weft__container(x->block, weft__task, b), x->elem);
    x->block->result = 0;
    return x->block;
}

static int start_thread(weft__worker **out, weft__task *t, bool counted) {
    int err = weft__worker_start_own(out, t);
    weft__block *next = NULL;
    weft__lock_take(&own.lock);
    if (!err) {
        (*out)->counted = counted;
    } else {
        own.threads--;
        if (counted)
            next = pass_on(); /* it may have better luck, and nobody else would tell it */
        else
            own.ahead--;
    }
    weft__lock_leave(&own.lock);
    if (next) weft__resume(next, NULL);
    return err;
}

/* Waits for a place among the counted. */
static int wait_for_one(weft__worker **out, weft__block *b, weft__slot **s, weft_deadline deadline) {
    weft__wait wait;
    int err = weft__wait_prepare(&wait, b, deadline, *s);
    if (err) return err;
    weft__store(&b->wait_lock, &own.lock, release); /* P3; pairs with the acquire in weft__interrupt */
    weft__lock_take(&own.lock);
    weft__fence_after_rmw();
    if (own.counted < own.max) {
        count(weft__container(b, weft__task, b), out);
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

/* The task is one of the counted, and *out is a thread for it; NULL: it has one already. */
static int obtain(weft__worker **out, weft__task *t, weft__slot **s, weft_deadline deadline) {
    weft__lock_take(&own.lock);
    bool free = own.counted < own.max;
    if (free) count(t, out);
    weft__lock_leave(&own.lock);
    int err = free ? 0 : wait_for_one(out, &t->b, s, deadline);
    return err || *out || t->bound ? err : start_thread(out, t, true);
}

/* Under the lock, with the worker first of those that nobody has: there are more of them than there should be, and it ends. */
static void let_go(weft__worker *w) {
    own.unused = w->bound_next;
    own.threads--;
    weft__store(&w->leaving, true, relaxed); /* its own */
}

void weft__bind_free(weft__worker *w) {
    weft__thread_unbind();
    weft__block *next = NULL;
    weft__lock_take(&own.lock);
    if (!w->unused) {
        w->bound_next = own.unused;
        own.unused = w;
        w->unused = true;
        if (w->counted)
            next = pass_on();
        else
            own.ahead--;
        if (w->unused && own.threads > own.max) let_go(w);
    }
    weft__lock_leave(&own.lock);
    if (next) weft__resume(next, NULL);
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

/* The calling task goes on on its own thread. */
static void settle(weft__task *t, weft__worker *w, weft__slot *s) {
    if (t->b.linked == WEFT_LINK_NONE) weft__block_link(&t->b);
    t->b.linked |= WEFT_LINK_PINNED; /* its end looks */
    t->pinned_to = w;
    set_bound(t, w);
    weft__add(&weft__rt.binds, 1, relaxed); /* a counter */
    (void)move(s);
}

static int bind(int cpu, weft_deadline deadline) {
    weft__slot *s = weft__enter();
    if (!s) return 0;
    weft__task *t = weft__cur(weft__self());
    int err = t->pins ? WEFT_EINVAL : weft__cancel_first(&t->b, deadline);
    weft__worker *w = NULL;
    if (t->binds) err = 0;
    if (!err && !t->binds) err = obtain(&w, t, &s, deadline);
    if (!err && t->binds++ == 0) {
        if (w) settle(t, w, s);
        if (cpu) (void)weft__thread_bind_for_now(cpu - 1); /* it may have gone since it was looked at */
    }
    weft__leave();
    return err;
}

void weft__bind_ahead(void) {
    weft__slot *s = weft__enter();
    weft__task *t = weft__cur(weft__self());
    weft__worker *w = NULL;
    weft__lock_take(&own.lock);
    bool free = own.counted + own.ahead < own.max; /* D1 */
    if (free) {
        own.ahead++;
        w = take_thread(t, false);
    }
    weft__lock_leave(&own.lock);
    if (free && (w || start_thread(&w, t, false) == 0)) {
        weft__add(&weft__rt.binds_ahead, 1, relaxed); /* a counter */
        settle(t, w, s);
    }
    weft__leave();
}

void weft__bind_back(uint32_t binds) {
    while (weft__cur(weft__self())->binds > binds) weft_unbind();
}

/* The task, or the child that runs inside it, has called weft_bind for the first time. What had to be waited for in vain was wanted all the same. */
static void remember(weft__task *t, int err) {
    const weft__extra *x = t->extra; /* with WEFT_BOUND the next ones start bound anyhow */
    if (t->inner) {
        if (!err) weft__site_note(t->inner->site, t->inner->fn);
    } else if (t->guessed) {
        weft__site_hit(t);
    } else if (!err && !(x && x->bound_fn) && t->fn != weft__load(&weft__rt.main, relaxed)) { /* there may be others like it */
        weft__site_note(t->site, t->fn);
    }
}

int weft_bind(weft_deadline deadline) {
    weft__task *t = weft__cur(weft__self());
    bool first = t && !t->binds;
    int err = bind(0, deadline);
    if (first) remember(t, err);
    /* A child that runs inside its opener borrows the opener's stack, so that is what it binds, until its own end: which is not plain then. */
    if (!err && t && t->inner && !t->inner->extra) weft__show(&t->inner->extra, &weft__extra_none); /* to dump.c */
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
