/* SPDX-License-Identifier: MIT */
/* Idle.
 *
 * A worker that finds nothing gives its slot up and sleeps on a futex of its own; a slot that nobody holds is idle. Work that was
 * made wakes one worker for one idle slot, and only if nobody searches already: the woken one is the searcher, and when it finds
 * something it wakes the next if more is left. So a burst wakes as many as it needs, one after the other, and never all.
 *
 * No wake-up is lost:
 *     worker    publishes the idle slot, itself, and that it searches no more; weft__look_barrier; looks at all queues again
 *     producer  puts the work on its queue; light barrier; looks at `idle` and `searching`
 * Either the producer sees an idle slot without a searcher, and wakes somebody, or the worker sees the work. test/model/idle.pml.
 *
 * One idle worker is the sentry. It sleeps until the earliest timer of all slots; while some slot is busy it also naps, 50 us and doubling to 4 or 8 ms
 * (watch.c), to find what a computing task keeps from others: timers of its slot, a task in its `next`. When everything is idle and nothing has run
 * since the last look it naps twice more (so that a server with a request each millisecond does not wake two threads for each), then sleeps as long
 * as the timers allow: idle means no wake-ups. Whoever wakes a worker out of such a deep sleep of all wakes the sentry too. Once after everything
 * has become idle, or now and then beside others, it looks at the stacks (trim.c).
 * A worker that goes to sleep and knows an earlier timer than the sentry becomes the sentry itself; nobody needs to be woken for it. Timers of a slot
 * whose owner is at work (it has made WEFT_GLOBAL_EVERY rounds lately, so it looks at them itself) are left to it for GRACE (timers.c), and with no
 * slot free the sentry only naps: a million sleepers a second, half of them on a busy slot, had it wake up for every single one, to no avail (35 % of
 * the CPU time). When the last sleeping worker is woken another is started to watch, also when every slot is busy then (watch.c).
 *
 * In a program with descriptors (src/poll) one idle worker is the listener: it sleeps in the poller instead of on its futex, and looks after the
 * timers while it does. There is one only while a slot is idle: otherwise there is nobody to run what comes, and the busy ones look themselves. It is
 * seldom the sentry as well: an event would then wake two threads, the listener for the task and another to watch in its place. A listener that goes
 * to work is not replaced at once; the next worker that becomes idle takes its place, or the sentry when its naps have grown. It stays the listener
 * until it has left the poller itself, so there is never a second one in there, who might take a kick that was meant for the first. Kicks: the
 * listener stores `polls`, then looks at `wake`; who kicks stores `wake`, then looks at `polls` (I7). What becomes ready while nobody listens stays
 * in the poller (B1), and whoever looks next finds it.
 *
 * Invariants
 *  I1  `idle` is the number of slots on the idle list; both change under the lock.
 *  I2  A worker is on the list from the moment it gave up its slot until it has one again; whoever takes it off gives it one.
 *  I3  A slot on the list has empty queues (its timers are the sentry's), unless it was taken away and no worker could be had.
 *  I4  searching counts workers with w->searching, plus the one that is being woken.
 *  I5  Who wanted to wake somebody and finds nobody stops counting as a searcher under the lock: whoever relied on it made its work
 *      before, and the next worker to publish itself idle, under the same lock, sees it. (Outside the lock a wake-up was lost.)
 *  I6  A worker is not idle while it holds a slot and its inbox has something in it. One that sleeps with something in its inbox `wants` a
 *      slot, and then no slot is on the list. They take turns; where a worker that serves one task alone passes a slot on for tasks and timers
 *      that it does not look after (`owed_since`), these have a turn as well: an ordinary worker gets it, and runs something before it yields it.
 *  I7  Dekker: a worker that sleeps in the poller has seen no `wake` after it stored `polls`; so who stores `wake` then sees `polls`, and kicks
 *      the poller.
 *
 * Rejected: a bit for each sleeping worker with the slot kept (one back from a long call could not have it); waking for each `next` (8 us). */
#include "sched/idle.h"

