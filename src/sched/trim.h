/* SPDX-License-Identifier: MIT */
/* When stacks give back what lies deep: trim.c has the essay. */
#ifndef WEFT_SRC_TRIM_H
#define WEFT_SRC_TRIM_H

#include "sched/sched.h"

/* How long after something has run the stacks are looked at, nanoseconds; tests set it to 0, before a runtime starts: all the time. */
extern int64_t weft__trim_later;
/* When the sentry is to call weft__trim: a moment of weft__os_now; INT64_MAX: nothing has run since the last time. */
int64_t weft__trim_due(int64_t now);
/* By the sentry, with no slot and no lock: looks at stacks if it is due, until all are done or the worker is wanted. */
void weft__trim(weft__worker *w, int64_t now);
/* A runtime begins. */
void weft__trim_open(void);

#endif
