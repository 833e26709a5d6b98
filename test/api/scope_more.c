/* SPDX-License-Identifier: MIT */
/* Scopes, continued: nesting, copied arguments, options, plain threads, misuse. */
#include "api/common.h"

static atomic_int ran;

static int count_run(void *arg) {
    (void)arg;
    atomic_fetch_add(&ran, 1);
    return 0;
}

/* ---- nesting ---- */

static int nest(void *arg) {
    int depth = (int)(intptr_t)arg;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    if (depth == 0) {
        atomic_fetch_add(&ran, 1);
        CHECK_EQ(weft_spawn(&s, wait_for_ever, NULL), 0);
    } else {
        for (int i = 0; i < 2; i++) CHECK_EQ(weft_spawn(&s, nest, as_arg(depth - 1)), 0);
    }
    CHECK_EQ(weft_scope_end(&s), WEFT_ECANCELED);
    return 0;
}

static int cancel_deep(void *arg) {
    (void)arg;
    weft_scope s;
    atomic_store(&ran, 0);
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, nest, as_arg(6)), 0);
    task_wait_parked(&ran, 1 << 6);
    weft_scope_cancel(&s);
    CHECK_EQ(weft_scope_end(&s), 0);
    return 0;
}

TEST(scope_nested, cancellation_reaches_the_leaves) { run_each(cancel_deep); }

static int fail_deep(void *arg) {
    int depth = (int)(intptr_t)arg;
    weft_scope s;
    if (depth == 0) return -77;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, wait_for_ever, NULL), 0);
    CHECK_EQ(weft_spawn(&s, fail_deep, as_arg(depth - 1)), 0);
    return weft_scope_end(&s);
}

static int fail_upwards(void *arg) {
    (void)arg;
    for (int i = 0; i < 20; i++) CHECK_EQ(fail_deep(as_arg(i + 1)), -77);
    return 0;
}

TEST(scope_nested, errors_rise_through_those_who_return_them) { run_each(fail_upwards); }

static int many_in_one_task(void *arg) {
    (void)arg;
    enum { DEPTH = 30 };
    weft_scope s[DEPTH];
    atomic_store(&ran, 0);
    for (int i = 0; i < DEPTH; i++) {
        weft_scope_begin(&s[i], NULL);
        CHECK_EQ(weft_spawn(&s[i], count_run, NULL), 0);
        CHECK_EQ(weft_spawn(&s[i / 2], count_run, NULL), 0); /* also into one further out */
    }
    weft_scope_cancel(&s[DEPTH / 2]);
    for (int i = DEPTH - 1; i >= 0; i--) {
        CHECK_EQ(weft_cancelled(), i >= DEPTH / 2);
        int rc = weft_scope_end(&s[i]);
        CHECK_EQ(rc, i > DEPTH / 2 ? WEFT_ECANCELED : 0);
    }
    CHECK_EQ(atomic_load(&ran), 2 * DEPTH);
    return 0;
}

TEST(scope_nested, one_task_holds_many_open_scopes) { run_each(many_in_one_task); }

/* ---- copied arguments ---- */

static int check_bytes(void *arg) {
    unsigned char *p = arg;
    CHECK((uintptr_t)p % _Alignof(max_align_t) == 0);
    size_t n = (size_t)p[0] << 8 | p[1];
    weft_yield();
    for (size_t i = 2; i < n; i++) CHECK_EQ(p[i], (unsigned char)(i * 31 + n));
    atomic_fetch_add(&ran, 1);
    return 0;
}

static int check_byte(void *arg) {
    CHECK_EQ(*(unsigned char *)arg, 0xa5);
    atomic_fetch_add(&ran, 1);
    return 0;
}

