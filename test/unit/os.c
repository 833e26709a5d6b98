/* SPDX-License-Identifier: MIT */
#include "test.h"
#include "swapcontext.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/os.h"
#include "slices.h"

#if defined(__SANITIZE_THREAD__)
#define TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TSAN 1
#endif
#endif

/* ---- failing on purpose ---- */

TEST(os_fault, the_nth_allocation_fails_and_only_it) {
    weft__fault_arm(2, false);
    void *a = weft__malloc(1), *b = weft__malloc(1), *c = weft__calloc(1, 1);
    CHECK(a && !b && c);
    CHECK_EQ(weft__fault_calls(), 3);
    weft__fault_arm(0, false);
    weft__free(a);
    weft__free(c);
}

TEST(os_fault, a_sticky_fault_lasts_until_disarmed) {
    weft__fault_arm(1, true);
    CHECK(!weft__malloc(1) && !weft__calloc(1, 1));
    weft__fault_arm(0, false);
    void *p = weft__malloc(1);
    CHECK(p);
    CHECK_EQ(weft__fault_calls(), 0);
    weft__free(p);
}

static void *nothing(void *arg) { return arg; }

TEST(os_fault, every_system_call_can_fail) {
    size_t page = weft__page_size();
    char *p = weft__vm_reserve(page, page), text[8];
    CHECK(p);
    pthread_t t;
    weft__fault_errno = ENFILE;
    weft__fault_arm(1, true);
    CHECK(!weft__vm_reserve(page, page));
    CHECK_EQ(weft__vm_protect_none(p, page), -ENFILE);
    CHECK_EQ(weft__vm_guard(p, page, page, 1), -ENFILE);
    CHECK(!weft__vm_faults(NULL));
    CHECK_EQ(weft__thread_start(&t, nothing, NULL, "x"), -ENFILE);
    CHECK_EQ(weft__read_file("/proc/self/stat", text, sizeof text), -ENFILE);
    _Atomic uint32_t word = 0;
    CHECK_EQ(weft__futex_wait(&word, 0, 0), 0); /* returns at once: as if interrupted */
    weft__fault_arm(2, false);
    CHECK_EQ(weft__thread_start(&t, nothing, NULL, "x"), -ENOMEM); /* its own allocation */
    weft__fault_arm(0, false);
    weft__vm_release(p, page);
}

/* ---- memory ---- */

/* Mappings that come from elsewhere: tools keep some about ours. */
static int slack(int n) { return test_slow_tools() > 1 ? 20 + n : n; }

TEST(os_memory, reservations_are_aligned_zero_and_returned) {
    int before = test_maps();
    size_t most = (size_t)1 << (test_slow_tools() >= 50 ? 24 : 30); /* valgrind has a record of every reserved byte */
    for (size_t align = weft__page_size(); align <= most; align *= 4) {
        size_t size = 3 * align;
        char *p = weft__vm_reserve(size, align);
        CHECK(p);
        CHECK_EQ((uintptr_t)p % align, 0);
        CHECK(p[0] == 0 && p[size - 1] == 0);
        p[0] = p[size - 1] = 1;
        weft__vm_release(p, size);
    }
    CHECK_LE(test_maps(), before + slack(1)); /* a heap may have grown */
}

TEST(os_memory, an_impossible_reservation_is_null) {
    CHECK(!weft__vm_reserve((size_t)1 << 62, weft__page_size()));
    CHECK(!weft__vm_reserve(~(size_t)0 & ~(size_t)4095, (size_t)1 << 30));
}

TEST(os_memory, discarded_pages_read_as_zero) {
    size_t page = weft__page_size();
    char *p = weft__vm_reserve(2 * page, page);
    memset(p, 7, 2 * page);
    weft__vm_discard(p, page);
    CHECK(p[0] == 0 && p[page - 1] == 0 && p[page] == 7);
    weft__vm_release(p, 2 * page);
}

TEST(os_memory, a_protected_page_faults_and_others_do_not) {
    size_t page = weft__page_size();
    char *p = weft__vm_reserve(3 * page, page);
    CHECK(!weft__vm_faults(p + page));
    CHECK_EQ(weft__vm_protect_none(p + page, page), 0);
    CHECK(weft__vm_faults(p + page) && weft__vm_faults(p + 2 * page - 1));
    CHECK(!weft__vm_faults(p) && !weft__vm_faults(p + 2 * page));
    weft__vm_release(p, 3 * page);
}

