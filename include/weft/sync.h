/* SPDX-License-Identifier: MIT */
/* Mutex, rwlock, condition variable, semaphore, wait group, once, barrier: nothing is declared here yet. */
#ifndef WEFT_SYNC_H
#define WEFT_SYNC_H

#include <weft/base.h>

#endif