#include "poll/poll.h"
#include "sched/lane.h"
#include "sched/switch.h"
#include "sched/trim.h"
#include "time/clock.h"

enum {
    NAP_MAX = 4 * 1000 * 1000, /* ns */
    QUIET_NAPS = 2,            /* naps after everything has become idle */
    WORTH_WAKING = 2,          /* one fresh task is its spawner's next; a second one is worth a core */
    RETRY = 10 * 1000 * 1000,  /* ns */
    LOOKS = 16, /* sleeping workers that are looked at for the one that had a slot last; slots, for one that is idle */
    SPARES = 2, /* workers that stay although there is no slot for them */
};

int64_t weft__idle_retire = 5 * WEFT_SECOND;

static struct {
    weft__lock lock;
    weft__slot *slots;     /* idle slots */
    weft__worker *workers; /* idle workers, the last to sleep first */
    weft__worker *own;     /* idle ones that serve one task alone: they get a slot for that only */
    int sleeping;          /* how many */
    weft__worker *sentry;
    weft__worker *listener;
    int64_t listens_until; /* the listener, likewise */
    int64_t until;         /* the sentry sleeps until then, INT64_MAX = for ever */
    bool deep;             /* the sentry does not nap */
    bool starting;         /* a spare worker is on its way; until somebody sleeps */
    uint64_t turn;         /* of those who want a slot */
    uint64_t picks;        /* of all slots, when the sentry saw them idle last */
    int last;              /* slot that was chosen by turns */
    int64_t retry;         /* no thread could be started: not again before then */
} idle;

/* ---- lists; under the lock ---- */

static void slot_push(weft__slot *s) {
    s->idle_next = idle.slots;
    s->idle = true;
    s->owed_since = 0;
    idle.slots = s;
    weft__add(&weft__rt.idle, 1, seq_cst); /* I1; pairs with the look in weft__work_made */
}

static weft__slot *slot_pop(weft__slot *prefer) {
    weft__slot **at = &idle.slots;
    if (prefer && prefer->idle)
        while (*at != prefer) at = &(*at)->idle_next;
    weft__slot *s = *at;
    if (!s) return NULL;
    *at = s->idle_next;
    s->idle = false;
    weft__sub(&weft__rt.idle, 1, seq_cst); /* I1 */
    weft__fence_after_rmw();               /* before whoever gets it looks at `searching`: pairs with found */
    return s;
}

/* For what comes from outside and has no slot to go back to, or one that is busy: the idle ones by turns, if one comes soon. */
static weft__slot *in_turn(void) {
    for (int i = 0; i < LOOKS; i++) {
        idle.last = (idle.last + 1) % weft__rt.slots;
        if (weft__rt.slot[idle.last].idle) return &weft__rt.slot[idle.last];
    }
    return NULL;
}

static void worker_push(weft__worker *w) {
    weft__check(!w->idle_prev, "I2: a worker is on the list once");
    weft__worker **list = w->own_thread ? &idle.own : &idle.workers;
    w->idle_next = *list;
    w->idle_prev = list;
    if (*list) (*list)->idle_prev = &w->idle_next;
    *list = w;
    if (w->own_thread) return;
    idle.sleeping++;
    idle.starting = false;
    weft__store(&weft__rt.thin, false, relaxed); /* a hint outside the lock */
}

static void want(weft__worker *w, bool on) {
    if (w->wants == on) return;
    w->wants = on;
    if (on) w->wants_since = ++idle.turn;
    weft__add(&weft__rt.wanting, on ? 1 : -1, relaxed); /* a hint outside the lock */
}

static void worker_remove(weft__worker *w) {
    want(w, false);
    *w->idle_prev = w->idle_next;
    if (w->idle_next) w->idle_next->idle_prev = w->idle_prev;
    w->idle_prev = NULL;
    if (!w->own_thread) idle.sleeping--;
    w->was_sentry = idle.sentry == w;
    if (w->was_sentry) idle.sentry = NULL;
    w->was_listener = idle.listener == w;
}

