/* SPDX-License-Identifier: MIT */
/* weft.hpp with the nth allocation failing, the runtime's or that of C++: an error or std::bad_alloc, the element is where it was, and every object
 * is destroyed once. */
#include <cstdlib>
#include <vector>

#include "api/hpp.h"

extern "C" void weft__fault_arm(long nth, bool sticky);

namespace {
std::atomic<int> fail_new{0}; /* 1 = the next one of this process; only one task runs meanwhile */
}

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define NEW_IS_TAKEN 1 /* clang links its own into the program */
#endif
#endif

#ifdef NEW_IS_TAKEN
static void needs_new() { test_skip("operator new belongs to the sanitizer"); }
#else
static void needs_new() {}

[[gnu::noinline]] static void *allocate(std::size_t n) {
    if (fail_new.load() > 0 && --fail_new == 0) return nullptr;
    return std::malloc(n ? n : 1);
}
void *operator new(std::size_t n) {
    void *p = allocate(n);
    if (!p) throw std::bad_alloc();
    return p;
}
void *operator new(std::size_t n, const std::nothrow_t &) noexcept { return allocate(n); }
[[gnu::noinline]] static void deallocate(void *p) {
    std::free(p);
} /* out of gcc's sight: it takes new and free for a mistake */
void operator delete(void *p) noexcept { deallocate(p); }
void operator delete(void *p, std::size_t) noexcept { deallocate(p); }
#endif

namespace {

/* Calls f; 1: it threw std::bad_alloc. */
template <class F>
int fails_to(F f) {
    try {
        f();
    } catch (const std::bad_alloc &) {
        return 1;
    }
    return 0;
}

template <class T>
void channel_without_memory() {
    int failed = 0;
    for (int n = 1; n <= 4; n++) {
        weft__fault_arm(n, false);
        failed += fails_to([] { weft::chan<T> c(1000); });
        weft__fault_arm(0, false);
    }
    CHECK_GE(failed, 1);
    fail_new = 1; /* the count of references */
    CHECK_EQ(fails_to([] { weft::chan<T> c(1000); }), 1);
    fail_new = 0;
}

void send_without_memory() {
    weft::chan<boxed> c(4);
    boxed v(7);
    fail_new = 1;
    CHECK_EQ(c.send(std::move(v)), WEFT_ENOMEM);
    CHECK_EQ(v.get(), 7);
    fail_new = 1;
    CHECK_EQ(weft::select(weft::forever, weft::on_send(c, std::move(v))), WEFT_ENOMEM);
    CHECK_EQ(v.get(), 7);
    CHECK_EQ(fail_new.load(), 0);
    CHECK_EQ(c.send(std::move(v)), 0);
    CHECK_EQ(c.recv()->get(), 7);
    weft::chan<relocated> r(4); /* needs none */
    relocated w(8);
    fail_new = 1;
    CHECK_EQ(r.send(std::move(w)), 0);
    CHECK_EQ(r.recv()->get(), 8);
    fail_new = 0;
}

/* Neither a cancelled scope nor a lack of memory keeps what nobody received from being destroyed. */
void drop_without_memory() {
    weft::scope s;
    {
        weft::chan<boxed> c(4);
        weft::chan<relocated> r(4);
        for (int i = 0; i < 4; i++) {
            CHECK_EQ(c.send(boxed(i)), 0);
            CHECK_EQ(r.send(relocated(i)), 0);
        }
        CHECK_EQ(alive.load(), 8);
        s.cancel();
        weft__fault_arm(1, true);
    }
    weft__fault_arm(0, false);
    CHECK_EQ(alive.load(), 0);
    CHECK_EQ(s.join(), 0);
}

/* Accepted is called once, refused never; the closure goes in any case. */
void spawn_without_memory() {
    for (int n = 1; n <= 20; n++) {
        std::atomic<int> called{0};
        int accepted = 0;
        weft::scope s(weft::scope_options().keep_going());
        weft__fault_arm(n, false);
        weft_task_opts opts{};
        opts.name = "named";
        for (int i = 0; i < 200; i++) accepted += s.spawn([&called, b = boxed(1)] { called += b.get(); }) == 0;
        for (int i = 0; i < 5; i++) accepted += s.spawn(opts, [&called, b = boxed(1)] { called += b.get(); }) == 0;
        weft__fault_arm(0, false);
        int rc = s.join();
        CHECK_EQ(rc == 0, accepted == 205);
        CHECK_EQ(called.load(), accepted);
        CHECK_EQ(alive.load(), 0);
    }
}

void spawn_without_a_box() {
    bool called = false;
    weft::scope s;
    boxed b(1);
    CHECK_EQ(fails_to([&] {
                 fail_new = 1;
                 s.spawn([&called, b] { called = b.get(); });
             }),
             1);
    CHECK_EQ(fails_to([&] {
                 fail_new = 1;
                 weft::go([&called, b] { called = b.get(); });
             }),
             1);
    CHECK_EQ(s.join(), 0);
    CHECK(!called);
    CHECK_EQ(alive.load(), 1);
}

void start_without_memory() {
    int failed = 0;
    for (int n = 1; n <= 6; n++) {
        std::vector<weft::task> t(3000); /* more than there are handles at hand */
        weft__fault_arm(n, true);
        for (auto &one : t) failed += one.start([b = boxed(3)] { return b.get(); }) != 0;
        weft__fault_arm(0, false);
        for (auto &one : t) {
            int result = 0, was = bool(one);
            CHECK_EQ(one.join(&result), was ? 0 : WEFT_EINVAL);
            CHECK_EQ(result, was ? 3 : 0);
        }
        CHECK_EQ(alive.load(), 0);
    }
    CHECK_GE(failed, 1);
}

void run_alone(void (*f)()) {
    weft_config cfg{};
    cfg.workers = 1;
    CHECK_EQ(weft::run(f, &cfg), 0);
}

} // namespace

TEST(fault_hpp, a_channel_without_memory_is_a_bad_alloc) {
    needs_new();
    channel_without_memory<int>();
    channel_without_memory<boxed>();
}
TEST(fault_hpp, an_element_without_a_place_on_the_heap_stays_where_it_is) {
    needs_new();
    run_alone(send_without_memory);
}
TEST(fault_hpp, what_nobody_received_is_destroyed_without_memory) { run_alone(drop_without_memory); }
TEST(fault_hpp, a_closure_goes_whether_it_is_accepted_or_refused) { run_alone(spawn_without_memory); }
TEST(fault_hpp, a_closure_without_a_place_on_the_heap_is_a_bad_alloc) {
    needs_new();
    run_alone(spawn_without_a_box);
}
TEST(fault_hpp, a_task_without_memory_leaves_an_empty_handle) { run_alone(start_without_memory); }
