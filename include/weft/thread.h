/* SPDX-License-Identifier: MIT */
/* 1:1 threads and attached workers: nothing is declared here yet. */
#ifndef WEFT_THREAD_H
#define WEFT_THREAD_H

#include <weft/base.h>

#endif
