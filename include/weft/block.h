/* SPDX-License-Identifier: MIT */
/* Blocking calls: nothing is declared here yet. */
#ifndef WEFT_BLOCK_H
#define WEFT_BLOCK_H

#include <weft/base.h>

#endif
