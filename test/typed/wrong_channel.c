/* SPDX-License-Identifier: MIT */
/* expect: incompatible type|could not convert|no matching function */
#include <weft.h>
WEFT_CHAN_TYPE(ints, int);
WEFT_CHAN_TYPE(others, int);
int f(others c);
int f(others c) {
    int v;
    return ints_recv(c, &v, WEFT_FOREVER);
}
