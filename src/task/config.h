/* SPDX-License-Identifier: MIT */
/* The configuration: what the program gave, completed from the environment. The table in config.c has a row for each variable. */
#ifndef WEFT_SRC_CONFIG_H
#define WEFT_SRC_CONFIG_H

#include "base/base.h"

#include <weft/runtime.h>

/* Fills *out from what the program gave (NULL: nothing) and, for fields that are zero there, from the environment. WEFT_EINVAL: a
 * value is wrong, and a sentence on stderr names it. Zero in *out still means the default. */
int weft__config_read(const weft_config *given, weft_config *out);

#endif
