/* SPDX-License-Identifier: MIT */
#include "io/inner.h"

#include <netinet/in.h>
#include <poll.h>

#include "os/os.h"
#include "os/socket.h"
#include "sched/switch.h"
#include "task/task.h"
#include "time/clock.h"

enum {
    CHUNK = 256,    /* descriptors that get memory at once */
    CHUNKS = 16384, /* 4M descriptors: four times what Linux allows a process unless told otherwise */
    LANDINGS =
        24, /* in a row: from 32 on the kernel interrupts another CPU to take its buffers back (net.core.skb_defer_max) */
    FRAMES_BELOW = 192, /* bytes of stack between the switch and the waiter, */
    FRAMES_ABOVE = 384  /* and from there to the caller of an operation on a connection, and to the beginning of its buffer */
};

static struct {
    _Atomic(weft__desc *) chunk[CHUNKS];
    _Atomic uint64_t stale, landings;
} table;

/* ---- the table ---- */

static weft__desc *find(int fd) {
    if (fd < 0 || fd / CHUNK >= CHUNKS) return NULL;
    weft__desc *chunk = weft__load(&table.chunk[fd / CHUNK], acquire); /* pairs with the release in make */
    return chunk ? &chunk[fd % CHUNK] : NULL;
}

static weft__desc *make(int fd) {
    _Atomic(weft__desc *) *at = &table.chunk[fd / CHUNK];
    weft__desc *mine = weft__calloc_lines(CHUNK * sizeof *mine), *none = NULL;
    if (!mine) return NULL;
    if (!weft__cas(at, &none, mine, release)) weft__free(mine); /* publishes zeroed memory; pairs with the acquire in find */
    return find(fd);
}

/* ---- making a descriptor known ---- */

static uint64_t key_of(int fd, uint32_t generation) {
    return (uint64_t)generation << 32 | (uint32_t)fd;
}

static int kind_of(int fd) {
    int protocol, err = weft__sock_get(fd, SOL_SOCKET, SO_PROTOCOL, &protocol);
    if (err == -ENOTSOCK) return WEFT_DESC_PLAIN;
    if (err) return err;
    return protocol == IPPROTO_TCP ? WEFT_DESC_SOCKET | WEFT_DESC_STREAM : WEFT_DESC_SOCKET;
}

/* System calls, without the lock; `opening` keeps others away. 1: no poller takes it. */
static int introduce(int fd, uint32_t generation, int *kind) {
    *kind = kind_of(fd);
    if (*kind < 0) return *kind;
    int err = weft__poll_add(fd, key_of(fd, generation));
    if (err != -EPERM) return err;
    *kind |= WEFT_DESC_ALWAYS;
    return 1;
}

/* Makes the next operation of each side try its system call. Caller holds the lock. */
static void count_as_ready(weft__desc *d) {
    uint64_t edges = weft__load(&d->state, relaxed) & ~(uint64_t)15; /* a bit cleared meanwhile is set again */
    weft__store(&d->state, edges + WEFT_STATE_EDGE + WEFT_READY_READ + WEFT_READY_WRITE, relaxed);
}

/* Notes the kind, and that the poller of the runtime of generation `g` has it; 0: none has. Caller
 * holds the lock. */
static void set_known(weft__desc *d, int kind, uint64_t g) {
    weft__store(&d->kind, (uint8_t)kind, relaxed); /* published by the next line */
    weft__store(&d->known, g, release);            /* pairs with the acquire in weft__fd_get */
}

/* The descriptor as it is known to the runtime of generation `g`; makes it so. One that no poller takes is looked at each time: nothing would tell that
 * its number has become that of a socket, which is not to be read as a file. */
