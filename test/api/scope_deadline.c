/* SPDX-License-Identifier: MIT */
/* Deadlines and causes of nested scopes: who is told what, in every nesting. */
#include "api/common.h"

/* ---- the effective deadline ---- */

static weft_scope_opts until(weft_deadline d) { return (weft_scope_opts){.deadline = d}; }

static int effective(void *arg) {
    int64_t want = (int64_t)(intptr_t)arg;
    CHECK_EQ(weft_scope_deadline().ns, want);
    weft_yield();
    CHECK_EQ(weft_scope_deadline().ns, want);
    return 0;
}

/* The earlier of two, seen by the opener and by children; and as it was after the end. */
static void check_pair(weft_deadline outer, weft_deadline inner) {
    weft_scope a, b;
    weft_scope_opts oa = until(outer), ob = until(inner);
    int64_t least = !outer.ns ? inner.ns : !inner.ns || outer.ns < inner.ns ? outer.ns : inner.ns;
    weft_scope_begin(&a, &oa);
    CHECK_EQ(weft_scope_deadline().ns, outer.ns);
    weft_scope_begin(&b, &ob);
    CHECK_EQ(weft_scope_deadline().ns, least);
    CHECK_EQ(weft_spawn(&b, effective, as_arg((intptr_t)least)), 0);
    CHECK_EQ(weft_spawn(&a, effective, as_arg((intptr_t)outer.ns)), 0);
    CHECK_EQ(weft_scope_end(&b), 0);
    CHECK_EQ(weft_scope_deadline().ns, outer.ns);
    CHECK_EQ(weft_scope_end(&a), 0);
    CHECK_EQ(weft_scope_deadline().ns, 0);
}

static int check_effective(void *arg) {
    (void)arg;
    weft_deadline d[] = {WEFT_FOREVER, weft_after(HOUR), weft_after(2 * HOUR)};
    CHECK_EQ(weft_scope_deadline().ns, 0);
    for (size_t i = 0; i < COUNT(d); i++)
        for (size_t k = 0; k < COUNT(d); k++) check_pair(d[i], d[k]);
    return 0;
}

TEST(scope_deadline, the_earliest_of_all_around_counts) { run_each(check_effective); }

TEST(scope_deadline, a_plain_thread_has_one_too) {
    CHECK_EQ(weft_scope_deadline().ns, 0);
    CHECK_EQ(set_up(2), 0);
    CHECK_EQ(check_effective(NULL), 0);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
}

/* ---- three scopes in each other, and what ends them ---- */

enum { LEVELS = 3 };

/* Each level has a deadline: none, far away, or one that passes. */
struct nesting {
    int passes[LEVELS]; /* 0 = none, 9 = far; 1 to 3: passes, the smaller the earlier */
    bool in_children;   /* each scope is opened by a child of the one around it */
};

/* The level that is cancelled first among those around and including `level`, by deadline; -1: none. */
static int first_to_pass(const struct nesting *n, int level) {
    int first = -1;
    for (int i = level; i >= 0; i--)
        if (n->passes[i] >= 1 && n->passes[i] <= LEVELS && (first < 0 || n->passes[i] < n->passes[first])) first = i;
    return first;
}

struct visit {
    const struct nesting *n;
    int level;
    weft_deadline base;
};

static int visit(void *arg);

/* Waits for what must come; the order of the timers is anybody's. */
static void check_cause(const struct nesting *n, int level) {
    bool comes = first_to_pass(n, level) >= 0;
    if (comes) CHECK_EQ(weft_sleep(WEFT_FOREVER), WEFT_ECANCELED);
    CHECK_EQ(weft_cancelled(), comes);
    CHECK_EQ(weft_cancel_cause(), comes ? WEFT_ETIMEDOUT : 0);
}

static int wanted(const struct nesting *n, int level) {
    int first = first_to_pass(n, level);
    return first == level ? WEFT_ETIMEDOUT : first >= 0 ? WEFT_ECANCELED : 0;
}

