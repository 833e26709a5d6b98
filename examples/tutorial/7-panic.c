/* SPDX-License-Identifier: MIT */
/* Tutorial, step 7: panics. As step 5, and a page that makes no sense ends its own check, not the crawl. */
#include "crawl.h"

enum { WORKERS = 3 };

struct ends {
    weft_chan *todo; /* paths, to the workers */
    weft_chan *done; /* struct results, from the workers */
};

/* As look(), for people who are sure that all brackets are closed: that one is not must be a bug. */
static int look_closely(void *arg) {
    struct result *r = arg;
    const char *text;
    int more = 1;
    r->links = 0;
    r->err = fetch(r->path, &text, weft_after(WEFT_SECOND));
    while (!r->err && r->links < LINKS_MAX && (more = next_link(&text, r->link[r->links])) > 0) r->links++;
    if (more < 0) weft_panic("%s has a link that does not end", r->path);
    return r->err;
}

static void look_contained(struct result *r) {
    weft_panic_info info;
    r->remark[0] = '\0';
    if (weft_try(look_closely, r, &info) != WEFT_EPANIC) return;
    r->err = WEFT_EPANIC;
    snprintf(r->remark, sizeof r->remark, "panic: %.50s", info.message);
}

static int worker(void *arg) {
    struct ends *e = arg;
    struct result r;
    int err = 0;
    while (!err && (err = weft_chan_recv(e->todo, r.path, WEFT_FOREVER)) == 0) {
        look_contained(&r);
        err = weft_chan_send(e->done, &r, WEFT_FOREVER);
    }
    return err == WEFT_ECLOSED ? 0 : err; /* closed: that was all */
}

/* Hands out a page that nobody has seen; 1: it did. There is room for all of them, so this does not wait. */
static int hand_out(struct ends *e, struct book *b, const char *path) {
    if (!book_add(b, path)) return 0;
    return weft_chan_send(e->todo, path, WEFT_FOREVER) == 0;
}

static void coordinate(struct ends *e, struct book *b) {
    struct result r;
    int out = hand_out(e, b, (char[PATH_SIZE]){"/"}); /* pages that a worker has, or will have */
    for (; out > 0 && weft_chan_recv(e->done, &r, WEFT_FOREVER) == 0; out--) {
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
        coordinate(&e, arg);
        weft_chan_close(e.todo); /* the workers' loops end */
        err = weft_scope_end(&s);
    }
    weft_chan_unref(e.todo);
    weft_chan_unref(e.done);
    return err;
}

int main(void) {
    struct book b = {0};
    int err = weft_run(crawl, &b, NULL);
    book_print(&b);
    return err ? 1 : 0;
}
