/* SPDX-License-Identifier: MIT */
#include "base/lock.h"

#include <sched.h>

enum {
    BACK_OFF_FIRST = 32,   /* pauses: about a microsecond */
    BACK_OFF_MAX = 64,     /* longer ones were worse under contention */
    BACK_OFF_TOTAL = 4000, /* then the holder was probably preempted */
};

static _Atomic bool strict;
_Atomic(weft__lock_stuck *) weft__lock_is_stuck;

void weft__lock_strict(bool on) {
    weft__store(&strict, on, relaxed); /* a hint, pairs with nothing */
}

bool weft__lock_is_strict(void) {
    return weft__load(&strict, relaxed); /* as above */
}

void weft__lock_slow(weft__lock *l) {
    bool spin = !weft__lock_is_strict();
    int pauses = BACK_OFF_FIRST, total = 0;
    for (;;) {
        if (spin) {
            for (int i = 0; i < pauses; i++) weft__cpu_relax();
            total += pauses;
            if (pauses < BACK_OFF_MAX) pauses *= 2;
        }
        if (weft__lock_try(l)) return;
        if (!spin || total > BACK_OFF_TOTAL) {
            weft__lock_stuck *stuck = weft__load(&weft__lock_is_stuck, relaxed); /* set when there was one thread */
            if (unlikely(stuck != NULL)) stuck();
            sched_yield();
            total = 0;
        }
    }
}
