/* SPDX-License-Identifier: MIT */
/* Tasks, scopes, guards, timers and deadlines of weft.hpp. */
#include <cmath>

#include "hpp.h"

using namespace std::chrono_literals;

namespace {

std::string message_of(weft::scope &s) {
    try {
        s.join();
    } catch (const std::exception &e) {
        return e.what();
    }
    return "";
}

int sleeps_until_cancelled() { return weft::sleep(weft::forever); }

/* A large closure that is not trivially copyable, and one that is. */
void closures() {
    std::atomic<long> sum{0};
    {
        weft::scope s;
        for (int i = 0; i < 50; i++) {
            boxed b(i);
            std::string text(100, 'x');
            CHECK_EQ(s.spawn([&sum, b, text] { sum += b.get() + long(text.size()); }), 0);
            CHECK_EQ(s.spawn([&sum, o = std::make_unique<boxed>(i)] {
                weft_yield();
                sum += o->get();
            }),
                     0);
            struct {
                long numbers[40];
            } many{};
            many.numbers[39] = i;
            CHECK_EQ(s.spawn([&sum, many] { sum += many.numbers[39]; }), 0);
            CHECK_EQ(s.spawn([&sum, i]() mutable {
                sum += i++;
                return i;
            }),
                     0);
        }
        CHECK_EQ(s.join(), 0);
        CHECK_EQ(alive.load(), 0);
        CHECK_EQ(s.join(), WEFT_EINVAL);
    }
    CHECK_EQ(sum.load(), 4 * 1225 + 50 * 100);
}

void refused() {
    weft::scope s;
    s.cancel();
    bool called = false;
    CHECK_EQ(s.spawn([&called, b = boxed(1)] { called = b.get(); }), WEFT_ECANCELED);
    CHECK_EQ(s.spawn([&called] { called = true; }), WEFT_ECANCELED);
    CHECK_EQ(alive.load(), 0);
    CHECK_EQ(s.join(), 0);
    CHECK(!called);
}

void codes() {
    weft::scope s;
    CHECK_EQ(s.spawn(sleeps_until_cancelled), 0);
    CHECK_EQ(s.spawn([] { return -EIO; }), 0); /* behind it, spawns may be refused */
    CHECK_EQ(s.join(), -EIO);
    weft::scope timed(weft::scope_options().within(1ms));
    int spawned = timed.spawn(sleeps_until_cancelled); /* maybe too late already */
    CHECK(spawned == 0 || spawned == WEFT_ECANCELED);
    CHECK_EQ(timed.join(), WEFT_ETIMEDOUT);
    weft::scope open;
    CHECK_EQ(open.spawn([] { return weft_sleep(WEFT_FOREVER); }), 0);
    CHECK_EQ(open.wait(1ms), WEFT_ETIMEDOUT);
    open.set_deadline(1ms);
    CHECK_EQ(open.wait(), 0);
    CHECK_EQ(open.join(), WEFT_ETIMEDOUT);
    weft::scope results(weft::scope_options().results().keep_going().limit(1));
    int r = 0;
    CHECK_EQ(results.spawn([] { return 7; }), 0);
    CHECK_EQ(results.wait_any(&r), 0);
    CHECK_EQ(r, 7);
    CHECK_EQ(results.wait_any(&r), WEFT_EEOF);
    CHECK_EQ(results.join(), 0);
}

void exceptions() {
    weft::scope s;
    CHECK_EQ(s.spawn(sleeps_until_cancelled), 0);
    CHECK_EQ(s.spawn([b = boxed(1)] {
        weft_yield();
        throw std::runtime_error("from a child");
    }),
             0);
    CHECK(message_of(s) == "from a child");
    CHECK_EQ(alive.load(), 0);
    weft::scope nested;
    CHECK_EQ(nested.spawn([] {
        weft::scope inner;
        inner.spawn([] { throw std::out_of_range("from a grandchild"); });
        return inner.join();
    }),
             0);
    CHECK(message_of(nested) == "from a grandchild");
    CHECK_EQ(std::uncaught_exceptions(), 0);
    CHECK_EQ(weft_cancelled(), 0);
}

/* An exception of the opener cancels the children, which see its frame standing. */
void opener_throws() {
    boxed data(5);
    int seen = 0;
    try {
        weft::scope s;
        CHECK_EQ(s.spawn([&] {
            CHECK_EQ(weft::sleep(weft::forever), WEFT_ECANCELED);
            seen = data.get();
        }),
                 0);
        throw std::logic_error("from the opener");
    } catch (const std::logic_error &) {
    }
    CHECK_EQ(seen, 5);
}

std::atomic<int> reports{0};
weft_panic_info reported;
void on_panic(const weft_panic_info *info, void *) {
    reported = *info;
    ++reports;
}

/* Panics, and what is not a std::exception, are panics: the scopes are ended while all frames stand. */
void panics() {
    int seen = 0;
    for (bool thrown : {false, true}) {
        weft::scope s;
        reports = 0;
        CHECK_EQ(s.spawn([&, b = boxed(1)] {
            boxed data(5);
            weft::shield up;
            weft::pin here;
            weft::scope inner;
            CHECK_EQ(inner.spawn([&] {
                weft::sleep(weft::forever);
                seen += data.get();
                throw std::runtime_error("not asked for");
            }),
                     0);
            weft_yield();
            if (thrown) throw 42;
            weft_panic("in %d", 1);
        }),
                 0);
        CHECK_EQ(s.join(), WEFT_EPANIC);
        CHECK_EQ(reports.load(), 1);
        CHECK_EQ(alive.load(), 0);
    }
    CHECK_EQ(seen, 10);
}

void attempts() {
    weft_panic_info info;
    CHECK_EQ(weft::attempt([] { weft_panic("one"); }, &info), WEFT_EPANIC);
    CHECK_STR(info.message, "one");
    CHECK_EQ(weft::attempt([] { throw std::runtime_error("two"); }, &info), WEFT_EPANIC);
    CHECK(strstr(info.message, "two"));
    CHECK_EQ(weft::attempt([] { return 3; }), 3);
}

template <class F>
std::string what_of(F f) {
    try {
        f();
    } catch (const std::exception &e) {
        return e.what();
    }
    return "";
}

void calls() {
    CHECK_EQ(weft::call([] { return 4; }, weft::forever), 4);
    CHECK_EQ(weft::call(sleeps_until_cancelled, 1ms), WEFT_ETIMEDOUT);
    CHECK(what_of([] { weft::call([] { throw std::runtime_error("in a call"); }, 10s); }) == "in a call");
    CHECK_EQ(weft_cancelled(), 0); /* the scope of the call is over */
    CHECK(what_of([] { weft::block_on([] { throw std::runtime_error("in a block"); }); }) == "in a block");
}

void loops() {
    std::atomic<std::size_t> sum{0}, calls{0};
    CHECK_EQ(weft::parallel_for(1000,
                                [&](std::size_t lo, std::size_t hi) {
                                    for (std::size_t i = lo; i < hi; i++) sum += i;
                                }),
             0);
    CHECK_EQ(sum.load(), 499500);
    auto fails = [&](std::size_t, std::size_t) {
        ++calls;
        throw std::runtime_error("in a loop");
    };
    CHECK(what_of([&] { weft::parallel_for(1000, fails, 1); }) == "in a loop");
    CHECK_GE(calls.load(), 1);
    CHECK_LT(calls.load(), 1000);
}

void handles() {
    weft::task t;
    int result = 0;
    CHECK(!t);
    CHECK_EQ(t.join(), WEFT_EINVAL);
    CHECK_EQ(t.start([b = boxed(21)] { return b.get() * 2; }), 0);
    CHECK(t.id() != 0);
    weft::task u = std::move(t);
    CHECK(!t);
    CHECK_EQ(u.join(&result), 0);
    CHECK_EQ(result, 42);
    CHECK(!u);
    CHECK_EQ(alive.load(), 0);
    weft_task_opts opts{};
    opts.name = "sleeper";
    CHECK_EQ(u.start(sleeps_until_cancelled, &opts), 0);
    CHECK_EQ(u.join(&result, 1ms), WEFT_ETIMEDOUT);
    u.cancel();
    CHECK_EQ(u.join(&result), 0);
    CHECK_EQ(result, WEFT_ECANCELED);
    CHECK_EQ(u.start(sleeps_until_cancelled), 0); /* forgotten: the end of the runtime cancels it */
    opts.priority = 77;
    weft::task bad;
    CHECK_EQ(bad.start([b = boxed(1)] { return b.get(); }, &opts), WEFT_EINVAL);
    CHECK_EQ(alive.load(), 0);
}

void detached() {
    weft::chan<int> c;
    CHECK_EQ(weft::go([c] { c.send(1); }), 0);
    int one = 1;
    CHECK_EQ(weft::go([&c, one] { c.send(one); }), 0);
    CHECK_EQ(*c.recv() + *c.recv(), 2);
}

void named() {
    weft::scope s;
    weft_task_opts opts{};
    opts.name = "worker";
    bool ran = false;
    CHECK_EQ(s.spawn(opts, [&ran, b = boxed(1)] { ran = b.get() == 1; }), 0);
    opts.priority = 77;
    CHECK_EQ(s.spawn(opts, [b = boxed(1)] { return b.get(); }), WEFT_EINVAL);
    CHECK_EQ(s.join(), WEFT_EINVAL); /* a refused child counts as failed */
    CHECK_EQ(alive.load(), 0);
    CHECK(ran);
}

void guards() {
    weft::scope s;
    s.cancel();
    CHECK_EQ(weft::sleep(1us), WEFT_ECANCELED);
    {
        weft::shield up(weft::forever);
        CHECK(bool(up));
        CHECK_EQ(weft::sleep(1us), 0);
    }
    CHECK_EQ(weft::sleep(1us), WEFT_ECANCELED);
    CHECK_EQ(s.join(), 0);
    weft::pin here;
    int *thread = weft_errno_location();
    for (int i = 0; i < 20; i++) {
        weft::sleep(1us);
        CHECK(thread == weft_errno_location());
    }
}

void timers() {
    weft::chan<int> c(1);
    int n = 0;
    weft::timer t([&] { c.try_send(++n); });
    CHECK_EQ(t.start(1ms), 0);
    CHECK_EQ(*c.recv(), 1);
    CHECK_EQ(t.start(1ms, 1ms), 0);
    CHECK_EQ(*c.recv(), 2);
    CHECK_GE(*c.recv(), 3);
    t.stop_wait();
    CHECK_EQ(t.stop(), 0);
    CHECK_EQ(t.start(1h), 0);
    CHECK_EQ(t.stop(), 1);
    CHECK_EQ(t.start(std::chrono::steady_clock::now() + 1h), 0); /* its end stops it */
    weft::ticker k;
    CHECK_EQ(k.start(1ms), 0);
    CHECK_EQ(k.start(1ms), WEFT_EALREADY);
    int64_t last = 0;
    int ticks = 0;
    for (int64_t moment : k.ticks()) {
        CHECK_GT(moment, last);
        last = moment;
        if (++ticks == 3) break;
    }
    k.stop();
}

/* However the block is left. */
void locks() {
    static weft_mutex m;
    static weft_rwlock rw;
    {
        weft::lock_guard g(m);
        CHECK_EQ(weft_mutex_trylock(&m), WEFT_EAGAIN);
    }
    CHECK(what_of([] {
              weft::lock_guard g(m);
              throw std::runtime_error("locked");
          }) == "locked");
    CHECK_EQ(weft_try(
                 [](void *) -> int {
                     weft::lock_guard g(m);
                     weft_panic("locked");
                 },
                 nullptr, nullptr),
             WEFT_EPANIC);
    CHECK_EQ(weft_mutex_trylock(&m), 0);
    weft_mutex_unlock(&m);
    {
        weft::read_guard g(rw);
        CHECK_EQ(weft_rwlock_trywrlock(&rw), WEFT_EAGAIN);
        CHECK_EQ(weft_rwlock_tryrdlock(&rw), 0);
        weft_rwlock_rdunlock(&rw);
    }
    {
        weft::write_guard g(rw);
        CHECK_EQ(weft_rwlock_tryrdlock(&rw), WEFT_EAGAIN);
    }
    CHECK_EQ(weft_rwlock_trywrlock(&rw), 0);
    weft_rwlock_wrunlock(&rw);
}

int ignored_exception(void *) {
    return weft::run([] {
        weft::scope s;
        s.spawn([] { throw std::runtime_error("ignored"); });
    });
}

} // namespace

