/* SPDX-License-Identifier: MIT */
/* What failed, in words. The number that a call returns is enough for programs; people want to know where it was. The sentence belongs to the task
 * (or thread): it is made only when something has failed, in memory that the task gets then and keeps. */
#include <stdio.h>

#include "net/net.h"
#include "os/os.h"

#include <weft/task.h>

enum { TEXT = 512, ADDR_SHOWN = 300 };

static struct {
    weft__lock lock;
    bool made;
    weft_key key;
} text;

static bool key_of(weft_key *out) {
    weft__lock_take(&text.lock);
    if (!text.made) text.made = weft_key_new(&text.key, weft__free) == 0;
    *out = text.key;
    bool made = text.made;
    weft__lock_leave(&text.lock);
    return made;
}

void weft__net_errors_forget(void) {
    weft__lock_leave(&text.lock);
}

int weft__net_failed(int err, const char *what, const char *addr, const weft__why *why) {
    weft_key key;
    if (!key_of(&key)) return err;
    char *buf = weft_local_get(key);
    if (!buf) {
        buf = weft__malloc(TEXT);
        if (!buf) return err;
        if (weft_local_set(key, buf) < 0) {
            weft__free(buf);
            return err;
        }
    }
    const char *reason = why && why->text[0] ? why->text : weft_strerror(err);
    snprintf(buf, TEXT, "%s %.*s: %s", what, ADDR_SHOWN, addr ? addr : "(null)", reason); /* the reason is not cut */
    return err;
}

const char *weft_net_error(void) {
    weft_key key;
    const char *buf = key_of(&key) ? weft_local_get(key) : NULL;
    return buf ? buf : "";
}
