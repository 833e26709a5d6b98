/* SPDX-License-Identifier: MIT */
/* Plain OS threads park through the same blocks; only the way they sleep is the kernel's. */
#include "park/park.h"

#include "os/os.h"

static __thread weft__thread self = {.b = {.kind = WEFT_BLOCK_THREAD, .linked = WEFT_LINK_NEEDLESS}};

WEFT_NOINLINE weft__block *weft__thread_block(void) {
    if (unlikely(weft__load(&weft__forked, acquire)))
        weft__after_fork(); /* pairs with the release there: another thread may have been first */
    return &self.b;
}

WEFT_NOINLINE weft__block *weft__thread_block_as_it_is(void) {
    return &self.b;
}

void weft__thread_sleep(weft__thread *t, int64_t deadline) {
    weft__hook *hook = weft__hooked();
    if (unlikely(hook != NULL)) hook(&t->b);
    while (!weft__load(&t->woken, acquire)) { /* pairs with the release in weft__resume */
        if (weft__futex_wait(&t->woken, 0, deadline) != -ETIMEDOUT || deadline == 0) continue;
        deadline = 0;
        weft__interrupt(&t->b, WEFT_ETIMEDOUT, NULL); /* ours, or somebody has won and is about to resume us */
    }
}
