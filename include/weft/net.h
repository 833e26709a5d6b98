/* SPDX-License-Identifier: MIT */
/* Listeners, connections, datagrams, names.
 *
 * An address is text: "127.0.0.1:8080", "[::1]:0", "[fe80::1%eth0]:80" (a link-local one, with its zone), "example.org:443", ":80" (any address of this
 * machine), "unix:/path", "unix:@name" (a name without a file). A port is a number from 0 to 65535, or the name of a service; port 0 lets the kernel choose
 * one, and weft_listener_addr tells which. There are no blanks in an address, other than in a path.
 *
 * What fails returns an error as everywhere: -errno, or WEFT_E…. weft_net_error has the sentence: "dial 127.0.0.1:81: Connection refused".
 * No operation raises SIGPIPE. Closing a connection or listener ends every operation on it with WEFT_ECLOSED; it is the last call that its
 * owner makes with it, and those who are still inside are waited for by the runtime, not by the caller (who may come later has a reference of his
 * own). Several tasks may use a connection at once: its reads, and its writes, take turns, each a whole operation. */
#ifndef WEFT_NET_H
#define WEFT_NET_H

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <weft/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_listener weft_listener;
typedef struct weft_conn weft_conn;
typedef struct weft_udp weft_udp;

enum { WEFT_ADDR_MAX = 128 }; /* room for any address as text, its end included */

/* All zero: the defaults. */
typedef struct weft_net_opts {
    int backlog;     /* of a listener; 0: 4096, or what the kernel allows */
    bool reuse_port; /* several listeners, or processes, share the port (SO_REUSEPORT) */
    bool ipv6_only;  /* a listener on [::] takes no IPv4 */
    bool delay;      /* small writes may wait for more (Nagle's algorithm); by default they do not */
    int send_buffer; /* bytes; 0: the kernel's choice */
    int recv_buffer; /* likewise */
    int keep_alive;  /* seconds of silence after which the peer is asked whether it is there; 0: never */
    int mode;        /* of a Unix listener's file, e.g. 0600; 0: as the umask says */
} weft_net_opts;

/* Returns why the last listen, dial, adopt, bind or resolve that failed in this task or thread did, as a
 * sentence; "" if none has. Stays until the next such failure there. */
WEFT_API const char *weft_net_error(void);

/* ---- listeners ---- */

/* Listens at the address, TCP or Unix. A file at a Unix address is replaced only if it is a
 * socket that refuses connections, as a process that was killed leaves it; any other file gives
 * -EADDRINUSE. WEFT_EINVAL: no address. -EADDRINUSE, … */
WEFT_API int weft_tcp_listen(weft_listener **out, const char *addr, const weft_net_opts *opts);
/* The next connection. Several tasks may accept from one listener: they are served in turn. When the process has no descriptors or memory for another
 * (EMFILE, …) it waits and tries again, and weft_stats.accept_waits counts it. WEFT_ECLOSED, WEFT_ETIMEDOUT, WEFT_ECANCELED, WEFT_EAGAIN, WEFT_ENOMEM. */
WEFT_API int weft_accept(weft_listener *l, weft_conn **out, weft_deadline deadline);
/* Where it listens, as text. Its length; WEFT_EINVAL: it does not fit; WEFT_ECLOSED. */
WEFT_API int weft_listener_addr(weft_listener *l, char *buf, size_t size);
/* Returns its descriptor, which stays the listener's; WEFT_ECLOSED. */
WEFT_API int weft_listener_fd(weft_listener *l);
/* Ends it and every accept in this process, and gives the owner's reference up. Waits until no
 * call with its descriptor is under way, none of which blocks: the address is free when it
 * returns. Another process that has the socket, by fork or as a passed descriptor, goes on
 * accepting, and keeps the address. A Unix listener's file is removed if it is still the one
 * that this listener made, and no process has the socket. NULL: nothing happens. 0, or -errno of
 * close(2). */
WEFT_API int weft_listener_close(weft_listener *l);
/* Ends listening in every process that has the socket: accepts end with WEFT_ECLOSED, and
 * clients are refused. (accept(2) gives EINVAL, or if it must not wait and the listener is a
 * Unix one, EAGAIN; poll(2) gives POLLHUP.) The listener has to be closed all the same; its file
 * is removed then, whatever other processes have. */