/* The sentry was woken, and others sleep on, maybe for ever: who is to be kicked to take its place. NULL: nobody. Under the lock. */
static weft__worker *relieve(void) {
    return idle.sentry ? NULL : (idle.sentry = idle.workers);
}

/* The one that had the slot last, of the first few that are neither sentry nor listener; else the first of these. */
static weft__worker *worker_of(weft__slot *s) {
    weft__worker *first = NULL;
    int looks = 0;
    for (weft__worker *w = idle.workers; w && looks < LOOKS; w = w->idle_next) {
        if (w == idle.sentry || w == idle.listener) continue;
        if (w->last == s) return w;
        if (!first) first = w;
        looks++;
    }
    return first;
}

/* For the slot: anybody but the sentry, if possible, and rather not the listener, unless there is nothing to listen for: no slot is left. */
static weft__worker *worker_pop(weft__slot *s) {
    weft__worker *w = worker_of(s);
    bool listener = idle.listener && idle.listener->idle_prev;                       /* else it is on its way already */
    if (listener && (!w || !weft__load(&weft__rt.idle, relaxed))) w = idle.listener; /* written under the lock */
    if (!w) w = idle.workers;
    if (w) worker_remove(w);
    return w;
}

/* A worker that waits for a slot for its pinned tasks (I6), and did so before that turn; NULL: none. */
static weft__worker *wanting_pop(uint64_t before) {
    if (!weft__load(&weft__rt.wanting, relaxed)) return NULL; /* written under the lock */
    weft__worker *w = NULL;
    for (int i = 0; i < 2; i++)
        for (weft__worker *x = i ? idle.own : idle.workers; x; x = x->idle_next)
            if (x->wants && x->wants_since < (w ? w->wants_since : before))
                w = x; /* who has waited for longest: they take turns */
    if (w) worker_remove(w);
    return w;
}

/* The slot has no owner: to whom it is to be given after the lock is left; NULL: it is on the idle list. */
static weft__worker *slot_free(weft__slot *s) {
    weft__worker *w = wanting_pop(UINT64_MAX);
    if (!w) slot_push(s);
    return w;
}

void weft__worker_kick(weft__worker *w) {
    weft__store(&w->wake, 1, seq_cst);  /* pairs with the exchange in sleep_until_given; I7 */
    if (weft__load(&w->polls, seq_cst)) /* I7; pairs with listen */
        weft__poll_kick();
    else
        weft__futex_wake(&w->wake, 1);
}

static void give(weft__worker *w, weft__slot *s, bool searching) {
    w->given_at = weft__os_now();
    weft__store(&w->given, (uintptr_t)s | searching, release); /* H6; pairs with the acquire in take_given */
    weft__worker_kick(w);
}

/* ---- making work known ---- */

/* Whether another thread may be tried now; under the lock. */
static bool may_start(void) {
    return idle.retry == 0 || weft__os_now() >= idle.retry;
}

/* Fewer than that sleep: a spare is to be started, after the lock is left. Too early, and nobody watches: busy ones try later. Under the lock. */
static bool fewer(int than) {
    if (idle.sleeping >= than || idle.starting) return false;
    idle.starting = may_start();
    if (!idle.starting && !idle.sleeping) weft__store(&weft__rt.thin, true, relaxed); /* as in worker_push */
    return idle.starting;
}

/* No worker could be started, for the slot or (NULL) as a spare: the next attempt is some time off. */
static void not_started(weft__slot *s, bool searching) {
    weft__lock_take(&idle.lock);
    weft__worker *heir = s ? slot_free(s) : NULL;
    if (searching) weft__sub(&weft__rt.searching, 1, seq_cst); /* I5 */
    idle.retry = weft__os_now() + RETRY;
    idle.starting = false;
    weft__store(&weft__rt.thin, idle.sleeping == 0, relaxed); /* as in worker_push */
    weft__lock_leave(&idle.lock);
    if (heir) give(heir, s, false);
}

static void start_spare(void) {
    if (weft__worker_start(NULL, false) < 0) not_started(NULL, false);
}

void weft__idle_mend(bool now) {
    weft__lock_take(&idle.lock);
    if (now) idle.retry = 0;
    bool spare = fewer(1);
    weft__lock_leave(&idle.lock);
    if (spare) start_spare();
}

