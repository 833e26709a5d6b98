/* SPDX-License-Identifier: MIT */
#include "base/lock.h"

#include <sched.h>

enum {
    BACK_OFF_FIRST = 32,   /* pauses: about a microsecond */
    BACK_OFF_MAX = 64,     /* longer ones were worse under contention */
    BACK_OFF_TOTAL = 4000, /* then the holder was probably preempted */
};

static _Atomic bool strict;
weft__lean weft__leans[WEFT_LEAN_SLOTS];
_Atomic(weft__lock_stuck *) weft__lock_is_stuck;

void weft__lock_strict(bool on) {
    weft__store(&strict, on, relaxed); /* a hint, pairs with nothing */
}

bool weft__lock_is_strict(void) {
    return weft__load(&strict, relaxed); /* as above */
}

typedef struct {
    int pauses, total;
} patience;

/* Between two attempts. */
static void back_off(patience *p) {
    bool spin = !weft__lock_is_strict();
    if (!p->pauses) p->pauses = BACK_OFF_FIRST;
    if (spin) {
        for (int i = 0; i < p->pauses; i++) weft__cpu_relax();
        p->total += p->pauses;
        if (p->pauses < BACK_OFF_MAX) p->pauses *= 2;
    }
    if (spin && p->total <= BACK_OFF_TOTAL) return;
    weft__lock_stuck *stuck = weft__load(&weft__lock_is_stuck, relaxed); /* set when there was one thread */
    if (unlikely(stuck != NULL)) stuck();
    sched_yield();
    p->total = 0;
}

void weft__lock_slow(weft__lock *l) {
    patience p = {0, 0};
    do {
        back_off(&p);
    } while (weft__load(&l->held, relaxed) || !weft__lock_take_upright(l));
    if (weft__load(&l->leans, relaxed)) weft__lock_straighten(l); /* K1 */
}

void weft__lock_wait_kept(weft__lock *l, uint16_t slot) {
    patience p = {0, 0};
    while (weft__load(&weft__leans[slot].tries, acquire) == l) back_off(&p); /* pairs with the release in weft__lean_take */
    while (weft__load(&l->kept, acquire)) back_off(&p);                      /* pairs with the release in weft__lock_leave */
}
