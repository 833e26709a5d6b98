/* SPDX-License-Identifier: MIT */
#include "io/depart.h"

#include "base/lock.h"
#include "io/desc.h"
#include "io/op.h"
#include "os/socket.h"
#include "os/uring.h"
#include "sched/switch.h"

enum {
    TOGETHER = 24,            /* at most; more is not faster, and the first one would wait longer */
    LONGEST = 4096,           /* bytes; what takes longer to copy gains nothing */
    REST = 100 * TOGETHER,    /* sends */
    FORGIVEN = 50 * TOGETHER, /* after so many */
    PAGES = 1024,
    PAGE = 4096, /* or more */
};
#define NEAR (100 * WEFT_MS)
int64_t weft__depart_late = 200 * WEFT_US, weft__depart_gain = 60;

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
    _Atomic int rest;  /* sends to be made alone; a hint, as the next */
    _Atomic int late;  /* sends until a late departure is forgotten; 0: there is none */
    _Atomic bool busy; /* somebody has the ring */
    int64_t since;
    departure *waiting[TOGETHER];
    weft__uring ring;
    uintptr_t *pages; /* F6: PAGES of them, the owner's; NULL: there is no memory for them, or nobody has asked */
} platform;

static platform platforms[WEFT_SLOTS_MAX];
static _Atomic bool used;                                /* any of them */
static _Atomic bool refused;                             /* there is no ring to be had, or it does not pay; a hint */
static _Atomic int64_t measured;                         /* ns: what a ring gains; 0: nobody has asked */
static enum { WHERE_IT_PAYS, ANYWHERE, NOWHERE } wanted; /* set while no runtime runs */
WEFT_ALIGNED static _Atomic uint64_t departed;           /* written by all slots; each send reads what is above */

/* ---- sending ---- */

/* Those errors may be over another time. */
static bool passes(int err) {
    return err == -EMFILE || err == -ENFILE || err == -ENOMEM || err == -EAGAIN || err == -EINTR || err == -EBADF;
}

/* Whether this machine gains by it, which is measured once in a runtime: 0, -ENOTSUP, or why it could not be. */
static int judge_ring(weft__uring *r) {
    int64_t gain = weft__load(&measured, relaxed); /* orders nothing */
    int err = gain ? 0 : weft__uring_gain(r, &gain);
    if (err) return err;
    weft__store(&measured, gain ? gain : -1, relaxed);
    return gain >= weft__depart_gain ? 0 : -ENOTSUP;
}

static int open_ring(platform *p) {
    if (likely(weft__uring_is_open(&p->ring))) return 0;
    int err = wanted == NOWHERE ? -ENOSYS : weft__uring_open(&p->ring);
    if (!err && wanted == WHERE_IT_PAYS) err = judge_ring(&p->ring);
    if (err && weft__uring_is_open(&p->ring)) weft__uring_close(&p->ring);
    return err;
}

static void send_by_ring(platform *p, group *g) {
    weft__send *sends[TOGETHER];
    if (weft__xchg(&p->busy, true, acquire)) return; /* pairs with the release below */
    for (int i = 0; i < g->n; i++) sends[i] = &g->all[i]->send;
    int err = open_ring(p);
    if (!err) err = weft__uring_send(&p->ring, sends, g->n);
    if (likely(!err)) weft__add(&departed, (uint64_t)g->n, relaxed); /* a counter */
    if (unlikely(err)) weft__store(&p->rest, REST, relaxed);         /* hints */
    if (unlikely(err) && !passes(err)) weft__store(&refused, true, relaxed);
    weft__store(&p->busy, false, release); /* pairs with the exchange above */
}

/* Twice within some sends: it is not the kernel or a hypervisor that had others run. */
static void judge(platform *p, int n, bool late) {
    int left = weft__load(&p->late, relaxed); /* hints */
    if (late && left) weft__store(&p->rest, REST, relaxed);
    if (late || left) weft__store(&p->late, late ? FORGIVEN : left > n ? left - n : 0, relaxed);
}

/* F5. What the ring does not send, for whatever reason, is sent one by one. */
static void send_all(platform *p, group *g) {
    judge(p, g->n, weft__os_now() - g->since >= weft__depart_late);
    if (g->n > 1) send_by_ring(p, g);
    for (int i = 0; i < g->n; i++) {
        weft__send *s = &g->all[i]->send;
        if (s->got == -EINPROGRESS || s->got == -EINTR) s->got = weft__sock_send(s->fd, s->buf, s->n, 0);
        weft__store(&g->all[i]->done, true, release); /* F1: its frame may be gone; pairs with the acquire in come_back */
    }
}

/* ---- waiting ---- */

static void take(platform *p, group *g) {
    weft__lock_take(&p->lock);
    g->n = weft__load(&p->n, relaxed); /* under the lock */
    g->since = p->since;
    memcpy(g->all, p->waiting, (size_t)g->n * sizeof *g->all);
    weft__store(&p->n, 0, relaxed);
    weft__lock_leave(&p->lock);
}

