/* SPDX-License-Identifier: MIT */
/* Processes and signals: nothing is declared here yet. */
#ifndef WEFT_PROCESS_H
#define WEFT_PROCESS_H

#include <weft/base.h>

#endif
