/* SPDX-License-Identifier: MIT */
/* The guard's block is over. */
#include <weft.hpp>

static weft_mutex m;
static int count WEFT_GUARDED_BY(m);

int main() {
    { weft::lock_guard g(m); }
    return count;
}
