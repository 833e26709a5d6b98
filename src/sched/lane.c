/* SPDX-License-Identifier: MIT */
#include "sched/lane.h"

#include "sched/idle.h"
#include "sched/runq.h"
#include "sched/switch.h"
#include "time/clock.h"

static weft__lane *lane_of(int lane) {
    return &weft__rt.lane[lane - WEFT_LANE_HIGH];
}

bool weft__lane_waits(int lane) {
    weft__lane *l = lane_of(lane);
    return weft__load(&l->started.count, acquire) || weft__load(&l->fresh.count, acquire); /* hints, as for the global queues */
}

weft__work weft__lane_take(int lane) {
    weft__lane *l = lane_of(lane);
    weft__task *t = weft__inject_pop_task(&l->started);
    weft__fresh *f = t ? NULL : weft__inject_pop_fresh(&l->fresh);
    if (lane == WEFT_LANE_LOW && (t || f))
        weft__store(&weft__rt.low_ran, weft__clock_now(), relaxed); /* a hint for the watch */
    return t ? weft__work_task(t) : f ? weft__work_fresh(f) : 0;
}

bool weft__low_starves(void) {
    return weft__lane_waits(WEFT_LANE_LOW) &&
           weft__clock_now() - weft__load(&weft__rt.low_ran, relaxed) >= WEFT_LOW_EVERY; /* a hint */
}

/* ---- making ready ---- */

static void announce(weft__slot *s, int lane, weft__slot *home) {
    if (!s) {
        weft__work_injected(home);
        return;
    }
    if (lane == WEFT_LANE_HIGH) weft__attend_soon(s, 1);
    weft__work_made(s);
}

void weft__special_ready(weft__slot *s, weft__task *t) {
    if (t->pins || t->bound) {
        weft__pinned_ready(s, t);
        return;
    }
    int lane = t->lane;
    weft__slot *home = s ? NULL : weft__since_where(weft__load(&t->b.since, relaxed)); /* written before it parked */
    weft__inject_push_task(&lane_of(lane)->started, t);
    announce(s, lane, home);
}

void weft__lane_spawn(weft__slot *s, weft__fresh *f, int lane) {
    weft__inject_push_fresh(&lane_of(lane)->fresh, f);
    announce(s, lane, NULL);
}

/* ---- the others' share ---- */

/* Accounts for the thread's time since the last look. */
static void settle(weft__slot *s) {
    int64_t now = weft__os_thread_time(), d = now - s->lane_since;
    s->lane_since = now;
    s->lane_debt += s->lane_ran_high ? d / WEFT_LANE_SHARE : -d;
    s->lane_ran_high = false;
    if (s->lane_debt > WEFT_LANE_CREDIT) s->lane_pays = true;
    if (s->lane_debt > 0) return;
    s->lane_debt = 0;
    s->lane_pays = false;
}

weft__work weft__lane_high(weft__slot *s) {
    weft__work k = weft__lane_take(WEFT_LANE_HIGH);
    if (!k || !weft__others_wait(s)) return k; /* nobody is owed anything */
    if (!s->lane_since) s->lane_since = weft__os_thread_time();
    s->lane_ran_high = true;
    weft__attend_soon(s, 1); /* to see how long it took */
    return k;
}

bool weft__lane_attend(weft__slot *s, weft__work *k) {
    weft__task *pinned = weft__pinned_take(weft__self());
    if (pinned) {
        *k = weft__work_task(pinned);
        return true;
    }
    if (s->lane_since) {
        settle(s);
    } else if (s->lane_debt) { /* the slot has changed hands, and goes on paying, by the time of another thread */
        s->lane_since = weft__os_thread_time();
        s->lane_ran_high = false;
    }
    bool high = weft__lane_waits(WEFT_LANE_HIGH);
    if (high && !s->lane_pays && (*k = weft__lane_high(s))) return true;
    if (high || s->lane_debt)
        weft__attend_soon(s, 1);
    else
        s->lane_since = 0;
    return false;
}
