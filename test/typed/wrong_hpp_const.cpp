/* SPDX-License-Identifier: MIT */
/* expect: not sendable: elements are objects, no arrays */
#include <weft.hpp>
weft::chan<const int> ints;