static int open_desc(weft__desc *d, int fd, uint64_t g, uint32_t *generation) {
    for (;;) {
        weft__lock_take(&d->lock);
        *generation = weft__load(&d->generation, relaxed); /* under the lock, as the rest */
        bool known = weft__load(&d->known, relaxed) == g, busy = d->opening || d->closing, over = d->to_close;
        if (!known && !busy && !over) {
            d->opening = true;
            count_as_ready(d);
        }
        weft__lock_leave(&d->lock);
        if (known) return 0;
        if (over) return WEFT_ECLOSED; /* the number is about to go */
        if (!busy) break;
        weft__give_cpu();
    }
    int kind, err = introduce(fd, *generation, &kind);
    weft__lock_take(&d->lock);
    d->opening = false;
    bool ours = weft__load(&d->generation, relaxed) == *generation; /* else weft__fd_new came in between; under the lock */
    if (ours) set_known(d, err < 0 ? 0 : kind, err ? 0 : g);
    weft__lock_leave(&d->lock);
    return err < 0 ? err : ours ? 0 : WEFT_ECLOSED;
}

int weft__desc_make_known(weft__desc *d, int fd, uint32_t *generation) {
    bool first = !weft__load(&weft__polling, relaxed); /* a hint */
    int err = weft__poll_open();
    if (!err) err = open_desc(d, fd, weft__load(&weft__rt.generation, relaxed), generation);
    if (!err && first) weft__idle_kick(); /* workers sleep, and none of them in the poller */
    return err;
}

/* Looks at a descriptor where no runtime runs, for this operation. */
static int look_at(weft__desc *d, int fd, uint32_t *generation) {
    int kind = kind_of(fd);
    if (kind < 0) return kind;
    weft__lock_take(&d->lock);
    while (d->opening || d->closing) {
        weft__lock_leave(&d->lock);
        weft__give_cpu();
        weft__lock_take(&d->lock);
    }
    *generation = weft__load(&d->generation, relaxed); /* under the lock, as the rest */
    if (!weft__load(&d->known, relaxed)) {
        set_known(d, kind, 0);
        count_as_ready(d);
    }
    bool over = d->to_close;
    weft__lock_leave(&d->lock);
    return over ? WEFT_ECLOSED : 0; /* the number is about to go */
}

/* On a plain thread the runtime may end at any time, unless we are inside. Returns whether one
 * runs. */
static bool enter_outside(void) {
    (void)weft__runtime_phase(); /* in the child of a fork, forgets who was inside */
    weft__foreign_enter();
    return weft__runtime_phase() == WEFT_PHASE_RUNNING;
}

static WEFT_COLD int get_outside(weft__fd *f) {
    int err = enter_outside() ? weft__desc_make_known(f->d, f->fd, &f->generation) : look_at(f->d, f->fd, &f->generation);
    weft__foreign_leave();
    return err;
}

WEFT_COLD int weft__desc_know(const weft__fd *f) {
    uint32_t generation = f->generation;
    bool outside = weft__self() == &weft__nobody, runs = !outside || enter_outside();
    int err = runs ? weft__desc_make_known(f->d, f->fd, &generation) : 0;
    if (outside) weft__foreign_leave();
    return err ? err : generation != f->generation ? WEFT_ECLOSED : runs;
}

int weft__fd_get(int fd, weft__fd *out) {
    if (fd < 0) return -EBADF;
    *out = (weft__fd){NULL, 0, fd};
    if (fd / CHUNK >= CHUNKS) return WEFT_ELIMIT;
    weft__desc *d = find(fd);
    if (unlikely(!d) && !(d = make(fd))) return WEFT_ENOMEM;
    out->d = d;
    if (weft__self() == &weft__nobody) return get_outside(out);
    out->generation = weft__load(&d->generation, acquire); /* before `known`; pairs with end_generation */
    if (likely(weft__load(&d->known, acquire) == weft__load(&weft__rt.generation, relaxed)))
        return 0; /* pairs with open_desc */
    return weft__desc_make_known(d, fd, &out->generation);
}