static int copy_sizes(void *arg) {
    (void)arg;
    weft_scope s;
    unsigned char buf[4096];
    int n = 0;
    atomic_store(&ran, 0);
    weft_scope_begin(&s, NULL);
    for (size_t size = 1; size <= sizeof buf; size += size < 300 ? 1 : 61, n++) {
        if (size == 1) {
            buf[0] = 0xa5;
        } else {
            buf[0] = (unsigned char)(size >> 8);
            buf[1] = (unsigned char)size;
            for (size_t i = 2; i < size; i++) buf[i] = (unsigned char)(i * 31 + size);
        }
        CHECK_EQ(weft_spawn_copy(&s, size == 1 ? check_byte : check_bytes, buf, size), 0);
        memset(buf, 0xdd, sizeof buf);
    }
    for (size_t i = 2; i < sizeof buf; i++) buf[i] = (unsigned char)(i * 31 + sizeof buf);
    buf[0] = sizeof buf >> 8;
    buf[1] = 0;
    CHECK_EQ(weft_spawn_copy(&s, check_bytes, buf, sizeof buf), 0);
    CHECK_EQ(weft_spawn_copy(&s, count_run, NULL, 0), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(atomic_load(&ran), n + 2);
    return 0;
}

TEST(scope_spawn, copies_arguments_of_any_size) { run_each(copy_sizes); }

/* ---- names and stack sizes ---- */

static int touch_stack(void *arg) {
    size_t n = (size_t)(intptr_t)arg;
    volatile char *p = __builtin_alloca(n);
    for (size_t i = 0; i < n; i += 1024) p[i] = (char)i;
    weft_yield();
    for (size_t i = 0; i < n; i += 1024) CHECK_EQ(p[i], (char)i);
    atomic_fetch_add(&ran, 1);
    return 0;
}

static int spawn_named(void *arg) {
    (void)arg;
    weft_scope s;
    char name[16] = "temporary";
    atomic_store(&ran, 0);
    weft_scope_begin(&s, NULL);
    weft_task_opts o = {.name = name, .stack_size = 0};
    CHECK_EQ(weft_spawn_opts(&s, count_run, NULL, &o), 0);
    CHECK_EQ(weft_spawn_opts(&s, count_run, NULL, NULL), 0);
    memset(name, 0, sizeof name);
    for (int i = 0; i < 50; i++) CHECK_EQ(weft_spawnf(&s, count_run, NULL, "worker %d of %s%*s", i, "many", i * 5, ""), 0);
    CHECK_EQ(weft_spawnf(&s, count_run, NULL, "%s", ""), 0);
    static const size_t sizes[] = {16 << 10, 64 << 10, 128 << 10, 1 << 20, 8 << 20, 64 << 20};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        o.stack_size = sizes[i];
        CHECK_EQ(weft_spawn_opts(&s, touch_stack, as_arg((intptr_t)(sizes[i] / 2)), &o), 0);
    }
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(atomic_load(&ran), 53 + (int)COUNT(sizes));
    return 0;
}

TEST(scope_spawn, takes_names_and_stack_sizes) { run_each(spawn_named); }

/* ---- plain threads ---- */

static int sleep_briefly(void *arg) {
    CHECK_EQ(weft_sleep_for(50 * WEFT_US), 0);
    return count_run(arg);
}

static void *open_in_thread(void *arg) {
    (void)arg;
    for (int i = 0; i < 50; i++) {
        weft_scope s;
        weft_scope_begin(&s, NULL);
        for (int k = 0; k < 20; k++) CHECK_EQ(weft_spawn(&s, k % 5 ? count_run : sleep_briefly, NULL), 0);
        CHECK_EQ(weft_scope_end(&s), 0);
        weft_scope_begin(&s, NULL);
        CHECK_EQ(weft_spawn(&s, wait_for_ever, NULL), 0);
        CHECK_EQ(weft_spawn(&s, return_int, as_arg(-6)), 0);
        CHECK_EQ(weft_sleep(WEFT_FOREVER), WEFT_ECANCELED); /* the thread's own code is inside too */
        CHECK_EQ(weft_cancel_cause(), -6);
        CHECK_EQ(weft_scope_end(&s), -6);
        CHECK_EQ(weft_cancelled(), 0);
    }
    return NULL;
}