WEFT_API void weft_listener_shutdown(weft_listener *l);
/* For others than the owner: with a reference they may use it also when it has been closed, and get WEFT_ECLOSED. */
WEFT_API weft_listener *weft_listener_ref(weft_listener *l);
/* Gives such a reference up; NULL: nothing happens. */
WEFT_API void weft_listener_unref(weft_listener *l);

/* ---- connections ---- */

/* Connects. A name is looked up, and its addresses are tried by turns, IPv6 first, a quarter of a second apart or as soon as one has failed; the
 * first that answers is taken. WEFT_EINVAL: no address, which weft_net_error explains; WEFT_ENOHOST: the name is unknown; -ECONNREFUSED, …; WEFT_ETIMEDOUT, WEFT_ECANCELED. */
WEFT_API int weft_dial(weft_conn **out, const char *addr, weft_deadline deadline);
/* The same with options. */
WEFT_API int weft_dial_opts(weft_conn **out, const char *addr, const weft_net_opts *opts, weft_deadline deadline);
/* Makes a connection of a connected stream socket that other code has made. From now on the
 * descriptor is the connection's, which sets O_NONBLOCK. -ENOTSOCK, -ENOTCONN, …; WEFT_ENOMEM;
 * on an error it stays the caller's. */
WEFT_API int weft_conn_adopt(weft_conn **out, int fd);
/* Does the opposite: ends the connection as weft_conn_close does, but leaves its descriptor open
 * and returns it. Waits until no call with it is under way, none of which blocks. WEFT_ELIMIT:
 * the connection has bytes that were read ahead, which would be lost; it is unchanged, and still
 * the caller's. WEFT_ECLOSED. */
WEFT_API int weft_conn_release(weft_conn *c);
/* Does the same, and hands over the bytes that were read ahead: puts them into buf, which has
 * room for n, and their number into *got (which may be NULL). WEFT_ELIMIT: there are *got, more
 * than n; the connection is unchanged. */
WEFT_API int weft_conn_release_with(weft_conn *c, void *buf, size_t n, size_t *got);
/* Returns how many bytes the next read gets without asking the kernel: those that
 * weft_conn_read_until has read ahead. With several readers it may have changed already; bytes of a
 * weft_conn_read_until that waits for more are not counted. */
WEFT_API size_t weft_conn_buffered(weft_conn *c);
/* Waits until the connection is ready for one of `events`, WEFT_READABLE or WEFT_WRITABLE or
 * both (io.h), and returns those it is ready for, as weft_fd_wait does. Bytes that were read
 * ahead count as readable, and a side that is broken as ready: its next operation fails at once.
 * WEFT_EINVAL: no event, or an unknown one; WEFT_ECLOSED. */
WEFT_API int weft_conn_wait(weft_conn *c, int events, weft_deadline deadline);
/* Reads at least one byte, as many as there are and fit. Returns their number; 0: the peer has
 * ended its side, or n is 0, for which nothing is waited for. */
WEFT_API ssize_t weft_conn_read(weft_conn *c, void *buf, size_t n, weft_deadline deadline);
/* Reads n bytes. WEFT_EEOF: the stream ended before. After an error the first *got bytes are in
 * the buffer, and the caller's. If `got` is NULL, and some had been read, they are lost: the
 * reading side is broken, and later reads fail with WEFT_EBROKEN. */
WEFT_API ssize_t weft_conn_read_full(weft_conn *c, void *buf, size_t n, size_t *got, weft_deadline deadline);
/* Reads up to and including the byte `end`, at most n bytes. Returns their number; 0: the stream
 * has ended, with nothing before its end. What comes behind `end` stays in the connection.
 * WEFT_ELIMIT: n bytes were read (*got), and it is not among them. WEFT_EEOF: the stream ended
 * before it; *got bytes are in the buffer, or with `got` NULL they stay in the connection. After
 * any other error (WEFT_ETIMEDOUT, WEFT_ECANCELED, WEFT_ENOMEM, …) nothing was consumed: the
 * next read begins with the same bytes, and what is in the buffer says nothing. The connection
 * keeps up to n bytes, or 4096, until they are asked for. */