static void go_on(struct visit v, weft_scope *s) {
    if (v.level < LEVELS && v.n->in_children)
        (void)weft_spawn_copy(s, visit, &v, sizeof v); /* on a slow machine a deadline has passed already */
    else if (v.level < LEVELS)
        visit(&v);
}

static int visit(void *arg) {
    struct visit v = *(struct visit *)arg;
    int pass = v.n->passes[v.level];
    weft_scope s;
    weft_scope_opts o = until(pass == 0   ? WEFT_FOREVER
                              : pass == 9 ? weft_after(HOUR)
                                          : weft_at(v.base.ns + pass * 100 * WEFT_US));
    weft_scope_begin(&s, &o);
    go_on((struct visit){v.n, v.level + 1, v.base}, &s);
    check_cause(v.n, v.level);
    int rc = weft_scope_end(&s);
    CHECK_MSG(rc == wanted(v.n, v.level), "level %d of %d %d %d: %d, not %d", v.level, v.n->passes[0], v.n->passes[1],
              v.n->passes[2], rc, wanted(v.n, v.level));
    return 0;
}

static int all_nestings(void *arg) {
    (void)arg;
    static const int choices[] = {0, 9, 1, 2, 3};
    for (int code = 0; code < 125 * 2; code++) {
        struct nesting n = {{choices[code % 5], choices[code / 5 % 5], choices[code / 25 % 5]}, code >= 125};
        bool draw = false;
        for (int i = 0; i < LEVELS; i++)
            for (int k = 0; k < i; k++) draw |= n.passes[i] == n.passes[k] && n.passes[i] >= 1 && n.passes[i] <= LEVELS;
        struct visit v = {&n, 0, {weft_now() + WEFT_MS}};
        if (!draw) visit(&v);
    }
    return 0;
}

TEST(scope_deadline, every_nesting_tells_whose_time_is_up) { run_each(all_nestings); }

/* ---- cancelled by hand: everybody inside is told, the one cancelled says 0 ---- */

static int cancel_level(void *arg) {
    int which = (int)(intptr_t)arg;
    weft_scope s[LEVELS];
    for (int i = 0; i < LEVELS; i++) {
        weft_scope_opts o = until(weft_after((3 - i) * HOUR));
        weft_scope_begin(&s[i], &o);
    }
    weft_scope_cancel(&s[which]);
    CHECK_EQ(weft_cancel_cause(), WEFT_ECANCELED);
    for (int i = LEVELS - 1; i >= 0; i--) {
        CHECK_EQ(weft_scope_end(&s[i]), i > which ? WEFT_ECANCELED : 0);
        CHECK_EQ(weft_cancelled(), i > which);
    }
    return 0;
}

static int cancel_levels(void *arg) {
    (void)arg;
    for (int i = 0; i < LEVELS; i++) cancel_level(as_arg(i));
    return 0;
}

TEST(scope_deadline, those_inside_a_cancelled_scope_are_cancelled_from_outside) { run_each(cancel_levels); }

/* ---- a deadline that is past already ---- */

static int past_inside_cancelled(void *arg) {
    (void)arg;
    weft_scope a, b;
    weft_scope_begin(&a, NULL);
    weft_scope_cancel(&a);
    weft_scope_opts o = until(weft_at(weft_now() - WEFT_SECOND));
    weft_scope_begin(&b, &o);
    CHECK_EQ(weft_cancel_cause(), WEFT_ECANCELED);
    CHECK_EQ(weft_scope_end(&b), WEFT_ECANCELED); /* the outer one was first */
    CHECK_EQ(weft_scope_end(&a), 0);
    weft_scope_begin(&a, &o);
    weft_scope_opts earlier = until(weft_at(o.deadline.ns - 1)), later = until(weft_at(o.deadline.ns + 1));
    weft_scope_begin(&b, &earlier);
    CHECK_EQ(weft_cancel_cause(), WEFT_ETIMEDOUT);
    CHECK_EQ(weft_scope_end(&b), WEFT_ETIMEDOUT);
    weft_scope_begin(&b, &later);
    CHECK_EQ(weft_cancel_cause(), WEFT_ETIMEDOUT);
    CHECK_EQ(weft_scope_end(&b), WEFT_ECANCELED);
    CHECK_EQ(weft_scope_end(&a), WEFT_ETIMEDOUT);
    return 0;
}

