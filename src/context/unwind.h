/* SPDX-License-Identifier: MIT */
/* Unwinding: how a panic, or a C++ exception that nobody catches, leaves a function and is stopped.
 *
 * A boundary is a call of a user's function that nothing may leave except by returning. It costs nothing: the calling function names a
 * personality routine in its unwind tables, which is looked at only when the unwinder comes by. There the function that was called
 * is made to return WEFT_EPANIC: the registers that a call keeps are as the tables say they were, and the program goes on behind the call.
 *
 *   search   the unwinder has come to a boundary, nobody below it catches, and all frames are still there    weft__unwind_caught
 *   cleanup  the frames below go, from the innermost: C++ destructors, cleanups of C with -fexceptions
 *   land     the boundary's call returns WEFT_EPANIC                                                        weft__unwind_landed
 *
 * Rejected: setjmp at each boundary (a task's start and a child that runs inside its opener are fast paths); an assembly trampoline with the
 * same tables (five instructions for each task); _Unwind_ForcedUnwind and a jump (a foreign exception does not come that way, and each
 * architecture needs code of its own); docs/adr/012-unwinding.md. */
#ifndef WEFT_SRC_UNWIND_H
#define WEFT_SRC_UNWIND_H

#include <unwind.h>

#include "base/base.h"
#include "context/sanitize.h"

#include <weft/runtime.h>

typedef struct weft__try weft__try;
typedef struct weft__panic weft__panic;

/* Of a task, or of a plain thread: what is to be contained, and what is on its way. Its own. */
typedef struct weft__unwind {
    weft__try *tries;    /* the innermost weft__contain that is active */
    weft__panic *panics; /* the newest panic that has been caught at a boundary and has not landed there */
} weft__unwind;

/* The caller's tables point at the task layer's personality: what is called next in this function is a boundary. Directives, no code. */
#define WEFT_BOUNDARY(personality) __asm__ volatile(".cfi_personality 0x1b, " #personality) /* 0x1b: relative, 4 bytes */

/* Calls a task's function; WEFT_EPANIC if it did not return by itself. The compiler must not know which function it is: inlined, it would have
 * no frame of its own that could be made to return. A macro: `fn` is loaded by the call. */
#ifdef WEFT_TSAN
int weft__call_tsan(weft_fn *fn, void *arg);
#define weft__call(fn, arg) weft__call_tsan((fn), (arg))
#else
#define weft__call(fn, arg)                                                                                                    \
    __extension__({                                                                                                            \
        WEFT_BOUNDARY(weft__task_personality);                                                                                 \
        (fn)(arg);                                                                                                             \
    })
#endif
/* The same for a function that a weft__try stands for (the innermost of the caller's weft__unwind). */
int weft__call_try(weft_fn *fn, void *arg);

/* Starts unwinding; returns only if the frames cannot be walked up to a boundary. */
void weft__unwind_raise(struct _Unwind_Exception *exception);
/* Return addresses, innermost first; how many. Begins with the frame that `first` accepts, or with the innermost if it accepts none. */
int weft__unwind_backtrace(void **frames, int max, bool (*first)(void *pc, void *arg), void *arg);
/* Return addresses in what throws: the unwinder and the C++ run-time library. */
bool weft__unwind_is_throw(void *pc);

/* Supplied by the task layer. `in_try`: at a boundary of weft__call_try. */
void weft__unwind_caught(struct _Unwind_Exception *exception, bool in_try);
void weft__unwind_landed(struct _Unwind_Exception *exception, bool in_try);

#endif
