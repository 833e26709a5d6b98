/* SPDX-License-Identifier: MIT */
/* Descriptors as cases of a select: it asks the kernel which are ready, and waits for an edge among the `watchers` of each (desc.h). */
#ifndef WEFT_SRC_CASE_H
#define WEFT_SRC_CASE_H

#include "io/desc.h"

struct pollfd;

/* One case's; the select's frame. */
typedef struct weft__fd_case {
    weft__fd f;
    uint64_t seen;   /* its state before it was asked */
    uint32_t events; /* 0: another kind of case */
    bool object;     /* a connection's; else the case has only a number */
    bool ready;      /* said the kernel, or its connection */
    bool told;       /* of edges: a runtime runs */
    bool held;       /* by a thread that polls it */
} weft__fd_case;

/* Looks the descriptor up. 0, WEFT_EINVAL, or as weft__fd_get. */
int weft__fd_case_open(weft__fd_case *c, int fd, uintptr_t events);
/* The same for an object. 0 or WEFT_EINVAL. */
int weft__fd_case_open_object(weft__fd_case *c, const weft__fd *f, int events);
/* Which of them are ready: one system call for WEFT_FD_CASES_BATCH of them, none for those that are known not to be, unless this is the only look (`once`).
 * 0; WEFT_ECLOSED: one has been closed; -errno. Outside the runtime. */
int weft__fd_cases_ask(weft__fd_case *c, size_t n, bool once);
/* Checks each (desc.h), before the select parks. Returns 0: they are the same; 1: one means another
 * descriptor, which was looked up; an error. */
int weft__fd_cases_check(weft__fd_case *c, size_t n);
/* What poll(2) is to be asked of one. */
struct pollfd weft__fd_case_poll(const weft__fd_case *c);
/* poll(2) refuses more than the process may have descriptors. */
enum { WEFT_FD_CASES_BATCH = 16 };

#endif
