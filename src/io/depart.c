/* SPDX-License-Identifier: MIT */
#include "io/depart.h"

#include "base/lock.h"
#include "os/uring.h"
#include "os/socket.h"
#include "sched/switch.h"

enum {
    TOGETHER = 24,         /* at most; more is not faster, and the first one would wait longer */
    LONGEST = 4096,        /* bytes; what takes longer to copy gains nothing */
    REST = 100 * TOGETHER, /* sends */
    FORGIVEN = 50          /* after so many departures in time */
};
int64_t weft__depart_late = 200 * WEFT_US;

typedef struct {
    weft__send send;
    _Atomic bool done;
} departure;

/* Taken off a platform. */
typedef struct {
    departure *all[TOGETHER];
    int n;
    int64_t since; /* when the first of them came */
} group;

typedef struct {
    WEFT_ALIGNED weft__lock lock;
    _Atomic int n;     /* of `waiting`; under lock, and read without it as a hint */
    _Atomic int rest;  /* sends to be made alone; a hint */
    _Atomic int late;  /* not 0: one of the last departures was; likewise */
    _Atomic bool busy; /* somebody has the ring */
    int64_t since;
    departure *waiting[TOGETHER];
    weft__uring ring;
} platform;

static platform platforms[WEFT_SLOTS_MAX];
static _Atomic bool refused; /* there is no ring to be had; a hint */
static _Atomic uint64_t departed;

/* ---- sending ---- */

/* Those errors may be over another time. */
static bool passes(int err) {
    return err == -EMFILE || err == -ENFILE || err == -ENOMEM || err == -EAGAIN || err == -EINTR;
}

static bool has_ring(platform *p) {
    if (likely(weft__uring_is_open(&p->ring))) return true;
    int err = weft__env_on("WEFT_NO_IO_URING") ? -ENOSYS : weft__uring_open(&p->ring);
    if (err && !passes(err)) weft__store(&refused, true, relaxed);
    if (err) weft__store(&p->rest, REST, relaxed);
    return !err;
}

static void send_by_ring(platform *p, group *g) {
    weft__send *sends[TOGETHER];
    if (weft__xchg(&p->busy, true, acquire)) return; /* pairs with the release below */
    if (has_ring(p)) {
        for (int i = 0; i < g->n; i++) sends[i] = &g->all[i]->send;
        weft__uring_send(&p->ring, sends, g->n);
        if (weft__uring_is_open(&p->ring)) weft__add(&departed, (uint64_t)g->n, relaxed); /* a counter */
    }
    weft__store(&p->busy, false, release); /* pairs with the exchange above */
}

/* Twice within a few departures: it is not the kernel or a hypervisor that had others run. */
static void judge(platform *p, bool late) {
    int before = weft__load(&p->late, relaxed); /* hints, as `rest` */
    if (late && before) weft__store(&p->rest, REST, relaxed);
    if (late || before) weft__store(&p->late, late ? FORGIVEN : before - 1, relaxed);
}

/* F5. What the ring does not send, for whatever reason, is sent one by one. */
static void send_all(platform *p, group *g) {
    judge(p, weft__os_now() - g->since >= weft__depart_late);
    if (g->n > 1) send_by_ring(p, g);
    for (int i = 0; i < g->n; i++) {
        weft__send *s = &g->all[i]->send;
        if (s->got == -EINPROGRESS || s->got == -EINTR) s->got = weft__sock_send(s->fd, s->buf, s->n, 0);
        weft__store(&g->all[i]->done, true, release); /* F1: its frame may be gone; pairs with the acquire in come_back */
    }
}

/* ---- waiting ---- */

/* Under the lock. */
static void take(platform *p, group *g) {
    g->n = weft__load(&p->n, relaxed);
    g->since = p->since;
    memcpy(g->all, p->waiting, (size_t)g->n * sizeof *g->all);
    weft__store(&p->n, 0, relaxed);
}

