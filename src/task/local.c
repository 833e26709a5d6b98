/* SPDX-License-Identifier: MIT */
/* Task-local storage: an array of values for each task that has any, indexed by key.
 *
 * A key's generation is odd while it exists; it changes when the key is deleted, so that values stored under an old one are nobody's. Values are their
 * task's own and need no lock. A plain thread has an array too; the C library tells us when the thread ends.
 *
 * A child that runs inside its opener has values of its own: they hang on its record (weft__extra_mine).
 *
 * Unloading: where weft is part of a plug-in, threads that stored a value may outlive it. The C library must not call thread_ended then,
 * so the key is given back when the plug-in is unloaded. Destructors of values are not called, as with pthread_key_delete. The same function runs
 * at exit, with other threads still at work: it frees nothing that a thread could still ask for. */
#include <pthread.h>

#include "task/panic.h"

typedef struct {
    void *value;
    uint32_t generation;
} entry;

struct weft__locals {
    uint32_t count;
    entry at[];
};
typedef struct weft__locals weft__locals;

enum { LOCALS_MIN = 8 }; /* values in the smallest array: most programs have no more keys */

static struct {
    _Atomic uint32_t generation; /* written under lock */
    void (*destructor)(void *);  /* written under lock, before the generation becomes odd */
} keys[WEFT_KEYS_MAX];
static weft__lock lock;

/* ---- keys ---- */

int weft_key_new(weft_key *out, void (*destructor)(void *value)) {
    int err = WEFT_ELIMIT;
    *out = (weft_key){0, 0};
    weft__lock_take(&lock);
    for (uint32_t i = 0; i < WEFT_KEYS_MAX && err; i++) {
        uint32_t generation = weft__load(&keys[i].generation, relaxed); /* under lock */
        if (generation & 1) continue;
        keys[i].destructor = destructor;
        weft__store(&keys[i].generation, generation + 1, release); /* pairs with the acquire in exists */
        *out = (weft_key){i, generation + 1};
        err = 0;
    }
    weft__lock_leave(&lock);
    return err;
}

void weft__keys_forget(void) {
    weft__lock_leave(&lock);
}

static bool exists(weft_key k) {
    if (k.index >= WEFT_KEYS_MAX || !(k.generation & 1)) return false;
    return weft__load(&keys[k.index].generation, acquire) == k.generation; /* pairs with the release in weft_key_new */
}

int weft_key_delete(weft_key k) {
    weft__lock_take(&lock);
    bool there = exists(k);
    if (there) weft__store(&keys[k.index].generation, k.generation + 1, release); /* pairs with exists */
    weft__lock_leave(&lock);
    return there ? 0 : WEFT_EINVAL;
}

/* ---- plain threads ---- */

static WEFT_NOINLINE weft__locals **threads_own(void) {
    static __thread weft__locals *own;
    return &own;
}

static void thread_ended(void *arg) {
    bool panicked = false;
    (void)arg;
    weft__locals **own = threads_own();
    for (int i = 0; i < WEFT_LOCAL_ROUNDS && weft__locals_destroy(own, &panicked); i++) {
    }
    weft__free(*own);
    *own = NULL;
}

static pthread_key_t at_end; /* under lock, as `made` */
static bool made;

/* Has thread_ended called when this thread ends. */
static int watch_thread(void) {
    weft__lock_take(&lock);
    if (!made) made = !weft__fault() && pthread_key_create(&at_end, thread_ended) == 0;
    int err = made && pthread_setspecific(at_end, threads_own()) == 0 ? 0 : WEFT_ENOMEM;
    weft__lock_leave(&lock);
    return err;
}

/* Returns true if no key finds a value in the array. */
static bool is_empty(const weft__locals *l) {
    for (uint32_t i = 0; l && i < l->count; i++)
        if (l->at[i].value && exists((weft_key){i, l->at[i].generation})) return false;
    return true;
}

/* Runs when the object that weft is part of is unloaded, and at exit. */
__attribute__((destructor)) static void unload(void) {
    weft__locals **own = threads_own();
    weft__lock_take(&lock);
    if (made) pthread_key_delete(at_end);
    made = false;
    weft__lock_leave(&lock);
    if (!is_empty(*own)) return;
    weft__free(*own);
    *own = NULL;
}

/* ---- values ---- */

static weft__locals *grown(weft__locals *old, uint32_t index) {
    uint32_t count = old ? old->count : LOCALS_MIN;
    while (count <= index) count *= 2;
    weft__locals *l = weft__calloc(1, sizeof *l + count * sizeof(entry));
    if (!l) return NULL;
    l->count = count;
    if (old) memcpy(l->at, old->at, old->count * sizeof(entry));
    weft__free(old);
    return l;
}

void *weft_local_get(weft_key k) {
    weft__task *t = weft__cur(weft__self());
    weft__extra *x = !t ? NULL : t->inner ? t->inner->extra : t->extra;
    weft__locals *l = t ? x ? x->locals : NULL : *threads_own();
    if (!l || k.index >= l->count || l->at[k.index].generation != k.generation || !exists(k)) return NULL;
    return l->at[k.index].value;
}

int weft_local_set(weft_key k, void *value) {
    weft__task *t = weft__cur(weft__self());
    weft__locals **l;
    if (!exists(k)) return WEFT_EINVAL;
    if (t) {
        weft__extra *x = weft__extra_mine(t);
        if (!x) return WEFT_ENOMEM;
        l = &x->locals;
    } else {
        l = threads_own();
        if (!*l && watch_thread() < 0) return WEFT_ENOMEM;
    }
    if (!*l || k.index >= (*l)->count) {
        weft__locals *more = grown(*l, k.index);
        if (!more) return WEFT_ENOMEM;
        *l = more;
    }
    (*l)->at[k.index] = (entry){value, k.generation};
    return 0;
}

/* ---- the end ---- */

typedef struct {
    void (*destructor)(void *);
    void *value;
} ending;

static int call(void *arg) {
    ending *e = arg;
    e->destructor(e->value);
    return 0;
}

bool weft__locals_destroy(weft__locals **l, bool *panicked) {
    bool any = false;
    for (uint32_t i = 0; *l && i < (*l)->count; i++) { /* a destructor that sets another value may move the array */
        entry *at = &(*l)->at[i];
        ending e = {.value = at->value};
        at->value = NULL;
        if (!e.value || !exists((weft_key){i, at->generation})) continue;
        e.destructor = keys[i].destructor;
        if (!e.destructor) continue;
        *panicked |= weft__contain(call, &e) != 0;
        any = true;
    }
    return any;
}
