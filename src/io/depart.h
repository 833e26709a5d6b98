/* SPDX-License-Identifier: MIT */
/* Departing: the sends of many tasks in one system call.
 *
 * A server with many connections hears of many requests at once, and answers each by a send. A system call for each is more of that than one would think:
 * an echo server of 1,000 connections takes 10 % less CPU time with one for all, one of 64 connections 3 % (docs/adr/023-departing.md). So a
 * task that is about to send, while others who heard of an edge together with it are still to run on its slot, leaves word of it on the slot's
 * platform, and steps back for them: no more than a yield. Whoever finds that the time has come takes all off the platform, and sends for
 * them (os/uring.h):
 *  - the one behind whom nobody is left of those who heard of an edge;
 *  - the one with whom the platform is full;
 *  - one that runs again and has not departed: the others did something else, or the slot is somebody else's, or a thief runs it.
 *
 *     waits -> taken -> done       taken: by one thread, under the lock; done: with its result, which is written before
 *
 * Invariants
 *  F1  Who has not departed is on its slot's platform, or was taken off it by one who sends, and will set `done`. Its frame stays until then.
 *  F2  What is on a platform changes under its lock. It is put there by the slot's owner inside the runtime; anybody takes it off.
 *  F3  It has the turn of writing all the while (N2): the number means its connection, whoever closes that, and no other write gets in between.
 *  F4  It is on a queue like everybody who yields: thieves, the watch and whoever takes the slot find it, and need not know of this.
 *  F5  Who sends does so outside the runtime, like a task in any system call, and may lose its slot meanwhile.
 *  F6  What is sent lies on the task's stack, or on a page from which the slot has sent before, lately: the first time each goes alone. A page may have to
 *      come from a disk, or from another task, and those who go with it would wait for that.
 *
 * Whether it pays. A ring saves the way into the kernel and back, and departing takes a second switch and the platform. Where a system call that does
 * nothing takes 180 ns (an EPYC) that is a gain, where it takes 100 (a Xeon) a loss, of 5 % with 1,000 connections. So the first departure measures
 * both, and where less than weft__depart_gain is left everybody goes alone from then on, without another look. WEFT_NO_IO_URING=0 departs in any
 * case, 1 never.
 *
 * How long one waits. Somebody who heard of an edge with it may compute before it answers, and those on the platform wait for that; without it they
 * would have gone. So after a departure that was late (by weft__depart_late), and another one soon, none is tried for REST sends: of all answers one
 * in fifty waits for others at most, whatever the tasks do. (Once may be the kernel, or a hypervisor, that had others run.) Nobody waits whose
 * own deadline is near, by the slot's clock. */
#ifndef WEFT_SRC_DEPART_H
#define WEFT_SRC_DEPART_H

#include <stddef.h>
#include <sys/types.h>

#include "base/base.h"

#include <weft/time.h>

/* send(2), as weft__sock_send makes it; may let others run before, unless the deadline is near. With the turn of writing. */
ssize_t weft__depart(int fd, const void *buf, size_t n, weft_deadline deadline);
/* After so many nanoseconds on a platform one is late. Tests may have another opinion. */
extern int64_t weft__depart_late;
/* It is done where a system call takes so many nanoseconds more than an entry of a ring: what departing takes itself. Likewise. */
extern int64_t weft__depart_gain;
/* How many were sent together with others. */
uint64_t weft__departs_count(void);
/* A runtime begins; it has ended. */
void weft__departs_open(void);
void weft__departs_close(void);
/* In the child of a fork: at once, before it may have other descriptors of the same numbers; and when it uses the library. */
void weft__departs_in_child(void);
void weft__departs_forget(void);

#endif
