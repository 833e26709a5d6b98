/* SPDX-License-Identifier: MIT */
/* Worker threads: what they do on their own stack, how they begin and end.
 *
 * A worker lives in memory that stays until the runtime ends: whoever wants its slot may look at its gate at any time. One that retires (idle.c)
 * leaves its memory to the next. Besides those that run any task there are those that serve one task alone (bind.c), and threads of the
 * user's that serve for a time (attach.c). */
#define WEFT_KEEP_ERRNO
#include <stdio.h>

#include "sched/switch.h"

struct weft__rt weft__rt = {.generation = 1, .fresh_slab = {.size = sizeof(weft__fresh)}};
weft__worker weft__nobody = {.gate = WEFT_GATE_NONE};
weft__worker weft__orphan = {.gate = WEFT_GATE_NONE};
__thread weft__worker *weft__self_worker = &weft__nobody;

static struct {
    weft__lock lock;
    weft__worker *all;     /* linked through all_next, as the next */
    weft__worker *retired; /* their memory is used again */
    int count;             /* without those that serve one task alone, which have a limit of their own */
    int numbered;          /* so far */
} workers;

static void open_thread(weft__worker *w) {
    weft__self_worker = w;
    w->errno_at = &errno;
    w->eh = weft__eh_here();
    w->bounds = weft__san_thread();
    weft__san_release(&w->sp); /* what the thread began with: its own variables; pairs with weft__san_resumed */
    weft__san_threads_own(w->errno_at, sizeof *w->errno_at);
    if (w->eh) weft__san_threads_own(w->eh, sizeof *w->eh);
    weft__store(&w->tid, weft__thread_id(), relaxed); /* the watch looks only where there is a slot */
    weft__store(&w->in_rt, 1, relaxed);               /* pairs with weft__slot_take: it has no slot yet */
}

/* A stack for a fresh task, or NULL: there is no memory, and the task waits until there is. */
static weft__stack *stack_for(weft__slot *s, weft__fresh *f) {
    weft__stack *st = weft__stack_get(&s->stacks, (int)f->shape.size_class);
    if (unlikely(!st) && f->shape.size_class == WEFT_STACK_ASK)
        st = weft__stack_get(&s->stacks, weft__stack_advised(f->site, (void *)(uintptr_t)f->fn, weft__rt.default_class));
    if (unlikely(weft__load(&weft__rt.no_stacks, relaxed) != !st)) weft__store(&weft__rt.no_stacks, !st, relaxed); /* a hint */
    if (likely(st != NULL)) return st;
    weft__inject_fresh(f);
    weft__nap(WEFT_MS);
    return NULL;
}

/* Runs the work until its stack, or the one it has become, comes back to ours. */
static WEFT_NO_TSAN void run(weft__worker *w, weft__work k) {
    weft__slot *s = weft__here(w);
    s->budget = WEFT_BUDGET;
    if (weft__is_fresh(k)) {
        weft__stack *st = stack_for(s, weft__as_fresh(k));
        if (!st) return;
        weft__san_start(st, weft__task_quiet(st), w->bounds.fiber, &w->sp, &weft__as_fresh(k)->id);
        weft__set_cur(w, weft__task_begin(s, weft__as_fresh(k), st));
        weft__san_leave(&w->fake, weft__san_stack(st));
        weft__ctx_start(&w->sp, st->high);
    } else {
        weft__check(!w->own_thread || weft__as_task(k)->bound == w, "D3: only its task there");
        weft__set_cur(w, weft__as_task(k));
        weft__san_leave(&w->fake, weft__san_stack(weft__cur(w)->stack));
        weft__ctx_swap(&w->sp, weft__cur(w)->sp);
    }
    weft__san_arrive(w->fake);
}

/* Serves until there is nothing to find any more: the runtime stops, or the worker retires. */
static void serve(weft__worker *w) {
    bool quiet = false;
    weft__san_quiet_begin(&quiet);
    open_thread(w);
    if (weft__stack_thread_open() < 0)
        weft__say("no alternate signal stack for worker %d: a stack overflow there will not be reported", w->id);
    for (;;) {
        weft__run_post(w);
        weft__work k = w->pending;
        w->pending = 0;
        if (!k) k = weft__find_work(w);
        if (!k) break;
        run(w, k);
    }
    weft__stack_thread_close();
    weft__thread_unbind(); /* it may be somebody else's thread */
    weft__self_worker = &weft__nobody;
    weft__san_quiet_end(&quiet);
}