/* True if the kernel has guard regions that work. */
static bool guards_work(void) {
    size_t page = weft__page_size();
    char *p = weft__vm_reserve(page, page);
    bool yes = weft__vm_guard(p, page, page, 1) == 0 && weft__vm_faults(p);
    weft__vm_release(p, page);
    return yes;
}

TEST(os_memory, guards_lie_where_asked_for_and_nowhere_else) {
    if (!guards_work()) test_skip("no guard regions on this kernel");
    enum { N = 150 }; /* more than fit one system call */
    size_t page = weft__page_size(), stride = 4 * page;
    int fds = test_fds(), before = test_maps();
    char *p = weft__vm_reserve(N * stride, page);
    CHECK_EQ(weft__vm_guard(p, 2 * page, stride, N), 0);
    for (int i = 0; i < N; i++) {
        char *q = p + (size_t)i * stride;
        CHECK(weft__vm_faults(q) && weft__vm_faults(q + 2 * page - 1));
        CHECK(!weft__vm_faults(q + 2 * page) && !weft__vm_faults(q + stride - 1));
    }
    CHECK_LE(test_maps(), before + slack(2)); /* that is what they are for */
    weft__vm_release(p, N * stride);
    CHECK_EQ(test_fds(), fds);
}

/* A descriptor of "this process" that was kept across fork would name the parent. */
TEST(os_memory, a_forked_child_guards_its_own_memory) {
    if (!guards_work()) test_skip("no guard regions on this kernel");
    size_t page = weft__page_size();
    char *p = weft__vm_reserve(4 * page, page);
    CHECK_EQ(weft__vm_guard(p + 2 * page, page, page, 2), 0); /* whatever is kept, is kept now */
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) _exit(weft__vm_guard(p, page, page, 2) == 0 && weft__vm_faults(p) ? 0 : 1);
    int status = 0;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
    CHECK(!weft__vm_faults(p) && !weft__vm_faults(p + page));
    weft__vm_release(p, 4 * page);
}

/* ---- threads and sleeping ---- */

static void *tell_tid(void *tid) {
    *(int *)tid = weft__thread_id();
    return NULL;
}

TEST(os, a_thread_that_has_ended_does_not_end_slices_for_others) {
    pthread_t t;
    int tid;
    if (!slices_are_known()) test_skip("the kernel does not say how long a thread may run at a time");
    int64_t mine = slice_of(0);
    CHECK_EQ(weft__thread_start(&t, tell_tid, &tid, NULL), 0);
    CHECK_EQ(pthread_join(t, NULL), 0);
    while (slice_of(tid) >= 0) sched_yield(); /* it is about to be gone */
    errno = 77;
    CHECK_EQ(weft__thread_slice(tid, WEFT_MS), -1);
    weft__thread_slice_back(tid, WEFT_MS, mine);
    CHECK_EQ(weft__thread_slice(weft__thread_id(), 2 * WEFT_MS), mine);
    CHECK_EQ(slice_of(0), 2 * WEFT_MS);
    weft__thread_slice_back(weft__thread_id(), WEFT_MS, 3 * WEFT_MS); /* that is not what it has */
    CHECK_EQ(slice_of(0), 2 * WEFT_MS);
    weft__thread_slice_back(weft__thread_id(), 2 * WEFT_MS, mine);
    CHECK_EQ(slice_of(0), mine);
    CHECK_EQ(errno, 77);
}

static _Atomic int reader_tid;
static void *wait_in_read(void *end) {
    char c;
    weft__store(&reader_tid, weft__thread_id(), relaxed);
    CHECK_EQ(read(*(int *)end, &c, 1), 1);
    return NULL;
}

TEST(os, how_often_a_thread_has_waited_is_told_while_it_does_not) {
    pthread_t t;
    int ends[2];
    int64_t before = weft__thread_waits(weft__thread_id());
    if (before < 0) test_skip("how often a thread has waited is not told here");
    CHECK_EQ(pipe(ends), 0);
    usleep(1000);
    CHECK_GT(weft__thread_waits(weft__thread_id()), before);
    CHECK_EQ(weft__thread_start(&t, wait_in_read, ends, NULL), 0);
    while (!weft__load(&reader_tid, relaxed) || weft__thread_waits(weft__load(&reader_tid, relaxed)) >= 0) sched_yield();
    CHECK_EQ(write(ends[1], "x", 1), 1);
    CHECK_EQ(pthread_join(t, NULL), 0);
    CHECK_EQ(weft__thread_waits(-1), -1);
    for (int i = 0; i < 2; i++) close(ends[i]);
}

