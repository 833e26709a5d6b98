/* SPDX-License-Identifier: MIT */
/* Must not compile with clang -Wthread-safety -Werror. */
#include <weft.h>

weft_mutex m;
weft_rwlock rw;
weft_cond c;
int count WEFT_GUARDED_BY(m);
int table WEFT_GUARDED_BY(rw);

int main(void) {
    (void)weft_mutex_trylock(&m);
    count++;
    weft_mutex_unlock(&m);
    return 0;
}
