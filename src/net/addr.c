/* SPDX-License-Identifier: MIT */
/* Addresses: from text and to text. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/un.h>

#include "net/net.h"

#define FORM "an address is host:port or unix:/path"

int weft__addr_wrong(weft__why *why, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vsnprintf(why->text, sizeof why->text, fmt, args);
    va_end(args);
    return WEFT_EINVAL;
}

/* ---- from text ---- */

static int parse_unix(const char *path, weft__target *out) {
    struct sockaddr_un *u = (struct sockaddr_un *)(void *)&out->unix_addr.sa;
    size_t n = strlen(path);
    if (n == 0) return weft__addr_wrong(&out->why, "%s", FORM);
    if (n >= sizeof u->sun_path)
        return weft__addr_wrong(&out->why, "the path has %zu bytes, and may have %zu", n, sizeof u->sun_path - 1);
    u->sun_family = AF_UNIX;
    memcpy(u->sun_path, path, n + 1);
    bool abstract = path[0] == '@';
    if (abstract) u->sun_path[0] = '\0';
    out->unix_addr.len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + !abstract);
    out->is_unix = true;
    return 0;
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}
static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Blanks, and what nobody can see. */
static bool has_blank(const char *text) {
    for (; *text; text++)
        if ((unsigned char)*text <= ' ' || *text == 127) return true;
    return false;
}

/* Reads a port, "80", or leaves the name of a service, "https", alone: WEFT_EAGAIN. */
static int port_of(const char *text, in_port_t *out, weft__why *why) {
    uint32_t port = 0;
    size_t digits = 0, letters = 0, others = 0;
    for (const char *c = text; *c; c++) {
        if (is_digit(*c) && port <= UINT16_MAX) port = 10 * port + (uint32_t)(*c - '0');
        digits += is_digit(*c);
        letters += is_letter(*c);
        others += !is_digit(*c) && !is_letter(*c) && !(*c == '-' && c != text);
    }
    if (others || digits + letters == 0)
        return weft__addr_wrong(why, "\"%s\" is no port: a number from 0 to 65535, or the name of a service", text);
    if (letters) return WEFT_EAGAIN;
    if (port > UINT16_MAX || digits != strlen(text)) return weft__addr_wrong(why, "port %s is out of range 0–65535", text);
    *out = htons((uint16_t)port);
    return 0;
}

/* "host:port", "[host]:port", ":port". */
int weft__addr_parse(const char *text, weft__target *out) {
    in_port_t port;
    memset(out, 0, sizeof *out);
    if (!text) return weft__addr_wrong(&out->why, "%s", FORM);
    if (strncmp(text, "unix:", 5) == 0) return parse_unix(text + 5, out);
    if (has_blank(text)) return weft__addr_wrong(&out->why, "an address has no blanks");
    const char *host = text, *colon = strrchr(text, ':'), *end = colon;
    if (!colon || !colon[1]) return weft__addr_wrong(&out->why, "%s", FORM);
    if (text[0] == '[') {
        host = text + 1;
        end = colon - 1;
        if (*end != ']' || end <= host) return weft__addr_wrong(&out->why, "%s", FORM);
    } else if (memchr(text, ':', (size_t)(colon - text))) {
        return weft__addr_wrong(&out->why, "%s, and one of IPv6 [address]:port", FORM); /* which of them is the port? */
    }
    size_t n = (size_t)(end - host), p = strlen(colon + 1);
    if (n >= sizeof out->host || p >= sizeof out->port) return weft__addr_wrong(&out->why, "its host or port is too long");
    if (n == 1 && host[0] == '*') return weft__addr_wrong(&out->why, "every address is \":%s\", without a host", colon + 1);
    memcpy(out->host, host, n);
    memcpy(out->port, colon + 1, p);
    int err = port_of(out->port, &port, &out->why);
    return err == WEFT_EAGAIN ? 0 : err;
}

/* Such an address means something on one link only: its zone says which. */
static bool has_zone(const struct in6_addr *a) {
    return IN6_IS_ADDR_LINKLOCAL(a) || IN6_IS_ADDR_MC_LINKLOCAL(a);
}

/* "fe80::1%eth0", "fe80::1%2". WEFT_EAGAIN: it is no number. */
static int ipv6_of(const char *host, struct sockaddr_in6 *out, weft__why *why) {
    char address[INET6_ADDRSTRLEN];
    const char *percent = strchr(host, '%');
    size_t n = percent ? (size_t)(percent - host) : strlen(host);
    if (n >= sizeof address) return WEFT_EAGAIN;
    memcpy(address, host, n);
    address[n] = '\0';
    if (inet_pton(AF_INET6, address, &out->sin6_addr) != 1) return WEFT_EAGAIN;
    if (!percent) return 0;
    if (!has_zone(&out->sin6_addr)) return weft__addr_wrong(why, "%s is not link-local, and has no zone", address);
    int err = weft__sock_zone(percent + 1, &out->sin6_scope_id);
    return err == -ENODEV ? weft__addr_wrong(why, "there is no network interface %s", percent + 1) : err;
}

static void add(weft_addrs *out, const void *sa, socklen_t len) {
    if (out->count == WEFT_ADDRS_MAX) return;
    weft_addr *a = &out->at[out->count++];
    memset(a, 0, sizeof *a);
    memcpy(&a->sa, sa, len);
    a->len = len;
}

int weft__addr_numeric(const char *host, const char *service, bool passive, weft_addrs *out, weft__why *why) {
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    out->count = 0;
    int err = port_of(service, &v4.sin_port, why);
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
    } else if (!(err = ipv6_of(host, &v6, why))) {
        add(out, &v6, sizeof v6);
    }
    return err;
}

int weft__addr_find(weft__target *t, bool passive, weft_addrs *out, weft_deadline deadline) {
    out->count = 0;
    if (t->is_unix) {
        out->at[0] = t->unix_addr;
        out->count = 1;
        return 0;
    }
    int err = weft__addr_numeric(t->host, t->port, passive, out, &t->why);
    return err == WEFT_EAGAIN ? weft__resolve(t->host, t->port, out, deadline, &t->why) : err;
}

/* ---- to text ---- */

static int unix_text(const weft_addr *a, char *buf, size_t size) {
    const struct sockaddr_un *u = (const struct sockaddr_un *)(const void *)&a->sa;
    size_t at = offsetof(struct sockaddr_un, sun_path), n = a->len > at ? a->len - at : 0;
    bool abstract = n > 0 && u->sun_path[0] == '\0';
    if (!abstract) n = strnlen(u->sun_path, n);
    int len = snprintf(buf, size, "unix:%s%.*s", abstract ? "@" : "", (int)(n - abstract), u->sun_path + abstract);
    return len < 0 || (size_t)len >= size ? WEFT_EINVAL : len;
}

int weft_addr_text(const weft_addr *a, char *buf, size_t size) {
    char host[INET6_ADDRSTRLEN] = "?", zone[1 + WEFT_ZONE_MAX] = "";
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)&a->sa;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)&a->sa;
    int len;
    if (a->sa.ss_family == AF_UNIX) return unix_text(a, buf, size);
    if (a->sa.ss_family == AF_INET6) {
        inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof host);
        if (v6->sin6_scope_id && has_zone(&v6->sin6_addr)) {
            zone[0] = '%';
            weft__sock_zone_name(v6->sin6_scope_id, zone + 1);
        }
        len = snprintf(buf, size, "[%s%s]:%u", host, zone, ntohs(v6->sin6_port));
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