TEST(scope_deadline, of_several_past_ones_the_earliest_is_the_cause) { run_each(past_inside_cancelled); }

/* A child's own error that happens to be WEFT_ETIMEDOUT is no deadline of a scope inside. */
static int inner_of_failed(void *arg) {
    atomic_int *inside = arg;
    weft_scope s;
    weft_scope_opts o = until(weft_after(HOUR));
    weft_scope_begin(&s, &o);
    atomic_store(inside, 1);
    CHECK_EQ(weft_sleep(WEFT_FOREVER), WEFT_ECANCELED);
    CHECK_EQ(weft_cancel_cause(), WEFT_ETIMEDOUT);
    CHECK_EQ(weft_scope_end(&s), WEFT_ECANCELED);
    return 0;
}

static int sibling_fails(void *arg) {
    (void)arg;
    atomic_int inside = 0;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, inner_of_failed, &inside), 0);
    task_wait(&inside, 1);
    CHECK_EQ(weft_spawn(&s, return_int, as_arg(WEFT_ETIMEDOUT)), 0);
    CHECK_EQ(weft_scope_end(&s), WEFT_ETIMEDOUT);
    return 0;
}

TEST(scope_deadline, an_error_of_a_child_is_not_taken_for_a_deadline) { run_each(sibling_fails); }

/* ---- weft_call ---- */

static int sleep_an_hour(void *arg) {
    (void)arg;
    return weft_sleep_for(HOUR);
}

static int sleep_and_succeed(void *arg) {
    (void)arg;
    CHECK_EQ(weft_sleep_for(HOUR), WEFT_ECANCELED);
    return 7;
}

static int call_nested(void *arg) {
    weft_deadline *d = arg;
    CHECK_EQ(weft_call(sleep_an_hour, NULL, weft_after(HOUR)), WEFT_ECANCELED); /* the outer one is first */
    return weft_call(sleep_an_hour, NULL, *d);
}

static int calls(void *arg) {
    (void)arg;
    weft_deadline far = weft_after(HOUR);
    CHECK_EQ(weft_call(return_int, as_arg(5), WEFT_FOREVER), 5);
    CHECK_EQ(weft_call(return_int, as_arg(-5), far), -5);
    CHECK_EQ(weft_call(sleep_an_hour, NULL, weft_after(200 * WEFT_US)), WEFT_ETIMEDOUT);
    CHECK_EQ(weft_call(sleep_an_hour, NULL, weft_at(1)), WEFT_ETIMEDOUT);
    CHECK_EQ(weft_call(sleep_an_hour, NULL, WEFT_POLL), WEFT_EAGAIN);
    CHECK_EQ(weft_call(sleep_and_succeed, NULL, weft_after(200 * WEFT_US)), 7); /* it has a result all the same */
    CHECK_EQ(weft_call(call_nested, &far, weft_after(200 * WEFT_US)), WEFT_ETIMEDOUT);
    CHECK_EQ(weft_call(return_int, as_arg(WEFT_ECANCELED), WEFT_FOREVER), WEFT_ECANCELED);
    CHECK_EQ(weft_cancelled(), 0);
    return 0;
}

TEST(scope_call, a_function_runs_under_a_deadline) { run_each(calls); }

TEST(scope_call, from_a_plain_thread_too) {
    CHECK_EQ(set_up(1), 0);
    CHECK_EQ(calls(NULL), 0);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
}