bool weft__fd_find(int fd, weft__fd *out) {
    if (weft__self() == &weft__nobody) (void)weft__runtime_phase(); /* as in enter_outside */
    bool fits = fd >= 0 && fd / CHUNK < CHUNKS;
    weft__desc *d = fits ? find(fd) : NULL;
    if (!d && fits && weft__load(&weft__polling, relaxed))
        d = make(fd); /* somebody may come with the number while it is closed */
    *out = (weft__fd){d, d ? weft__load(&d->generation, acquire) : 0, fd}; /* as in weft__fd_valid */
    return d != NULL;
}

int weft__fd_nonblock(const weft__fd *f) {
    if (weft__fd_kind(f) & WEFT_DESC_NONBLOCK) return 0;
    if (weft__fd_hold(f)) return weft__fd_over(f); /* the number, and the note, might be the next one's */
    int err = weft__desc_os_nonblock(f->fd);
    if (!err) (void)atomic_fetch_or_explicit(&f->d->kind, WEFT_DESC_NONBLOCK, memory_order_relaxed); /* a note */
    weft__fd_unhold(f);
    return err;
}

/* ---- ending waits ---- */

/* Takes everybody off the queue; how many of them have the turn. */
static WEFT_HOT int evict(weft__queue *q, int32_t result, weft__queue *out) {
    int holders = 0;
    for (weft__waiter *x; (x = weft__queue_claim(q));) {
        x->block->result = x->many && !result ? (int32_t)x->index : result; /* after an edge a select looks for itself */
        if (x->elem) holders++;
        __builtin_prefetch(x->elem); /* it goes on with these soon */
        __builtin_prefetch(x->block + 1);
        weft__queue_add(out, x);
    }
    return holders;
}

static WEFT_HOT void resume_all(weft__queue *woken, weft__slot *s) {
    for (weft__waiter *x; (x = woken->head);) {
        weft__queue_remove(x); /* its frame is gone once it runs */
        weft__resume_last(x->block, s);
    }
}

/* Takes all waiters off all queues. Returns how many of them have a turn. */
static int evict_all(weft__desc *d, int32_t result, weft__queue *out) {
    int holders = 0;
    for (int i = 0; i < 2; i++) {
        holders += evict(&d->side[i].waiting, result, out);
        (void)evict(&d->line[i], result, out);
    }
    (void)evict(&d->watchers, result, out);
    return holders;
}

/* The descriptor is over: another generation; `closed`: because it was closed here, or given away.
 * Returns how many are in the middle of an operation. Under the lock. */
static uint32_t end_generation(weft__desc *d, bool closed, weft__queue *woken) {
    uint32_t next = weft__load(&d->generation, relaxed) + 1; /* under the lock, as all here */
    weft__store(&d->known, 0, relaxed);         /* before the next line: who finds that generation must not take it for known */
    weft__store(&d->generation, next, release); /* pairs with weft__fd_get and weft__fd_valid */
    if (closed) d->closed = next;
    int holders = (int)d->guests;
    d->guests = 0;
    (void)atomic_fetch_and_explicit(&d->state, ~(uint64_t)WEFT_STATE_SURE, memory_order_relaxed); /* under the lock */
    for (int i = 0; i < 2; i++) {
        uint64_t turn = weft__xchg(&d->side[i].turn, weft__turn_of(next, 0), acq_rel); /* against those without the lock: D4 */
        if (turn & WEFT_TURN_TAKEN) holders++;
    }
    return (uint32_t)(holders - evict_all(d, WEFT_ECLOSED, woken));
}

/* Its edges are told no more. A plain thread stays inside meanwhile, so that the poller does not go. */
static void leave_poller(int fd) {
    bool outside = weft__self() == &weft__nobody;
    if (!weft__load(&weft__polling, acquire)) return; /* as in weft__poll_open */
    if (outside) weft__foreign_enter();
    if (!outside || weft__runtime_phase() == WEFT_PHASE_RUNNING) weft__poll_remove(fd);
    if (outside) weft__foreign_leave();
}

static void closing_over(weft__desc *d) {
    weft__lock_take(&d->lock);
    d->closing = false;
    weft__lock_leave(&d->lock);
}

