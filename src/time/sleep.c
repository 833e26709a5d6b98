/* SPDX-License-Identifier: MIT */
/* Sleeping: a wait on nothing, with a deadline. */
#include "sched/switch.h"
#include "task/task.h"
#include "time/clock.h"

#include <weft/time.h>

static void post_parked(weft__slot *s, void *block) {
    (void)s;
    weft__many_parked(block);
}

static int sleep_until(weft__block *b, weft__slot **s, weft_deadline until) {
    weft__wait wait;
    int err = weft__wait_prepare(&wait, b, until, *s);
    if (err) return err;
    do {
        weft__many_begin(b);
        atomic_thread_fence(memory_order_seq_cst); /* P3; pairs with the fences of cancellation and deadline */
        err = weft__wait_check(&wait);
        if (!err) {
            *s = weft__wait_many(b, *s, until, WEFT_WAIT_SLEEP, post_parked, b);
            err = b->result;
            wait.expired = err == WEFT_ETIMEDOUT;
        }
        weft__many_end(b);
    } while (err == WEFT_AWAIT_AGAIN);
    weft__wait_finish(&wait);
    return err;
}

int weft_sleep(weft_deadline until) {
    weft__slot *s = weft__enter();
    weft__block *b = weft__me();
    int err = weft__cancel_first(b, until);
    if (!err && until.ns != INT64_MIN) err = sleep_until(b, &s, until);
    if (s) weft__leave();
    return err == WEFT_ETIMEDOUT ? 0 : err;
}

int weft_sleep_for(int64_t duration) {
    return weft_sleep(weft_after(duration));
}
