/* SPDX-License-Identifier: MIT */
/* Rate limit: so many at once (a burst), then one for each interval. The channel holds the tokens; whoever wants to go takes one, and waits if there is
 * none; a timer puts one back at each interval, and drops it if the channel is full. */
#include <stdio.h>
#include <weft.h>

WEFT_CHAN_TYPE(tokens, char);

struct limiter {
    weft_timer timer;
    tokens left;
};

static void add_token(void *arg) { /* called by the timer: must not wait */
    struct limiter *l = arg;
    tokens_try_send(l->left, &(char){0});
}

static int limiter_start(struct limiter *l, size_t burst, int64_t interval) {
    *l = (struct limiter){.left = tokens_new(burst)};
    if (!l->left.chan) return WEFT_ENOMEM;
    for (size_t i = 0; i < burst; i++) add_token(l);
    return weft_timer_start(&l->timer, weft_after(interval), interval, add_token, l);
}

static int limiter_wait(struct limiter *l, weft_deadline deadline) {
    char token;
    return tokens_recv(l->left, &token, deadline);
}

static void limiter_stop(struct limiter *l) {
    weft_timer_stop_wait(&l->timer);
    tokens_unref(l->left);
}

static int request(void *arg) {
    return limiter_wait(arg, WEFT_FOREVER); /* and then the request itself */
}

static int app(void *arg) {
    (void)arg;
    struct limiter l;
    int64_t begin = weft_now();
    int err = limiter_start(&l, 3, 5 * WEFT_MS), at_once = 0;
    while (!err && at_once < 3 && limiter_wait(&l, WEFT_POLL) == 0) at_once++;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 7; i++) weft_spawn(&s, request, &l);
    int end = weft_scope_end(&s);
    printf("%d at once, 7 more in at least 35 ms: %s\n", at_once, weft_now() - begin >= 35 * WEFT_MS ? "yes" : "no");
    limiter_stop(&l);
    return err ? err : end;
}

int main(void) {
    return weft_run(app, NULL, NULL);
}
