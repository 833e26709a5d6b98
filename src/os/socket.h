/* SPDX-License-Identifier: MIT */
/* System calls on descriptors. Each returns what the kernel returned, or -errno; each passes weft__fault; EINTR is handled here (the call is
 * made again). None of them waits, except where it is said. */
#ifndef WEFT_SRC_SOCKET_H
#define WEFT_SRC_SOCKET_H

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/base.h"
#include "os/os.h"
#include "os/sys.h"

/* Sockets: never waits, whatever the descriptor's flags; never raises SIGPIPE. */
WEFT_INLINE ssize_t weft__sock_recv(int fd, void *buf, size_t n, int flags) {
    long r;
    if (weft__fault()) return -weft__fault_errno;
    do {
        r = weft__sys_recv(fd, buf, n, flags | MSG_DONTWAIT);
    } while (unlikely(r == -EINTR));
    return r;
}
WEFT_INLINE ssize_t weft__sock_send(int fd, const void *buf, size_t n, int flags) {
    long r;
    if (weft__fault()) return -weft__fault_errno;
    do {
        r = weft__sys_send(fd, buf, n, flags | MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (unlikely(r == -EINTR));
    return r;
}
ssize_t weft__sock_recvfrom(int fd, void *buf, size_t n, int flags, struct sockaddr *from, socklen_t *len);
ssize_t weft__sock_sendto(int fd, const void *buf, size_t n, int flags, const struct sockaddr *to, socklen_t len);
ssize_t weft__sock_recvmsg(int fd, struct msghdr *m, int flags);
ssize_t weft__sock_sendmsg(int fd, const struct msghdr *m, int flags);
int weft__sock_recvmmsg(int fd, struct mmsghdr *m, unsigned n, int flags);
int weft__sock_sendmmsg(int fd, struct mmsghdr *m, unsigned n, int flags);
/* The descriptor is O_NONBLOCK, as are those that it gives. */
int weft__sock_accept(int fd, struct sockaddr *from, socklen_t *len);
/* Likewise. -EINPROGRESS: it goes on. */
int weft__sock_connect(int fd, const struct sockaddr *to, socklen_t len);
int weft__sock_new(int family, int type, int protocol); /* close-on-exec, O_NONBLOCK */
int weft__sock_bind(int fd, const struct sockaddr *at, socklen_t len);
int weft__sock_listen(int fd, int backlog);
int weft__sock_shutdown(int fd, int how);
int weft__sock_get(int fd, int level, int name, int *value); /* an int option */
int weft__sock_set(int fd, int level, int name, int value);
int weft__sock_name(int fd, bool peer, struct sockaddr_storage *out, socklen_t *len);
/* A network interface: its number, by its name or the number itself as text. 0; -ENODEV: there
 * is none. */
int weft__sock_zone(const char *name, uint32_t *out);
/* Its name, or its number as text if it has none. */
enum { WEFT_ZONE_MAX = 16 };
void weft__sock_zone_name(uint32_t index, char name[WEFT_ZONE_MAX]);

/* Whether there is something to read or room is looked at first, as where the kernel cannot be asked not to wait (a pipe before Linux 6.4). */
extern _Atomic bool weft__desc_os_looks;
/* Other descriptors: pipes, terminals, files. -EAGAIN: it would wait. `waits`: it may (a file, a device that cannot be asked). */
ssize_t weft__desc_os_read(int fd, void *buf, size_t n, bool waits);
ssize_t weft__desc_os_write(int fd, const void *buf, size_t n, bool waits);
int weft__desc_os_nonblock(int fd);
/* What the descriptor is ready for now, of `events` (POLLIN, …), waiting until the moment given: WEFT_POLL_NOW, 0 = for ever, or on the
 * monotonic clock. 0: nothing. -EBADF: there is no such descriptor. */
int weft__desc_os_poll(int fd, int events, int64_t until);
/* Polls several at once, into their `revents`; a negative number is left out. Returns how many are
 * ready; 0: the time has come; -errno. */
struct pollfd;
int weft__desc_os_poll_all(struct pollfd *p, unsigned n, int64_t until);
/* A descriptor that another thread makes ready, to end a poll. Returns its number or -errno. The
 * others do nothing with -1. */
int weft__bell_open(void);
void weft__bell_ring(int bell);
void weft__bell_clear(int bell);
/* Another number for the same, close-on-exec. */
int weft__desc_os_twin(int fd);
/* Frees the number, whatever it returns. May wait: for a socket with SO_LINGER, a file far away. */
int weft__desc_os_close(int fd);
int weft__desc_os_unlink(const char *path);
struct stat;
int weft__desc_os_lstat(const char *path, struct stat *out);
int weft__desc_os_chmod(const char *path, mode_t mode);
int weft__desc_os_cwd(char *buf, size_t size); /* the current directory, as text. 0 or -errno */

#endif
