/* SPDX-License-Identifier: MIT */
/* The poller: which descriptors have become ready.
 *
 * A poller is an instance of a backend. The scheduler has one for all slots (serve.c); an event loop will have one of its own.
 *
 * What a backend must supply
 *  B1  Edges. `add` once for each descriptor; after that, `wait` tells of a descriptor whenever it has become ready (again), with all that it is
 *      ready for. An edge may be told twice or for nothing, but none is lost: it stays until some `wait` has told it.
 *  B2  Any number of threads may wait at once; each edge is told to one of them at least.
 *  B3  `kick` ends a wait that goes on with `until` other than WEFT_POLL_NOW, or the next one, whatever others do with WEFT_POLL_NOW in between: a
 *      kick is used up only by the one it was meant for. At most one thread waits in this way.
 *  B4  The key comes back with each edge as it was given. After `remove` edges that were on their
 *      way may still be told: whoever listens tells them by a generation in the key. `add` of a
 *      descriptor that is there gives -EEXIST and changes nothing, whatever its key. Other code may
 *      have closed a descriptor: then `add` of its number succeeds, for that means another one.
 *      Edges of the old one go on, with the old key, if it lives on (dup, fork).
 *  B5  Nothing is told of a descriptor before `add` began, and no call but `wait` takes long.
 * A wait may end early, for nothing, at any time. */
#ifndef WEFT_SRC_POLL_H
#define WEFT_SRC_POLL_H

#include "base/base.h"
#include "base/lock.h"

enum {
    WEFT_READY_READ = 1,  /* a read, receive or accept will not wait (it may fail) */
    WEFT_READY_WRITE = 2, /* likewise a write, send or connect */
    WEFT_READY_END = 4,   /* the peer will send no more, or there is an error: stays so */
    WEFT_READY_URGENT = 8 /* something out of the ordinary can be read */
};

typedef struct weft__edge {
    uint64_t key;
    uint32_t ready; /* WEFT_READY_… */
} weft__edge;

enum {
    /* Told at once. A look is a system call for all of them; but between an edge and its task's run come the calls of the others, each of which puts
     * some hundred lines and some ten pages into the caches (ADR 021). */
    WEFT_EDGES = 64,
    WEFT_LOOKS =
        2 /* at most, by somebody who will not look again soon: more would keep timers and other tasks waiting, or overflow the ring */
};
#define WEFT_POLL_NOW 1 /* a moment that has passed: do not wait */

typedef struct weft__poller weft__poller;
typedef struct weft__backend {
    const char *name;
    int (*open)(weft__poller *p); /* 0 or -errno, with nothing half done */
    void (*close)(weft__poller *p);
    /* 0; -EPERM: a descriptor of this kind is always ready; -EEXIST: it is there already; another -errno. */
    int (*add)(weft__poller *p, int fd, uint64_t key);
    /* It was there already: another key from now on, and if it is ready now, that is told (again). 0 or -errno. */
    int (*renew)(weft__poller *p, int fd, uint64_t key);
    void (*remove)(weft__poller *p, int fd);
    /* How many edges were put into `out`, until the moment `until` on the monotonic clock, 0 = for ever; or -errno. *kicked: by B3. */
    int (*wait)(weft__poller *p, weft__edge *out, int max, int64_t until, bool *kicked);
    void (*kick)(weft__poller *p);
} weft__backend;

struct weft__poller {
    const weft__backend *backend;
    int fd, kick_fd, kick_in; /* the backend's: what it waits in, what a kick is seen at, what it goes into */
    void *own;                /* likewise */
};

extern const weft__backend weft__epoll;
extern const weft__backend *weft__backend_used; /* set by tests, before there is a runtime */

/* ---- the scheduler's poller (serve.c) ---- */

typedef struct weft__slot weft__slot;

/* 1: there is a poller, and descriptors in it. A program without descriptors pays for a look at this. */
extern _Atomic int weft__polling;
/* Opened at first use; 0 or -errno. The runtime runs, and goes on running meanwhile. */
int weft__poll_open(void);
void weft__poll_close(void);
int weft__poll_add(int fd, uint64_t key);
/* Adds the descriptor unless it is there (-EEXIST: with whatever key). Otherwise returns what `add`
 * returns. */
int weft__poll_add_new(int fd, uint64_t key);
void weft__poll_remove(int fd);
/* Tells whoever waits for what has become ready, WEFT_EDGES for each of up to `looks` looks; how many edges there were. `s`: the caller's slot
 * or NULL. Does not wait. */
int weft__poll_now(weft__slot *s, int looks);
/* Waits until the moment given (0 = for ever), an edge, or a kick. By the listener (idle.c), who then has weft__desc_tell tell them. `edges`:
 * room for WEFT_EDGES. */
int weft__poll_wait(int64_t until, weft__edge *edges);
void weft__poll_kick(void);
#define WEFT_POLL_EVERY (100 * WEFT_US) /* busy workers look so often: a look costs half a microsecond */
/* Nobody has looked for so long. */
bool weft__poll_overdue(int64_t now, int64_t by);
/* In the child of a fork. */
void weft__poll_forget(void);
/* The same, at once: its descriptors. */
void weft__poll_in_child(void);

typedef struct weft__poll_stats {
    uint64_t polls, edges;
} weft__poll_stats;
weft__poll_stats weft__poll_stats_get(void);

/* Supplied by the io layer (desc.c): the edges to those who wait. */
void weft__desc_tell(const weft__edge *edges, int n, weft__slot *s);

#endif
