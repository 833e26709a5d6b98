/* SPDX-License-Identifier: MIT */
/* A server whose handlers may panic. Each request runs under weft_try, so that a bad one is answered with an error and the connection goes on; a
 * hook counts the panics that nobody expected. */
#include <stdatomic.h>
#include <stdio.h>
#include <weft.h>

static atomic_int unexpected;

static void on_panic(const weft_panic_info *info, void *arg) {
    (void)arg;
    atomic_fetch_add(&unexpected, 1);
    printf("unexpected, in task %s: %s (line %d)\n", info->name, info->message, info->line);
}

static int forever(void *arg) {
    (void)arg;
    return weft_sleep(WEFT_FOREVER);
}

/* One request in three is bad. The scope that it leaves open is cancelled and joined on the way out. */
static int handle(void *arg) {
    int n = *(int *)arg;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    weft_spawn(&s, forever, NULL);
    if (n % 3 == 0) weft_panic("request %d is bad", n);
    weft_scope_cancel(&s);
    weft_scope_end(&s);
    return n;
}

static void close_connection(void *name) {
    printf("%s: closed\n", (const char *)name);
}

static int connection(void *arg) {
    const char *name = arg;
    weft_at_exit(close_connection, arg);
    for (int n = 1; n <= 6; n++) {
        weft_panic_info info;
        int rc = weft_try(handle, &n, &info);
        if (rc == WEFT_EPANIC) printf("%s: 500 %s\n", name, info.message);
    }
    if (name[0] == 'b') weft_panic("the table of connections is broken");
    return 0;
}

static int app(void *arg) {
    (void)arg;
    weft_scope s;
    weft_scope_begin(&s, &(weft_scope_opts){.on_error = WEFT_KEEP_GOING});
    weft_spawnf(&s, connection, "alice", "alice");
    weft_spawnf(&s, connection, "bob", "bob");
    int err = weft_scope_end(&s);
    printf("the scope: %s\n", weft_strerror(err));
    return err == WEFT_EPANIC && atomic_load(&unexpected) == 1 ? 0 : 1;
}

int main(void) {
    return weft_run(app, NULL, &(weft_config){.on_panic = on_panic});
}
