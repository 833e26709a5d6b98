/* SPDX-License-Identifier: MIT */
/* The watch: what becomes of slots whose tasks do not come back.
 *
 * A task may be in a C call that blocks, or compute, for any time; the others must not notice. A task that calls the runtime often enough
 * needs no watch: its budget ends, or the slot's rounds. Nor do tasks that hand work to each other, but they may do so for ever. The watch finds the
 * rest. It is run by the sentry (idle.c) when that wakes of its own
 * accord, so it costs no thread, and nothing at all while the runtime is idle.
 *
 * A look. A slot whose `picks` have not moved since the last look, and whose owner is outside the runtime, is stuck: blocked, if its thread sleeps
 * in the kernel (/proc tells), else computing. Whether anybody needs the slot is asked before anything is done about it; with an idle slot
 * around nobody does, since an idle slot runs what waits in the queues and timers of a stuck one. A task between weft_block_enter and
 * weft_block_exit counts as blocked without a look at its thread.
 *
 *   found      and waiting                          what happens
 *   moving     for a slice, while others wait       requested: the task steps back for them at its next call (handoff.h)
 *   moving     what is in a queue passed over for a slice: the tasks of a chain through `next` share it      the same, and so does `next`
 *   any        a timer, a high task, a starving low one, a pinned one                  the same
 *   blocked    anything                             its slot is taken, at once
 *   computing  a timer that is late by URGENT       its slot is taken
 *   computing  a high task, a pinned one            its slot is taken after URGENT
 *   computing  a task that has parked before        its slot is taken after a slice
 *   computing  a fresh task                         its slot is taken after a slice; with n strays to a slot, after 2^n slices
 *
 * A worker that lost its slot computing is a stray until its task comes back: it goes on beside the others, on the CPUs that they need too. So
 * strays are bounded: they come more slowly the more there are, to about one for each slot in a slice, and further computing tasks wait their
 * turn. (256 threads that compute kept a sleeper waiting for 83 ms at p99.) Blocked ones cost a thread and no CPU, and are bounded by max_threads
 * only. The kernel is told to let run others before them (slices.c).
 *
 * It also makes the marks by which tasks are found old (age.h).
 *
 * How often. While some slot is held the sentry naps, first for 50 us, then for twice the last nap, up to 4 ms; up to a tenth of the slice
 * (1 ms) while all slots are held and one is stuck. It begins with 50 us again whenever it took something. After a second in which every slot
 * that was held had moved at each look, and its owner had used three quarters of the time of a CPU, naps are four times the last one, up to 8 ms: each
 * of them interrupts somebody who serves others (an echo server on one CPU took 1.5 % less without them). The first look at which that is not so ends
 * it, and naps begin with 50 us. When every slot is held, the sentry also wakes for the first timer of a stuck one. Somebody found blocked whom nobody
 * needed yet is remembered: whoever makes work from outside then wakes the sentry at once.
 *
 * The worst case: what a task that never calls the runtime still delays, and by how much
 *  - what waits in its slot, the first time: until it was found stuck, which takes the rest of a nap and another one, 8 ms at most after it began
 *    (after a second of calm 10 ms if it blocks, 16 ms if it computes), and then URGENT (timers, high tasks) or a slice (10 ms) times one more than the strays to a
 *    slot. Afterwards it has no slot, and delays nobody but by what follows.
 *  - CPU time: with s strays on c CPUs a worker gets its turn from the kernel behind a stray's slice at the worst, and a share of
 *    c / (s + c) of the CPUs at least. In its first 20 to 30 ms (120 after a long call that blocked), with less than a sixteenth of a CPU, and where the
 *    kernel does not know of slices (Linux before 6.12), a task that computes with its slot makes others on its CPU wait for a tick now and then.
 *  - everything, if max_threads workers are away: then nobody is left to take a slot, or to watch.
 *  - weft_stop, for ever: nobody can end it. weft_stop says so with WEFT_ETIMEDOUT.
 *  - a task that the kernel preempts inside the runtime keeps its slot until it runs again. So does a worker that reads for another (D6 in io/desc.h) from
 *    a socket on which another process, or somebody who began at this very moment, sends from memory that has yet to come from a disk.
 *
 * Loads here are hints: a request too many costs one slow entry, one too few is made at the next look. The take-over protocol decides.
 *
 * Rejected: a thread of its own (another one to wake, to put to sleep and to account for: the sentry is awake at the same moments);
 * a signal that interrupts the task (EINTR in code that was not written for it, and no place where a C library can be left);
 * telling blocked from computing by the thread's CPU clock (0.4 us against 4.6, but a thread that waits for a CPU looks blocked). */
