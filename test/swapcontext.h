/* SPDX-License-Identifier: MIT */
/* <ucontext.h> for tests. Other C libraries than glibc (musl) declare its functions and do not have them: the test is skipped. */
#ifndef WEFT_TEST_SWAPCONTEXT_H
#define WEFT_TEST_SWAPCONTEXT_H

#include "test.h"
#include <ucontext.h>

#if !defined(__GLIBC__)
#define getcontext(c) ((void)(c), test_skip("this C library has no getcontext"))
#define makecontext(c, fn, n) ((void)(c), (void)(fn))
#define swapcontext(from, to) ((void)(from), (void)(to))
#endif
#endif
