/* SPDX-License-Identifier: MIT */
/* Fan-out with a limit: a task for each job, so many of them at once and no more. The scope's limit does it: a spawn waits for room. Results go
 * where each job was told to put them, so they are in order. */
#include <stdatomic.h>
#include <stdio.h>
#include <weft.h>

enum { JOBS = 20, LIMIT = 4 };

static atomic_int running, most;

static void enter(void) { /* only to show how many there are at once */
    int now = atomic_fetch_add(&running, 1) + 1, seen = atomic_load(&most);
    while (now > seen && !atomic_compare_exchange_weak(&most, &seen, now)) continue;
}

struct job {
    int n, *result;
};

static int square(void *arg) {
    struct job *j = arg;
    enter();
    int err = weft_sleep_for(WEFT_MS); /* in place of a request */
    if (!err) *j->result = j->n * j->n;
    atomic_fetch_sub(&running, 1);
    return err;
}

static int app(void *arg) {
    (void)arg;
    int results[JOBS] = {0}, sum = 0;
    weft_scope s;
    weft_scope_begin(&s, &(weft_scope_opts){.limit = LIMIT});
    for (int i = 0; i < JOBS; i++) weft_spawn_with(&s, square, (struct job){i, &results[i]}); /* waits for room */
    int err = weft_scope_end(&s);
    for (int i = 0; i < JOBS; i++) sum += results[i];
    printf("%d jobs, never more than %d at once: %s\n", JOBS, LIMIT, atomic_load(&most) <= LIMIT ? "yes" : "no");
    printf("the last result: %d, all of them: %d\n", results[JOBS - 1], sum);
    return err;
}

int main(void) {
    return weft_run(app, NULL, NULL);
}
