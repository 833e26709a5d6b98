/* SPDX-License-Identifier: MIT */
/* expect: begin */
#include <weft.hpp>
int f(const weft::sender<int> &end) {
    for (int v : end) return v;
    return 0;
}
