/* SPDX-License-Identifier: MIT */
/* Where stacks come from, and where they go in between.
 *
 * A slab is one large reservation, cut into stacks of one class. Reserving costs nothing but addresses: memory comes when it is
 * touched. So slabs start at 4 GiB and double up to 64 GiB, and a million stacks of 256 KiB are seven mappings. Where addresses
 * are scarce (RLIMIT_AS, strict overcommit) they start at 64 MiB, and the size is halved until it fits, down to a single stack.
 *
 *     base                    low                               high            struct          top
 *     |   guard    | canary?  | … free …            frames ←   | head (task)   | weft__stack | colour |
 *
 * The life of a stack, and who moves it on:
 *
 *     carve:         part of a slab        → fresh, in a cache, guarded
 *     make:          fresh                 → in a cache, and at once in use
 *     get, put:      in a cache            ⇄ in use
 *     spill, flush:  in a cache            → in a magazine of the pool
 *     flush:         fresh                 → in a rest of the pool: one made stack that stands for the untouched ones above it
 *     refill:        in a magazine, a rest → in a cache, fresh
 *     trim:          a magazine            → a lean one: its stacks have given back what lay deep
 *
 *  1. Nothing of a fresh stack is touched but its guard's page-table entry. Its top page is first written in make, when it is
 *     about to be used: a parked task costs one page and 1/8 of a page of page tables (256 KiB class).
 *  2. A bit in slab->made is set after the struct is filled in, with release, and never cleared: who sees it may read the fixed
 *     fields of the struct until the pool closes.
 *  3. A stack is on at most one list. Lists of a cache belong to the slot's owner; those of the pool are under pool.lock.
 *  4. The stack put last may still be running; so spill passes the ones after it on, never it.
 *  5. System calls are made under the grower's mutex or under no lock, never under pool.lock.
 *
 * Colour: all tops at the same offset in their page would fall into one set of the first-level cache, of eight or twelve lines:
 * with more parked tasks than that each switch would miss. Sixteen offsets a line apart cost 960 bytes of a page that is there
 * anyway, and leave 2.6 KiB for frames in it.
 *
 * Stride: from one stack to the next it is its size and a page. The entry for a page is kept in a set that the lowest bits of its number choose, in the second level
 * too (3072 entries in 128 sets, Zen 4): with top pages 256 KiB apart, a power of two, two sets had to do for all of them, and from 48 stacks on
 * each switch began with a walk through the page tables (a thousand pages by turns: 21 ns each, 6 ns when a page further apart). The additional page is the stack's.
 *
 * Rejected: a mapping per stack with mprotect (dies at 32,753 stacks); an array of descriptors beside the slabs (a second cache
 * line per start, and memory for stacks never used); filling in whole magazines at once (63 pages per slot and class for
 * nothing); MADV_FREE when a stack comes back (the next task pays the page fault again: 2 µs against 0.1). */
#include "stack/slab.h"

#include <stdlib.h>

#include "base/lock.h"
#include "os/os.h"

#ifdef WEFT_ASAN
#include <sanitizer/asan_interface.h>
#endif
#if defined(WEFT_VALGRIND) && __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#else
#define RUNNING_ON_VALGRIND 0
#define VALGRIND_STACK_REGISTER(low, high) ((void)(low), (void)(high), 0u)
#define VALGRIND_STACK_DEREGISTER(id) ((void)(id))
#endif

enum {
    COLOURS = 16,
    STRUCT_SIZE = 64, /* a line for struct weft__stack */
    GROWTH = 4,       /* a class's slabs double this often */
};
/* Bytes of a class's first slab. The small one where a reserve is not free: addresses are limited, or the kernel counts them as
 * memory, and then 4 GiB would be taken from the rest of the program; and under valgrind, which looks through all of it for pointers when
 * the program ends: 10 s for 4 GiB. */
#define SLAB_FIRST ((size_t)4 << 30)
#define SLAB_LITTLE ((size_t)64 << 20)
#define FRAMES_MIN 2458 /* bytes of the top page that are left for frames: a parked task should need no second page */

_Static_assert(sizeof(weft__stack) <= STRUCT_SIZE, "struct weft__stack fits its line");
_Static_assert(WEFT_STACK_HEAD % 64 == 0, "high is aligned to a line");
_Static_assert(4096 - (COLOURS - 1) * 64 - STRUCT_SIZE - WEFT_STACK_HEAD >= FRAMES_MIN, "the top page has room for frames");
_Static_assert(WEFT_STACK_MIN << (WEFT_STACK_CLASSES - 1) == WEFT_STACK_MAX, "classes reach the maximum");