/* What keeps a descriptor from being released (weft__fd_release_if). */
typedef struct {
    int (*may)(void *arg, bool rests);
    void *arg;
} condition;

/* Ends f's generation, if the condition (or NULL) is met; `to_close`: the number is to be closed
 * when nobody uses it, or else left alone. 1: now (until then it is `closing`); 0: later, by the
 * last of them; an error. */
static int end(const weft__fd *f, bool to_close, const condition *c) {
    weft__desc *d = f->d;
    weft__queue woken = {NULL, NULL};
    weft__slot *s = weft__enter();
    weft__lock_take(&d->lock);
    while (d->opening || d->closing) { /* what is being made known would be made known too late */
        weft__lock_leave(&d->lock);
        weft__give_cpu();
        weft__lock_take(&d->lock);
    }
    bool mine = weft__load(&d->generation, relaxed) == f->generation && !d->to_close; /* under the lock */
    int r = !mine ? WEFT_ECLOSED : c ? c->may(c->arg, d->side[WEFT_SIDE_READ].waiting.head != NULL) : 1;
    bool listed = mine && weft__load(&d->known, relaxed);
    if (r > 0) {
        d->holders = end_generation(d, true, &woken);
        d->to_close = d->holders != 0;
        d->to_keep = !to_close;
        d->closing = !d->to_close;
        r = !d->to_close;
    }
    weft__lock_leave(&d->lock);
    resume_all(&woken, s);
    if (s) weft__leave();
    /* The number is still ours, or a holder's who waits for nothing: what is removed is what was added. */
    if (listed && r > 0) leave_poller(f->fd);
    return r;
}

/* Its close(2) waits for what was not sent yet (SO_LINGER). The kernel is asked, whatever kind it
 * was: the number may mean another descriptor. */
static bool lingers(int fd) {
    int on;
    return weft__sock_get(fd, SOL_SOCKET, SO_LINGER, &on) == 0 && on;
}

/* The number goes back to the kernel. At once, under whatever number the close then waits: who comes with the next one of this number waits for us. */
static int close_now(weft__desc *d, int fd) {
    int twin = lingers(fd) ? weft__desc_os_twin(fd) : -1;
    int err = weft__desc_os_close(fd);
    closing_over(d);
    return twin >= 0 ? weft__desc_os_close(twin) : err;
}

/* A holder of a turn of a generation that has ended, or a guest. Only those of the one that ended last are counted: an earlier one was released. */
void weft__desc_last_leaves(const weft__fd *f) {
    weft__desc *d = f->d;
    weft__lock_take(&d->lock);
    bool counted = d->to_close && weft__load(&d->generation, relaxed) == f->generation + 1; /* under the lock */
    bool last = counted && --d->holders == 0, keep = d->to_keep;
    if (last) d->to_close = false;
    if (last) d->closing = true;
    weft__lock_leave(&d->lock);
    if (!last) return;
    leave_poller(f->fd);
    if (keep)
        closing_over(d);
    else
        (void)close_now(d, f->fd);
}

int weft__fd_hold(const weft__fd *f) {
    weft__lock_take(&f->d->lock);
    bool mine = weft__load(&f->d->generation, relaxed) == f->generation; /* under the lock */
    if (mine) f->d->guests++;
    weft__lock_leave(&f->d->lock);
    return mine ? 0 : WEFT_ECLOSED;
}

void weft__fd_unhold(const weft__fd *f) {
    weft__lock_take(&f->d->lock);
    bool mine = weft__load(&f->d->generation, relaxed) == f->generation; /* under the lock */
    if (mine) f->d->guests--;
    weft__lock_leave(&f->d->lock);
    if (!mine) weft__desc_last_leaves(f);
}

int weft__fd_close(const weft__fd *f) {
    int now = end(f, true, NULL);
    return now > 0 ? close_now(f->d, f->fd) : now;
}

