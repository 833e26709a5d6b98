/* SPDX-License-Identifier: MIT */
/* Panics racing with cancellation, waits and migration: whatever was begun ends, every exit and every destructor runs once. */
#include "api/panic.h"

static weft_key key;
static weft_chan *chan;
static atomic_long begun, ended, panicked, tried; /* begun: functions, exits, values that must all end */

static void end_one(void *arg) {
    uint64_t random = (uint64_t)(uintptr_t)arg;
    if (test_below(&random, 4) == 0) weft_yield();
    atomic_fetch_add(&ended, 1);
}

static void end_one_with_panic(void *arg) {
    end_one(arg);
    weft_panic("exit");
}

typedef struct {
    uint64_t random;
    int depth;
} node;

static int grow(void *arg);

static int some_children(uint64_t *random, int depth) {
    weft_scope s;
    weft_scope_begin(&s, &(weft_scope_opts){.on_error = test_below(random, 2) ? WEFT_CANCEL_ALL : WEFT_KEEP_GOING});
    for (int n = (int)test_below(random, 5); n > 0; n--)
        (void)weft_spawn_with(&s, grow, (node){test_random_from(random), depth - 1});
    switch (test_below(random, 6)) {
    case 0:
        weft_scope_cancel(&s);
        break;
    case 1:
        weft_panic("with children");
    case 2:
        weft_yield();
        break;
    }
    return weft_scope_end(&s);
}

static int waits(uint64_t *random) {
    int v = 0;
    switch (test_below(random, 4)) {
    case 0:
        return weft_sleep_for((int64_t)test_below(random, 50) * WEFT_US);
    case 1:
        return weft_chan_send(chan, &v, weft_after(50 * WEFT_US));
    case 2:
        return weft_chan_recv(chan, &v, weft_after(50 * WEFT_US));
    default:
        weft_yield();
        return 0;
    }
}

static int steps(void *arg) {
    node *n = arg;
    int rc = 0;
    for (int i = (int)test_below(&n->random, 6); i > 0 && rc >= 0; i--) {
        switch (test_below(&n->random, 8)) {
        case 0:
            atomic_fetch_add(&panicked, 1);
            weft_panic("at depth %d", n->depth);
        case 1:
        case 2:
        case 3:
            if (n->depth > 0) rc = some_children(&n->random, n->depth);
            break;
        case 4:
            atomic_fetch_add(&tried, 1);
            if (n->depth > 0) rc = weft_try(steps, &(node){test_random_from(&n->random), n->depth - 1}, NULL);
            break;
        case 5:
            return -77;
        default:
            (void)waits(&n->random);
        }
    }
    return rc;
}

static int grow(void *arg) {
    node *n = arg;
    void *mark = (void *)(uintptr_t)(test_random_from(&n->random) | 1);
    atomic_fetch_add(&begun, 1);
    CHECK_EQ(weft_at_exit(test_below(&n->random, 16) ? end_one : end_one_with_panic, mark), 0);
    CHECK(weft_local_get(key) == NULL);
    if (test_below(&n->random, 2)) {
        atomic_fetch_add(&begun, 1);
        CHECK_EQ(weft_local_set(key, mark), 0);
    }
    return steps(n);
}

static void round_of(uint64_t *random) {
    weft_scope s;
    weft_scope_begin(&s, &(weft_scope_opts){.on_error = WEFT_KEEP_GOING});
    for (int i = 0; i < 8; i++) CHECK_EQ(weft_spawn_with(&s, grow, (node){test_random_from(random), 4}), 0);
    weft_yield();
    if (test_below(random, 3) == 0) weft_scope_cancel(&s);
    (void)weft_scope_end(&s);
    CHECK_EQ(atomic_load(&begun), atomic_load(&ended));
    CHECK_EQ(weft_cancelled(), 0);
}

static int rounds(void *arg) {
    uint64_t random = test_seed();
    long n = test_scale(3000, 60);
    (void)arg;
    for (long i = 0; i < n; i++) round_of(&random);
    return 0;
}

static void stress(int workers) {
    atomic_store(&begun, 0);
    atomic_store(&ended, 0);
    CHECK_EQ(weft_key_new(&key, end_one), 0);
    chan = weft_chan_new(sizeof(int), 0);
    CHECK_EQ(run_quietly(workers, rounds, NULL), 0);
    printf("%ld functions, exits and values, %ld panics of tasks, %d reported, %ld tries\n", atomic_load(&begun),
           atomic_load(&panicked), atomic_load(&reported), atomic_load(&tried));
    CHECK_GT(atomic_load(&reported), 0);
    weft_chan_unref(chan);
    CHECK_EQ(weft_key_delete(key), 0);
}

TEST_T(panic_stress, panics_race_with_cancellation_on_one_worker, 120) { stress(1); }

TEST_T(panic_stress, panics_race_with_cancellation_on_two_workers, 120) { stress(2); }

TEST_T(panic_stress, panics_race_with_cancellation_on_four_workers, 120) { stress(4); }
