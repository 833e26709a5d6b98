/* SPDX-License-Identifier: MIT */
/* zlib, unmodified: tasks that compute for long without a call of the runtime, and a heartbeat beside them. */
#include <stdlib.h>

#include "api/common.h"

#ifndef WEFT_HAVE_LIB
static void check(void) { test_skip("zlib is not installed (zlib1g-dev)"); }
#else
#include <zlib.h>

enum { TASKS = 200, SIZE = 200000 };

static atomic_int done, beats;

static int squeeze(void *arg) {
    uint64_t state = (uint64_t)(intptr_t)arg + test_seed();
    uLongf packed_size = compressBound(SIZE), size = SIZE;
    unsigned char *data = malloc(SIZE), *packed = malloc(packed_size), *again = malloc(SIZE);
    CHECK(data && packed && again);
    for (int i = 0; i < SIZE; i++) data[i] = (unsigned char)("abcdefgh"[test_below(&state, 8)]);
    CHECK_EQ(compress2(packed, &packed_size, data, SIZE, 9), Z_OK);
    CHECK_LT(packed_size, SIZE);
    CHECK_EQ(uncompress(again, &size, packed, packed_size), Z_OK);
    CHECK_EQ(size, SIZE);
    CHECK_EQ(memcmp(data, again, SIZE), 0);
    free(data);
    free(packed);
    free(again);
    atomic_fetch_add(&done, 1);
    return 0;
}

static int heartbeat(void *arg) {
    while (atomic_load(&done) < (int)(intptr_t)arg) {
        CHECK_EQ(weft_sleep_for(WEFT_MS), 0);
        atomic_fetch_add(&beats, 1);
    }
    return 0;
}

static int squeeze_all(void *arg) {
    weft_scope s;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, heartbeat, arg), 0);
    for (int i = 0; i < (int)(intptr_t)arg; i++) CHECK_EQ(weft_spawn(&s, squeeze, as_arg(i)), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(atomic_load(&done), (int)(intptr_t)arg);
    CHECK_GT(atomic_load(&beats), 0);
    return 0;
}

static void check(void) {
    long tasks = test_scale(TASKS, 10);
    CHECK_EQ(weft_run(squeeze_all, as_arg(tasks), &(weft_config){.workers = 2}), 0);
}
#endif

TEST_T(zlib, a_heartbeat_goes_on_beside_tasks_that_compress, 120) { check(); }
