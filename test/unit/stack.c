/* SPDX-License-Identifier: MIT */
#include "test.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "os/os.h"
#include "stack/slab.h"

static weft__stack_cache cache, other;

static void open_pool(void) { CHECK_EQ(weft__stack_pool_open(), 0); }

static void close_pool(void) {
    memset(&cache, 0, sizeof cache);
    memset(&other, 0, sizeof other);
    weft__stack_pool_close();
}

static weft__stack_info info(void) {
    weft__stack_info i;
    weft__stack_info_get(&i);
    return i;
}

static int default_class(void) { return weft__stack_class(0); }

/* The lowest address of the piece that a stack was cut from. */
static char *bottom(weft__stack *s) { return weft__stack_top(s) - weft__stack_stride(s->size_class); }

/* ---- sizes and layout ---- */

TEST(stack, a_class_reserves_at_least_what_was_asked_for) {
    CHECK_EQ(weft__stack_class_size(default_class()), WEFT_STACK_DEFAULT);
    CHECK_EQ(weft__stack_class_size(weft__stack_class(WEFT_STACK_DEFAULT)), WEFT_STACK_DEFAULT);
    CHECK_EQ(weft__stack_class_size(weft__stack_class(WEFT_STACK_DEFAULT + 1)), 2 * WEFT_STACK_DEFAULT);
    CHECK_GE(weft__stack_class_size(weft__stack_class(1)), WEFT_STACK_MIN);
    CHECK_EQ(weft__stack_class(WEFT_STACK_MAX), WEFT_STACK_CLASSES - 1);
    CHECK_EQ(weft__stack_class(WEFT_STACK_MAX + 1), -1);
    CHECK_EQ(weft__stack_class(SIZE_MAX), -1);
}

static void check_layout(weft__stack *s, int cls) {
    char *base = bottom(s), *top = weft__stack_top(s);
    CHECK_EQ(s->size_class, cls);
    CHECK_EQ((uintptr_t)s->high % 64, 0);
    CHECK_PTR(weft__stack_head(s), s->high);
    CHECK((char *)s >= s->high + WEFT_STACK_HEAD && (char *)(s + 1) <= top);
    CHECK_GE(s->high - (top - weft__page_size()), 2400); /* frames in the page that is touched anyway */
    CHECK_GE(s->low - base, weft__page_size());
    CHECK_GE(s->high - s->low, (long)(weft__stack_class_size(cls) - weft__guard_size(cls) - weft__page_size()));
    if (s->guards > 1) CHECK(weft__vm_faults(base) && weft__vm_faults(s->low - 1));
    s->low[0] = s->high[-1] = 1;
    memset(weft__stack_head(s), 0xff, WEFT_STACK_HEAD);
    CHECK_EQ(s->size_class, cls); /* the head does not reach into it */
}

TEST(stack, every_class_gives_guarded_stacks_with_room_at_the_top) {
    open_pool();
    for (int cls = weft__stack_class(1); cls < WEFT_STACK_CLASSES; cls++) {
        weft__stack *a = weft__stack_get(&cache, cls), *b = weft__stack_get(&cache, cls);
        if (!a && test_slow_tools() > 1) break; /* tools leave less address space */
        if (a && test_slow_tools() >= 50 && weft__stack_class_size(cls) > (size_t)2 << 20)
            break; /* valgrind fills in its own records of it */
        CHECK(a && b && bottom(a) != bottom(b));
        check_layout(a, cls);
        check_layout(b, cls);
        weft__stack_put(&cache, a);
        weft__stack_put(&cache, b);
    }
    close_pool();
}

TEST(stack, tops_are_spread_over_cache_sets) {
    open_pool();
    int seen[64] = {0}, sets = 0;
    for (int i = 0; i < 64; i++) seen[(uintptr_t)weft__stack_get(&cache, default_class())->high / 64 % 64]++;
    for (int i = 0; i < 64; i++) sets += seen[i] > 0;
    CHECK_EQ(sets, 16);
    close_pool();
}

/* A CPU keeps the entry for a page in a set that the lowest bits of the page's number choose. */
TEST(stack, top_pages_are_spread_over_the_sets_of_their_entries) {
    enum { SETS = 64 };
    open_pool();
    for (int cls = weft__stack_class(1); cls <= default_class(); cls++) {
        bool seen[SETS] = {false};
        int sets = 0;
        for (int i = 0; i < SETS; i++) seen[(uintptr_t)weft__stack_get(&cache, cls) / weft__page_size() % SETS] = true;
        for (int i = 0; i < SETS; i++) sets += seen[i];
        CHECK_EQ(sets, SETS);
    }
    close_pool();
}

