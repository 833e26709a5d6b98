/* SPDX-License-Identifier: MIT */
/* expect: no matching function|could not convert|no viable conversion */
#include <weft.hpp>
int g(weft::receiver<int> in);
int f(const weft::sender<int> &end) { return g(end); }