/* Out of a deep sleep of all: the sentry has to nap from now on. Whom to kick, after the lock is left; under the lock. */
static weft__worker *undeep(weft__worker *awake) {
    weft__worker *w = idle.deep && idle.sentry != awake ? idle.sentry : NULL;
    if (w) w->quiet = 0; /* even if all is idle again when it looks: the next event must find it napping */
    idle.deep = false;
    return w;
}

typedef struct {
    weft__slot *slot;
    weft__worker *worker, *sentry;
    bool spare;
} pair;

/* A slot, and a worker for it; no worker: one is to be started. No slot: nobody can be woken, and we are no searcher any more. */
static pair take_pair(bool outside, weft__slot *home) {
    pair p = {0};
    weft__lock_take(&idle.lock);
    if (idle.workers || may_start()) p.slot = slot_pop(!outside || (home && home->idle) ? home : in_turn());
    if (p.slot) {
        p.worker = worker_pop(p.slot);
        p.sentry = undeep(p.worker);
        p.spare = fewer(1);
    } else {
        weft__sub(&weft__rt.searching, 1, seq_cst); /* I5 */
    }
    weft__lock_leave(&idle.lock);
    return p;
}

void weft__wake_one(weft__slot *by, weft__slot *home) {
    int32_t none = 0;
    if (!weft__cas(&weft__rt.searching, &none, 1, seq_cst)) return; /* I4; the searcher will find it */
    pair p = take_pair(!by, home);
    if (!p.slot) return;
    if (!p.worker && weft__worker_start(p.slot, true) < 0) {
        not_started(p.slot, true);
        return;
    }
    if (by)
        weft__store(&by->wakes, weft__load(&by->wakes, relaxed) + 1, relaxed); /* a counter */
    else
        weft__add(&weft__rt.foreign_wakes, 1, relaxed);
    if (p.worker) give(p.worker, p.slot, true);
    if (p.sentry) weft__worker_kick(p.sentry);
    if (p.spare) start_spare();
}

/* Or who looks after the timers: the listener, while a slot is idle. */
static void kick_sentry(bool for_timer) {
    weft__lock_take(&idle.lock);
    bool listener = for_timer && idle.listener && weft__load(&weft__rt.idle, relaxed); /* written under the lock */
    weft__worker *w = listener ? idle.listener : idle.sentry;
    weft__lock_leave(&idle.lock);
    if (w) weft__worker_kick(w);
}

void weft__work_injected(weft__slot *home) {
    atomic_thread_fence(memory_order_seq_cst); /* the work before the look; pairs with the heavy barrier in weft__idle */
    if (weft__load(&weft__rt.searching, relaxed)) return;
    if (weft__load(&weft__rt.idle, relaxed) > 0) {
        weft__wake_one(NULL, home);
        return;
    }
    weft__worker *w = weft__load(&weft__rt.napper, acquire); /* workers are never freed while the runtime runs */
    if (w)
        weft__worker_kick(w);
    else if (unlikely(weft__load(&weft__rt.thin, relaxed)))
        weft__idle_mend(true); /* nobody watches, and all who have slots may be away: it is tried again at once */
    else if (weft__watch_wanted())
        kick_sentry(false);
}

/* ---- sleeping ---- */

/* More workers sleep than are of use; under the lock. */
static bool excess(void) {
    return idle.sleeping > weft__rt.slots + SPARES;
}

/* Whether this worker is the listener from now on. Under the lock. */
static bool become_listener(weft__worker *w, int64_t now) {
    int free = weft__load(&weft__rt.idle, relaxed);
    bool wanted = free && weft__load(&weft__polling, relaxed); /* who opens it kicks the sentry */
    bool soon = idle.sentry == w && free < weft__rt.slots && w->nap < WEFT_NAP_LISTENS && w->nap < weft__watch_nap(now, w->nap);
    if (wanted && w->idle_prev && !idle.listener && !soon) idle.listener = w;
    if (!wanted && idle.listener == w) idle.listener = NULL;
    return idle.listener == w;
}

