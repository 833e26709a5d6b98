/* SPDX-License-Identifier: MIT */
/* Dialling. A name may have several addresses, some of which do not answer: they are tried by turns of their families, each ATTEMPT after the one
 * before, or as soon as one has failed; the first that stands is taken, the others are given up (RFC 8305). Each is a task of a scope. */
#include "net/net.h"
#include "os/os.h"

#include <weft/chan.h>
#include <weft/io.h>
#include <weft/scope.h>
#include <weft/task.h>

#define ATTEMPT (250 * WEFT_MS)

/* A descriptor that is connected; an error. */
static int connect_to(const weft_addr *a, const weft_net_opts *o, weft_deadline deadline) {
    int fd = weft__sock_new(a->sa.ss_family, SOCK_STREAM, 0);
    if (fd < 0) return fd;
    weft__fd_new(fd);
    int err = weft__net_set(fd, a->sa.ss_family, o);
    if (!err) err = weft_fd_connect(fd, (const struct sockaddr *)&a->sa, a->len, deadline);
    if (!err) return fd;
    (void)weft_fd_close(fd);
    return err;
}

/* ---- several addresses ---- */

typedef struct {
    const weft_net_opts *opts;
    weft_deadline deadline;
    weft_scope scope;
    weft_chan *failed;    /* one element for each that has: the next may begin */
    _Atomic int winner;   /* a descriptor, or -1 */
    _Atomic int last_err; /* of those that failed */
} race;

typedef struct {
    race *r;
    const weft_addr *to;
    int turn;
} attempt;

static int try_one(void *arg) {
    attempt *t = arg;
    race *r = t->r;
    char one = 1;
    int none = -1;
    if (t->turn) {
        int err = weft_chan_recv(r->failed, &one, weft_after(t->turn * ATTEMPT));
        if (err == WEFT_ECANCELED) return 0;
    }
    int fd = connect_to(t->to, r->opts, r->deadline);
    if (fd < 0) {
        if (fd != WEFT_ECANCELED) weft__store(&r->last_err, fd, relaxed); /* read after the join */
        (void)weft_chan_send(r->failed, &one, WEFT_POLL);
        return 0;
    }
    if (weft__cas(&r->winner, &none, fd, acq_rel)) /* one of them; read after the join */
        weft_scope_cancel(&r->scope);
    else
        (void)weft_fd_close(fd);
    return 0;
}

static int race_for(const weft_addrs *at, const weft_net_opts *o, weft_deadline deadline) {
    race r = {.opts = o, .deadline = deadline, .winner = -1, .last_err = WEFT_ENOMEM};
    attempt tries[WEFT_ADDRS_MAX];
    if (!(r.failed = weft_chan_new(1, WEFT_ADDRS_MAX))) return WEFT_ENOMEM;
    weft_scope_begin(&r.scope, &(weft_scope_opts){.on_error = WEFT_KEEP_GOING});
    for (int i = 0; i < at->count; i++) {
        tries[i] = (attempt){&r, &at->at[i], i};
        int err = weft_spawn(&r.scope, try_one, &tries[i]);
        if (err) weft__store(&r.last_err, err, relaxed); /* as above */
    }
    int err = weft_scope_end(&r.scope), fd = weft__load(&r.winner, relaxed); /* after the join */
    weft_chan_unref(r.failed);
    if (fd >= 0) return fd;
    return err == WEFT_ECANCELED ? err : weft__load(&r.last_err, relaxed);
}

/* By turns, beginning with the family that the system put first. */
static void interleave(weft_addrs *at) {
    weft_addrs out = {.count = 0};
    bool used[WEFT_ADDRS_MAX] = {false};
    int want = at->count ? at->at[0].sa.ss_family : 0;
    while (out.count < at->count) {
        int pick = -1;
        for (int i = 0; i < at->count && pick < 0; i++)
            if (!used[i] && at->at[i].sa.ss_family == want) pick = i;
        for (int i = 0; i < at->count && pick < 0; i++)
            if (!used[i]) pick = i;
        used[pick] = true;
        out.at[out.count++] = at->at[pick];
        want = at->at[pick].sa.ss_family == AF_INET6 ? AF_INET : AF_INET6;
    }
    *at = out;
}

/* Plain threads may have no runtime: one after the other. */
static int one_by_one(const weft_addrs *at, const weft_net_opts *o, weft_deadline deadline) {
    int fd = WEFT_ENOHOST;
    for (int i = 0; i < at->count; i++)
        if ((fd = connect_to(&at->at[i], o, deadline)) >= 0 || fd == WEFT_ETIMEDOUT || fd == WEFT_ECANCELED) break;
    return fd;
}

static int dial(weft_conn **out, const char *addr, const weft_net_opts *o, weft_deadline deadline, weft__target *t) {
    weft_addrs at;
    int err = weft__addr_parse(addr, t);
    if (!err) err = weft__addr_find(t, false, &at, deadline);
    if (err) return err;
    interleave(&at);
    int fd = at.count == 1 || !weft_self() ? one_by_one(&at, o, deadline) : race_for(&at, o, deadline);
    if (fd < 0) return fd;
    err = weft__conn_new(out, fd);
    if (err) (void)weft_fd_close(fd);
    return err;
}

int weft_dial_opts(weft_conn **out, const char *addr, const weft_net_opts *opts, weft_deadline deadline) {
    weft__target t;
    *out = NULL;
    int err = dial(out, addr, opts, deadline, &t);
    return err ? weft__net_failed(err, "dial", addr, &t.why) : 0;
}

int weft_dial(weft_conn **out, const char *addr, weft_deadline deadline) {
    return weft_dial_opts(out, addr, NULL, deadline);
}
