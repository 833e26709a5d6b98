/* SPDX-License-Identifier: MIT */
#include "time/clock.h"

#include "os/os.h"

static _Atomic int64_t fake; /* the fake moment; 0 = the real clock */

void (*weft__clock_moved)(void);

int64_t weft__clock_now(void) {
    int64_t f = weft__load(&fake, acquire); /* pairs with the release in weft__clock_advance */
    return likely(!f) ? weft__os_now() : f;
}

bool weft__clock_is_fake(void) {
    return weft__load(&fake, relaxed) != 0; /* changes only while no runtime runs */
}

void weft__clock_fake(int64_t start) {
    if (start < 0) weft__die("a fake clock starts at a positive moment, not at %lld", (long long)start);
    weft__store(&fake, start, release); /* pairs with the acquire in weft__clock_now */
}

/* Time ends at INT64_MAX rather than turning negative. */
static int64_t later(int64_t moment, int64_t ns) {
    return ns <= INT64_MAX - moment ? moment + ns : INT64_MAX;
}

void weft__clock_advance(int64_t ns) {
    int64_t old = weft__load(&fake, relaxed); /* the exchange below verifies it */
    if (!old) weft__die("only a fake clock can be advanced");
    if (ns < 0) weft__die("a clock moves forward, not by %lld ns", (long long)ns);
    /* release: what the mover did before is seen by whoever reads the new time; pairs with weft__clock_now */
    while (!weft__cas(&fake, &old, later(old, ns), release)) continue;
    if (weft__clock_moved) weft__clock_moved();
}

int64_t weft_now(void) {
    return weft__clock_now();
}

weft_deadline weft_after(int64_t duration) {
    return weft__deadline(later(weft__clock_now(), duration > 0 ? duration : 0));
}

/* 0 and INT64_MIN mean something else in a deadline; 1 is as much in the past as any of the others. */
weft_deadline weft_at(int64_t monotonic_ns) {
    return weft__deadline(monotonic_ns > 0 ? monotonic_ns : 1);
}
