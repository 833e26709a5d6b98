/* SPDX-License-Identifier: MIT */
#include "os/os.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#if defined(WEFT_VALGRIND) && __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#else
#define RUNNING_ON_VALGRIND 0
#endif

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102 /* Linux 6.13 */
#endif
#ifndef PIDFD_SELF
#define PIDFD_SELF (-10000) /* Linux 6.14 */
#endif
#ifndef SYS_process_madvise
#define SYS_process_madvise 440
#endif

enum {
    GUARD_BATCH = 64, /* ranges per system call: a magazine of stacks, and 1 KiB of stack for the list */
    LEAST_PAGE = 4096,
};

bool weft__vm_one_by_one;

void *weft__malloc(size_t n) {
    if (weft__fault()) return NULL;
    weft__san_unchecked_begin();
    void *p = malloc(n);
    weft__san_unchecked_end();
    return p;
}

void *weft__calloc(size_t n, size_t sz) {
    if (weft__fault()) return NULL;
    weft__san_unchecked_begin();
    void *p = calloc(n, sz);
    weft__san_unchecked_end();
    return p;
}

void *weft__calloc_lines(size_t n) {
    if (weft__fault()) return NULL;
    weft__san_unchecked_begin();
    void *p = aligned_alloc(WEFT_LINE, n);
    if (p) memset(p, 0, n);
    weft__san_unchecked_end();
    return p;
}

void weft__free(void *p) {
    weft__san_unchecked_begin();
    free(p);
    weft__san_unchecked_end();
}

size_t weft__page_size(void) {
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* Inaccessible first: in a program that called mlockall(MCL_FUTURE) the kernel would fill all of it with memory at once. */
static char *reserve(size_t size) {
    char *p = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (p == MAP_FAILED) return NULL;
    munlock(p, size);
    if (mprotect(p, size, PROT_READ | PROT_WRITE) == 0) return p;
    munmap(p, size);
    return NULL;
}

/* The kernel often aligns well by itself; only if it did not, reserve more and cut both ends off. */
void *weft__vm_reserve(size_t size, size_t align) {
    if (weft__fault()) return NULL;
    char *p = reserve(size);
    if (!p || ((uintptr_t)p & (align - 1)) == 0) return p;
    munmap(p, size);
    if (size + align < size) return NULL;
    p = reserve(size + align);
    if (!p) return NULL;
    char *start = (char *)(((uintptr_t)p + align - 1) & ~(uintptr_t)(align - 1));
    if (start > p) munmap(p, (size_t)(start - p));
    size_t tail = (size_t)(p + align - start);
    if (tail) munmap(start + size, tail);
    return start;
}

bool weft__vm_scarce(const char *overcommit) {
    struct rlimit limit;
    char text[8];
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) return true;
    return weft__read_file(overcommit, text, sizeof text) > 0 && text[0] == '2';
}

void weft__vm_release(void *p, size_t size) {
    munmap(p, size);
}

/* Locked memory cannot be dropped; it is in use anyway, so zeroing costs no page. */
void weft__vm_discard(void *p, size_t size) {
    if (madvise(p, size, MADV_DONTNEED) != 0) memset(p, 0, size);
}

int weft__vm_drop(void *p, size_t size) {
    if (weft__fault()) return -weft__fault_errno;
    return madvise(p, size, MADV_DONTNEED) == 0 ? 0 : -errno;
}

/* In pieces: the list must fit on a small stack. It has room for pages of 4 KiB whatever their size: an emulator that shows larger ones to a program
 * passes the call on to a kernel that writes a byte for each of its own. */
long weft__vm_resident(char *p, size_t size, char **first) {
    unsigned char in[256];
    size_t page = weft__page_size(), most = sizeof in * LEAST_PAGE / page;
    char *end = p + size;
    long n = 0;
    *first = end;
    if (weft__fault()) return -weft__fault_errno;
    while (p < end) {
        size_t pages = (size_t)(end - p) / page;
        if (pages > most) pages = most;
        if (mincore(p, pages * page, in) != 0) return -errno;
        for (size_t i = 0; i < pages; i++) {
            if (!(in[i] & 1)) continue;
            if (n++ == 0) *first = p + i * page;
        }
        p += pages * page;
    }
    return n;
}

void weft__vm_small_pages(void *p, size_t size) {
    madvise(p, size, MADV_NOHUGEPAGE);
}

int weft__vm_protect_none(void *p, size_t size) {
    if (weft__fault()) return -weft__fault_errno;
    return mprotect(p, size, PROT_NONE) == 0 ? 0 : -errno;
}

/* Many ranges in one call; returns how many were done: none where the kernel does not know PIDFD_SELF. A descriptor of ourselves
 * would do as well, and would for a moment have a number that somebody has just closed. */
static int guard_batch(char *p, size_t size, size_t stride, int n) {
    struct iovec ranges[GUARD_BATCH];
    int done = 0;
    while (done < n) {
        int k = n - done < GUARD_BATCH ? n - done : GUARD_BATCH;
        for (int i = 0; i < k; i++) ranges[i] = (struct iovec){p + (size_t)(done + i) * stride, size};
        long bytes = syscall(SYS_process_madvise, PIDFD_SELF, ranges, k, MADV_GUARD_INSTALL, 0);
        if (bytes > 0) done += (int)((size_t)bytes / size);
        if (bytes != (long)((size_t)k * size)) break;
    }
    return done;
}

int weft__vm_guard(void *p, size_t size, size_t stride, int n) {
    if (weft__fault()) return -weft__fault_errno;
    bool batch =
        n > 1 && !weft__vm_one_by_one && !RUNNING_ON_VALGRIND; /* which complains about system calls that it does not know */
    int done = batch ? guard_batch(p, size, stride, n) : 0;
    for (; done < n; done++)
        if (madvise((char *)p + (size_t)done * stride, size, MADV_GUARD_INSTALL) != 0) return -errno;
    return 0;
}

bool weft__vm_faults(void *p) {
    int ends[2];
    if (weft__fault() || pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return false;
    bool faults = write(ends[1], p, 1) < 0 && errno == EFAULT;
    close(ends[0]);
    close(ends[1]);
    return faults;
}
