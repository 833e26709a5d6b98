/* SPDX-License-Identifier: MIT */
/* Addresses: from text and to text. */
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/un.h>

#include "net/net.h"

static int parse_unix(const char *path, weft__target *out) {
    struct sockaddr_un *u = (struct sockaddr_un *)(void *)&out->unix_addr.sa;
    size_t n = strlen(path);
    if (n == 0 || n >= sizeof u->sun_path) return WEFT_EINVAL;
    u->sun_family = AF_UNIX;
    memcpy(u->sun_path, path, n + 1);
    bool abstract = path[0] == '@';
    if (abstract) u->sun_path[0] = '\0';
    out->unix_addr.len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + !abstract);
    out->is_unix = true;
    return 0;
}

/* "host:port", "[host]:port", ":port". */
int weft__addr_parse(const char *text, weft__target *out) {
    memset(out, 0, sizeof *out);
    if (!text) return WEFT_EINVAL;
    if (strncmp(text, "unix:", 5) == 0) return parse_unix(text + 5, out);
    const char *host = text, *colon = strrchr(text, ':'), *end = colon;
    if (!colon || !colon[1]) return WEFT_EINVAL;
    if (text[0] == '[') {
        if (colon == text || colon[-1] != ']') return WEFT_EINVAL;
        host = text + 1;
        end = colon - 1;
        if (end <= host) return WEFT_EINVAL;
    } else if (memchr(text, ':', (size_t)(colon - text))) {
        return WEFT_EINVAL; /* which of them is the port? */
    }
    size_t n = (size_t)(end - host), p = strlen(colon + 1);
    if (n >= sizeof out->host || p >= sizeof out->port) return WEFT_EINVAL;
    memcpy(out->host, host, n);
    memcpy(out->port, colon + 1, p);
    return 0;
}

static int port_of(const char *text, in_port_t *out) {
    char *end;
    unsigned long port = strtoul(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || port > 65535) return WEFT_EAGAIN;
    *out = htons((uint16_t)port);
    return 0;
}

static void add(weft_addrs *out, const void *sa, socklen_t len) {
    if (out->count == WEFT_ADDRS_MAX) return;
    weft_addr *a = &out->at[out->count++];
    memset(a, 0, sizeof *a);
    memcpy(&a->sa, sa, len);
    a->len = len;
}

int weft__addr_numeric(const char *host, const char *service, bool passive, weft_addrs *out) {
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    out->count = 0;
    int err = port_of(service, &v4.sin_port);
    if (err) return err;
    v6.sin6_port = v4.sin_port;
    if (!host[0] && passive) {
        v6.sin6_addr = in6addr_any;
        add(out, &v6, sizeof v6);
        add(out, &v4, sizeof v4); /* a machine without IPv6 */
    } else if (!host[0]) {
        v6.sin6_addr = in6addr_loopback;
        v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        add(out, &v4, sizeof v4);
        add(out, &v6, sizeof v6);
    } else if (inet_pton(AF_INET, host, &v4.sin_addr) == 1) {
        add(out, &v4, sizeof v4);
    } else if (inet_pton(AF_INET6, host, &v6.sin6_addr) == 1) {
        add(out, &v6, sizeof v6);
    } else {
        return WEFT_EAGAIN;
    }
    return 0;
}

int weft__addr_find(const weft__target *t, bool passive, weft_addrs *out, weft_deadline deadline) {
    out->count = 0;
    if (t->is_unix) {
        out->at[0] = t->unix_addr;
        out->count = 1;
        return 0;
    }
    int err = weft__addr_numeric(t->host, t->port, passive, out);
    return err == WEFT_EAGAIN ? weft_resolve(t->host, t->port, out, deadline) : err;
}

static int unix_text(const weft_addr *a, char *buf, size_t size) {
    const struct sockaddr_un *u = (const struct sockaddr_un *)(const void *)&a->sa;
    size_t at = offsetof(struct sockaddr_un, sun_path), n = a->len > at ? a->len - at : 0;
    bool abstract = n > 0 && u->sun_path[0] == '\0';
    if (!abstract) n = strnlen(u->sun_path, n);
    int len = snprintf(buf, size, "unix:%s%.*s", abstract ? "@" : "", (int)(n - abstract), u->sun_path + abstract);
    return len < 0 || (size_t)len >= size ? WEFT_EINVAL : len;
}

int weft_addr_text(const weft_addr *a, char *buf, size_t size) {
    char host[INET6_ADDRSTRLEN] = "?";
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)&a->sa;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)&a->sa;
    int len;
    if (a->sa.ss_family == AF_UNIX) return unix_text(a, buf, size);
    if (a->sa.ss_family == AF_INET6) {
        inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof host);
        len = snprintf(buf, size, "[%s]:%u", host, ntohs(v6->sin6_port));
    } else if (a->sa.ss_family == AF_INET) {
        inet_ntop(AF_INET, &v4->sin_addr, host, sizeof host);
        len = snprintf(buf, size, "%s:%u", host, ntohs(v4->sin_port));
    } else {
        return WEFT_EINVAL;
    }
    return len < 0 || (size_t)len >= size ? WEFT_EINVAL : len;
}

int weft__fd_text(const weft__fd *f, bool peer, char *buf, size_t size) {
    weft_addr a;
    int err = weft__fd_hold(f);
    if (err) return err;
    err = weft__sock_name(f->fd, peer, &a.sa, &a.len);
    weft__fd_unhold(f);
    return err ? err : weft_addr_text(&a, buf, size);
}
