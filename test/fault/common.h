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

/* op(arg) with its 1st to `most`-th call failing in turn: an error that says so, or `also`, or success; nothing is left open, and it works afterwards. This is
 * done until it has failed `enough` times, because another thread may make the call that was to fail. */
static inline void check_each_fails(weft_fn *op, void *arg, long most, int enough, int also) {
    int errors = 0;
    CHECK_EQ(op(arg), 0); /* tables and the poller are there */
    int fds = test_fds();
    for (int round = 0; round == 0 || (errors < enough && round < 1000); round++)
        for (long nth = 1; nth <= most; nth++) {
            weft__fault_arm(nth, false);
            int err = op(arg);
            weft__fault_arm(0, false);
            CHECK_MSG(err == 0 || is_fault(err) || err == also, "call %ld: %s", nth, weft_strerror(err));
            errors += err != 0;
            test_wait_fds(fds);
            CHECK_EQ(op(arg), 0);
        }
    CHECK_GE(errors, enough);
}

#endif
