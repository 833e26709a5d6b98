/* SPDX-License-Identifier: MIT */
/* The network: the internal side. */
#ifndef WEFT_SRC_NET_H
#define WEFT_SRC_NET_H

#include <sys/types.h>

#include "io/desc.h"
#include "io/op.h"

#include <weft/net.h>

/* ---- addresses (addr.c) ---- */

/* Why an address is wrong, or was not found, as part of a sentence; "": the error says it all. */
typedef struct weft__why {
    char text[160];
} weft__why;

/* What an address text says. */
typedef struct weft__target {
    bool is_unix;
    weft_addr unix_addr;
    char host[256]; /* "" = any */
    char port[32];
    weft__why why; /* it could not be parsed or found */
} weft__target;

/* 0 or WEFT_EINVAL. */
int weft__addr_parse(const char *text, weft__target *out);
/* The addresses of a target; a listener's if `passive`. May park, unless they are numbers. */
int weft__addr_find(weft__target *t, bool passive, weft_addrs *out, weft_deadline deadline);
/* Without names. 0; WEFT_EAGAIN: it is one; WEFT_EINVAL. */
int weft__addr_numeric(const char *host, const char *service, bool passive, weft_addrs *out, weft__why *why);
/* As weft_resolve. */
int weft__resolve(const char *host, const char *service, weft_addrs *out, weft_deadline deadline, weft__why *why);
/* Notes why. Returns WEFT_EINVAL. */
int weft__addr_wrong(weft__why *why, const char *fmt, ...) WEFT_PRINTF(2, 3);
/* Of one that is closed: WEFT_ECLOSED. */
int weft__fd_text(const weft__fd *f, bool peer, char *buf, size_t size);

/* ---- files of Unix listeners (sockfile.c) ---- */

typedef struct weft__sockfile {
    char *path; /* absolute, allocated; NULL: there is no file */
    dev_t device;
    ino_t inode;
} weft__sockfile;

/* Binds the socket to the address. If that makes a file, notes which, and gives it the mode
 * unless that is 0. A socket's file that was left behind is replaced. Returns 0 or an error,
 * after which no file is left. The caller frees `path`. */
int weft__sockfile_bind(weft__sockfile *out, int fd, const weft_addr *a, int mode);
/* Returns whether the path leads to the file that was made. Certain while the socket is open. */
bool weft__sockfile_is_ours(const weft__sockfile *s);
/* Returns whether a socket is bound to what the path leads to, or may be. */
bool weft__sockfile_is_served(const weft__sockfile *s);
void weft__sockfile_remove(const weft__sockfile *s);

/* ---- errors (error.c) ---- */

/* Notes "what addr: why" for weft_net_error, and returns err. `why`: NULL or "" = the error's own
 * sentence. */
int weft__net_failed(int err, const char *what, const char *addr, const weft__why *why);
void weft__net_errors_forget(void);
void weft__names_forget(void);

/* ---- connections (conn.c) ----
 *
 * A connection is a stack of layers: each has operations, and calls those of the one below. Today there is one, the socket; TLS will be another, put
 * in between by whoever makes the connection. An operation of a layer is called with the side's turn held. */
typedef struct weft__layer weft__layer;
struct weft__layer {
    /* As a system call: at least one byte, 0 = the end, an error; parks. *mine as in weft__op_turn. */
    ssize_t (*read)(weft_conn *c, void *buf, size_t n, weft_deadline deadline, bool *mine);
    ssize_t (*write)(weft_conn *c, struct iovec *v, int n, weft_deadline deadline, bool *mine);
    int (*shutdown)(weft_conn *c, int how);
    /* Before the descriptor is closed; must not wait. */
    void (*end)(weft_conn *c);
    /* Returns how many bytes the next reads get without the layer below; NULL: never any. With
     * the turn of reading, or under the descriptor's lock while no reader is in the middle of a
     * call. */
    size_t (*buffered)(weft_conn *c);
};

/* Bytes that were read, and not asked for yet: only after weft_conn_read_until. */
typedef struct weft__ahead {
    size_t room, at, have; /* of `bytes`: all, where the first byte is, how many there are */
    char bytes[];
} weft__ahead;

struct weft_conn {
    _Alignas(WEFT_LINE) weft__fd f; /* the first: select_fd.c knows a connection by it */
    _Atomic uint32_t users;         /* the owner, and operations inside; whoever takes it to 0 frees it */
    _Atomic uint8_t broken;         /* WEFT_READY_…: sides of which an operation ended in the middle */
    _Atomic bool reading;           /* an operation uses `ahead`, or a layer: N5 */
    _Atomic uint8_t releasing;      /* releases that look at them */
    const weft__layer *layer;       /* the topmost; fixed */
    void *own;                      /* the layer's */
    weft__ahead *ahead;             /* NULL: none; under the turn of reading */
    _Atomic size_t buffered;        /* as weft_conn_buffered tells; written under the turn of reading */
};

_Static_assert(sizeof(weft_conn) == WEFT_LINE, "one line for each connection");
_Static_assert(offsetof(weft_conn, f) == 0, "a select finds it");

/* A connection of a descriptor that is its own from now on. */
int weft__conn_new(weft_conn **out, int fd);
/* What options say about a socket of ours. 0 or -errno. */
int weft__net_set(int fd, int family, const weft_net_opts *opts);

extern _Atomic uint64_t weft__accept_waits;

#endif
