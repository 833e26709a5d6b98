/* SPDX-License-Identifier: MIT */
/* One rule for every function that takes a deadline. With WEFT_POLL it does what can be done at
 * once, in a cancelled scope too. What cannot be done gives WEFT_ECANCELED there, and WEFT_EAGAIN
 * elsewhere. Any other deadline, a past one included, fails in a cancelled scope before it tries. */
#ifndef WEFT_TEST_TRY_ONCE_H
#define WEFT_TEST_TRY_ONCE_H

#include "common.h"

enum {
    NEVER = 1,   /* cannot be done without waiting */
    ALWAYS = 2,  /* can always be done */
    SOON = 4,    /* can be done in a moment, which is waited for */
    BY_TASK = 8, /* not from a plain thread */
    BY_THREAD = 16,
    RUNNING = 32, /* needs a runtime */
};

struct op {
    const char *name;
    void (*make)(void);              /* or NULL: it can be done once; not in the cancelled scope */
    ssize_t (*use)(weft_deadline d); /* the call */
    ssize_t want;                    /* its result */
    void (*spoil)(void);             /* or NULL: after a success it cannot be done again, without waiting */
    void (*end)(void);               /* or NULL */
    int flags;
};

enum { FREE, CANCELLED, SHIELDED };

static inline void expect(const struct op *o, const char *deadline, ssize_t got, ssize_t want) {
    CHECK_MSG(got == want, "%s with %s gives %lld, not %lld", o->name, deadline, (long long)got, (long long)want);
}

/* With WEFT_POLL, and what can be done. */
static inline ssize_t use_now(const struct op *o, ssize_t not_now) {
    ssize_t r = o->use(WEFT_POLL);
    while (r == not_now && (o->flags & SOON)) {
        weft_yield();
        r = o->use(WEFT_POLL);
    }
    return r;
}

static inline void check_op(const struct op *o, int where) {
    weft_scope s;
    ssize_t not_now = where == CANCELLED ? WEFT_ECANCELED : WEFT_EAGAIN;
    if (o->make) o->make();
    weft_scope_begin(&s, NULL);
    if (where != FREE) weft_scope_cancel(&s);
    if (where == SHIELDED) CHECK_EQ(weft_shield_begin(WEFT_FOREVER), 0);
    if (where == CANCELLED) {
        expect(o, "a past deadline", o->use(weft_at(1)), WEFT_ECANCELED);
        expect(o, "WEFT_FOREVER", o->use(WEFT_FOREVER), WEFT_ECANCELED);
    }
    if (!(o->flags & NEVER)) {
        expect(o, "WEFT_POLL, which can be done,", use_now(o, not_now), o->want);
        if (o->spoil) o->spoil();
    }
    if (!(o->flags & ALWAYS)) expect(o, "WEFT_POLL, which cannot be done,", o->use(WEFT_POLL), not_now);
    if (where == SHIELDED) weft_shield_end();
    CHECK_EQ(weft_scope_end(&s), 0);
    if (o->end) o->end();
}

struct table {
    const struct op *ops;
    size_t n;
    int where, without; /* flags of those left out */
};

static inline int check_table(void *arg) {
    const struct table *t = arg;
    for (size_t i = 0; i < t->n; i++)
        if (!(t->ops[i].flags & t->without)) check_op(&t->ops[i], t->where);
    return 0;
}

/* One bound task at most. */
static inline void check_tasks(const struct op *ops, size_t n, int where) {
    struct table t = {ops, n, where, BY_THREAD};
    EACH_WORKERS(w) CHECK_EQ(weft_run(check_table, &t, &(weft_config){.workers = w, .bound_threads_max = 1}), 0);
}

static inline void check_thread(const struct op *ops, size_t n, bool runtime) {
    for (int where = FREE; where <= CANCELLED; where++) {
        struct table t = {ops, n, where, BY_TASK | (runtime ? 0 : RUNNING)};
        if (runtime) CHECK_EQ(set_up(2), 0);
        (void)check_table(&t);
        if (runtime) CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    }
}

#endif
