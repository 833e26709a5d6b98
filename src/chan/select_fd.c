/* SPDX-License-Identifier: MIT */
/* A select with descriptors among its cases, by number or as connections.
 *
 * It waits as any select: on the queues of channels and tasks, and among the watchers of each descriptor (desc.h), all of which are locked meanwhile. What is
 * different is that a descriptor cannot be looked at under its lock: whether it is ready is asked of the kernel (weft__fd_cases_ask), beforehand and without locks. Under
 * the locks it has only to be seen that no edge has come since. So the select goes round:
 *
 *     look at all, in a random order; the kernel is asked when the first descriptor's turn comes     a case can be done: done
 *     check that each number means the descriptor that is known (desc.h)                             another one: from the beginning
 *     with all locks: look again; an edge since the question: from the beginning                     nothing: park
 *     woken by an edge: from the beginning, since edges are told for nothing or for another event    by anything else: done
 *
 * A connection that has read ahead is ready whatever the kernel says: its descriptor's state has
 * that (SURE in desc.h), and counts an edge when it begins. The connection itself is read at the
 * beginning only, for it may go while the select waits.
 *
 * An ordered select asks the kernel, and then looks at all cases with all locks. Where the select does
 * not wait (WEFT_POLL, a past deadline) that look is the last one: it is for channels and tasks, and
 * edges that have come since the question do not count.
 *
 * Whoever claims the wait and goes on without its having been served (an edge) may have kept a channel's partner from claiming it; the look that follows finds that
 * partner's element, as after WEFT_AWAIT_AGAIN. A close ends the wait with WEFT_ECLOSED, for the number may mean another descriptor by now.
 *
 * Without a runtime (a plain thread) no edge is told: the thread waits on the same queues, and
 * sleeps in poll(2) with the descriptors (park/thread.c).
 *
 * Rejected: to trust the edge, and return without asking the kernel: the caller may be about to make a call that waits. */
#include <poll.h>

#include "chan/select.h"
#include "io/op.h"
#include "io/case.h"

#include <weft/time.h>

enum { ON_STACK = WEFT_MANY_ON_STACK };
#define NONE WEFT_SELECT_NONE
#define LOOK_AGAIN (INT32_MIN + 3) /* there was an edge */

typedef struct {
    weft__many many;
    weft_case *cases;
    uint32_t n, random;
    bool ordered;          /* the first case that can be done, not a random one */
    bool once;             /* WEFT_POLL or a past deadline: it does not wait */
    weft__waiter *waiters; /* these two: by case */
    weft__fd_case *fds;
    struct pollfd *polls; /* one more than there are cases */
    uint16_t *turn;       /* room for a random order */
} selection;

static weft__desc *desc_of(selection *s, uint32_t i) {
    return weft__case_is_fd(&s->cases[i]) ? s->fds[i].f.d : NULL;
}

/* It is disabled. */
static bool absent(selection *s, uint32_t i) {
    return !s->cases[i].chan;
}

static weft__lock *lock_of(selection *s, uint32_t i) {
    weft__desc *d = desc_of(s, i);
    return d ? &d->lock : weft__case_lock(&s->cases[i], true);
}

/* ---- looking ---- */

/* Without locks. */
static int32_t try_channel(weft_case *k, uint32_t i) {
    weft__slot *slot = weft__enter();
    weft__block *wake = NULL;
    int32_t r = weft__case_try(k, i, false, true, slot, &wake);
    if (wake) weft__resume(wake, slot);
    if (slot) weft__leave();
    return r;
}

/* With all locks: what the kernel said, and whether there is something new. A select that does not wait has no use for news. */
static int32_t try_fd(selection *s, uint32_t i) {
    weft__fd_case *w = &s->fds[i];
    if (!s->cases[i].chan) return NONE;
    if (s->ordered && w->ready) return (int32_t)i;
    int news = s->once ? 0 : weft__fd_news(&w->f, w->seen, w->told);
    return news == 0 ? NONE : news < 0 ? news : LOOK_AGAIN;
}

/* The case whose turn it is, when n are left: a random one, or the next. */
static uint32_t next_turn(selection *s, uint32_t n) {
    return s->ordered ? s->n - n : weft__turn_next(s->turn, n, &s->random);
}

