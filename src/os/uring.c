/* SPDX-License-Identifier: MIT */
#include "os/uring.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os/os.h"

#if defined(__has_include)
#if __has_include(<linux/io_uring.h>)
#include <linux/io_uring.h>
#endif
#endif

#ifdef IORING_FEAT_FAST_POLL /* Linux 5.7: younger than one mapping for both rings, and than IORING_OP_SEND */

/* A child of the process must not have it: two would use one ring. */
static void *map(int fd, size_t size, uint64_t what) {
    if (weft__fault()) return errno = weft__fault_errno, NULL;
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, (off_t)what);
    if (p == MAP_FAILED) return NULL;
    (void)madvise(p, size, MADV_DONTFORK);
    return p;
}

static void unmap(weft__uring *r) {
    if (r->entries) munmap(r->entries, WEFT_URING_SENDS * sizeof(struct io_uring_sqe));
    if (r->map) munmap(r->map, r->map_size);
}

static size_t size_of(const struct io_uring_params *p) {
    size_t sq = p->sq_off.array + p->sq_entries * sizeof(uint32_t);
    size_t cq = p->cq_off.cqes + p->cq_entries * sizeof(struct io_uring_cqe);
    return sq > cq ? sq : cq;
}

/* Where things are in it. */
static void learn(weft__uring *r, const struct io_uring_params *p) {
    char *at = r->map;
    r->sq_head = (_Atomic uint32_t *)(at + p->sq_off.head);
    r->sq_tail = (_Atomic uint32_t *)(at + p->sq_off.tail);
    r->sq_array = (uint32_t *)(at + p->sq_off.array);
    r->sq_mask = p->sq_entries - 1;
    r->cq_head = (_Atomic uint32_t *)(at + p->cq_off.head);
    r->cq_tail = (_Atomic uint32_t *)(at + p->cq_off.tail);
    r->cqes = at + p->cq_off.cqes;
    r->cq_mask = p->cq_entries - 1;
}

int weft__uring_open(weft__uring *r) {
    struct io_uring_params p = {0};
    *r = (weft__uring){0};
    if (weft__fault()) return -weft__fault_errno;
    int fd = (int)syscall(SYS_io_uring_setup, WEFT_URING_SENDS, &p);
    if (fd < 0) return -errno;
    errno = ENOSYS;
    r->fd = fd;
    r->map_size = size_of(&p);
    if (p.features & IORING_FEAT_FAST_POLL) r->map = map(fd, r->map_size, IORING_OFF_SQ_RING);
    if (r->map) r->entries = map(fd, p.sq_entries * sizeof(struct io_uring_sqe), IORING_OFF_SQES);
    if (!r->entries) {
        int err = -errno;
        weft__uring_close(r);
        return err;
    }
    learn(r, &p);
    return 0;
}

/* Forgotten first: as in poll/epoll.c. */
void weft__uring_close(weft__uring *r) {
    int fd = r->fd;
    r->fd = 0;
    weft__compiler_barrier();
    close(fd);
    unmap(r);
    *r = (weft__uring){0};
}

static void put(weft__uring *r, uint32_t at, struct io_uring_sqe entry) {
    ((struct io_uring_sqe *)r->entries)[at & r->sq_mask] = entry;
    r->sq_array[at & r->sq_mask] = at & r->sq_mask;
}

static void put_send(weft__uring *r, uint32_t at, const weft__send *s, int index) {
    put(r, at,
        (struct io_uring_sqe){.opcode = IORING_OP_SEND,
                              .fd = s->fd,
                              .addr = (uint64_t)(uintptr_t)s->buf,
                              .len = (uint32_t)s->n,
                              .msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL,
                              .user_data = (uint64_t)index});
}

/* What has been made. */
static int collect(weft__uring *r, weft__send *const *sends) {
    uint32_t head = weft__load(r->cq_head, relaxed); /* ours */
    uint32_t tail = weft__load(r->cq_tail, acquire); /* pairs with the kernel's release */
    int n = (int)(tail - head);
    for (; head != tail; head++) {
        const struct io_uring_cqe *c = (const struct io_uring_cqe *)r->cqes + (head & r->cq_mask);
        sends[c->user_data]->got = c->res;
    }
    weft__store(r->cq_head, head, release); /* pairs with the kernel's acquire: they have been read */
    return n;
}

static int enter(weft__uring *r, int submit, int wait) {
    if (weft__fault()) return -weft__fault_errno;
    int n = (int)syscall(SYS_io_uring_enter, r->fd, submit, wait, wait ? IORING_ENTER_GETEVENTS : 0, NULL, 0);
    return n < 0 ? -errno : n;
}