WEFT_API ssize_t weft_conn_read_until(weft_conn *c, void *buf, size_t n, char end, size_t *got, weft_deadline deadline);
/* All n bytes, or an error. If it ended in the middle, the peer has a part: the connection is broken, and later writes fail with WEFT_EBROKEN. */
WEFT_API ssize_t weft_conn_write(weft_conn *c, const void *buf, size_t n, weft_deadline deadline);
/* At least one byte: how many. */
WEFT_API ssize_t weft_conn_write_some(weft_conn *c, const void *buf, size_t n, weft_deadline deadline);
/* All bytes of all pieces, as weft_conn_write. At most 1024 pieces: WEFT_EINVAL. */
WEFT_API ssize_t weft_conn_writev(weft_conn *c, const struct iovec *v, int n, weft_deadline deadline);
/* Ends one side, SHUT_WR (the peer's reads end), SHUT_RD or SHUT_RDWR; the other goes on. 0 or -errno. */
WEFT_API int weft_conn_shutdown(weft_conn *c, int how);
/* Ends it, and every operation on it, and gives the owner's reference up. NULL: nothing happens. 0, or -errno of close(2). */
WEFT_API int weft_conn_close(weft_conn *c);
/* For others than the owner: with a reference they may use it also when it has been closed, and get WEFT_ECLOSED. */
WEFT_API weft_conn *weft_conn_ref(weft_conn *c);
/* Gives such a reference up; NULL: nothing happens. */
WEFT_API void weft_conn_unref(weft_conn *c);
/* Returns its descriptor, which stays the connection's; WEFT_ECLOSED. */
WEFT_API int weft_conn_fd(weft_conn *c);
/* The addresses of both ends, as text. Their length; WEFT_EINVAL: it does not fit; WEFT_ECLOSED; -errno. */
WEFT_API int weft_conn_peer(weft_conn *c, char *buf, size_t size);
WEFT_API int weft_conn_local(weft_conn *c, char *buf, size_t size);

/* ---- names ---- */

typedef struct weft_addr {
    struct sockaddr_storage sa;
    socklen_t len;
} weft_addr;

enum { WEFT_ADDRS_MAX = 32 };

typedef struct weft_addrs {
    int count;
    weft_addr at[WEFT_ADDRS_MAX];
} weft_addrs;

/* The addresses of a host and a service (a port), each a name or a number, by the system's own ways (hosts file, DNS), on a thread beside the
 * workers. Numbers need no thread. WEFT_ENOHOST: there is no such host; WEFT_EINVAL: no such service, or no port; WEFT_EAGAIN: not to be known now; WEFT_ETIMEDOUT, WEFT_ECANCELED, WEFT_ENOMEM. */
WEFT_API int weft_resolve(const char *host, const char *service, weft_addrs *out, weft_deadline deadline);
/* An address as text, "127.0.0.1:80", "[::1]:80", "[fe80::1%eth0]:80", "unix:/path". Its length;
 * WEFT_EINVAL: it does not fit. */
WEFT_API int weft_addr_text(const weft_addr *a, char *buf, size_t size);

/* ---- datagrams ---- */

/* A UDP socket at the address, which is numeric, or a name that the hosts file knows. */
WEFT_API int weft_udp_bind(weft_udp **out, const char *addr, const weft_net_opts *opts);
WEFT_API int weft_udp_addr(weft_udp *u, char *buf, size_t size);
WEFT_API int weft_udp_fd(weft_udp *u);
WEFT_API int weft_udp_close(weft_udp *u);
/* One datagram, whole: its length. */
WEFT_API ssize_t weft_udp_sendto(weft_udp *u, const void *buf, size_t n, const weft_addr *to, weft_deadline deadline);
/* One datagram: its length; of a longer one the rest is lost. `from` may be NULL. */
WEFT_API ssize_t weft_udp_recvfrom(weft_udp *u, void *buf, size_t n, weft_addr *from, weft_deadline deadline);

typedef struct weft_datagram {
    void *data;
    size_t size; /* of the buffer; to be sent: of the datagram */
    size_t len;  /* received */
    weft_addr peer;
} weft_datagram;

/* Several at once, with one system call where possible: how many were received, at least one; or sent. n: at most 64 are used. */
WEFT_API int weft_udp_recv_batch(weft_udp *u, weft_datagram *d, int n, weft_deadline deadline);
WEFT_API int weft_udp_send_batch(weft_udp *u, const weft_datagram *d, int n, weft_deadline deadline);

#ifdef __cplusplus
}
#endif
#endif