void weft__fd_pause(int round) {
    enum { YIELDS = 64 };
    weft__slot *s = weft__enter();
    if (s) {
        (void)weft__yield_now(s);
        weft__leave();
    }
    if (round < YIELDS)
        weft__give_cpu();
    else
        weft__nap(100 * WEFT_US);
}

/* Somebody of f's generation, which has ended, still uses the number. */
static bool is_used(const weft__fd *f) {
    weft__desc *d = f->d;
    weft__lock_take(&d->lock);
    bool used = weft__load(&d->generation, relaxed) == f->generation + 1 && (d->to_close || d->closing); /* under the lock */
    weft__lock_leave(&d->lock);
    return used;
}

int weft__fd_close_wait(const weft__fd *f) {
    int r = weft__fd_close(f);
    for (int i = 0; r == 0 && is_used(f); i++) weft__fd_pause(i);
    return r;
}

static int release(const weft__fd *f, const condition *c) {
    int r = end(f, false, c);
    if (r > 0)
        closing_over(f->d); /* who comes with the number now, finds it out of the poller, and not about to be taken out */
    for (int i = 0; r == 0 && is_used(f); i++) weft__fd_pause(i);
    return r < 0 ? r : 0;
}

int weft__fd_release(const weft__fd *f) {
    return release(f, NULL);
}

int weft__fd_release_if(const weft__fd *f, int (*may)(void *arg, bool rests), void *arg) {
    condition c = {may, arg};
    for (int i = 0;; i++) {
        int r = release(f, &c);
        if (r != WEFT_EAGAIN) return r;
        weft__fd_pause(i);
    }
}

void weft__fd_new(int fd) {
    weft__desc *d = find(fd);
    if (!d || !weft__load(&d->known, acquire)) return; /* as in weft__fd_get */
    weft__queue woken = {NULL, NULL};
    weft__slot *s = weft__enter();
    weft__lock_take(&d->lock);
    (void)end_generation(d, true, &woken);
    d->holders = 0;
    d->to_close = false;
    weft__lock_leave(&d->lock);
    resume_all(&woken, s);
    if (s) weft__leave();
}

/* ---- numbers that other code closed ---- */

/* Returns why f's generation is over. Caller holds the lock. */
static int why_over(const weft__fd *f) {
    return (int32_t)(f->generation - f->d->closed) < 0 ? WEFT_ECLOSED : WEFT_FD_ANOTHER;
}

int weft__fd_over(const weft__fd *f) {
    weft__lock_take(&f->d->lock);
    int why = why_over(f);
    weft__lock_leave(&f->d->lock);
    return why;
}

bool weft__fd_replaced(const weft__fd *f) {
    weft__lock_take(&f->d->lock);
    bool moved = weft__load(&f->d->generation, relaxed) != f->generation; /* under the lock */
    bool replaced = moved && why_over(f) == WEFT_FD_ANOTHER;
    weft__lock_leave(&f->d->lock);
    return replaced;
}

/* Begins a check, and keeps away other callers that come with the number. Returns 1; 0: it is not
 * known, and parking makes it so; or why the generation is over. */
static int check_begin(const weft__fd *f) {
    weft__desc *d = f->d;
    weft__lock_take(&d->lock);
    while (d->opening || d->closing) {
        weft__lock_leave(&d->lock);
        weft__give_cpu();
        weft__lock_take(&d->lock);
    }
    bool over = weft__load(&d->generation, relaxed) != f->generation; /* under the lock, as the next */
    bool known = weft__load(&d->known, relaxed) == weft__load(&weft__rt.generation, relaxed);
    d->opening = known && !over;
    int r = over ? why_over(f) : known;
    weft__lock_leave(&d->lock);
    return r;
}

static void opening_over(weft__desc *d) {
    weft__lock_take(&d->lock);
    d->opening = false;
    weft__lock_leave(&d->lock);
}

/* Ends a check that did not find the same descriptor. `added`: what the poller said; `kind`: the
 * new one's, or negative. Holders and guests of the old generation do not count: there is nothing
 * to close. */
