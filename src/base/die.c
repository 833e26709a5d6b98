/* SPDX-License-Identifier: MIT */
#include "base/base.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* One write, so that lines of several threads do not mix; no stdio, so that it works from a signal handler's stack. */
static void print(const char *fmt, va_list ap) {
    char line[1024] = "weft: ";
    size_t n = strlen(line);
    int k = vsnprintf(line + n, sizeof line - n - 1, fmt, ap);
    n += k < 0 ? 0 : (size_t)k < sizeof line - n - 1 ? (size_t)k : sizeof line - n - 2;
    line[n++] = '\n';
    if (write(STDERR_FILENO, line, n) < 0) return;
}

void weft__say(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    print(fmt, ap);
    va_end(ap);
}

void weft__die(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    print(fmt, ap);
    va_end(ap);
    abort();
}
