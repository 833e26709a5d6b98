/* SPDX-License-Identifier: MIT */
/* expect: no matching function */
#include <weft.hpp>
int f(const weft::receiver<int> &end) { return weft::select(weft::forever, weft::on_send(end, 1)); }
