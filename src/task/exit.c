/* SPDX-License-Identifier: MIT */
/* What a task leaves to be run at its end. */
#include "task/panic.h"

struct weft__exit {
    struct weft__exit *next;
    void (*fn)(void *arg);
    void *arg;
};

weft__extra *weft__extra_mine(weft__task *t) {
    weft__extra **x = t->inner ? &t->inner->extra : &t->extra;
    if (*x && *x != &weft__extra_none) return *x;
    weft__extra *own = weft__extra_new(NULL, NULL, NULL, 0);
    if (own) weft__show(x, own); /* to dump.c */
    return own;
}

int weft_at_exit(void (*fn)(void *arg), void *arg) {
    weft__task *t = weft__cur(weft__self());
    if (!t || !fn) return WEFT_EINVAL;
    weft__extra *x = weft__extra_mine(t);
    struct weft__exit *e = x ? weft__malloc(sizeof *e) : NULL;
    if (!e) return WEFT_ENOMEM;
    *e = (struct weft__exit){.next = x->exits, .fn = fn, .arg = arg};
    x->exits = e;
    return 0;
}

static int call(void *arg) {
    struct weft__exit *e = arg;
    e->fn(e->arg);
    return 0;
}

/* Newest first; they may add others. */
static bool run_exits(weft__extra *x) {
    bool panicked = false;
    for (struct weft__exit *e; (e = x->exits);) {
        x->exits = e->next;
        panicked |= weft__contain(call, e) != 0;
        weft__free(e);
    }
    return panicked;
}

/* False: one of the functions panicked. */
static bool finish(weft__extra *x) {
    bool panicked = run_exits(x);
    if (!x->locals) return !panicked;
    for (int i = 0; i < WEFT_LOCAL_ROUNDS && weft__locals_destroy(&x->locals, &panicked); i++) panicked |= run_exits(x);
    weft__free(x->locals);
    x->locals = NULL;
    return !panicked;
}

/* ---- detached tasks ---- */

typedef struct {
    uint64_t id;
    const char *name;
    int result;
} failure;

static int call_hook(void *arg) {
    failure *f = arg;
    weft__rt.on_task_error(f->id, f->name, f->result, weft__rt.hook_arg);
    return 0;
}

static void tell_hook(weft__task *t, int result) {
    if (result == WEFT_ECANCELED && weft__scope_cause(&weft__root)) return; /* it was told to */
    failure f = {t->id, t->extra ? t->extra->name : "", result};
    (void)weft__contain(call_hook, &f);
}

int weft__task_finish(weft__task *t, int result) {
    if (t->extra && !finish(t->extra) && result >= 0) result = WEFT_EPANIC;
    if (result < 0 && weft__rt.on_task_error && t->b.home == &weft__root) tell_hook(t, result);
    return result;
}

int weft__inside_finish(weft__fresh *f, int result) {
    if (!f->extra) return result;
    if (!finish(f->extra) && result >= 0) result = WEFT_EPANIC;
    weft__bind_back(0); /* its opener is not bound: then it would not run inside (D3 in bind.c) */
    weft__extra_free(f->extra);
    f->extra = NULL;
    return result;
}
