/* SPDX-License-Identifier: MIT */
/* What the fault tests share: every public operation is run with the 1st, 2nd, 3rd… allocation or system call failing. */
#ifndef WEFT_TEST_FAULT_COMMON_H
#define WEFT_TEST_FAULT_COMMON_H

#include "api/common.h"
#include "os/os.h"

/* An error that a failed allocation or system call may come out as. */
static inline bool is_fault(int rc) { return rc == WEFT_ENOMEM || rc == -ENOMEM || rc == -EAGAIN; }

/* What a process holds; taken before and after. */
struct holdings {
    int fds, threads, maps;
};

static inline struct holdings holdings(void) { return (struct holdings){test_fds(), test_threads(), test_maps()}; }

/* Nothing has been left over. The C library may have made arenas or cached stacks of threads meanwhile, which are two mappings each, and how many
 * threads there were at once is chance: `slack` and some more. */
static inline void check_holdings(struct holdings before, int slack) {
    CHECK_EQ(test_fds(), before.fds);
    test_wait_threads(before.threads);
    if (test_slow_tools() == 1) CHECK_LE(test_maps(), before.maps + slack + 16); /* tools map at will */
}

#endif