static int check_end(const weft__fd *f, int added, int kind) {
    weft__desc *d = f->d;
    weft__queue woken = {NULL, NULL};
    weft__slot *s = weft__enter();
    int r = added == 0 || added == -EBADF || added == -EPERM ? WEFT_FD_ANOTHER : added;
    weft__lock_take(&d->lock);
    d->opening = false;
    if (weft__load(&d->generation, relaxed) != f->generation) { /* weft__fd_new came in between; under the lock */
        r = why_over(f);
    } else if (r == WEFT_FD_ANOTHER) {
        (void)end_generation(d, false, &woken);
        count_as_ready(d);
        if (added == 0 && kind >= 0) set_known(d, kind, weft__load(&weft__rt.generation, relaxed));
    }
    weft__lock_leave(&d->lock);
    resume_all(&woken, s);
    if (s) weft__leave();
    return r;
}

static int check(const weft__fd *f) {
    int r = check_begin(f);
    if (r <= 0) return r;
    int added = weft__poll_add_new(f->fd, key_of(f->fd, f->generation + 1));
    if (likely(added == -EEXIST)) {
        opening_over(f->d); /* if weft__fd_new came in between, parking fails */
        return 0;
    }
    return check_end(f, added, added == 0 ? kind_of(f->fd) : -1);
}

int weft__fd_check(const weft__fd *f) {
    if (weft__self() != &weft__nobody) return check(f);
    int r = enter_outside() ? check(f) : 0;
    weft__foreign_leave();
    return r;
}

int weft__fd_verify(int fd) {
    weft__fd f;
    int err = weft__fd_get(fd, &f);
    if (!err) err = weft__fd_check(&f);
    return err == WEFT_FD_ANOTHER ? 0 : err;
}

/* ---- edges ---- */

/* Returns whether what is read may be read by us (D6). */
static WEFT_HOT bool tell(const weft__edge *e, weft__queue *woken) {
    weft__desc *d = find((int)(uint32_t)e->key);
    if (!d) return false;
    weft__lock_take(&d->lock);
    if (weft__load(&d->generation, relaxed) != (uint32_t)(e->key >> 32)) { /* D4; under the lock */
        weft__add(&table.stale, 1, relaxed);                               /* a counter */
        weft__lock_leave(&d->lock);
        return false;
    }
    uint64_t seen = weft__load(&d->state, relaxed); /* who clears a bit does it without the lock */
    while (!weft__cas(&d->state, &seen, (seen | e->ready) + WEFT_STATE_EDGE, release)) { /* D2; pairs with weft__fd_state */
    }
    weft__side *read = &d->side[WEFT_SIDE_READ], *write = &d->side[WEFT_SIDE_WRITE];
    if (read->waiting.head && (e->ready & (WEFT_READY_READ | WEFT_READY_URGENT))) (void)evict(&read->waiting, 0, woken);
    if (write->waiting.head && (e->ready & WEFT_READY_WRITE)) (void)evict(&write->waiting, 0, woken);
    if (d->watchers.head) (void)evict(&d->watchers, 0, woken);
    bool alone =
        !d->guests && !(weft__load(&write->turn, relaxed) & WEFT_TURN_TAKEN); /* a hint: it is taken without the lock */
    weft__lock_leave(&d->lock);
    return alone;
}

/* Who has waited for long is in no cache, nor is the entry of its page: they are fetched all at once, not one after the other, with the
 * frames that the task goes on with. It may be another one by now, or none: a fetch of a wrong address does nothing. */
static void fetch(const weft__edge *edges, int n) {
    for (int i = 0; i < n; i++) {
        weft__desc *d = find((int)(uint32_t)edges[i].key);
        char *x = d ? weft__load(&d->frames, relaxed) : NULL; /* hints, from queue_up, as those below */
        if (!x) continue;
        __builtin_prefetch(d->side, 1);
        for (int at = -FRAMES_BELOW; at < FRAMES_ABOVE; at += WEFT_LINE) __builtin_prefetch(x + at, 1);
        __builtin_prefetch(weft__load(&d->block, relaxed), 1);
        __builtin_prefetch(weft__load(&d->block, relaxed) + 1, 1);
        __builtin_prefetch(weft__load(&d->use, relaxed), 1);
    }
}

