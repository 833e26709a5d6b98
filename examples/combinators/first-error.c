/* SPDX-License-Identifier: MIT */
/* First error: that is what a scope does. The first child that fails cancels the others, whatever they wait for, and weft_scope_end gives that error
 * and not the cancellations that follow from it. */
#include <stdio.h>
#include <weft.h>

struct part {
    const char *name;
    int result;  /* what it comes to */
    int ended;   /* what it returned */
    int because; /* why it was cancelled */
};

static int work(void *arg) {
    struct part *p = arg;
    p->ended = p->result ? p->result : weft_sleep(WEFT_FOREVER); /* the others have no end of their own */
    p->because = weft_cancel_cause();
    return p->ended;
}

static int app(void *arg) {
    (void)arg;
    struct part parts[] = {{"reader", 0, 0, 0}, {"writer", 0, 0, 0}, {"parser", -EIO, 0, 0}};
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 3; i++) weft_spawn(&s, work, &parts[i]); /* the one that fails last: behind it, spawns are refused */
    int err = weft_scope_end(&s);
    printf("the scope: %s\n", weft_strerror(err));
    for (int i = 0; i < 2; i++)
        printf("%s: %s, because: %s\n", parts[i].name, weft_strerror(parts[i].ended), weft_strerror(parts[i].because));
    return err == -EIO ? 0 : 1;
}

int main(void) {
    return weft_run(app, NULL, NULL);
}
