/* SPDX-License-Identifier: MIT */
/* The end of a task with the nth allocation failing: what is refused is refused with an error, and panics need no memory. */
#include "fault/common.h"

enum { CALLS = 12 };

static atomic_int ran, destroyed, reported;
static weft_key key;

static void count(void *arg) { atomic_fetch_add((atomic_int *)arg, 1); }

static void quiet(const weft_panic_info *info, void *arg) {
    (void)arg;
    weft_panic_report(info); /* without memory, too */
    CHECK_STR(info->message, "without memory");
    atomic_fetch_add(&reported, 1);
}

/* ---- refused, or done ---- */

static int leaves_things(void *arg) {
    (void)arg;
    weft__fault_arm((long)(intptr_t)arg, false);
    int added = weft_at_exit(count, &ran), set = weft_local_set(key, &destroyed);
    weft__fault_arm(0, false);
    CHECK(added == 0 || is_fault(added));
    CHECK(set == 0 || is_fault(set));
    CHECK_PTR(weft_local_get(key), set ? NULL : &destroyed);
    return (added ? 0 : 1) + (set ? 0 : 2);
}

static int in_task(weft_fn *fn, void *arg) {
    weft_task *t;
    int result;
    CHECK_EQ(weft_task_start(&t, fn, arg, NULL), 0);
    CHECK_EQ(weft_task_join(t, &result, WEFT_FOREVER), 0);
    return result;
}

static int things_fail(void *arg) {
    bool refused = false;
    (void)arg;
    for (long n = 1; n <= CALLS; n++) {
        atomic_store(&ran, 0);
        atomic_store(&destroyed, 0);
        int done = in_task(leaves_things, as_arg(n));
        CHECK_EQ(atomic_load(&ran), done & 1);
        CHECK_EQ(atomic_load(&destroyed), done >> 1);
        refused |= done != 3;
    }
    CHECK(refused);
    return 0;
}

TEST(fault_panic, exits_and_locals_are_refused_or_run) {
    CHECK_EQ(weft_key_new(&key, count), 0);
    EACH_WORKERS(w) CHECK_EQ(run_on(w, things_fail, NULL), 0);
}

static void *thread_sets(void *arg) {
    weft__fault_arm((long)(intptr_t)arg, false);
    int set = weft_local_set(key, &destroyed);
    weft__fault_arm(0, false);
    CHECK(set == 0 || is_fault(set));
    return as_arg(set == 0);
}

TEST(fault_panic, locals_of_plain_threads_are_refused_or_destroyed) {
    CHECK_EQ(weft_key_new(&key, count), 0);
    int sum = 0;
    for (long n = 1; n <= 4; n++) {
        pthread_t t;
        void *set;
        CHECK_EQ(pthread_create(&t, NULL, thread_sets, as_arg(n)), 0);
        CHECK_EQ(pthread_join(t, &set), 0);
        sum += set != NULL;
    }
    CHECK(sum > 0 && sum < 4);
    CHECK_EQ(atomic_load(&destroyed), sum);
}

/* ---- panics ---- */

static int panics(void *arg) {
    weft__fault_arm(1, true);
    if (arg) weft_panic("without %s", "memory"); /* with its place */
    (weft_panic)("without %s", "memory");
}

static int no_memory(void *arg) {
    weft_panic_info info;
    (void)arg;
    for (int i = 0; i < 50; i++) {
        int rc = weft_try(panics, NULL, &info);
        weft__fault_arm(0, false);
        CHECK_EQ(rc, WEFT_EPANIC);
        CHECK_STR(info.message, "without memory");
        weft_scope s;
        weft_scope_begin(&s, NULL);
        CHECK_EQ(weft_spawn(&s, panics, as_arg(i % 2)), 0);
        rc = weft_scope_end(&s);
        weft__fault_arm(0, false);
        CHECK_EQ(rc, WEFT_EPANIC);
    }
    CHECK_EQ(atomic_load(&reported), 50);
    return 0;
}

TEST(fault_panic, a_panic_needs_no_memory) {
    CHECK(freopen("/dev/null", "w", stderr)); /* a hundred and fifty reports */
    EACH_WORKERS(w) {
        weft_config cfg = {.workers = w, .on_panic = quiet};
        atomic_store(&reported, 0);
        CHECK_EQ(weft_run(no_memory, NULL, &cfg), 0);
    }
}
