/* SPDX-License-Identifier: MIT */
/* Descriptors: sockets, pipes, terminals, eventfds, whatever has a number. An operation that the kernel would wait in parks the task, not its thread.
 *
 * A descriptor is looked up by its number at each call, and put into the poller at the first. Close
 * it with weft_fd_close, which ends the waits of others. A duplicate (dup) is another descriptor,
 * with waits of its own.
 *
 * Other code (a library with sockets of its own) may close it with close(2). Before a call by
 * number waits, it asks the kernel whether the number still means the same descriptor, by one short
 * system call. If it means another one, waits for the old one end with WEFT_ECLOSED, and the call
 * goes on with the new one. Two things cannot be noticed:
 *   - A wait is parked when other code closes its number. It goes on until a call comes with the
 *     number next, until weft_fd_forget, or until its deadline.
 *   - A descriptor comes back to its number (dup2) after a call waited there for another one. Call
 *     weft_fd_forget before.
 *
 * Reading and writing take turns: of several tasks that read one descriptor each gets a whole read, in the order in which they came; likewise
 * those that write. The descriptor's flags are left alone: it may be shared with other processes (only weft_fd_accept and weft_fd_connect set
 * O_NONBLOCK). Regular files, and devices that no poller takes, are always ready: a read of them may wait for the disk, on its thread.
 *
 * Errors of all: -errno as the kernel gave it (-EBADF: there is no such descriptor); WEFT_ECLOSED:
 * weft_fd_close or weft_fd_forget, before or meanwhile, or another descriptor has come to its
 * number; WEFT_EAGAIN (WEFT_POLL), WEFT_ETIMEDOUT, WEFT_ECANCELED; WEFT_ETERMINATED: weft_stop ended
 * the wait of a plain thread; WEFT_ENOMEM; WEFT_ELIMIT: its number is above four million. No call raises SIGPIPE on a socket; on a pipe none does on Linux
 * 6.18 and later. A plain thread waits for its turn like a task. Without a runtime it does so, too,
 * and closing, cancelling and deadlines end its waits as with one; but it does not notice that
 * other code has closed the number. What was used without a runtime may be used by the tasks of one
 * that starts later. */
#ifndef WEFT_IO_H
#define WEFT_IO_H

#include <sys/socket.h>
#include <sys/types.h>

#include <weft/base.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { WEFT_READABLE = 1, WEFT_WRITABLE = 2, WEFT_HANGUP = 4 };

/* Waits until the descriptor is ready for one of `events`, WEFT_READABLE or WEFT_WRITABLE or
 * both, and returns those it is ready for. WEFT_HANGUP among them, whichever was waited for: its
 * other end is gone or will send no more, or it has an error, which the next operation tells. A
 * connection's descriptor counts as readable, too, while the connection has bytes that were read
 * ahead. WEFT_EINVAL: no event, or an unknown one. */
WEFT_API int weft_fd_wait(int fd, int events, weft_deadline deadline);
/* As read(2): at least one byte, 0 at the end, or if n is 0: then nothing is waited for. */
WEFT_API ssize_t weft_fd_read(int fd, void *buf, size_t n, weft_deadline deadline);
/* As write(2): at least one byte, not always all. */
WEFT_API ssize_t weft_fd_write(int fd, const void *buf, size_t n, weft_deadline deadline);
/* As recv(2). Without flags, 0 bytes of a stream are 0 at once. */
WEFT_API ssize_t weft_fd_recv(int fd, void *buf, size_t n, int flags, weft_deadline deadline);
/* As send(2). */
WEFT_API ssize_t weft_fd_send(int fd, const void *buf, size_t n, int flags, weft_deadline deadline);
/* As recvfrom(2); 0 bytes as weft_fd_recv. */
WEFT_API ssize_t weft_fd_recvfrom(int fd, void *buf, size_t n, int flags, struct sockaddr *from, socklen_t *len,
                                  weft_deadline deadline);
/* As sendto(2). */
WEFT_API ssize_t weft_fd_sendto(int fd, const void *buf, size_t n, int flags, const struct sockaddr *to, socklen_t len,
                                weft_deadline deadline);
/* As recvmsg(2). */
WEFT_API ssize_t weft_fd_recvmsg(int fd, struct msghdr *m, int flags, weft_deadline deadline);
/* As sendmsg(2). */
WEFT_API ssize_t weft_fd_sendmsg(int fd, const struct msghdr *m, int flags, weft_deadline deadline);
/* As accept4(2), with O_NONBLOCK and close-on-exec: the new descriptor, to be closed with weft_fd_close. `from` and `len` may be NULL. */
WEFT_API int weft_fd_accept(int fd, struct sockaddr *from, socklen_t *len, weft_deadline deadline);
/* As connect(2), until the connection stands or has failed. After WEFT_ETIMEDOUT or WEFT_ECANCELED the descriptor is good for nothing but closing. */
WEFT_API int weft_fd_connect(int fd, const struct sockaddr *to, socklen_t len, weft_deadline deadline);
/* Closes the descriptor and ends every wait on it with WEFT_ECLOSED. If somebody is in the middle of a call with it, the number is freed when
 * that has returned. 0, or -errno of close(2); never waits. */
WEFT_API int weft_fd_close(int fd);
/* Forgets the descriptor, which stays open: every wait on it ends with WEFT_ECLOSED. Returns when
 * no call is in the middle of a system call with it. For a wait that is parked when other code
 * closes the number; nothing else needs it. Afterwards the number may be used as before. If other
 * code has closed it already, and the number has come to weft again, the waits of the new one end.
 * Not for the number of a connection, listener or datagram socket (weft_conn_release). Returns 0;
 * -EBADF: the number is negative; WEFT_ECLOSED: weft_fd_close is about to close it, or another
 * weft_fd_forget came first. */
WEFT_API int weft_fd_forget(int fd);

#ifdef __cplusplus
}
#endif
#endif
