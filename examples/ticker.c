/* SPDX-License-Identifier: MIT */
/* A ticker beside work, and a watchdog: the ticker sends the moments of its ticks to a channel, and a receiver that is busy for a while
 * finds the latest one, not all that it missed; the watchdog is a timer that is pushed off as long as there is progress. */
#include <stdio.h>
#include <weft.h>

typedef struct {
    weft_timer timer;
    weft_scope *scope;
} watchdog;

static void bark(void *arg) { /* on a worker; must not wait */
    watchdog *w = arg;
    printf("no progress for 100 ms: cancelled\n");
    weft_scope_cancel(w->scope);
}

static int pat(watchdog *w) {
    return weft_timer_start(&w->timer, weft_after(100 * WEFT_MS), 0, bark, w); /* moves it if it is armed */
}

static int app(void *arg) {
    (void)arg;
    weft_chan *ticks = weft_chan_new(sizeof(int64_t), 1);
    if (!ticks) return WEFT_ENOMEM;
    weft_ticker ticker = {0};
    weft_scope s;
    weft_scope_begin(&s, NULL);
    watchdog w = {.scope = &s};
    int64_t begin = weft_now(), moment;
    int err = weft_ticker_start(&ticker, 10 * WEFT_MS, ticks);
    for (int i = 1; !err && (err = weft_chan_recv(ticks, &moment, WEFT_FOREVER)) == 0; i++) {
        if (i <= 5) pat(&w);
        printf("tick after %lld0 ms\n", (long long)(moment - begin + 5 * WEFT_MS) / (10 * WEFT_MS));
        if (i == 3) err = weft_sleep_for(35 * WEFT_MS); /* busy: some ticks are missed */
    }
    weft_timer_stop_wait(&w.timer);
    weft_ticker_stop(&ticker);
    weft_scope_end(&s);
    weft_chan_unref(ticks);
    return err == WEFT_ECANCELED ? 0 : 1;
}

int main(void) {
    return weft_run(app, NULL, NULL);
}
