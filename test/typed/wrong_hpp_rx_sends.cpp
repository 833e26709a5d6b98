/* SPDX-License-Identifier: MIT */
/* expect: no member named .send.|has no member named .send. */
#include <weft.hpp>
int f(const weft::receiver<int> &end) { return end.send(1); }
