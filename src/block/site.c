/* SPDX-License-Identifier: MIT */
/* Spawn sites whose tasks bind are remembered, and their next tasks start bound.
 *
 * A site is the address behind the call that spawned, together with the function: what the report about stacks calls one as well. One task of
 * it that calls weft_bind with success is enough; one that ends without having called it is enough to forget.
 *
 * A program without bound tasks pays nothing. While anything is remembered, what every spawn copies into its record (weft__rt.plain) says that
 * the site is to be asked for: such a record looks odd to whoever starts it, as one with arguments does, and too large to run inside its opener.
 * Both are ways off the fast path, where the site is looked for, without a lock; a task of another site goes on as always from there.
 *
 *     unknown -> remembered   weft__site_note: weft_bind in a task that nothing was expected of
 *     remembered -> unknown   weft__site_missed: a task that was expected to call weft_bind has ended
 *
 * A task of a remembered site runs weft__site_main first, which gives it a thread if that takes no waiting (weft__bind_ahead), and then its
 * function. Until it calls weft_bind it is `guessed`; so long nobody is kept from binding by it (D1 in bind.c). A wrong guess costs a
 * thread for as long as the task lives, so only a few may be open at a time, and one more for each that has come true. A site that is forgotten
 * keeps its place, and the count of them, until the last of these is decided.
 *
 * Rejected: looking for the site in weft_spawn (every spawn would pay); a counter of hits and misses instead of one bit (a site whose tasks
 * bind now and then gains nothing from being right half of the time). */
#include "block/block.h"

#include "base/lock.h"
#include "task/task.h"

enum {
    PLACES = 256, /* a power of two */
    WAYS = 4,     /* places that a site may have; with all of them taken it is not remembered */
    TRUST = 8,    /* guesses of a site that may be open, besides as many as have come true */
};

typedef struct {
    _Atomic(void *) at; /* both are written under the lock, and read without as a hint; `fn` NULL: free */
    _Atomic(weft_fn *) fn;
    _Atomic bool binds; /* it is remembered; else it has only been, and tasks of it are still guessed */
    uint32_t open;      /* tasks that are guessed, under the lock, as the next */
    uint32_t hits;
} site;

static struct {
    weft__lock lock;
    int count;
    site place[PLACES + WAYS]; /* found by hash, or one of the next */
} sites;

/* The first of its places. */
static site *places(void *at, weft_fn *fn) {
    uint64_t hash = ((uintptr_t)at * UINT64_C(0x9e3779b97f4a7c15)) ^ ((uintptr_t)fn * UINT64_C(0xbf58476d1ce4e5b9));
    return &sites.place[(hash >> 32) % PLACES];
}

static bool is(const site *x, void *at, weft_fn *fn) {
    return weft__load(&x->at, relaxed) == at && weft__load(&x->fn, relaxed) == fn; /* hints, without the lock */
}

static site *find(void *at, weft_fn *fn) {
    for (site *x = places(at, fn), *end = x + WAYS; x < end; x++)
        if (is(x, at, fn)) return x;
    return NULL;
}

/* Whether spawns say that sites are to be asked for. Under the lock: nobody else writes it while a runtime runs. */
static void ask(bool on) {
    weft__shape plain = {.needs = weft__load(&weft__rt.plain, relaxed)};
    plain.extra = on ? WEFT_ASK_SITE : 0;
    weft__store(&weft__rt.plain, plain.needs, relaxed); /* a hint: a spawn that misses it starts as always */
}

bool weft__site_binds(void *at, weft_fn *fn) {
    site *x = find(at, fn);
    return x && weft__load(&x->binds, relaxed); /* see find */
}

void weft__site_note(void *at, weft_fn *fn) {
    weft__lock_take(&sites.lock);
    site *known = find(at, fn), *to = known ? known : places(at, fn), *end = places(at, fn) + WAYS;
    while (!known && to < end && weft__load(&to->fn, relaxed)) to++; /* under the lock */
    if (to < end && !(known && weft__load(&known->binds, relaxed))) {
        if (!known) to->open = 0;
        to->hits = 0;
        weft__store(&to->at, at, relaxed); /* see find */
        weft__store(&to->fn, fn, relaxed);
        weft__store(&to->binds, true, relaxed);
        if (sites.count++ == 0) ask(true);
    }
    weft__lock_leave(&sites.lock);
}

/* Under the lock. */
static void forget(site *x) {
    weft__store(&x->binds, false, relaxed); /* see find */
    if (--sites.count == 0) ask(false);
}

/* One that was guessed is so no more. */
static void decide(weft__task *t, bool hit) {
    t->guessed = false;
    weft__lock_take(&sites.lock);
    site *x = find(t->site, t->fn);
    x->open--; /* it has kept its place so long */
    if (hit) x->hits++;
    if (!hit && weft__load(&x->binds, relaxed)) forget(x);                               /* under the lock */
    if (!x->open && !weft__load(&x->binds, relaxed)) weft__store(&x->fn, NULL, relaxed); /* see find */
    weft__lock_leave(&sites.lock);
}

void weft__site_hit(weft__task *t) {
    decide(t, true);
}

void weft__site_missed(weft__task *t) {
    decide(t, false);
}

/* ---- its tasks ---- */

void weft__site_begin(weft__task *t) {
    /* What is pinned cannot bind; and who has a thread of its own has no priority, which one that never binds would miss. */
    if (!weft__site_binds(t->site, t->fn) || t->pins || t->lane) return;
    t->guessed = true;
    t->meant = t->fn;
    t->meant_arg = t->arg;
    weft__show(&t->fn, weft__site_main);
    t->arg = t;
    if (!t->extra) weft__show(&t->extra, &weft__extra_none); /* its end is not plain: it looks at `guessed` */
}

/* Whether another of the site's tasks is to start bound. */
static bool trusted(weft__task *t) {
    weft__lock_take(&sites.lock);
    site *x = find(t->site, t->fn);
    if (x && !weft__load(&x->binds, relaxed)) x = NULL; /* under the lock */
    bool go = x && x->open < TRUST + x->hits;
    if (x) x->open++;
    weft__lock_leave(&sites.lock);
    t->guessed = x != NULL; /* else it has been forgotten meanwhile */
    return go;
}

int weft__site_main(void *arg) {
    weft__task *t = arg;
    weft__show(&t->fn, t->meant);
    t->arg = t->meant_arg;
    if (trusted(t)) weft__bind_ahead();
    return t->fn(t->arg);
}

void weft__sites_open(void) {
    weft__lock_take(&sites.lock);
    for (int i = 0; i < PLACES + WAYS; i++) {
        weft__store(&sites.place[i].fn, NULL, relaxed); /* see find */
        weft__store(&sites.place[i].binds, false, relaxed);
    }
    sites.count = 0;
    weft__lock_leave(&sites.lock);
}

void weft__sites_forget(void) {
    memset(&sites, 0, sizeof sites);
}