/* D6. It has been claimed, and it has the turn: nobody else ends its wait, and the number stays. */
static bool land(weft__waiter *x) {
    if (!x || !x->index || x->many) return false;
    weft__landing *l = x->elem;
    l->got = weft__fd_attempt(l->f, WEFT_READY_READ, weft__fd_state(l->f), l->call, l->arg, l->asked);
    return true;
}

WEFT_HOT void weft__desc_tell(const weft__edge *edges, int n, weft__slot *s) {
    int landed = 0;
    if (n > 1) fetch(edges, n);
    for (int i = 0; i < n; i++) {
        weft__queue woken = {NULL, NULL};
        bool alone = tell(&edges[i], &woken);
        if (alone && s && landed < LANDINGS) landed += land(woken.head);
        resume_all(&woken, s);
    }
    if (s) s->told = weft__load(&s->tail, relaxed);                    /* the owner's own */
    if (landed) weft__add(&table.landings, (uint64_t)landed, relaxed); /* a counter */
}

void weft__fd_be_sure(const weft__fd *f, uint32_t bit, bool on) {
    weft__desc *d = f->d;
    weft__queue woken = {NULL, NULL};
    weft__slot *s = weft__enter();
    weft__lock_take(&d->lock);
    if (weft__load(&d->generation, relaxed) == f->generation) { /* D4; under the lock */
        uint64_t seen = weft__load(&d->state, relaxed), mask = (uint64_t)bit * WEFT_STATE_SURE_READ, next;
        do {
            next = on ? (seen | mask) + WEFT_STATE_EDGE : seen & ~mask;
        } while (!weft__cas(&d->state, &seen, next, release)); /* as in tell */
        if (on) (void)evict(&d->watchers, 0, &woken);
    }
    weft__lock_leave(&d->lock);
    resume_all(&woken, s);
    if (s) weft__leave();
}

uint64_t weft__descs_stale(void) {
    return weft__load(&table.stale, relaxed); /* a counter */
}
uint64_t weft__descs_landings(void) {
    return weft__load(&table.landings, relaxed); /* a counter */
}

/* ---- the end ---- */

void weft__descs_close(void) {
    if (!weft__load(&weft__polling, relaxed)) return; /* nobody has used any */
    for (int i = 0; i < CHUNKS; i++) {
        weft__desc *chunk = weft__load(&table.chunk[i], acquire); /* as in find */
        for (int k = 0; chunk && k < CHUNK; k++) {
            weft__queue woken = {NULL, NULL};
            weft__lock_take(&chunk[k].lock);
            weft__store(&chunk[k].known, 0, relaxed); /* under the lock */
            (void)evict_all(&chunk[k], WEFT_ETERMINATED, &woken);
            weft__lock_leave(&chunk[k].lock);
            resume_all(&woken, NULL);
        }
    }
    weft__store(&table.stale, 0, relaxed); /* counters */
    weft__store(&table.landings, 0, relaxed);
}

void weft__descs_forget(void) {
    for (int i = 0; i < CHUNKS; i++) {
        weft__desc *chunk = weft__load(&table.chunk[i], relaxed); /* nobody else is there */
        if (!chunk) continue;
        for (int k = 0; k < CHUNK; k++) {
            weft__desc *d = &chunk[k];
            bool known = weft__load(&d->known, relaxed) || d->opening; /* one that no runtime knew may be used on */
            uint32_t closed = d->closed, generation = weft__load(&d->generation, relaxed) + known;
            memset(d, 0, sizeof *d);
            weft__store(&d->generation, generation, relaxed);
            d->closed = known ? generation : closed;
            for (int side = 0; side < 2; side++) weft__store(&d->side[side].turn, weft__turn_of(generation, 0), relaxed);
        }
    }
}