static struct {
    _Atomic(weft__stack_slab *) slabs; /* written under `growing` */
    _Atomic uint64_t stacks;           /* made; a figure for people */
    _Atomic uint32_t slab_count;       /* likewise */

    pthread_mutex_t growing;
    size_t first_size;                             /* bytes of a class's first slab; fixed while the pool is open */
    weft__stack_slab *current[WEFT_STACK_CLASSES]; /* the slab that is being carved; under `growing` */
    uint32_t next_size[WEFT_STACK_CLASSES];        /* stacks of the next slab, 0 = not tried yet; under `growing` */

    weft__lock lock;
    _Atomic(weft__stack *) magazines[WEFT_STACK_CLASSES]; /* written under `lock`; looked at for NULL without it */
    _Atomic(weft__stack *) lean[WEFT_STACK_CLASSES];      /* likewise: magazines that have been trimmed */
    _Atomic(weft__stack *) rests[WEFT_STACK_CLASSES];     /* likewise: a made stack with `count` fresh ones above it */
} pool = {.growing = PTHREAD_MUTEX_INITIALIZER};

void (*weft__stack_fiber_drop)(void *fiber);
bool weft__stack_alone;

int weft__stack_class(size_t size) {
    if (size > WEFT_STACK_MAX) return -1;
    if (size == 0) size = WEFT_STACK_DEFAULT;
    size_t least = 4 * weft__page_size(); /* guard, canary, top and something between, also where pages have 64 KiB */
    int cls = 0;
    while (weft__stack_class_size(cls) < size || weft__stack_class_size(cls) < least) cls++;
    return cls;
}

/* ---- slabs ---- */

size_t weft__stack_stride(int cls) {
    return weft__stack_class_size(cls) + weft__page_size();
}

/* Begins and ends where the smallest stack could, and nobody else's memory is near a frame: weft__is_stack. */
static size_t slab_size(int cls, uint32_t stacks) {
    return (stacks * weft__stack_stride(cls) + WEFT_STACK_MIN - 1) & ~(WEFT_STACK_MIN - 1);
}

weft__stack_slab *weft__stack_slab_first(void) {
    return weft__load(&pool.slabs, acquire); /* sees the slab's fields; pairs with the release in slab_new */
}

weft__stack *weft__stack_slab_at(weft__stack_slab *slab, uint32_t i) {
    char *top = slab->base + (i + (size_t)1) * weft__stack_stride(slab->size_class);
    return (weft__stack *)(void *)(top - (i % COLOURS) * WEFT_LINE - STRUCT_SIZE);
}

bool weft__stack_slab_made(weft__stack_slab *slab, uint32_t i) {
    if (i >= slab->stacks) return false;                             /* behind the last one there may be a rest */
    return weft__load(&slab->made[i / 64], acquire) >> (i % 64) & 1; /* invariant 2; pairs with the release in make */
}

char *weft__stack_top(const weft__stack *s) {
    return (char *)(((uintptr_t)s | (weft__page_size() - 1)) + 1);
}

char *weft__stack_first_page(const weft__stack *s) {
    size_t page = weft__page_size();
    return (char *)(((uintptr_t)s->low + page - 1) & ~(page - 1));
}

/* Big stacks are few, and each of their guards costs a page of page tables. */
static uint32_t magazine_size(int cls) {
    size_t size = weft__stack_class_size(cls);
    return size >= ((size_t)64 << 20) ? 1 : size >= ((size_t)4 << 20) ? 8 : WEFT_STACK_MAGAZINE;
}

static weft__stack_slab *slab_map(int cls, uint32_t stacks) {
    size_t size = slab_size(cls, stacks);
    weft__stack_slab *slab = weft__calloc(1, sizeof *slab + (stacks + 63) / 64 * sizeof slab->made[0]);
    if (!slab) return NULL;
    slab->base = weft__vm_reserve(size, WEFT_STACK_MIN);
    if (!slab->base) {
        weft__free(slab);
        return NULL;
    }
    weft__vm_small_pages(slab->base, size);
    slab->size = size;
    slab->stacks = stacks;
    slab->size_class = cls;
    return slab;
}