#include "sched/age.h"
#include "sched/handoff.h"
#include "sched/idle.h"
#include "sched/lane.h"
#include "sched/runq.h"
#include "time/clock.h"

#define URGENT WEFT_MS
#define NAP_MOST (4 * WEFT_MS)
#define NAP_CALM (8 * WEFT_MS)
#define CALM WEFT_SECOND
enum {
    GROWTH = 2, /* from nap to nap */
    GROWTH_CALM = 4,
    LOOKS_IN_A_SLICE = 10,
    CROWD_MAX = 6,  /* times that patience doubles */
    CALM_SLOTS = 8, /* with more of them a nap is a smaller part of the whole, and a look at each a larger one */
};

typedef struct {
    int64_t now, clock; /* the kernel's, and ours, which tests may move */
    bool full;          /* no slot is idle */
    bool urgent;        /* something waits that cannot wait for a slice */
    int waiting;        /* about how many tasks do, the urgent ones included */
    int started;        /* of these, the ones that have given way before */
} look;

/* The sentry's; two of them may be at it for a moment. */
static struct {
    _Atomic bool stuck; /* at the last look every slot was held, and one of them stuck */
    _Atomic int64_t until;
    _Atomic int64_t uneasy; /* when a slot had not moved since the look before, or its owner used little of the time */
} last = {.until = INT64_MAX};

void weft__watch_open(void) {
    weft__store(&last.uneasy, weft__os_now(), relaxed); /* nobody watches yet */
    weft__age_open();
    weft__thread_slices_open();
}

static int queued(weft__inject *q) {
    return (int)weft__load(&q->count, acquire);
}

static int started(weft__slot *s) {
    return (weft__load(&s->next, relaxed) != NULL) + (int)(weft__load(&s->tail, relaxed) - weft__load(&s->head, relaxed));
}

static int fresh(weft__slot *s) {
    int32_t n = (int32_t)(weft__load(&s->bottom, relaxed) - weft__load(&s->top, relaxed));
    return n > 0 ? n : 0;
}

static void count(look *l) {
    l->started = queued(&weft__rt.started) + weft__load(&weft__rt.wanting, relaxed);
    l->waiting = queued(&weft__rt.fresh);
    for (int i = 0; i < 2; i++) l->waiting += queued(&weft__rt.lane[i].started) + queued(&weft__rt.lane[i].fresh);
    for (int i = 0; i < weft__rt.slots; i++) {
        l->started += started(&weft__rt.slot[i]);
        l->waiting += fresh(&weft__rt.slot[i]);
    }
    l->waiting += l->started;
}

static look look_around(void) {
    look l = {.now = weft__os_now(), .clock = weft__clock_now()};
    l.full = weft__load(&weft__rt.idle, relaxed) == 0;
    l.urgent = weft__lane_waits(WEFT_LANE_HIGH) || weft__low_starves() || weft__load(&weft__rt.wanting, relaxed);
    if (!l.full) return l;
    count(&l);
    if (weft__wheel_next(&weft__rt.outside) <= l.clock) l.urgent = true;
    if (l.urgent && !l.waiting) l.waiting = 1;
    return l;
}

static bool moved(weft__slot *s, const look *l) {
    uint32_t picks = weft__load(&s->picks, relaxed);
    if (picks == weft__load(&s->watch_picks, relaxed)) return false;
    weft__store(&s->watch_picks, picks, relaxed);
    weft__store(&s->watch_since, l->now, relaxed);
    return true;
}

/* Tells whether nothing was taken since the last look from a queue in which something waits: the owner
 * has not chosen, or tasks hand work to and fro through `next`. */
