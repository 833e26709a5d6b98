/* SPDX-License-Identifier: MIT */
/* expect: no member named .close.|has no member named .close. */
#include <weft.hpp>
int f(const weft::receiver<int> &end) { return end.close(); }
