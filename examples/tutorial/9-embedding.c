/* SPDX-License-Identifier: MIT */
/* Tutorial, step 9: embedding. The crawler of step 8 in a program that has its own main and its own thread for the terminal. */
#include <pthread.h>

#include "crawl.h"

enum { WORKERS = 3, LINE_SIZE = 96 };

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

/* The book is the queue: pages up to `handed` are handed out, `back` of them have come back. */
static int coordinate(struct ends *e, struct book *b) {
    struct result r;
    int handed = 0, back = 0;
    book_add(b, "/");
    while (back < b->n) {
        bool more = handed < b->n;
        weft_chan *todo = more ? e->todo : NULL; /* NULL: that case is disabled */
        const char *path = more ? b->page[handed].path : NULL;
        int which = weft_select(weft_after(10 * WEFT_SECOND), weft_on_send(todo, path), weft_on_recv(e->done, &r, NULL));
        if (which < 0) return which; /* WEFT_ETIMEDOUT: no worker has said anything for ten seconds */
        if (which == 0) {
            handed++;
            continue;
        }
        back++;
        *book_find(b, r.path) = r;
        for (int i = 0; i < r.links; i++) book_add(b, r.link[i]);
    }
    return 0;
}

static int crawl(void *arg) {
    struct ends e = {weft_chan_new(PATH_SIZE, 0), weft_chan_new(sizeof(struct result), 0)};
    int err = WEFT_ENOMEM;
    if (e.todo && e.done) {
        weft_scope s;
        weft_scope_begin(&s, NULL);
        for (int i = 0; i < WORKERS; i++) weft_spawn(&s, worker, &e);
        int lost = coordinate(&e, arg);
        if (lost) weft_scope_cancel(&s); /* workers that hang are not waited for */
        weft_chan_close(e.todo);         /* the workers' loops end */
        err = weft_scope_end(&s);
        if (lost) err = lost;
    }
    weft_chan_unref(e.todo);
    weft_chan_unref(e.done);
    return err;
}

/* A plain thread: the only one that prints. */
static void *terminal(void *lines) {
    char line[LINE_SIZE];
    while (weft_chan_recv(lines, line, WEFT_FOREVER) == 0) puts(line); /* it sleeps where a task would park */
    return NULL;
}

static int report(struct book *b, weft_chan *lines) {
    char line[LINE_SIZE];
    int err = 0;
    book_sort(b);
    for (int i = 0; i < b->n && !err; i++) {
        struct result *r = &b->page[i];
        snprintf(line, sizeof line, "%s: %s", r->path, r->remark[0] ? r->remark : say(r->err));
        err = weft_chan_send(lines, line, WEFT_FOREVER);
    }
    return err;
}

int main(void) {
    struct book b = {0};
    pthread_t t;
    weft_chan *lines = weft_chan_new(LINE_SIZE, 4); /* channels need no runtime */
    if (!lines || pthread_create(&t, NULL, terminal, lines) != 0) return 1;
    int err = weft_start(&(weft_config){.workers = 2});
    if (!err) {
        err = weft_block_on(crawl, &b); /* as a task; this thread waits */
        int stop = weft_stop(weft_after(10 * WEFT_SECOND));
        if (!err) err = stop;
    }
    if (!err) err = report(&b, lines); /* from a plain thread to a plain thread */
    weft_chan_close(lines);
    pthread_join(t, NULL);
    weft_chan_unref(lines);
    return err ? 1 : 0;
}
