/* SPDX-License-Identifier: MIT */
/* Listeners. Several tasks may accept from one: they take turns (desc.h), so a new connection wakes one of them and never a herd. */
#include <netinet/in.h>

#include "net/net.h"
#include "os/os.h"

enum { BACKLOG = 4096, WAIT_FIRST = 5 * 1000 * 1000, WAIT_MAX = 200 * 1000 * 1000 }; /* ns */

struct weft_listener {
    weft__fd f;
    int family;
    weft_net_opts opts;
    _Atomic uint32_t users; /* as a connection's: N1 */
    _Atomic bool shut;      /* by weft_listener_shutdown */
    weft__sockfile file;
};

_Atomic uint64_t weft__accept_waits;

/* ---- listening ---- */

/* Removes what listening has made. The socket is still open. */
static void drop_file(weft__sockfile *file) {
    if (weft__sockfile_is_ours(file)) weft__sockfile_remove(file);
    weft__free(file->path);
    file->path = NULL;
}

static int listen_at(const weft_addr *a, const weft_net_opts *o, weft__sockfile *file) {
    int family = a->sa.ss_family, fd = weft__sock_new(family, SOCK_STREAM, 0), err = 0;
    if (fd < 0) return fd;
    if (family != AF_UNIX) err = weft__sock_set(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    if (!err && o->reuse_port && family != AF_UNIX) err = weft__sock_set(fd, SOL_SOCKET, SO_REUSEPORT, 1);
    if (!err && family == AF_INET6) err = weft__sock_set(fd, IPPROTO_IPV6, IPV6_V6ONLY, o->ipv6_only);
    if (!err) err = weft__sockfile_bind(file, fd, a, o->mode);
    if (!err) err = weft__sock_listen(fd, o->backlog > 0 ? o->backlog : BACKLOG);
    if (!err) return fd;
    drop_file(file);
    (void)weft__desc_os_close(fd);
    return err;
}

/* The first that works: "any address" is that of IPv6, or of IPv4 where there is no other. */
static int listen_first(weft_listener *l, const weft_addrs *at) {
    int fd = WEFT_EINVAL;
    for (int i = 0; i < at->count; i++) {
        l->family = at->at[i].sa.ss_family;
        fd = listen_at(&at->at[i], &l->opts, &l->file);
        if (fd != -EAFNOSUPPORT && fd != -EADDRNOTAVAIL) break;
    }
    return fd;
}

static int listen_on(weft_listener **out, const char *addr, const weft_net_opts *opts, weft__target *t) {
    weft_addrs at;
    int err = weft__addr_parse(addr, t);
    if (!err) err = weft__addr_find(t, true, &at, WEFT_FOREVER);
    if (err) return err;
    weft_listener *l = weft__calloc(1, sizeof *l);
    if (!l) return WEFT_ENOMEM;
    if (opts) l->opts = *opts;
    weft__store(&l->users, 1, relaxed); /* published with the listener */
    int fd = listen_first(l, &at);
    if (fd < 0) {
        weft__free(l);
        return fd;
    }
    weft__fd_new(fd);
    if ((err = weft__fd_get(fd, &l->f)) < 0) {
        drop_file(&l->file);
        (void)weft__desc_os_close(fd);
        weft__free(l);
        return err;
    }
    *out = l;
    return 0;
}

int weft_tcp_listen(weft_listener **out, const char *addr, const weft_net_opts *opts) {
    weft__target t;
    *out = NULL;
    int err = listen_on(out, addr, opts, &t);
    return err ? weft__net_failed(err, "listen", addr, &t.why) : 0;
}

/* ---- accepting ---- */

/* Nothing is wrong with the listener: another connection may be had. */
static bool theirs(int err) {
    return err == -ECONNABORTED || err == -EPROTO || err == -ENETDOWN || err == -ENOPROTOOPT || err == -EHOSTDOWN ||
           err == -ENONET || err == -EHOSTUNREACH || err == -EOPNOTSUPP || err == -ENETUNREACH || err == -EPERM;
}
static bool exhausted(int err) {
    return err == -EMFILE || err == -ENFILE || err == -ENOBUFS || err == -ENOMEM;
}

/* Until something may have been given back; closing the listener ends it. */
static int wait_for_others(const weft__fd *f, int64_t nap, weft_deadline deadline) {
    weft__add(&weft__accept_waits, 1, relaxed); /* a counter */
    weft_deadline next = weft_after(nap);
    bool last = deadline.ns && deadline.ns <= next.ns;
    int err = weft__fd_watch(f, 0, weft__fd_state(f), last ? deadline : next);
    return err == WEFT_ETIMEDOUT && !last ? 0 : err;
}

static int accept_next(weft_listener *l, weft_deadline deadline) {
    for (int64_t nap = WAIT_FIRST;;) {
        int fd = weft__fd_accept(&l->f, NULL, NULL, deadline);
        if (fd >= 0 || (!theirs(fd) && !exhausted(fd))) return fd;
        if (theirs(fd)) continue;
        int err = wait_for_others(&l->f, nap, deadline);
        if (err) return err;
        if (nap < WAIT_MAX) nap *= 2;
    }
}

static int accept_from(weft_listener *l, weft_conn **out, weft_deadline deadline) {
    int fd = accept_next(l, deadline);
    if (fd < 0) return fd;
    int err = weft__net_set(fd, l->family, &l->opts);
    if (err == -EINVAL) err = 0; /* it has been closed by its peer already: its reads will tell */
    if (!err) err = weft__conn_new(out, fd);
    if (err) (void)weft__desc_os_close(fd);
    return err;
}

static void unuse(weft_listener *l) {
    if (weft__sub(&l->users, 1, acq_rel) != 1) return; /* N1 */
    weft__free(l->file.path);
    weft__free(l);
}

weft_listener *weft_listener_ref(weft_listener *l) {
    weft__add(&l->users, 1, relaxed); /* N1: the caller knows that it is there */
    return l;
}

void weft_listener_unref(weft_listener *l) {
    if (l) unuse(l);
}

int weft_accept(weft_listener *l, weft_conn **out, weft_deadline deadline) {
    *out = NULL;
    weft__add(&l->users, 1, relaxed); /* N1: the caller knows that it is there */
    int err = weft__load(&l->shut, acquire) ? WEFT_ECLOSED : accept_from(l, out, deadline); /* pairs with the shutdown */
    if (err == -EINVAL) err = WEFT_ECLOSED; /* accept(2): it does not listen any more; shut down, here or elsewhere */
    unuse(l);
    return err;
}

int weft_listener_addr(weft_listener *l, char *buf, size_t size) {
    return weft__fd_text(&l->f, false, buf, size);
}

int weft_listener_fd(weft_listener *l) {
    return weft__fd_valid(&l->f) ? l->f.fd : WEFT_ECLOSED;
}

void weft_listener_shutdown(weft_listener *l) {
    weft__add(&l->users, 1, relaxed); /* N1: the caller knows that it is there */
    if (!weft__fd_hold(&l->f)) {
        weft__store(&l->shut, true,
                    release); /* pairs with weft_accept; the close, which the hold comes before, reads it, too */
        (void)weft__sock_shutdown(l->f.fd, SHUT_RDWR);
        weft__fd_unhold(&l->f);
    }
    unuse(l);
}

int weft_listener_close(weft_listener *l) {
    if (!l) return 0;
    bool ours = weft__sockfile_is_ours(&l->file);
    int err = weft__fd_close_wait(&l->f);
    if (ours && err != WEFT_ECLOSED && (weft__load(&l->shut, relaxed) || !weft__sockfile_is_served(&l->file)))
        weft__sockfile_remove(&l->file);
    unuse(l);
    return err;
}