/* Asks the kernel, and does the first case that can be done: its index, NONE, or an error. */
static int32_t look(selection *s) {
    bool asked = false;
    int32_t r = NONE;
    weft__turn_all(s->turn, s->n);
    for (uint32_t n = s->n; n && r == NONE; n--) {
        uint32_t i = next_turn(s, n);
        if (!s->cases[i].chan) continue;
        if (!weft__case_is_fd(&s->cases[i])) {
            r = try_channel(&s->cases[i], i);
            continue;
        }
        int err = asked ? 0 : weft__fd_cases_ask(s->fds, s->n, s->once);
        asked = true;
        r = err ? err : s->fds[i].ready ? (int32_t)i : NONE;
    }
    return r;
}

/* ---- waiting ---- */

static bool look_locked(weft__many *m, weft__slot *slot, int *result, weft__block **wake) {
    selection *s = weft__container(m, selection, many);
    *result = NONE;
    weft__turn_all(s->turn, s->n);
    for (uint32_t n = s->n; n && *result == NONE; n--) {
        uint32_t i = next_turn(s, n);
        *result = weft__case_is_fd(&s->cases[i]) ? try_fd(s, i) : weft__case_try(&s->cases[i], i, true, true, slot, wake);
    }
    return *result != NONE;
}

/* In the order of turns: of those on one queue the first is served. */
static void queue_all(weft__many *m, weft__slot *slot) {
    selection *s = weft__container(m, selection, many);
    (void)slot;
    weft__turn_all(s->turn, s->n);
    for (uint32_t n = s->n; n; n--) {
        uint32_t i = next_turn(s, n);
        weft_case *k = &s->cases[i];
        weft__desc *d = desc_of(s, i);
        s->waiters[i] = (weft__waiter){.block = m->block, .elem = d ? NULL : k->elem, .index = i, .many = true};
        if (!absent(s, i)) weft__queue_add(d ? &d->watchers : weft__case_queue(k, true), &s->waiters[i]);
    }
}

static void withdraw_all(weft__many *m, int32_t result, weft__slot *slot) {
    selection *s = weft__container(m, selection, many);
    uint32_t winner = weft__select_index(result);
    for (uint32_t i = 0; i < s->n; i++) {
        if (absent(s, i) || i == winner) continue;
        weft__lock_take_on(lock_of(s, i), slot);
        if (s->waiters[i].queue) weft__queue_remove(&s->waiters[i]);
        weft__lock_leave(lock_of(s, i));
    }
}

static const weft__many_kind kind = {WEFT_WAIT_SELECT, look_locked, queue_all, withdraw_all};

/* One wait. What can be done was done: the result of a look; LOOK_AGAIN; an error. */
static int32_t wait_once(selection *s, weft_deadline deadline) {
    weft__slot *slot = weft__enter();
    uint32_t n = 0, others = 0;
    int result;
    for (uint32_t i = 0; i < s->n; i++) {
        if (absent(s, i)) continue;
        s->many.order[n++] = lock_of(s, i);
        others += !weft__case_is_fd(&s->cases[i]);
    }
    s->many.block = weft__me();
    s->many.apart = s->ordered || others > 1;
    weft__many_sort(&s->many, n);
    bool parked = weft__many_wait(&s->many, kind, deadline, &result, &slot);
    if (slot) weft__leave();
    bool edge = parked && result >= 0 && weft__case_is_fd(&s->cases[weft__select_index(result)]);
    return edge ? LOOK_AGAIN : result;
}

/* No edges are told of some: the thread polls all such descriptors. */
static WEFT_COLD int32_t wait_outside(selection *s, weft_deadline deadline) {
    weft__polls polls = {s->polls, 1, LOOK_AGAIN, -1};
    weft__block *b = weft__me();
    weft__thread *t = weft__container(b, weft__thread, b);
    for (uint32_t i = 0; i < s->n; i++) {
        weft__fd_case *w = &s->fds[i];
        w->held = w->events && !w->told && !weft__fd_hold(&w->f); /* if not, the look with the locks finds it closed */
        if (w->held) s->polls[polls.n++] = weft__fd_case_poll(w);
    }
    weft__thread_poll(t, &polls);
    int32_t r = wait_once(s, deadline);
    weft__thread_poll_end(t);
    for (uint32_t i = 0; i < s->n; i++)
        if (s->fds[i].held) weft__fd_unhold(&s->fds[i].f);
    return r == WEFT_ETERMINATED ? LOOK_AGAIN : r; /* of a runtime that came and went meanwhile */
}

/* The look of an ordered select: asks the kernel, then looks at all cases with all locks. Returns as
 * look. */