/* Beside a frame there is nobody else's memory, in a piece of the smallest size: what may be received there (D6 in io/desc.h). */
TEST(stack, slabs_begin_and_end_where_the_smallest_stack_could) {
    open_pool();
    for (int cls = weft__stack_class(1); cls <= default_class(); cls++) {
        weft__stack *s = weft__stack_get(&cache, cls);
        CHECK_EQ((uintptr_t)s->slab->base % WEFT_STACK_MIN, 0);
        CHECK_EQ(s->slab->size % WEFT_STACK_MIN, 0);
        CHECK_GE(s->slab->size, s->slab->stacks * weft__stack_stride(cls));
        CHECK(!weft__stack_slab_made(s->slab, s->slab->stacks));
    }
    close_pool();
}

static bool resident(char *p) {
    unsigned char in;
    char *page = (char *)((uintptr_t)p & ~(weft__page_size() - 1));
    CHECK_EQ(mincore(page, 1, &in), 0);
    return in & 1;
}

TEST(stack, a_stack_costs_its_top_page_and_nothing_before_it_is_used) {
    test_needs_guards(); /* a canary touches a second page */
    if (test_emulated()) test_skip("the emulator's mincore(2) refuses pages that are protected, as the guards are there");
    open_pool();
    weft__stack *s = weft__stack_get(&cache, default_class());
    char *base = bottom(s);
    size_t size = weft__stack_stride(default_class()), page = weft__page_size();
    for (size_t at = 0; at < size - page; at += page) CHECK(!resident(base + at));
    CHECK(resident(base + size - page));
    for (int i = 1; i < WEFT_STACK_MAGAZINE; i++) CHECK(!resident(base + (size_t)i * size + size - page)); /* the next ones */
    close_pool();
}

/* What a frame must exceed before the compiler's stack-clash protection touches it on the way. */
TEST(stack, the_guard_is_as_large_as_the_compiler_counts_on) {
#if defined(__aarch64__)
    size_t counts_on = (size_t)64 << 10, stack = WEFT_STACK_DEFAULT;
#else
    size_t counts_on = (size_t)4 << 10, stack = 1;
#endif
    for (int cls = weft__stack_class(stack); cls < WEFT_STACK_CLASSES; cls++) {
        CHECK_GE(weft__guard_size(cls), counts_on);
        CHECK_EQ(weft__guard_size(cls) % weft__page_size(), 0);
        CHECK_LE(weft__guard_size(cls), weft__stack_class_size(cls) / 4);
    }
}

/* ---- caches and pool ---- */

TEST(stack, the_last_one_given_back_is_the_next_handed_out) {
    open_pool();
    int cls = default_class();
    weft__stack *a = weft__stack_get(&cache, cls), *b = weft__stack_get(&cache, cls);
    weft__stack_put(&cache, a);
    weft__stack_put(&cache, b);
    CHECK_PTR(weft__stack_get(&cache, cls), b);
    CHECK_PTR(weft__stack_get(&cache, cls), a);
    CHECK_EQ(info().stacks, 2);
    close_pool();
}

/* The stack put last may be the one we run on, so nobody else may get it. */
TEST(stack, a_full_cache_spills_to_the_pool_but_keeps_the_running_stack) {
    enum { N = 4 * WEFT_STACK_MAGAZINE };
    open_pool();
    int cls = default_class();
    weft__stack *all[N];
    for (int i = 0; i < N; i++) all[i] = weft__stack_get(&cache, cls);
    for (int i = 0; i < N; i++) weft__stack_put(&cache, all[i]);
    CHECK_EQ(cache.count[cls], N - WEFT_STACK_MAGAZINE);
    for (int i = 0; i < WEFT_STACK_MAGAZINE; i++) {
        weft__stack *s = weft__stack_get(&other, cls);
        CHECK(s && s != all[N - 1]);
    }
    CHECK_EQ(info().stacks, N); /* all of them recycled */
    CHECK_PTR(weft__stack_get(&cache, cls), all[N - 1]);
    close_pool();
}

