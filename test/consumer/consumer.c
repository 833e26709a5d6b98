/* SPDX-License-Identifier: MIT */
/* A program of somebody else: uses what is installed, as C11. */
#include <stdio.h>
#include <weft.h>

static int square(void *arg) {
    int *n = arg;
    *n *= *n;
    return 0;
}

static int gives_up(void *arg) {
    (void)arg;
    weft_panic("enough");
}

static int app(void *arg) {
    (void)arg;
    if (weft_try(gives_up, NULL, NULL) != WEFT_EPANIC) return 1;
    int n[8];
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 8; i++) {
        n[i] = i;
        weft_spawn(&s, square, &n[i]);
    }
    if (weft_scope_end(&s) != 0) return 1;
    int sum = 0;
    for (int i = 0; i < 8; i++) sum += n[i];
    printf("weft %s: %d\n", weft_version(), sum);
    return sum == 140 ? 0 : 1;
}

int main(void) { return weft_run(app, NULL, NULL); }
