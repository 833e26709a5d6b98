/* SPDX-License-Identifier: MIT */
/* Must not compile with clang -Wthread-safety -Werror. */
#include <weft.h>

weft_mutex m;
weft_rwlock rw;
weft_cond c;
int count WEFT_GUARDED_BY(m);
int table WEFT_GUARDED_BY(rw);

int main(void) {
    weft_rwlock_rdlock(&rw);
    table++;
    weft_rwlock_rdunlock(&rw);
    return 0;
}
