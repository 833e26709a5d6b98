/* SPDX-License-Identifier: MIT */
/* The beginning and the end of a task, and who is told. */
#include "task/task.h"

weft__block *weft__me(void) {
    weft__worker *w = weft__self();
    return likely(w != &weft__nobody) ? &w->cur->b : weft__thread_block();
}

weft__task *weft__task_begin(weft__slot *s, weft__fresh *f, weft__stack *st) {
    weft__task *t = weft__stack_head(st);
    t->b.kind = WEFT_BLOCK_TASK;
    t->b.linked = f->home == &weft__root ? WEFT_LINK_NEEDLESS : WEFT_LINK_NONE;
    t->b.scope = t->b.home = f->home;
    weft__store(&t->b.wait_lock, NULL, relaxed); /* it is not waiting: read by interrupters at any time */
    weft__store(&t->b.epoch, 0, relaxed);        /* its first wait looks at its scope */
    weft__store(&t->b.reason, WEFT_WAIT_NONE, relaxed);
    t->stack = st;
    t->fn = f->fn;
    t->arg = f->arg;
    t->id = weft__load(&f->id, relaxed);
    t->site = f->site;
    t->extra = f->extra;
    if (f->args) {
        memcpy(t->copy, f->copy, sizeof t->copy);
        t->arg = t->copy;
    }
    weft__cache_put(&weft__rt.fresh_slab, &s->fresh, f);
    return t;
}

void weft__scope_left_open(weft__task *t) {
    weft__die("task %llu \"%s\" returned with scope %p still open: weft_scope_end is missing", (unsigned long long)t->id,
              t->extra ? t->extra->name : "", (void *)t->b.scope);
}

static WEFT_COLD void end_extra(weft__slot *s, weft__task *t, int result) {
    weft__extra *x = t->extra;
    t->extra = NULL;
    if (x->handle) weft__handle_end(x->handle, result, s);
    weft__extra_free(x);
}

weft__work weft__task_end(weft__slot *s, weft__task *t, int result) {
    weft__scope *home = t->b.home;
    weft__task_check_scopes(t);
    if (unlikely(t->b.linked == WEFT_LINK_LIST)) weft__block_unlink(&t->b);
    bool detached = home->owner == NULL; /* before the handle, which may hold the scope, is let go */
    if (unlikely(t->extra != NULL)) end_extra(s, t, result);
    if (detached) {
        weft__root_done(s);
        return 0;
    }
    if (unlikely(result < 0)) weft__child_failed(home, result, s);
    weft__block *owner = home->owner; /* S1 */
    bool thread = owner->kind == WEFT_BLOCK_THREAD;
    /* acq_rel: the opener sees what all children did; pairs with post_settle and joined */
    bool last = weft__add(&home->done, 1, acq_rel) == -1;
    if (likely(!thread)) return last ? weft__work_task(weft__container(owner, weft__task, b)) : 0;
    if (last) weft__resume(owner, s);
    weft__foreign_done();
    return 0;
}

/* ---- counting ---- */

bool weft__root_alive(void) {
    uint64_t done = weft__load(&weft__rt.foreign_done, acquire), spawned; /* pair with the releases of the counters */
    for (int i = 0; i < weft__rt.slots; i++) done += weft__load(&weft__rt.slot[i].done, acquire);
    atomic_thread_fence(memory_order_seq_cst); /* all `done` before any `spawned` */
    spawned = weft__load(&weft__rt.foreign_spawned, acquire);
    for (int i = 0; i < weft__rt.slots; i++) spawned += weft__load(&weft__rt.slot[i].spawned, acquire);
    return done != spawned;
}

void weft__root_drained(void) {
    weft__add(&weft__rt.drained, 1, release); /* pairs with the acquire in weft_stop */
    weft__futex_wake(&weft__rt.drained, INT32_MAX);
}

void weft__foreign_spawned(void) {
    weft__add(&weft__rt.foreign_spawned, 1, seq_cst); /* before the look at the phase; pairs with weft_stop */
}

void weft__foreign_done(void) {
    weft__add(&weft__rt.foreign_done, 1, seq_cst);
    if (weft__load(&weft__rt.draining, seq_cst)) weft__root_drained(); /* pairs with weft_stop */
}
