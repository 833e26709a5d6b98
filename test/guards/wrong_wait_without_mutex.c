/* SPDX-License-Identifier: MIT */
/* Must not compile with clang -Wthread-safety -Werror. */
#include <weft.h>

weft_mutex m;
weft_rwlock rw;
weft_cond c;
int count WEFT_GUARDED_BY(m);
int table WEFT_GUARDED_BY(rw);

int main(void) {
    (void)weft_cond_wait(&c, &m, WEFT_FOREVER);
    return 0;
}
