/* SPDX-License-Identifier: MIT */
/* Type-stable memory: slabs, the magazines they are cut into, and the caches that exchange them. */
#include "test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/slab.h"
#include "os/os.h"

enum {
    MANY = 8 * WEFT_MAGAZINE, /* two chunks */
    KEPT = 2 * WEFT_MAGAZINE, /* what a cache holds at most */
    OBJECT = 128,
};

/* The link lies in the middle, so that both what is before and what is behind it shows. */
struct object {
    uint64_t before[3];
    void *link[2];
    uint64_t behind[3];
    atomic_int users;
    char unused[OBJECT - 8 * 8 - sizeof(atomic_int)];
};
_Static_assert(sizeof(struct object) == OBJECT, "as the slab thinks");

static weft__slab slab = {.size = OBJECT, .link_at = offsetof(struct object, link)};
static weft__cache cache, other;
static struct object *objects[MANY];

static int chunks(void) {
    int n = 0;
    for (void *c = slab.chunks; c; c = *(void **)c) n++;
    return n;
}

static void mark(struct object *o, uint64_t with) {
    for (int i = 0; i < 3; i++) o->before[i] = with * 3 + (uint64_t)i, o->behind[i] = ~o->before[i];
}

static bool is_marked(const struct object *o, uint64_t with) {
    for (int i = 0; i < 3; i++)
        if (o->before[i] != with * 3 + (uint64_t)i || o->behind[i] != ~o->before[i]) return false;
    return true;
}

/* Everything there is, into objects[]: from the cache given, or from the slab itself. */
static void get_all(weft__cache *c) {
    for (int i = 0; i < MANY; i++) CHECK((objects[i] = c ? weft__cache_get(&slab, c) : weft__slab_get(&slab)) != NULL);
}
static void put_all(weft__cache *c) {
    for (int i = 0; i < MANY; i++) c ? weft__cache_put(&slab, c, objects[i]) : weft__slab_put(&slab, objects[i]);
}

static int by_address(const void *a, const void *b) {
    uintptr_t x = (uintptr_t) * (void *const *)a, y = (uintptr_t) * (void *const *)b;
    return x < y ? -1 : x > y;
}
static void check_distinct(void) {
    qsort(objects, MANY, sizeof *objects, by_address);
    for (int i = 1; i < MANY; i++) CHECK_GE((char *)objects[i] - (char *)objects[i - 1], OBJECT);
}

TEST(slab, new_objects_are_zero_aligned_and_apart) {
    get_all(&cache);
    static const struct object zero;
    for (int i = 0; i < MANY; i++) {
        objects[i]->link[0] = objects[i]->link[1] = NULL;
        CHECK_EQ(memcmp(objects[i], &zero, OBJECT), 0);
        CHECK_EQ((uintptr_t)objects[i] % WEFT_LINE, 0);
    }
    check_distinct();
}

TEST(slab, the_last_one_put_is_the_next_one_out) {
    void *a = weft__cache_get(&slab, &cache), *b = weft__cache_get(&slab, &cache);
    weft__cache_put(&slab, &cache, a);
    weft__cache_put(&slab, &cache, b);
    CHECK_PTR(weft__cache_get(&slab, &cache), b);
    CHECK_PTR(weft__cache_get(&slab, &cache), a);
    weft__slab_put(&slab, a);
    CHECK_PTR(weft__slab_get(&slab), a);
}

/* Through every way an object can be freed: into a cache, spilled as a magazine, flushed, put singly. */
TEST(slab, a_freed_object_keeps_its_contents_except_the_link) {
    get_all(&cache);
    for (int i = 0; i < MANY; i++) mark(objects[i], (uint64_t)(uintptr_t)objects[i]);
    for (int way = 0; way < 3; way++) {
        put_all(way == 2 ? NULL : &cache);
        if (way == 1) weft__cache_flush(&slab, &cache);
        for (int i = 0; i < MANY; i++) CHECK(is_marked(objects[i], (uint64_t)(uintptr_t)objects[i]));
        get_all(way == 1 ? NULL : &cache);
        for (int i = 0; i < MANY; i++) CHECK(is_marked(objects[i], (uint64_t)(uintptr_t)objects[i]));
        check_distinct();
    }
}

TEST(slab, a_cache_keeps_two_magazines_and_leaves_the_rest_to_others) {
    get_all(&cache);
    int before = chunks();
    put_all(&cache);
    CHECK_LE(cache.count, WEFT_MAGAZINE);
    for (int i = 0; i < MANY - KEPT; i++) CHECK(weft__cache_get(&slab, &other) != NULL);
    CHECK_EQ(chunks(), before);
}

