/* SPDX-License-Identifier: MIT */
/* Stackless tasks: nothing is declared here yet. */
#ifndef WEFT_TOKEN_H
#define WEFT_TOKEN_H

#include <weft/base.h>

#endif
