/* SPDX-License-Identifier: MIT */
#include "sched/runq.h"

#include "sched/idle.h"

/* ---- global queues: a list under a lock, entered in batches ----
 *
 * Tasks that have waited long are in no cache, and a list is read one after the other. So each of a batch points to one some places
 * behind it, which is fetched when it is passed (measured with 1,000 tasks that yield: 82 -> 59 ns). */

enum { AHEAD = 8 };

static void put(weft__inject *q, void *first, void *last, uint32_t n, void **(*link)(void *)) {
    weft__lock_take(&q->lock);
    *link(last) = NULL;
    if (q->tail)
        *link(q->tail) = first;
    else
        q->head = first;
    q->tail = last;
    weft__store(&q->pushed, weft__load(&q->pushed, relaxed) + n, relaxed); /* a hint for age.c */
    weft__store(&q->count, weft__load(&q->count, relaxed) + n, release);   /* a hint; pairs with the loads that skip the lock */
    weft__lock_leave(&q->lock);
}

static void **task_link(void *t) {
    return (void **)&((weft__task *)t)->link;
}
static void **fresh_link(void *f) {
    return (void **)&((weft__fresh *)f)->link;
}

/* A list of up to `max` entries, at most our fair share. */
static void *take(weft__inject *q, uint32_t max, void **(*link)(void *)) {
    if (weft__load(&q->count, relaxed) == 0) return NULL; /* a hint; the idle protocol looks again behind a barrier */
    weft__lock_take(&q->lock);
    uint32_t n = weft__load(&q->count, relaxed), k = n / (uint32_t)weft__rt.slots;
    void *first = q->head, *last = first;
    if (first) {
        k = k < 1 ? 1 : k > max ? max : k;
        for (uint32_t i = 1; i < k; i++) {
            if (link == task_link) __builtin_prefetch(((weft__task *)last)->ahead);
            last = *link(last);
        }
        q->head = *link(last);
        if (!q->head) q->tail = NULL;
        *link(last) = NULL;
        weft__store(&q->count, n - k, release); /* as in put */
    }
    weft__lock_leave(&q->lock);
    return first;
}

void weft__inject_push_task(weft__inject *q, weft__task *t) {
    t->ahead = NULL;
    put(q, t, t, 1, task_link);
}
void weft__inject_push_fresh(weft__inject *q, weft__fresh *f) {
    put(q, f, f, 1, fresh_link);
}
weft__task *weft__inject_pop_task(weft__inject *q) {
    return take(q, 1, task_link);
}
weft__fresh *weft__inject_pop_fresh(weft__inject *q) {
    return take(q, 1, fresh_link);
}

uint64_t weft__inject_oldest(weft__inject *q) {
    if (weft__load(&q->count, relaxed) == 0) return 0; /* a hint, as in take */
    weft__lock_take(&q->lock);
    weft__fresh *f = q->head;
    uint64_t id = f ? weft__load(&f->id, relaxed) : 0;
    weft__lock_leave(&q->lock);
    return id;
}

void weft__inject_task(weft__task *t) {
    weft__inject_push_task(&weft__rt.started, t);
}
void weft__inject_fresh(weft__fresh *f) {
    weft__inject_push_fresh(&weft__rt.fresh, f);
}

weft__work weft__inject_take_tasks(weft__slot *s, uint32_t max) {
    weft__task *first = take(&weft__rt.started, max, task_link);
    if (!first) return 0;
    for (weft__task *t = first->link, *next; t; t = next) {
        next = t->link;
        weft__ring_push(s, t);
    }
    return weft__work_task(first);
}

weft__work weft__inject_take_fresh(weft__slot *s, uint32_t max) {
    if (weft__fresh_held()) return 0;
    weft__fresh *first = take(&weft__rt.fresh, max, fresh_link);
    if (!first) return 0;
    for (weft__fresh *f = first->link, *next; f; f = next) {
        next = f->link;
        weft__deque_push(s, f);
    }
    return weft__work_fresh(first);
}

/* ---- overflow ---- */

static void count_overflow(weft__slot *s) {
    weft__store(&s->overflows, weft__load(&s->overflows, relaxed) + 1, relaxed); /* a counter of whoever has the slot */
}

