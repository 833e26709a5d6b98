/* SPDX-License-Identifier: MIT */
/* expect: std::string is not sendable: it cannot be copied byte by byte */
#include <string>
#include <weft.h>
WEFT_CHAN_TYPE(strings, std::string);