TEST(scope_thread, plain_threads_open_scopes) {
    EACH_WORKERS(w) {
        pthread_t t[3];
        atomic_store(&ran, 0);
        CHECK_EQ(set_up(w), 0);
        for (size_t i = 0; i < COUNT(t); i++) CHECK_EQ(pthread_create(&t[i], NULL, open_in_thread, NULL), 0);
        for (size_t i = 0; i < COUNT(t); i++) pthread_join(t[i], NULL);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
        CHECK_EQ(atomic_load(&ran), 3 * 50 * 20);
    }
}

TEST(scope_thread, deadlines_and_nesting_work_in_plain_threads) {
    EACH_WORKERS(w) {
        CHECK_EQ(set_up(w), 0);
        weft_scope outer, inner;
        weft_scope_opts o = {.deadline = weft_after(2 * WEFT_MS), .on_error = 0};
        weft_scope_begin(&outer, &o);
        weft_scope_begin(&inner, NULL);
        int rc = weft_spawn(&inner, wait_for_ever, NULL);
        CHECK(rc == 0 || rc == WEFT_ECANCELED); /* the deadline may have passed */
        weft_chan *c = weft_chan_new(0, 0);
        CHECK_EQ(weft_chan_recv(c, NULL, WEFT_FOREVER), WEFT_ECANCELED);
        CHECK_EQ(weft_cancel_cause(), WEFT_ETIMEDOUT);
        CHECK_EQ(weft_scope_end(&inner), WEFT_ECANCELED);
        CHECK_EQ(weft_scope_end(&outer), WEFT_ETIMEDOUT);
        CHECK_EQ(weft_chan_recv(c, NULL, WEFT_POLL), WEFT_EAGAIN);
        weft_chan_unref(c);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    }
}

static void *cancel_it(void *arg) {
    weft_scope_cancel(arg);
    return NULL;
}

static int cancelled_by_thread(void *arg) {
    (void)arg;
    for (int i = 0; i < 50; i++) {
        weft_scope s;
        pthread_t t;
        weft_scope_begin(&s, NULL);
        CHECK_EQ(weft_spawn(&s, wait_for_ever, NULL), 0);
        CHECK_EQ(pthread_create(&t, NULL, cancel_it, &s), 0);
        CHECK_EQ(weft_sleep(WEFT_FOREVER), WEFT_ECANCELED);
        pthread_join(t, NULL);
        CHECK_EQ(weft_scope_end(&s), 0);
    }
    return 0;
}

TEST(scope_thread, a_plain_thread_cancels_a_tasks_scope) { run_each(cancelled_by_thread); }

static int scope_of_thread(void *arg) {
    weft_scope *s = arg;
    CHECK_EQ(weft_spawn(s, count_run, NULL), 0);
    return 0;
}

TEST(scope_thread, children_spawn_into_a_threads_scope) {
    EACH_WORKERS(w) {
        CHECK_EQ(set_up(w), 0);
        atomic_store(&ran, 0);
        for (int i = 0; i < 100; i++) {
            weft_scope s;
            weft_scope_begin(&s, NULL);
            CHECK_EQ(weft_spawn(&s, scope_of_thread, &s), 0);
            CHECK_EQ(weft_scope_end(&s), 0);
        }
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
        CHECK_EQ(atomic_load(&ran), 100);
    }
}

/* ---- misuse ---- */

static int leave_open(void *arg) {
    static weft_scope s;
    (void)arg;
    weft_scope_begin(&s, NULL);
    return 0;
}

static int run_leave_open(void *arg) {
    (void)arg;
    return run_on(1, leave_open, NULL);
}

TEST(scope_misuse, returning_with_an_open_scope_aborts) { CHECK_DIES(run_leave_open, "scope"); }

static int end_outer_first(void *arg) {
    (void)arg;
    weft_scope outer, inner;
    weft_scope_begin(&outer, NULL);
    weft_scope_begin(&inner, NULL);
    return weft_scope_end(&outer);
}

static int run_end_outer_first(void *arg) {
    (void)arg;
    return run_on(1, end_outer_first, NULL);
}

TEST(scope_misuse, ending_the_outer_scope_first_aborts) { CHECK_DIES(run_end_outer_first, "scope"); }
