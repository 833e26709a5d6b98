/* SPDX-License-Identifier: MIT */
/* Finding work, on a worker's own stack: timers, own queues, global queues, the poller, other slots' queues, in this order.
 *
 * Stealing goes by waiting time, not by presence. Work that its owner is about to do costs more to move than to leave: a thief
 * looks at a victim, waits some microseconds, looks again, and takes only what is still there. What it saw but did not take is
 * "young": the thief naps instead of searching on, since somebody is working it off. (Measured: buffered channel 15 -> 8 ns an
 * item, spawn and join on 2 slots 130 -> 20 ns.) `next` is taken by the same rule, else a pipeline with real work would
 * never get its second core. Looking every microsecond halves the owner's speed: its queue's lines go back and forth. */
#include "poll/poll.h"
#include "sched/age.h"
#include "sched/idle.h"
#include "sched/lane.h"
#include "sched/switch.h"
#include "time/clock.h"

enum {
    LOOK_AGAIN = 128,       /* pauses between the two looks: about 3 us */
    STALE_FACTOR = 4,       /* a ring is behind if more waits than 4 times what was done between the looks */
    MANY_FRESH = 64,        /* so many fresh tasks are worth taking from, whatever their age */
    TIMERS_AT_ONCE = 256,   /* then others get a turn */
    COME_FIRST = 16,        /* so many at once jump the queue: a quarter of the rounds until the next look */
    ENOUGH = WEFT_RING / 4, /* tasks in a ring until the next look at the global queues */
    FORGET = 16,            /* what a worker has looked in vain is forgotten in so many times that time */
};
#define NAP_YOUNG (100 * WEFT_US)
#define NAP_HELD WEFT_MS
#define NAP_TIMERS (100 * WEFT_US)

/* ---- stealing ---- */

typedef struct {
    uint32_t head, tail, top, bottom, picks;
    weft__task *next;
    weft__fresh *oldest;
    uint64_t oldest_id;
} view;

static void view_of(weft__slot *v, view *x) {
    x->head = weft__load(&v->head, acquire); /* a hint; the stealing CAS decides */
    x->tail = weft__load(&v->tail, acquire);
    x->top = weft__load(&v->top, acquire);
    x->bottom = weft__load(&v->bottom, acquire);
    x->next = weft__load(&v->next, acquire);
    x->picks = weft__load(&v->picks, relaxed);
    x->oldest = NULL;
    x->oldest_id = 0;
    if ((int32_t)(x->bottom - x->top) > 0) {
        x->oldest = weft__load(&v->deque[x->top % WEFT_DEQUE], relaxed);
        /* records are type-stable; a recycled one has another id */
        if (x->oldest) x->oldest_id = weft__load(&x->oldest->id, relaxed);
    }
}

static bool ring_waits(const view *a, const view *b) {
    return a->head != a->tail && (int32_t)(b->tail - b->head) > (int32_t)(STALE_FACTOR * (b->head - a->head));
}

static bool fresh_waits(const view *a, const view *b) {
    int32_t n = (int32_t)(b->bottom - b->top);
    if ((int32_t)(a->bottom - a->top) <= 0 || n <= 0) return false;
    return n >= MANY_FRESH || a->top != b->top || (a->oldest == b->oldest && a->oldest_id == b->oldest_id);
}

static weft__work steal_from(weft__slot *s, weft__slot *v, bool *young) {
    view a, b;
    view_of(v, &a);
    bool ring = a.head != a.tail, fresh = (int32_t)(a.bottom - a.top) > 0;
    if (!ring && !fresh && !a.next) return 0;
    for (int i = 0; i < LOOK_AGAIN && weft__rt.search > 0; i++) weft__cpu_relax(); /* not in strict zero-spin mode */
    view_of(v, &b);
    if (ring_waits(&a, &b)) {
        weft__task *t = weft__ring_steal(s, v);
        if (t) return weft__work_task(t);
    }
    if (fresh_waits(&a, &b) && !weft__fresh_held()) {
        weft__fresh *f = weft__deque_steal(v);
        if (f) {
            weft__store(&s->steals, weft__load(&s->steals, relaxed) + 1, relaxed); /* a counter */
            return weft__work_fresh(f);
        }
    }
    /* acq_rel: the task as its waker left it; pairs with the exchange in weft__ready */
    if (!ring && !fresh && a.picks == b.picks && a.next == b.next && weft__cas(&v->next, &a.next, NULL, acq_rel)) {
        weft__store(&s->steals, weft__load(&s->steals, relaxed) + 1, relaxed); /* a counter */
        return weft__work_task(a.next);
    }
    *young = true;
    return 0;
}

