/* SPDX-License-Identifier: MIT */
/* expect: incompatible type|could not convert|no matching function */
#include <weft.h>
WEFT_CHAN_TYPE(ints, int);
int f(ints_rx end);
int f(ints_rx end) {
    int v = 1;
    return ints_tx_send(end, &v, WEFT_FOREVER);
}
