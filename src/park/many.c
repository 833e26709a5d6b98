/* SPDX-License-Identifier: MIT */
#include "park/many.h"

#include <stdlib.h>

static int by_address(const void *a, const void *b) {
    uintptr_t x = (uintptr_t) * (weft__lock *const *)a, y = (uintptr_t) * (weft__lock *const *)b;
    return x < y ? -1 : x > y;
}

void weft__many_sort_all(weft__many *m, size_t n) {
    weft__lock **order = m->order;
    if (n > WEFT_MANY_ON_STACK) qsort(order, n, sizeof *order, by_address);
    for (size_t i = 1; i < n && n <= WEFT_MANY_ON_STACK; i++) {
        weft__lock *l = order[i];
        size_t k = i;
        for (; k > 0 && (uintptr_t)order[k - 1] > (uintptr_t)l; k--) order[k] = order[k - 1];
        order[k] = l;
    }
    m->locks = 0;
    for (size_t i = 0; i < n; i++)
        if (i == 0 || order[i] != order[i - 1]) order[m->locks++] = order[i];
}

void weft__many_post(weft__slot *s, void *many) {
    (void)s;
    weft__many *m = many;
    weft__lock **order = m->order;
    size_t n = m->locks;
    weft__many_parked(m->block);
    weft__many_unlock(order, n);
}
