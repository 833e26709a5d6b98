/* SPDX-License-Identifier: MIT */
/* Addresses: which texts are some, and what is said of those that are none. */
#include <arpa/inet.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include "api/common.h"

/* ---- names: the C library's look-up is ours here ---- */

int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **out) {
    (void)hints;
    if (strcmp(host, "nosuch.invalid") == 0) return EAI_NONAME;
    if (strcmp(host, "later.invalid") == 0) return EAI_AGAIN;
    if (strcmp(service, "nosuch") == 0) return EAI_SERVICE;
    struct sockaddr_in *a = calloc(1, sizeof *a);
    *out = calloc(1, sizeof **out);
    *a = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(443), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    **out = (struct addrinfo){.ai_family = AF_INET, .ai_addr = (struct sockaddr *)a, .ai_addrlen = sizeof *a};
    return 0;
}
void freeaddrinfo(struct addrinfo *a) {
    free(a->ai_addr);
    free(a);
}

/* ---- what is no address ---- */

/* Each way to give the address: the error, and the sentence behind "verb address: ". */
static void refused(const char *addr, int want, const char *why) {
    weft_listener *l;
    weft_conn *c;
    weft_udp *u;
    char text[512];
    CHECK_EQ(weft_tcp_listen(&l, addr, NULL), want);
    snprintf(text, sizeof text, "listen %s: %s", addr, why);
    CHECK_STR(weft_net_error(), text);
    CHECK_EQ(weft_dial(&c, addr, WEFT_FOREVER), want);
    snprintf(text, sizeof text, "dial %s: %s", addr, why);
    CHECK_STR(weft_net_error(), text);
    if (strncmp(addr, "unix:", 5) == 0) return;
    CHECK_EQ(weft_udp_bind(&u, addr, NULL), want);
    snprintf(text, sizeof text, "bind %s: %s", addr, why);
    CHECK_STR(weft_net_error(), text);
}

static int wrong_ports(void *arg) {
    (void)arg;
    static const char *const above[] = {"65536", "70000", "99999", "4294967297", "18446744073709551617", "00065536"};
    static const char *const none[] = {"+80", "-80", "-", "80.", "8_0", "%38"};
    char addr[64], why[128];
    for (size_t i = 0; i < COUNT(above); i++) {
        snprintf(addr, sizeof addr, i % 2 ? "[::1]:%s" : "127.0.0.1:%s", above[i]);
        snprintf(why, sizeof why, "port %s is out of range 0–65535", above[i]);
        refused(addr, WEFT_EINVAL, why);
    }
    for (size_t i = 0; i < COUNT(none); i++) {
        snprintf(addr, sizeof addr, "127.0.0.1:%s", none[i]);
        snprintf(why, sizeof why, "\"%s\" is no port: a number from 0 to 65535, or the name of a service", none[i]);
        refused(addr, WEFT_EINVAL, why);
    }
    weft_addrs at;
    CHECK_EQ(weft_resolve("127.0.0.1", "65535", &at, WEFT_FOREVER), 0);
    CHECK_EQ(weft_addr_text(&at.at[0], addr, sizeof addr), 15);
    CHECK_STR(addr, "127.0.0.1:65535");
    CHECK_EQ(weft_resolve("127.0.0.1", "70000", &at, WEFT_FOREVER), WEFT_EINVAL);
    CHECK_STR(weft_net_error(), "resolve 127.0.0.1: port 70000 is out of range 0–65535");
    CHECK_EQ(weft_resolve("a.host", "70000", &at, WEFT_FOREVER), WEFT_EINVAL); /* nor with a name */
    CHECK_EQ(weft_resolve("127.0.0.1", "", &at, WEFT_FOREVER), WEFT_EINVAL);
    return 0;
}
TEST(net_addr, a_port_is_a_number_up_to_65535_or_a_service) { run_each(wrong_ports); }

static int blanks(void *arg) {
    (void)arg;
    static const char *const wrong[] = {"127.0.0.1: 80",  " 127.0.0.1:80", "127.0.0.1:80 ", "127.0.0.1 :80", "a host:80",
                                        "127.0.0.1:80\n", "\t:80",         "[::1 ]:80",     "127.0.0.1:8 0"};
    weft_addrs at;
    for (size_t i = 0; i < COUNT(wrong); i++) refused(wrong[i], WEFT_EINVAL, "an address has no blanks");
    CHECK_EQ(weft_resolve("127.0.0.1", " 80", &at, WEFT_FOREVER), WEFT_EINVAL);
    CHECK_EQ(weft_resolve("127.0.0.1 ", "80", &at, WEFT_FOREVER), WEFT_EINVAL);
    return 0;
}
TEST(net_addr, an_address_has_no_blanks) { run_each(blanks); }