TEST(stack, a_flushed_cache_leaves_used_and_unused_stacks_to_others) {
    open_pool();
    int cls = default_class();
    weft__stack *a = weft__stack_get(&cache, cls), *b = weft__stack_get(&cache, cls);
    char *first = bottom(a) < bottom(b) ? bottom(a) : bottom(b);
    weft__stack_put(&cache, a);
    weft__stack_put(&cache, b);
    weft__stack_cache_flush(&cache);
    CHECK(!cache.free[cls] && !cache.count[cls]);
    for (int i = 0; i < WEFT_STACK_MAGAZINE; i++) {
        weft__stack *s = weft__stack_get(&other, cls);
        CHECK(bottom(s) >= first && bottom(s) < first + WEFT_STACK_MAGAZINE * weft__stack_stride(cls));
        check_layout(s, cls);
        s->low[0] = 0;
    }
    CHECK_EQ(info().stacks, WEFT_STACK_MAGAZINE);
    CHECK_EQ(other.count[cls], 0);
    close_pool();
}

static void count_one(weft__stack *s, void *arg) {
    CHECK(s->low < s->high);
    ++*(int *)arg;
}

TEST(stack, each_visits_those_that_were_handed_out) {
    open_pool();
    int n = 0;
    weft__stack_each(count_one, &n);
    CHECK_EQ(n, 0);
    for (int i = 0; i < 100; i++) weft__stack_put(&cache, weft__stack_get(&cache, default_class()));
    for (int i = 0; i < 70; i++) CHECK(weft__stack_get(&cache, weft__stack_class((size_t)512 << 10)));
    for (int i = 0; i < 3; i++) CHECK(weft__stack_get(&cache, weft__stack_class((size_t)64 << 20)));
    weft__stack_each(count_one, &n);
    CHECK_EQ(n, 74);
    CHECK_EQ(info().stacks, 74);
    close_pool();
}

static int dropped;
static void drop(void *fiber) {
    CHECK_PTR(fiber, &dropped);
    dropped++;
}

TEST(stack, closing_drops_the_fibers_of_stacks) {
    open_pool();
    for (int i = 0; i < 10; i++) weft__stack_get(&cache, default_class())->fiber = i % 2 ? &dropped : NULL;
    weft__stack_fiber_drop = drop;
    close_pool();
    weft__stack_fiber_drop = NULL;
    CHECK_EQ(dropped, 5);
}

/* ---- amounts ---- */

static long status_kb(const char *key) {
    char line[256];
    long v = -1;
    FILE *f = fopen("/proc/self/status", "re");
    CHECK(f);
    while (v < 0 && fgets(line, sizeof line, f))
        if (strncmp(line, key, strlen(key)) == 0) v = strtol(line + strlen(key), NULL, 10);
    fclose(f);
    return v;
}

TEST_T(stack, hundreds_of_thousands_cost_a_page_each_and_few_mappings, 120) {
    open_pool();
    if (info().guards != 3) test_skip("no guard regions on this kernel");
    long n = test_slow_tools() >= 50 ? 500 : test_scale(200000, 1000); /* valgrind has a record of every reserved byte */
    if (n > 500000) n = 500000;                                        /* two gigabytes */
    int maps = test_maps();
    long before = test_rss_kb() + status_kb("VmPTE:");
    for (long i = 0; i < n; i++) {
        weft__stack *s = weft__stack_get(&cache, default_class());
        CHECK(s);
        memset(s->high - 2000, 1, 2000 + WEFT_STACK_HEAD);
    }
    long each = (test_rss_kb() + status_kb("VmPTE:") - before) * 1024 / n;
    if (test_slow_tools() == 1) CHECK_LE(each, 4650);
    CHECK_LE(test_maps() - maps, 64);
    CHECK_LE(info().mappings, 64);
    CHECK_EQ(info().stacks, n);
    close_pool();
}

TEST(stack, opening_and_closing_leaves_nothing_behind) {
    int maps = 0, fds = 0;
    int rounds = test_slow_tools() >= 50 ? 60 : 200; /* valgrind has a record of every reserved byte */
    for (int round = 0; round < rounds; round++) {
        open_pool();
        CHECK_EQ(weft__stack_thread_open(), 0);
        for (int i = 0; i < 3; i++) {
            weft__stack *a = weft__stack_get(&cache, default_class()),
                        *b = weft__stack_get(&cache, weft__stack_class(WEFT_STACK_MIN << round % 8));
            CHECK(a && b);
            weft__stack_put(&cache, a);
        }
        weft__stack_cache_flush(&cache);
        weft__stack_thread_close();
        close_pool();
        if (round == 10) { /* what the C library and tools keep for themselves is there by now */
            maps = test_maps();
            fds = test_fds();
        }
    }
    CHECK_EQ(test_fds(), fds);
    CHECK_LE(test_maps(), maps + (test_slow_tools() > 1 ? 20 : 2)); /* a heap may have grown; a leak would be one a round */
}

