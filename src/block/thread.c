/* SPDX-License-Identifier: MIT */
/* 1:1 threads: plain threads with a result that tasks and threads can wait for.
 *
 * The handle lies in type-stable memory, since joiners wait on its lock (P4). It has two users: the thread, and whoever joins; the second of
 * them gives it back. */
#include <stdlib.h>

#include "block/block.h"
#include "task/panic.h"
#include "task/task.h"

#include <weft/thread.h>

struct weft_thread {
    weft__lock lock;
    bool ended;          /* under lock */
    bool forked;         /* it was the parent's: there is nothing to join */
    _Atomic bool joined; /* only one may */
    int result;          /* under lock */
    int cpu;             /* fixed, as the next two */
    weft_fn *fn;
    void *arg;
    weft__queue joiners; /* under lock */
    pthread_t id; /* written by the thread: whoever starts it may learn it after others have the handle; the lock orders it */
    void *slab_link[2];
};

enum { HANDLE_SIZE = (sizeof(weft_thread) + WEFT_LINE - 1) / WEFT_LINE * WEFT_LINE };
static weft__slab threads = {.size = HANDLE_SIZE, .link_at = offsetof(weft_thread, slab_link)};

enum { REALTIME_MAX = 99 }; /* the kernel's */

static __thread weft_thread *running __attribute__((tls_model("initial-exec")));

static void end(weft_thread *t, int result) {
    weft__queue woken = {NULL, NULL};
    weft__waiter *x;
    weft__lock_take(&t->lock);
    t->ended = true;
    t->result = result;
    while ((x = weft__queue_claim(&t->joiners))) weft__queue_add(&woken, x);
    weft__lock_leave(&t->lock);
    while ((x = woken.head)) {
        weft__queue_remove(x); /* its frame is gone once it runs */
        x->block->result = 0;
        weft__resume(x->block, NULL);
    }
}

int weft__thread_call(weft_fn *fn, void *arg, const char *where) {
    weft__block *b = weft__thread_block();
    weft__scope *before = b->scope;
    int result = weft__contain(fn, arg);
    if (b->scope != before)
        weft__die("a function on %s returned with %s %p still open: weft_%s_end is missing", where, weft__scope_kind(b->scope),
                  (void *)b->scope, weft__scope_kind(b->scope));
    return result;
}

static void *thread_main(void *arg) {
    weft_thread *t = arg;
    running = t;
    t->id = pthread_self();
    if (t->cpu) (void)weft__thread_bind(t->cpu - 1); /* it was looked at before; it may have gone since */
    end(t, weft__thread_call(t->fn, t->arg, "a thread of weft_thread_start"));
    return NULL;
}

int weft_thread_start(weft_thread **out, weft_fn *fn, void *arg, const weft_thread_opts *opts) {
    static const weft_thread_opts none;
    const weft_thread_opts *o = opts ? opts : &none;
    *out = NULL;
    if (weft__self() == &weft__orphan) return WEFT_ETERMINATED;
    (void)weft__runtime_phase(); /* in the child of a fork, forgets the parent's */
    if (o->cpu && !weft__cpu_allowed(o->cpu - 1)) return WEFT_EINVAL;
    if (o->realtime < 0 || o->realtime > REALTIME_MAX) return WEFT_EINVAL;
    weft_thread *t = weft__slab_get(&threads);
    if (!t) return WEFT_ENOMEM;
    t->ended = t->forked = false;
    atomic_init(&t->joined, false);
    t->cpu = o->cpu;
    t->fn = fn;
    t->arg = arg;
    t->joiners = (weft__queue){NULL, NULL};
    *out = t; /* before it runs: it may look for itself there */
    pthread_t id;
    int err = weft__thread_start_opts(&id, thread_main, t, o->name, o->stack_size, o->realtime);
    if (!err) return 0;
    *out = NULL;
    weft__slab_put(&threads, t);
    return err;
}

uint64_t weft_thread_id(void) {
    return (uint64_t)weft__thread_id();
}

/* Waits with the handle's lock until it has ended. */
static int wait_for_end(weft_thread *t, weft_deadline deadline, weft__block *b, weft__slot **s) {
    weft__wait wait;
    int err = weft__wait_prepare(&wait, b, deadline, *s);
    if (err) return err;
    weft__store(&b->wait_lock, &t->lock, release); /* P3; pairs with the acquire in weft__interrupt */
    weft__lock_take(&t->lock);
    weft__fence_after_rmw();
    if (!t->ended && !(err = weft__wait_check(&wait))) {
        weft__waiter x = {.block = b};
        b->waiter = &x;
        weft__queue_add(&t->joiners, &x);
        *s = weft__wait_single(b, *s, deadline, WEFT_WAIT_THREAD, &t->lock);
        err = b->result;
    } else {
        weft__lock_leave(&t->lock);
    }
    weft__wait_finish(&wait);
    return err;
}

static bool has_ended(weft_thread *t) {
    weft__lock_take(&t->lock);
    bool ended = t->ended;
    weft__lock_leave(&t->lock);
    return ended;
}

int weft_thread_join(weft_thread *t, int *result, weft_deadline deadline) {
    weft__slot *s = weft__enter();
    weft__block *b = weft__me();
    int err = weft__cancel_first(b, deadline);
    if (!err && !s && running == t) err = WEFT_EDEADLOCK;
    if (!err && !has_ended(t)) err = wait_for_end(t, deadline, b, &s);
    if (s) weft__leave();
    if (err) return err;
    if (weft__xchg(&t->joined, true, relaxed)) weft__die("weft_thread_join: a thread was joined twice"); /* one sees false */
    if (!t->forked) pthread_join(t->id, NULL); /* it is on its way out */
    if (result) *result = t->result;
    weft__slab_put(&threads, t);
    return 0;
}

/* ---- in the child of a fork ---- */

static void forget(void *obj) {
    weft_thread *t = obj;
    if (!weft__lock_take_once(&t->lock) || !t->ended) t->result = WEFT_ETERMINATED;
    t->joiners = (weft__queue){NULL, NULL};
    t->forked = true;
    t->ended = true;
    weft__lock_leave(&t->lock);
}

void weft__threads_forget(void) {
    weft__slab_forget(&threads, forget);
}
