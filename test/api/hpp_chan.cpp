/* SPDX-License-Identifier: MIT */
/* Channels and select of weft.hpp, with elements of each form. */
#include <array>
#include <vector>

#include "hpp.h"

using namespace std::chrono_literals;

namespace {

template <class F>
void each_form(F fn) {
    on_each([&] {
        fn(plain());
        fn(relocated());
        fn(boxed());
        CHECK_EQ(alive.load(), 0);
    });
}

template <class T>
void passes(std::size_t capacity) {
    weft::chan<T> c(capacity);
    weft::scope s;
    CHECK_EQ(s.spawn([c] {
        for (int i = 1; i <= 100; i++) CHECK_EQ(c.send(T(i)), 0);
        CHECK_EQ(c.close(), 0);
    }),
             0);
    int next = 1;
    for (T &v : c) CHECK_EQ(v.get(), next++);
    CHECK_EQ(next, 101);
    CHECK_EQ(s.join(), 0);
    CHECK_EQ(c.recv().error(), WEFT_ECLOSED);
    CHECK_EQ(c.close(), WEFT_ECLOSED);
}

template <class T>
void untouched_on_errors() {
    weft::chan<T> c(1);
    T v(7), out(3);
    CHECK_EQ(c.try_recv(out), WEFT_EAGAIN);
    CHECK_EQ(out.get(), 3);
    CHECK_EQ(c.send(T(1)), 0);
    CHECK_EQ(c.len(), 1);
    CHECK_EQ(c.cap(), 1);
    CHECK_EQ(c.try_send(std::move(v)), WEFT_EAGAIN);
    CHECK_EQ(v.get(), 7);
    CHECK_EQ(c.send(std::move(v), 1us), WEFT_ETIMEDOUT);
    CHECK_EQ(v.get(), 7);
    c.close();
    CHECK_EQ(c.send(std::move(v)), WEFT_ECLOSED);
    CHECK_EQ(v.get(), 7);
    CHECK_EQ(c.recv(out), 0);
    CHECK_EQ(out.get(), 1);
    auto none = c.recv(1ms);
    CHECK(!none);
    CHECK_EQ(none.error(), WEFT_ECLOSED);
}

/* Those that nobody received go with the last handle, in a cancelled scope and outside of a task too. */
template <class T>
void undelivered() {
    {
        weft::chan<T> c(5);
        for (int i = 0; i < 5; i++) CHECK_EQ(c.send(T(i)), 0);
        weft::receiver<T> last = c;
        c = nullptr;
        CHECK(!c);
        CHECK_EQ(last.recv()->get(), 0);
    }
    weft::scope s;
    weft::chan<T> c(5);
    CHECK_EQ(c.send(T(1)), 0);
    s.cancel();
    CHECK_EQ(c.recv().error(), WEFT_ECANCELED);
    c = nullptr;
    CHECK_EQ(s.join(), 0);
}

template <class T>
void ends() {
    weft::chan<T> c(1);
    weft::sender<T> tx = c.tx();
    weft::receiver<T> rx = c.rx();
    CHECK(tx.get() == rx.get());
    CHECK(tx == weft::sender<T>(c));
    CHECK_EQ(tx.send(T(5)), 0);
    CHECK_EQ(tx.try_send(T(5)), WEFT_EAGAIN);
    auto v = rx.recv(10s);
    CHECK(bool(v));
    CHECK_EQ(v->get(), 5);
    CHECK_EQ((*v).get(), 5);
    CHECK_EQ(v.error(), 0);
    CHECK_EQ(rx.try_recv().error(), WEFT_EAGAIN);
    tx.close();
    for (T &none : rx) CHECK_MSG(false, "received %d", none.get());
    CHECK(!weft::sender<T>());
}

template <class T>
void selects() {
    weft::chan<T> a(1), b(1);
    T x(5);
    int got = 0, sent = 0;
    CHECK_EQ(weft::select(weft::forever, weft::on_recv(b, [&](T) { got++; }), weft::on_send(a, std::move(x), [&] { sent++; })), 1);
    CHECK_EQ(sent, 1);
    CHECK_EQ(got, 0);
    T y(6); /* not sent: a is full, and the other case finds it where it was */
    CHECK_EQ(b.send(T(9)), 0);
    CHECK_EQ(weft::select(weft::forever, weft::on_send(a.tx(), std::move(y)), weft::on_recv(b.rx(), [&](T v) { got = v.get() * 10 + y.get(); })),
             1);
    CHECK_EQ(got, 96);
    CHECK_EQ(y.get(), 6);
    CHECK_EQ(weft::select(1us, weft::on_send(a, std::move(y))), WEFT_ETIMEDOUT);
    CHECK_EQ(weft::select(weft::poll, weft::on_send(a, std::move(y))), WEFT_EAGAIN);
    CHECK_EQ(y.get(), 6);
    CHECK_EQ(weft::select(weft::poll, weft::on_recv(weft::chan<T>(nullptr), [&](T) {}), weft::on_recv(a, [&](T v) { got = v.get(); })), 1);
    CHECK_EQ(got, 5);
    a.close();
    CHECK_EQ(weft::select(weft::forever, weft::on_recv(a, [&](T) {})), WEFT_ECLOSED);
    CHECK_EQ(weft::select(weft::forever, weft::on_recv(a, [&](std::optional<T> v) { got = v ? 1 : 2; })), 0);
    CHECK_EQ(got, 2);
    CHECK_EQ(b.send(T(4)), 0);
    CHECK_EQ(weft::select(weft::forever, weft::on_recv(b, [&](std::optional<T> v) { got = v ? v->get() : 0; })), 0);
    CHECK_EQ(got, 4);
    CHECK_EQ(weft::select(weft::forever, weft::on_send(a, std::move(y))), WEFT_ECLOSED);
    CHECK_EQ(y.get(), 6);
    CHECK_EQ(weft::select(weft::forever, weft::on_send(a, std::move(y), [&](bool open) { got = open ? 1 : y.get() * 10; })), 0);
    CHECK_EQ(got, 60); /* not sent, and back where it was */
    CHECK_EQ(weft::select(weft::forever, weft::on_send(b, std::move(y), [&](bool open) { got = open; })), 0);
    CHECK_EQ(got, 1);
    for (int i = 0; i < 20; i++) { /* b has one element: both can be done */
        CHECK_EQ(weft::select_ordered(weft::forever, weft::on_recv(a, [](std::optional<T>) {}), weft::on_recv(b, [](T) {})), 0);
        CHECK_EQ(weft::select_ordered(weft::poll, weft::on_recv(weft::chan<T>(nullptr), [](T) {}), weft::on_recv(b, [&](T v) { got = v.get(); }),
                                      weft::on_recv(a, [](std::optional<T>) {})),
                 1);
        CHECK_EQ(got, 6);
        CHECK_EQ(b.send(T(6)), 0);
    }
}

/* An element that is received in a loop which is left by an exception, and one that is sent meanwhile. */
template <class T>
void loop_left_by_exception() {
    weft::chan<T> c;
    int got = 0;
    try {
        weft::scope s;
        s.spawn([&c] {
            int rc = 0;
            for (int i = 0; rc == 0; i++) rc = c.send(T(i));
            CHECK_EQ(rc, WEFT_ECANCELED);
        });
        for (T &v : c) {
            got = v.get();
            if (got == 3) throw std::runtime_error("enough");
        }
    } catch (const std::runtime_error &e) {
        CHECK_STR(e.what(), "enough");
    }
    CHECK_EQ(got, 3);
}

struct no_default {
    explicit no_default(int v) : value(v) {}
    int value;
};

struct message { /* has an end of its own channel */
    int value;
    weft::sender<message> back;
};

struct awkward { /* & is overloaded */
    int value;
    int operator&() const { return -1; }
};

} // namespace

