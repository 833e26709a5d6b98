/* SPDX-License-Identifier: MIT */
#include <stdlib.h>

#include "os/os.h"

const char *weft__env(const char *name) {
    return secure_getenv(name);
}

bool weft__env_on(const char *name) {
    const char *text = weft__env(name);
    return text && strcmp(text, "1") == 0;
}
