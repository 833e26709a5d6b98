/* SPDX-License-Identifier: MIT */
/* expect: incompatible type|could not convert|no matching function */
#include <weft.h>
WEFT_CHAN_TYPE(ints, int);
int f(ints_tx end);
int f(ints_tx end) {
    int v;
    bool open;
    return weft_select(WEFT_FOREVER, ints_rx_on_recv(end, &v, &open));
}
