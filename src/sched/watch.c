/* SPDX-License-Identifier: MIT */
/* The watch over slots whose tasks go on and on. A task that calls the runtime often enough needs no watch: its budget ends, or the slot's
 * rounds. One that computes in between is sent to the others at its next call once its slice is over: the worker's gate is closed
 * (requested, handoff.h), so the next entry takes the slow way, which yields. Nothing is interrupted, and the fast paths pay nothing.
 *
 * Run by the sentry when it wakes from a nap, every 4 ms at the latest while some slot is busy, so a slice is over by that much late. */
#include "sched/handoff.h"
#include "sched/idle.h"
#include "sched/lane.h"
#include "sched/runq.h"
#include "time/clock.h"

/* All loads here are hints: a request too many costs one slow entry, one too few is made at the next nap. */
static bool slice_over(weft__slot *s, int64_t now) {
    uint32_t picks = weft__load(&s->picks, relaxed);
    if (picks == weft__load(&s->watch_picks, relaxed)) return now - weft__load(&s->watch_since, relaxed) >= weft__rt.slice;
    weft__store(&s->watch_picks, picks, relaxed);
    weft__store(&s->watch_since, now, relaxed);
    return false;
}

void weft__watch(void) {
    int64_t now = weft__os_now(), clock = weft__clock_now();
    bool urgent = weft__lane_waits(WEFT_LANE_HIGH) || weft__low_starves(now) || weft__load(&weft__rt.wanting, relaxed);
    for (int i = 0; i < weft__rt.slots; i++) {
        weft__slot *s = &weft__rt.slot[i];
        weft__worker *w = weft__load(&s->owner, acquire); /* H6: a hint; workers stay until the runtime ends */
        if (!w) continue;
        bool over = slice_over(s, now), due = weft__wheel_next(&s->wheel) <= clock;
        bool pinned = weft__load(&w->has_inbox, relaxed);
        if (urgent || due || pinned || (over && weft__others_wait(s))) weft__worker_request(w);
    }
}
