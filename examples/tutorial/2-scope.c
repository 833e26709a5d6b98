/* SPDX-License-Identifier: MIT */
/* Tutorial, step 2: a scope. All links of a page are fetched at the same time; the first error ends it. */
#include "site.h"

struct link {
    char path[PATH_SIZE];
};

static int check(void *arg) {
    struct link *l = arg; /* a copy that lives as long as the task */
    const char *text;
    return fetch(l->path, &text, WEFT_FOREVER);
}

static int check_links(const char *path) {
    const char *text;
    struct link l;
    int err = fetch(path, &text, WEFT_FOREVER);
    if (err) return err;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    while (next_link(&text, l.path) > 0) weft_spawn_with(&s, check, l);
    return weft_scope_end(&s); /* every check has ended: 0, or the first error */
}

static int app(void *arg) {
    (void)arg;
    printf("/about: %s\n", say(check_links("/about")));
    printf("/news: %s\n", say(check_links("/news")));
    return 0;
}

int main(void) {
    return weft_run(app, NULL, NULL);
}
