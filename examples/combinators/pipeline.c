/* SPDX-License-Identifier: MIT */
/* Pipeline: stages with channels between them, which hold what the next stage is not ready for. Each stage closes its output when its input has
 * ended, so the end travels through. All are children of one scope, so an error in any of them ends them all. */
#include <stdio.h>
#include <stdlib.h>
#include <weft.h>

struct line {
    char text[16];
};
WEFT_CHAN_TYPE(lines, struct line);
WEFT_CHAN_TYPE(numbers, long);

struct reader {
    const char *const *from;
    lines_tx out;
};

static int read_lines(void *arg) {
    struct reader *r = arg;
    int err = 0;
    for (size_t i = 0; r->from[i] && !err; i++) {
        struct line l;
        snprintf(l.text, sizeof l.text, "%s", r->from[i]);
        err = lines_tx_send(r->out, &l, WEFT_FOREVER);
    }
    lines_tx_close(r->out);
    return err;
}

struct parser {
    lines_rx in;
    numbers_tx out;
};

static int parse(void *arg) {
    struct parser *p = arg;
    struct line l;
    int err = 0;
    while (!err && lines_rx_recv(p->in, &l, WEFT_FOREVER) == 0) {
        char *end;
        long v = strtol(l.text, &end, 10);
        err = *end ? -EINVAL : numbers_tx_send(p->out, &v, WEFT_FOREVER);
    }
    numbers_tx_close(p->out);
    return err;
}

static int add_up(const char *const *from, long *sum) {
    lines a = lines_new(8);
    numbers b = numbers_new(8);
    long v;
    *sum = 0;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    weft_spawn_with(&s, read_lines, (struct reader){from, a.tx});
    weft_spawn_with(&s, parse, (struct parser){a.rx, b.tx});
    while (numbers_recv(b, &v, WEFT_FOREVER) == 0) *sum += v; /* the last stage is this task itself */
    int err = weft_scope_end(&s);
    lines_unref(a);
    numbers_unref(b);
    return err;
}

static int app(void *arg) {
    (void)arg;
    const char *const good[] = {"1", "20", "300", "4000", NULL}, *const bad[] = {"1", "2o", "300", NULL};
    long sum;
    int err = add_up(good, &sum);
    printf("good lines: %ld, %s\n", sum, weft_strerror(err));
    printf("a bad one: %s\n", weft_strerror(add_up(bad, &sum)));
    return err;
}

int main(void) {
    return weft_run(app, NULL, NULL);
}
