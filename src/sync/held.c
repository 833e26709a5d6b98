/* SPDX-License-Identifier: MIT */
#include "sync/held.h"

#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

#include "context/unwind.h"
#include "sync/sync.h"

enum { SHARDS = 64, NOTES = 64, REPORTED = 256, FRAMES = 16 };

typedef struct note {
    uint64_t holder; /* 0: free */
    const void *lock;
    const char *kind;
    void *place;
} note;

/* Those of one holder are in one shard; under its lock. */
static struct shard {
    weft__lock lock;
    note note[NOTES];
} shards[SHARDS];

_Atomic bool weft__held_checked;

static struct shard *shard_of(uint64_t holder) {
    return &shards[holder * UINT64_C(0x9e3779b97f4a7c15) >> 58];
}

static note *find(struct shard *s, uint64_t holder, const void *lock) {
    for (int i = 0; i < NOTES; i++)
        if (s->note[i].holder == holder && (!lock || s->note[i].lock == lock)) return &s->note[i];
    return NULL;
}

void weft__held_add(const void *lock, const char *kind, void *place) {
    uint64_t me = weft__sync_id(weft__self());
    struct shard *s = shard_of(me);
    weft__lock_take(&s->lock);
    note *n = find(s, 0, NULL);
    if (n) *n = (note){me, lock, kind, place};
    weft__lock_leave(&s->lock);
}

void weft__held_remove(const void *lock, uint64_t holder) {
    struct shard *s = shard_of(holder);
    weft__lock_take(&s->lock);
    note *n = find(s, holder, lock);
    if (n) n->holder = 0;
    weft__lock_leave(&s->lock);
}

/* ---- the report ---- */

static struct {
    weft__lock lock;
    int n; /* under the lock, as the places */
    void *place[REPORTED];
} reported;

/* True for the first time that this place is asked about. */
static bool first_time(void *place) {
    bool known = false;
    weft__lock_take(&reported.lock);
    for (int i = 0; i < reported.n && !known; i++) known = reported.place[i] == place;
    if (!known && reported.n < REPORTED)
        reported.place[reported.n++] = place;
    else
        known = true;
    weft__lock_leave(&reported.lock);
    return !known;
}

static void describe(char *out, size_t size, void *p) {
    Dl_info d;
    if (dladdr(p, &d) && d.dli_fname && d.dli_sname)
        snprintf(out, size, "%p %s+0x%zx", p, d.dli_sname, (size_t)((char *)p - (char *)d.dli_saddr));
    else if (dladdr(p, &d) && d.dli_fname)
        snprintf(out, size, "%p (%s+0x%zx)", p, d.dli_fname, (size_t)((char *)p - (char *)d.dli_fbase));
    else
        snprintf(out, size, "%p", p);
}

static bool any(void *pc, void *arg) {
    (void)pc, (void)arg;
    return true;
}

static void report(const note *n, int reason) {
    char place[256];
    void *frame[FRAMES];
    describe(place, sizeof place, n->place);
    weft__say("%s waits (%s) while it holds %s %p, locked at %s", weft__sync_who(n->holder).s, weft__wait_name(reason), n->kind,
              n->lock, place);
    int frames = weft__unwind_backtrace(frame, FRAMES, any, NULL);
    dprintf(STDERR_FILENO, "  it waits at, innermost first:\n");
    weft__os_backtrace_print(frame, frames, STDERR_FILENO);
}

/* Waiting for one lock with another one held is what nested locks do. */
static bool is_lock(int reason) {
    return reason == WEFT_WAIT_MUTEX || reason == WEFT_WAIT_RWLOCK;
}

/* The holder's next note, from *at on; its `holder` is 0: there is none. Nobody else changes them. */
static note next_of(uint64_t holder, int *at) {
    struct shard *s = shard_of(holder);
    note n = {0};
    weft__lock_take(&s->lock);
    for (; *at < NOTES && !n.holder; ++*at)
        if (s->note[*at].holder == holder) n = s->note[*at];
    weft__lock_leave(&s->lock);
    return n;
}

/* The hook: the caller is about to leave its stack, maybe with an object's lock held. */
static void about_to_wait(weft__block *b) {
    int reason = weft__load(&b->reason, relaxed), at = 0; /* its own */
    if (is_lock(reason)) return;
    uint64_t me = weft__sync_id(weft__self());
    for (note n = next_of(me, &at); n.holder; n = next_of(me, &at))
        if (first_time(n.place)) report(&n, reason);
}

/* Whatever was noted was somebody else's, or may be half done. */
void weft__held_forget(void) {
    for (int i = 0; i < SHARDS; i++) {
        memset(shards[i].note, 0, sizeof shards[i].note);
        weft__lock_leave(&shards[i].lock);
    }
    weft__lock_leave(&reported.lock);
}

/* Notes of an earlier runtime are of tasks that are gone, and whose numbers come again. */
static void start_anew(void) {
    for (int i = 0; i < SHARDS; i++) {
        weft__lock_take(&shards[i].lock);
        memset(shards[i].note, 0, sizeof shards[i].note);
        weft__lock_leave(&shards[i].lock);
    }
}

void weft__held_check(bool on) {
    if (on) start_anew();
    weft__store(&weft__held_checked, on, relaxed); /* see weft__held_on */
    weft__store(&weft__park_hook, on ? about_to_wait : NULL, relaxed);
}
