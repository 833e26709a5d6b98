/* SPDX-License-Identifier: MIT */
/* Tutorial, step 3: errors. Each link has a result of its own, and a broken one does not end the others. */
#include "site.h"

struct link {
    char path[PATH_SIZE];
    int err;
};

static int check(void *arg) {
    struct link *l = arg; /* in the opener's frame, which is there until the scope has ended */
    const char *text;
    return l->err = fetch(l->path, &text, WEFT_FOREVER);
}

static int check_links(const char *path) {
    const char *text;
    struct link link[LINKS_MAX];
    int n = 0, err = fetch(path, &text, WEFT_FOREVER);
    if (err) return err;
    weft_scope s;
    weft_scope_begin(&s, &(weft_scope_opts){.on_error = WEFT_KEEP_GOING});
    for (; n < LINKS_MAX && next_link(&text, link[n].path) > 0; n++) {
        link[n].err = WEFT_ECANCELED; /* of a task that is refused */
        weft_spawn(&s, check, &link[n]);
    }
    err = weft_scope_end(&s);
    for (int i = 0; i < n; i++) printf("%s links to %s: %s\n", path, link[i].path, say(link[i].err));
    return err;
}

static int app(void *arg) {
    return check_links(arg) == -ENOENT ? 0 : 1;
}

int main(void) {
    return weft_run(app, "/news", NULL);
}