/* From all others in a random order; `near`: those of the same NUMA node, or, false, those of the others. */
static weft__work steal_near(weft__slot *s, bool *young, bool near) {
    int n = weft__rt.slots, first = (int)(weft__random(&s->random) % (uint32_t)n);
    for (int i = 0; i < n; i++) {
        weft__slot *v = &weft__rt.slot[(first + i) % n];
        weft__work k = v == s || (v->place.node == s->place.node) != near ? 0 : steal_from(s, v, young);
        if (k) return k;
    }
    return 0;
}

static weft__work steal(weft__slot *s, bool *young) {
    weft__work k = steal_near(s, young, true);
    return k || !weft__rt.nodes ? k : steal_near(s, young, false);
}

bool weft__idle_work_waits(weft__slot *s, int fresh) {
    if (weft__load(&weft__rt.started.count, acquire) || weft__load(&weft__rt.fresh.count, acquire)) return true;
    if (weft__lane_waits(WEFT_LANE_HIGH) || weft__lane_waits(WEFT_LANE_LOW)) return true;
    for (int i = 0; i < weft__rt.slots; i++) {
        weft__slot *v = &weft__rt.slot[i];
        if (v == s) continue;
        if (weft__load(&v->head, acquire) != weft__load(&v->tail, acquire)) return true; /* hints, behind a barrier */
        uint32_t n = weft__load(&v->bottom, acquire) - weft__load(&v->top, acquire);
        if ((int32_t)n >= fresh) return true;
    }
    return false;
}

bool weft__idle_neglected(void) {
    if (weft__idle_earliest() <= weft__clock_now()) return true;
    if (weft__idle_work_waits(NULL, 1)) return true; /* what is too young is left where it is */
    for (int i = 0; i < weft__rt.slots; i++)
        if (weft__load(&weft__rt.slot[i].next, relaxed)) return true; /* a hint */
    return false;
}

bool weft__idle_all(void) {
    return weft__load(&weft__rt.idle, seq_cst) == weft__rt.slots && !weft__idle_work_waits(NULL, 1); /* for tests */
}

/* ---- timers ---- */

static int run_wheel(weft__slot *s, weft__wheel *w, int64_t now) {
    int fired = weft__wheel_run(w, now, TIMERS_AT_ONCE, s);
    if (s->due) weft__timers_due(s, w);
    return fired;
}

/* Those in the ring before `end` go behind the others, in their order. */
static void put_behind(weft__slot *s, uint32_t end) {
    while ((int32_t)(end - weft__load(&s->head, relaxed)) > 0) { /* thieves advance it, too */
        weft__task *t = weft__ring_pop(s);
        if (!t) return;
        weft__ring_push(s, t);
    }
}

/* Puts what has come to the ring since it ended at `end` before the others. Returns how many others
 * there are. They may have gone meanwhile: to thieves, or, if the ring ran over, to the global queue. */
static uint32_t come_first(weft__slot *s, uint32_t end) {
    uint32_t others = end - weft__load(&s->head, relaxed), young = end - s->ring_old; /* a hint; the owner's own */
    if ((int32_t)others <= 0) return 0;
    put_behind(s, end);
    s->ring_old = weft__load(&s->tail, relaxed) - young; /* they stay the last */
    return others;
}

/* What a few timers have woken runs before what was ready already (U3). After many it queues up, or a storm of timers would starve the others. */
static void run_timers(weft__slot *s) {
    int64_t now = weft__clock_now();
    weft__store(&s->now, weft__since(now, s), relaxed); /* a hint for `since` */
    bool own = weft__wheel_next(&s->wheel) <= now, outside = weft__wheel_next(&weft__rt.outside) <= now;
    if (likely(!own && !outside)) return;
    weft__task *next = weft__load(&s->next, relaxed); /* a hint: a thief may have it now */
    uint32_t end = weft__load(&s->tail, relaxed);     /* the owner's own */
    int fired = own ? run_wheel(s, &s->wheel, now) : 0;
    if (outside) fired += run_wheel(s, &weft__rt.outside, now);
    if (next && next != weft__load(&s->next, relaxed)) end++; /* it was first, and has been pushed to the ring */
    if (fired <= COME_FIRST) (void)come_first(s, end);
}

