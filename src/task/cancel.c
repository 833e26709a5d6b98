/* SPDX-License-Identifier: MIT */
/* Cancellation: finding everybody who waits in a scope, and telling them once. The rules are in task.h and park.h. */
#include "task/task.h"

#include "time/clock.h"

weft__scope weft__root;

/* ---- is it cancelled? ---- */

/* Itself, or through one around it. */
int weft__scope_cause(const weft__scope *s) {
    for (; s; s = s->parent) {
        int cause = weft__load(&s->cause, acquire); /* pairs with the CAS in weft__scope_cancel_as */
        if (cause) return cause;
        if (weft__load(&s->closed, acquire)) return 0; /* S5; pairs with the release in shield.c */
    }
    return 0;
}

int weft__scope_outer(const weft__scope *s) {
    int cause = weft__scope_cause(s->parent);
    return cause || !weft__load(&s->stopped, relaxed) ? cause : WEFT_ECANCELED; /* the thread's own, or under the root's lock */
}

/* A plain thread's scope, whose timer may have no worker to run it: nothing is fired here, since the caller may hold locks, but the clock counts. */
typedef enum { NO_TIMER, NOT_YET, DUE } moment;
static moment look_at_clock(const weft__scope *s) {
    return !weft__load(&s->timed, relaxed)      ? NO_TIMER /* the thread's own */
           : s->timer.when <= weft__clock_now() ? DUE
                                                : NOT_YET;
}

/* The block remembers a look only if nothing around it is cancelled, shielded from it or not: whoever has seen the epoch may spawn into
 * the scopes outside and into the root without another look. */
int weft__cancel_look(weft__block *b) {
    uint64_t epoch = weft__load(&weft__rt.epoch, acquire); /* before the causes: a later one raises it again */
    bool shielded = false, again = false;
    bool thread = weft__load(&b->kind, relaxed) == WEFT_BLOCK_THREAD; /* the waiter's own */
    for (weft__scope *s = b->scope; s; s = s->parent) {
        if (weft__load(&s->cause, acquire)) return shielded ? 0 : WEFT_ECANCELED; /* as in weft__scope_cause */
        moment due = thread ? look_at_clock(s) : NO_TIMER;
        if (due == DUE && (!s->is_shield || weft__load(&s->stopped, relaxed))) /* as in weft__scope_outer */
            return shielded ? 0 : WEFT_ECANCELED;
        again = again || due == NOT_YET;
        shielded = shielded || (weft__load(&s->closed, acquire) && due != DUE); /* as in weft__scope_cause */
    }
    if (!again) weft__store(&b->epoch, epoch, relaxed); /* the waiter's own */
    return 0;
}

/* ---- the tree ---- */

void weft__scope_list(weft__scope *s) {
    weft__scope *at = s->parent;
    weft__lock_take(&at->lock);
    if (!weft__load(&s->listed, relaxed)) { /* S3 */
        s->prev = NULL;
        s->next = at->kids;
        if (s->next) s->next->prev = s;
        at->kids = s;
        weft__store(&s->untidy, true, relaxed); /* the join orders it */
        weft__store(&s->listed, true, release); /* pairs with the acquire in list_up */
    }
    weft__lock_leave(&at->lock);
}

void weft__scope_unlist(weft__scope *s) {
    weft__scope *at = s->parent;
    weft__lock_take(&at->lock);
    if (s->next) s->next->prev = s->prev;
    if (s->prev)
        s->prev->next = s->next;
    else
        at->kids = s->next;
    weft__store(&s->listed, false, relaxed); /* S3 */
    weft__lock_leave(&at->lock);
}

void weft__scope_list_of_thread(weft__scope *s) {
    weft__scope_list(s);
    if (s->parent != &weft__root || !weft__load(&weft__root.cause, acquire)) return; /* pairs with weft__root_cancel */
    weft__store(&s->stopped, true, relaxed);                                         /* our own */
    if (!s->is_shield) weft__scope_cancel(s, WEFT_ECANCELED, NULL);
}

