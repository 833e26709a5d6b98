/* SPDX-License-Identifier: MIT */
/* Two system calls made in place. They are made for each request of a server, where what surrounds them counts: the C library's may be cancelled (pthread_cancel),
 * which takes two locked instructions around each in a program with threads; nobody cancels a worker. And after some microseconds in the kernel each function more
 * is a cache line that is not there. Sanitizers see only the C library's. Each returns what the kernel returned. */
#ifndef WEFT_SRC_SYS_H
#define WEFT_SRC_SYS_H

#include <errno.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "base/base.h"

#if defined(WEFT_ASAN) || defined(WEFT_TSAN)
WEFT_INLINE long weft__sys_recv(int fd, void *buf, size_t n, int flags) {
    ssize_t r = recv(fd, buf, n, flags);
    return r < 0 ? -errno : r;
}
WEFT_INLINE long weft__sys_send(int fd, const void *buf, size_t n, int flags) {
    ssize_t r = send(fd, buf, n, flags);
    return r < 0 ? -errno : r;
}
#else
/* recvfrom(2) and sendto(2), without an address. */
WEFT_INLINE long weft__sys_transfer(long number, long fd, const void *buf, size_t n, long flags) {
#if defined(__x86_64__)
    register long r10 __asm__("r10") = flags, r8 __asm__("r8") = 0, r9 __asm__("r9") = 0;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(fd), "S"(buf), "d"(n), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = fd;
    register const void *x1 __asm__("x1") = buf;
    register size_t x2 __asm__("x2") = n;
    register long x3 __asm__("x3") = flags, x4 __asm__("x4") = 0, x5 __asm__("x5") = 0;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
#else
#error "how is a system call made here?"
#endif
}
WEFT_INLINE long weft__sys_recv(int fd, void *buf, size_t n, int flags) {
    return weft__sys_transfer(SYS_recvfrom, fd, buf, n, flags);
}
WEFT_INLINE long weft__sys_send(int fd, const void *buf, size_t n, int flags) {
    return weft__sys_transfer(SYS_sendto, fd, buf, n, flags);
}
#endif

#endif