TEST(hpp_chan, passes_every_element_in_order) {
    each_form([](auto v) {
        for (std::size_t capacity : {0, 1, 8}) passes<decltype(v)>(capacity);
    });
}
TEST(hpp_chan, an_element_that_is_not_sent_stays_where_it_is) {
    each_form([](auto v) { untouched_on_errors<decltype(v)>(); });
}
TEST(hpp_chan, what_nobody_received_is_destroyed_once) {
    each_form([](auto v) { undelivered<decltype(v)>(); });
    weft::chan<boxed> outside(3);
    CHECK_EQ(outside.send(boxed(1)), 0);
    CHECK_EQ(alive.load(), 1);
    outside = nullptr;
    CHECK_EQ(alive.load(), 0);
}
TEST(hpp_chan, ends_send_or_receive) {
    each_form([](auto v) { ends<decltype(v)>(); });
}
TEST(hpp_chan, select_calls_the_function_of_the_case_that_happened) {
    each_form([](auto v) { selects<decltype(v)>(); });
}
TEST(hpp_chan, a_loop_may_be_left_by_an_exception) {
    each_form([](auto v) { loop_left_by_exception<decltype(v)>(); });
}

TEST(hpp_chan, copies_are_sent_where_copies_can_be_made) {
    on_each([] {
        weft::chan<std::string> c(2);
        const std::string word = "a word that is too long for a small string";
        CHECK_EQ(c.send(word), 0);
        CHECK_EQ(c.try_send(word), 0);
        CHECK_EQ(c.try_send(word), WEFT_EAGAIN);
        CHECK(*c.recv() == word);
        std::string out;
        CHECK_EQ(c.recv(out), 0);
        CHECK(out == word);
    });
}

