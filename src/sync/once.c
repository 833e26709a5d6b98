/* SPDX-License-Identifier: MIT */
/* Once: NEW -> RUNNING by the CAS of whoever comes first, RUNNING -> DONE by the same, under the object's lock. */
#include "sync/sync.h"

#include "task/panic.h"

enum { NEW, RUNNING, DONE };

typedef struct weft__once {
    _Atomic uint32_t state;
    int32_t result;         /* before DONE its runner's, then fixed */
    _Atomic uint64_t owner; /* who runs it */
    weft__queue waiters;    /* under the object's lock */
    uint32_t forks;         /* weft__sync_inherited; likewise */
} weft__once;
_Static_assert(sizeof(weft__once) <= sizeof(weft_once), "a once fits its storage");

static int finish(weft__once *o, int result) {
    weft__slot *s = weft__enter();
    weft__lock *l = weft__sync_lock_of(o);
    weft__queue woken = {NULL, NULL};
    weft__lock_take(l);
    (void)weft__sync_inherited(&o->waiters, &o->forks);
    o->result = result;
    while (weft__sync_claim(&o->waiters, &woken)) continue;
    weft__store(&o->state, DONE, release); /* publishes what fn did and the result; pairs with weft_once_run; L2 */
    weft__lock_leave(l);
    weft__sync_resume(&woken, s);
    if (s) weft__leave();
    return result;
}

static int wait_for(weft__once *o) {
    weft__sync_wait w;
    weft__sync_begin_deaf(&w, o);
    weft__sync_take(&w);
    (void)weft__sync_inherited(&o->waiters, &o->forks);
    if (weft__load(&o->state, relaxed) == DONE) /* under the lock */
        weft__lock_leave(w.lock);
    else
        (void)weft__sync_wait_on(&w, &o->waiters, WEFT_WAIT_ONCE);
    weft__sync_end(&w);
    return o->result;
}

static WEFT_NOINLINE int run(weft__once *o, weft_fn *fn, void *arg) {
    uint32_t s = NEW;
    uint64_t me = weft__sync_id(weft__self());
    if (weft__cas(&o->state, &s, RUNNING, acquire)) {
        weft__store(&o->owner, me, relaxed);      /* only we look for ourselves in there */
        return finish(o, weft__contain(fn, arg)); /* a panic must not leave the others waiting */
    }
    if (weft__load(&o->owner, relaxed) == me && weft__load(&o->state, relaxed) == RUNNING) return WEFT_EREENTRANT;
    return wait_for(o);
}

int weft_once_run(weft_once *once, weft_fn *fn, void *arg) {
    weft__once *o = (weft__once *)(void *)once;
    if (likely(weft__load(&o->state, acquire) == DONE)) return o->result; /* pairs with the release in finish */
    return run(o, fn, arg);
}
