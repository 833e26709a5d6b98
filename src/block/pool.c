/* SPDX-License-Identifier: MIT */
/* The blocking pool: calls that run on threads of their own while their tasks wait.
 *
 * A call is a waiter on the pool's queue, in the frame of the task that waits for it: so a deadline or a cancellation takes it off like any
 * other wait, and a call that nobody has begun leaves no trace. A thread claims the first one under the lock (from then on nobody
 * else can end the wait), runs it, and resumes the task.
 *
 * Threads. Who queues a call wakes the thread that became idle last; if none is idle and none is on its way, it starts one. A new thread that
 * takes a call and leaves others behind starts the next one before it begins: so the pool grows as fast as threads can be started, and
 * the callers do not pay for it. The thread that became idle first is the first whose time (weft_config.block_idle) is up, and ends.
 *
 *  B1  count is the number of threads alive or on their way, `coming` of them, new or woken, have not looked at the queue yet. Under the lock.
 *  B2  While a call is queued, a thread is on its way to look at the queue (coming, or at the end of its own call), or count is at
 *      its maximum and every thread runs a call, at whose end it looks.
 *
 * Rejected: the call's record in memory of its own (an allocation that can fail, for nothing: the task waits anyway); a lock for each call. */
#include "block/block.h"

#include <stdio.h>

#include "task/panic.h"
#include "task/task.h"
#include "time/clock.h"

#include <weft/block.h>

typedef struct thread thread;
struct thread {
    thread *next, *prev; /* idle, the last first; under the lock */
    thread *next_ended;  /* ended; under the lock */
    bool idle;           /* on that list; under the lock */
    _Atomic uint32_t wake;
    pthread_t id;
};

typedef struct {
    weft_fn *fn;
    void *arg;
    int result;
} call;

static struct {
    weft__lock lock;
    weft__queue calls;
    thread *idle;  /* the last to become so first */
    thread *ended; /* to be joined */
    int count, coming, max;
    int64_t patience; /* how long a thread stays idle */
    bool closing;
    _Atomic unsigned named; /* threads so far */
} pool;

/* ---- idle threads; under the lock ---- */

static void idle_push(thread *t) {
    t->prev = NULL;
    t->next = pool.idle;
    if (t->next) t->next->prev = t;
    pool.idle = t;
    t->idle = true;
}

static void idle_remove(thread *t) {
    if (!t->idle) return;
    if (t->prev)
        t->prev->next = t->next;
    else
        pool.idle = t->next;
    if (t->next) t->next->prev = t->prev;
    t->idle = false;
}

static void kick(thread *t) {
    weft__store(&t->wake, 1, release); /* pairs with the exchange in rest */
    weft__futex_wake(&t->wake, 1);
}

/* A thread is to be started, after the lock is left: there are calls, and nobody comes to look at them (B2). */
static bool too_few(void) {
    if (pool.idle || pool.coming || pool.count >= pool.max) return false;
    pool.coming++;
    pool.count++;
    return true;
}

static void call_idle(void) {
    thread *t = pool.idle;
    if (!t) return;
    idle_remove(t);
    pool.coming++;
    kick(t);
}

/* ---- threads ---- */

/* Joins those that have ended. */
static void reap(void) {
    weft__lock_take(&pool.lock);
    thread *t = pool.ended;
    pool.ended = NULL;
    weft__lock_leave(&pool.lock);
    while (t) {
        thread *next = t->next_ended;
        pthread_join(t->id, NULL);
        weft__free(t);
        t = next;
    }
}

/* No thread could be started. If there is none at all, nobody will come for those who wait. */
static void not_started(int err) {
    weft__queue failed = {NULL, NULL};
    weft__waiter *x;
    weft__lock_take(&pool.lock);
    pool.coming--;
    pool.count--;
    while (!pool.count && (x = weft__queue_claim(&pool.calls))) weft__queue_add(&failed, x);
    weft__lock_leave(&pool.lock);
    while ((x = failed.head)) {
        weft__queue_remove(x); /* its frame is gone once it runs */
        x->block->result = err;
        weft__resume(x->block, NULL);
    }
}

static void *thread_main(void *arg);

/* For one that was counted already. */
static int start(void) {
    char name[24];
    pthread_t id; /* the thread notes its own */
    reap();
    snprintf(name, sizeof name, "weft-block/%u", weft__add(&pool.named, 1, relaxed)); /* orders nothing */
    thread *t = weft__calloc(1, sizeof *t);
    int err = t ? weft__thread_start(&id, thread_main, t, name) : WEFT_ENOMEM;
    if (!err) return 0;
    weft__free(t);
    not_started(err);
    return err;
}