/* Under `growing`. Halves what it asks for until it gets it, but tries a whole magazine before a single stack. */
static weft__stack_slab *slab_new(int cls) {
    uint32_t least = magazine_size(cls), n = pool.next_size[cls];
    size_t size = weft__stack_class_size(cls), first = pool.first_size;
    if (!n) n = first > size ? (uint32_t)(first / size) : 1;
    weft__stack_slab *slab;
    while (!(slab = slab_map(cls, n))) {
        if (n == 1) return NULL;
        n = n / 2 >= least ? n / 2 : n > least ? least : 1;
    }
    uint32_t most = (first << GROWTH) > size ? (uint32_t)((first << GROWTH) / size) : 1;
    pool.next_size[cls] = n * 2 < most ? n * 2 : most;
    slab->next = weft__load(&pool.slabs, relaxed); /* only written under the mutex that we hold */
    weft__store(&pool.slabs, slab, release);       /* publishes the slab's fields; pairs with weft__stack_slab_first */
    weft__add(&pool.slab_count, 1, relaxed);
    pool.current[cls] = slab;
    return slab;
}

/* ---- fresh stacks ---- */

/* Takes a magazine of untouched stacks from the slab and puts their guards in place. */
static bool carve(weft__stack_fresh *out, int cls) {
    uint32_t n = magazine_size(cls), first = 0;
    pthread_mutex_lock(&pool.growing);
    weft__stack_slab *slab = pool.current[cls];
    if (!slab || slab->carved == slab->stacks) slab = slab_new(cls);
    if (slab) {
        first = slab->carved;
        if (n > slab->stacks - first) n = slab->stacks - first;
        slab->carved += n;
    }
    pthread_mutex_unlock(&pool.growing);
    if (!slab) return false;
    int guards = weft__guards_install(slab->base + first * weft__stack_stride(cls), cls, (int)n);
    *out = (weft__stack_fresh){slab, first, n, guards};
    return true;
}

/* The next fresh stack becomes one that can be used: the first touch of its top page. */
static weft__stack *make(weft__stack_fresh *f) {
    weft__stack_slab *slab = f->slab;
    uint32_t i = f->index++;
    f->left--;
    weft__stack *s = weft__stack_slab_at(slab, i);
    s->slab = slab;
    s->size_class = (uint8_t)slab->size_class;
    s->guards = (uint8_t)f->guards;
    s->low = slab->base + i * weft__stack_stride(slab->size_class) + weft__guard_size(slab->size_class);
    s->high = (char *)s - WEFT_STACK_HEAD;
    s->inside = weft__stack_alone ? 0 : (uint32_t)(weft__stack_class_size(slab->size_class) / 8);
    s->again = weft__stack_alone ? WEFT_STACK_CLASSES + 1 : s->size_class;
    s->watched = weft__stack_measuring || f->guards == 1;
    if (f->guards == 1) {
        s->low += WEFT_STACK_CANARY;
        weft__guards_canary(s);
    }
    s->valgrind_id = VALGRIND_STACK_REGISTER(s->low, s->high);
    weft__add(&pool.stacks, 1, relaxed);
    /* release: the fields above; pairs with the acquire in weft__stack_slab_made */
    atomic_fetch_or_explicit(&slab->made[i / 64], (uint64_t)1 << (i % 64), memory_order_release);
    return s;
}

static void push(weft__stack_cache *c, int cls, weft__stack *s) {
    s->next = c->free[cls];
    c->free[cls] = s;
    c->count[cls]++;
}

/* ---- the shared pool ---- */

/* Pops from one of the pool's lists. The look without the lock may miss one that is just arriving; a fresh stack does, too. */
static weft__stack *pool_take(_Atomic(weft__stack *) *list) {
    if (!weft__load(list, relaxed)) return NULL; /* a hint; the value is taken under the lock */
    weft__lock_take(&pool.lock);
    weft__stack *s = weft__load(list, relaxed); /* ordered by the lock, as in pool_give */
    if (s) weft__store(list, s->magazine, relaxed);
    weft__lock_leave(&pool.lock);
    return s;
}

static void pool_give(_Atomic(weft__stack *) *list, weft__stack *s, uint32_t count) {
    s->count = count;
    weft__lock_take(&pool.lock);
    s->magazine = weft__load(list, relaxed);
    weft__store(list, s, relaxed);
    weft__lock_leave(&pool.lock);
}

