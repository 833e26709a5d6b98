/* SPDX-License-Identifier: MIT */
#include "os/os.h"

/* All relaxed below: a test arms before the threads it watches make the call, by means that order it (it starts them, or it
 * is the one that calls); the counters themselves order nothing. */
_Atomic int weft__fault_armed;
int weft__fault_errno = ENOMEM;
void (*weft__fault_hook)(void);
static _Atomic long calls, victim;
static _Atomic bool all_after;
static __thread long here;

bool weft__fault_hit(void) {
    long n = weft__add(&calls, 1, relaxed) + 1;
    here++;
    long v = weft__load(&victim, relaxed);
    bool hit = weft__load(&all_after, relaxed) ? n >= v : n == v;
    if (hit && weft__fault_hook) weft__fault_hook();
    return hit;
}

void weft__fault_arm(long nth, bool sticky) {
    weft__store(&weft__fault_armed, 0, relaxed);
    weft__store(&calls, 0, relaxed);
    weft__store(&victim, nth, relaxed);
    weft__store(&all_after, sticky, relaxed);
    weft__store(&weft__fault_armed, nth > 0, relaxed);
}

long weft__fault_calls_here(void) {
    return here;
}

long weft__fault_calls(void) {
    return weft__load(&calls, relaxed);
}