TEST(hpp_task, closures_are_moved_into_their_tasks) { on_each(closures); }
TEST(hpp_task, a_refused_closure_is_destroyed_and_not_called) { on_each(refused); }
TEST(hpp_task, scopes_give_the_codes_of_their_children) { on_each(codes); }
TEST(hpp_task, a_childs_exception_is_thrown_by_join) { on_each(exceptions); }
TEST(hpp_task, an_exception_of_the_opener_cancels_and_joins) { on_each(opener_throws); }
TEST(hpp_task, panics_pass_through_and_end_scopes_first) {
    for (int workers : {1, 2, 4}) {
        weft_config cfg{};
        cfg.workers = workers;
        cfg.on_panic = on_panic;
        CHECK_EQ(weft::run(panics, &cfg), 0);
    }
}
TEST(hpp_task, an_exception_that_nobody_joins_is_reported) {
    struct test_child c;
    test_child(ignored_exception, nullptr, &c);
    CHECK_EQ(c.exit_code, 0);
    CHECK_MSG(strstr(c.out, "which nobody asked for: ignored"), "%s", c.out);
}
TEST(hpp_task, run_gives_the_result_or_the_exception) {
    CHECK_EQ(weft::run([] { return 5; }), 5);
    CHECK_EQ(weft::run([] {}), 0);
    CHECK(what_of([] { weft::run([] { throw std::runtime_error("from main"); }); }) == "from main");
}
TEST(hpp_task, attempt_contains_panics_and_exceptions) {
    on_each(attempts);
    attempts(); /* on a plain thread */
}
TEST(hpp_task, call_and_block_on_give_the_exception) { on_each(calls); }
TEST(hpp_task, parallel_for_gives_the_first_exception) { on_each(loops); }
TEST(hpp_task, handles_join_cancel_and_move) { on_each(handles); }
TEST(hpp_task, go_starts_detached_tasks) { on_each(detached); }
TEST(hpp_task, spawn_takes_options) { on_each(named); }
TEST(hpp_task, shields_and_pins_end_with_their_block) { on_each(guards); }
TEST(hpp_task, locks_are_held_while_their_guard_lives) {
    on_each(locks);
    locks(); /* on a plain thread */
}
TEST(hpp_task, timers_and_tickers_end_with_their_block) { on_each(timers); }