/* What the kernel has taken, which is something if there was something, is gone from this ring; otherwise it was another one's: somebody has closed the
 * number. */
static bool is_ours(weft__uring *r, uint32_t taken) {
    return weft__load(r->sq_head, acquire) == taken; /* pairs with the kernel's release */
}

/* All of them given to the kernel, from `first` on, and made: 0; else -errno. *given: how many were. */
static int make(weft__uring *r, weft__send *const *sends, uint32_t first, int n, int *given) {
    for (int made = 0; made < n; made += collect(r, sends)) {
        int left = n - *given, got = enter(r, left, left ? 0 : n - made);
        if (got == -EINTR) continue;
        if (got < 0) return got;
        if ((left && !got) || !is_ours(r, first + (uint32_t)(*given + got))) return -EBADF;
        *given += got;
    }
    return 0;
}

/* What a ring of ours may say, or a filter. Other errors are those of a descriptor that is something else, or a ring of other people's. */
static bool is_said_by_ours(int err) {
    return err == -EAGAIN || err == -EBUSY || err == -ENOMEM || err == -EPERM || err == -EACCES || err == -ENOSYS;
}

/* It is of no use any more; its number may be somebody else's. */
static int give_up(weft__uring *r, int err) {
    bool ours = is_said_by_ours(err);
    if (ours) {
        weft__uring_close(r);
    } else {
        unmap(r);
        *r = (weft__uring){0};
    }
    return ours ? err : -EBADF;
}

int weft__uring_send(weft__uring *r, weft__send *const *sends, int n) {
    uint32_t tail = weft__load(r->sq_tail, relaxed); /* ours */
    int given = 0;
    for (int i = 0; i < n; i++) {
        sends[i]->got = -EINPROGRESS;
        put_send(r, tail + (uint32_t)i, sends[i], i);
    }
    weft__store(r->sq_tail, tail + (uint32_t)n, release); /* pairs with the kernel's acquire: they have been written */
    int err = make(r, sends, tail, n, &given);
    if (!err) return 0;
    for (int i = 0; i < given; i++)
        if (sends[i]->got == -EINPROGRESS) sends[i]->got = -EIO; /* made or not: nobody can tell any more */
    return give_up(r, err);
}

enum { GAIN_CALLS = 24, GAIN_ROUNDS = 8 }; /* the best of so many: a hypervisor may have others run in between */

static int64_t time_of_calls(void) {
    int64_t from = weft__os_now();
    for (int i = 0; i < GAIN_CALLS; i++) (void)syscall(SYS_gettid);
    return weft__os_now() - from;
}

static int time_of_entries(weft__uring *r, int64_t *time) {
    weft__send none, *nobody[GAIN_CALLS];
    int64_t from = weft__os_now();
    uint32_t tail = weft__load(r->sq_tail, relaxed); /* ours */
    int given = 0;
    for (int i = 0; i < GAIN_CALLS; i++) {
        nobody[i] = &none;
        put(r, tail + (uint32_t)i, (struct io_uring_sqe){.opcode = IORING_OP_NOP, .user_data = (uint64_t)i});
    }
    weft__store(r->sq_tail, tail + GAIN_CALLS, release); /* as in weft__uring_send */
    int err = make(r, nobody, tail, GAIN_CALLS, &given);
    *time = weft__os_now() - from;
    return err ? give_up(r, err) : 0;
}

int weft__uring_gain(weft__uring *r, int64_t *ns) {
    int64_t calls = INT64_MAX, entries = INT64_MAX;
    for (int i = 0; i < GAIN_ROUNDS; i++) {
        int64_t c = time_of_calls(), e;
        int err = time_of_entries(r, &e);
        if (err) return err;
        if (c < calls) calls = c;
        if (e < entries) entries = e;
    }
    *ns = (calls - entries) / GAIN_CALLS;
    return 0;
}

#else

int weft__uring_open(weft__uring *r) {
    *r = (weft__uring){0};
    return -ENOSYS;
}
void weft__uring_close(weft__uring *r) {
    (void)r;
}
int weft__uring_send(weft__uring *r, weft__send *const *sends, int n) {
    (void)r;
    for (int i = 0; i < n; i++) sends[i]->got = -EINPROGRESS;
    return -ENOSYS;
}
int weft__uring_gain(weft__uring *r, int64_t *ns) {
    (void)r;
    (void)ns;
    return -ENOSYS;
}

#endif

void weft__uring_forget(weft__uring *r) {
    if (r->fd > 0) close(r->fd); /* 0: there is none; the kernel gives that number only to who has closed it */
    *r = (weft__uring){0};
}
