/* SPDX-License-Identifier: MIT */
/* The site that the tutorial checks: pages in memory, behind a fetch that takes its time as a network would. */
#ifndef SITE_H
#define SITE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft.h>

enum { PATH_SIZE = 16, LINKS_MAX = 8, PAGES_MAX = 16 };

struct page {
    const char *path;
    int ms; /* how long it takes to come; -1: it never does */
    const char *text;
};

static const struct page site[] = {
    {"/", 2, "Welcome. News are at [/news], we are at [/about]."},
    {"/news", 3, "Nothing new; the old ones are in the [/archive]. Back to [/]."}, /* there is no archive */
    {"/about", 2, "We weave. Write to [/contact], or see the [/map]."},
    {"/contact", 4, "By pigeon only. Read our [/notes] first."},
    {"/map", 1, "[/], [/news], [/about], [/contact], [/search]."},
    {"/search", -1, ""},
    {"/notes", 1, "Pigeons eat [/grain and"}, /* somebody forgot a bracket */
};

/* 0 and the text of the page; -ENOENT: there is none; WEFT_ETIMEDOUT, WEFT_ECANCELED. */
static inline int fetch(const char *path, const char **text, weft_deadline deadline) {
    for (size_t i = 0; i < sizeof site / sizeof *site; i++) {
        const struct page *p = &site[i];
        if (strcmp(p->path, path) != 0) continue;
        *text = p->text;
        if (p->ms >= 0) return weft_sleep_for(p->ms * WEFT_MS);
        int err = weft_sleep(deadline); /* WEFT_FOREVER: until somebody cancels it */
        return err ? err : WEFT_ETIMEDOUT;
    }
    return -ENOENT;
}

/* 1 and the next link after *at; 0: no more; -EBADMSG: it does not end. */
static inline int next_link(const char **at, char link[PATH_SIZE]) {
    const char *from = strchr(*at, '[');
    if (!from) return 0;
    size_t n = strcspn(++from, "]");
    if (from[n] != ']' || n >= PATH_SIZE) return -EBADMSG;
    memcpy(link, from, n);
    link[n] = '\0';
    *at = from + n;
    return 1;
}

static inline const char *say(int err) {
    return err ? weft_strerror(err) : "ok";
}

#endif