/* A worker that serves one task alone, and so does not listen itself, has given up its slot: nobody listens, and the sentry has begun to nap when there was
 * no slot to listen for. Under the lock. */
static bool unheard(int64_t now) {
    int free = weft__load(&weft__rt.idle, relaxed); /* as in become_listener */
    if (!free || idle.listener || !weft__load(&weft__polling, relaxed)) return false;
    return free == weft__rt.slots ||
           idle.until > now + WEFT_NAP_LISTENS; /* else it does not want to yet, and looks again soon */
}

/* A listener is gone, and with it who looked after the timers of idle slots: the sentry, if it is to look again before it would. Under the
 * lock. */
static weft__worker *timers_unwatched(void) {
    if (!idle.sentry || !weft__load(&weft__rt.idle, relaxed))
        return NULL; /* no slot is idle: whoever gives one up looks again */
    return weft__idle_earliest() < idle.until ? idle.sentry : NULL;
}

/* Until when this worker sleeps, 0 = until it is woken; becomes the sentry, or the listener, where it should. */
static int64_t sleep_until(weft__worker *w) {
    int64_t now = weft__os_now(), until = INT64_MAX, trim = weft__trim_due(now);
    weft__lock_take(&idle.lock);
    int64_t timer = weft__idle_earliest(); /* under the lock: whoever arms one later finds the sentry to kick */
    if (weft__clock_is_fake()) timer = timer <= weft__clock_now() ? now : INT64_MAX;
    bool full = !weft__load(&weft__rt.idle, relaxed);
    if (full) { /* no slot to run it with, unless one is taken; whoever gives one up looks again */
        timer = weft__watch_until();
        if (timer < now + WEFT_NAP_FIRST) timer = now + WEFT_NAP_FIRST;
    }
    w->listens = !w->own_thread && become_listener(w, now);
    bool heard = idle.listener && idle.listener != w && !full; /* somebody else looks after timers from listens_until on */
    if (heard && timer >= idle.listens_until) timer = INT64_MAX;
    if (w->listens) idle.listens_until = timer;
    weft__worker *kick = NULL;
    if (w->own_thread)
        kick = timer < idle.until || unheard(now)
                   ? idle.sentry
                   : NULL; /* the slot it gave up has an earlier timer, or nobody listens for it */
    else if (w->idle_prev && (!idle.sentry || (timer < idle.until && !w->listens)))
        idle.sentry = w;
    if (idle.sentry != w) {
        bool many = !w->own_thread && excess();
        weft__lock_leave(&idle.lock);
        if (kick) weft__worker_kick(kick);
        w->retires = many && !w->listens ? now + weft__idle_retire : 0;
        return !w->listens || timer == INT64_MAX ? 0 : timer > 0 ? timer : 1;
    }
    w->retires = 0;
    bool busy = weft__load(&weft__rt.idle, relaxed) < weft__rt.slots;
    if (busy) {
        w->quiet = 0;
        w->nap = weft__watch_nap(now, w->nap);
        until = now + w->nap;
    } else {
        uint64_t picks = weft__all_picks();
        w->quiet = picks == idle.picks ? w->quiet + 1 : 0; /* looks since something has run */
        idle.picks = picks;
        if (w->quiet < QUIET_NAPS) until = now + NAP_MAX;
    }
    idle.deep = until == INT64_MAX;
    if (timer < until) until = timer > 0 ? timer : 1;
    if (trim < until) until = trim;
    idle.until = until;
    weft__idle_watch_owners(now);
    weft__lock_leave(&idle.lock);
    return until == INT64_MAX ? 0 : until;
}

