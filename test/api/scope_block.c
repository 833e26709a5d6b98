/* SPDX-License-Identifier: MIT */
/* Scopes in block form, and what is deferred to their end. */
#include "api/common.h"

static atomic_int ran;

static int count_run(void *arg) {
    weft_yield();
    atomic_fetch_add(&ran, 1);
    return (int)(intptr_t)arg;
}

/* ---- leaving a block ---- */

enum { BY_END, BY_BREAK, BY_CONTINUE, BY_RETURN, BY_GOTO, WAYS };

static int leave_by(int way, int *err) {
    WEFT_SCOPE(s, .on_error = WEFT_KEEP_GOING, .result = err) {
        for (int i = 0; i < 5; i++) CHECK_EQ(weft_spawn(&s, count_run, as_arg(-way)), 0);
        if (way == BY_BREAK) break;
        if (way == BY_CONTINUE) continue;
        if (way == BY_RETURN) return 1;
        if (way == BY_GOTO) goto out;
        CHECK_EQ(way, BY_END);
    }
    CHECK_EQ(atomic_load(&ran), 5);
    return 0;
out:
    return 2;
}

static int leave_each_way(void *arg) {
    (void)arg;
    for (int way = 0; way < WAYS; way++) {
        int err = 1;
        atomic_store(&ran, 0);
        CHECK_EQ(leave_by(way, &err), way == BY_RETURN ? 1 : way == BY_GOTO ? 2 : 0);
        CHECK_EQ(atomic_load(&ran), 5);
        CHECK_EQ(err, -way);
    }
    return 0;
}

TEST(scope_block, leaving_it_in_any_way_joins) { run_each(leave_each_way); }

static int nested_blocks(void *arg) {
    (void)arg;
    int a = 1, b = 1;
    atomic_store(&ran, 0);
    WEFT_SCOPE(outer) {
        CHECK_EQ(weft_spawn(&outer, count_run, NULL), 0);
        WEFT_SCOPE(inner, .deadline = weft_after(100 * WEFT_US), .result = &a) {
            CHECK_EQ(weft_sleep(WEFT_FOREVER), WEFT_ECANCELED);
        }
        CHECK_EQ(weft_cancelled(), 0);
        for (int i = 0; i < 3; i++) WEFT_SCOPE(inner, .result = &b) CHECK_EQ(weft_spawn(&inner, count_run, NULL), 0);
    }
    CHECK_EQ(a, WEFT_ETIMEDOUT);
    CHECK_EQ(b, 0);
    CHECK_EQ(atomic_load(&ran), 4);
    return 0;
}

TEST(scope_block, blocks_nest) { run_each(nested_blocks); }

/* ---- deferred functions ---- */

static char order[64];

static void note(void *arg) { strncat(order, arg, 1); }

static void note_after_join(void *arg) {
    CHECK_EQ(atomic_load(&ran), 3);
    note(arg);
}

static void clean_up(void *arg) {
    CHECK_EQ(weft_sleep_for(10 * WEFT_US), weft_cancelled() ? WEFT_ECANCELED : 0);
    CHECK_EQ(weft_shield_begin(WEFT_FOREVER), 0);
    CHECK_EQ(weft_sleep_for(10 * WEFT_US), 0);
    weft_shield_end();
    note(arg);
}

static int defer_some(int how) {
    weft_scope outer, s;
    order[0] = 0;
    atomic_store(&ran, 0);
    weft_scope_begin(&outer, NULL);
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_scope_defer(&outer, note, "o"), 0);
    CHECK_EQ(weft_scope_defer(&s, note_after_join, "a"), 0);
    CHECK_EQ(weft_scope_defer(&s, clean_up, "b"), 0);
    for (int i = 0; i < 3; i++) CHECK_EQ(weft_spawn(&s, count_run, as_arg(how == 2 && i == 2 ? -4 : 0)), 0);
    CHECK_EQ(weft_scope_defer(&s, note_after_join, "c"), 0);
    if (how == 1) weft_scope_cancel(&s);
    if (how == 3) weft_scope_cancel(&outer);
    CHECK_EQ(weft_scope_end(&s), how == 2 ? -4 : how == 3 ? WEFT_ECANCELED : 0);
    CHECK_STR(order, "cba");
    CHECK_EQ(weft_scope_end(&outer), 0);
    CHECK_STR(order, "cbao");
    return 0;
}

static int defer_each(void *arg) {
    (void)arg;
    for (int how = 0; how < 4; how++) defer_some(how);
    return 0;
}

TEST(scope_defer, the_last_is_called_first_after_the_join_in_any_case) { run_each(defer_each); }

TEST(scope_defer, in_a_plain_thread) {
    CHECK_EQ(set_up(2), 0);
    CHECK_EQ(defer_each(NULL), 0);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
}

static int defer_into(void *arg) { return weft_scope_defer(arg, note, "x"); }

static int defer_by_child(void *arg) {
    (void)arg;
    weft_scope s;
    order[0] = 0;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawnf(&s, defer_into, &s, "child"), 0); /* with a name it has a stack of its own */
    CHECK_EQ(weft_scope_end(&s), WEFT_EINVAL);
    CHECK_STR(order, "");
    return 0;
}

TEST(scope_defer, is_for_the_opener) { run_each(defer_by_child); }

/* From a block that is left early, and from a child that runs on its opener's stack. */
static int defer_in_block(void *arg) {
    int n = (int)(intptr_t)arg;
    WEFT_SCOPE(s) {
        CHECK_EQ(weft_scope_defer(&s, note, "d"), 0);
        if (n == 0) return 0;
        CHECK_EQ(weft_spawn(&s, defer_in_block, as_arg(n - 1)), 0);
    }
    return 0;
}

static int defer_nested(void *arg) {
    (void)arg;
    order[0] = 0;
    CHECK_EQ(defer_in_block(as_arg(5)), 0);
    CHECK_STR(order, "dddddd");
    return 0;
}

TEST(scope_defer, works_in_blocks_and_in_children_on_their_openers_stack) { run_each(defer_nested); }
