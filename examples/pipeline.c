/* SPDX-License-Identifier: MIT */
/* A pipeline of three stages: numbers, their squares, their sum. Each stage owns the channel it writes to and closes it when it is
 * done; so the end of the input travels through the pipeline by itself, and each stage ends by leaving its loop. */
#include <stdio.h>
#include <weft.h>

typedef struct {
    weft_chan *in, *out;
    int64_t n;
} stage;

static int numbers(void *arg) {
    stage *s = arg;
    int err = 0;
    for (int64_t i = 1; i <= s->n && !err; i++) err = weft_chan_send(s->out, &i, WEFT_FOREVER);
    weft_chan_close(s->out);
    return err;
}

static int squares(void *arg) {
    stage *s = arg;
    int err = 0;
    int64_t v;
    WEFT_CHAN_EACH(s->in, &v) {
        v *= v;
        if ((err = weft_chan_send(s->out, &v, WEFT_FOREVER)) < 0) break;
    }
    weft_chan_close(s->out);
    return err;
}

static int run_stages(weft_chan *a, weft_chan *b, int64_t n) {
    weft_scope s;
    int64_t v, sum = 0;
    weft_scope_begin(&s, NULL);
    weft_spawn_with(&s, numbers, (stage){.out = a, .n = n});
    weft_spawn_with(&s, squares, (stage){.in = a, .out = b});
    WEFT_CHAN_EACH(b, &v) sum += v; /* the third stage is this task itself */
    int err = weft_scope_end(&s);
    if (!err) printf("the squares of 1 to %lld add up to %lld\n", (long long)n, (long long)sum);
    return err;
}

static int app(void *arg) {
    (void)arg;
    weft_chan *a = weft_chan_new(sizeof(int64_t), 16), *b = weft_chan_new(sizeof(int64_t), 16);
    int err = a && b ? run_stages(a, b, 100000) : WEFT_ENOMEM;
    weft_chan_unref(a);
    weft_chan_unref(b);
    return err;
}

int main(void) {
    int err = weft_run(app, NULL, NULL);
    if (err) fprintf(stderr, "pipeline: %s\n", weft_strerror(err));
    return err ? 1 : 0;
}