static bool passed_over(weft__slot *s) {
    uint32_t head = weft__load(&s->head, relaxed), top = weft__load(&s->top, relaxed), bottom = weft__load(&s->bottom, relaxed);
    bool ring = head != weft__load(&s->tail, relaxed) && head == weft__load(&s->watch_head, relaxed);
    bool deque = (int32_t)(bottom - top) > 0 && top == weft__load(&s->watch_top, relaxed) &&
                 bottom == weft__load(&s->watch_bottom, relaxed);
    weft__store(&s->watch_head, head, relaxed);
    weft__store(&s->watch_top, top, relaxed);
    weft__store(&s->watch_bottom, bottom, relaxed);
    return ring || deque;
}

static bool timer_due(weft__slot *s, const look *l) {
    return weft__wheel_next(&s->wheel) <= l->clock;
}

static int64_t slice_end(weft__slot *s) {
    return weft__load(&s->watch_since, relaxed) + weft__rt.slice;
}

/* Sends the owner to the others at its next call, if it should go. */
static void call_back(weft__slot *s, weft__worker *w, const look *l) {
    bool turn = l->now >= weft__load(&s->watch_turn, relaxed) + weft__rt.slice;
    bool over = (turn || l->now >= slice_end(s)) && weft__others_wait(s);
    if (over || l->urgent || timer_due(s, l) || weft__load(&w->has_inbox, relaxed)) weft__worker_request(w);
}

int64_t weft__crowd_wait(void) {
    int crowd = weft__load(&weft__rt.strays, relaxed) / weft__rt.slots;
    return weft__rt.slice * (1 << (crowd < CROWD_MAX ? crowd : CROWD_MAX));
}

/* When a computing owner loses its slot, if anybody needs it. */
static int64_t patience(weft__slot *s, bool urgent, bool started) {
    int64_t since = weft__load(&s->watch_since, relaxed);
    if (urgent && URGENT < weft__rt.slice) return since + URGENT;
    return since + (started ? weft__rt.slice : weft__crowd_wait());
}

static void look_again(int64_t at) {
    if (at < weft__load(&last.until, relaxed)) weft__store(&last.until, at, relaxed);
}

/* When it loses it to one of its own timers. */
static int64_t timer_patience(weft__slot *s, const look *l) {
    int64_t timer = weft__wheel_next(&s->wheel);
    if (weft__clock_is_fake()) return timer <= l->clock ? patience(s, true, false) : INT64_MAX;
    return timer == INT64_MAX ? timer : timer + URGENT;
}

/* The slot is to be taken now. Otherwise, when that might be to look again. */
static bool is_needed(weft__slot *s, const look *l) {
    bool blocked = weft__load(&s->watch_finds, relaxed) == WEFT_FOUND_BLOCKED;
    if (blocked && (l->waiting || timer_due(s, l))) return true;
    int64_t when = blocked ? weft__wheel_next(&s->wheel) : timer_patience(s, l);
    int64_t others = blocked || !l->waiting ? INT64_MAX : patience(s, l->urgent, l->started);
    if (others < when) when = others;
    if (!blocked && when <= l->now) return true;
    look_again(when);
    return false;
}

/* Its task is between weft_block_enter and weft_block_exit. */
static bool says_so(weft__worker *w) {
    weft__task *t = weft__cur(w); /* a hint; the heads of stacks stay until the runtime ends */
    return t && weft__load(&t->blocks, relaxed);
}

static bool is_calm(int64_t now) {
    return weft__rt.slots <= CALM_SLOTS && now - weft__load(&last.uneasy, relaxed) >= CALM;
}

/* The owner has used most of the time since the look before; or there was none that could be compared. */
static bool worked(weft__slot *s, weft__worker *w, const look *l) {
    int tid = weft__load(&w->tid, relaxed), before = weft__load(&s->watch_tid, relaxed);
    int64_t cpu = weft__thread_time(tid), used = cpu - weft__load(&s->watch_cpu, relaxed);
    int64_t time = l->now - weft__load(&s->watch_at, relaxed);
    weft__store(&s->watch_tid, tid, relaxed);
    weft__store(&s->watch_cpu, cpu, relaxed);
    weft__store(&s->watch_at, l->now, relaxed);
    return cpu >= 0 && (before != tid || 4 * used >= 3 * time);
}

