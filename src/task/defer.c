/* SPDX-License-Identifier: MIT */
/* Functions to be called when a scope has ended; and scopes in block form, whose end is called by the compiler. */
#include "task/panic.h"
#include "task/task.h"

struct weft__defer {
    weft__defer *next;
    void (*fn)(void *);
    void *arg;
};

static weft__slab defers = {.size = sizeof(weft__defer), .link_at = 0};

int weft_scope_defer(weft_scope *scope, void (*fn)(void *), void *arg) {
    weft__scope *s = weft__scope_of(scope);
    if (!weft__scope_is_mine(s)) return WEFT_EINVAL;
    weft__defer *d = weft__slab_get(&defers);
    if (!d) return WEFT_ENOMEM;
    *d = (weft__defer){.next = s->deferring ? s->deferred : NULL, .fn = fn, .arg = arg};
    s->deferred = d;
    s->deferring = true;
    weft__store(&s->untidy, true, relaxed); /* the opener's own */
    return 0;
}

static int call(void *arg) {
    weft__defer *d = arg;
    d->fn(d->arg);
    return 0;
}

/* A panic in one of them ends there, as in weft_at_exit: the others are called all the same, be it while another panic ends the scope. */
void weft__defer_run(weft__scope *s) {
    while (s->deferred) {
        weft__defer d = *s->deferred;
        weft__slab_put(&defers, s->deferred);
        s->deferred = d.next;
        if (weft__contain(call, &d)) weft__scope_error(s, WEFT_EPANIC);
    }
}

void weft__defers_forget(void) {
    weft__slab_forget(&defers, NULL);
}

/* ---- block form ---- */

weft_scope *weft_scope_enter(weft_scope *scope, const weft_scope_opts *opts) {
    weft_scope_begin(scope, opts);
    weft__scope_of(scope)->result = opts->result;
    return scope;
}

void weft_scope_leave(weft_scope *scope) {
    int *result = weft__scope_of(scope)->result;
    int r = weft_scope_end(scope);
    if (result) *result = r;
}
