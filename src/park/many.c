/* SPDX-License-Identifier: MIT */
#include "park/many.h"

#include <stdlib.h>

#include "sched/switch.h"

static int by_address(const void *a, const void *b) {
    uintptr_t x = (uintptr_t) * (weft__lock *const *)a, y = (uintptr_t) * (weft__lock *const *)b;
    return x < y ? -1 : x > y;
}

void weft__many_sort(weft__many *m, size_t n) {
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

/* Once PARKED is stored, a cancellation may resume the waiter at any time. It then takes every one of these locks before its frame
 * goes; so the frame is not touched any more after the last one is left. */
static void post_parked(weft__slot *slot, void *arg) {
    (void)slot;
    weft__many *m = arg;
    weft__lock **order = m->order;
    size_t n = m->locks;
    weft__many_parked(m->block);
    weft__many_unlock(order, n);
}

/* One attempt. False: it did not park. */
static bool park(weft__many *m, weft__wait *wait, weft_deadline deadline, int reason, int *result, weft__slot **s) {
    weft__block *b = m->block, *wake = NULL;
    weft__many_begin(b);
    weft__many_lock(m);
    atomic_thread_fence(memory_order_seq_cst); /* P3: also with no object at all */
    if (m->look(m, *s, result, &wake) || (*result = weft__wait_check(wait)) != 0) {
        weft__many_unlock(m->order, m->locks);
        weft__many_end(b);
        if (wake) weft__resume(wake, *s);
        return false;
    }
    m->queue(m);
    *s = weft__wait_many(b, *s, deadline, reason, post_parked, m);
    m->withdraw(m);
    weft__many_end(b);
    *result = b->result;
    return true;
}

bool weft__many_wait(weft__many *m, weft_deadline deadline, int reason, int *result, weft__slot **s) {
    weft__wait wait;
    bool parked;
    if ((*result = weft__wait_prepare(&wait, m->block, deadline, *s)) != 0) return false;
    do {
        parked = park(m, &wait, deadline, reason, result, s);
    } while (parked && *result == WEFT_AWAIT_AGAIN);
    weft__wait_finish(&wait);
    return parked;
}
