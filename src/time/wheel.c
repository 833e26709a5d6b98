/* SPDX-License-Identifier: MIT */
/* Timers: a hierarchical wheel.
 *
 * Nearly every timer in a server is a deadline that never comes: it is started, and stopped a moment later. So starting and
 * stopping must cost a few nanoseconds however many there are; finding the next one, and firing, may cost a little more.
 *
 * A moment is a number of 11 digits in base 64. `reached` is a moment up to which the wheel has been run. A timer hangs in the
 * bucket (level, digit) where `level` is the highest digit in which its moment differs from `reached`, and `digit` is its
 * moment's digit there: one exclusive-or, one count of leading zeros. What lies in the same 64 ns is in level 0, what lies
 * in the same 4 us in level 1 or below, and so on; level 10 holds the centuries up to INT64_MAX. Since the digits above
 * `level` are the same for the timer and for `reached`, everything in a lower level comes before everything in a higher
 * one, and within a level a smaller digit comes before a larger one. So the earliest bucket is the lowest bit of the lowest
 * level that has one: no search, no loop over ticks, however far the clock jumps.
 *
 * Running the wheel: the earliest bucket, if it begins by `now`, is fired from its front if it is of level 0, searched for its
 * earliest timer if it is SMALL, and otherwise *opened*: `reached` becomes its beginning, and its timers move, in order, to lower
 * levels (they agree with the new `reached` in the digit that held them). A timer falls at most once per level, and each time
 * into a smaller bucket: of a million timers a second each falls about three times, of a hundred a second once.
 *
 * The bound `next`: starting a timer lowers it, running computes it anew, and stopping the earliest timer raises it as
 * far as is cheap. The earliest bucket of a high level may begin long before its first timer, which would wake an idle process
 * for nothing. So the bound is the exact minimum of the bucket if it is small (LOOK timers); else the process wakes when the
 * bucket begins, opens it, and finds a smaller one: at most once per level for a timer years away.
 *
 * Fairness of the lock: waiters back off for a microsecond at a time and would hardly ever hit the instant in which a run lets
 * go, so they leave a mark (`waiting`), and a run that sees it after a BATCH of timers waits until one of them has got in.
 *
 * Invariants, under the lock (weft__wheel_check):
 *  1. A bucket is marked in `used` and its level in `levels` if and only if it has a timer; `count` is their number.
 *  2. A timer in (level > 0, digit) has the digits of `reached` above that level, and `digit` in it.
 *  3. That digit is greater than the one of `reached`, unless the bucket is the open one, whose beginning is `reached`.
 *  4. A timer in level 0 is due at its bucket's moment, which is not before `reached`. (Late-comers hang at `reached` itself.)
 *  5. `next` is not after any timer's moment, or not after `reached` for those whose moment was over when they started.
 *  6. Timers of one bucket are in the order of their starts among those of the same moment: a bucket is filled at its end and
 *     emptied from its front, and lower levels have nothing of its range when it is opened.
 * Nobody else sees a timer between its removal and the end of its function, because the lock is held: this is what lets
 * weft__timer_stop promise that the function has returned.
 *
 * Rejected (figures in docs/adr/005-timer-wheel.md):
 *  - A binary heap: exact, but each start and stop is a walk of log n cache misses.
 *  - A timerfd per timer: microseconds and a descriptor each.
 *  - An exact hash of the moments: as cheap to fill, but has no order: the next moment would need a second structure.
 *  - Ticks of 16 us with moments rounded up: saves two levels and one fall, fires what is due a tick late, and a test that
 *    moves the fake clock by exactly the time slept would wait for ever.
 *  - Levels by distance instead of by digits: a timer never falls early because of a digit that turns over, but levels overlap,
 *    so the order and the next moment need a comparison of all levels.
 *  - Firing outside the lock: a stop would need a handshake with each timer being fired, and a state for it in each timer. */
#include "time/wheel.h"

#include <sched.h>

