/* SPDX-License-Identifier: MIT */
/* Listeners. Several tasks may accept from one: they take turns (desc.h), so a new connection wakes one of them and never a herd. */
#include <netinet/in.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "net/net.h"
#include "os/os.h"

enum { BACKLOG = 4096, WAIT_FIRST = 5 * 1000 * 1000, WAIT_MAX = 200 * 1000 * 1000 }; /* ns */

struct weft_listener {
    weft__fd f;
    int family;
    weft_net_opts opts;
    _Atomic uint32_t users;                                 /* as a connection's: N1 */
    _Atomic bool closed;                                    /* or about to be */
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)]; /* of a file that is to be removed; "" = none */
};

_Atomic uint64_t weft__accept_waits;

/* ---- listening ---- */

/* A file that nobody listens at is in the way after a crash. Somebody who does is left alone. */
static bool left_over(const weft_addr *a) {
    int fd = weft__sock_new(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0) return false;
    int err = weft__sock_connect(fd, (const struct sockaddr *)&a->sa, a->len);
    (void)weft__desc_os_close(fd);
    return err == -ECONNREFUSED;
}

static const char *file_of(const weft_addr *a) {
    const struct sockaddr_un *u = (const struct sockaddr_un *)(const void *)&a->sa;
    return a->sa.ss_family == AF_UNIX && u->sun_path[0] ? u->sun_path : NULL;
}

static int bind_at(int fd, const weft_addr *a) {
    int err = weft__sock_bind(fd, (const struct sockaddr *)&a->sa, a->len);
    const char *file = file_of(a);
    if (err != -EADDRINUSE || !file || !left_over(a) || weft__desc_os_unlink(file) < 0) return err;
    return weft__sock_bind(fd, (const struct sockaddr *)&a->sa, a->len);
}

static int listen_at(const weft_addr *a, const weft_net_opts *o) {
    int family = a->sa.ss_family, fd = weft__sock_new(family, SOCK_STREAM, 0), err = 0;
    if (fd < 0) return fd;
    if (family != AF_UNIX) err = weft__sock_set(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    if (!err && o->reuse_port && family != AF_UNIX) err = weft__sock_set(fd, SOL_SOCKET, SO_REUSEPORT, 1);
    if (!err && family == AF_INET6) err = weft__sock_set(fd, IPPROTO_IPV6, IPV6_V6ONLY, o->ipv6_only);
    if (!err) err = bind_at(fd, a);
    if (!err && file_of(a) && o->mode && chmod(file_of(a), (mode_t)o->mode) < 0) err = -errno;
    if (!err) err = weft__sock_listen(fd, o->backlog > 0 ? o->backlog : BACKLOG);
    if (!err) return fd;
    (void)weft__desc_os_close(fd);
    return err;
}

/* The first that works: "any address" is that of IPv6, or of IPv4 where there is no other. */
static int listen_first(const weft_addrs *at, const weft_net_opts *o, const weft_addr **used) {
    int fd = WEFT_EINVAL;
    for (int i = 0; i < at->count; i++) {
        fd = listen_at(*used = &at->at[i], o);
        if (fd != -EAFNOSUPPORT && fd != -EADDRNOTAVAIL) break;
    }
    return fd;
}

static int listen_on(weft_listener **out, const char *addr, const weft_net_opts *opts) {
    weft__target t;
    weft_addrs at;
    const weft_addr *used;
    weft_net_opts o = opts ? *opts : (weft_net_opts){0};
    int err = weft__addr_parse(addr, &t);
    if (!err) err = weft__addr_find(&t, true, &at, WEFT_FOREVER);
    if (err) return err;
    weft_listener *l = weft__calloc(1, sizeof *l);
    if (!l) return WEFT_ENOMEM;
    int fd = listen_first(&at, &o, &used);
    if (fd < 0) {
        weft__free(l);
        return fd;
    }
    weft__fd_new(fd);
    if (file_of(used)) memcpy(l->path, file_of(used), strlen(file_of(used)));
    l->opts = o;
    l->family = used->sa.ss_family;
    weft__store(&l->users, 1, relaxed); /* published with the listener */
    if ((err = weft__fd_get(fd, &l->f)) < 0) {
        (void)weft__desc_os_close(fd);
        if (l->path[0]) (void)weft__desc_os_unlink(l->path);
        weft__free(l);
        return err;
    }
    *out = l;
    return 0;
}

int weft_tcp_listen(weft_listener **out, const char *addr, const weft_net_opts *opts) {
    *out = NULL;
    int err = listen_on(out, addr, opts);
    return err ? weft__net_failed(err, "listen", addr) : 0;
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
    if (weft__sub(&l->users, 1, acq_rel) == 1) weft__free(l); /* N1 */
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
    int err = accept_from(l, out, deadline);
    if (err == -EINVAL && weft__load(&l->closed, acquire)) err = WEFT_ECLOSED; /* pairs with weft_listener_close */
    unuse(l);
    return err;
}

int weft_listener_addr(weft_listener *l, char *buf, size_t size) {
    return weft__fd_text(&l->f, false, buf, size);
}

int weft_listener_fd(weft_listener *l) {
    return l->f.fd;
}

int weft_listener_close(weft_listener *l) {
    if (!l) return 0;
    if (l->path[0]) (void)weft__desc_os_unlink(l->path);
    weft__store(&l->closed, true, release); /* pairs with weft_accept */
    if (!weft__fd_hold(&l->f)) {
        (void)weft__sock_shutdown(l->f.fd, SHUT_RDWR); /* the port is free when this returns, also if the number is not */
        weft__fd_unhold(&l->f);
    }
    int err = weft__fd_close(&l->f);
    unuse(l);
    return err;
}