TEST(hpp_chan, elements_of_many_kinds) {
    on_each([] {
        weft::chan<no_default> a(1);
        CHECK_EQ(a.send(no_default(3)), 0);
        CHECK_EQ(a.recv()->value, 3);
        weft::chan<awkward> b(1);
        CHECK_EQ(b.send(awkward{4}), 0);
        CHECK_EQ((*b.recv()).value, 4);
        weft::chan<std::vector<int>> c(1);
        CHECK_EQ(c.send({1, 2, 3}), 0);
        CHECK_EQ(c.recv()->size(), 3);
        weft::chan<std::array<char, 65536>> d(1); /* large, so it is received where it is */
        auto large = std::make_unique<std::array<char, 65536>>();
        (*large)[65535] = 'x';
        CHECK_EQ(d.send(*large), 0);
        (*large)[65535] = 0;
        CHECK_EQ(d.recv(*large), 0);
        CHECK_EQ((*large)[65535], 'x');
        weft::chan<std::chrono::milliseconds> e(1);
        CHECK_EQ(e.send(5ms), 0);
        CHECK(*e.recv(10s) == 5ms);
    });
}

TEST(hpp_chan, ends_are_elements_of_other_channels) {
    on_each([] {
        weft::chan<weft::sender<int>> requests;
        weft::scope s;
        s.spawn([&] {
            for (auto &to : requests) CHECK_EQ(to.send(42), 0);
        });
        weft::chan<int> reply;
        CHECK_EQ(requests.send(reply.tx()), 0);
        CHECK_EQ(*reply.recv(), 42);
        requests.close();
        CHECK_EQ(s.join(), 0);
    });
}

TEST(hpp_chan, an_element_may_have_ends_of_its_own_channel) {
    on_each([] {
        weft::chan<message> there(1), back(1);
        CHECK_EQ(there.send(message{5, back}), 0);
        auto m = there.recv();
        CHECK_EQ(m->back.send(message{m->value + 1, {}}), 0);
        CHECK_EQ(back.recv()->value, 6);
    });
}

TEST(hpp_chan, a_channel_that_cannot_be_is_a_bad_alloc) {
    bool thrown = false;
    try {
        weft::chan<int> c(SIZE_MAX);
    } catch (const std::bad_alloc &) {
        thrown = true;
    }
    CHECK(thrown);
}