/* ---- the list of all ---- */

/* As new. Somebody may still look at it, through a hint that is out of date: what can be seen without a lock is stored atomically. `stray` and
 * `yields_cpu` are left alone: they are false, or somebody tried to take a slot, or came too late, and is about to take it back. */
static void clear(weft__worker *w) {
    weft__store(&w->tid, 0, relaxed); /* these order nothing */
    weft__store(&w->leaving, false, relaxed);
    weft__store(&w->given, 0, relaxed);
    weft__store(&w->wake, 0, relaxed);
    weft__store(&w->left, 0, relaxed);
    weft__store(&w->has_inbox, false, relaxed);
    w->pending = 0;
    w->nap = w->retires = 0;
    w->last = NULL;
    w->cpu = w->pinned = w->quiet = 0;
    w->own_thread = w->attached = w->unused = w->counted = w->searching = w->in_vain = w->was_sentry = w->was_listener = false;
    w->serves = NULL;
}

/* A retired one whose thread has ended; NULL: none. Nobody waits for the others: at a thread's end functions of the user's are called, which may
 * take long, or wait for us. Under the lock. */
static weft__worker *reusable(void) {
    weft__worker **at = &workers.retired, *w;
    while ((w = *at) && !w->attached && pthread_tryjoin_np(w->thread, NULL) != 0) at = &w->all_next;
    if (w) *at = w->all_next;
    return w;
}

/* A retired one's memory, or new; NULL: none. */
static weft__worker *obtain(void) {
    weft__lock_take(&workers.lock);
    weft__worker *w = reusable();
    weft__lock_leave(&workers.lock);
    if (!w) return weft__calloc(1, sizeof *w);
    clear(w);
    return w;
}

/* Gives a number to it; under the lock. An error: there may not be another. */
static int enlist(weft__worker *w) {
    if (weft__load(&weft__rt.stopping, acquire))
        return WEFT_ETERMINATED; /* weft__workers_stop has the list, or will see us on it */
    if (!w->own_thread && workers.count >= weft__rt.max_threads) return WEFT_ELIMIT;
    weft__store(&w->in_rt, 1, relaxed); /* as in open_thread */
    weft__store(&w->gate, WEFT_GATE_NONE, relaxed);
    if (!w->own_thread) workers.count++;
    w->id = workers.numbered++;
    w->all_next = workers.all;
    workers.all = w;
    return 0;
}

static void strike(weft__worker *w) {
    weft__worker **at = &workers.all;
    while (*at && *at != w) at = &(*at)->all_next;
    if (!*at) return; /* weft__workers_stop has the list */
    *at = w->all_next;
    if (!w->own_thread) workers.count--;
    w->all_next = workers.retired;
    workers.retired = w;
}

static void discard(weft__worker *w) {
    w->attached = true; /* no thread to be joined */
    w->all_next = workers.retired;
    workers.retired = w;
}

/* ---- our own threads ---- */

static void *worker_main(void *arg) {
    weft__worker *w = arg;
    serve(w);
    weft__lock_take(&workers.lock);
    if (!weft__load(&weft__rt.stopping, acquire)) strike(w); /* else it is weft__workers_stop's */
    weft__lock_leave(&workers.lock);
    return NULL;
}

static int start(weft__slot *s, bool searching, weft__task *own, weft__worker **out) {
    weft__worker *w = obtain();
    weft__lock_take(&workers.lock);
    int err = w ? 0 : WEFT_ENOMEM;
    if (w) {
        w->own_thread = own != NULL;
        w->serves = own;
        weft__store(&w->given, (uintptr_t)s | searching, release); /* H6; pairs with the acquire in take_given */
        err = enlist(w);
        if (err) discard(w);
    }
    if (!err) {
        char name[24];
        snprintf(name, sizeof name, own ? "weft-own/%d" : "weft/%d", w->id);
        err = weft__thread_start(&w->thread, worker_main, w, name);
        if (err) {
            strike(w);
            w->attached = true; /* as in discard */
        }
    }
    weft__lock_leave(&workers.lock);
    if (out) *out = err ? NULL : w;
    return err;
}