/* Warm memory first, then what this cache has ready, then what an ended one left, and only then new guards. */
bool weft__stack_refill(weft__stack_cache *c, int cls) {
    if (cls == WEFT_STACK_ASK) return false;
    weft__stack_fresh *f = &c->fresh[cls];
    weft__stack *s = pool_take(&pool.magazines[cls]);
    if (!s) s = pool_take(&pool.lean[cls]);
    if (s) {
        c->free[cls] = s;
        c->count[cls] += s->count;
        return true;
    }
    if (!f->left && (s = pool_take(&pool.rests[cls]))) {
        uint32_t i = (uint32_t)((size_t)((char *)s - s->slab->base) / weft__stack_stride(cls));
        *f = (weft__stack_fresh){s->slab, i + 1, s->count, s->guards};
        push(c, cls, s);
        return true;
    }
    if (!f->left && !carve(f, cls)) return false;
    push(c, cls, make(f));
    return true;
}

/* The newest are the warmest, but finding the oldest means walking over three magazines of cold ones. */
void weft__stack_spill(weft__stack_cache *c, int cls) {
    weft__stack *running = c->free[cls], *first = running->next, *last = first; /* invariant 4 */
    for (int i = 1; i < WEFT_STACK_MAGAZINE; i++) last = last->next;
    running->next = last->next;
    last->next = NULL;
    c->count[cls] -= WEFT_STACK_MAGAZINE;
    pool_give(&pool.magazines[cls], first, WEFT_STACK_MAGAZINE);
}

#ifdef WEFT_TSAN
enum {
    COOLING = 64
}; /* tasks that end on a slot before the next one is on the same stack: each keeps some pages and a fiber */

weft__stack *weft__stack_cool(weft__stack_cache *c, weft__stack *s) {
    int cls = s->size_class;
    s->next = NULL;
    if (c->cooling[cls].count++)
        c->cooling[cls].last->next = s;
    else
        c->cooling[cls].first = s;
    c->cooling[cls].last = s;
    if (c->cooling[cls].count <= COOLING) return NULL;
    s = c->cooling[cls].first;
    c->cooling[cls].first = s->next;
    c->cooling[cls].count--;
    return s;
}

static void flush_cooling(weft__stack_cache *c, int cls) {
    while (c->cooling[cls].count) {
        weft__stack *s = c->cooling[cls].first;
        c->cooling[cls].first = s->next;
        c->cooling[cls].count--;
        push(c, cls, s);
    }
}
#else
static void flush_cooling(weft__stack_cache *c, int cls) {
    (void)c, (void)cls;
}
#endif

void weft__stack_cache_flush(weft__stack_cache *c) {
    for (int cls = 0; cls < WEFT_STACK_CLASSES; cls++) {
        flush_cooling(c, cls);
        if (c->free[cls]) pool_give(&pool.magazines[cls], c->free[cls], c->count[cls]);
        c->free[cls] = NULL;
        c->count[cls] = 0;
        if (!c->fresh[cls].left) continue;
        weft__stack *s = make(&c->fresh[cls]); /* it carries the rest of the untouched ones */
        s->next = NULL;
        pool_give(&pool.rests[cls], s, c->fresh[cls].left);
        c->fresh[cls].left = 0;
    }
}

weft__stack *weft__stack_magazine_take(int cls) {
    return pool_take(&pool.magazines[cls]);
}

void weft__stack_magazine_give(int cls, weft__stack *first, bool trimmed) {
    pool_give(trimmed ? &pool.lean[cls] : &pool.magazines[cls], first, first->count);
}

void weft__stack_look(weft__stack *s) {
    if (s->guards == 1) weft__guards_canary_check(s);
    if (weft__stack_measuring) weft__stack_measure(s);
}

/* ---- all stacks ---- */

static void each_of_slab(weft__stack_slab *slab, void (*fn)(weft__stack *s, void *arg), void *arg) {
    for (uint32_t word = 0; word * 64 < slab->stacks; word++) {
        uint64_t bits = weft__load(&slab->made[word], acquire); /* as in weft__stack_slab_made */
        for (; bits; bits &= bits - 1) fn(weft__stack_slab_at(slab, word * 64 + (uint32_t)__builtin_ctzll(bits)), arg);
    }
}

void weft__stack_each(void (*fn)(weft__stack *s, void *arg), void *arg) {
    for (weft__stack_slab *slab = weft__stack_slab_first(); slab; slab = slab->next) each_of_slab(slab, fn, arg);
}

weft__stack *weft__stack_next(weft__stack_walk *w) {
    if (!w->begun) *w = (weft__stack_walk){.slab = weft__stack_slab_first(), .begun = true};
    for (; w->slab; w->slab = w->slab->next, w->index = 0) {
        for (; w->index < w->slab->stacks; w->index = (w->index | 63) + 1) {
            uint64_t bits =
                weft__load(&w->slab->made[w->index / 64], acquire) >> (w->index % 64); /* as in weft__stack_slab_made */
            if (!bits) continue;
            w->index += (uint32_t)__builtin_ctzll(bits) + 1;
            return weft__stack_slab_at(w->slab, w->index - 1);
        }
    }
    return NULL;
}