/* Timers of slots whose owners have not looked at them: a task there computes, or nobody holds the slot. */
static bool run_timers_of_others(weft__slot *s) {
    int64_t now = weft__clock_now();
    int fired = 0;
    for (int i = 0; i < weft__rt.slots; i++) {
        weft__slot *v = &weft__rt.slot[i];
        if (v == s || weft__wheel_busy(&v->wheel)) continue; /* somebody is at it */
        if (weft__idle_timer(v) <= now) fired += run_wheel(s, &v->wheel, now);
    }
    return fired > 0;
}

/* ---- descriptors ----
 *
 * With nothing else to do a slot looks at a few of those that are ready (WEFT_EDGES), runs these, and looks again. One that is never without work
 * looks in passing, when all that was in its ring at the last look has had its turn: earlier, what is ready would only wait in the ring instead of
 * in the poller. (Measured with 1,000 echo connections: the ring ran over, and what ran was in no cache any more.) Then it takes as many as may be
 * ready: a round of the others goes by before it looks again. */

static int look(weft__slot *s, int looks) {
    int told = weft__poll_now(s, looks);
    s->look_head = weft__load(&s->head, relaxed); /* a hint: thieves advance it */
    s->look_count = weft__load(&s->tail, relaxed) - s->look_head;
    return told;
}

/* Tells a chain: since the last look at the global queues nothing was taken from the ring, and tasks
 * hand work to and fro through `next`. */
static bool is_chain(weft__slot *s) {
    return weft__load(&s->next, relaxed) && weft__load(&s->head, relaxed) == s->fair_head; /* hints: thieves take, too */
}

static bool look_due(weft__slot *s) {
    bool turned = weft__load(&s->head, relaxed) - s->look_head >= s->look_count; /* as above */
    if (!turned && !is_chain(s)) return false;
    return weft__poll_overdue(weft__os_now(), WEFT_POLL_EVERY);
}

/* ---- the order of looking ---- */

/* Looks at the poller in passing. Beside a chain the few that are told come before the others, and the
 * chain goes on behind all of them. */
static void look_in_passing(weft__slot *s) {
    bool chain = is_chain(s);
    uint32_t end = weft__load(&s->tail, relaxed); /* the owner's own */
    int told = look(s, WEFT_LOOKS);
    if (!chain || told <= 0 || told > COME_FIRST) return;
    uint32_t others = come_first(s, end);
    s->told = weft__load(&s->tail, relaxed) - others; /* the owner's own */
    s->look_head = weft__load(&s->head, relaxed);     /* as in look */
    weft__next_back(s);
}

static uint32_t ring_count(weft__slot *s) {
    return weft__load(&s->tail, relaxed) - weft__load(&s->head, relaxed); /* thieves only take */
}

/* Takes started tasks from the global queue. They have waited for longer than what has come to the ring
 * since the last look; where that is more than the ring is to hold until the next look, it goes behind
 * them. (Where it is not, a task would go round between the two, and come before a chain each time.)
 * Beside a chain a few come one by one, so that each comes before it. */
static weft__work started_share(weft__slot *s) {
    uint32_t waiting = weft__load(&weft__rt.started.count, relaxed);                /* a hint */
    if (waiting <= COME_FIRST && is_chain(s)) return weft__inject_take_tasks(s, 1); /* each runs at once, before `next` */
    if (waiting && ring_count(s) > ENOUGH) weft__ring_shed(s, NULL);
    uint32_t count = ring_count(s);
    weft__work k = weft__inject_take_tasks(s, count < ENOUGH ? ENOUGH - count : 1);
    s->ring_old = weft__load(&s->tail, relaxed); /* the owner's own */
    return k;
}

/* Every WEFT_GLOBAL_EVERY rounds the queues that local work would starve come first: the global started tasks, and at every
 * WEFT_FRESH_EVERY-th look one fresh task, from the global queue and our own oldest by turns. (One only, and seldom: starting old ones
 * first is breadth first, with a stack for each. Measured: skynet twice as slow with one at every look.) */
