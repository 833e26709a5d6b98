/* SPDX-License-Identifier: MIT */
/* The kernel's own limits: address space, threads, descriptors. In child processes, which keep the limit. */
#include <sys/resource.h>
#include <unistd.h>

#include "fault/common.h"

static void limit(int what, rlim_t n) {
    struct rlimit l = {n, n};
    CHECK_EQ(setrlimit(what, &l), 0);
}

static rlim_t address_space_used(void) {
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    CHECK(f && fscanf(f, "%ld", &pages) == 1);
    fclose(f);
    return (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

static atomic_int parked, ran;

static int park_at_gate(void *arg) {
    atomic_fetch_add(&parked, 1);
    CHECK_EQ(weft_chan_recv(arg, NULL, WEFT_FOREVER), WEFT_ECLOSED);
    atomic_fetch_add(&ran, 1);
    return 0;
}

enum { MOST = 100000 };

/* Parks tasks until no more are accepted, then lets them all go. */
static int park_up_to_limit(void *arg) {
    (void)arg;
    weft_chan *gate = weft_chan_new(0, 0);
    weft_scope s;
    weft_scope_opts o = {.deadline = {0}, .on_error = WEFT_KEEP_GOING};
    int accepted = 0, rc = 0;
    if (!gate) return WEFT_ENOMEM;
    weft_scope_begin(&s, &o);
    while (accepted < MOST && (rc = weft_spawn(&s, park_at_gate, gate)) == 0) {
        accepted++;
        if (accepted % 16 == 0) weft_yield();
    }
    CHECK_EQ(weft_chan_close(gate), 0);
    CHECK_EQ(weft_scope_end(&s), rc);
    CHECK_EQ(atomic_load(&ran), accepted);
    weft_chan_unref(gate);
    CHECK_MSG(rc == WEFT_ENOMEM, "%d tasks of 256 KiB fit into the limit: %d", accepted, rc);
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, return_int, NULL), 0); /* there is room again */
    CHECK_EQ(weft_scope_end(&s), 0);
    return accepted;
}

static int run_with_little_space(void *arg) {
    long mb = (long)(intptr_t)arg;
    limit(RLIMIT_AS, address_space_used() + (rlim_t)mb * (1 << 20));
    int rc = run_on(2, park_up_to_limit, NULL);
    if (rc < 0) {
        CHECK_MSG(rc == WEFT_ENOMEM || rc == -ENOMEM || rc == -EAGAIN, "%ld MiB: %d", mb, rc);
        CHECK_EQ(weft_stop(WEFT_FOREVER), WEFT_ETERMINATED);
    }
    printf("%ld MiB: %d\n", mb, rc);
    return rc > 100 ? 42 : 0; /* it ran, and parked some */
}

static void check_space(long mb, bool must_run) {
    struct test_child c;
    test_child(run_with_little_space, as_arg(mb), &c);
    CHECK_MSG(c.exit_code == 42 || (c.exit_code == 0 && !must_run), "%ld MiB: exit %d, signal %d:\n%s", mb, c.exit_code,
              c.signal, c.out);
}

TEST(fault_limits, address_space_runs_out) {
    test_skip_under("the tools need address space of their own", "the emulator does not apply limits on address space");
    for (long mb = 1; mb <= 512; mb *= 2) check_space(mb, mb >= 512);
    for (long mb = 17; mb < 40; mb += 3) /* a start needs some two dozen with two thread stacks of 8 MiB */
        check_space(mb, false);
}

/* ---- threads ---- */

static atomic_int here;

static int arrive(void *arg) {
    (void)arg;
    atomic_fetch_add(&here, 1);
    weft_yield();
    return 0;
}

static int many_arrive(void *arg) {
    (void)arg;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 1000; i++) CHECK_EQ(weft_spawn(&s, arrive, NULL), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(weft_sleep_for(WEFT_MS), 0);
    return atomic_load(&here);
}

/* As an ordinary user: root is not bound by the limit. Nobody else runs as this one. */
static int run_with_few_threads(void *arg) {
    rlim_t n = (rlim_t)(intptr_t)arg;
    if (geteuid() == 0)
        CHECK(setgid(54321) == 0 && setuid(54321) == 0);
    else
        test_skip("needs root, to become a user that runs nothing else");
    limit(RLIMIT_NPROC, n);
    int fds = test_fds(), threads = test_threads(); /* an emulator has one of its own */
    int rc = run_on(8, many_arrive, NULL);
    printf("%d threads: %d\n", (int)n, rc);
    CHECK_MSG(rc == 1000 || rc == -EAGAIN || rc == WEFT_ENOMEM, "%d", rc);
    test_wait_threads(threads);
    CHECK_EQ(test_fds(), fds);
    if (rc < 0) {
        CHECK_EQ(weft_stop(WEFT_FOREVER), WEFT_ETERMINATED);
        CHECK_EQ(weft_go(arrive, NULL), WEFT_ETERMINATED);
    }
    return 0;
}

TEST(fault_limits, threads_run_out) {
    test_skip_under("the tools need threads of their own", NULL);
    for (int n = 0; n <= 12; n++) CHECK_CHILD_ARG(run_with_few_threads, as_arg(n));
}

/* ---- descriptors ---- */

static int run_without_descriptors(void *arg) {
    (void)arg;
    limit(RLIMIT_NOFILE, 3);
    int rc = run_on(2, many_arrive, NULL);
    CHECK_MSG(rc == 1000 || rc == -EMFILE || rc == WEFT_ENOMEM, "%d", rc);
    return 0;
}

TEST(fault_limits, descriptors_run_out) {
    test_skip_under("the tools need descriptors of their own", NULL);
    CHECK_CHILD(run_without_descriptors);
}