weft__stack *weft__stack_of(const void *address) {
    for (weft__stack_slab *slab = weft__stack_slab_first(); slab; slab = slab->next) {
        size_t offset = (size_t)((uintptr_t)address - (uintptr_t)slab->base);
        if (offset >= slab->size) continue;
        size_t i = offset / weft__stack_stride(slab->size_class);
        return weft__stack_slab_made(slab, (uint32_t)i) ? weft__stack_slab_at(slab, (uint32_t)i) : NULL;
    }
    return NULL;
}

void weft__stack_info_get(weft__stack_info *out) {
    out->stacks = weft__load(&pool.stacks, relaxed); /* figures only */
    out->mappings = weft__load(&pool.slab_count, relaxed) + weft__guards_mappings();
    out->trims = weft__load(&weft__stack_trims, relaxed);
    out->guards = weft__guards_weakest();
}

void weft__stack_unpoison(weft__stack *s) {
#ifdef WEFT_ASAN
    __asan_unpoison_memory_region(s->low, (size_t)(s->high - s->low));
#else
    (void)s;
#endif
}

/* ---- start and end ---- */

/* Emulators of another CPU keep a record of each page that was ever reserved: 47 MB for 4 GiB in qemu-user 7.2. WEFT_STACK_SLAB=64 in
 * the environment (MiB) is for those. */
static size_t slab_first(void) {
    if (RUNNING_ON_VALGRIND || weft__vm_scarce("/proc/sys/vm/overcommit_memory")) return SLAB_LITTLE;
    const char *s = weft__env("WEFT_STACK_SLAB");
    long mib = s ? strtol(s, NULL, 10) : 0;
    return mib > 0 && mib <= (long)(SLAB_FIRST >> 20) ? (size_t)mib << 20 : SLAB_FIRST;
}

int weft__stack_pool_open(void) {
    pool.first_size = slab_first();
    int err = weft__guards_open();
    return err ? err : weft__overflow_open();
}

static void forget(weft__stack *s, void *arg) {
    (void)arg;
    if (s->fiber && weft__stack_fiber_drop) weft__stack_fiber_drop(s->fiber);
    VALGRIND_STACK_DEREGISTER(s->valgrind_id);
    weft__stack_unpoison(s);
}

/* True if somebody outside keeps something per stack. Otherwise the walk would only fetch a cold line of each. */
static bool must_forget(void) {
#ifdef WEFT_ASAN
    return true;
#else
    return weft__stack_fiber_drop || RUNNING_ON_VALGRIND;
#endif
}

static void release_slabs(void) {
    if (must_forget()) weft__stack_each(forget, NULL);
    weft__stack_slab *slab = weft__load(&pool.slabs, relaxed); /* the workers have ended: nobody else is here */
    while (slab) {
        weft__stack_slab *next = slab->next;
        weft__vm_release(slab->base, slab->size);
        weft__free(slab);
        slab = next;
    }
}

static void empty(void) {
    weft__store(&pool.slabs, NULL, relaxed); /* nobody else is here */
    weft__store(&pool.stacks, 0, relaxed);
    weft__store(&weft__stack_trims, 0, relaxed);
    weft__store(&pool.slab_count, 0, relaxed);
    for (int cls = 0; cls < WEFT_STACK_CLASSES; cls++) {
        pool.current[cls] = NULL;
        pool.next_size[cls] = 0;
        weft__store(&pool.magazines[cls], NULL, relaxed);
        weft__store(&pool.lean[cls], NULL, relaxed);
        weft__store(&pool.rests[cls], NULL, relaxed);
    }
}

void weft__stack_pool_close(void) {
    weft__overflow_close();
    release_slabs();
    empty();
}

void weft__stack_pool_forget(bool release) {
    static weft__stack_slab *left; /* so that leak checkers find them */
    weft__overflow_close();
    weft__stack_fiber_drop = NULL; /* the sanitizer has its own ideas about threads that are not there */
    if (release)
        release_slabs();
    else
        left = weft__load(&pool.slabs, relaxed); /* nobody else is here */
    (void)left;
    empty();
    weft__lock_leave(&pool.lock);
    pool.growing = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}
