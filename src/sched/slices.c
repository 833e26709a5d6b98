/* SPDX-License-Identifier: MIT */
/* Who computes lets others have the CPU first: the kernel is told so.
 *
 * A task that computes without a call shares the CPUs with the workers that serve others, whether it has lost its slot (then it is a stray) or keeps it
 * because nobody needs it. A worker that wakes up on its CPU waits for the kernel's next tick now and then, 1 ms here. So the kernel is to let it run in
 * long slices: a thread with shorter ones then runs before it at once. (An echo server beside two computing tasks, one a stray in long slices, the other with
 * its slot in ordinary ones, had a p99 of 1 ms whenever its worker shared the second one's CPU.) handoff.h has the protocol, H11: it ends at
 * the task's next call, or here.
 *
 * Who computes. A stray: the watch saw that. Of the others, those whose threads have used the CPU and not slept in the kernel once between two looks,
 * the first after 10 ms without a call, the next ones every 10 ms, or, while a thread uses no CPU, after twice the time each, up to 100 ms. One
 * look is not enough: a task in the event loop of some library makes no calls either, works for a millisecond now and then, and must be woken as soon as
 * anybody. Who computes is looked at every 100 ms; if it has slept it computes no more. So are strays, for whether they sleep, while the watch is awake
 * for others; one that did is not told of again until it has called the runtime, since nothing in its gate would order that with its coming back.
 *
 * What it costs. A look asks for the thread's CPU time (0.4 us), and for the rest (some 10 us) only if that has moved by a sixteenth of the time, if the
 * thread computed, or if it is the first one.
 *
 * Rejected: asking the kernel at each look of the watch whether the thread sleeps (250 tasks in blocking calls took 23 % of a CPU); our own slice
 * instead of 10 ms (it may be a microsecond, or a year); short slices for workers (handoff.h); nice values (cannot be taken back). */
#include "sched/handoff.h"
#include "sched/idle.h"

#define OFTEN (10 * WEFT_MS)
#define SELDOM (100 * WEFT_MS)
enum {
    USED = 16, /* a thread that has used less than one part in so many of the time does not compute */
    STRAYS = 256,
};

static _Atomic int64_t strays_at; /* when they were looked at; the sentry's, as all here: hints */

void weft__slices_moved(weft__slot *s, int64_t now) {
    weft__store(&s->slices_next, now + OFTEN, relaxed);
    weft__store(&s->slices_every, OFTEN, relaxed);
    weft__store(&s->slices_at, 0, relaxed);
}

/* It has used the CPU since the last look, and not slept; who has computed may also be kept from the CPU. There has to have been a look before. */
static bool computes(weft__slot *s, int tid, bool did) {
    int64_t now = weft__os_now(), at = weft__load(&s->slices_at, relaxed), before = weft__load(&s->slices_waits, relaxed);
    if (at && now - at < OFTEN / 2) return did; /* another sentry's */
    int64_t every = weft__load(&s->slices_every, relaxed), cpu = weft__thread_time(tid),
            used = cpu - weft__load(&s->slices_cpu, relaxed);
    bool idle = cpu < 0 || (at && !did && used * USED < now - at);
    int64_t waits = idle ? -1 : weft__thread_waits(tid);
    weft__store(&s->slices_at, now, relaxed);
    weft__store(&s->slices_cpu, cpu, relaxed);
    weft__store(&s->slices_waits, waits, relaxed);
    weft__store(&s->slices_every, !idle || !at ? OFTEN : every < SELDOM / 2 ? 2 * every : SELDOM, relaxed);
    return at && waits >= 0 && waits == before;
}

void weft__slices_look(weft__slot *s, weft__worker *w, int64_t now, bool blocks) {
    bool was = weft__load(&w->yields_cpu, relaxed);
    if (blocks) {
        weft__slices_moved(s, now);
        weft__worker_hurry(w);
    } else if (now >= weft__load(&s->slices_next, relaxed)) {
        bool is = computes(s, weft__load(&w->tid, relaxed), was);
        int64_t every = weft__load(&s->slices_every, relaxed);
        weft__store(&s->slices_next, now + (is ? SELDOM : every), relaxed);
        if (was && !is) weft__worker_hurry(w);
        if (is && !was) weft__worker_yield_cpu(s, w);
    }
}

void weft__slices_strays(int64_t now) {
    weft__worker *w[STRAYS];
    if (!weft__load(&weft__rt.strays, relaxed) || now - weft__load(&strays_at, relaxed) < SELDOM) return;
    weft__store(&strays_at, now, relaxed);
    int n = weft__workers_stray(w, STRAYS);
    for (int i = 0; i < n; i++)
        if (weft__thread_blocked(weft__load(&w[i]->tid, relaxed))) weft__worker_hurry(w[i]);
}
