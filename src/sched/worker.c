/* SPDX-License-Identifier: MIT */
/* Worker threads: what they do on their own stack, how they begin and end.
 *
 * A worker lives in memory that stays until the runtime ends: whoever wants its slot may look at its gate at any time. */
#define WEFT_KEEP_ERRNO
#include <stdio.h>

#include "sched/switch.h"

struct weft__rt weft__rt = {.fresh_slab = {.size = sizeof(weft__fresh)}};
weft__worker weft__nobody = {.gate = WEFT_GATE_NONE};
weft__worker weft__orphan = {.gate = WEFT_GATE_NONE};
__thread weft__worker *weft__self_worker = &weft__nobody;

static struct {
    weft__lock lock;
    weft__worker *all; /* linked through all_next */
    int count;
} workers;

static void open_thread(weft__worker *w) {
    weft__self_worker = w;
    w->errno_at = &errno;
    w->eh = weft__eh_here();
    w->bounds = weft__san_thread();
    w->tid = weft__thread_id();
    weft__thread_slice(w->tid, WEFT_SLICE_WORKER);
    weft__store(&w->in_rt, 1, relaxed); /* pairs with weft__slot_take: it has no slot yet */
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
        weft__set_cur(w, weft__task_begin(s, weft__as_fresh(k), st));
        weft__san_leave(&w->fake, weft__san_stack(st));
        weft__ctx_start(&w->sp, st->high);
    } else {
        weft__set_cur(w, weft__as_task(k));
        weft__san_leave(&w->fake, weft__san_stack(weft__cur(w)->stack));
        weft__ctx_swap(&w->sp, weft__cur(w)->sp);
    }
    weft__san_arrive(w->fake);
}

static void *worker_main(void *arg) {
    weft__worker *w = arg;
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
    weft__self_worker = &weft__nobody;
    return NULL;
}

int weft__worker_start(weft__slot *s, bool searching) {
    weft__worker *w = weft__calloc(1, sizeof *w);
    if (!w) return WEFT_ENOMEM;
    weft__store(&w->in_rt, 1, relaxed); /* as in open_thread */
    weft__store(&w->gate, WEFT_GATE_NONE, relaxed);
    weft__store(&w->given, (uintptr_t)s | searching, release); /* H6; pairs with the acquire in take_given */
    weft__lock_take(&workers.lock);
    int err = workers.count < weft__rt.max_threads ? 0 : WEFT_ELIMIT;
    if (weft__load(&weft__rt.stopping, acquire))
        err = WEFT_ETERMINATED; /* weft__workers_stop has the list, or will see us on it */
    if (!err) {
        w->id = workers.count++;
        w->all_next = workers.all;
        workers.all = w;
        char name[24];
        snprintf(name, sizeof name, "weft/%d", w->id);
        err = weft__thread_start(&w->thread, worker_main, w, name);
        if (err) {
            workers.all = w->all_next;
            workers.count--;
        }
    }
    weft__lock_leave(&workers.lock);
    if (err) weft__free(w);
    return err;
}

int weft__workers_count(void) {
    weft__lock_take(&workers.lock);
    int n = workers.count;
    weft__lock_leave(&workers.lock);
    return n;
}

void weft__workers_forget(void) {
    weft__worker *w = workers.all;
    workers.all = NULL;
    workers.count = 0;
    weft__lock_leave(&workers.lock);
    while (w) {
        weft__worker *next = w->all_next;
        weft__free(w);
        w = next;
    }
}

void weft__workers_stop(void) {
    weft__store(&weft__rt.stopping, true, seq_cst); /* pairs with sleep_until_given */
    weft__lock_take(&workers.lock);
    for (weft__worker *w = workers.all; w; w = w->all_next) weft__worker_kick(w);
    weft__worker *w = workers.all;
    workers.all = NULL;
    workers.count = 0;
    weft__lock_leave(&workers.lock);
    for (weft__worker *x = w; x; x = x->all_next) pthread_join(x->thread, NULL);
    while (w) { /* only now: they reach each other through the idle list */
        weft__worker *next = w->all_next;
        weft__free(w);
        w = next;
    }
}