/* Back to work of its own accord, with an idle slot; NULL: there is none, or somebody has given it one. */
static weft__slot *take_back(weft__worker *w) {
    weft__slot *s = NULL;
    weft__worker *heir = NULL;
    bool spare = false;
    weft__lock_take(&idle.lock);
    if (w->idle_prev && (s = slot_pop(w->last))) {
        worker_remove(w);
        if (w->was_listener) idle.listener = NULL;
        if (w->was_sentry) heir = relieve();
        if (!heir) heir = undeep(w);
        if (!heir && w->was_listener) heir = timers_unwatched();
        idle.deep = false;
        spare = fewer(1);
    }
    weft__lock_leave(&idle.lock);
    if (heir) weft__worker_kick(heir);
    if (spare) start_spare();
    if (s) weft__slot_own(s, w);
    return s;
}

/* It was given a slot while it was the sentry or the listener: whoever gave it looked for this very worker (its pinned tasks), or there was no
 * other. */
static WEFT_COLD void stand_down(weft__worker *w) {
    weft__lock_take(&idle.lock);
    if (w->was_listener) idle.listener = NULL;
    weft__worker *next = w->was_sentry ? relieve() : NULL;
    if (!next && w->was_listener) next = timers_unwatched();
    weft__lock_leave(&idle.lock);
    w->was_sentry = w->was_listener = false;
    if (next) weft__worker_kick(next);
}

static weft__slot *take_given(weft__worker *w) {
    uintptr_t given = weft__load(&w->given, acquire); /* H6; pairs with the release in give */
    if (!given) return NULL;
    weft__store(&w->given, 0, relaxed); /* ours until we are on the list again */
    w->searching = given & 1;
    weft__slot *s = (weft__slot *)(given & ~(uintptr_t)1);
    weft__slot_own(s, w);
    if (w->was_sentry || w->was_listener) stand_down(w); /* written under the lock before it was given */
    return s;
}

/* Stacks that are due are looked at. True: work has come meanwhile, and maybe nobody was woken for it (T2 in trim.c). */
static bool tidied(weft__worker *w) {
    int64_t now = weft__os_now();
    if (weft__trim_due(now) > now) return false;
    weft__trim(w, now);
    return !weft__load(&w->given, relaxed) && weft__idle_work_waits(NULL, 1);
}

/* Leaves the list for good: it is to be released, or has been of no use for long. Not while somebody is pinned to it. False: it stays. */
static bool retire(weft__worker *w) {
    bool over = weft__load(&w->leaving, acquire); /* pairs with weft_worker_release */
    if (!over && (!w->retires || weft__os_now() < w->retires)) return false;
    weft__lock_take(&idle.lock);
    over = w->idle_prev && !w->inbox && !w->pinned && (over || (excess() && idle.sentry != w && idle.listener != w));
    weft__worker *heir = NULL;
    if (over) {
        worker_remove(w);
        if (w->was_listener) idle.listener = NULL;
        if (w->was_sentry) heir = relieve();
        if (!heir && w->was_listener) heir = timers_unwatched();
    }
    weft__lock_leave(&idle.lock);
    if (heir) weft__worker_kick(heir);
    w->retires = 0;
    return over;
}

/* Sleeps in the poller. What has come goes to the slot that this worker has then, NULL: it has none. */
static WEFT_NOINLINE weft__slot *listen(weft__worker *w, int64_t until) {
    weft__edge edges[WEFT_EDGES];
    int n = 0;
    weft__store(&w->polls, 1, seq_cst);                                    /* I7; pairs with weft__worker_kick */
    if (!weft__load(&w->wake, seq_cst)) n = weft__poll_wait(until, edges); /* I7 */
    weft__store(&w->polls, 0, seq_cst);                                    /* before `wake` is cleared */
    if (!n) return NULL;
    (void)weft__xchg(&w->wake, 0, acq_rel); /* as in sleep_until_given */
    weft__slot *s = take_given(w);
    if (!s) s = take_back(w);
    weft__desc_tell(edges, n, s);
    return s;
}

