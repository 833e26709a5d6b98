/* SPDX-License-Identifier: MIT */
/* Sleeping, timers and tickers. Every other operation that waits takes a deadline itself. */
#ifndef WEFT_TIME_H
#define WEFT_TIME_H

#include <weft/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Sleeps until the moment given; 0 when it has come, never before. WEFT_FOREVER sleeps until cancelled; WEFT_POLL does not sleep:
 * 0, in a cancelled scope too. WEFT_ECANCELED. */
WEFT_API int weft_sleep(weft_deadline until);
/* Sleeps for a duration; zero or negative: returns 0 at once (WEFT_ECANCELED in a cancelled scope). */
WEFT_API int weft_sleep_for(int64_t duration);

struct weft_chan;

/* A timer: a function that is called at a moment, once or again and again. All zero before its first use; must not move or go while
 * it is armed or its function runs (weft_timer_stop_wait). Its contents are the runtime's. Once it has been started, any task or thread
 * may start and stop it. */
typedef struct weft_timer {
    uint64_t weft__private[10];
} weft_timer;

/* Called by a task of the runtime's own, on a worker. It should be short: it delays timers that are due at the same time. It may
 * spawn, complete, send without waiting, start and stop timers, this one included; it must not park, which aborts with a message. A
 * timer's function never runs twice at once. A panic in it is reported, and counts as its return. */
typedef void weft_timer_fn(void *arg);

/* Arms the timer: fn(arg) is called when the deadline has come, never before; in the past: at once; WEFT_FOREVER: never. With an
 * interval (nanoseconds; 0 = once) it is armed again when fn returns, for the next deadline + n * interval that lies ahead: it does
 * not drift, and what was missed is skipped. A timer that is armed already is moved; one whose function runs is armed as well, and
 * fires after that has returned. WEFT_EINVAL: no function, or a negative interval. WEFT_ECANCELED: called by
 * the timer's own function, and weft_timer_stop_wait waits for that to return; the timer stays stopped. WEFT_ETERMINATED: no runtime runs, or
 * it stops. weft_stop stops all timers. */
WEFT_API int weft_timer_start(weft_timer *t, weft_deadline deadline, int64_t interval, weft_timer_fn *fn, void *arg);
/* Stops the timer. 1: it was armed, and that call will not come. 0: its function has been called or is running (and will not be
 * called again, unless the timer is started again), or it was not armed. Never waits. */
WEFT_API int weft_timer_stop(weft_timer *t);
/* The same, and when it returns the function is not running and the timer is not armed, whatever the function did: the timer's memory and
 * fn's may go. While it waits, a start by fn is refused with WEFT_ECANCELED. A start by another task or thread meanwhile is not: it
 * arms the timer, so a caller that lets the memory go sees to it that there is none. From inside fn itself it does not wait, fn may
 * start the timer afterwards, and the timer must stay until fn has returned. Not a cancellation point: it always waits, for as long
 * as fn takes. */
WEFT_API int weft_timer_stop_wait(weft_timer *t);

/* Whether a call of its function is to come: whether weft_timer_stop would give 1. A timer with an interval is not armed while its function
 * runs. It may be otherwise by the time you look at it. Never waits. */
WEFT_API bool weft_timer_armed(weft_timer *t);

/* A ticker: a timer that sends. All zero before its first use. */
typedef struct weft_ticker {
    weft_timer weft__timer;
    struct weft_chan *weft__chan;
} weft_ticker;

/* From now on sends the moment of each tick, an int64_t of weft_now's clock, to the channel, every `interval` nanoseconds, the first after
 * one interval. If nobody has received the last one, the new one takes its place: a slow receiver gets the latest, and never a
 * backlog. The channel has elements of 8 bytes and capacity 1. When it is closed the ticks end. WEFT_EINVAL: the interval is
 * not positive, or the channel does not fit. WEFT_EALREADY: it ticks. WEFT_ETERMINATED: no runtime runs. */
WEFT_API int weft_ticker_start(weft_ticker *t, int64_t interval, struct weft_chan *c);
/* No tick is sent any more; the channel stays open. What has been sent can still be received. May wait a moment, as
 * weft_timer_stop_wait; 0 if it does not tick. */
WEFT_API int weft_ticker_stop(weft_ticker *t);

#ifdef __cplusplus
}
#endif
#endif
