/* SPDX-License-Identifier: MIT */
/* Plain OS threads park through the same blocks; only the way they sleep is the kernel's: on a
 * futex. A thread that waits for descriptors without a poller sleeps in poll(2), with an eventfd
 * (its bell) that the resumer writes to. It ends its own wait when a descriptor is ready, as at its
 * deadline. */
#include "park/park.h"

#include <poll.h>

#include "os/os.h"
#include "os/socket.h"
#include "task/task.h"

enum { LOOK = 20 * 1000 * 1000 }; /* ns: so often it looks without a bell */

static __thread weft__thread self = {.b = {.kind = WEFT_BLOCK_THREAD, .linked = WEFT_LINK_NEEDLESS}};

WEFT_NOINLINE weft__block *weft__thread_block(void) {
    if (unlikely(weft__load(&weft__forked, acquire)))
        weft__after_fork(); /* pairs with the release there: another thread may have been first */
    return &self.b;
}

WEFT_NOINLINE weft__block *weft__thread_block_as_it_is(void) {
    return &self.b;
}

void weft__thread_poll(weft__thread *t, weft__polls *polls) {
    int bell = weft__bell_open();
    polls->bell = bell < 0 ? -1 : bell;
    polls->p[0] = (struct pollfd){.fd = polls->bell, .events = POLLIN};
    t->polls = polls;
}

void weft__thread_poll_end(weft__thread *t) {
    if (t->polls->bell >= 0) (void)weft__desc_os_close(t->polls->bell);
    t->polls = NULL;
}

/* Until the thread is about to be resumed. Returns false: it is to look again, because a deadline of
 * its scopes has come, or because it has no bell. */
static bool sleep_in_poll(weft__thread *t, int64_t deadline) {
    weft__polls *w = t->polls;
    int64_t next = weft__thread_tick(&t->b), look = w->bell < 0 ? weft__os_now() + LOOK : INT64_MAX;
    if (look < next) next = look;
    bool looks = next < INT64_MAX && (!deadline || next < deadline);
    int n = weft__desc_os_poll_all(w->p, w->n, looks ? next : deadline);
    if (n > 0 && w->p[0].revents) return true;
    if (n == 0 && looks) return false;
    weft__interrupt(&t->b, n < 0 ? n : n > 0 ? w->ready : WEFT_ETIMEDOUT, NULL); /* as below */
    return true;
}

/* The bell is cleared when it can be rung no more: the resumer does that before it sets `woken`. */
static void poll_until_woken(weft__thread *t, int64_t deadline) {
    while (!weft__load(&t->woken, acquire) && !sleep_in_poll(t, deadline)) continue; /* as below */
    while (!weft__load(&t->woken, acquire)) weft__futex_wait(&t->woken, 0, 0);
    weft__bell_clear(t->polls->bell);
}

void weft__thread_sleep(weft__thread *t, int64_t deadline) {
    weft__hook *hook = weft__hooked();
    if (unlikely(hook != NULL)) hook(&t->b);
    if (unlikely(t->polls != NULL)) poll_until_woken(t, deadline);
    while (!weft__load(&t->woken, acquire)) { /* pairs with the release in weft__resume */
        int64_t next = weft__thread_tick(&t->b);
        bool own = next < INT64_MAX && (!deadline || next < deadline);
        int err = weft__futex_wait(&t->woken, 0, own ? next : deadline);
        if (own || !deadline || err != -ETIMEDOUT) continue;
        deadline = 0;
        weft__interrupt(&t->b, WEFT_ETIMEDOUT, NULL); /* ours, or somebody has won and is about to resume us */
    }
}
