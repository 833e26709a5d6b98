/* SPDX-License-Identifier: MIT */
/* expect: a task returns an int */
#include <weft.hpp>
int f(weft::scope &s) {
    return s.spawn([] { return 0.5; });
}
