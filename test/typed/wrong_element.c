/* SPDX-License-Identifier: MIT */
/* expect: incompatible pointer type|cannot convert|no matching function */
/* flags: -Werror=incompatible-pointer-types (a warning by default in C, before gcc 14) */
#include <weft.h>
WEFT_CHAN_TYPE(ints, int);
int f(ints c);
int f(ints c) {
    double v = 1;
    return ints_send(c, &v, WEFT_FOREVER);
}