static void *tell_name(void *arg) {
    CHECK_EQ(pthread_getname_np(pthread_self(), arg, 16), 0);
    return arg;
}

TEST(os_thread, runs_its_function_under_its_name) {
    char name[16] = "";
    void *result = NULL;
    pthread_t t;
    CHECK_EQ(weft__thread_start(&t, tell_name, name, "weft worker number 12"), 0);
    CHECK_EQ(pthread_join(t, &result), 0);
    CHECK_PTR(result, name);
    CHECK_STR(name, "weft worker num");
}

TEST(os_futex, a_deadline_ends_the_wait_and_not_before) {
    _Atomic uint32_t word = 5;
    int64_t at = weft__os_now() + 20 * WEFT_MS;
    int r;
    while ((r = weft__futex_wait(&word, 5, at)) == 0)
        ;
    CHECK_EQ(r, -ETIMEDOUT);
    CHECK_GE(weft__os_now(), at);
    CHECK_EQ(weft__futex_wait(&word, 5, 1), -ETIMEDOUT);
    CHECK_EQ(weft__futex_wait(&word, 5, INT64_MIN), -ETIMEDOUT);
}

TEST(os_futex, another_value_does_not_wait) {
    _Atomic uint32_t word = 5;
    CHECK_EQ(weft__futex_wait(&word, 4, 0), 0);
}

static void *wait_for_change(void *arg) {
    _Atomic uint32_t *word = arg;
    weft__store(&word[1], 1, release); /* about to wait; pairs with the acquire of test_until's condition */
    while (weft__load(word, acquire) == 0) weft__futex_wait(word, 0, 0); /* pairs with the release in the test */
    return NULL;
}

static bool second_is_set(void *arg) {
    return weft__load((_Atomic uint32_t *)arg + 1, acquire) != 0; /* pairs with wait_for_change */
}

TEST(os_futex, a_wake_ends_the_wait) {
    _Atomic uint32_t word[2] = {0, 0};
    pthread_t t;
    CHECK_EQ(weft__thread_start(&t, wait_for_change, word, NULL), 0);
    test_until(second_is_set, word);
    weft__store(&word[0], 1, release); /* pairs with the acquire in wait_for_change */
    weft__futex_wake(&word[0], 1);
    CHECK_EQ(pthread_join(t, NULL), 0);
}

TEST(os_clock, a_nap_lasts_at_least_its_time) {
    int64_t before = weft__os_now();
    weft__nap(3 * WEFT_MS);
    CHECK_GE(weft__os_now() - before, 3 * WEFT_MS);
    weft__nap(0);
    weft__nap(-1);
}

/* ---- CPUs ---- */

static int one_cpu_only(void *arg) {
    (void)arg;
    cpu_set_t all, one;
    CHECK_EQ(sched_getaffinity(0, sizeof all, &all), 0);
    int cpu = 0;
    while (!CPU_ISSET(cpu, &all)) cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    CHECK_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    CHECK_EQ(weft__cpu_count(), 1);
    return 0;
}

TEST(os_cpu, the_affinity_mask_counts) {
    CHECK_GE(weft__cpu_count(), 1);
    CHECK_LE(weft__cpu_count(), sysconf(_SC_NPROCESSORS_CONF));
    CHECK_CHILD(one_cpu_only);
}

/* A tree of cgroup files in a directory of its own. */
static char root[64];

