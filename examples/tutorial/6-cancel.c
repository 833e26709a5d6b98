/* SPDX-License-Identifier: MIT */
/* Tutorial, step 6: cancellation. As step 5, but the first broken link is enough. */
#include "crawl.h"

enum { WORKERS = 3 };

struct ends {
    weft_chan *todo; /* paths, to the workers */
    weft_chan *done; /* struct results, from the workers */
};

static int worker(void *arg) {
    struct ends *e = arg;
    struct result r;
    int err = 0;
    while (!err && (err = weft_chan_recv(e->todo, r.path, WEFT_FOREVER)) == 0) {
        look(&r);
        err = weft_chan_send(e->done, &r, WEFT_FOREVER);
    }
    return err == WEFT_ECLOSED ? 0 : err; /* closed: that was all */
}

/* Hands out a page that nobody has seen; 1: it did. There is room for all of them, so this does not wait. */
static int hand_out(struct ends *e, struct book *b, const char *path) {
    if (!book_add(b, path)) return 0;
    return weft_chan_send(e->todo, path, WEFT_FOREVER) == 0;
}

/* Until a page is broken: then the scope is cancelled, and whatever the workers wait for ends at once. */
static void coordinate(struct ends *e, struct book *b, weft_scope *s) {
    struct result r;
    int out = hand_out(e, b, (char[PATH_SIZE]){"/"}); /* pages that a worker has, or will have */
    for (; out > 0 && weft_chan_recv(e->done, &r, WEFT_FOREVER) == 0; out--) {
        if (r.err) {
            printf("broken: %s, %s\n", r.path, say(r.err));
            weft_scope_cancel(s);
            return;
        }
        *book_find(b, r.path) = r;
        for (int i = 0; i < r.links; i++) out += hand_out(e, b, r.link[i]);
    }
}

static int crawl(void *arg) {
    struct ends e = {weft_chan_new(PATH_SIZE, PAGES_MAX), weft_chan_new(sizeof(struct result), 0)};
    int err = WEFT_ENOMEM;
    if (e.todo && e.done) {
        weft_scope s;
        weft_scope_begin(&s, NULL);
        for (int i = 0; i < WORKERS; i++) weft_spawn(&s, worker, &e);
        coordinate(&e, arg, &s);
        weft_chan_close(e.todo); /* the workers' loops end */
        err = weft_scope_end(&s);
    }
    weft_chan_unref(e.todo);
    weft_chan_unref(e.done);
    return err;
}

int main(void) {
    struct book b = {0};
    int err = weft_run(crawl, &b, NULL); /* 0: the scope was cancelled by its own people, which is no error */
    printf("the crawl: %s\n", say(err));
    return err ? 1 : 0;
}
