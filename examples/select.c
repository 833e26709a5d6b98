/* SPDX-License-Identifier: MIT */
/* Fan-in: one task listens to two sources at once and gives up when both have been silent for a while. A source that has closed its
 * channel is taken out of the select by setting the channel to NULL. */
#include <stdio.h>
#include <weft.h>

typedef struct {
    weft_chan *out;
    int count;
    int64_t pause;
    bool closes;
} source;

static int produce(void *arg) {
    source *s = arg;
    int err = 0;
    for (int i = 0; i < s->count && !err; i++) {
        err = weft_sleep_for(s->pause);
        if (!err) err = weft_chan_send(s->out, &i, WEFT_FOREVER);
    }
    if (s->closes) weft_chan_close(s->out); /* the other one just falls silent */
    return err;
}

/* Until both are closed (0), or nothing came for 200 ms. */
static int listen_to(weft_chan *fast, weft_chan *slow) {
    int v;
    bool open;
    while (fast || slow) {
        int which = weft_select(weft_after(200 * WEFT_MS), weft_on_recv(fast, &v, &open), weft_on_recv(slow, &v, &open));
        if (which < 0) return which;
        const char *name = which == 0 ? "fast" : "slow";
        if (open) {
            printf("%s: %d\n", name, v);
            continue;
        }
        printf("%s: closed\n", name);
        *(which == 0 ? &fast : &slow) = NULL;
    }
    return 0;
}

static int listen_to_sources(weft_chan *fast, weft_chan *slow) {
    weft_scope s;
    weft_scope_begin(&s, NULL);
    weft_spawn_with(&s, produce, (source){fast, 5, 10 * WEFT_MS, true});
    weft_spawn_with(&s, produce, (source){slow, 3, 35 * WEFT_MS, false});
    int end = listen_to(fast, slow);
    printf("then: %s\n", weft_strerror(end));
    int err = weft_scope_end(&s);
    return err ? err : end == WEFT_ETIMEDOUT ? 0 : end;
}

static int app(void *arg) {
    (void)arg;
    weft_chan *fast = weft_chan_new(sizeof(int), 0), *slow = weft_chan_new(sizeof(int), 0);
    int err = fast && slow ? listen_to_sources(fast, slow) : WEFT_ENOMEM;
    weft_chan_unref(fast);
    weft_chan_unref(slow);
    return err;
}

int main(void) {
    return weft_run(app, NULL, NULL) == 0 ? 0 : 1;
}
