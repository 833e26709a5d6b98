/* SPDX-License-Identifier: MIT */
/* The smallest program: two tasks in a scope, which ends when both have ended. */
#include <stdio.h>
#include <weft.h>

static int greet(void *name) {
    printf("hello, %s, from task %llu\n", (const char *)name, (unsigned long long)weft_self());
    return 0;
}

static int app(void *arg) {
    (void)arg;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    weft_spawn(&s, greet, "warp");
    weft_spawn(&s, greet, "weft");
    return weft_scope_end(&s);
}

int main(void) {
    return weft_run(app, NULL, NULL) == 0 ? 0 : 1;
}
