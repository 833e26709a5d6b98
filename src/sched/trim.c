/* SPDX-License-Identifier: MIT */
/* Trimming: which stacks are looked at, and when.
 *
 * Only the sentry looks, since it has nothing else to do, and only if something has run since the last pass; so an idle process is
 * looked at once, some time (100 ms, or what is said below) after its last task has run, and then sleeps. While slots are busy, passes are at least as far
 * apart, and 100 times as long as the last one took of the CPU; and one that takes long goes on in pieces, likewise: one percent of it at
 * most, however many stacks there are. A pass that found nothing to give back doubles the time to the next one, up to 1.6 s: the stacks of a server's
 * connections were shallow the last time, and a look at a thousand of them is a percent of a CPU.
 *
 * A pass goes over
 *  - the caches of idle slots, which it borrows: the stacks at the front, as many as came back since the last pass;
 *  - the magazines of the pool that have come since;
 *  - every stack with a task that began to wait since the last pass. The task is held (weft__hold) while memory goes. One that waits
 *    for its children cannot be held, and keeps its memory.
 * The worker stops in the middle when it is wanted, or a timer is due, and goes on another time; and it lets others have its CPU now and then. (Measured with 10,000
 * connections on one CPU, at a real-time priority: a pass took 8 ms, and that was the 99th percentile of the answers; 0.3 ms since.)
 *
 *  T1  A task's time of waiting is its slot's clock, which may be late. Whatever begins to wait later has a time that is not before the
 *      earliest clock of all slots at the beginning of the pass: that is where the next pass begins.
 *  T2  A borrowed slot is not idle: who makes work meanwhile wakes nobody for it. So its return is followed by a barrier and another
 *      look at the queues, as when a worker gives up its slot.
 *
 * Rejected: noting the depth at each switch (the deepest point is in between, in user code); doing it when a task parks (a system call
 * with a channel's lock held, for tasks that go on a microsecond later); a thread of its own (a wake-up more). */
#include "sched/trim.h"

#include "sched/idle.h"
#include "time/clock.h"

enum {
    COST = 100,
    VAIN_MAX = 4,        /* times that the pause doubles */
    AT_ONCE = 200 * 1000 /* ns, then others: it may share a CPU with a worker that has just got a request */
};
int64_t weft__trim_later = 100 * WEFT_MS;

static struct {
    weft__lock lock; /* only tried: who finds it taken leaves it to the other */
    uint64_t picks;  /* of all slots, when the last pass began; the rest under lock as well */
    int64_t due;     /* 0 = not set */
    int64_t earliest;
    bool running;
    int64_t others, piece;     /* when they may have the CPU; when a piece is over */
    int64_t timer;             /* the first one, to be looked after by us: all others may be asleep */
    int64_t since, next_since; /* T1 */
    int slot;                  /* the next one to borrow */
    int vain;                  /* passes in a row that found nothing, up to VAIN_MAX */
    uint64_t trims;            /* that there had been when this one began */
    weft__stack_walk walk;
} trim;

void weft__trim_open(void) {
    memset(&trim, 0, sizeof trim);
}

int64_t weft__trim_due(int64_t now) {
    int64_t due = INT64_MAX;
    if (weft__stack_measuring || !weft__lock_take_once(&trim.lock)) return due;
    if (trim.running || weft__all_picks() != trim.picks) {
        int64_t later = trim.running ? now : now + (weft__trim_later << trim.vain);
        if (!trim.due) trim.due = later > trim.earliest ? later : trim.earliest;
        due = trim.due;
    }
    weft__lock_leave(&trim.lock);
    return due;
}

/* ---- a pass ---- */

static void begin(void) {
    trim.running = true;
    trim.trims = weft__load(&weft__stack_trims, relaxed); /* a figure */
    trim.picks = weft__all_picks();
    trim.since = trim.next_since;
    trim.next_since = weft__since_when(weft__clock_now()); /* as slots note it */
    for (int i = 0; i < weft__rt.slots; i++) {
        int64_t now = weft__load(&weft__rt.slot[i].now, relaxed); /* T1 */
        if (now < trim.next_since) trim.next_since = now;
    }
    trim.slot = 0;
    trim.walk = (weft__stack_walk){0};
}