/* ---- failure ---- */

static int run_out_of_addresses(void *arg) {
    (void)arg;
    open_pool();
    struct rlimit limit = {(rlim_t)1 << 30, (rlim_t)1 << 30};
    CHECK_EQ(setrlimit(RLIMIT_AS, &limit), 0);
    weft__stack *s, *last = NULL;
    int n = 0;
    for (; (s = weft__stack_get(&cache, default_class())); n++) last = s;
    CHECK_GE(n, 3000); /* of 4,096 that would fill the limit: smaller and smaller slabs were tried */
    CHECK_EQ(cache.count[default_class()], 0);
    CHECK(!weft__stack_get(&cache, default_class()));
    weft__stack_put(&cache, last);
    CHECK_PTR(weft__stack_get(&cache, default_class()), last);
    CHECK(!weft__stack_get(&cache, weft__stack_class(WEFT_STACK_MAX)));
    CHECK_EQ(info().stacks, n);
    close_pool();
    open_pool();
    CHECK(weft__stack_get(&cache, default_class())); /* everything came back */
    close_pool();
    return 0;
}

TEST(stack, a_limit_on_addresses_is_used_up_and_then_reported) {
    test_skip_under("tools need the addresses for themselves", "the emulator does not apply limits on address space");
    CHECK_CHILD(run_out_of_addresses);
}

static int under_mlockall(void *arg) {
    (void)arg;
    if (mlockall(MCL_FUTURE) != 0) test_skip("memory cannot be locked");
    open_pool();
    long before = test_rss_kb();
    weft__stack *s = weft__stack_get(&cache, default_class());
    CHECK(s);
    check_layout(s, default_class());
    CHECK_LE(test_rss_kb() - before, 10000); /* not the whole slab */
    close_pool();
    return 0;
}

TEST(stack, locking_all_memory_does_not_fill_the_reserve) {
    test_skip_under("tools lock their own memory then", NULL);
    CHECK_CHILD(under_mlockall);
}

/* One life of the pool with failures injected; what does not work must say so and leave nothing. */
static bool life_with_faults(void) {
    bool ok = false;
    if (weft__stack_pool_open() != 0) return false;
    if (weft__stack_thread_open() == 0) {
        weft__stack *a = weft__stack_get(&cache, default_class()),
                    *b = weft__stack_get(&cache, weft__stack_class((size_t)128 << 10));
        if (a) a->low[0] = a->high[-1] = 1;
        ok = a && b;
        if (a) weft__stack_put(&cache, a);
        weft__stack_thread_close();
    }
    close_pool();
    return ok;
}

TEST(stack, every_failing_call_is_survived_without_a_leak) {
    CHECK(life_with_faults());
    int fds = test_fds(), maps = test_maps();
    for (int sticky = 0; sticky < 2; sticky++) {
        long n = 0, calls;
        do {
            weft__fault_arm(++n, sticky);
            bool ok = life_with_faults();
            calls = weft__fault_calls();
            weft__fault_arm(0, false);
            CHECK(ok || n <= calls);
            CHECK(!(ok && sticky && n == 1));
            CHECK_EQ(test_fds(), fds);
        } while (n <= calls);
        CHECK_GE(n, 5);
    }
    CHECK_LE(test_maps(), maps + (test_slow_tools() > 1 ? 20 : 0));
}

/* ---- guards ---- */

TEST(guards, regions_are_used_where_they_work) {
    size_t page = weft__page_size();
    char *p = weft__vm_reserve(page, page);
    bool work = weft__vm_guard(p, page, page, 1) == 0 && weft__vm_faults(p);
    weft__vm_release(p, page);
    unsetenv("WEFT_STACK_GUARDS"); /* the matrix of tests forces others */
    open_pool();
    CHECK_EQ(info().guards, work ? 3 : 2);
    close_pool();
}

TEST(guards, installed_one_by_one_they_are_the_same) {
    setenv("WEFT_NO_PROCESS_MADVISE", "1", 1);
    open_pool();
    if (info().guards != 3) test_skip("no guard regions here");
    CHECK(weft__vm_one_by_one);
    for (int i = 0; i < 2 * WEFT_STACK_MAGAZINE; i++) check_layout(weft__stack_get(&cache, default_class()), default_class());
    CHECK_EQ(info().guards, 3);
    close_pool();
}

