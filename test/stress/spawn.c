/* SPDX-License-Identifier: MIT */
/* Spawning without measure: recursion, storms, chains, from tasks and from plain threads. */
#include "api/common.h"

#include <weft/debug.h>

/* ---- recursion ---- */

struct fib {
    int n;
    long result;
};

static int fib(void *arg) {
    struct fib *f = arg;
    if (f->n < 2) {
        f->result = f->n;
        return 0;
    }
    struct fib a = {f->n - 1, 0}, b = {f->n - 2, 0};
    weft_scope s;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, fib, &a), 0);
    CHECK_EQ(weft_spawn(&s, fib, &b), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    f->result = a.result + b.result;
    return 0;
}

TEST_T(spawn_stress, fib_with_a_task_per_call, 120) {
    long n = test_slow_tools() > 1 ? 15 : 24, want[2] = {0, 1};
    for (long i = 1; i < n; i++) {
        long next = want[0] + want[1];
        want[0] = want[1];
        want[1] = next;
    }
    for (int w = 1; w <= 8; w++) {
        struct fib f = {(int)n, 0};
        CHECK_EQ(run_on(w, fib, &f), 0);
        CHECK_EQ(f.result, want[1]);
    }
}

static int fib_stacks(void *arg) {
    struct fib *f = arg;
    weft_stats st;
    CHECK_EQ(fib(f), 0);
    weft_stats_get(&st);
    CHECK_LE(st.stacks, 2000); /* depth first; breadth first would be tens of thousands */
    return 0;
}

TEST(spawn_stress, fork_join_runs_depth_first) {
    EACH_WORKERS(w) {
        struct fib f = {test_slow_tools() > 1 ? 15 : 24, 0};
        CHECK_EQ(run_on(w, fib_stacks, &f), 0);
    }
}

/* ---- skynet: a tree of tasks that send their sums upwards ---- */

struct sky {
    weft_chan *up;
    long num, size;
};

static int sky(void *arg) {
    struct sky *k = arg;
    if (k->size == 1) return weft_chan_send(k->up, &k->num, WEFT_FOREVER);
    weft_chan *c = weft_chan_new(sizeof(long), 0);
    weft_scope s;
    long sum = 0, v = 0;
    CHECK(c);
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 10; i++)
        CHECK_EQ(weft_spawn_with(&s, sky, (struct sky){c, k->num + i * (k->size / 10), k->size / 10}), 0);
    for (int i = 0; i < 10; i++) {
        CHECK_EQ(weft_chan_recv(c, &v, WEFT_FOREVER), 0);
        sum += v;
    }
    CHECK_EQ(weft_scope_end(&s), 0);
    weft_chan_unref(c);
    return weft_chan_send(k->up, &sum, WEFT_FOREVER);
}

static int sky_root(void *arg) {
    (void)arg;
    long size = test_slow_tools() > 1 ? 1000 : 10000, sum = 0;
    weft_chan *c = weft_chan_new(sizeof(long), 1);
    weft_scope s;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn_with(&s, sky, (struct sky){c, 0, size}), 0);
    CHECK_EQ(weft_chan_recv(c, &sum, WEFT_FOREVER), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(sum, size * (size - 1) / 2);
    weft_chan_unref(c);
    return 0;
}

TEST_T(spawn_stress, skynet_adds_up, 120) {
    for (int w = 1; w <= 8; w *= 2) CHECK_EQ(run_on(w, sky_root, NULL), 0);
}

/* ---- storms ---- */

static atomic_long ran;

static int count_run(void *arg) {
    (void)arg;
    atomic_fetch_add(&ran, 1);
    return 0;
}

static int count_and_yield(void *arg) {
    weft_yield();
    return count_run(arg);
}

static int storm(void *arg) {
    long n = (long)(intptr_t)arg;
    weft_scope s;
    for (int parks = 0; parks < 2; parks++) {
        atomic_store(&ran, 0);
        weft_scope_begin(&s, NULL);
        for (long i = 0; i < n; i++) CHECK_EQ(weft_spawn(&s, parks ? count_and_yield : count_run, NULL), 0);
        CHECK_EQ(weft_scope_end(&s), 0);
        CHECK_EQ(atomic_load(&ran), n);
    }
    return 0;
}

TEST_T(spawn_stress, one_task_spawns_a_storm, 120) {
    for (int w = 1; w <= 8; w *= 2) CHECK_EQ(run_on(w, storm, as_arg(test_scale(200000, 2000))), 0);
}

static int storm_of_storms(void *arg) {
    long n = (long)(intptr_t)arg;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (long i = 0; i < n; i++) CHECK_EQ(weft_spawn(&s, i % 3 ? count_run : count_and_yield, NULL), 0);
    return weft_scope_end(&s);
}

static int many_storms(void *arg) {
    long n = (long)(intptr_t)arg;
    weft_scope s;
    atomic_store(&ran, 0);
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 50; i++) CHECK_EQ(weft_spawn(&s, storm_of_storms, as_arg(n)), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(atomic_load(&ran), 50 * n);
    return 0;
}

TEST_T(spawn_stress, many_tasks_spawn_storms, 120) {
    for (int w = 1; w <= 8; w *= 2) CHECK_EQ(run_on(w, many_storms, as_arg(test_scale(2000, 50))), 0);
}