enum {
    BATCH = 32,       /* timers moved or fired before waiters are let in: about a microsecond */
    LOOK = 32,        /* timers looked at to make the bound exact: a false wake-up costs as much as hundreds */
    LOOK_ON_STOP = 4, /* the same on the fast path */
    SMALL = 8,        /* a bucket of so many is searched rather than opened: half of them looked at is as dear as one fall */
    NEAR = 2,         /* levels of which timers fire soon: within 262 us */
    PATIENCE = 8,     /* times the CPU is given away for a waiter: a few microseconds, more than his back-off */
    DIGIT = (1 << WEFT_WHEEL_BITS) - 1,
};

/* ---- the lock ---- */

void weft__wheel_enter_slow(weft__wheel *w) {
    weft__add(&w->waiting, 1, relaxed); /* a hint, read by breathe */
    weft__lock_take(&w->lock);
    weft__sub(&w->waiting, 1, relaxed);
}

/* Lets those in who wait, and waits for one of them to have got in: taking the lock back at once would beat them every time. */
static void breathe(weft__wheel *w) {
    uint32_t waiting = weft__load(&w->waiting, relaxed); /* a hint, written by weft__wheel_enter_slow */
    if (likely(!waiting)) return;
    weft__lock_leave(&w->lock);
    for (int i = 0; i < PATIENCE && weft__load(&w->waiting, relaxed) >= waiting; i++) sched_yield();
    weft__lock_take(&w->lock);
}

/* ---- buckets ---- */

WEFT_INLINE int shift_of(int bucket) {
    return (bucket >> WEFT_WHEEL_BITS) * WEFT_WHEEL_BITS;
}

WEFT_INLINE weft__timer *timer_of(weft__timer_link *l) {
    return weft__container(l, weft__timer, link);
}

/* The moment that decides where a timer hangs: what is over is due now. */
WEFT_INLINE int64_t key_of(const weft__wheel *w, const weft__timer *t) {
    return t->when > w->reached ? t->when : w->reached;
}

/* Returns the level. */
WEFT_INLINE int append(weft__wheel *w, weft__timer *t, int64_t key) {
    uint64_t differs = (uint64_t)(key ^ w->reached);
    int level = (63 - __builtin_clzll(differs | 1)) / WEFT_WHEEL_BITS;
    int digit = (int)((uint64_t)key >> (level * WEFT_WHEEL_BITS)) & DIGIT;
    weft__timer_link *b = &w->bucket[(level << WEFT_WHEEL_BITS) + digit], *last = b->prev;
    t->link.next = b;
    t->link.prev = last;
    last->next = b->prev = &t->link;
    w->used[level] |= UINT64_C(1) << digit;
    w->levels |= (uint16_t)(1u << level);
    return level;
}

static void bucket_emptied(weft__wheel *w, int bucket) {
    int level = bucket >> WEFT_WHEEL_BITS;
    w->used[level] &= ~(UINT64_C(1) << (bucket & DIGIT));
    if (!w->used[level]) w->levels &= (uint16_t) ~(1u << level);
    if (bucket == w->open) {
        w->open = 0;
        w->back = NULL;
    }
}

WEFT_INLINE void detach(weft__wheel *w, weft__timer *t) {
    weft__timer_link *n = t->link.next, *p = t->link.prev;
    n->prev = p;
    p->next = n;
    t->link.prev = NULL;
    if (unlikely(w->back == &t->link)) w->back = p;
    if (n == p) bucket_emptied(w, (int)(n - w->bucket)); /* both neighbours are the bucket itself */
}

/* The earliest bucket; the wheel is not empty. The open one comes first: what has left it for lower levels is no earlier than
 * what has not. */
WEFT_INLINE int first_bucket(const weft__wheel *w) {
    if (w->open) return w->open;
    int level = __builtin_ctz(w->levels);
    return (level << WEFT_WHEEL_BITS) + __builtin_ctzll(w->used[level]);
}

/* The moment at which a bucket that is not empty begins. */
WEFT_INLINE int64_t bucket_begin(const weft__wheel *w, int bucket) {
    int shift = shift_of(bucket);
    uint64_t above = ((uint64_t)w->reached >> shift) & ~(uint64_t)DIGIT;
    return (int64_t)((above | (uint64_t)(bucket & DIGIT)) << shift);
}

