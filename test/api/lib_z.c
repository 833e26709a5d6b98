/* SPDX-License-Identifier: MIT */
/* zlib, unmodified: tasks that compute for long without a call of the runtime, and a heartbeat beside them. */
#include "heartbeat.h"

#ifndef WEFT_HAVE_LIB
static void check(void) { test_skip("zlib is not installed (zlib1g-dev)"); }
#else
#include <zlib.h>

enum { TASKS = 200, SIZE = 200000 };

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
    return 0;
}

static void check(void) { run_beside_a_heartbeat(test_scale(TASKS, 10), squeeze, NULL); }
#endif

TEST_T(zlib, a_heartbeat_goes_on_beside_tasks_that_compress, 120) { check(); }
