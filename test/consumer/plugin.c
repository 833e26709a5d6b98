/* SPDX-License-Identifier: MIT */
/* A plug-in that uses weft. The program that loads it (host.c) knows nothing of that. */
#include <stdlib.h>
#include <weft.h>

int plugin_start(void);
int plugin_stop(void);
int plugin_work(void);
int plugin_resolve(void);

static int task(void *arg) {
    weft_key *key = arg;
    weft_sleep_for(WEFT_MS / 10);
    return weft_local_set(*key, malloc(8));
}

/* A runtime from start to stop, with values of tasks and of the calling thread, whose key is deleted at the end. */
int plugin_work(void) {
    weft_key key, stays;
    int err = weft_key_new(&key, free);
    if (!err) err = weft_start(NULL);
    if (err) return err;
    for (int i = 0; i < 50; i++) err |= weft_go(task, &key);
    err |= weft_block_on(task, &key);
    err |= weft_stop(WEFT_FOREVER);
    err |= weft_key_new(&stays, NULL);
    err |= weft_local_set(stays, &key); /* a value that the thread still has when it ends */
    return err | weft_key_delete(key);
}

int plugin_start(void) { return weft_start(NULL); }
int plugin_stop(void) { return weft_stop(WEFT_FOREVER); }

/* A name that is not found in time: the thread that looks for it lives on. */
int plugin_resolve(void) {
    weft_addrs found;
    return weft_resolve("a.name.that.takes.long", "80", &found, weft_after(20 * WEFT_MS)) == WEFT_ETIMEDOUT ? 0 : 1;
}