static int32_t look_together(selection *s) {
    int err = weft__fd_cases_ask(s->fds, s->n, s->once);
    int32_t r = err ? err : wait_once(s, WEFT_POLL); /* which does not wait */
    return r == WEFT_EAGAIN || r == WEFT_ECANCELED || r == LOOK_AGAIN ? NONE : r;
}

/* ---- the select ---- */

/* A connection begins with what is waited for (net/net.h). */
static const weft__fd *object_of(const weft_case *k) {
    return (const weft__fd *)(const void *)k->conn;
}

static int open_all(selection *s) {
    weft__block *b = weft__me();
    for (uint32_t i = 0; i < s->n; i++) {
        weft_case *k = &s->cases[i];
        s->fds[i] = (weft__fd_case){.events = 0};
        if (!k->chan) continue;
        if (k->op < WEFT_CASE_RECV || k->op > WEFT_CASE_CONN) return WEFT_EINVAL;
        if (k->op == WEFT_CASE_TASK && b->home == &k->task->scope) return WEFT_EDEADLOCK;
        int err = k->op == WEFT_CASE_FD     ? weft__fd_case_open(&s->fds[i], k->fd, k->events)
                  : k->op == WEFT_CASE_CONN ? weft__fd_case_open_object(&s->fds[i], object_of(k), k->fd)
                                            : 0;
        if (err) return err;
    }
    return 0;
}

static bool all_told(selection *s) {
    for (uint32_t i = 0; i < s->n; i++)
        if (s->fds[i].events && !s->fds[i].told) return false;
    return true;
}

static uint32_t some_random(void) {
    weft__slot *slot = weft__enter();
    uint32_t r = weft__random(weft__select_random(slot));
    if (slot) weft__leave();
    return r;
}

static int32_t select_one(selection *s, weft_deadline deadline) {
    s->random = some_random();
    int err = weft__fd_begin(deadline);
    if (!err) err = open_all(s);
    if (err) return err;
    for (;;) {
        s->once = weft__once(deadline);
        int32_t r = s->ordered ? look_together(s) : look(s);
        if (r != NONE) return r;
        r = s->once ? 0 : weft__fd_cases_check(s->fds, s->n);
        if (r > 0) continue;
        if (r < 0) return r;
        r = all_told(s) ? wait_once(s, deadline) : wait_outside(s, deadline); /* the look may have found the runtime gone */
        if (r != LOOK_AGAIN) return r;
    }
}

static int select_few(weft_case *cases, size_t n, bool ordered, weft_deadline deadline) {
    weft__waiter waiters[ON_STACK];
    weft__lock *order[ON_STACK];
    weft__fd_case fds[ON_STACK];
    struct pollfd polls[ON_STACK + 1];
    uint16_t turn[ON_STACK];
    selection s = {.many = {.order = order},
                   .cases = cases,
                   .n = (uint32_t)n,
                   .ordered = ordered,
                   .waiters = waiters,
                   .fds = fds,
                   .polls = polls,
                   .turn = turn};
    return select_one(&s, deadline);
}

static WEFT_COLD int select_many(weft_case *cases, size_t n, bool ordered, weft_deadline deadline) {
    selection s = {.cases = cases, .n = (uint32_t)n, .ordered = ordered};
    char *memory =
        weft__calloc(n + 1, sizeof *s.waiters + sizeof *s.fds + sizeof *s.many.order + sizeof *s.polls + sizeof *s.turn);
    if (!memory) return WEFT_ENOMEM;
    s.waiters = (weft__waiter *)(void *)memory;
    s.fds = (weft__fd_case *)(void *)(s.waiters + n);
    s.many.order = (weft__lock **)(void *)(s.fds + n);
    s.polls = (struct pollfd *)(void *)(s.many.order + n);
    s.turn = (uint16_t *)(void *)(s.polls + n + 1);
    int32_t r = select_one(&s, deadline);
    weft__free(memory);
    return r;
}

int weft__select_fds(weft_case *cases, size_t n, bool ordered, weft_deadline deadline) {
    int32_t r = n > ON_STACK ? select_many(cases, n, ordered, deadline) : select_few(cases, n, ordered, deadline);
    if (r < 0) return r;
    uint32_t i = weft__select_index(r);
    return weft__case_is_fd(&cases[i]) ? (int)i : weft__select_outcome(cases, n, ordered, deadline, r, true);
}