static void *go_storm(void *arg) {
    for (long i = (long)(intptr_t)arg; i > 0; i--) CHECK_EQ(weft_go(i % 2 ? count_run : count_and_yield, NULL), 0);
    return NULL;
}

static bool all_ran(void *arg) { return atomic_load(&ran) >= *(long *)arg; }

TEST_T(spawn_stress, plain_threads_spawn_storms, 120) {
    EACH_WORKERS(w) {
        pthread_t t[4];
        long n = test_scale(10000, 200), want = n * 4;
        atomic_store(&ran, 0);
        CHECK_EQ(set_up(w), 0);
        for (size_t i = 0; i < COUNT(t); i++) CHECK_EQ(pthread_create(&t[i], NULL, go_storm, as_arg(n)), 0);
        for (size_t i = 0; i < COUNT(t); i++) pthread_join(t[i], NULL);
        if (w == 2) test_until(all_ran, &want); /* else the stop has to run them */
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
        CHECK_EQ(atomic_load(&ran), want);
    }
}

/* ---- chains: each task spawns its successor ---- */

struct link {
    weft_scope *s;
    long left;
};

static int link_in_scope(void *arg) {
    struct link *l = arg;
    atomic_fetch_add(&ran, 1);
    return l->left ? weft_spawn_with(l->s, link_in_scope, (struct link){l->s, l->left - 1}) : 0;
}

static int link_in_root(void *arg) {
    long left = *(long *)arg - 1;
    atomic_fetch_add(&ran, 1);
    return left > 0 ? weft_go_with(link_in_root, left) : 0;
}

static int chains(void *arg) {
    long n = (long)(intptr_t)arg;
    weft_scope s;
    atomic_store(&ran, 0);
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 3; i++) CHECK_EQ(weft_spawn_with(&s, link_in_scope, (struct link){&s, n - 1}), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(atomic_load(&ran), 3 * n);
    atomic_store(&ran, 0);
    for (int i = 0; i < 3; i++) CHECK_EQ(weft_go_with(link_in_root, n), 0);
    while (atomic_load(&ran) < 3 * n) weft_yield();
    weft_stats st;
    weft_stats_get(&st);
    CHECK_LE(st.stacks, 5000); /* a chain needs a few, however long it is */
    return 0;
}

TEST_T(spawn_stress, chains_of_tasks_use_a_bounded_number_of_stacks, 120) {
    for (int w = 1; w <= 8; w *= 2) CHECK_EQ(run_on(w, chains, as_arg(test_scale(50000, 500))), 0);
}

/* ---- deep nesting ---- */

static int nest(void *arg) {
    long depth = (long)(intptr_t)arg;
    atomic_fetch_add(&ran, 1);
    if (depth == 0) return 0;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, nest, as_arg(depth - 1)), 0);
    return weft_scope_end(&s);
}

TEST_T(spawn_stress, scopes_nest_thousands_deep, 120) {
    for (int w = 1; w <= 8; w *= 2) {
        long depth = test_scale(10000, 300);
        atomic_store(&ran, 0);
        CHECK_EQ(run_on(w, nest, as_arg(depth)), 0);
        CHECK_EQ(atomic_load(&ran), depth + 1);
    }
}

/* ---- looked at from outside ---- */

static atomic_int over, gone;

static int yield_a_little(void *arg) {
    weft_yield();
    return (int)(intptr_t)arg;
}

/* Tasks of each kind that a dump shows: with a stack, inside their opener, with a name, and with a thread. */
static int come_and_go(void *arg) {
    (void)arg;
    while (!atomic_load(&over)) {
        weft_scope s;
        weft_scope_begin(&s, NULL);
        for (int i = 0; i < 8; i++) {
            CHECK_EQ(weft_spawn(&s, i % 2 ? yield_a_little : return_int, NULL), 0);
            CHECK_EQ(weft_spawnf(&s, i % 2 ? return_int : yield_a_little, NULL, "a name, number %d", i), 0);
        }
        CHECK_EQ(weft_spawn_opts(&s, yield_a_little, NULL, &(weft_task_opts){.flags = WEFT_BOUND}), 0);
        CHECK_EQ(weft_scope_end(&s), 0);
    }
    atomic_fetch_add(&gone, 1);
    return 0;
}

/* Each line is whole, whatever becomes of its task meanwhile. */
static void check_lines(char *text) {
    CHECK(strncmp(text, "weft ", 5) == 0);
    for (char *at = strtok(strchr(text, '\n'), "\n"); at; at = strtok(NULL, "\n")) {
        CHECK_MSG(strncmp(at, "task ", 5) == 0 && strstr(at, "  function ") && strstr(at, ", spawned at "), "\"%s\"", at);
    }
}

TEST(spawn_stress, a_dump_is_taken_while_tasks_come_and_go) {
    static char text[1 << 20];
    EACH_WORKERS(w) {
        atomic_store(&over, 0);
        atomic_store(&gone, 0);
        CHECK_EQ(set_up(w), 0);
        for (int i = 0; i < 4; i++) CHECK_EQ(weft_go(come_and_go, NULL), 0);
        for (long i = 0; i < test_scale(2000, 200); i++) {
            FILE *f = fmemopen(text, sizeof text, "w");
            CHECK(f);
            weft_dump(f);
            fclose(f);
            check_lines(text);
        }
        atomic_store(&over, 1);
        thread_wait(&gone, 4);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    }
}
