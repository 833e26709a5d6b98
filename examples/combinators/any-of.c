/* SPDX-License-Identifier: MIT */
/* Any: ask several, take the first good answer, cancel the rest. An error is an answer too, but the others go on; only if all fail, so does
 * the whole. */
#include <stdio.h>
#include <weft.h>

struct answer {
    const char *from;
    int result;
};
WEFT_CHAN_TYPE(answers, struct answer);

struct mirror {
    const char *name;
    int64_t takes; /* 0: never answers */
    int result;
    answers_tx out;
};

static int ask(void *arg) {
    struct mirror *m = arg;
    int err = weft_sleep(m->takes ? weft_after(m->takes) : WEFT_FOREVER); /* in place of a request */
    if (err) return err;                                                  /* cancelled: another one was faster */
    struct answer a = {m->name, m->result};
    return answers_tx_send(m->out, &a, WEFT_FOREVER);
}

/* The first good answer of n mirrors, or the last error. */
static int ask_any(struct mirror *m, size_t n, struct answer *a) {
    answers c = answers_new(n); /* room for all: nobody waits to answer */
    if (!c.chan) return WEFT_ENOMEM;
    int err = 0;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (size_t i = 0; i < n; i++) {
        m[i].out = c.tx;
        weft_spawn(&s, ask, &m[i]);
    }
    for (size_t i = 0; i < n && (err = answers_recv(c, a, WEFT_FOREVER)) == 0; i++)
        if ((err = a->result) >= 0) break;
    weft_scope_cancel(&s); /* our own: not an error */
    int end = weft_scope_end(&s);
    answers_unref(c);
    return end ? end : err;
}

static int app(void *arg) {
    (void)arg;
    struct mirror some[] = {{"down", WEFT_US, -EHOSTUNREACH, {0}}, {"silent", 0, 0, {0}}, {"near", 2 * WEFT_MS, 42, {0}}};
    struct mirror none[] = {{"down", WEFT_US, -EHOSTUNREACH, {0}}, {"broken", WEFT_US, -EHOSTUNREACH, {0}}};
    struct answer a = {NULL, 0};
    int result = ask_any(some, 3, &a);
    printf("the first good answer: %d, from %s\n", result, a.from);
    printf("none: %s\n", weft_strerror(ask_any(none, 2, &a)));
    return result == 42 ? 0 : 1;
}

int main(void) {
    return weft_run(app, NULL, NULL);
}