static int forms(void *arg) {
    (void)arg;
    static const char *const wrong[] = {"",      "8080", "127.0.0.1", "127.0.0.1:", "localhost",
                                        "[::1]", "[]:1", "[::1:80",   "unix:"};
    char path[200];
    for (size_t i = 0; i < COUNT(wrong); i++) refused(wrong[i], WEFT_EINVAL, "an address is host:port or unix:/path");
    refused("http://127.0.0.1:80/", WEFT_EINVAL, "an address is host:port or unix:/path, and one of IPv6 [address]:port");
    refused("::1:80", WEFT_EINVAL, "an address is host:port or unix:/path, and one of IPv6 [address]:port");
    memset(path, 'p', sizeof path);
    memcpy(path, "unix:/", 6);
    path[sizeof path - 1] = '\0';
    refused(path, WEFT_EINVAL, "the path has 194 bytes, and may have 107");
    weft_conn *c;
    weft_udp *u;
    CHECK_EQ(weft_dial(&c, NULL, WEFT_FOREVER), WEFT_EINVAL);
    CHECK_STR(weft_net_error(), "dial (null): an address is host:port or unix:/path");
    CHECK_EQ(weft_udp_bind(&u, "unix:/x", NULL), WEFT_EINVAL);
    CHECK_STR(weft_net_error(), "bind unix:/x: a datagram socket's address is host:port");
    return 0;
}
TEST(net_addr, an_error_says_what_an_address_is) { run_each(forms); }

static int names(void *arg) {
    (void)arg;
    weft_conn *c;
    weft_addrs at;
    refused("nosuch.invalid:80", WEFT_ENOHOST, "no host named nosuch.invalid");
    refused("later.invalid:80", WEFT_EAGAIN, "the name later.invalid cannot be looked up now");
    refused("a.host:nosuch", WEFT_EINVAL, "no service named nosuch");
    CHECK_EQ(weft_resolve("nosuch.invalid", "80", &at, WEFT_FOREVER), WEFT_ENOHOST);
    CHECK_STR(weft_net_error(), "resolve nosuch.invalid: no host named nosuch.invalid");
    CHECK_STR(weft_strerror(WEFT_ENOHOST), "there is no host of that name");
    CHECK_EQ(weft_resolve("a.host", "https", &at, WEFT_FOREVER), 0);
    CHECK_EQ(at.count, 1);
    CHECK_EQ(weft_dial(&c, "unix:/nowhere/at/all", WEFT_FOREVER), -ENOENT);
    CHECK_STR(weft_net_error(), "dial unix:/nowhere/at/all: No such file or directory"); /* nothing of an earlier error */
    return 0;
}
TEST(net_addr, an_unknown_host_has_an_error_of_its_own) { run_each(names); }

/* ---- zones ---- */

static int zones(void *arg) {
    (void)arg;
    char lo[IF_NAMESIZE], text[WEFT_ADDR_MAX], want[WEFT_ADDR_MAX];
    weft_addrs at;
    if (!if_indextoname(1, lo)) test_skip("there is no network interface");
    snprintf(want, sizeof want, "fe80::1%%%s", lo);
    CHECK_EQ(weft_resolve(want, "80", &at, WEFT_FOREVER), 0);
    CHECK_EQ(at.count, 1);
    CHECK_EQ(((struct sockaddr_in6 *)(void *)&at.at[0].sa)->sin6_scope_id, 1);
    CHECK_GT(weft_addr_text(&at.at[0], text, sizeof text), 0);
    snprintf(want, sizeof want, "[fe80::1%%%s]:80", lo);
    CHECK_STR(text, want);
    CHECK_EQ(weft_resolve("ff02::1%1", "80", &at, WEFT_FOREVER), 0); /* by its number */
    CHECK_GT(weft_addr_text(&at.at[0], text, sizeof text), 0);
    snprintf(want, sizeof want, "[ff02::1%%%s]:80", lo);
    CHECK_STR(text, want);
    CHECK_EQ(weft_resolve("fe80::1%4000000", "80", &at, WEFT_FOREVER), 0); /* an interface that has gone */
    CHECK_GT(weft_addr_text(&at.at[0], text, sizeof text), 0);
    CHECK_STR(text, "[fe80::1%4000000]:80");
    CHECK_EQ(weft_resolve("fe80::1", "80", &at, WEFT_FOREVER), 0); /* without one */
    CHECK_GT(weft_addr_text(&at.at[0], text, sizeof text), 0);
    CHECK_STR(text, "[fe80::1]:80");
    refused("[fe80::1%nosuchzone]:80", WEFT_EINVAL, "there is no network interface nosuchzone");
    refused("[2001:db8::1%lo]:80", WEFT_EINVAL, "2001:db8::1 is not link-local, and has no zone");
    return 0;
}
TEST(net_addr, the_zone_of_a_link_local_address_is_kept) { run_each(zones); }

static int all_of_these(void *arg) {
    (void)arg;
    weft_listener *l;
    weft_conn *near, *far;
    char addr[WEFT_ADDR_MAX], *port;
    static const char *const good[] = {"127.0.0.1:0", "127.0.0.1:000", ":0"};
    for (size_t i = 0; i < COUNT(good); i++) {
        CHECK_EQ(weft_tcp_listen(&l, good[i], NULL), 0);
        CHECK_GT(weft_listener_addr(l, addr, sizeof addr), 0);
        port = strrchr(addr, ':'); /* ":1234" */
        CHECK_EQ(weft_dial(&near, port, WEFT_FOREVER), 0);
        CHECK_EQ(weft_accept(l, &far, WEFT_FOREVER), 0);
        CHECK_EQ(weft_conn_close(near) | weft_conn_close(far) | weft_listener_close(l), 0);
    }
    return 0;
}
TEST(net_addr, what_was_an_address_is_one) { run_each(all_of_these); }