TEST(hpp_time, durations_become_deadlines) {
    auto ns = [](auto d) { return weft::detail::nanoseconds(d); };
    CHECK_EQ(ns(5ms), 5 * WEFT_MS);
    CHECK_EQ(ns(-5us), -5 * WEFT_US);
    CHECK_EQ(ns(std::chrono::duration<double>(0.5)), WEFT_SECOND / 2);
    CHECK_EQ(ns(std::chrono::duration<int64_t, std::pico>(5000)), 5);
    CHECK_EQ(ns(std::chrono::hours::max()), INT64_MAX);
    CHECK_EQ(ns(std::chrono::hours::min()), INT64_MIN);
    CHECK_EQ(ns(std::chrono::duration<double>(HUGE_VAL)), INT64_MAX);
    CHECK_EQ(ns(std::chrono::duration<double>(NAN)), INT64_MAX);
    CHECK_EQ(weft_deadline(weft::deadline()).ns, WEFT_FOREVER.ns);
    CHECK_EQ(weft_deadline(weft::forever).ns, WEFT_FOREVER.ns);
    CHECK_EQ(weft_deadline(weft::poll).ns, WEFT_POLL.ns);
    int64_t before = weft_now(), at = weft_deadline(weft::deadline(1h)).ns, after = weft_now();
    CHECK(before + 3600 * WEFT_SECOND <= at && at <= after + 3600 * WEFT_SECOND);
    before = weft_now();
    at = weft_deadline(weft::deadline(std::chrono::steady_clock::now())).ns;
    CHECK(before <= at && at <= weft_now());
}
