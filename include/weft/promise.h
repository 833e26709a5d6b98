/* SPDX-License-Identifier: MIT */
/* Promises: nothing is declared here yet. */
#ifndef WEFT_PROMISE_H
#define WEFT_PROMISE_H

#include <weft/base.h>

#endif
