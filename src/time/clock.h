/* SPDX-License-Identifier: MIT */
/* The clock all of weft reads: the kernel's monotonic one, or a fake that tests move by hand. */
#ifndef WEFT_SRC_CLOCK_H
#define WEFT_SRC_CLOCK_H

#include "base/base.h"

/* Nanoseconds; always > 0. */
int64_t weft__clock_now(void);
/* From now on time stands still at `start` (> 0) until it is advanced; 0 = back to the real clock. Only while no runtime runs. */
void weft__clock_fake(int64_t start);
bool weft__clock_is_fake(void);
/* Moves the fake clock forward and tells the runtime (weft__clock_moved). */
void weft__clock_advance(int64_t ns);
/* Called after the fake clock has moved; set by the scheduler, NULL without a runtime. */
extern void (*weft__clock_moved)(void);

#endif
