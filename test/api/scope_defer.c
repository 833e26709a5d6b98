/* SPDX-License-Identifier: MIT */
/* Deferred functions that use their own scope: what it kept is there until they have run, and it takes no child any more. */
#include "api/common.h"

static struct {
    weft_scope *s;
    int calls, spawned, order[4];
} at;

static atomic_int ran;

static int count_run(void *arg) {
    atomic_fetch_add(&ran, 1);
    return (int)(intptr_t)arg;
}

static int open_another(void *arg) {
    weft_scope s;
    (void)arg;
    weft_scope_begin(&s, &(weft_scope_opts){.limit = 7, .results = true});
    return weft_scope_end(&s);
}

/* Memory of the scope's that was given back would be used again here. */
static void churn(void) {
    void *p[64];
    for (int i = 0; i < 64; i++) {
        p[i] = malloc(64 + 16 * (size_t)i);
        CHECK(p[i] != NULL);
        memset(p[i], 0x41, 64 + 16 * (size_t)i);
    }
    weft_scope other;
    weft_scope_begin(&other, NULL);
    CHECK_EQ(weft_spawnf(&other, open_another, NULL, "another"), 0); /* with a name it has a stack of its own */
    CHECK_EQ(weft_scope_end(&other), 0);
    for (int i = 0; i < 64; i++) free(p[i]);
}

static void note(void *arg) { at.order[at.calls++] = (int)(intptr_t)arg; }

static void defer_more(void *arg) {
    churn();
    CHECK_EQ(weft_scope_defer(at.s, note, as_arg(2)), 0);
    note(arg);
}

/* With and without a roster. */
static const weft_scope_opts kinds[] = {{.on_error = 0}, {.limit = 2}, {.results = true}, {.limit = 3, .results = true}};

static int defer_in_deferred(void *arg) {
    (void)arg;
    for (size_t i = 0; i < COUNT(kinds); i++) {
        weft_scope s;
        at.s = &s;
        at.calls = 0;
        weft_scope_begin(&s, &kinds[i]);
        CHECK_EQ(weft_scope_defer(&s, note, as_arg(3)), 0);
        CHECK_EQ(weft_scope_defer(&s, defer_more, as_arg(1)), 0);
        for (int k = 0; k < 5; k++) CHECK_EQ(weft_spawn(&s, count_run, NULL), 0);
        CHECK_EQ(weft_scope_end(&s), 0);
        CHECK_EQ(at.calls, 3);
        for (int k = 0; k < 3; k++) CHECK_EQ(at.order[k], k + 1);
    }
    return 0;
}

static void on_each_and_a_thread(weft_fn *fn) {
    run_each(fn);
    CHECK_EQ(set_up(2), 0);
    CHECK_EQ(fn(NULL), 0);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
}

TEST(scope_defer_late, a_deferred_function_defers_another) { on_each_and_a_thread(defer_in_deferred); }

/* ---- results ---- */

static void collect(void *arg) {
    int r, sum = 0;
    churn();
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(weft_scope_wait_any(at.s, &r, WEFT_FOREVER), 0);
        sum += r;
    }
    CHECK_EQ(sum, 1 + 2 + 3 + 4);
    CHECK_EQ(weft_scope_wait_any(at.s, &r, WEFT_FOREVER), WEFT_EEOF);
    *(bool *)arg = true;
}

