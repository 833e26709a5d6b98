/* SPDX-License-Identifier: MIT */
/* expect: incompatible type|could not convert|no matching function */
#include <weft.h>
WEFT_CHAN_TYPE(ints, int);
int f(ints_rx end);
int f(ints_rx end) { return ints_tx_close(end); }
