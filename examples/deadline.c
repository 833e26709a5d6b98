/* SPDX-License-Identifier: MIT */
/* Three ways for a scope to end: in time, at its deadline, and by the error of a child. Whatever the tasks wait for then ends with
 * WEFT_ECANCELED, weft_cancel_cause says why, and the clean-up at the end of each function runs as usual. */
#include <stdio.h>
#include <weft.h>

typedef struct {
    const char *name;
    int64_t takes;
    int result;
} job;

static int work(void *arg) {
    job *j = arg;
    int err = weft_sleep_for(j->takes); /* in place of something useful */
    if (err)
        printf("  %s: %s; cause: %s\n", j->name, weft_strerror(err), weft_strerror(weft_cancel_cause()));
    else
        printf("  %s: done\n", j->name);
    return err ? err : j->result;
}

static int run_jobs(const char *title, weft_deadline deadline, job a, job b) {
    weft_scope s;
    printf("%s\n", title);
    weft_scope_begin(&s, &(weft_scope_opts){.deadline = deadline});
    weft_spawn_with(&s, work, a);
    weft_spawn_with(&s, work, b);
    int err = weft_scope_end(&s); /* both have ended now, whatever happened */
    printf("  the scope: %s\n", weft_strerror(err));
    return err;
}

static int app(void *arg) {
    (void)arg;
    job quick = {"quick", 10 * WEFT_MS, 0}, slow = {"slow", 10 * WEFT_SECOND, 0}, broken = {"broken", 20 * WEFT_MS, -EIO};
    if (run_jobs("in time", weft_after(WEFT_SECOND), quick, quick) != 0) return 1;
    if (run_jobs("too slow", weft_after(100 * WEFT_MS), quick, slow) != WEFT_ETIMEDOUT) return 1;
    if (run_jobs("an error cancels the rest", WEFT_FOREVER, broken, slow) != -EIO) return 1;
    return 0;
}

int main(void) {
    return weft_run(app, NULL, NULL);
}
