/* SPDX-License-Identifier: MIT */
/* Shields: bounded clean-up in a cancelled scope.
 *
 * A shield is a scope of its own kind in the chain of those that its task is in. While it is closed, cancellation ends at it: who looks up
 * from inside sees nothing beyond it (weft__scope_cause), who walks down from outside leaves it out (cancel.c), and a wait that was found
 * on another way, through the home's list or all stacks, is looked at again before it is ended (park.c). So putting one up needs
 * no word with a canceller that is on its way. Scopes opened inside, and their tasks, are shielded with it, because it is in their
 * chain too.
 *
 *     closed -> open   its time is up           time_is_up: from then on it is as if it were not there (S5)
 *     gone             weft_shield_end
 *
 * Rejected: a flag in the block, set under the locks of all scopes that could be walking (one lock for each, and the root's walk through
 * all stacks has none; tasks spawned inside would need a flag each); storage from the caller (a variable to declare for what should
 * be one line of clean-up). */
#include "task/panic.h"
#include "task/task.h"

static weft__slab shields = {.size = (sizeof(weft__scope) + WEFT_LINE - 1) / WEFT_LINE * WEFT_LINE,
                             .link_at = offsetof(weft__scope, done)};

static void time_is_up(weft__timer *t, void *slot) {
    weft__scope *s = weft__container(t, weft__scope, timer);
    weft__store(&s->closed, false, release); /* S5; pairs with weft__scope_cause, and the walk in cancel.c */
    weft__add(&weft__rt.epoch, 1, seq_cst);  /* S5: who has looked must look again */
    weft__fence_after_rmw();
    int cause = weft__scope_outer(s);
    if (cause) weft__scope_cancel(s, cause, slot);
}

int weft_shield_begin(weft_deadline deadline) {
    weft__block *b = weft__me();
    weft__scope *s = weft__slab_get(&shields);
    if (!s) return WEFT_ENOMEM;
    memset(s, 0, sizeof *s);
    s->owner = b;
    s->parent = b->scope ? b->scope : &weft__root;
    s->is_shield = true;
    weft__store(&s->closed, true, relaxed); /* nobody knows it yet */
    b->scope = s;
    if (weft__load(&b->kind, relaxed) == WEFT_BLOCK_THREAD) weft__scope_list_of_thread(s); /* our own */
    if (deadline.ns) weft__scope_arm(s, deadline.ns, time_is_up);
    return 0;
}

static WEFT_COLD WEFT_NORETURN void no_shield(weft__block *b) {
    for (weft__scope *s = b->scope; s && s->owner; s = s->parent)
        if (s->is_shield && s->owner == b)
            weft__die("weft_shield_end: scope %p was opened inside the shield and is still open: weft_scope_end is missing",
                      (void *)b->scope);
    weft__die("weft_shield_end: no shield is open: weft_shield_begin is missing");
}

void weft_shield_end(void) {
    weft__block *b = weft__me();
    weft__scope *s = b->scope;
    if (weft__unwound_to(s)) return; /* by a destructor: the panic has ended its shield, and this one is another */
    if (!s || !s->is_shield || s->owner != b) no_shield(b);
    weft__shield_end(b, s);
}

void weft__shield_end(weft__block *b, weft__scope *s) {
    bool outermost = weft__load(&b->kind, relaxed) == WEFT_BLOCK_THREAD && s->parent == &weft__root; /* our own */
    if (weft__load(&s->timed, relaxed)) weft__timer_stop(&s->timer);                                 /* our own */
    if (weft__load(&s->listed, relaxed)) weft__scope_unlist(s); /* those who listed it have ended */
    b->scope = outermost ? NULL : s->parent;
    weft__slab_put(&shields, s);
}

void weft__shields_forget(void) {
    weft__slab_forget(&shields, NULL);
}
