/* SPDX-License-Identifier: MIT */
/* C++ exceptions, and panics that C++ catches, on their way through functions of the library: the scopes opened there are closed. */
#include <atomic>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <weft.h>

#include "test.h"

namespace {

enum { PARTS = 1000 };

std::atomic<int> alive{0}, begun{0}, reported{0};

void count_report(const weft_panic_info *, void *) { ++reported; }

struct lives {
    lives() { ++alive; }
    ~lives() { --alive; }
};

/* Number `bad` throws, or panics; others wait, so that some are under way then. */
struct trouble {
    size_t bad;
    bool panics;
};

void part(size_t lo, size_t hi, void *arg) {
    auto *t = static_cast<trouble *>(arg);
    lives here;
    ++begun;
    if (t->bad < lo || t->bad >= hi) {
        weft_yield();
        return;
    }
    for (int i = 0; i < 20; i++) weft_yield();
    if (t->panics) weft_panic("number %zu", t->bad);
    throw 17;
}

/* What is on the stack below is not what it was. */
__attribute__((noinline)) void scribble() {
    volatile char b[4096];
    memset(const_cast<char *>(b), 0x5a, sizeof b);
}

/* 1: it was caught here; else what the loop gave. */
__attribute__((noinline)) int loop_over(trouble *t) {
    try {
        return weft_parallel_for(PARTS, 1, part, t);
    } catch (int v) {
        CHECK_EQ(v, 17);
    } catch (...) {
        CHECK(t->panics);
    }
    CHECK_EQ(std::uncaught_exceptions(), 0);
    return 1;
}

/* The caller is as it was: in its own scope, not cancelled, and can wait. */
void goes_on() {
    scribble();
    CHECK_EQ(alive.load(), 0);
    CHECK_EQ(weft_cancelled(), 0);
    CHECK_EQ(weft_sleep_for(WEFT_US), 0);
    weft_scope s;
    weft_scope_begin(&s, nullptr);
    CHECK_EQ(weft_sleep_for(WEFT_US), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
}

int loops(void *) {
    for (bool panics : {false, true}) {
        if (panics && !weft_self()) continue; /* a plain thread's, outside weft_try, aborts */
        trouble first{0, panics}, last{PARTS - 1, panics};
        begun = 0;
        CHECK_EQ(loop_over(&first), 1); /* 0 is in the caller's own part */
        CHECK_LE(begun.load(), PARTS);
        goes_on();
        CHECK_EQ(loop_over(&last), WEFT_EPANIC); /* a task's */
        goes_on();
    }
    return 0;
}

/* A panic that the caller's weft_try contains ends the scope before it unwinds; the cleanup does so again. */
int loop_in_try(void *arg) { return weft_parallel_for(PARTS, 1, part, arg); }

int contained(void *) {
    for (bool panics : {false, true}) {
        trouble t{0, panics};
        CHECK_EQ(weft_try(loop_in_try, &t, nullptr), WEFT_EPANIC);
        goes_on();
    }
    return 0;
}

/* ---- weft_call ---- */

int boom(void *arg) {
    lives here;
    if (arg) weft_panic("in a call");
    throw 17;
}

__attribute__((noinline)) int call(bool panics) {
    try {
        return weft_call(boom, panics ? &alive : nullptr, weft_after(3600 * WEFT_SECOND));
    } catch (int v) {
        CHECK_EQ(v, 17);
    } catch (...) {
        CHECK(panics);
    }
    return 1;
}

int call_in_try(void *arg) { return weft_call(boom, arg, weft_after(3600 * WEFT_SECOND)); }

int calls(void *) {
    for (bool panics : {false, true}) {
        if (!panics || weft_self()) CHECK_EQ(call(panics), 1); /* as above */
        CHECK_EQ(weft_scope_deadline().ns, 0);                 /* the call's is gone */
        goes_on();
        CHECK_EQ(weft_try(call_in_try, panics ? &alive : nullptr, nullptr), WEFT_EPANIC);
        goes_on();
    }
    return 0;
}

int in_a_child(void *fn) { return reinterpret_cast<weft_fn *>(fn)(nullptr); }

/* In tasks, in children, and in a plain thread. */
void everywhere(weft_fn *fn) {
    weft_config cfg{};
    cfg.on_panic = count_report;
    for (int w : {1, 2, 4}) {
        cfg.workers = w;
        CHECK_EQ(weft_run(fn, nullptr, &cfg), 0);
        CHECK_EQ(weft_start(&cfg), 0);
        CHECK_EQ(fn(nullptr), 0);
        weft_scope s;
        weft_scope_begin(&s, nullptr);
        CHECK_EQ(weft_spawn(&s, in_a_child, reinterpret_cast<void *>(fn)), 0);
        CHECK_EQ(weft_scope_end(&s), 0);
        CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    }
}

} // namespace

TEST(exceptions_through, parallel_for_joins_what_it_has_spawned) { everywhere(loops); }

TEST(exceptions_through, parallel_for_in_a_try) { everywhere(contained); }

TEST(exceptions_through, call_ends_its_scope) { everywhere(calls); }