/* Until it has departed. If nobody has sent for it, it sends for all; or somebody is about to. */
static WEFT_NOINLINE ssize_t come_back(platform *p, departure *d) {
    for (int round = 0; !weft__load(&d->done, acquire); round++) { /* pairs with the release in send_all */
        group g;
        (void)weft__enter(); /* a task's: with a slot */
        take(p, &g);
        weft__leave();
        if (g.n)
            send_all(p, &g);
        else
            weft__fd_pause(round);
    }
    return d->send.got;
}

/* Others are still to run that heard of an edge when the last ones did. */
static bool others_heard(weft__slot *s) {
    return (int32_t)(s->told - weft__load(&s->head, relaxed)) > 0; /* thieves take too: a hint */
}

/* F6. If it is not, it will be the next time. */
static bool page_is_known(platform *p, uintptr_t at) {
    if (unlikely(!p->pages)) {
        weft__store(&used, true, relaxed); /* there is something to be cleared away, at the end, or in the child of a fork */
        p->pages = weft__calloc(PAGES, sizeof *p->pages);
    }
    if (unlikely(!p->pages)) return false;
    uintptr_t *entry = &p->pages[at / PAGE % PAGES];
    bool known = *entry == at / PAGE;
    *entry = at / PAGE;
    return known;
}

/* From memory for which nobody has to wait. */
static bool from_near(platform *p, const void *buf, size_t n) {
    if (weft__is_stack(buf, n)) return true;
    uintptr_t at = (uintptr_t)buf;
    bool first = page_is_known(p, at);
    return page_is_known(p, at + n - 1) && first;
}

/* There is somebody to wait for, or to go with, and nothing against it. */
static bool goes_with_others(weft__worker *w, weft__slot *s, platform *p, weft_deadline deadline) {
    int n = weft__load(&p->n, relaxed); /* a hint; but no more come, as long as we are inside (F2) */
    if ((!n && !others_heard(s)) || n == TOGETHER) return false;
    if (deadline.ns && deadline.ns < weft__load(&s->now, relaxed) + NEAR) return false; /* a hint, too */
    if (weft__load(&weft__cur(w)->b.kind, relaxed) != WEFT_BLOCK_TASK) return false;
    bool rests = weft__load(&p->rest, relaxed) > 0;
    if (rests) weft__sub(&p->rest, 1, relaxed); /* a counter */
    return !rests;
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
    int64_t now =
        weft__load(&p->n, relaxed) ? INT64_MAX : weft__os_now(); /* a hint: if it is emptied meanwhile, nobody is late */
    if (unlikely(!weft__load(&used, relaxed))) weft__store(&used, true, relaxed); /* as above */
    weft__lock_take(&p->lock);
    int n = weft__load(&p->n, relaxed); /* under the lock */
    if (!n) p->since = now;
    p->waiting[n] = d;
    weft__store(&p->n, n + 1, relaxed);
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

WEFT_HOT ssize_t weft__depart(int fd, const void *buf, size_t n, weft_deadline deadline) {
    weft__worker *w;
    if (weft__load(&refused, relaxed)) return weft__sock_send(fd, buf, n, 0); /* a hint */
    weft__slot *s = weft__enter_as(&w);
    if (unlikely(!s)) return weft__sock_send(fd, buf, n, 0);
    platform *p = &platforms[s->index];
    if (n && n <= LONGEST && goes_with_others(w, s, p, deadline) && from_near(p, buf, n)) {
        show(buf, n);
        departure d = {{fd, buf, n, -EINPROGRESS}, false};
        return depart(s, p, &d);
    }
    weft__leave();
    return weft__sock_send(fd, buf, n, 0);
}

/* ---- beginning and end ---- */

void weft__departs_open(void) {
    const char *without = weft__env("WEFT_NO_IO_URING");
    wanted = !without ? WHERE_IT_PAYS : strcmp(without, "1") == 0 ? NOWHERE : ANYWHERE;
}

uint64_t weft__departs_count(void) {
    return weft__load(&departed, relaxed); /* a counter */
}

/* Nobody else is there, as below. */
static void reset(void) {
    weft__store(&used, false, relaxed);
    weft__store(&refused, false, relaxed);
    weft__store(&measured, 0, relaxed);
    weft__store(&departed, 0, relaxed);
}

void weft__departs_close(void) {
    for (int i = 0; i < weft__rt.slots && weft__load(&used, relaxed); i++) {
        platform *p = &platforms[i];
        if (weft__uring_is_open(&p->ring)) weft__uring_close(&p->ring);
        weft__free(p->pages);
        *p = (platform){.pages = NULL};
    }
    reset();
}

void weft__departs_in_child(void) {
    for (int i = 0; i < WEFT_SLOTS_MAX && weft__load(&used, relaxed); i++) weft__uring_forget(&platforms[i].ring);
}

void weft__departs_forget(void) {
    for (int i = 0; i < WEFT_SLOTS_MAX && weft__load(&used, relaxed); i++)
        platforms[i] = (platform){.pages = platforms[i].pages};
    reset();
}
