/* SPDX-License-Identifier: MIT */
/* The short lock: one holder at a time, what it did is seen by the next, and strict mode gives the CPU away at once. */
#include "test.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/lock.h"
#include "os/os.h"

#include <weft.h>

static weft__lock lock;

/* ---- instead of the C library's: who waits for `let_go_at` lets it go the moment it gives its CPU away ---- */

static __thread weft__lock *let_go_at;
static __thread int yields;

int sched_yield(void) {
    yields++;
    if (!let_go_at) return (int)syscall(SYS_sched_yield);
    weft__lock_leave(let_go_at);
    return 0;
}

/* ---- one holder ---- */

TEST(lock, zero_is_unlocked_and_attempts_tell) {
    static weft__lock l;
    CHECK(weft__lock_try(&l));
    CHECK(!weft__lock_try(&l));
    CHECK(!weft__lock_take_once(&l));
    weft__lock_leave(&l);
    CHECK(weft__lock_take_once(&l));
    weft__lock_leave(&l);
    weft__lock_take(&l);
    CHECK(!weft__lock_try(&l));
    weft__lock_leave(&l);
}

enum { THREADS = 4 };

static struct {
    uint64_t count, check; /* plain: only the lock keeps them together */
    atomic_int inside;
} shared;

static void work_inside(void) {
    CHECK_EQ(atomic_fetch_add(&shared.inside, 1), 0);
    CHECK_EQ(shared.check, ~shared.count);
    shared.count++;
    weft__compiler_barrier(); /* the two stores stay two */
    shared.check = ~shared.count;
    CHECK_EQ(atomic_fetch_sub(&shared.inside, 1), 1);
}

static void *take_and_leave(void *arg) {
    long n = *(const long *)arg;
    for (long i = 0; i < n; i++) {
        if (i % 3 == 0)
            weft__lock_take(&lock);
        else
            while (!(i % 3 == 1 ? weft__lock_try(&lock) : weft__lock_take_once(&lock)))
                weft__lock_take(&lock), weft__lock_leave(&lock);
        work_inside();
        weft__lock_leave(&lock);
    }
    return NULL;
}

static void contend(void) {
    long n = test_scale(200000, 5000);
    pthread_t t[THREADS];
    shared.count = 0;
    shared.check = ~UINT64_C(0);
    for (int i = 0; i < THREADS; i++) CHECK_EQ(pthread_create(&t[i], NULL, take_and_leave, &n), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
    CHECK_EQ(shared.count, n * THREADS);
}

TEST(lock, has_one_holder_at_a_time) { contend(); }

TEST(lock, has_one_holder_at_a_time_in_strict_mode) {
    weft__lock_strict(true);
    contend();
    weft__lock_strict(false);
}

/* ---- one that leans ---- */

enum { SLOT = 7 };
static atomic_bool others_done;
struct owner {
    pthread_t thread;
    uint64_t seed;
    uint16_t slot;
};

/* A slot's owner: takes it as it leans, and lets it lean when it does not. */
static void *own_and_lean(void *arg) {
    struct owner *o = arg;
    for (long leant = 0; !atomic_load(&others_done) || leant == 0;) {
        bool leaning = weft__lean_take(&lock, o->slot);
        if (!leaning) weft__lock_take(&lock);
        leant += leaning;
        work_inside();
        if (!leaning && test_below(&o->seed, 4) == 0) weft__lean_begin(&lock, o->slot);
        weft__lock_leave(&lock);
    }
    return NULL;
}

TEST(lock, one_that_leans_has_one_holder_at_a_time) {
    long n = test_scale(20000, 500);
    pthread_t t[THREADS];
    struct owner owner[2] = {{.slot = SLOT, .seed = test_seed()}, {.slot = SLOT + 1, .seed = test_seed() + 1}};
    weft__barrier_init();
    if (weft__fences) test_skip("no membarrier: no lock leans");
    shared.count = 0;
    shared.check = ~UINT64_C(0);
    for (int i = 0; i < 2; i++) CHECK_EQ(pthread_create(&owner[i].thread, NULL, own_and_lean, &owner[i]), 0);
    for (int i = 1; i < THREADS; i++) CHECK_EQ(pthread_create(&t[i], NULL, take_and_leave, &n), 0);
    for (int i = 1; i < THREADS; i++) pthread_join(t[i], NULL);
    atomic_store(&others_done, true);
    for (int i = 0; i < 2; i++) pthread_join(owner[i].thread, NULL);
    CHECK_EQ(weft__load(&lock.kept, relaxed), 0);
}

TEST(lock, what_leans_is_not_tried_in_passing) {
    static weft__lock l;
    weft__barrier_init();
    weft__lock_take(&l);
    weft__lean_begin(&l, SLOT);
    weft__lock_leave(&l);
    CHECK(!weft__lock_try(&l));
    CHECK(!weft__lock_take_once(&l));
    CHECK(!weft__lean_take(&l, SLOT + 1));
    CHECK(weft__lean_take(&l, SLOT));
    weft__lock_leave(&l);
    weft__lock_take(&l); /* straightens it */
    CHECK(!weft__lean_take(&l, SLOT));
    weft__lock_leave(&l);
    CHECK(weft__lock_try(&l));
    CHECK(weft__lock_forget(&l));
    CHECK(!weft__lock_forget(&l));
}

/* ---- waiting ---- */

/* The CPU time that waiting for a lock costs whose holder does nothing until it gets the waiter's CPU. The best of many. */
static int64_t wait_for_holder(void) {
    int64_t best = INT64_MAX;
    for (int i = 0; i < 200; i++) {
        weft__lock_take(&lock);
        yields = 0;
        let_go_at = &lock;
        int64_t t = test_thread_cpu_ns();
        weft__lock_take(&lock);
        t = test_thread_cpu_ns() - t;
        let_go_at = NULL;
        CHECK_EQ(yields, 1);
        weft__lock_leave(&lock);
        if (t < best) best = t;
    }
    printf("%lld ns\n", (long long)best);
    return best;
}

TEST(lock, a_waiter_gives_its_cpu_to_the_holder) { (void)wait_for_holder(); }

TEST(lock, in_strict_mode_it_does_so_without_spinning) {
    int64_t spinning = wait_for_holder();
    weft__lock_strict(true);
    int64_t strict = wait_for_holder();
    weft__lock_strict(false);
    CHECK_LT(4 * strict, spinning);
    CHECK_LT(4 * strict, wait_for_holder()); /* and back */
}

/* In a runtime that is told not to search, locks do not spin either. */
TEST(lock, a_runtime_without_searching_is_strict) {
    unsetenv("WEFT_SEARCH"); /* the matrix of tests sets it */
    int64_t spinning = wait_for_holder();
    weft_config cfg = {.workers = 1, .search = -1};
    CHECK_EQ(weft_start(&cfg), 0);
    CHECK_LT(4 * wait_for_holder(), spinning);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    cfg.search = 0;
    CHECK_EQ(weft_start(&cfg), 0);
    CHECK_LT(spinning, 4 * wait_for_holder());
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
}

TEST(lock, so_is_one_that_the_environment_keeps_from_searching) {
    weft_config cfg = {.workers = 1};
    int64_t spinning = wait_for_holder();
    setenv("WEFT_SEARCH", "-1", 1);
    CHECK_EQ(weft_start(&cfg), 0);
    CHECK_LT(4 * wait_for_holder(), spinning);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    cfg.search = 20 * WEFT_US; /* the program's own wish comes first */
    CHECK_EQ(weft_start(&cfg), 0);
    CHECK_LT(spinning, 4 * wait_for_holder());
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
}
