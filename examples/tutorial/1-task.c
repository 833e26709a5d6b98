/* SPDX-License-Identifier: MIT */
/* Tutorial, step 1: a task. Fetches one page and lists its links. */
#include "site.h"

static int app(void *arg) {
    const char *path = arg, *text;
    char link[PATH_SIZE];
    int err = fetch(path, &text, WEFT_FOREVER); /* waits; its core could do something else */
    if (err) return err;
    while (next_link(&text, link) > 0) printf("%s links to %s\n", path, link);
    return 0;
}

int main(void) {
    return weft_run(app, "/news", NULL);
}