/* Until it has departed. If nobody has sent for it, it sends for all; or somebody is about to. */
static WEFT_NOINLINE ssize_t come_back(platform *p, departure *d) {
    while (!weft__load(&d->done, acquire)) { /* pairs with the release in send_all */
        group g;
        weft__slot *s = weft__enter();
        weft__lock_take(&p->lock);
        take(p, &g);
        weft__lock_leave(&p->lock);
        if (!g.n) (void)weft__yield_now(s);
        weft__leave();
        if (g.n)
            send_all(p, &g);
        else
            weft__give_cpu();
    }
    return d->send.got;
}

/* Others are still to run that heard of an edge when the last ones did. */
static bool others_heard(weft__slot *s) {
    return (int32_t)(s->told - weft__load(&s->head, relaxed)) > 0; /* thieves take too: a hint */
}

/* There is somebody to wait for, or to go with, and nothing against it. */
static bool goes_with_others(weft__worker *w, weft__slot *s, platform *p) {
    int n = weft__load(&p->n, relaxed),
        rest = weft__load(&p->rest, relaxed); /* hints; but no more come, as long as we are inside (F2) */
    if ((!n && !others_heard(s)) || n == TOGETHER || weft__load(&refused, relaxed)) return false;
    if (rest) weft__store(&p->rest, rest - 1, relaxed);
    return !rest && weft__load(&weft__cur(w)->b.kind, relaxed) == WEFT_BLOCK_TASK;
}

/* Sanitizers do not see what the ring reads. (Nobody else may read it: what is not there is an error of the send, no signal.) */
static void show(const char *buf, size_t n) {
#if defined(WEFT_ASAN) || defined(WEFT_TSAN)
    for (size_t i = 0; i < n; i++) (void)((const volatile char *)buf)[i]; /* volatile: nobody uses what is read */
#else
    (void)buf;
    (void)n;
#endif
}

/* Inside the runtime. True: the platform is full. */
static bool put(platform *p, departure *d) {
    int64_t now = weft__load(&p->n, relaxed) ? 0 : weft__os_now(); /* a hint: it may have been emptied since */
    weft__lock_take(&p->lock);
    int n = weft__load(&p->n, relaxed);
    p->waiting[n] = d;
    weft__store(&p->n, n + 1, relaxed);
    if (now) p->since = now;
    weft__lock_leave(&p->lock);
    return n + 1 == TOGETHER;
}

/* Inside the runtime, and out of it. */
static ssize_t depart(weft__slot *s, platform *p, departure *d) {
    bool full = put(p, d);
    if (!full && others_heard(s)) (void)weft__yield_now(s);
    weft__leave();
    return come_back(p, d);
}

WEFT_HOT ssize_t weft__depart(int fd, const void *buf, size_t n) {
    weft__worker *w;
    weft__slot *s = weft__enter_as(&w);
    platform *p = likely(s != NULL) ? &platforms[s->index] : NULL;
    if (p && n && n <= LONGEST && goes_with_others(w, s, p)) {
        show(buf, n);
        departure d = {{fd, buf, n, -EINPROGRESS}, false};
        return depart(s, p, &d);
    }
    if (p) weft__leave();
    return weft__sock_send(fd, buf, n, 0);
}

/* ---- the end ---- */

uint64_t weft__departs_count(void) {
    return weft__load(&departed, relaxed); /* a counter */
}

/* Nobody else is there, as below. */
static void reset(platform *p) {
    weft__store(&p->n, 0, relaxed);
    weft__store(&p->rest, 0, relaxed);
    weft__store(&p->late, 0, relaxed);
    weft__store(&p->busy, false, relaxed);
    weft__lock_leave(&p->lock);
    p->since = 0;
}

static void reset_all(int slots, void (*drop)(weft__uring *)) {
    for (int i = 0; i < slots; i++) {
        platform *p = &platforms[i];
        if (!p->since) continue; /* it was never used */
        if (weft__uring_is_open(&p->ring)) drop(&p->ring);
        reset(p);
    }
    weft__store(&refused, false, relaxed);
    weft__store(&departed, 0, relaxed);
}

void weft__departs_close(void) {
    reset_all(weft__rt.slots, weft__uring_close);
}

void weft__departs_forget(void) {
    reset_all(WEFT_SLOTS_MAX, weft__uring_forget);
}
