/* SPDX-License-Identifier: MIT */
#include "io/case.h"

#include <poll.h>

#include "os/socket.h"

#include <weft/io.h>

_Static_assert((int)WEFT_READABLE == (int)WEFT_READY_READ && (int)WEFT_WRITABLE == (int)WEFT_READY_WRITE,
               "what is waited for is compared with what is known");

int weft__fd_case_open(weft__fd_case *c, int fd, uintptr_t events) {
    if (events & ~(uintptr_t)(WEFT_READABLE | WEFT_WRITABLE)) return WEFT_EINVAL;
    c->events = (uint32_t)events;
    return weft__fd_get(fd, &c->f);
}

int weft__fd_case_open_object(weft__fd_case *c, const weft__fd *f, int events) {
    if (events & ~(WEFT_READABLE | WEFT_WRITABLE)) return WEFT_EINVAL;
    *c = (weft__fd_case){.f = *f, .object = true, .events = (uint32_t)events};
    return 0;
}

typedef struct {
    struct pollfd p[WEFT_FD_CASES_BATCH];
    weft__fd_case *who[WEFT_FD_CASES_BATCH];
    unsigned n;
} batch;

/* Why the generation of its descriptor is over. An object's is not looked up again. */
static int over(const weft__fd_case *c) {
    return c->object ? WEFT_ECLOSED : weft__fd_over(&c->f);
}

/* Ends the waits of what was there. */
static WEFT_COLD int closed_by_others(weft__fd_case *c) {
    if (!c->object) (void)weft__fd_check(&c->f);
    return -EBADF;
}

static int ask(batch *b) {
    int err = b->n ? weft__desc_os_poll_all(b->p, b->n, WEFT_POLL_NOW) : 0;
    if (err > 0) err = 0;
    for (unsigned i = 0; i < b->n && !err; i++) {
        if (!weft__fd_valid(&b->who[i]->f))
            err = over(b->who[i]); /* the answer may be about another one */
        else if (b->p[i].revents & POLLNVAL)
            err = closed_by_others(b->who[i]);
        b->who[i]->ready = b->p[i].revents != 0;
    }
    b->n = 0;
    return err;
}

struct pollfd weft__fd_case_poll(const weft__fd_case *c) {
    short events = c->events & WEFT_READABLE ? POLLIN | POLLRDHUP : 0;
    if (c->events & WEFT_WRITABLE) events |= POLLOUT;
    return (struct pollfd){.fd = c->f.fd, .events = events};
}

static void add(batch *b, weft__fd_case *c) {
    b->p[b->n] = weft__fd_case_poll(c);
    b->who[b->n++] = c;
}

/* The number is looked up again if it means another descriptor. */
static int renew(weft__fd_case *c) {
    int err = weft__fd_valid(&c->f) ? 0 : over(c);
    if (err == WEFT_FD_ANOTHER) err = weft__fd_get(c->f.fd, &c->f);
    return err ? err : weft__fd_renew(&c->f);
}

static int ask_all(weft__fd_case *c, size_t n, bool once) {
    batch b = {.n = 0};
    int err = 0;
    for (weft__fd_case *end = c + n; c < end && !err; c++) {
        if (!c->events) continue;
        if ((err = renew(c)) < 0) break;
        c->told = err > 0;
        err = 0;
        c->seen = weft__fd_state(&c->f);
        c->ready = weft__fd_valid(&c->f) && (weft__fd_sure(c->seen) & c->events);
        if (c->ready) continue;
        if (!once && c->told && !(c->seen & (c->events | WEFT_READY_END))) continue; /* an edge will tell */
        add(&b, c);
        if (b.n == WEFT_FD_CASES_BATCH) err = ask(&b);
    }
    return err ? err : ask(&b);
}

int weft__fd_cases_ask(weft__fd_case *c, size_t n, bool once) {
    int err;
    do {
        err = ask_all(c, n, once);
    } while (err == WEFT_FD_ANOTHER);
    return err;
}

int weft__fd_cases_check(weft__fd_case *c, size_t n) {
    int err = 0, others = 0;
    for (weft__fd_case *end = c + n; c < end && err >= 0; c++) {
        if (!c->events || c->object) continue;
        err = weft__fd_check(&c->f);
        if (err != WEFT_FD_ANOTHER) continue;
        err = weft__fd_get(c->f.fd, &c->f);
        others = 1;
    }
    return err ? err : others;
}
