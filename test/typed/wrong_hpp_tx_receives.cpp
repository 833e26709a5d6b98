/* SPDX-License-Identifier: MIT */
/* expect: no member named .recv.|has no member named .recv. */
#include <weft.hpp>
int f(const weft::sender<int> &end) { return end.recv().error(); }