static weft__slot *sleep_until_given(weft__worker *w) {
    weft__slot *s;
    while (!(s = take_given(w))) {
        if (weft__load(&weft__rt.stopping, acquire)) return NULL; /* pairs with weft__workers_stop */
        if (retire(w)) return NULL;
        int64_t until = sleep_until(w);
        weft__add(&(w->last ? w->last : weft__rt.slot)->sleeps, 1, relaxed); /* a counter */
        if (w->listens) {
            if ((s = listen(w, until))) return s;
        } else {
            weft__futex_wait(&w->wake, 0, until ? until : w->retires);
        }
        (void)weft__xchg(&w->wake, 0, acq_rel); /* before the look at `given`; pairs with weft__worker_kick */
        if (until && weft__watch()) w->nap = 0;
        if (until && weft__poll_overdue(weft__os_now(), NAP_MAX))
            weft__poll_now(NULL, WEFT_LOOKS); /* every slot is busy, and none of them looks */
        if (!until || weft__load(&w->given, relaxed)) continue;
        if (weft__idle_neglected() && (s = take_back(w))) return s;
        if (weft__load(&w->given, relaxed)) continue;
        if (tidied(w) && (s = take_back(w))) return s; /* also with no slot to be had: it is due until it is done */
    }
    return s;
}

weft__slot *weft__idle(weft__worker *w) {
    weft__slot *mine = weft__here(w), *s;
    if (!mine && (s = take_given(w))) return s; /* a new worker, started with a slot */
    weft__worker *heir = NULL;
    weft__worker_hurry(w); /* H11: mostly there is nothing to be done; and not under the lock */
    weft__lock_take(&idle.lock);
    if (mine && w->inbox) { /* I6 */
        weft__lock_leave(&idle.lock);
        return mine;
    }
    if (mine) {
        weft__check(!weft__load(&mine->next, relaxed), "I3: a slot that is given up has nothing to run"); /* the owner's own */
        weft__slot_disown(w);
        heir = slot_free(mine);
    }
    worker_push(w);
    if (w->inbox) want(w, true);
    if ((s = w->wants ? slot_pop(w->last) : NULL)) worker_remove(w);
    bool alone = weft__load(&weft__rt.idle, relaxed) == weft__rt.slots; /* written under the lock */
    weft__stop_searching(w); /* likewise, as I5: who gets a slot after us must not rely on us behind a light barrier */
    weft__lock_leave(&idle.lock);
    if (heir) give(heir, mine, false);
    if (s) {
        weft__slot_own(s, w);
        return s;
    }
    if (mine) {
        weft__look_barrier(alone);
        if (weft__idle_work_waits(NULL, WORTH_WAKING)) {
            if (w->own_thread)
                weft__wake_one(NULL, NULL);
            else if ((s = take_back(w)))
                return s;
        }
    }
    return sleep_until_given(w);
}

/* ---- slots that change hands ---- */

weft__slot *weft__idle_slot_take(weft__slot *prefer) {
    weft__lock_take(&idle.lock);
    weft__slot *s = slot_pop(prefer);
    weft__worker *sentry = s ? undeep(NULL) : NULL;
    weft__lock_leave(&idle.lock);
    if (sentry) weft__worker_kick(sentry);
    return s;
}

bool weft__idle_borrow(weft__slot *s) {
    weft__lock_take(&idle.lock);
    bool idle_now = s->idle && slot_pop(s);
    weft__lock_leave(&idle.lock);
    return idle_now;
}

void weft__idle_return(weft__slot *s) {
    weft__lock_take(&idle.lock);
    weft__worker *heir = slot_free(s);
    weft__lock_leave(&idle.lock);
    if (heir) give(heir, s, false);
    weft__heavy_barrier(); /* T2; pairs with the light barrier in weft__work_made */
}

void weft__idle_slot_give(weft__slot *s, bool owed) {
    weft__worker *me = weft__self();
    weft__lock_take(&idle.lock);
    if (owed && !s->owed_since) s->owed_since = ++idle.turn;
    weft__worker *w = wanting_pop(s->owed_since ? s->owed_since : UINT64_MAX);
    if (!w) s->owed_since = 0;
    /* The sentry, which is awake, where others may be long in coming; else one of these, so that the next look comes soon. */
    if (!w && me->idle_prev && weft__load(&weft__rt.strays, relaxed)) worker_remove(w = me);
    if (!w) w = worker_pop(s);
    weft__worker *sentry = undeep(w);
    /* One to watch, and one for the next slot: where many compute, a new thread is long in coming. */
    bool spare = w && fewer(2);
    weft__lock_leave(&idle.lock);
    if (w)
        give(w, s, false);
    else if (weft__worker_start(s, false) < 0)
        not_started(s, false);
    if (sentry) weft__worker_kick(sentry);
    if (spare) start_spare();
}

