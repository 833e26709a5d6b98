/* SPDX-License-Identifier: MIT */
/* Whose timers the sentry looks after, and from when on: see the essay of idle.c. */
#include "sched/idle.h"

#include "time/clock.h"

enum { GRACE = 500 * 1000 }; /* ns that an owner at work may be late with its timers before the sentry runs them */

static int64_t watched; /* when the owners' rounds were looked at; under the idle lock */

/* Lately the slot's owner has made so many rounds that it sees to its timers itself. */
static bool lively(weft__slot *v) {
    if (!weft__load(&v->owner, relaxed)) return false;                                /* a hint */
    uint32_t rounds = weft__load(&v->picks, relaxed) - weft__load(&v->seen, relaxed); /* hints: the owner's, the sentry's */
    return rounds >= WEFT_GLOBAL_EVERY;
}

int64_t weft__idle_timer(weft__slot *v) {
    int64_t next = weft__wheel_next(&v->wheel);
    bool later = next < INT64_MAX - GRACE && !weft__clock_is_fake() && lively(v);
    return later ? next + GRACE : next;
}

int64_t weft__idle_earliest(void) {
    int64_t first = weft__wheel_next(&weft__rt.outside);
    for (int i = 0; i < weft__rt.slots; i++) {
        int64_t next = weft__idle_timer(&weft__rt.slot[i]);
        if (next < first) first = next;
    }
    return first;
}

void weft__idle_watch_owners(int64_t now) {
    if (now - watched < GRACE) return;
    watched = now;
    for (int i = 0; i < weft__rt.slots; i++) {
        weft__slot *v = &weft__rt.slot[i];
        weft__store(&v->seen, weft__load(&v->picks, relaxed), relaxed); /* hints, as in lively */
    }
}