/* The first of those that we have to look after: not without a slot to run it. Whoever starts an earlier one watches itself, or wakes us. */
static void look_at_timers(int64_t now) {
    trim.timer = weft__load(&weft__rt.idle, relaxed) ? weft__idle_earliest() : INT64_MAX; /* a hint */
    trim.others = now + AT_ONCE;
}

/* By somebody else, or a timer is due. */
static bool wanted(void *worker) {
    weft__worker *w = worker;
    int64_t now = weft__os_now();
    if (now >= trim.others) {
        weft__give_cpu();
        look_at_timers(now);
    }
    if (trim.timer != INT64_MAX && trim.timer <= weft__clock_now()) return true;
    return weft__load(&w->wake, relaxed) || weft__load(&w->given, relaxed) ||
           weft__load(&weft__rt.stopping, relaxed); /* hints */
}

/* Or this was a piece, beside busy slots. Not for the cache of a slot, which would be begun anew each time. */
static bool enough(void *worker) {
    bool busy = weft__load(&weft__rt.idle, relaxed) < weft__rt.slots; /* a hint */
    return (busy && weft__trim_later && weft__os_now() >= trim.piece) || wanted(worker);
}

/* A pass is over: the next one is further off if this was for nothing. */
static void end(void) {
    if (weft__load(&weft__stack_trims, relaxed) != trim.trims) /* a figure */
        trim.vain = 0;
    else if (trim.vain < VAIN_MAX)
        trim.vain++;
}

static bool trim_caches(weft__worker *w) {
    for (; trim.slot < weft__rt.slots; trim.slot++) {
        weft__slot *s = &weft__rt.slot[trim.slot];
        uint64_t given = weft__load(&s->given, relaxed); /* ours once it is borrowed; a hint before */
        if (given == s->trimmed || !weft__idle_borrow(s)) continue;
        given = weft__load(&s->given, relaxed);
        uint64_t n = given - s->trimmed;
        bool all = weft__stack_cache_trim(&s->stacks, n < UINT32_MAX ? (uint32_t)n : UINT32_MAX, wanted, w);
        if (all) s->trimmed = given;
        weft__idle_return(s); /* T2 */
        if (!all) return false;
    }
    return true;
}

/* Its memory is the pool's for as long as workers run, whatever becomes of the task. */
static void trim_task(weft__stack *st) {
    weft__task *t = weft__stack_head(st);
    weft__stack_depth depth;
    bool more = true;
    if (!weft__load(&t->alive, acquire) || weft__load(&t->b.since, relaxed) < trim.since) return; /* hints */
    if (!weft__stack_is_deep(st, &depth)) return;
    while (more) {
        weft__lock *held = weft__hold(&t->b);
        if (!held) return;
        more = weft__stack_trim(st, t->sp, &depth);
        weft__unhold(&t->b, held);
    }
}

static bool trim_tasks(weft__worker *w) {
    weft__stack *st;
    while (!enough(w)) {
        if (!(st = weft__stack_next(&trim.walk))) return true;
        trim_task(st);
    }
    return false;
}

void weft__trim(weft__worker *w, int64_t now) {
    if (!weft__lock_take_once(&trim.lock)) return;
    if (trim.due && trim.due <= now) {
        if (!trim.running) begin();
        int64_t before = weft__os_thread_time(); /* not the clock: it may have been somebody else's turn */
        trim.piece = now + AT_ONCE;
        look_at_timers(now);
        bool done = trim_caches(w) && weft__stack_pool_trim(enough, w) && trim_tasks(w);
        int64_t spent = weft__os_thread_time() - before;
        trim.running = !done;
        if (done) end();
        trim.due = 0;
        int64_t pause = COST * spent > AT_ONCE ? COST * spent : AT_ONCE;
        trim.earliest = weft__os_now() + (weft__trim_later ? pause : 0);
    }
    weft__lock_leave(&trim.lock);
}
