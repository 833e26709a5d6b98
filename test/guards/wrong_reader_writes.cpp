/* SPDX-License-Identifier: MIT */
/* A guard that reads is not enough to write. */
#include <weft.hpp>

static weft_rwlock rw;
static int table WEFT_GUARDED_BY(rw);

int main() {
    weft::read_guard g(rw);
    return ++table;
}