static void write_file(const char *path, const char *text) {
    char full[256];
    snprintf(full, sizeof full, "%s/%s", root, path);
    for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')); p++) {
        *p = 0;
        mkdir(full, 0700);
        *p = '/';
    }
    FILE *f = fopen(full, "w");
    CHECK(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

static int quota(const char *self) {
    char path[128], tree[128];
    write_file("self", self);
    snprintf(path, sizeof path, "%s/self", root);
    snprintf(tree, sizeof tree, "%s/fs", root);
    return weft__cpu_quota(path, tree);
}

static void remove_tree(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    CHECK_EQ(system(command), 0);
}

static void make_tree(void) {
    snprintf(root, sizeof root, "/tmp/weft-cgroup-XXXXXX");
    CHECK(mkdtemp(root));
}

TEST(os_cpu, a_quota_of_cgroup_v2_is_rounded_up) {
    make_tree();
    write_file("fs/a/cpu.max", "150000 100000\n");
    CHECK_EQ(quota("0::/a\n"), 2);
    write_file("fs/a/cpu.max", "100000 100000\n");
    CHECK_EQ(quota("0::/a\n"), 1);
    write_file("fs/a/cpu.max", "1000 100000\n");
    CHECK_EQ(quota("0::/a\n"), 1);
    write_file("fs/a/cpu.max", "max 100000\n");
    CHECK_EQ(quota("0::/a\n"), 0);
    write_file("fs/a/cpu.max", "nonsense");
    CHECK_EQ(quota("0::/a\n"), 0);
    remove_tree();
}

TEST(os_cpu, the_smallest_quota_of_all_ancestors_holds) {
    make_tree();
    write_file("fs/a/b/cpu.max", "400000 100000\n");
    write_file("fs/a/cpu.max", "300000 100000\n");
    write_file("fs/cpu.max", "max 100000\n");
    CHECK_EQ(quota("0::/a/b\n"), 3);
    CHECK_EQ(quota("0::/not/here\n"), 0);
    write_file("fs/cpu.max", "200000 100000\n");
    CHECK_EQ(quota("0::/not/here\n"), 2); /* a container that shows the host's path */
    CHECK_EQ(quota("0::/\n"), 2);
    remove_tree();
}

/* Every CPU that may be used once, those of a node together, whatever the nodes say. */
TEST(os_cpu, cpus_are_listed_node_by_node) {
    weft__place p[1024], q[1024];
    char nodes[128];
    make_tree();
    snprintf(nodes, sizeof nodes, "%s/node", root);
    int n = weft__cpu_places(p, 1024, nodes); /* no nodes at all */
    CHECK_GE(n, 1);
    for (int i = 0; i < n; i++) CHECK(p[i].node == 0 && (i == 0 || p[i].cpu > p[i - 1].cpu));
    char first[32];
    snprintf(first, sizeof first, "%d\n", p[n - 1].cpu);
    write_file("node/node0/cpulist", first); /* the last CPU is the first node's */
    write_file("node/node3/cpulist", "0-4000\n");
    CHECK_EQ(weft__cpu_places(q, 1024, nodes), n);
    CHECK_EQ(q[0].cpu, p[n - 1].cpu);
    CHECK_EQ(q[0].node, 0);
    for (int i = 1; i < n; i++) CHECK(q[i].cpu == p[i - 1].cpu && q[i].node == 3);
    write_file("node/node3/cpulist", "x,-,7-\n");
    CHECK_EQ(weft__cpu_places(q, 1024, nodes), n);
    CHECK_EQ(weft__cpu_places(q, 1, nodes), 1);
    remove_tree();
}

TEST(os_cpu, a_quota_of_cgroup_v1_counts) {
    make_tree();
    write_file("fs/cpu,cpuacct/a/cpu.cfs_quota_us", "250000\n");
    write_file("fs/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n");
    CHECK_EQ(quota("5:memory:/a\n4:cpu,cpuacct:/a\n"), 3);
    write_file("fs/cpu/a/cpu.cfs_quota_us", "250000\n");
    write_file("fs/cpu/a/cpu.cfs_period_us", "100000\n");
    CHECK_EQ(quota("4:cpuset:/a\n"), 0);
    CHECK_EQ(quota("4:memory,cpu:/a\n"), 3); /* mounted under another name */
    write_file("fs/cpu/a/cpu.cfs_quota_us", "-1\n");
    write_file("fs/cpu,cpuacct/a/cpu.cfs_quota_us", "-1\n");
    CHECK_EQ(quota("4:cpu,cpuacct:/a\n"), 0);
    remove_tree();
}

TEST(os_cpu, a_missing_or_strange_cgroup_file_is_no_limit) {
    make_tree();
    CHECK_EQ(weft__cpu_quota("/nowhere/at/all", root), 0);
    CHECK_EQ(quota(""), 0);
    CHECK_EQ(quota("::::\n\n0:\nx\n0::\n"), 0);
    remove_tree();
}

TEST(os_cpu, a_file_is_read_up_to_the_size_of_the_buffer) {
    char buf[5];
    make_tree();
    write_file("f", "123456");
    char path[128];
    snprintf(path, sizeof path, "%s/f", root);
    CHECK_EQ(weft__read_file(path, buf, sizeof buf), 4);
    CHECK_STR(buf, "1234");
    CHECK_EQ(weft__read_file("/nowhere/at/all", buf, sizeof buf), -ENOENT);
    remove_tree();
}

/* ---- barriers ---- */

/* Store buffering: each side stores its own word, passes its barrier and loads the other's. With the barriers at least one
 * must see the other's store; without them both may miss it, and do so within a few thousand rounds. */
static struct {
    WEFT_ALIGNED _Atomic int x;
    WEFT_ALIGNED _Atomic int y;
    WEFT_ALIGNED _Atomic int round; /* of the light side */
    WEFT_ALIGNED _Atomic int done;  /* of the heavy side */
    _Atomic bool over;              /* published with done */
    int light_saw;
} litmus;

/* Spins, because the two sides must meet within nanoseconds; gives the CPU away if the other side has none. */
static void await(_Atomic int *word, int value) {
    for (int i = 0; weft__load(word, acquire) != value; i++) /* pairs with the release of the other side */
        i < 200 ? weft__cpu_relax() : (void)sched_yield();
}

static void *light_side(void *arg) {
    for (int i = 1;; i++) {
        await(&litmus.done, i - 1);
        if (weft__load(&litmus.over, relaxed)) return arg; /* ordered by done */
        weft__store(&litmus.x, 1, relaxed);                /* ordered by the barrier under test */
        weft__light_barrier();
        litmus.light_saw = weft__load(&litmus.y, relaxed);
        weft__store(&litmus.round, i, release); /* pairs with the acquire in await */
    }
}

static int barriers_order_stores_before_loads(void *fences) {
    if (fences) setenv("WEFT_NO_MEMBARRIER", "1", 1);
    weft__barrier_init();
    CHECK(!fences || weft__fences);
    int rounds = (int)test_scale(fences ? 50000 : 10000, 1000);
    int64_t end = test_long_enough();
    bool over = false;
    pthread_t t;
    CHECK_EQ(weft__thread_start(&t, light_side, NULL, NULL), 0);
    for (int i = 1; !over; i++) {
        for (int k = i % 64; k; k--) __asm__ volatile("" ::: "memory"); /* the other side needs a moment to see the start */
        weft__store(&litmus.y, 1, relaxed);                             /* ordered by the barrier under test */
        weft__heavy_barrier();
        int heavy_saw = weft__load(&litmus.x, relaxed);
        await(&litmus.round, i);
        CHECK_MSG(heavy_saw || litmus.light_saw, "round %d: both sides missed the other's store", i);
        weft__store(&litmus.x, 0, relaxed);
        weft__store(&litmus.y, 0, relaxed);
        over = i == rounds || test_clock_ns() > end;
        weft__store(&litmus.over, over, relaxed);
        weft__store(&litmus.done, i, release); /* pairs with the acquire in await */
    }
    CHECK_EQ(pthread_join(t, NULL), 0);
    return 0;
}

TEST(os_barrier, light_and_heavy_together_order_a_store_before_a_load) { CHECK_CHILD(barriers_order_stores_before_loads); }

TEST(os_barrier, fences_do_the_same_without_membarrier) { CHECK_CHILD_ARG(barriers_order_stores_before_loads, (void *)1); }

/* ---- errno ---- */

static ucontext_t mover, mover_home;
static int *seen_first, *seen_second;
static int value_second;

/* Inlined errno would have its address computed once, on the first thread. */
static void move_between_threads(void) {
    errno = 11;
    seen_first = &errno;
    swapcontext(&mover, &mover_home);
    seen_second = &errno;
    value_second = errno;
    swapcontext(&mover, &mover_home);
}

static void *continue_mover(void *arg) {
    errno = 22;
    swapcontext(&mover_home, &mover);
    *(int **)arg = weft_errno_location();
    return NULL;
}

TEST(os_errno, follows_a_context_that_moves_to_another_thread) {
#ifdef TSAN
    test_skip("the sanitizer does not know what swapcontext does");
#endif
    static char stack[64 << 10];
    getcontext(&mover);
    mover.uc_stack.ss_sp = stack;
    mover.uc_stack.ss_size = sizeof stack;
    makecontext(&mover, move_between_threads, 0);
    swapcontext(&mover_home, &mover);
    CHECK_PTR(seen_first, weft_errno_location());
    CHECK_EQ(errno, 11);
    int *others = NULL;
    pthread_t t;
    CHECK_EQ(weft__thread_start(&t, continue_mover, &others, NULL), 0);
    CHECK_EQ(pthread_join(t, NULL), 0);
    CHECK_PTR(seen_second, others);
    CHECK(seen_first != seen_second);
    CHECK_EQ(value_second, 22);
}
