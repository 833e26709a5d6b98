/* SPDX-License-Identifier: MIT */
/* The event loop: nothing is declared here yet. */
#ifndef WEFT_LOOP_H
#define WEFT_LOOP_H

#include <weft/base.h>

#endif