static weft__work fair_share(weft__slot *s) {
    uint32_t turn = s->fair++;
    weft__work k = weft__low_starves() ? weft__lane_take(WEFT_LANE_LOW) : 0;
    if (!k && turn % WEFT_FRESH_EVERY == 0) {
        if (turn & WEFT_FRESH_EVERY) k = weft__inject_take_fresh(s, 1);
        weft__fresh *f = k ? NULL : weft__deque_steal(s);
        if (f) k = weft__work_fresh(f);
        if (!k) k = weft__inject_take_fresh(s, 1);
    }
    return k ? k : started_share(s);
}

/* A timer that the slot's owner is to run. */
static bool timer_due(weft__slot *s) {
    int64_t timer = weft__wheel_next(&s->wheel), outside = weft__wheel_next(&weft__rt.outside);
    if (outside < timer) timer = outside;
    return timer != INT64_MAX && timer <= weft__clock_now();
}

/* The worker's own stack has something to do that cannot be done here: a task may be about to park with an object's lock held. Otherwise
 * the next rounds begin. */
static bool own_stack_wanted(weft__slot *s) {
    bool due = s->fair % WEFT_FRESH_EVERY == 0 || weft__load(&weft__rt.started.count, relaxed); /* a hint */
    if (weft__load(&weft__rt.wanting, relaxed) || weft__load(&weft__rt.thin, relaxed) || weft__lane_waits(WEFT_LANE_LOW))
        due = true; /* hints */
    if (!due) due = timer_due(s);
    if (!due && weft__load(&weft__polling, relaxed)) due = look_due(s); /* a hint */
    if (due) return true;
    s->fair++;
    s->fair_head = weft__load(&s->head, relaxed); /* a hint, as in is_chain */
    weft__rounds_begin(s);
    return false;
}

bool weft__attend(weft__slot *s, weft__work *k) {
    *k = 0;
    if (unlikely(weft__self()->own_thread)) { /* nobody else runs there */
        weft__rounds_cut(s);
        s->fair_end--; /* they are over: a yield leaves the stack, too */
        return true;
    }
    /* Before special tasks, of which there may always be one: timers and the global queues wait for no end of them. */
    if (weft__rounds_over(s) && own_stack_wanted(s)) {
        weft__attend_soon(s, 1);
        return true;
    }
    weft__attend_soon(s, s->fair_end - weft__load(&s->picks, relaxed)); /* the owner's own */
    if (weft__lane_attend(s, k)) return true;
    return unlikely(weft__load(&s->late, relaxed)) && (*k = weft__age_pick(s)) != 0; /* a hint, as in age.h */
}

/* Does for the tasks that wait what the monitor would do, if there were one: no thread watches, and
 * none could be started. Tries to start one again. */
static void unwatched(weft__slot *s) {
    weft__idle_mend(false);
    weft__next_back(s);
    weft__age_mark(weft__clock_now());
}

static weft__work local(weft__slot *s) {
    weft__work k = 0;
    /* Counted across visits: timers that are always due must not starve the global queues. The pick below must not be the one that ends
     * the rounds: it would give up, and the slot would be given up with what is in `next`. */
    bool fair = (int32_t)(weft__load(&s->picks, relaxed) + 1 - s->fair_end) >= 0; /* the owner's own */
    if (fair && unlikely(weft__load(&weft__rt.thin, relaxed))) unwatched(s); /* a hint; before something else is in `next` */
    if (fair) k = fair_share(s); /* what it takes from the global queues comes before what timers wake, in the ring too */
    run_timers(s);
    if (fair && unlikely(weft__load(&weft__polling, relaxed)) && look_due(s)) look_in_passing(s); /* a hint */
    if (fair) s->fair_head = weft__load(&s->head, relaxed);                                       /* a hint, as in is_chain */
    if (fair)
        weft__rounds_begin(s);
    else
        weft__attend_soon(s, s->fair_end - weft__load(&s->picks, relaxed)); /* the owner's own */
    if (k) return k;                                                        /* before special tasks, as in weft__attend */
    if (weft__lane_attend(s, &k)) return k;
    if ((k = weft__pick(s))) return k;
    if ((k = weft__inject_take_tasks(s, WEFT_RING / 2))) return k;
    if ((k = weft__inject_take_fresh(s, WEFT_DEQUE / 2))) return k;
    return weft__lane_high(s); /* there are no others who are owed anything */
}

