/* SPDX-License-Identifier: MIT */
/* Linux's epoll, edge-triggered. Every descriptor is added once, for reading and writing together: what is not waited for costs nothing, since
 * a TCP socket tells that it can be written to only after it could not.
 *
 * Kicks come through an eventfd that is level-triggered, and that only the waiter with a time of its own empties (B3): a busy worker that looks
 * in passing sees it, and leaves it. Edge-triggered, such a worker took the kick that was meant for the sleeper. Where there is no eventfd (a filter)
 * they come through a pipe. WEFT_NO_EVENTFD=1 in the environment asks for it.
 *
 * The time-out is in nanoseconds where the kernel has epoll_pwait2 (5.11), else in milliseconds, rounded up (WEFT_NO_EPOLL_PWAIT2=1). */
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "os/os.h"
#include "poll/poll.h"

#define KICK UINT64_MAX
#ifndef SYS_epoll_pwait2
#define SYS_epoll_pwait2 441 /* the same everywhere */
#endif

static _Atomic bool coarse; /* no epoll_pwait2 here; set once */

static int control(weft__poller *p, int op, int fd, uint32_t events, uint64_t key) {
    if (weft__fault()) return -weft__fault_errno;
    struct epoll_event e = {.events = events, .data.u64 = key};
    return epoll_ctl(p->fd, op, fd, &e) < 0 ? -errno : 0;
}

/* Forgotten first: the child of a fork in between must not take it for ours (weft__poll_in_child), for somebody else may have the number. */
static void drop(int *fd) {
    int number = *fd;
    *fd = -1;
    weft__compiler_barrier();
    if (number >= 0) close(number);
}

static void epoll_shut(weft__poller *p) {
    if (p->kick_in == p->kick_fd) p->kick_in = -1;
    drop(&p->kick_in);
    drop(&p->kick_fd);
    drop(&p->fd);
}

static int kicks_by_pipe(weft__poller *p) {
    int ends[2];
    if (weft__fault()) return -weft__fault_errno;
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return -errno;
    p->kick_fd = ends[0];
    p->kick_in = ends[1];
    return 0;
}

static int open_kicks(weft__poller *p) {
    if (weft__env_on("WEFT_NO_EVENTFD")) return kicks_by_pipe(p);
    if (weft__fault()) return -weft__fault_errno;
    p->kick_fd = p->kick_in = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (p->kick_fd >= 0) return 0;
    return errno == ENOSYS || errno == EPERM ? kicks_by_pipe(p) : -errno;
}

static int epoll_open(weft__poller *p) {
    if (weft__env_on("WEFT_NO_EPOLL_PWAIT2")) weft__store(&coarse, true, relaxed); /* as in kernel_wait */
    p->kick_fd = p->kick_in = -1;
    p->fd = weft__fault() ? (errno = weft__fault_errno, -1) : epoll_create1(EPOLL_CLOEXEC);
    if (p->fd < 0) return -errno;
    int err = open_kicks(p);
    if (!err) err = control(p, EPOLL_CTL_ADD, p->kick_fd, EPOLLIN, KICK);
    if (err) epoll_shut(p);
    return err;
}

enum { EVENTS = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI };

static int epoll_add(weft__poller *p, int fd, uint64_t key) {
    return control(p, EPOLL_CTL_ADD, fd, EVENTS | (uint32_t)EPOLLET, key);
}

static int epoll_renew(weft__poller *p, int fd, uint64_t key) {
    return control(p, EPOLL_CTL_MOD, fd, EVENTS | (uint32_t)EPOLLET, key);
}

/* It cannot fail in a way that matters: what is left behind has a key that nobody knows any more. */
static void epoll_remove(weft__poller *p, int fd) {
    struct epoll_event none = {0};
    epoll_ctl(p->fd, EPOLL_CTL_DEL, fd, &none);
}

static int coarse_wait(int fd, struct epoll_event *e, int max, int64_t left) {
    int64_t ms = left < 0 ? -1 : (left + WEFT_MS - 1) / WEFT_MS;
    return epoll_wait(fd, e, max, ms > INT32_MAX ? INT32_MAX : (int)ms);
}

/* `left`: nanoseconds, negative = for ever. */
static int kernel_wait(int fd, struct epoll_event *e, int max, int64_t left) {
    if (left <= 0 || weft__load(&coarse, relaxed)) return coarse_wait(fd, e, max, left); /* a hint, set below */
    struct timespec t = {(time_t)(left / WEFT_SECOND), (long)(left % WEFT_SECOND)};
    int n = (int)syscall(SYS_epoll_pwait2, fd, e, max, &t, NULL, 0);
    if (n >= 0 || errno != ENOSYS) return n;
    weft__store(&coarse, true, relaxed);
    return coarse_wait(fd, e, max, left);
}

static uint32_t ready_of(uint32_t events) {
    uint32_t r = 0;
    if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR | EPOLLPRI)) r |= WEFT_READY_READ;
    if (events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) r |= WEFT_READY_WRITE;
    if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) r |= WEFT_READY_END;
    if (events & EPOLLPRI) r |= WEFT_READY_URGENT;
    return r;
}

static void empty(weft__poller *p) {
    uint64_t counts[64]; /* a pipe has one for each kick */
    while (read(p->kick_fd, counts, sizeof counts) > 0) {
    }
}

static int epoll_tell(weft__poller *p, weft__edge *out, int max, int64_t until, bool *kicked) {
    struct epoll_event e[WEFT_EDGES];
    int64_t left = until == 0 ? -1 : until == WEFT_POLL_NOW ? 0 : until - weft__os_now();
    if (until && left < 0) left = 0;
    *kicked = false;
    if (weft__fault()) return -weft__fault_errno;
    int n = kernel_wait(p->fd, e, max < WEFT_EDGES ? max : WEFT_EDGES, left), told = 0;
    if (n < 0) return errno == EINTR ? 0 : -errno;
    for (int i = 0; i < n; i++) {
        if (e[i].data.u64 == KICK)
            *kicked = true;
        else
            out[told++] = (weft__edge){e[i].data.u64, ready_of(e[i].events)};
    }
    if (*kicked && until != WEFT_POLL_NOW) empty(p); /* B3 */
    return told;
}

static void epoll_kick(weft__poller *p) {
    uint64_t one = 1;
    ssize_t n;
    do {
        n = write(p->kick_in, &one, sizeof one); /* EAGAIN: it is full of kicks already */
    } while (n < 0 && errno == EINTR);
}

const weft__backend weft__epoll = {.name = "epoll",
                                   .open = epoll_open,
                                   .close = epoll_shut,
                                   .add = epoll_add,
                                   .renew = epoll_renew,
                                   .remove = epoll_remove,
                                   .wait = epoll_tell,
                                   .kick = epoll_kick};
