/* SPDX-License-Identifier: MIT */
/* Sleeping. Every other operation that waits takes a deadline itself. */
#ifndef WEFT_TIME_H
#define WEFT_TIME_H

#include <weft/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Sleeps until the moment given; 0 when it has come, never before. WEFT_FOREVER sleeps until cancelled. WEFT_ECANCELED. */
WEFT_API int weft_sleep(weft_deadline until);
/* Sleeps for a duration; zero or negative: returns 0 at once (WEFT_ECANCELED in a cancelled scope). */
WEFT_API int weft_sleep_for(int64_t duration);

#ifdef __cplusplus
}
#endif
#endif
