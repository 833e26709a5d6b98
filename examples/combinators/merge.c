/* SPDX-License-Identifier: MIT */
/* Merge: several channels into one, in the order in which things come. One task for each input passes its elements on; when all inputs have
 * ended, the output is closed. For a fixed few, weft_select does it without tasks: examples/select.c. */
#include <stdio.h>
#include <weft.h>

WEFT_CHAN_TYPE(ints, int);

struct stage {
    ints_rx in;
    ints_tx out;
    int from, to;
};

static int count(void *arg) {
    struct stage *s = arg;
    int err = 0;
    for (int i = s->from; i < s->to && !err; i++) err = ints_tx_send(s->out, &i, WEFT_FOREVER);
    ints_tx_close(s->out);
    return err;
}

static int pass_on(void *arg) {
    struct stage *s = arg;
    int v, err = 0;
    while (!err && ints_rx_recv(s->in, &v, WEFT_FOREVER) == 0) err = ints_tx_send(s->out, &v, WEFT_FOREVER);
    return err;
}

struct inputs {
    ints_rx in[3];
    ints_tx out;
};

static int merge(void *arg) {
    struct inputs *m = arg;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 3; i++) weft_spawn_with(&s, pass_on, (struct stage){.in = m->in[i], .out = m->out});
    int err = weft_scope_end(&s); /* all inputs have ended */
    ints_tx_close(m->out);
    return err;
}

static int app(void *arg) {
    (void)arg;
    ints in[3] = {ints_new(4), ints_new(4), ints_new(4)}, out = ints_new(4);
    int v, n = 0, sum = 0;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 3; i++)
        weft_spawn_with(&s, count, (struct stage){.out = in[i].tx, .from = i * 100, .to = i * 100 + 100});
    weft_spawn_with(&s, merge, (struct inputs){{in[0].rx, in[1].rx, in[2].rx}, out.tx});
    while (ints_recv(out, &v, WEFT_FOREVER) == 0) n++, sum += v;
    int err = weft_scope_end(&s);
    printf("%d numbers from 3 channels, %d in sum\n", n, sum);
    for (int i = 0; i < 3; i++) ints_unref(in[i]);
    ints_unref(out);
    return err;
}

int main(void) {
    return weft_run(app, NULL, NULL);
}
