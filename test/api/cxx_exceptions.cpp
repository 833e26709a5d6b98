/* SPDX-License-Identifier: MIT */
/* C++ exceptions in tasks: handlers and destructors that wait and go on on another thread; exceptions that nobody catches; panics
 * through C++ frames. */
#include <atomic>
#include <exception>
#include <stdexcept>
#include <string>
#include <weft.h>

#include "test.h"

namespace {

std::atomic<int> reported{0};
weft_panic_info last_report;

void count_report(const weft_panic_info *info, void *) {
    last_report = *info;
    ++reported;
}

int run_on(int workers, weft_fn *fn, void *arg = nullptr) {
    weft_config cfg{};
    cfg.workers = workers;
    cfg.on_panic = count_report;
    reported = 0;
    return weft_run(fn, arg, &cfg);
}

void run_each(weft_fn *fn) {
    for (int w : {1, 2, 4}) CHECK_EQ(run_on(w, fn), 0);
}

int in_child(weft_fn *fn, void *arg = nullptr) {
    weft_scope s;
    weft_scope_begin(&s, nullptr);
    CHECK_EQ(weft_spawn(&s, fn, arg), 0);
    return weft_scope_end(&s);
}

int in_task(weft_fn *fn, void *arg = nullptr) {
    weft_task *t;
    int result;
    CHECK_EQ(weft_task_start(&t, fn, arg, nullptr), 0);
    CHECK_EQ(weft_task_join(t, &result, WEFT_FOREVER), 0);
    return result;
}

/* ---- waiting in the middle of it ---- */

std::atomic<long> thrown{0};
std::atomic<int> moved{0};
weft_chan *to_and_fro;

/* Gives the task the chance to go on on another thread. */
void wander(uint64_t *random) {
    switch (test_below(random, 4)) {
    case 0:
        weft_sleep_for(int64_t(test_below(random, 20)) * WEFT_US);
        break;
    case 1: {
        int v = 1;
        if (weft_chan_try_send(to_and_fro, &v) == WEFT_EAGAIN) weft_chan_try_recv(to_and_fro, &v);
        weft_yield();
        break;
    }
    default:
        weft_yield();
    }
}

struct wanders_at_end {
    uint64_t *random;
    int uncaught = std::uncaught_exceptions();
    bool thrown;
    wanders_at_end(uint64_t *r, bool t) : random(r), thrown(t) {}
    ~wanders_at_end() {
        CHECK_EQ(std::uncaught_exceptions(), uncaught + thrown);
        wander(random);
        CHECK_EQ(std::uncaught_exceptions(), uncaught + thrown);
        try { /* one that is thrown and caught while another is on its way */
            ++::thrown;
            throw 5;
        } catch (int v) {
            wander(random);
            CHECK_EQ(v, 5);
        }
        CHECK_EQ(std::uncaught_exceptions(), uncaught + thrown);
    }
};

void check_current(int id, int depth) {
    try {
        throw;
    } catch (const std::runtime_error &e) {
        std::string want = std::to_string(id) + "/" + std::to_string(depth);
        CHECK_STR(e.what(), want.c_str());
    }
}

void nested(int id, int depth, uint64_t *random) {
    int *before = weft_errno_location(); /* which thread it is */
    try {
        wanders_at_end guard(random, true);
        ++thrown;
        throw std::runtime_error(std::to_string(id) + "/" + std::to_string(depth));
    } catch (const std::exception &e) {
        std::string what = e.what();
        CHECK_EQ(std::uncaught_exceptions(), 0);
        wander(random);
        CHECK_STR(e.what(), what.c_str());
        if (depth > 0) nested(id, depth - 1, random);
        wander(random);
        check_current(id, depth); /* it is ours, not that of another task on this thread */
        CHECK_STR(e.what(), what.c_str());
    }
    if (before != weft_errno_location()) ++moved;
}

int throws(void *arg) {
    int id = int(intptr_t(arg));
    uint64_t random = test_seed() + uint64_t(id);
    CHECK_EQ(std::uncaught_exceptions(), 0);
    CHECK(!std::current_exception());
    nested(id, 4, &random);
    CHECK_EQ(std::uncaught_exceptions(), 0);
    CHECK(!std::current_exception());
    return 0;
}

/* 10 exceptions a task. */
int many_throw(void *) {
    long tasks = test_scale(10000, 200);
    to_and_fro = weft_chan_new(sizeof(int), 8);
    for (long done = 0; done < tasks; done += 100) {
        weft_scope s;
        weft_scope_begin(&s, nullptr);
        for (long i = 0; i < 100; i++) CHECK_EQ(weft_spawn(&s, throws, reinterpret_cast<void *>(done + i)), 0);
        CHECK_EQ(weft_scope_end(&s), 0);
    }
    weft_chan_unref(to_and_fro);
    CHECK_EQ(thrown.load(), tasks * 10);
    return 0;
}

/* ---- uncaught ---- */

struct counts {
    std::atomic<int> *n;
    ~counts() { ++*n; }
};

struct base {
    virtual ~base() = default;
    int filler = 3;
};
struct many_bases : base, std::logic_error {
    many_bases() : std::logic_error("several") {}
};
struct virtual_base : base, virtual std::runtime_error {
    virtual_base() : std::runtime_error("virtual") {}
};
struct no_exception {};

enum kind { RUNTIME, INTEGER, MANY, VIRTUAL, OTHER, AGAIN };
constexpr const char *messages[] = {"std::runtime_error: boom", "int",          "many_bases: several",
                                    "virtual_base: virtual",    "no_exception", "std::runtime_error: boom"};

void throw_kind(int k) {
    switch (k) {
    case RUNTIME:
        throw std::runtime_error("boom");
    case INTEGER:
        throw 42;
    case MANY:
        throw many_bases();
    case VIRTUAL:
        throw virtual_base();
    case OTHER:
        throw no_exception();
    default:
        std::rethrow_exception(std::make_exception_ptr(std::runtime_error("boom")));
    }
}

std::atomic<int> destroyed{0};

int lets_out(void *arg) {
    counts a{&destroyed};
    weft_yield();
    std::string on_heap(100, 'x');
    throw_kind(int(intptr_t(arg)));
    return 0;
}

bool ends_with(const std::string &s, const std::string &end) {
    return s.size() >= end.size() && s.compare(s.size() - end.size(), end.size(), end) == 0;
}

int uncaught(void *) {
    for (int k = RUNTIME; k <= AGAIN; k++) {
        void *arg = reinterpret_cast<void *>(intptr_t(k));
        weft_panic_info info;
        destroyed = 0;
        reported = 0;
        CHECK_EQ(in_child(lets_out, arg), WEFT_EPANIC);
        CHECK_EQ(reported.load(), 1);
        CHECK_MSG(ends_with(last_report.message, messages[k]), "%s", last_report.message);
        CHECK(last_report.frames > 0);
        CHECK_EQ(in_task(lets_out, arg), WEFT_EPANIC);
        CHECK_EQ(weft_try(lets_out, arg, &info), WEFT_EPANIC);
        CHECK_MSG(ends_with(info.message, messages[k]), "%s", info.message);
        CHECK_EQ(info.task, weft_self());
        CHECK_EQ(destroyed.load(), 3);
        CHECK_EQ(std::uncaught_exceptions(), 0);
        CHECK(!std::current_exception());
    }
    return 0;
}

int uncaught_in_handler(void *) {
    try {
        throw 1;
    } catch (int) {
        for (int i = 0; i < 5; i++) CHECK_EQ(in_child(lets_out), WEFT_EPANIC);
        CHECK_EQ(weft_try(lets_out, nullptr, nullptr), WEFT_EPANIC);
        try {
            throw;
        } catch (int v) {
            CHECK_EQ(v, 1);
        }
    }
    CHECK(!std::current_exception());
    return 0;
}

/* What a child sees does not depend on where its opener stands when it runs inside. */
int sees_nothing(void *) {
    CHECK_EQ(std::uncaught_exceptions(), 0);
    CHECK(!std::current_exception());
    try {
        weft_panic("caught by a child");
    } catch (...) { /* the library allows no other exception besides one that is not its own */
        weft_yield();
    }
    return 0;
}

struct spawns_at_end {
    ~spawns_at_end() {
        CHECK_EQ(std::uncaught_exceptions(), 1);
        for (int i = 0; i < 3; i++) CHECK_EQ(in_child(sees_nothing), 0);
        CHECK_EQ(std::uncaught_exceptions(), 1);
    }
};

int children_in_handler(void *) {
    try {
        spawns_at_end s;
        throw 3;
    } catch (int v) {
        for (int i = 0; i < 3; i++) CHECK_EQ(in_child(sees_nothing), 0);
        CHECK(std::current_exception() != nullptr);
        CHECK_EQ(v, 3);
    }
    CHECK(!std::current_exception());
    return 0;
}

int default_report(void *) { return weft_run(lets_out, nullptr, nullptr) == WEFT_EPANIC ? 0 : 1; }

/* ---- scopes ---- */

std::atomic<bool> alive{false};
std::atomic<int> looked{0};

struct used_by_children {
    used_by_children() { alive = true; }
    ~used_by_children() { alive = false; }
};

int looks(void *) {
    int rc = weft_sleep(WEFT_FOREVER);
    for (int i = 0; i < 10; i++) {
        weft_yield();
        CHECK(alive.load()); /* its opener's frame still stands */
    }
    ++looked;
    return rc;
}

int leaves_open(void *arg) {
    used_by_children data;
    weft_scope s;
    weft_scope_begin(&s, nullptr);
    for (int i = 0; i < 4; i++) CHECK_EQ(weft_spawn(&s, looks, nullptr), 0);
    weft_yield();
    if (arg) throw std::runtime_error("out");
    weft_panic("out");
}

int open_scopes(void *) {
    for (void *arg : {static_cast<void *>(nullptr), static_cast<void *>(&alive)}) {
        looked = 0;
        CHECK_EQ(weft_try(leaves_open, arg, nullptr), WEFT_EPANIC);
        CHECK_EQ(in_child(leaves_open, arg), WEFT_EPANIC);
        CHECK_EQ(in_task(leaves_open, arg), WEFT_EPANIC);
        CHECK_EQ(looked.load(), 12);
        CHECK_EQ(weft_cancelled(), 0);
    }
    return 0;
}

struct scope_guard { /* what a C++ program would write */
    weft_scope s;
    int exceptions = std::uncaught_exceptions();
    scope_guard() { weft_scope_begin(&s, nullptr); }
    ~scope_guard() { weft_scope_end(&s); }
};

int guarded(void *) {
    scope_guard g;
    CHECK_EQ(weft_spawn(&g.s, looks, nullptr), 0);
    weft_panic("guarded");
}

int guards(void *) {
    alive = true;
    CHECK_EQ(weft_try(guarded, nullptr, nullptr), WEFT_EPANIC);
    CHECK_EQ(in_child(guarded), WEFT_EPANIC);
    return 0;
}

struct shield_guard {
    shield_guard() { CHECK_EQ(weft_shield_begin(WEFT_FOREVER), 0); }
    ~shield_guard() { weft_shield_end(); }
};

struct shields_at_end { /* cleans up in a cancelled scope while a panic unwinds */
    ~shields_at_end() {
        CHECK_EQ(weft_sleep_for(20 * WEFT_US), shielded_outside ? 0 : WEFT_ECANCELED);
        shield_guard g;
        CHECK_EQ(weft_sleep_for(20 * WEFT_US), 0);
    }
    bool shielded_outside;
};

int block_result;

int shielded(void *outside) {
    shields_at_end last{outside != nullptr};
    shield_guard around;
    weft_scope_opts opts{};
    opts.limit = 2;
    opts.result = &block_result;
    WEFT_SCOPE(s, opts) {
        shield_guard inside;
        CHECK_EQ(weft_spawn(&s, looks, nullptr), 0);
        weft_panic("shielded");
    }
    return 0;
}

/* The panic has ended the shields and the scope; their destructors leave the shield around the boundary alone. */
int shield_guards(void *) {
    alive = true;
    for (bool outside : {false, true}) {
        block_result = 0;
        weft_scope_block s;
        weft_scope_cancel(&s);
        if (outside) CHECK_EQ(weft_shield_begin(WEFT_FOREVER), 0);
        CHECK_EQ(weft_try(shielded, outside ? &alive : nullptr, nullptr), WEFT_EPANIC);
        CHECK_EQ(block_result, WEFT_EPANIC);
        CHECK_EQ(weft_sleep_for(20 * WEFT_US), outside ? 0 : WEFT_ECANCELED);
        if (outside) weft_shield_end();
        CHECK_EQ(weft_sleep_for(20 * WEFT_US), WEFT_ECANCELED);
    }
    return 0;
}

/* ---- catch (...) ---- */

int panics(void *) {
    counts a{&destroyed};
    weft_yield();
    weft_panic("a panic");
}

int swallows(void *) {
    for (int i = 0; i < 3; i++) {
        try {
            panics(nullptr);
        } catch (...) {
            weft_yield();
        }
        CHECK_EQ(std::uncaught_exceptions(), 0);
    }
    return 7;
}

int throws_on(void *) {
    try {
        panics(nullptr);
    } catch (...) {
        weft_yield();
        throw;
    }
    return 0;
}

int catch_all(void *) {
    weft_panic_info info;
    destroyed = 0;
    CHECK_EQ(weft_try(swallows, nullptr, &info), 7);
    CHECK(info.site == nullptr);
    CHECK_EQ(in_task(swallows), 7);
    CHECK_EQ(destroyed.load(), 6);
    CHECK_EQ(reported.load(), 0);
    CHECK_EQ(weft_try(throws_on, nullptr, &info), WEFT_EPANIC);
    CHECK_STR(info.message, "a panic");
    CHECK_EQ(std::uncaught_exceptions(), 0);
    CHECK_EQ(in_child(throws_on), WEFT_EPANIC);
    CHECK_EQ(reported.load(), 1);
    return 0;
}

__attribute__((noinline)) void open_and_panic() {
    weft_scope s;
    weft_scope_begin(&s, nullptr);
    weft_panic("left open");
}

int swallows_open_scope(void *) {
    try {
        open_and_panic();
    } catch (...) {
    }
    return 0;
}

/* ---- a second one ---- */

struct panics_at_end {
    ~panics_at_end() { weft_panic("second"); }
};

int panics_twice(void *) {
    panics_at_end p;
    weft_panic("first");
}

struct contains_at_end {
    ~contains_at_end() {
        weft_panic_info info;
        CHECK_EQ(weft_try(panics, nullptr, &info), WEFT_EPANIC);
        CHECK_STR(info.message, "a panic");
        CHECK_EQ(weft_try(lets_out, nullptr, &info), WEFT_EPANIC);
    }
};

int panics_around(void *arg) {
    contains_at_end c;
    if (arg) throw 1;
    weft_panic("first");
}

int contained_second(void *) {
    weft_panic_info info;
    CHECK_EQ(weft_try(panics_around, nullptr, &info), WEFT_EPANIC);
    CHECK_STR(info.message, "first");
    CHECK_EQ(in_child(panics_around), WEFT_EPANIC);
    CHECK_EQ(in_child(panics_around, &info), WEFT_EPANIC);
    CHECK_EQ(in_task(panics_around, &info), WEFT_EPANIC);
    return 0;
}

int run_alone(void *arg) { return weft_run(reinterpret_cast<weft_fn *>(arg), nullptr, nullptr); }

} // namespace