/* Sleeps. Whether the next search pays is seen from this one: it does if work came, or would have come, within its time or half of that more. A search
 * in vain costs more than its time: who has used the CPU before it sleeps is woken later (20 us of it: 18 us instead of 11). */
static weft__slot *idle(weft__worker *w) {
    int64_t from = weft__os_now(), most = weft__rt.search + weft__rt.search / 2;
    w->given_at = 0;
    weft__slot *s = weft__idle(w);
    if (!s) return NULL;                                        /* somebody may be giving it one at this moment */
    int64_t until = w->given_at ? w->given_at : weft__os_now(); /* not when it woke up, which may take as long as a search */
    w->in_vain = until - from > (w->in_vain ? most : most - weft__rt.search);
    return s;
}

/* How long it has looked in vain lately. */
static int64_t looked_lately(const weft__worker *w, int64_t now) {
    int64_t left = w->looked - (now - w->looked_at) / FORGET;
    return left > 0 ? left : 0;
}

/* It has looked for something from then until now, and found nothing. */
static void looked(weft__worker *w, int64_t from, int64_t now) {
    w->looked = looked_lately(w, from) + now - from;
    w->looked_at = now;
}

/* It has done little else lately. */
static bool tired(const weft__worker *w, int64_t now) {
    return looked_lately(w, now) >= weft__rt.search;
}

/* A timer of the slot comes within the time that a worker searches: sleeping until then would cost more than looking for it. */
static bool timer_soon(weft__slot *s) {
    int64_t next = weft__wheel_next(&s->wheel);
    if (next == INT64_MAX || weft__rt.search <= 0 || weft__clock_is_fake()) return false;
    return next - weft__os_now() < weft__rt.search && !weft__load(&weft__rt.stopping, relaxed); /* nobody waits for it then */
}

/* Looks around for a bounded time; at most one worker does so. */
static weft__work search(weft__worker *w, weft__slot *s, int64_t from, bool *young) {
    int64_t now;
    weft__work k = steal(s, young);
    if (k || weft__rt.search <= 0 || w->in_vain || (tired(w, from) && timer_soon(s))) return k;
    int32_t none = 0;
    if (!w->searching) {
        if (!weft__cas(&weft__rt.searching, &none, 1, seq_cst)) return 0; /* pairs with weft__wake_one */
        w->searching = true;
    }
    do {
        for (int i = 0; i < 8; i++) {
            weft__cpu_relax();
            if ((k = weft__inject_take_tasks(s, WEFT_RING / 2))) return k;
            if ((k = weft__inject_take_fresh(s, WEFT_DEQUE / 2))) return k;
            if ((k = steal(s, young))) return k;
        }
        now = weft__os_now();
    } while (now - from < weft__rt.search && weft__wheel_next(&s->wheel) > weft__clock_now() &&
             !weft__load(&weft__rt.stopping, relaxed));
    looked(w, from, now);
    return 0;
}

/* Something was found: whoever stops searching sees to it that what is left is found too. */
static weft__work found(weft__worker *w, weft__slot *s, weft__work k) {
    w->nap = 0;
    if (w->searching) {
        w->searching = false;
        weft__sub(&weft__rt.searching, 1, seq_cst); /* before looking at the queues; pairs with weft__wake_wanted */
        /* And before the look at `idle`: read too early, it misses the slot that a producer saw idle when it relied on us. */
        weft__fence_after_rmw();
        int32_t idle = weft__load(&weft__rt.idle, relaxed);
        if (idle > 0) {
            weft__look_barrier(idle == weft__rt.slots - 1);
            if (weft__idle_work_waits(s, 1)) weft__work_made(s);
        }
    }
    return k;
}

/* A short sleep with the slot kept, while the only work around is too young to take, or held back: until the slot's next timer, but at least and at
 * most so many nanoseconds. */
