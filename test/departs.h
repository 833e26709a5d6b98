/* SPDX-License-Identifier: MIT */
/* Tests of answers that go together have them go so on any machine, also where it does not pay; unless they are told to do without. */
#ifndef WEFT_TEST_DEPARTS_H
#define WEFT_TEST_DEPARTS_H

#include <stdlib.h>

static __attribute__((constructor)) void departs_anywhere(void) { setenv("WEFT_NO_IO_URING", "0", 0); }

#endif