static int results_in_deferred(void *arg) {
    (void)arg;
    weft_scope s;
    bool collected = false;
    at.s = &s;
    weft_scope_begin(&s, &(weft_scope_opts){.limit = 2, .results = true});
    CHECK_EQ(weft_scope_defer(&s, collect, &collected), 0);
    for (int i = 1; i <= 4; i++) CHECK_EQ(weft_spawn(&s, count_run, as_arg(i)), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK(collected);
    return 0;
}

TEST(scope_defer_late, results_are_there_for_deferred_functions) { on_each_and_a_thread(results_in_deferred); }

/* ---- spawning ---- */

static int spawn_each_way(void) {
    char large[200] = "";
    weft_task_opts named = {.name = "late"};
    int first = weft_spawn(at.s, count_run, NULL);
    CHECK_EQ(weft_spawn_copy(at.s, count_run, large, 8), first);
    CHECK_EQ(weft_spawn_copy(at.s, count_run, large, sizeof large), first);
    CHECK_EQ(weft_spawn_opts(at.s, count_run, NULL, &named), first);
    CHECK_EQ(weft_spawnf(at.s, count_run, NULL, "late %d", 1), first);
    return first;
}

static void spawn_late(void *arg) {
    (void)arg;
    at.spawned = spawn_each_way();
}

static int spawn_as_child(void *arg) {
    (void)arg;
    at.spawned = spawn_each_way();
    return 0;
}

static void spawn_late_by_another(void *arg) {
    weft_scope inner;
    (void)arg;
    weft_scope_begin(&inner, NULL);
    CHECK_EQ(weft_spawnf(&inner, spawn_as_child, NULL, "another"), 0);
    CHECK_EQ(weft_scope_end(&inner), 0);
}

static void spawn_late_after_cancelling(void *arg) {
    weft_scope_cancel(at.s);
    spawn_late(arg);
}

static void (*const spawners[])(void *) = {spawn_late, spawn_late_by_another, spawn_late_after_cancelling};

/* Refused, and told by weft_scope_end as every refused spawn is, unless the scope has ended with an error. */
static void spawn_in_deferred(const weft_scope_opts *kind, void (*spawner)(void *), int how) {
    weft_scope outer, s;
    at.s = &s;
    at.spawned = 1;
    atomic_store(&ran, 0);
    weft_scope_begin(&outer, NULL);
    weft_scope_begin(&s, kind);
    CHECK_EQ(weft_scope_defer(&s, spawner, NULL), 0);
    for (int k = 0; k < 3; k++) CHECK_EQ(weft_spawn(&s, count_run, as_arg(how == 2 && k == 1 ? -4 : 0)), 0);
    if (how == 1) weft_scope_cancel(&s);
    CHECK_EQ(weft_scope_end(&s), how == 2 ? -4 : WEFT_ETERMINATED);
    CHECK_EQ(at.spawned, WEFT_ETERMINATED);
    CHECK_EQ(weft_cancelled(), 0); /* what is around it is not concerned */
    CHECK_EQ(weft_scope_end(&outer), 0);
    CHECK_EQ(atomic_load(&ran), 3);
}

static int spawn_in_each(void *arg) {
    (void)arg;
    for (size_t i = 0; i < COUNT(kinds); i++) {
        weft_scope_opts kind = kinds[i];
        kind.on_error = WEFT_KEEP_GOING; /* all three children are to run */
        for (size_t k = 0; k < COUNT(spawners); k++)
            for (int how = 0; how < 3; how++) spawn_in_deferred(&kind, spawners[k], how);
        spawn_in_deferred(&kinds[i], spawn_late, 0);
    }
    return 0;
}

TEST(scope_defer_late, a_scope_that_is_ending_takes_no_children) { on_each_and_a_thread(spawn_in_each); }

static void spawn_block(void *s) { CHECK_EQ(weft_spawn(s, count_run, NULL), WEFT_ETERMINATED); }

static int spawn_in_block(void *arg) {
    int result = 1;
    (void)arg;
    WEFT_SCOPE(s, .result = &result) CHECK_EQ(weft_scope_defer(&s, spawn_block, &s), 0);
    CHECK_EQ(result, WEFT_ETERMINATED);
    return 0;
}

TEST(scope_defer_late, blocks_take_none_either) { on_each_and_a_thread(spawn_in_block); }

/* A panic that ends the scope has the functions called in the same way. */
static int panic_in_scope(void *arg) {
    weft_scope s;
    at.s = &s;
    weft_scope_begin(&s, arg);
    CHECK_EQ(weft_scope_defer(&s, spawn_late, NULL), 0);
    weft_panic("the scope ends");
    return 0;
}

static int after_a_panic(void *arg) {
    (void)arg;
    for (size_t i = 0; i < COUNT(kinds); i++) {
        at.spawned = 1;
        CHECK_EQ(weft_try(panic_in_scope, (void *)(uintptr_t)&kinds[i], NULL), WEFT_EPANIC);
        CHECK_EQ(at.spawned, WEFT_ETERMINATED);
    }
    return 0;
}

TEST(scope_defer_late, nor_does_a_scope_that_a_panic_ends) { on_each_and_a_thread(after_a_panic); }

/* ---- which error counts ---- */

static void panic_late(void *arg) {
    (void)arg;
    weft_panic("in a deferred function");
}

static int first_error(void *arg) {
    void (*both[])(void *) = {spawn_late, panic_late};
    const int errors[] = {WEFT_ETERMINATED, WEFT_EPANIC};
    (void)arg;
    for (int first = 0; first < 2; first++) {
        weft_scope s;
        at.s = &s;
        weft_scope_begin(&s, NULL);
        CHECK_EQ(weft_scope_defer(&s, both[!first], NULL), 0); /* the last one deferred is called first */
        CHECK_EQ(weft_scope_defer(&s, both[first], NULL), 0);
        CHECK_EQ(weft_scope_end(&s), errors[first]);
    }
    return 0;
}

TEST(scope_defer_late, of_a_refused_spawn_and_a_panic_the_first_counts) { on_each_and_a_thread(first_error); }