/* ---- pinned tasks ---- */

void weft__pinned_ready(weft__slot *s, weft__task *t) {
    weft__worker *w = t->pinned_to, *sentry = NULL;
    weft__slot *free = NULL;
    bool spare = false;
    weft__lock_take(&idle.lock);
    t->link = NULL;
    if (w->inbox)
        w->inbox_last->link = t;
    else
        w->inbox = t;
    w->inbox_last = t;
    weft__store(&w->has_inbox, true, relaxed); /* a hint; the lock orders it */
    bool asleep = w->idle_prev != NULL;
    if (asleep && (free = slot_pop(w->last))) {
        worker_remove(w);
        sentry = undeep(w);
        spare = fewer(1);
    } else if (asleep) {
        want(w, true); /* I6 */
    }
    weft__lock_leave(&idle.lock);
    if (free) give(w, free, false);
    if (sentry) weft__worker_kick(sentry);
    if (spare) start_spare();
    if (asleep) return;
    if (w == weft__self()) {
        if (s) weft__attend_soon(s, 2);
    } else {
        weft__worker_request(w);
    }
}

weft__task *weft__pinned_take(weft__worker *w) {
    if (likely(!weft__load(&w->has_inbox, relaxed))) return NULL; /* a hint; weft__idle looks again under the lock */
    weft__lock_take(&idle.lock);
    weft__task *t = w->inbox;
    if (t) w->inbox = t->link;
    weft__store(&w->has_inbox, w->inbox != NULL, relaxed); /* as above */
    if (w->inbox) weft__attend_soon(weft__here(w), 2);
    weft__lock_leave(&idle.lock);
    return t;
}

weft__slot *weft__slot_yield(weft__worker *w, weft__slot *s) {
    weft__lock_take(&idle.lock);
    /* One with pinned tasks of its own has its rounds first, and so has the heir. */
    bool mine = weft__load(&w->has_inbox, relaxed) && !weft__rounds_over(s); /* under the lock */
    weft__worker *heir = mine ? NULL : wanting_pop(UINT64_MAX);
    if (heir) {
        s->owed_since = 0; /* they have had their rounds */
        weft__rounds_begin(s);
        weft__slot_disown(w);
    }
    weft__lock_leave(&idle.lock);
    if (!heir) return s;
    give(heir, s, false);
    return NULL; /* weft__idle comes next */
}

void weft__idle_kick(void) {
    weft__foreign_enter(); /* before the look at the phase; pairs with weft_stop, which frees the workers */
    uint32_t phase = weft__load(&weft__rt.phase, seq_cst);
    if (phase != WEFT_PHASE_NONE && phase != WEFT_PHASE_CLOSING) kick_sentry(true);
    weft__foreign_leave();
}

/* Under the lock: somebody who has just armed a timer may be looking for a sentry to kick. */
static void clear(void) {
    idle.slots = NULL;
    idle.workers = idle.own = idle.sentry = idle.listener = NULL;
    idle.sleeping = idle.last = 0;
    idle.until = idle.retry = 0;
    idle.deep = idle.starting = false;
    weft__store(&weft__rt.idle, 0, relaxed); /* no worker is there */
    weft__store(&weft__rt.wanting, 0, relaxed);
}

void weft__idle_close(void) {
    weft__lock_take(&idle.lock);
    clear();
    weft__lock_leave(&idle.lock);
}

void weft__idle_open(void) {
    weft__lock_take(&idle.lock);
    clear();
    for (int i = weft__rt.slots - 1; i >= 0; i--) slot_push(&weft__rt.slot[i]);
    weft__lock_leave(&idle.lock);
}

void weft__idle_forget(void) {
    clear();
    weft__lock_leave(&idle.lock);
}
