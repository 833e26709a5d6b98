/* SPDX-License-Identifier: MIT */
#include "task/task.h"

void weft_yield(void) {
    weft__slot *s = weft__enter();
    if (unlikely(!s)) return;
    weft__yield_now(s);
    weft__leave();
}

uint64_t weft_self(void) {
    weft__worker *w = weft__self();
    return w == &weft__nobody ? 0 : w->cur->id;
}
