/* SPDX-License-Identifier: MIT */
/* expect: incompatible type|could not convert|no matching function */
#include <weft.h>
WEFT_CHAN_TYPE(ints, int);
int f(ints_tx end);
int f(ints_tx end) {
    int v;
    return ints_recv(end, &v, WEFT_FOREVER);
}
