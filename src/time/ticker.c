/* SPDX-License-Identifier: MIT */
/* Tickers: a timer with an interval that sends to a channel. */
#include "chan/chan.h"
#include "time/clock.h"
#include "time/timer.h"

static void tick(void *arg) {
    weft_ticker *t = arg;
    int64_t moment = weft__timer_moment(&t->weft__timer);
    if (weft__chan_put_latest(t->weft__chan, &moment) == WEFT_ECLOSED) weft_timer_stop(&t->weft__timer);
}

int weft_ticker_start(weft_ticker *t, int64_t interval, weft_chan *c) {
    if (interval <= 0 || !c || c->elem != sizeof(int64_t) || c->cap != 1) return WEFT_EINVAL;
    if (t->weft__chan) return WEFT_EALREADY;
    t->weft__chan = weft_chan_ref(c);
    int err = weft_timer_start(&t->weft__timer, weft_after(interval), interval, tick, t);
    if (!err) return 0;
    t->weft__chan = NULL;
    weft_chan_unref(c);
    return err;
}

int weft_ticker_stop(weft_ticker *t) {
    weft_chan *c = t->weft__chan;
    if (!c) return 0;
    int armed = weft_timer_stop_wait(&t->weft__timer);
    t->weft__chan = NULL;
    weft_chan_unref(c);
    return armed;
}
