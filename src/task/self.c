/* SPDX-License-Identifier: MIT */
#include "task/task.h"

uint64_t weft_self(void) {
    weft__task *t = weft__cur(weft__self());
    if (!t) return 0;
    return t->inner ? weft__load(&t->inner->id, relaxed) : t->id; /* relaxed: it was set before the child ran */
}