/* Not listed yet, and not directly below the root, which needs no list of them. */
static bool unlisted(const weft__scope *s) {
    return s->parent != &weft__root && !weft__load(&s->listed, acquire); /* pairs with the release in weft__scope_list */
}

enum { PATH = 64 };       /* scopes remembered on the way up: half a kilobyte of stack */
enum { CROWD_SHARE = 4 }; /* stacks that are looked at for each of a crowd, at most, when it becomes one */

/* The scope and those around it, outermost first, PATH at a time. */
static void list_path(weft__scope *s) {
    while (unlisted(s)) {
        weft__scope *path[PATH];
        size_t n = 0;
        for (weft__scope *x = s; unlisted(x); x = x->parent) path[n++ % PATH] = x;
        for (size_t k = n < PATH ? n : PATH; k > 0; k--) weft__scope_list(path[--n % PATH]);
    }
}

/* The scope and those around it, outermost first: who sees a scope listed may rely on those around it being listed too. Never two
 * locks at once (S4), and no recursion: scopes may be nested deeper than a stack is. The way up is cut into up to PATH pieces of
 * equal length, so that the cost is linear up to PATH * PATH scopes. (Climbing for each: 10,000 nested ones took two seconds.) */
static void list_up(weft__scope *s) {
    weft__scope *mark[PATH];
    size_t marks = 0, step = 1, i = 0;
    for (weft__scope *x = s; unlisted(x); x = x->parent, i++) {
        if (i % step) continue;
        if (marks == PATH) { /* every second one stays; PATH is even, so this one is on the new grid too */
            for (marks = 0; marks < PATH / 2; marks++) mark[marks] = mark[2 * marks];
            step *= 2;
        }
        mark[marks++] = x;
    }
    while (marks) list_path(mark[--marks]);
}

uint32_t weft__cancel_crowd = 1024;

/* So many wait in a scope that going through all stacks takes no longer than a few times as long as through their list. */
static bool is_crowd(uint32_t n) {
    weft__stack_info info;
    if (n % weft__cancel_crowd) return false;
    weft__stack_info_get(&info);
    return info.stacks <= CROWD_SHARE * (uint64_t)n;
}

void weft__block_link(weft__block *b) {
    weft__scope *home = b->home;
    weft__task *t = weft__container(b, weft__task, b);
    if (t->timer_call) weft__timer_must_not_wait(t, "an operation that parks"); /* timer.c sends all first waits here */
    if (weft__load(&home->crowded, acquire)) {                                  /* S6; pairs with the release below */
        b->linked = WEFT_LINK_NEEDLESS;
        return;
    }
    list_up(home);
    weft__lock_take(&home->lock);
    if (is_crowd(++home->count)) weft__store(&home->crowded, true, release); /* S6 */
    weft__block *first = home->blocks;
    weft__store(&b->prev, NULL, relaxed); /* all four under home's lock */
    weft__store(&b->next, first, relaxed);
    if (first) weft__store(&first->prev, b, relaxed);
    home->blocks = b;
    weft__lock_leave(&home->lock);
    b->linked = WEFT_LINK_LIST;
}

void weft__block_unlink(weft__block *b) {
    weft__scope *home = b->home;
    weft__lock_take(&home->lock);
    weft__block *next = weft__load(&b->next, relaxed), *prev = weft__load(&b->prev, relaxed); /* under home's lock */
    if (next) weft__store(&next->prev, prev, relaxed);
    if (prev)
        weft__store(&prev->next, next, relaxed);
    else
        home->blocks = next;
    home->count--;
    weft__lock_leave(&home->lock);
}

/* ---- telling them ---- */

enum { CROWDS = 64 }; /* that are looked for at once: half a kilobyte of stack */

/* Scopes whose lists do not have everybody (S6), found on a walk. Only their addresses: they may be gone when the stacks are looked at, and another may
 * be there; it is decided late whom it concerns. */
typedef struct {
    weft__slot *slot;
    size_t n;
    const weft__scope *home[CROWDS];
} crowds;

