/* SPDX-License-Identifier: MIT */
/* Reference-counted buffers: nothing is declared here yet. */
#ifndef WEFT_BUF_H
#define WEFT_BUF_H

#include <weft/base.h>

#endif
