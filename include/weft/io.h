/* SPDX-License-Identifier: MIT */
/* Waiting for and using descriptors: nothing is declared here yet. */
#ifndef WEFT_IO_H
#define WEFT_IO_H

#include <weft/base.h>

#endif
