/* SPDX-License-Identifier: MIT */
/* What weft knows of a C++ run-time library, if the program has one. Weak references only: a program in C links none.
 *
 * The library keeps for each *thread* which exceptions are being handled and how many are on their way. Both belong to the task: a handler or a
 * destructor may wait, and go on on another thread. So whoever leaves its stack with these words not empty takes them along
 * (switch.c). */
#ifndef WEFT_SRC_CXX_H
#define WEFT_SRC_CXX_H

#include <unwind.h>

#include "base/base.h"

/* __cxa_eh_globals of the Itanium C++ ABI. */
typedef struct weft__eh {
    void *caught;      /* exceptions being handled, a list */
    unsigned uncaught; /* thrown, and not caught yet */
} weft__eh;

enum { WEFT_CXX_HEADER = 80 }; /* bytes of its own that the library has before the unwinder's part of an exception */

/* The calling thread's; NULL: no C++ here. */
weft__eh *weft__eh_here(void);

WEFT_INLINE bool weft__eh_busy(const weft__eh *e) {
    return ((uintptr_t)e->caught | e->uncaught) != 0;
}
/* Takes the words along, and puts them back, maybe on another thread. Without C++: nothing. */
weft__eh weft__eh_take(void);
void weft__eh_put(weft__eh kept);

/* Whether it is an exception of C++; "std::runtime_error: no such file" about one. */
bool weft__cxx_is(const struct _Unwind_Exception *e);
void weft__cxx_describe(struct _Unwind_Exception *e, char *out, size_t size);
/* It is caught, and handled: the library's books are right afterwards. */
void weft__cxx_drop(struct _Unwind_Exception *e);

#endif