/* The earliest timer of a bucket, the one started first if several are; NULL if there are more than `look`. */
WEFT_INLINE weft__timer *earliest(weft__wheel *w, int bucket, int look) {
    weft__timer_link *b = &w->bucket[bucket];
    weft__timer *best = timer_of(b->next);
    for (weft__timer_link *l = best->link.next; l != b; l = l->next) {
        if (!--look) return NULL;
        if (timer_of(l)->when < best->when) best = timer_of(l);
    }
    return best;
}

/* The best lower bound that looking at no more than `look` timers gives. */
static int64_t bound(weft__wheel *w, int look) {
    if (!w->count) return INT64_MAX;
    int bucket = first_bucket(w);
    int64_t begin = bucket_begin(w, bucket);
    if (bucket <= DIGIT || bucket == w->open) return begin; /* lower levels hold what has left the open one */
    weft__timer *t = earliest(w, bucket, look);
    return t ? t->when : begin;
}

/* ---- the contract ---- */

void weft__wheel_init(weft__wheel *w, int64_t now) {
    memset(w, 0, sizeof *w);
    w->reached = now > 0 ? now : 0;
    w->due.next = w->due.prev = &w->due;
    for (size_t i = 0; i < weft__countof(w->bucket); i++) w->bucket[i].next = w->bucket[i].prev = &w->bucket[i];
    weft__store(&w->next, INT64_MAX, relaxed); /* nobody else knows the wheel yet */
}

bool weft__wheel_add(weft__wheel *w, weft__timer *t) {
    weft__check(!t->link.prev, "a timer is started once at a time");
    t->wheel = w;
    int64_t key = key_of(w, t);
    append(w, t, key);
    w->count++;
    bool earliest = key < weft__load(&w->next, relaxed); /* our own: we hold the lock */
    if (earliest) weft__store(&w->next, key, release);   /* pairs with weft__wheel_next */
    return earliest;
}

bool weft__timer_start(weft__wheel *w, weft__timer *t) {
    weft__wheel_enter(w);
    bool earliest = weft__wheel_add(w, t);
    weft__wheel_leave(w);
    return earliest;
}

/* Never lowers the bound, and is never wrong: what the old one was true for is still true. */
static WEFT_NOINLINE void raise_next(weft__wheel *w, int64_t old) {
    int64_t next = bound(w, LOOK_ON_STOP);
    if (next > old) weft__store(&w->next, next, release); /* pairs with weft__wheel_next */
}

void weft__wheel_remove(weft__wheel *w, weft__timer *t) {
    detach(w, t);
    w->count--;
    int64_t next = weft__load(&w->next, relaxed); /* our own: we hold the lock */
    if (t->when <= next || !w->count) raise_next(w, next);
}

bool weft__timer_stop(weft__timer *t) {
    weft__wheel *w = t->wheel;
    if (!w) return false;
    weft__wheel_enter(w);
    bool inside = t->link.prev != NULL;
    if (inside) weft__wheel_remove(w, t);
    weft__wheel_leave(w);
    return inside;
}

void weft__wheel_drop(weft__wheel *w, void (*fire)(weft__timer *, void *), void (*dropped)(weft__timer *)) {
    for (weft__timer *t; (t = weft__due_first(w));) {
        weft__due_remove(t);
        dropped(t);
    }
    for (int i = 0; i < WEFT_WHEEL_BUCKETS; i++) {
        for (weft__timer_link *l = w->bucket[i].next, *next; l != &w->bucket[i]; l = next) {
            next = l->next;
            if (timer_of(l)->fire != fire) continue;
            weft__wheel_remove(w, timer_of(l));
            dropped(timer_of(l));
        }
    }
}

WEFT_INLINE void fetch(char *near) {
    __builtin_prefetch(near, 1);
    __builtin_prefetch(near + WEFT_LINE, 1);
}

/* Moves up to BATCH timers of the open bucket to lower levels. Of a large bucket each is a cache miss that the next one's address waits for. So the ring is
 * gone through from both ends at once, from the back only to look: two misses at a time, and the second half is in the cache when its turn comes. (Where
 * they have met, `back` goes on through timers that were moved: of some other bucket, or a bucket itself, but never of none.) */
