/* SPDX-License-Identifier: MIT */
/* Tutorial, step 4: deadlines. One for each fetch, and one for all of them together. */
#include "site.h"

struct link {
    char path[PATH_SIZE];
    weft_deadline until;
    int err;
};

static int check(void *arg) {
    struct link *l = arg;
    const char *text;
    l->err = fetch(l->path, &text, l->until);
    return 0; /* noted; it is no error of the task */
}

/* Each link may take `each`, all of them together `all`. */
static int check_links(const char *path, int64_t each, int64_t all) {
    const char *text;
    struct link link[LINKS_MAX];
    int n = 0;
    weft_scope s;
    weft_scope_begin(&s, &(weft_scope_opts){.deadline = weft_after(all)});
    int err = fetch(path, &text, WEFT_FOREVER); /* ours, but the scope's deadline holds for it as well */
    for (; !err && n < LINKS_MAX && next_link(&text, link[n].path) > 0; n++) {
        link[n].until = weft_after(each);
        link[n].err = WEFT_ECANCELED;
        weft_spawn(&s, check, &link[n]);
    }
    err = weft_scope_end(&s);
    for (int i = 0; i < n; i++)
        if (link[i].err) printf("%s links to %s: %s\n", path, link[i].path, say(link[i].err));
    return err;
}

static int app(void *arg) {
    (void)arg;
    printf("/map: %s\n", say(check_links("/map", WEFT_SECOND, 60 * WEFT_SECOND)));
    printf("/map: %s\n", say(check_links("/map", 60 * WEFT_SECOND, WEFT_SECOND)));
    return 0;
}

int main(void) {
    return weft_run(app, NULL, NULL);
}
