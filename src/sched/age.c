/* SPDX-License-Identifier: MIT */
#include "sched/age.h"

#include "sched/handoff.h"
#include "sched/runq.h"
#include "sched/switch.h"

/* The last mark, and the one before it: what is not above that is old. The marker's; A3. */
typedef struct {
    _Atomic uint64_t last, old;
} marks;
static marks foreign; /* of the numbers of tasks that plain threads spawned */
static marks started; /* of how many have come to the global queue of started tasks */
static _Atomic int64_t marked_at;

static void move(_Atomic uint64_t *old, _Atomic uint64_t *last, uint64_t now) {
    weft__store(old, weft__load(last, relaxed), relaxed); /* A3 */
    weft__store(last, now, relaxed);
}

void weft__age_open(void) {
    for (int i = 0; i < 2; i++) move(&foreign.old, &foreign.last, 0);
    for (int i = 0; i < 2; i++) move(&started.old, &started.last, 0);
    weft__store(&marked_at, 0, relaxed); /* no other thread is there yet */
}

/* The fresh task of that number is old; 0 is no task's. */
static bool is_old(uint64_t id) {
    uint64_t by = id % weft__rt.id_step;                                                       /* as runtime.c numbers them */
    return id && id <= weft__load(by ? &weft__rt.slot[by - 1].old_id : &foreign.old, relaxed); /* A3 */
}

/* The first in the global queue of started tasks is old. */
static bool started_is_old(void) {
    uint32_t count = weft__load(&weft__rt.started.count, relaxed); /* A3, all of these */
    return count && weft__load(&weft__rt.started.pushed, relaxed) - count < weft__load(&started.old, relaxed);
}

/* Returns a slot's grant. The more wait in the global queue, the less it is a recursion whose oldest
 * waits by right. */
static uint32_t grant_of(void) {
    uint32_t n = weft__load(&weft__rt.fresh.count, relaxed) / (uint32_t)weft__rt.slots / WEFT_AGE_SHARE; /* A3 */
    return n < WEFT_AGE_GRANT ? WEFT_AGE_GRANT : n > WEFT_AGE_MOST ? WEFT_AGE_MOST : n;
}

static void grant(weft__slot *s) {
    bool late = weft__load(&s->late, relaxed) != 0; /* A3 */
    weft__store(&s->late, grant_of() + 1, relaxed);
    weft__worker *w = weft__load(&s->owner, acquire); /* H6: a hint; workers stay until the runtime ends */
    if (w && !late) weft__worker_request(w);
}

void weft__age_mark(int64_t clock) {
    int64_t at = weft__load(&marked_at, relaxed);                                           /* the CAS decides */
    if (clock - at < WEFT_AGE_EVERY || !weft__cas(&marked_at, &at, clock, acq_rel)) return; /* another thread makes it */
    move(&foreign.old, &foreign.last, weft__load(&weft__rt.foreign_id, relaxed) * weft__rt.id_step);
    move(&started.old, &started.last, weft__load(&weft__rt.started.pushed, relaxed));
    for (int i = 0; i < weft__rt.slots; i++) {
        weft__slot *s = &weft__rt.slot[i];
        move(&s->old_id, &s->mark_id, weft__load(&s->last_id, relaxed)); /* A3: the owner writes it */
    }
    bool all = started_is_old() || is_old(weft__inject_oldest(&weft__rt.fresh));
    for (int i = 0; i < weft__rt.slots; i++) {
        weft__slot *s = &weft__rt.slot[i];
        if (all || is_old(weft__deque_oldest(s))) grant(s);
    }
}

static weft__fresh *take_own(weft__slot *s) {
    return is_old(weft__deque_oldest(s)) ? weft__deque_steal(s) : NULL;
}

static weft__fresh *take_global(void) {
    return is_old(weft__inject_oldest(&weft__rt.fresh)) ? weft__inject_pop_fresh(&weft__rt.fresh) : NULL;
}

/* An old fresh task, from the slot and from the global queue by turns. */
static weft__work oldest(weft__slot *s) {
    s->late_global = !s->late_global;
    weft__fresh *f = s->late_global ? take_global() : take_own(s);
    if (!f) f = s->late_global ? take_own(s) : take_global();
    return f ? weft__work_fresh(f) : 0;
}

static weft__work newest(weft__slot *s, bool any) {
    weft__fresh *f = weft__deque_take(s);
    if (!f) return 0;
    if (any || weft__fresh_alone(f)) return weft__work_fresh(f);
    weft__deque_put(s, f);
    return 0;
}

/* Starts a task by age. If it has work to do (A2), that costs the slot one of its grant, and a pause
 * while started tasks wait for long. */
static weft__work by_age(weft__slot *s, uint32_t left) {
    weft__work k = left > 1 && !weft__fresh_held() ? oldest(s) : 0;
    if (!k && !started_is_old()) weft__store(&s->late, 0, relaxed); /* A3 */
    if (!k || weft__scope_cause(weft__as_fresh(k)->home)) return k;
    s->late_rest = s->late_picks + (started_is_old() ? WEFT_AGE_PAUSE : 0);
    weft__store(&s->late, left - 1, relaxed); /* A3 */
    return k;
}

weft__work weft__age_pick(weft__slot *s) {
    uint32_t left = weft__load(&s->late, relaxed), n = ++s->late_picks; /* A3 */
    bool next = weft__load(&s->next, relaxed) != NULL;                  /* a hint: a thief may take it */
    bool ring = weft__load(&s->head, relaxed) != weft__load(&s->tail, relaxed), rests = (int32_t)(s->late_rest - n) > 0;
    weft__work k = 0;
    weft__attend_soon(s, s->boost ? s->boost : 1);
    if (s->boost) return 0; /* a spawner has stepped back for its children */
    if (n % WEFT_AGE_ALONE == 0 && (k = newest(s, n % WEFT_AGE_NEWEST == 0))) return k;
    if ((!next && !ring) || (n % 2 && !rests)) k = by_age(s, left); /* A1 */
    if (k || next) return k;
    return weft__work_task(weft__ring_pop(s));
}
