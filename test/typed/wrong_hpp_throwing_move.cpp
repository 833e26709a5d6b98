/* SPDX-License-Identifier: MIT */
/* expect: not sendable: elements are moved, and that must not throw */
#include <weft.hpp>
struct careless {
    careless(careless &&) {}
};
weft::chan<careless> objects;