TEST_T(exceptions, handlers_and_destructors_wait_and_move_on_one_worker, 120) {
    thrown = 0;
    CHECK_EQ(run_on(1, many_throw), 0);
}
TEST_T(exceptions, handlers_and_destructors_wait_and_move_on_two_workers, 120) {
    thrown = 0;
    CHECK_EQ(run_on(2, many_throw), 0);
    printf("%d moved\n", moved.load());
}
TEST_T(exceptions, handlers_and_destructors_wait_and_move_on_four_workers, 120) {
    thrown = 0;
    CHECK_EQ(run_on(4, many_throw), 0);
}

TEST(exceptions, one_that_nobody_catches_is_a_panic) { run_each(uncaught); }

TEST(exceptions, one_that_a_child_lets_out_leaves_the_openers_handler_alone) { run_each(uncaught_in_handler); }

TEST(exceptions, of_the_opener_are_not_those_of_children_that_run_inside) { run_each(children_in_handler); }

TEST(exceptions, one_that_nobody_catches_is_reported_with_what) {
    struct test_child c;
    test_child(default_report, nullptr, &c);
    CHECK_EQ(c.exit_code, 0);
    CHECK_MSG(strstr(c.out, "panic in task"), "%s", c.out);
    CHECK_MSG(strstr(c.out, "std::runtime_error: boom"), "%s", c.out);
}

