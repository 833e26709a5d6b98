/* SPDX-License-Identifier: MIT */
/* weft for C++17, a thin layer on weft.h: tasks from lambdas, objects that end what they began, channels of objects, deadlines from
 * std::chrono. Everything of weft.h can be used beside it, and what needs no help is not repeated here (weft_yield, weft_self, …).
 *
 * Results are those of weft.h: 0 or positive is success, negative an error. Only constructors, and what copies your objects to the heap,
 * throw: std::bad_alloc.
 *
 * A task is a callable that takes nothing and returns nothing (0) or an int. An exception that leaves it is a panic, as in C (docs/guide/panics.md),
 * with one difference: one that is derived from std::exception is given back by whoever joins the task, where somebody does: scope::join, run,
 * block_on, call, parallel_for. Panics themselves (weft_panic) are never caught here. */
#ifndef WEFT_HPP
#define WEFT_HPP

#include <weft/base.hpp>
#include <weft/task.hpp>
#include <weft/chan.hpp>
#include <weft/time.hpp>
#include <weft/sync.hpp>

#include <weft.h>

#endif
