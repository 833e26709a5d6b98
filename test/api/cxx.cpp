/* SPDX-License-Identifier: MIT */
/* The headers from C++17: the template forms of what is a macro in C, and exceptions that stay inside a task. */
#include <atomic>
#include <stdexcept>
#include <string>
#include <weft.h>

#include "test.h"

namespace {

constexpr int worker_counts[] = {1, 2, 4};

int run_on(int workers, weft_fn *fn, void *arg) {
    weft_config cfg{};
    cfg.workers = workers;
    return weft_run(fn, arg, &cfg);
}

struct product {
    int a, b;
    std::atomic<int> *sum;
    std::atomic<int> *done;
};

int multiply(void *arg) {
    auto *p = static_cast<product *>(arg);
    weft_yield();
    *p->sum += p->a * p->b;
    ++*p->done;
    return 0;
}

int copies_arguments(void *) {
    std::atomic<int> sum{0}, done{0};
    weft_scope s;
    weft_scope_begin(&s, nullptr);
    for (int i = 0; i < 100; i++) CHECK_EQ(weft_spawn_with(&s, multiply, product{i, 2, &sum, &done}), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(sum.load(), 9900);
    for (int i = 0; i < 100; i++) CHECK_EQ(weft_go_with(multiply, product{i, -2, &sum, &done}), 0);
    while (done.load() < 200) weft_yield();
    CHECK_EQ(sum.load(), 0);
    return 0;
}

int selects(void *) {
    weft_chan *a = weft_chan_new(sizeof(int), 1), *b = weft_chan_new(sizeof(int), 1);
    int x = 5, y = 0;
    bool open = false;
    CHECK_EQ(weft_select(WEFT_FOREVER, weft_on_send(a, &x), weft_on_recv(b, &y, &open)), 0);
    CHECK_EQ(weft_select(WEFT_FOREVER, weft_on_recv(b, &y, nullptr), weft_on_recv(a, &y, &open)), 1);
    CHECK_EQ(y, 5);
    CHECK(open);
    CHECK_EQ(weft_select(WEFT_POLL, weft_on_recv(b, &y, nullptr)), WEFT_EAGAIN);
    CHECK_EQ(weft_chan_try_recv(a, &y), WEFT_EAGAIN);
    CHECK_EQ(weft_chan_try_send(a, &x), 0);
    CHECK_EQ(weft_chan_close(a), 0);
    int n = 0;
    WEFT_CHAN_EACH(a, &y) n++;
    CHECK_EQ(n, 1);
    weft_chan_unref(a);
    weft_chan_unref(b);
    return 0;
}

/* A scope ends with its block, however that is left. */
int blocks(void *) {
    std::atomic<int> sum{0}, done{0};
    int err = 1;
    for (int way = 0; way < 3; way++) {
        weft_scope_opts opts{};
        opts.limit = 2;
        opts.result = &err;
        done = 0;
        WEFT_SCOPE(s, opts) {
            for (int i = 0; i < 10; i++) CHECK_EQ(weft_spawn_with(&s, multiply, product{i, 1, &sum, &done}), 0);
            if (way == 1) break;
            if (way == 2) continue;
        }
        CHECK_EQ(done.load(), 10);
        CHECK_EQ(err, 0);
    }
    WEFT_SCOPE(s) CHECK_EQ(weft_spawn_with(&s, multiply, product{1, 1, &sum, &done}), 0);
    CHECK_EQ(done.load(), 11);
    {
        weft_scope_block s;
        CHECK_EQ(weft_spawn_with(&s, multiply, product{1, 1, &sum, &done}), 0);
    }
    CHECK_EQ(done.load(), 12);
    CHECK_EQ(sum.load(), 3 * 45 + 2);
    return 0;
}

/* Thrown and caught in one task; cxx_exceptions.cpp has the harder cases. */
int thrown(void *arg) {
    int depth = *static_cast<int *>(arg);
    std::string caught;
    try {
        weft_yield();
        if (depth > 0) {
            int less = depth - 1;
            weft_sleep_for(WEFT_US);
            thrown(&less);
        }
        throw std::runtime_error("at " + std::to_string(depth));
    } catch (const std::exception &e) {
        caught = e.what();
    }
    weft_yield();
    std::string want = "at " + std::to_string(depth);
    CHECK_STR(caught.c_str(), want.c_str());
    return 0;
}

int many_throw(void *) {
    weft_scope s;
    int depth = 5;
    weft_scope_begin(&s, nullptr);
    for (int i = 0; i < 100; i++) CHECK_EQ(weft_spawn(&s, thrown, &depth), 0);
    return weft_scope_end(&s);
}

} // namespace

TEST(cxx, spawn_with_and_go_with_copy_their_argument) {
    for (int w : worker_counts) CHECK_EQ(run_on(w, copies_arguments, nullptr), 0);
}

TEST(cxx, scopes_end_with_their_block) {
    for (int w : worker_counts) CHECK_EQ(run_on(w, blocks, nullptr), 0);
}

TEST(cxx, select_takes_cases) {
    for (int w : worker_counts) CHECK_EQ(run_on(w, selects, nullptr), 0);
}

TEST(cxx, exceptions_are_thrown_and_caught_inside_a_task) {
    for (int w : worker_counts) CHECK_EQ(run_on(w, many_throw, nullptr), 0);
}