static int find(weft__slot *s, const look *l) {
    weft__worker *w = weft__load(&s->owner, acquire); /* H6: a hint; workers stay until the runtime ends */
    if (!w) {
        weft__store(&s->watch_tid, 0, relaxed);
        return WEFT_FOUND_MOVING;
    }
    bool stuck = !moved(s, l);
    if (!passed_over(s)) weft__store(&s->watch_turn, l->now, relaxed);
    if (weft__rt.slots <= CALM_SLOTS && (!worked(s, w, l) || stuck)) weft__store(&last.uneasy, l->now, relaxed);
    call_back(s, w, l);
    if (stuck)
        weft__slices_look(s, w, l->now, says_so(w));
    else
        weft__slices_moved(s, l->now);
    if (!l->full || weft__load(&w->in_rt, relaxed)) return WEFT_FOUND_MOVING;
    if (says_so(w)) return WEFT_FOUND_BLOCKED;
    if (!stuck) return WEFT_FOUND_MOVING;
    return weft__thread_blocked(weft__load(&w->tid, relaxed)) ? WEFT_FOUND_BLOCKED : WEFT_FOUND_COMPUTING;
}

/* Those of one kind that are needed, up to as many as there is need for. */
static int choose(int found, int need, const look *l, weft__slot **out, int n) {
    for (int i = 0; i < weft__rt.slots && n < need; i++) {
        weft__slot *s = &weft__rt.slot[i];
        if (weft__load(&s->watch_finds, relaxed) == found && is_needed(s, l)) out[n++] = s;
    }
    return n;
}

bool weft__watch(void) {
    weft__slot *needed[WEFT_TAKE_MAX];
    look l = look_around();
    bool stuck = false, calm = is_calm(l.now);
    int due = 0;
    weft__store(&last.until, INT64_MAX, relaxed);
    for (int i = 0; i < weft__rt.slots; i++) {
        weft__slot *s = &weft__rt.slot[i];
        int found = find(s, &l);
        weft__store(&s->watch_finds, (uint8_t)found, relaxed);
        stuck |= found != WEFT_FOUND_MOVING;
        due += found != WEFT_FOUND_MOVING && timer_due(s, &l);
    }
    weft__store(&last.stuck, stuck, relaxed);
    weft__slices_strays(l.now);
    weft__age_mark(l.clock);
    if (!stuck) return calm && !is_calm(l.now);
    int need = l.waiting > (due > 0) ? l.waiting : (due > 0); /* one slot runs the timers of all */
    if (need > WEFT_TAKE_MAX) need = WEFT_TAKE_MAX;
    int n = choose(WEFT_FOUND_BLOCKED, need ? need : 1, &l, needed, 0);
    n = choose(WEFT_FOUND_COMPUTING, need ? need : 1, &l, needed, n);
    return n && weft__slots_take(needed, n) > 0;
}

int64_t weft__watch_nap(int64_t now, int64_t before) {
    bool calm = is_calm(now);
    int64_t most = calm ? NAP_CALM : NAP_MOST, nap = before * (calm ? GROWTH_CALM : GROWTH);
    if (weft__load(&last.stuck, relaxed) && most > weft__rt.slice / LOOKS_IN_A_SLICE) most = weft__rt.slice / LOOKS_IN_A_SLICE;
    if (most < WEFT_NAP_FIRST) most = WEFT_NAP_FIRST; /* of a slice that is shorter than that */
    if (!before) nap = WEFT_NAP_FIRST;
    return nap < most ? nap : most;
}

int64_t weft__watch_until(void) {
    return weft__load(&last.until, relaxed);
}

bool weft__watch_wanted(void) {
    for (int i = 0; i < weft__rt.slots; i++) {
        weft__slot *s = &weft__rt.slot[i];
        weft__worker *w = weft__load(&s->owner, acquire); /* as in find */
        if (w && (weft__load(&s->watch_finds, relaxed) == WEFT_FOUND_BLOCKED || says_so(w))) return true;
    }
    return false;
}