TEST(exceptions, scopes_end_before_destructors_run) { run_each(open_scopes); }

TEST(exceptions, a_scope_may_be_ended_by_a_destructor) { run_each(guards); }

TEST(exceptions, shields_and_blocks_may_be_ended_by_destructors) {
    run_each(shield_guards);
    CHECK_EQ(weft_start(nullptr), 0);
    CHECK_EQ(shield_guards(nullptr), 0); /* a plain thread's */
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
}

TEST(exceptions, catch_all_contains_a_panic) { run_each(catch_all); }

TEST(exceptions, catch_all_that_leaves_a_scope_open_aborts) {
    CHECK_DIES_ARG(run_alone, reinterpret_cast<void *>(swallows_open_scope), "left scope");
}

TEST(exceptions, a_second_panic_in_a_destructor_aborts) {
    CHECK_DIES_ARG(run_alone, reinterpret_cast<void *>(panics_twice), "terminate called");
    CHECK_DIES_ARG(run_alone, reinterpret_cast<void *>(panics_twice), "first");
}

TEST(exceptions, a_second_panic_in_a_try_in_a_destructor_is_contained) { run_each(contained_second); }

TEST(exceptions, a_plain_thread_tries_too) {
    weft_panic_info info;
    CHECK_EQ(weft_try(swallows, nullptr, &info), 7);
    CHECK_EQ(weft_try(throws_on, nullptr, &info), WEFT_EPANIC);
    CHECK_EQ(weft_try(lets_out, nullptr, &info), WEFT_EPANIC);
    CHECK_EQ(info.task, 0);
    CHECK_EQ(std::uncaught_exceptions(), 0);
}
