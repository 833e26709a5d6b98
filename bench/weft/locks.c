/* SPDX-License-Identifier: MIT */
/* Locks: 8 tasks that do nothing but lock, count and unlock. */
#include "weftbench.h"

enum { CONTENDERS = 8, PAIRS = 1000000 };

static weft_mutex mutex;
static long count WEFT_GUARDED_BY(mutex);

static int contend(void *arg) {
    (void)arg;
    for (int i = 0; i < PAIRS; i++) {
        weft_mutex_lock(&mutex);
        count++;
        weft_mutex_unlock(&mutex);
    }
    return 0;
}

void wb_mutex(const struct wb_args *a) {
    struct wb_mark m;
    weft_scope s;
    wb_start(&m);
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < CONTENDERS; i++) wb_must(weft_spawn(&s, contend, NULL), "weft_spawn");
    wb_must(weft_scope_end(&s), "weft_scope_end");
    wb_report(&m, a, "mutex", (double)wb_ns(&m) / ((double)CONTENDERS * PAIRS), "ns/op");
    weft_mutex_lock(&mutex);
    if (count != (long)CONTENDERS * PAIRS) wb_must(WEFT_EBROKEN, "counts were lost");
    weft_mutex_unlock(&mutex);
}