static void interrupt_one(weft__stack *st, void *arg) {
    crowds *c = arg;
    weft__task *t = weft__stack_head(st);
    const weft__scope *home = weft__peek(&t->b.home);
    for (size_t i = 0; i < c->n; i++) {
        if (home != c->home[i]) continue;
        weft__interrupt(&t->b, WEFT_ECANCELED, c->slot);
        return;
    }
}

/* A plain thread may cancel its scope when its tasks have ended, and the runtime after them; or another that does not get further than its start. */
static void interrupt_crowds(crowds *c) {
    if (!c->n) return;
    if (!c->slot) weft__foreign_enter();
    int phase = weft__runtime_phase();
    if (c->slot || phase == WEFT_PHASE_RUNNING || phase == WEFT_PHASE_STOPPING) weft__stack_each(interrupt_one, c);
    if (!c->slot) weft__foreign_leave();
    c->n = 0;
}

/* Whoever waits in this very scope. It learns the cause too, so that nobody has to look further up. */
static void interrupt_all(weft__scope *s, int cause, crowds *c) {
    weft__slot *slot = c->slot;
    int32_t none = 0;
    weft__block *opener = weft__scope_opener(s);
    (void)weft__cas(&s->cause, &none, cause, acq_rel);         /* pairs with weft__scope_cause */
    if (opener) weft__interrupt(opener, WEFT_ECANCELED, slot); /* the opener's own code is inside */
    for (weft__block *b = s->blocks; b; b = weft__load(&b->next, relaxed)) weft__interrupt(b, WEFT_ECANCELED, slot);
    if (!weft__load(&s->crowded, relaxed)) return; /* under the lock; S6 */
    if (c->n == CROWDS) interrupt_crowds(c);
    c->home[c->n++] = s;
}

/* This scope or the first of its siblings after it that is no closed shield. */
static weft__scope *next_open(weft__scope *s) {
    while (s && weft__load(&s->closed, acquire)) s = s->next; /* S5, as in weft__scope_cause */
    return s;
}

/* Everybody below `top`, in pre-order, with the locks of the path held (S4) and without recursion. */
static void walk(weft__scope *top, int cause, weft__slot *slot) {
    weft__scope *s = top;
    crowds c;
    c.slot = slot;
    c.n = 0;
    weft__lock_take(&s->lock);
    for (;;) {
        interrupt_all(s, cause, &c);
        weft__scope *to = next_open(s->kids);
        while (!to) {
            weft__scope *up = s->parent;
            if (s != top) to = next_open(s->next);
            weft__lock_leave(&s->lock);
            if (s == top) {
                interrupt_crowds(&c);
                return;
            }
            s = up;
        }
        s = to;
        weft__lock_take(&s->lock);
    }
}

void weft__scope_cancel_as(weft__scope *s, int cause, int error, weft__slot *slot) {
    int32_t none = 0;
    if (!weft__cas(&s->cause, &none, cause, acq_rel)) return; /* pairs with weft__scope_cause */
    if (error) weft__scope_error(s, error);
    weft__add(&weft__rt.epoch, 1, seq_cst); /* P3: before the look at the blocks */
    weft__fence_after_rmw();
    walk(s, cause, slot);
}

static void interrupt_stack(weft__stack *st, void *slot) {
    weft__task *t = weft__stack_head(st);
    weft__interrupt(&t->b, WEFT_ECANCELED, slot);
}

/* Every task is in the root scope, and every task that waits is at the top of a stack; plain threads wait in the scopes they opened,
 * which are listed. */
void weft__root_cancel(void) {
    int32_t none = 0;
    if (!weft__cas(&weft__root.cause, &none, WEFT_ECANCELED, acq_rel)) return; /* as in weft__scope_cancel_as */
    weft__lock_take(&weft__root.lock);                                         /* what is listed later sees the cause */
    for (weft__scope *s = weft__root.kids; s; s = s->next)
        weft__store(&s->stopped, true, relaxed); /* read after the walk, or under the lock */
    weft__lock_leave(&weft__root.lock);
    weft__add(&weft__rt.epoch, 1, seq_cst);
    weft__fence_after_rmw();
    weft__stack_each(interrupt_stack, NULL);
    walk(&weft__root, WEFT_ECANCELED, NULL);
}
