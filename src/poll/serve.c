/* SPDX-License-Identifier: MIT */
/* The scheduler's poller: one for all slots. Who looks, and when:
 *  - a worker that has nothing else to do, before it steals (find.c), without waiting;
 *  - the listener, an idle worker that sleeps in it (idle.c), while some slot is idle;
 *  - a busy worker, at its look at the timers and global queues, if nobody has looked for WEFT_POLL_EVERY (find.c);
 *  - the sentry at its naps, when nobody has for long (idle.c).
 * What has become ready goes to the end of the slot's queue like everybody else, WEFT_EDGES at a time: hot sockets cannot starve tasks or timers. */
#include "poll/poll.h"

#include "os/os.h"
#include "os/socket.h"

const weft__backend *weft__backend_used = &weft__epoll;
_Atomic int weft__polling;

static struct {
    weft__lock lock; /* opening */
    weft__poller poller;
    _Atomic int64_t looked; /* when; a hint */
    _Atomic uint64_t polls, edges;
} serve;

int weft__poll_open(void) {
    if (likely(weft__load(&weft__polling, acquire))) return 0; /* pairs with the release below */
    weft__lock_take(&serve.lock);
    int err = 0;
    if (!weft__load(&weft__polling, relaxed)) {
        weft__store(&weft__desc_os_looks, weft__env_on("WEFT_NO_NOWAIT"), relaxed); /* orders nothing */
        serve.poller = (weft__poller){.backend = weft__backend_used, .fd = -1, .kick_fd = -1, .kick_in = -1};
        err = serve.poller.backend->open(&serve.poller);
        if (!err) weft__store(&weft__polling, 1, release); /* pairs with the acquire above */
    }
    weft__lock_leave(&serve.lock);
    return err;
}

void weft__poll_close(void) {
    if (weft__load(&weft__polling, relaxed)) serve.poller.backend->close(&serve.poller); /* nobody else is there */
    weft__store(&weft__polling, 0, relaxed);
    weft__store(&serve.polls, 0, relaxed);
    weft__store(&serve.edges, 0, relaxed);
}

void weft__poll_in_child(void) {
    if (weft__load(&weft__polling, relaxed)) serve.poller.backend->close(&serve.poller); /* nobody else is there */
    weft__store(&weft__polling, 0, relaxed);
}

void weft__poll_forget(void) {
    weft__poll_close();
    weft__lock_leave(&serve.lock);
}

int weft__poll_add_new(int fd, uint64_t key) {
    return serve.poller.backend->add(&serve.poller, fd, key);
}

int weft__poll_add(int fd, uint64_t key) {
    int err = weft__poll_add_new(fd, key);
    return err == -EEXIST ? serve.poller.backend->renew(&serve.poller, fd, key) : err;
}

void weft__poll_remove(int fd) {
    if (!weft__load(&weft__polling, acquire)) return; /* as in look */
    serve.poller.backend->remove(&serve.poller, fd);
}

void weft__poll_kick(void) {
    if (!weft__load(&weft__polling, acquire)) return; /* as in look */
    serve.poller.backend->kick(&serve.poller);
}

bool weft__poll_overdue(int64_t now, int64_t by) {
    return weft__load(&weft__polling, relaxed) && now - weft__load(&serve.looked, relaxed) >= by; /* hints */
}

static int look(int64_t until, weft__edge *edges) {
    bool kicked;
    if (!weft__load(&weft__polling, acquire)) return 0; /* pairs with the release in weft__poll_open */
    int n = serve.poller.backend->wait(&serve.poller, edges, WEFT_EDGES, until, &kicked);
    weft__add(&serve.polls, 1, relaxed); /* counters */
    if (n > 0) weft__add(&serve.edges, (uint64_t)n, relaxed);
    return n;
}

WEFT_HOT int weft__poll_now(weft__slot *s, int looks) {
    weft__edge edges[WEFT_EDGES];
    int told = 0, n = WEFT_EDGES;
    for (int i = 0; i < looks && n == WEFT_EDGES; i++) {
        n = look(WEFT_POLL_NOW, edges);
        if (n <= 0) break; /* if it failed, it will be made again */
        weft__desc_tell(edges, n, s);
        told += n;
    }
    weft__store(&serve.looked, weft__os_now(), relaxed); /* a hint */
    return told;
}

int weft__poll_wait(int64_t until, weft__edge *edges) {
    int n = look(until, edges);
    if (n < 0) weft__nap(WEFT_MS);                       /* again, but not at full speed */
    weft__store(&serve.looked, weft__os_now(), relaxed); /* a hint */
    return n > 0 ? n : 0;
}

weft__poll_stats weft__poll_stats_get(void) {
    return (weft__poll_stats){weft__load(&serve.polls, relaxed), weft__load(&serve.edges, relaxed)}; /* counters */
}
