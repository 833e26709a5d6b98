/* SPDX-License-Identifier: MIT */
/* Fork and join: a task for every call. Far too small pieces for real work, but they show that a task may be that small. The scope's
 * children can write into the opener's frame: it cannot end before they have. usage: fibonacci [n] */
#include <stdio.h>
#include <stdlib.h>
#include <weft.h>

typedef struct {
    int n;
    uint64_t result;
} fib;

static int compute(void *arg) {
    fib *f = arg;
    if (f->n < 2) {
        f->result = (uint64_t)f->n;
        return 0;
    }
    fib a = {.n = f->n - 1}, b = {.n = f->n - 2};
    weft_scope s;
    weft_scope_begin(&s, NULL);
    weft_spawn(&s, compute, &a);
    compute(&b); /* one half here, the other wherever there is a core free */
    int err = weft_scope_end(&s);
    f->result = a.result + b.result;
    return err;
}

int main(int argc, char **argv) {
    fib f = {.n = argc > 1 ? atoi(argv[1]) : 27};
    if (f.n < 0 || f.n > 50) {
        fprintf(stderr, "usage: fibonacci [0 to 50]\n");
        return 2;
    }
    int64_t start = weft_now();
    int err = weft_run(compute, &f, NULL);
    if (err) {
        fprintf(stderr, "fibonacci: %s\n", weft_strerror(err));
        return 1;
    }
    printf("fib(%d) = %llu, %.1f ms\n", f.n, (unsigned long long)f.result, (double)(weft_now() - start) / 1e6);
    return 0;
}
