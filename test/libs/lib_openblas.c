/* SPDX-License-Identifier: MIT */
/* OpenBLAS, unmodified: tasks that multiply matrices, on their own threads and on the library's. */
#include "heartbeat.h"

#ifndef WEFT_HAVE_LIB
static void check(void) { test_skip("OpenBLAS is not installed (libopenblas-dev)"); }
#else
#include <cblas.h>

enum { TASKS = 200, N = 160 };

static int multiply(void *arg) {
    uint64_t rnd = (uint64_t)(intptr_t)arg + test_seed();
    double *m = malloc(3 * N * N * sizeof *m), *a = m, *b = m + N * N, *c = m + 2 * N * N;
    CHECK(m);
    for (int i = 0; i < 2 * N * N; i++) m[i] = (double)test_below(&rnd, 100); /* whole numbers: sums are exact */
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, N, N, N, 1, a, N, b, N, 0, c, N);
    for (int k = 0; k < 200; k++) {
        int row = (int)test_below(&rnd, N), col = (int)test_below(&rnd, N);
        double sum = 0;
        for (int i = 0; i < N; i++) sum += a[row * N + i] * b[i * N + col];
        CHECK_NEAR(c[row * N + col], sum, 0.5);
    }
    free(m);
    return 0;
}

static void check(void) { run_beside_a_heartbeat(test_scale(TASKS, 10), multiply, NULL); }
#endif

TEST_T(openblas, a_heartbeat_goes_on_beside_matrices, 120) { check(); }
