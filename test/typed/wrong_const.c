/* SPDX-License-Identifier: MIT */
/* expect: const int is not sendable */
#include <weft.h>
WEFT_CHAN_TYPE(ints, const int);
