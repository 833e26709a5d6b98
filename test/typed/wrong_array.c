/* SPDX-License-Identifier: MIT */
/* expect: line is not sendable: it cannot be copied byte by byte */
#include <weft.h>
typedef char line[80];
WEFT_CHAN_TYPE(lines, line);
