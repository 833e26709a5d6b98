/* SPDX-License-Identifier: MIT */
/* Files: nothing is declared here yet. */
#ifndef WEFT_FILE_H
#define WEFT_FILE_H

#include <weft/base.h>

#endif
