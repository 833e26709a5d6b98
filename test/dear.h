/* SPDX-License-Identifier: MIT */
/* Makes system calls dear: a filter (seccomp(2)) goes through two thousand instructions for each, and lets all pass. For the calling thread and those that it
 * starts, for good: tests have a process each, or fork. */
#ifndef WEFT_TEST_DEAR_H
#define WEFT_TEST_DEAR_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/prctl.h>

#if defined(__has_include)
#if __has_include(<linux/filter.h>) && __has_include(<linux/seccomp.h>)
#include <linux/filter.h>
#include <linux/seccomp.h>
#endif
#endif

/* False: there is no such filter here, or its header was not there when this was built. */
static inline bool make_calls_dear(void) {
#ifdef SECCOMP_RET_ALLOW
    enum { LENGTH = 2000 };
    static struct sock_filter code[LENGTH];
    /* An argument: what goes by the number alone the kernel remembers. */
    for (int i = 0; i < LENGTH - 1; i++)
        code[i] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args));
    code[LENGTH - 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {.len = LENGTH, .filter = code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
#else
    return false;
#endif
}

#endif
