/* SPDX-License-Identifier: MIT */
/* expect: not sendable: elements are objects, no arrays */
#include <weft.hpp>
weft::chan<char[80]> lines;
