/* SPDX-License-Identifier: MIT */
/* Timers of users: what the scheduler and the runtime need of them. timer.c has the essay. */
#ifndef WEFT_SRC_TIMER_H
#define WEFT_SRC_TIMER_H

#include "time/wheel.h"

#include <weft/time.h>

/* Takes every user's timer out of the wheel: the runtime ends, and no worker is left. */
void weft__timers_drop(weft__wheel *w);
/* In the child of a fork: nobody waits for the end of a function. */
void weft__timers_forget(void);
/* In a timer's function: the moment it was due. */
int64_t weft__timer_moment(const weft_timer *t);

#endif