/* One slot allocates and another frees, for ever: the magazines go round. */
TEST(slab, caches_exchange_magazines) {
    get_all(&cache);
    put_all(&cache);
    int before = chunks();
    long n = test_scale(200000, 5000);
    struct object *held[10] = {NULL};
    for (long i = 0; i < n; i++) {
        struct object **h = &held[i % 10];
        if (*h) {
            CHECK(is_marked(*h, (uint64_t)i - 10));
            weft__cache_put(&slab, &other, *h);
        }
        CHECK((*h = weft__cache_get(&slab, &cache)) != NULL);
        mark(*h, (uint64_t)i);
    }
    CHECK_EQ(chunks(), before);
}

TEST(slab, a_flushed_cache_leaves_everything_to_others) {
    get_all(&cache);
    int before = chunks();
    put_all(&cache);
    weft__cache_flush(&slab, &cache);
    CHECK(!cache.first && !cache.full && cache.count == 0);
    weft__cache_flush(&slab, &cache); /* nothing left: does nothing */
    get_all(&other);
    CHECK_EQ(chunks(), before);
    check_distinct();
}

/* A magazine that is not full, made of what was freed singly. */
TEST(slab, single_objects_find_their_way_into_caches) {
    get_all(NULL);
    int before = chunks();
    put_all(NULL);
    get_all(&cache);
    CHECK_EQ(chunks(), before);
    check_distinct();
    for (int i = 0; i < 3; i++) weft__slab_put(&slab, objects[i]);
    for (int i = 0; i < 3; i++) CHECK(weft__cache_get(&slab, &other) != NULL);
    CHECK_EQ(other.count, 0);
    CHECK_EQ(chunks(), before);
}

TEST(slab, without_memory_it_says_so_and_goes_on_with_what_it_has) {
    weft__fault_arm(1, true);
    CHECK_PTR(weft__cache_get(&slab, &cache), NULL);
    CHECK_PTR(weft__slab_get(&slab), NULL);
    CHECK_EQ(weft__fault_calls(), 2);
    weft__fault_arm(0, false);
    void *a = weft__cache_get(&slab, &cache);
    CHECK(a != NULL);
    weft__fault_arm(1, true);
    weft__cache_put(&slab, &cache, a);
    int n = 0;
    while (weft__cache_get(&slab, &cache)) n++;
    CHECK_GE(n, WEFT_MAGAZINE); /* all that one allocation gave */
    CHECK_PTR(weft__slab_get(&slab), NULL);
    weft__slab_put(&slab, a);
    CHECK_PTR(weft__slab_get(&slab), a);
    weft__fault_arm(0, false);
    CHECK(weft__cache_get(&slab, &cache) != NULL);
}

/* ---- several threads ---- */

enum { THREADS = 4, HELD = 300 };

static void *own(void *obj) {
    struct object *o = obj;
    CHECK(o != NULL);
    CHECK_EQ(atomic_fetch_add(&o->users, 1), 0);
    return o;
}
static void *disown(void *obj) {
    struct object *o = obj;
    CHECK_EQ(atomic_fetch_sub(&o->users, 1), 1);
    return o;
}

/* Gets and puts at random, by a cache of its own and without; flushes now and then. */
static void *get_and_put(void *arg) {
    uint64_t state = test_seed() * 31 + (uint64_t)(uintptr_t)arg;
    weft__cache mine = {NULL, 0, NULL};
    void *held[HELD];
    int n = 0;
    for (long i = test_scale(200000, 5000); i > 0; i--) {
        uint64_t what = test_below(&state, 1000);
        bool get = n == 0 || (n < HELD && test_below(&state, 2));
        if (what == 0)
            weft__cache_flush(&slab, &mine);
        else if (get)
            held[n++] = own(what < 50 ? weft__slab_get(&slab) : weft__cache_get(&slab, &mine));
        else if (what < 50)
            weft__slab_put(&slab, disown(held[--n]));
        else
            weft__cache_put(&slab, &mine, disown(held[--n]));
    }
    while (n) weft__cache_put(&slab, &mine, disown(held[--n]));
    weft__cache_flush(&slab, &mine);
    return NULL;
}

TEST(slab, no_object_has_two_users) {
    pthread_t t[THREADS];
    (void)test_seed();
    for (int i = 0; i < THREADS; i++) CHECK_EQ(pthread_create(&t[i], NULL, get_and_put, (void *)(uintptr_t)i), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
    /* As much as can be held and cached at once, and what lay in magazines that were not full when they were flushed. */
    CHECK_LE(chunks(), 2 * THREADS * (HELD + KEPT) / (4 * WEFT_MAGAZINE) + 1);
}
