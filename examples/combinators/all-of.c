/* SPDX-License-Identifier: MIT */
/* All: several tasks at once, each with a place for its result; go on when every one has ended. The first error cancels the others, unless
 * the scope is told to keep going: then each result is looked at. */
#include <stdio.h>
#include <weft.h>

struct lookup {
    const char *name;
    int price; /* the result, or an error */
};

static int look_up(void *arg) {
    struct lookup *l = arg;
    int err = weft_sleep_for(WEFT_MS); /* in place of a request */
    l->price = err ? err : l->name[0] == '?' ? -ENOENT : (int)(l->name[0] - 'a') + 1;
    return l->price;
}

/* 0: every lookup has its price. */
static int look_up_all(struct lookup *l, size_t n) {
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (size_t i = 0; i < n; i++) weft_spawn(&s, look_up, &l[i]);
    return weft_scope_end(&s);
}

/* The same, whatever becomes of the others: how many failed. */
static int settle_all(struct lookup *l, size_t n) {
    int failed = 0;
    weft_scope s;
    weft_scope_begin(&s, &(weft_scope_opts){.on_error = WEFT_KEEP_GOING});
    for (size_t i = 0; i < n; i++) weft_spawn(&s, look_up, &l[i]);
    weft_scope_end(&s);
    for (size_t i = 0; i < n; i++) failed += l[i].price < 0;
    return failed;
}

static int app(void *arg) {
    (void)arg;
    struct lookup good[] = {{"apple", 0}, {"banana", 0}, {"cherry", 0}}, bad[] = {{"apple", 0}, {"?", 0}, {"cherry", 0}};
    int err = look_up_all(good, 3);
    printf("all: %s, %d in sum\n", weft_strerror(err), good[0].price + good[1].price + good[2].price);
    printf("all, with a bad one: %s\n", weft_strerror(look_up_all(bad, 3)));
    int failed = settle_all(bad, 3);
    printf("settled: %d failed, the others cost %d and %d\n", failed, bad[0].price, bad[2].price);
    return err;
}

int main(void) {
    return weft_run(app, NULL, NULL);
}
