/* SPDX-License-Identifier: MIT */
/* Must compile with clang++ -Wthread-safety -Werror: a guard of weft.hpp holds its lock. */
#include <weft.hpp>

static weft_mutex m;
static weft_rwlock rw;
static int count WEFT_GUARDED_BY(m);
static int table WEFT_GUARDED_BY(rw);

int main() {
    {
        weft::lock_guard g(m);
        count++;
    }
    {
        weft::write_guard g(rw);
        table++;
    }
    weft::read_guard g(rw);
    return table;
}
