/* SPDX-License-Identifier: MIT */
/* What the crawlers of steps 5 to 9 have in common: no concurrency in here. */
#ifndef CRAWL_H
#define CRAWL_H

#include "site.h"

/* What became of a page. */
struct result {
    char path[PATH_SIZE];
    int err;
    char remark[64]; /* of a panic */
    int links;
    char link[LINKS_MAX][PATH_SIZE];
};

/* Every page that was seen, in the order of that; the coordinator's own, so it needs no lock. */
struct book {
    int n;
    struct result page[PAGES_MAX];
};

static inline struct result *book_find(struct book *b, const char *path) {
    for (int i = 0; i < b->n; i++)
        if (strcmp(b->page[i].path, path) == 0) return &b->page[i];
    return NULL;
}

/* True: the page is new. */
static inline bool book_add(struct book *b, const char *path) {
    if (book_find(b, path) || b->n == PAGES_MAX) return false;
    b->page[b->n].err = WEFT_ECANCELED; /* as long as nobody has looked */
    snprintf(b->page[b->n++].path, PATH_SIZE, "%s", path);
    return true;
}

static inline int by_path(const void *a, const void *b) {
    return strcmp(((const struct result *)a)->path, ((const struct result *)b)->path);
}

static inline void book_sort(struct book *b) {
    qsort(b->page, (size_t)b->n, sizeof *b->page, by_path);
}

static inline void book_print(struct book *b) {
    book_sort(b);
    for (int i = 0; i < b->n; i++)
        printf("%s: %s\n", b->page[i].path, b->page[i].remark[0] ? b->page[i].remark : say(b->page[i].err));
}

/* Fetches r->path and finds its links. */
static inline void look(struct result *r) {
    const char *text;
    r->links = 0;
    r->remark[0] = '\0';
    r->err = fetch(r->path, &text, weft_after(WEFT_SECOND));
    if (!r->err)
        while (r->links < LINKS_MAX && next_link(&text, r->link[r->links]) > 0) r->links++;
}

#endif