static void move_down(weft__wheel *w) {
    weft__timer_link *b = &w->bucket[w->open], *l = b->next, *back = w->back ? w->back : b->prev;
    for (int i = 0; i < BATCH && l != b; i++) {
        weft__timer *t = timer_of(l);
        l = l->next;
        back = back->prev;
        /* It will fire within a fraction of a millisecond: of a million sleepers nearly each is a cache and a TLB miss. */
        if (append(w, t, t->when) <= NEAR && t->near) fetch(t->near);
    }
    b->next = l;
    l->prev = b;
    w->back = back;
    if (l == b) bucket_emptied(w, w->open);
}

/* The timer to fire next, still in its bucket; NULL if nothing is due at `now`. */
static weft__timer *due(weft__wheel *w, int64_t now) {
    while (w->count) {
        int bucket = first_bucket(w);
        int64_t begin = bucket_begin(w, bucket);
        if (begin > now) break;
        if (bucket <= DIGIT) return timer_of(w->bucket[bucket].next);
        if (!w->open) {
            weft__timer *t = earliest(w, bucket, SMALL);
            if (t) return t->when <= now ? t : NULL;
            w->reached = begin;
            w->open = (uint16_t)bucket;
        }
        move_down(w);
        breathe(w);
    }
    if (w->reached < now) w->reached = now;
    return NULL;
}

int weft__wheel_run(weft__wheel *w, int64_t now, int max, void *ctx) {
    if (now < weft__wheel_next(w)) return 0;
    weft__wheel_enter(w);
    int fired = 0;
    while (fired < max) {
        weft__timer *t = due(w, now);
        if (!t) break;
        detach(w, t);
        w->count--;
        t->fire(t, ctx);
        if (++fired % BATCH == 0) breathe(w);
    }
    weft__store(&w->next, bound(w, LOOK), release); /* pairs with weft__wheel_next */
    weft__lock_leave(&w->lock);
    return fired;
}

/* ---- the invariants ---- */

#ifdef WEFT_DEBUG_CHECKS
static void check_timer(const weft__wheel *w, int bucket, const weft__timer *t) {
    int shift = shift_of(bucket), digit = bucket & DIGIT;
    uint64_t when = (uint64_t)t->when >> shift, reached = (uint64_t)w->reached >> shift;
    weft__check(t->wheel == w, "a timer knows its wheel");
    if (bucket <= DIGIT) {
        weft__check(digit >= (int)(reached & DIGIT), "wheel 4: not before what is reached");
        weft__check(t->when <= bucket_begin(w, bucket), "wheel 4: due at its bucket");
    } else {
        weft__check(when >> WEFT_WHEEL_BITS == reached >> WEFT_WHEEL_BITS, "wheel 2: the digits above");
        weft__check((int)(when & DIGIT) == digit, "wheel 2: the digit");
        if (bucket == w->open)
            weft__check(bucket_begin(w, bucket) == w->reached, "wheel 3: reached is where the open bucket begins");
        else
            weft__check(digit > (int)(reached & DIGIT), "wheel 3: after what is reached");
    }
    weft__check(weft__load(&w->next, relaxed) <= key_of(w, t), "wheel 5: the bound"); /* our own: we hold the lock */
}

void weft__wheel_check(weft__wheel *w) {
    weft__wheel_enter(w);
    uint32_t count = 0;
    for (int i = 0; i < WEFT_WHEEL_BUCKETS; i++) {
        weft__timer_link *b = &w->bucket[i];
        bool marked = w->used[i >> WEFT_WHEEL_BITS] >> (i & DIGIT) & 1;
        weft__check(marked == (b->next != b), "wheel 1: used");
        for (weft__timer_link *l = b->next; l != b; l = l->next, count++) {
            weft__check(l->next->prev == l && l->prev->next == l, "wheel 1: the ring");
            check_timer(w, i, timer_of(l));
        }
    }
    weft__check(count == w->count, "wheel 1: count");
    for (int i = 0; i < WEFT_WHEEL_LEVELS; i++) weft__check((w->levels >> i & 1) == (w->used[i] != 0), "wheel 1: levels");
    weft__lock_leave(&w->lock);
}
#endif
