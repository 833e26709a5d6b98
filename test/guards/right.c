/* SPDX-License-Identifier: MIT */
/* Must compile with clang -Wthread-safety -Werror: every lock of sync.h, used as it should be. */
#include <weft.h>

static weft_mutex m;
static weft_rwlock rw;
static weft_cond c;
static int count WEFT_GUARDED_BY(m);
static int table WEFT_GUARDED_BY(rw);

static int look(void) WEFT_REQUIRES(m);
static int look(void) { return count; }

static int locked(void) {
    weft_mutex_lock(&m);
    while (count == 0) {
        if (weft_cond_wait(&c, &m, WEFT_FOREVER)) break;
    }
    int n = look();
    weft_mutex_unlock(&m);
    return n;
}

static int tried(void) {
    int err = weft_mutex_lock_until(&m, WEFT_POLL);
    if (err) return err;
    count++;
    weft_mutex_unlock(&m);
    if (weft_mutex_trylock(&m) == 0) {
        count++;
        weft_mutex_unlock(&m);
    }
    return 0;
}

static int reads_and_writes(void) {
    weft_rwlock_rdlock(&rw);
    int n = table;
    weft_rwlock_rdunlock(&rw);
    if (weft_rwlock_wrlock_until(&rw, WEFT_FOREVER) == 0) {
        table = n + 1;
        weft_rwlock_wrunlock(&rw);
    }
    weft_rwlock_wrlock(&rw);
    table++;
    weft_rwlock_unlock(&rw);
    return n;
}

int main(void) { return locked() + tried() + reads_and_writes(); }