/* Runs the call, and lets its task go on. Entered and left with the lock. */
static void run(weft__waiter *x) {
    call *c = x->elem;
    weft__block *b = x->block;
    bool more = pool.calls.head && too_few();
    weft__lock_leave(&pool.lock);
    if (more) (void)start();
    uint32_t forks = weft__forks;
    weft__ctx_fp_reset(); /* those of the last call, or of the thread that started this one, must not leak into it */
    int result = weft__thread_call(c->fn, c->arg, "the blocking pool");
    if (weft__forks != forks)
        weft__die(
            "a function on the blocking pool forked, and its child process returned from it: there it may only call exec, "
            "_exit or exit.");
    c->result = result;
    b->result = 0;
    weft__resume(b, NULL); /* the call is gone */
    weft__lock_take(&pool.lock);
}

/* Until there may be something to do. False: its time is up. With the lock, as above. */
static bool rest(thread *t) {
    int64_t until = weft__clock_now() + pool.patience;
    idle_push(t);
    while (t->idle && weft__clock_now() < until && !pool.closing) {
        weft__lock_leave(&pool.lock);
        weft__futex_wait(&t->wake, 0, weft__clock_is_fake() ? 0 : until);
        (void)weft__xchg(&t->wake, 0, acq_rel); /* before the look under the lock; pairs with kick */
        weft__lock_take(&pool.lock);
    }
    bool called = !t->idle;
    if (called) pool.coming--;
    idle_remove(t);
    return called;
}

static void *thread_main(void *arg) {
    thread *t = arg;
    weft__waiter *x;
    weft__lock_take(&pool.lock);
    t->id = pthread_self();
    pool.coming--;
    do {
        while ((x = weft__queue_claim(&pool.calls))) run(x);
    } while (rest(t));
    pool.count--;
    t->next_ended = pool.ended;
    pool.ended = t;
    weft__lock_leave(&pool.lock);
    return NULL;
}

/* ---- calls ---- */

/* With room for the call to be served; leaves with the lock taken. An error: there is no thread for it, and none to be had. */
static int prepare(void) {
    int err = 0;
    weft__lock_take(&pool.lock);
    while (!err && too_few()) {
        weft__lock_leave(&pool.lock);
        err = start();
        weft__lock_take(&pool.lock);
    }
    return pool.count ? 0 : err;
}

static int call_on_pool(call *c, weft__block *b, weft__slot **s, weft_deadline deadline) {
    weft__wait wait;
    int err = weft__wait_prepare(&wait, b, deadline, *s);
    if (err) return err;
    weft__store(&b->wait_lock, &pool.lock, release); /* P3; pairs with the acquire in weft__interrupt */
    err = prepare();
    weft__fence_after_rmw();
    if (!err && !(err = weft__wait_check(&wait))) {
        weft__waiter x = {.block = b, .elem = c};
        b->waiter = &x;
        weft__queue_add(&pool.calls, &x);
        call_idle();
        *s = weft__wait_single(b, *s, deadline, WEFT_WAIT_BLOCK, &pool.lock);
        err = b->result;
    } else {
        weft__lock_leave(&pool.lock);
    }
    weft__wait_finish(&wait);
    return err;
}

int weft_block(weft_fn *fn, void *arg, weft_deadline deadline) {
    weft__slot *s = weft__enter();
    weft__block *b = weft__me();
    call c = {.fn = fn, .arg = arg};
    int err = weft__cancel_first(b, deadline);
    if (!s) return err ? err : weft__thread_call(fn, arg, "a plain thread");
    if (!err) err = call_on_pool(&c, b, &s, deadline);
    weft__leave();
    return err ? err : c.result;
}

/* ---- beginning and end ---- */

void weft__pool_open(int max, int64_t idle) {
    weft__lock_take(&pool.lock);
    pool.max = max;
    pool.patience = idle;
    pool.closing = false;
    weft__lock_leave(&pool.lock);
}

void weft__pool_kick(void) {
    weft__lock_take(&pool.lock);
    for (thread *t = pool.idle; t; t = t->next) kick(t);
    weft__lock_leave(&pool.lock);
}

void weft__pool_close(void) {
    weft__lock_take(&pool.lock);
    pool.closing = true;
    weft__lock_leave(&pool.lock);
    weft__pool_kick();
    weft__lock_take(&pool.lock);
    while (pool.count) {
        weft__lock_leave(&pool.lock);
        weft__nap(50 * WEFT_US); /* they are on their way out */
        weft__lock_take(&pool.lock);
    }
    weft__lock_leave(&pool.lock);
    reap();
}

void weft__pool_counts(int *threads, int *queued) {
    weft__lock_take(&pool.lock);
    *threads = pool.count;
    *queued = 0;
    for (weft__waiter *x = pool.calls.head; x; x = x->next) ++*queued;
    weft__lock_leave(&pool.lock);
}

void weft__pool_forget(void) {
    memset(&pool, 0, sizeof pool); /* their memory is lost: another thread may have been changing it */
}