static void nap(weft__worker *w, int64_t least, int64_t most) {
    int64_t now = weft__os_now(), until = now + most, timer = weft__wheel_next(&weft__here(w)->wheel);
    weft__stop_searching(w);
    if (!weft__clock_is_fake() && timer < until) until = timer > now + least ? timer : now + least;
    weft__store(&weft__rt.napper, w, release); /* pairs with weft__work_injected; the nap bounds what it misses */
    weft__futex_wait(&w->wake, 0, until);
    weft__worker *me = w;
    (void)weft__cas(&weft__rt.napper, &me, NULL, relaxed);
    weft__store(&w->wake, 0, relaxed);
}

/* A timer comes soon. It is looked for, unless the worker has done little else lately: of timers that come one after the other some are let come
 * together. One that is due by now is run. False: there is something to do meanwhile. */
static bool await_timer(weft__worker *w, weft__slot *s, int64_t from) {
    int64_t now = weft__os_now();
    if (w->looked_at < from) looked(w, from, now); /* this was not the one who searches */
    if (!tired(w, now) || weft__wheel_next(&s->wheel) <= now) return true;
    if (weft__lane_waits(WEFT_LANE_LOW)) return false;
    nap(w, NAP_TIMERS, NAP_TIMERS);
    return true;
}

/* The worker gives its slot to another. */
static void pass(weft__worker *w, bool owed) {
    weft__slot *s = weft__here(w);
    weft__slot_disown(w);
    weft__idle_slot_give(s, owed);
}

/* Something waits that a worker which serves one task alone does not look after. Hints. */
static bool others_need(weft__slot *s) {
    return weft__others_wait(s) || weft__lane_waits(WEFT_LANE_HIGH) || weft__low_starves() || timer_due(s);
}

/* The same for a worker that serves one task alone. It keeps its slot only while that one goes on and nobody else waits. */
static weft__work find_own(weft__worker *w) {
    weft__slot *s = weft__here(w);
    bool given = !s;
    for (;;) {
        bool others = s && others_need(s), wanted = s && weft__load(&weft__rt.wanting, relaxed); /* a hint */
        weft__task *t = s && (given || !(others || wanted)) ? weft__pinned_take(w) : NULL;
        if (t) {
            weft__rounds_cut(s); /* see weft__attend */
            return weft__work_task(t);
        }
        if (!w->serves) weft__bind_free(w);
        bool over = weft__load(&w->leaving, relaxed); /* its own: there are too many of its kind */
        if (s && (others || wanted || over)) pass(w, others);
        s = weft__idle(w);
        if (!s) return 0;
        given = true;
    }
}

weft__work weft__find_work(weft__worker *w) {
    if (unlikely(w->own_thread)) return find_own(w);
    weft__slot *s = weft__here(w);
    bool given = false; /* it has got the slot just now: whatever that was for comes before who wants it */
    for (;;) {
        if (unlikely(weft__load(&w->leaving, relaxed)) && s && !w->pinned && !weft__load(&w->has_inbox, relaxed)) {
            if (w->searching) found(w, s, 0);
            pass(w, false);
            s = NULL;
        }
        if (!s) {
            if (!(s = idle(w))) return 0;
            given = true;
        }
        bool wanted = unlikely(weft__load(&weft__rt.wanting, relaxed)); /* a hint */
        if (wanted && !given && w->searching) found(w, s, 0);           /* whoever relies on us must not wait until we sleep */
        if (wanted && !given && !(s = weft__slot_yield(w, s))) continue;
        weft__work k = local(s);
        if (k) return found(w, s, k);
        if (wanted && given) {
            given = false;
            continue;
        }
        if (weft__load(&weft__polling, relaxed) && look(s, 1)) continue; /* set by whoever opened it, who then wakes somebody */
        if (weft__rt.many) {
            bool young = false;
            int64_t from = weft__os_now();
            if (run_timers_of_others(s)) continue;
            if ((k = search(w, s, from, &young))) return found(w, s, k);
            if (timer_soon(s) && await_timer(w, s, from)) continue;
            if (young && !weft__lane_waits(WEFT_LANE_LOW)) {
                nap(w, 0, NAP_YOUNG);
                continue;
            }
        }
        if ((k = weft__lane_take(WEFT_LANE_LOW))) return found(w, s, k);
        if (unlikely(weft__fresh_held()) && weft__idle_work_waits(s, 1))
            nap(w, 0, NAP_HELD);
        else if (!(s = idle(w)))
            return 0; /* not once more to the list that it has left for good */
        else
            given = true;
    }
}
