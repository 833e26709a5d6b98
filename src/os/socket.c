/* SPDX-License-Identifier: MIT */
#include "os/socket.h"

#include <fcntl.h>
#include <limits.h>
#include <net/if.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "os/os.h"

#ifndef RWF_NOWAIT
#define RWF_NOWAIT 0x8
#endif
#ifndef RWF_NOSIGNAL
#define RWF_NOSIGNAL 0x100 /* Linux 6.18; others refuse it */
#endif

/* The call, again if a signal came in between, as a result or -errno. */
#define RESULT(type, call)                                                                                                     \
    do {                                                                                                                       \
        if (weft__fault()) return -weft__fault_errno;                                                                          \
        type r_;                                                                                                               \
        do {                                                                                                                   \
            r_ = (call);                                                                                                       \
        } while (r_ < 0 && errno == EINTR);                                                                                    \
        return r_ < 0 ? -(type)errno : r_;                                                                                     \
    } while (0)

ssize_t weft__sock_recvfrom(int fd, void *buf, size_t n, int flags, struct sockaddr *from, socklen_t *len) {
    RESULT(ssize_t, recvfrom(fd, buf, n, flags | MSG_DONTWAIT, from, len));
}

ssize_t weft__sock_sendto(int fd, const void *buf, size_t n, int flags, const struct sockaddr *to, socklen_t len) {
    RESULT(ssize_t, sendto(fd, buf, n, flags | MSG_DONTWAIT | MSG_NOSIGNAL, to, len));
}

ssize_t weft__sock_recvmsg(int fd, struct msghdr *m, int flags) {
    RESULT(ssize_t, recvmsg(fd, m, flags | MSG_DONTWAIT));
}

ssize_t weft__sock_sendmsg(int fd, const struct msghdr *m, int flags) {
    RESULT(ssize_t, sendmsg(fd, m, flags | MSG_DONTWAIT | MSG_NOSIGNAL));
}

int weft__sock_recvmmsg(int fd, struct mmsghdr *m, unsigned n, int flags) {
    RESULT(int, recvmmsg(fd, m, n, flags | MSG_DONTWAIT, NULL));
}

int weft__sock_sendmmsg(int fd, struct mmsghdr *m, unsigned n, int flags) {
    RESULT(int, sendmmsg(fd, m, n, flags | MSG_DONTWAIT | MSG_NOSIGNAL));
}

int weft__sock_accept(int fd, struct sockaddr *from, socklen_t *len) {
    RESULT(int, accept4(fd, from, len, SOCK_NONBLOCK | SOCK_CLOEXEC));
}

/* A connect that was interrupted goes on. */
int weft__sock_connect(int fd, const struct sockaddr *to, socklen_t len) {
    if (weft__fault()) return -weft__fault_errno;
    if (connect(fd, to, len) == 0) return 0;
    return errno == EINTR ? -EINPROGRESS : -errno;
}

int weft__sock_new(int family, int type, int protocol) {
    RESULT(int, socket(family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, protocol));
}

int weft__sock_bind(int fd, const struct sockaddr *at, socklen_t len) {
    RESULT(int, bind(fd, at, len));
}

int weft__sock_listen(int fd, int backlog) {
    RESULT(int, listen(fd, backlog));
}

int weft__sock_shutdown(int fd, int how) {
    RESULT(int, shutdown(fd, how));
}

int weft__sock_get(int fd, int level, int name, int *value) {
    socklen_t len = sizeof *value;
    *value = 0;
    RESULT(int, getsockopt(fd, level, name, value, &len));
}

int weft__sock_set(int fd, int level, int name, int value) {
    RESULT(int, setsockopt(fd, level, name, &value, sizeof value));
}

int weft__sock_name(int fd, bool peer, struct sockaddr_storage *out, socklen_t *len) {
    *len = sizeof *out;
    memset(out, 0, sizeof *out);
    RESULT(int, peer ? getpeername(fd, (struct sockaddr *)out, len) : getsockname(fd, (struct sockaddr *)out, len));
}

_Static_assert(WEFT_ZONE_MAX >= IF_NAMESIZE && WEFT_ZONE_MAX > 10, "a name or a number fits");

int weft__sock_zone(const char *name, uint32_t *out) {
    char *end = NULL;
    if (weft__fault()) return -weft__fault_errno;
    if ((*out = if_nametoindex(name))) return 0;
    unsigned long number = name[0] >= '0' && name[0] <= '9' ? strtoul(name, &end, 10) : 0;
    if (number == 0 || number > UINT32_MAX || *end) return -ENODEV;
    *out = (uint32_t)number;
    return 0;
}

void weft__sock_zone_name(uint32_t index, char name[WEFT_ZONE_MAX]) {
    if (weft__fault() || !if_indextoname(index, name)) snprintf(name, WEFT_ZONE_MAX, "%u", index);
}

/* ---- pipes, terminals, files ---- */