/* Where the ring's young entries begin: those that came behind the last look. */
static uint32_t young_from(weft__slot *s, uint32_t head) {
    return (int32_t)(s->ring_old - head) > 0 ? s->ring_old : head; /* thieves, or we, have come past it */
}

/* Puts the old entries of the ring, which was emptied, back there. Its indices, and those that are kept
 * elsewhere, move on by `by`. */
static void put_back(weft__slot *s, weft__task **t, uint32_t n, uint32_t by) {
    uint32_t tail = weft__load(&s->tail, relaxed); /* R2 */
    for (uint32_t i = 0; i < n; i++)
        weft__store(&s->ring[(tail + i) % WEFT_RING], t[i], relaxed); /* R3: head has passed them */
    weft__store(&s->tail, tail + n, release);                         /* as in weft__ring_push */
    s->look_head += by;
    s->told = (int32_t)(s->told + by - tail - n) > 0 ? tail + n : s->told + by;
    s->ring_old = tail + n;
}

void weft__ring_shed(weft__slot *s, weft__task *t) {
    weft__task *all[WEFT_RING + 1];
    uint32_t head = weft__load(&s->head, acquire), tail = weft__load(&s->tail, relaxed); /* as in weft__ring_pop */
    uint32_t n = tail - head, old = young_from(s, head) - head;
    if (t && n < WEFT_RING) { /* a thief has made room */
        weft__ring_push(s, t);
        return;
    }
    if (t && old < WEFT_RING / 2) old = WEFT_RING / 2; /* enough to do until the next look */
    for (uint32_t i = 0; i < n; i++) all[i] = weft__load(&s->ring[(head + i) % WEFT_RING], relaxed);
    if (old < n) {
        if (!weft__cas(&s->head, &head, tail, acq_rel)) { /* R3: likewise */
            if (t) weft__ring_push(s, t);
            return;
        }
        put_back(s, all, old, n);
    }
    if (t) all[n++] = t;
    if (old == n) return;
    for (uint32_t i = old; i + 1 < n; i++) {
        all[i]->link = all[i + 1];
        all[i]->ahead = all[i + AHEAD < n ? i + AHEAD : n - 1];
    }
    all[n - 1]->ahead = NULL;
    count_overflow(s);
    put(&weft__rt.started, all[old], all[n - 1], n - old, task_link);
    weft__work_made(s); /* for a moment the ring seemed empty */
}

void weft__deque_overflow(weft__slot *s) {
    weft__fresh *first = NULL, *last = NULL;
    uint32_t n = 0;
    for (; n < WEFT_DEQUE / 2; n++) {
        weft__fresh *f = weft__deque_steal(s);
        if (!f) break;
        if (last)
            last->link = f;
        else
            first = f;
        last = f;
    }
    s->deque_top_seen = weft__load(&s->top, acquire); /* R3, as in weft__deque_push */
    if (!last) return;
    put(&weft__rt.fresh, first, last, n, fresh_link);
    count_overflow(s);
}

weft__task *weft__ring_steal(weft__slot *s, weft__slot *victim) {
    for (;;) {
        uint32_t head = weft__load(&victim->head, acquire), tail = weft__load(&victim->tail, acquire); /* pairs with push */
        uint32_t n = tail - head;
        if (n == 0) return NULL;
        if (n > WEFT_RING) continue; /* the two loads do not belong together */
        n -= n / 2;
        uint32_t mine = weft__load(&s->tail, relaxed); /* R2 */
        for (uint32_t i = 0; i < n; i++) {
            weft__task *t = weft__load(&victim->ring[(head + i) % WEFT_RING], relaxed);
            weft__store(&s->ring[(mine + i) % WEFT_RING], t, relaxed);
        }
        if (!weft__cas(&victim->head, &head, head + n, acq_rel)) continue; /* R3 */
        weft__task *last = weft__load(&s->ring[(mine + n - 1) % WEFT_RING], relaxed);
        if (n > 1) weft__store(&s->tail, mine + n - 1, release); /* publishes the rest; pairs with other thieves */
        weft__store(&s->steals, weft__load(&s->steals, relaxed) + n, relaxed); /* a counter */
        return last;
    }
}