static int protected_pages(void *arg) {
    (void)arg;
    setenv("WEFT_STACK_GUARDS", "protect", 1);
    open_pool();
    CHECK_EQ(info().guards, 2);
    for (int i = 0; i < 100; i++) check_layout(weft__stack_get(&cache, default_class()), default_class());
    CHECK_GE(info().mappings, 200);
    CHECK_EQ(info().guards, 2);
    close_pool();
    return 0;
}

TEST(guards, protected_pages_do_where_regions_do_not_work) { CHECK_CHILD(protected_pages); }

static int beyond_the_budget(void *arg) {
    (void)arg;
    char text[32];
    CHECK(weft__read_file("/proc/sys/vm/max_map_count", text, sizeof text) > 0);
    long max = atol(text);
    if (max > 100000) test_skip("too many mappings to use them up");
    setenv("WEFT_STACK_GUARDS", "protect", 1);
    open_pool();
    weft__stack *s = NULL;
    for (long i = 0; i < max / 4 + 1000; i++) CHECK(s = weft__stack_get(&cache, weft__stack_class(1)));
    CHECK_EQ(info().guards, 1);
    CHECK_EQ(s->guards, 1);
    CHECK_LE(info().mappings, max / 2 + 10);
    CHECK_LE(test_maps(), max / 2 + 500);
    close_pool();
    return 0;
}

TEST(guards, half_of_the_mappings_are_left_to_the_program) {
    test_skip_under("tools have mappings of their own", NULL);
    CHECK_CHILD(beyond_the_budget);
}

static void who(weft__stack *s, weft__who *out) {
    (void)s;
    *out = (weft__who){17, "digger\033", (void *)(uintptr_t)&who, (void *)(uintptr_t)&test_scale};
}

static int damaged_canary(void *damage) {
    setenv("WEFT_STACK_GUARDS", "canary", 1);
    weft__stack_who = who;
    open_pool();
    weft__stack *s = weft__stack_get(&cache, default_class());
    memset(s->low, 0xaa, (size_t)(s->high - s->low)); /* all that it may use */
    if (damage) s->low[-(int)(intptr_t)damage] ^= 1;
    weft__stack_put(&cache, s);
    CHECK_PTR(weft__stack_get(&cache, default_class()), s);
    CHECK_EQ(info().guards, 1);
    close_pool();
    return 0;
}

TEST(guards, a_damaged_canary_names_the_task) {
    CHECK_CHILD_ARG(damaged_canary, NULL);
    CHECK_DIES_ARG(damaged_canary, (void *)1, "stack overflow in task 17 \"digger");
    CHECK_DIES_ARG(damaged_canary, (void *)WEFT_STACK_CANARY, "256 KiB");
}

/* ---- several slots at once ---- */

enum { THREADS = 4, KEEP = 300 };
static long rounds;

/* Each stack is marked while it is ours; nobody else's mark may ever be found on it. */
static void *churn(void *arg) {
    weft__stack_cache c = {0};
    weft__stack *held[KEEP];
    int n = 0, cls = 1;
    uint64_t seed = test_random() + (uintptr_t)arg;
    for (long i = 0; i < rounds; i++) {
        int burst = (int)test_below(&seed, KEEP);
        while (n < burst) {
            weft__stack *s = weft__stack_get(&c, cls);
            CHECK(s && *(void **)weft__stack_head(s) == NULL);
            *(void **)weft__stack_head(s) = arg;
            held[n++] = s;
        }
        while (n > burst) {
            weft__stack *s = held[--n];
            CHECK_PTR(*(void **)weft__stack_head(s), arg);
            *(void **)weft__stack_head(s) = NULL;
            weft__stack_put(&c, s);
        }
        if (i % 64 == 63) weft__stack_cache_flush(&c);
    }
    while (n) {
        *(void **)weft__stack_head(held[--n]) = NULL;
        weft__stack_put(&c, held[n]);
    }
    weft__stack_cache_flush(&c);
    return NULL;
}

TEST(stack, slots_never_share_a_stack) {
    open_pool();
    rounds = test_scale(4000, 200);
    pthread_t t[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) CHECK_EQ(weft__thread_start(&t[i], churn, (void *)(i + 1), NULL), 0);
    for (int i = 0; i < 20; i++) {
        int n = 0;
        weft__stack_each(count_one, &n);
        weft__nap(WEFT_MS);
    }
    for (int i = 0; i < THREADS; i++) CHECK_EQ(pthread_join(t[i], NULL), 0);
    CHECK_LE(info().stacks, THREADS * (KEEP + 8 * WEFT_STACK_MAGAZINE));
    close_pool();
}