int weft__desc_os_poll_all(struct pollfd *p, unsigned n, int64_t until) {
    if (weft__fault()) return -weft__fault_errno;
    for (;;) {
        int64_t left = until == 0 ? 0 : until - weft__os_now();
        if (left < 0) left = 0;
        struct timespec t = {(time_t)(left / WEFT_SECOND), (long)(left % WEFT_SECOND)};
        int ready = ppoll(p, n, until ? &t : NULL, NULL);
        if (ready >= 0 || errno != EINTR) return ready < 0 ? -errno : ready;
    }
}

int weft__desc_os_poll(int fd, int events, int64_t until) {
    struct pollfd p = {.fd = fd, .events = (short)events};
    int n = weft__desc_os_poll_all(&p, 1, until);
    return n <= 0 ? n : p.revents & POLLNVAL ? -EBADF : p.revents;
}

int weft__bell_open(void) {
    RESULT(int, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
}

void weft__bell_ring(int bell) {
    uint64_t one = 1;
    while (bell >= 0 && write(bell, &one, sizeof one) < 0 && errno == EINTR) continue;
}

void weft__bell_clear(int bell) {
    uint64_t count;
    while (bell >= 0 && read(bell, &count, sizeof count) < 0 && errno == EINTR) continue;
}

_Atomic bool weft__desc_os_looks;

/* The descriptor's own flags stay as they are: others may share them (a terminal with the shell). So the kernel is asked not to wait for this
 * call only; where it cannot be (EOPNOTSUPP), whether there is something is looked at first. */
/* By number, as below: the C library's functions are younger than some C libraries (musl 1.2.4). */
static ssize_t read_now(int fd, void *buf, size_t n) {
    struct iovec v = {buf, n};
    if (!weft__load(&weft__desc_os_looks, relaxed))
        return syscall(SYS_preadv2, fd, &v, 1, -1L, 0L, RWF_NOWAIT); /* a setting; orders nothing */
    errno = EOPNOTSUPP;
    return -1;
}

ssize_t weft__desc_os_read(int fd, void *buf, size_t n, bool waits) {
    if (weft__fault()) return -weft__fault_errno;
    ssize_t r = waits ? -1 : read_now(fd, buf, n);
    if (r >= 0) return r;
    if (!waits && errno != EOPNOTSUPP && errno != ENOSYS && errno != EINTR) return -errno;
    int ready = waits ? POLLIN : weft__desc_os_poll(fd, POLLIN, 1);
    if (ready <= 0) return ready < 0 ? ready : -EAGAIN;
    do {
        r = read(fd, buf, n);
    } while (r < 0 && errno == EINTR);
    return r < 0 ? -(ssize_t)errno : r;
}

static ssize_t write_now(int fd, const void *buf, size_t n, int flags) {
    struct iovec v = {(void *)(uintptr_t)buf, n};
    if (weft__load(&weft__desc_os_looks, relaxed)) return -EOPNOTSUPP; /* as above */
    ssize_t r = syscall(SYS_pwritev2, fd, &v, 1, -1L, 0L, flags);
    return r >= 0 ? r : errno == ENOSYS || errno == EINTR ? -EOPNOTSUPP : -errno;
}

/* It may be a socket, though it was none when it was looked at last: a write to that must not raise
 * SIGPIPE. */
static ssize_t write_quietly(int fd, const void *buf, size_t n) {
    ssize_t r = write_now(fd, buf, n, RWF_NOWAIT | RWF_NOSIGNAL);
    if (r != -EOPNOTSUPP) return r;
    r = weft__sock_send(fd, buf, n, 0);
    return r == -ENOTSOCK ? write_now(fd, buf, n, RWF_NOWAIT) : r;
}

ssize_t weft__desc_os_write(int fd, const void *buf, size_t n, bool waits) {
    if (weft__fault()) return -weft__fault_errno;
    ssize_t r = waits ? -EOPNOTSUPP : write_quietly(fd, buf, n);
    if (r != -EOPNOTSUPP) return r;
    int ready = waits ? POLLOUT : weft__desc_os_poll(fd, POLLOUT, 1);
    if (ready <= 0) return ready < 0 ? ready : -EAGAIN;
    if (!waits && n > PIPE_BUF) n = PIPE_BUF; /* a pipe with room has room for so much; more would wait */
    do {
        r = write(fd, buf, n);
    } while (r < 0 && errno == EINTR);
    return r < 0 ? -(ssize_t)errno : r;
}

int weft__desc_os_nonblock(int fd) {
    if (weft__fault()) return -weft__fault_errno;
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0) return -errno;
    if (flags & O_NONBLOCK) return 0;
    return fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ? -errno : 0;
}

int weft__desc_os_twin(int fd) {
    RESULT(int, fcntl(fd, F_DUPFD_CLOEXEC, 0));
}

/* Linux frees the number even if it says EINTR. */
int weft__desc_os_close(int fd) {
    return close(fd) < 0 && errno != EINTR ? -errno : 0;
}

int weft__desc_os_unlink(const char *path) {
    RESULT(int, unlink(path));
}

int weft__desc_os_lstat(const char *path, struct stat *out) {
    RESULT(int, lstat(path, out));
}

int weft__desc_os_chmod(const char *path, mode_t mode) {
    RESULT(int, chmod(path, mode));
}

int weft__desc_os_cwd(char *buf, size_t size) {
    RESULT(int, getcwd(buf, size) ? 0 : -1);
}