int weft__worker_start(weft__slot *s, bool searching) {
    return start(s, searching, NULL, NULL);
}

int weft__worker_start_own(weft__worker **out, weft__task *t) {
    return start(NULL, false, t, out);
}

/* ---- threads of others ---- */

int weft__worker_attach(weft__worker **out) {
    weft__worker *w = obtain();
    weft__lock_take(&workers.lock);
    int err = WEFT_ENOMEM;
    if (w) {
        w->attached = true;
        err = enlist(w);
        if (err) discard(w);
    }
    weft__lock_leave(&workers.lock);
    *out = err ? NULL : w;
    return err;
}

bool weft__worker_serve(weft__worker *w) {
    serve(w);
    weft__foreign_enter(); /* the runtime does not end before somebody else watches */
    weft__lock_take(&workers.lock);
    bool stopping = weft__load(&weft__rt.stopping, acquire); /* then it is weft__workers_stop's */
    if (!stopping) strike(w);
    weft__lock_leave(&workers.lock);
    if (!stopping) weft__idle_mend(true); /* there may be one more now */
    weft__foreign_leave();
    if (!stopping) return true;
    weft__store(&w->left, 1, release);     /* pairs with the acquire in wait_for */
    weft__futex_wake(&w->left, INT32_MAX); /* an address only: it may be gone */
    return false;
}

void weft__worker_leave(weft__worker *w) {
    weft__store(&w->leaving, true, seq_cst); /* pairs with retire in idle.c */
    weft__worker_kick(w);
    weft__worker_request(w); /* a task that it runs steps back, and it visits its own stack */
}

weft__worker *weft__worker_running(weft__task *t) {
    weft__lock_take(&workers.lock);
    weft__worker *w = workers.all;
    while (w && weft__cur(w) != t) w = w->all_next;
    weft__lock_leave(&workers.lock);
    return w;
}

int weft__workers_stray(weft__worker **out, int most) {
    int n = 0;
    weft__lock_take(&workers.lock);
    for (weft__worker *w = workers.all; w && n < most; w = w->all_next)
        if (weft__load(&w->stray, relaxed) && weft__load(&w->yields_cpu, relaxed)) out[n++] = w; /* hints */
    weft__lock_leave(&workers.lock);
    return n;
}

int weft__workers_count(void) {
    weft__lock_take(&workers.lock);
    int n = workers.count;
    weft__lock_leave(&workers.lock);
    return n;
}

static void free_all(weft__worker *w) {
    while (w) {
        weft__worker *next = w->all_next;
        weft__free(w);
        w = next;
    }
}

void weft__workers_forget(void) {
    free_all(workers.all);
    free_all(workers.retired);
    workers.all = workers.retired = NULL;
    workers.count = workers.numbered = 0;
    weft__lock_leave(&workers.lock);
}

/* Until its thread has ended, or, somebody else's, has left. (That has a word of its own: another worker on its way out may kick it.) */
static void wait_for(weft__worker *w) {
    if (!w->attached) {
        pthread_join(w->thread, NULL);
        return;
    }
    while (!weft__load(&w->left, acquire)) weft__futex_wait(&w->left, 0, 0); /* pairs with weft__worker_serve */
}

void weft__workers_stop(void) {
    weft__store(&weft__rt.stopping, true, seq_cst); /* pairs with sleep_until_given */
    weft__lock_take(&workers.lock);
    for (weft__worker *w = workers.all; w; w = w->all_next) weft__worker_kick(w);
    weft__worker *w = workers.all, *retired = workers.retired;
    workers.all = workers.retired = NULL;
    workers.count = workers.numbered = 0;
    weft__lock_leave(&workers.lock);
    for (weft__worker *x = w; x; x = x->all_next) wait_for(x);
    for (weft__worker *x = retired; x; x = x->all_next)
        if (!x->attached) pthread_join(x->thread, NULL);
    free_all(w); /* only now: they reach each other through the idle list */
    free_all(retired);
}
