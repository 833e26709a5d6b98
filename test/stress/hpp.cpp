/* SPDX-License-Identifier: MIT */
/* Channels of objects under everything at once: sends, receives, loops and selects with and without deadlines, while channels are closed and
 * scopes cancelled. Each object that was sent is received once or destroyed with its channel; those that were not sent stay with their
 * senders; none is lost, and none destroyed twice. */
#include <vector>

#include "api/hpp.h"

namespace {

enum { CHANNELS = 3, TASKS = 10 };

/* A number that was sent, was received or is left. */
struct ledger {
    std::atomic<long> sent{0}, received{0}, sum_sent{0}, sum_received{0};
};

template <class T>
struct round {
    std::vector<weft::chan<T>> c;
    ledger books;
    std::atomic<int> next{1};
};

weft::deadline random_deadline(uint64_t *rnd) {
    switch (test_below(rnd, 6)) {
    case 0:
        return weft::poll;
    case 1:
    case 2:
        return std::chrono::microseconds(test_below(rnd, 100));
    default:
        return weft::forever;
    }
}

void check_result(int rc) {
    CHECK_MSG(rc >= 0 || rc == WEFT_ECLOSED || rc == WEFT_ETIMEDOUT || rc == WEFT_EAGAIN || rc == WEFT_ECANCELED, "result %d", rc);
}

template <class T>
void got(round<T> &r, const T &v) {
    ++r.books.received;
    r.books.sum_received += v.get();
}

template <class T>
int send_one(round<T> &r, const weft::chan<T> &c, uint64_t *rnd) {
    int number = r.next++;
    T v(number);
    int rc = c.send(std::move(v), random_deadline(rnd));
    if (rc < 0) CHECK_EQ(v.get(), number);
    if (rc == 0) {
        ++r.books.sent;
        r.books.sum_sent += number;
    }
    return rc;
}

template <class T>
int recv_one(round<T> &r, const weft::chan<T> &c, uint64_t *rnd) {
    auto v = c.recv(random_deadline(rnd));
    if (v) got(r, *v);
    return v.error();
}

template <class T>
int select_one(round<T> &r, const weft::chan<T> &a, const weft::chan<T> &b, uint64_t *rnd) {
    int number = r.next++;
    T v(number);
    bool sent = false;
    int rc = weft::select(
        random_deadline(rnd), weft::on_recv(a, [&](std::optional<T> x) { x ? got(r, *x) : void(); }),
        weft::on_send(b, v, [&] { sent = true; }), weft::on_recv(b, [&](T x) { got(r, x); }));
    CHECK_EQ(sent, rc == 1);
    if (!sent) CHECK_EQ(v.get(), number);
    if (sent) {
        ++r.books.sent;
        r.books.sum_sent += number;
    }
    return rc;
}

template <class T>
int actor(round<T> &r, uint64_t rnd, long steps) {
    int rc = 0;
    for (long i = 0; i < steps && rc != WEFT_ECANCELED; i++) {
        weft::chan<T> c = r.c[test_below(&rnd, CHANNELS)]; /* a reference of its own */
        switch (test_below(&rnd, 8)) {
        case 0:
        case 1:
        case 2:
            rc = send_one(r, c, &rnd);
            break;
        case 3:
        case 4:
        case 5:
            rc = recv_one(r, c, &rnd);
            break;
        case 6:
            rc = select_one(r, c, r.c[test_below(&rnd, CHANNELS)], &rnd);
            break;
        default:
            weft_yield();
            rc = 0;
        }
        check_result(rc);
    }
    return rc == WEFT_ECANCELED ? rc : 0;
}

/* Ends it: by closing the channels one after the other, or by cancelling. */
template <class T>
void play(uint64_t *rnd) {
    round<T> r;
    for (int i = 0; i < CHANNELS; i++) r.c.emplace_back(test_below(rnd, 4));
    {
        weft::scope s;
        for (int i = 0; i < TASKS; i++) {
            uint64_t seed = test_random_from(rnd);
            CHECK_EQ(s.spawn([&r, seed, token = boxed(i)] { return actor(r, seed, 200); }), 0);
        }
        weft::sleep(std::chrono::microseconds(test_below(rnd, 2000)));
        if (test_below(rnd, 2)) {
            s.cancel();
        } else {
            for (auto &c : r.c) {
                weft::sleep(std::chrono::microseconds(test_below(rnd, 500)));
                c.close();
            }
        }
        CHECK_EQ(s.join(), 0);
    }
    if (test_below(rnd, 2)) { /* what is left is received, or goes with the channels */
        for (auto &c : r.c) {
            c.close();
            for (T &v : c) got(r, v);
        }
        CHECK_EQ(r.books.received.load(), r.books.sent.load());
        CHECK_EQ(r.books.sum_received.load(), r.books.sum_sent.load());
    }
    r.c.clear();
    CHECK_EQ(alive.load(), 0);
}

void all_forms(int workers) {
    uint64_t seed = test_seed();
    weft_config cfg{};
    cfg.workers = workers;
    long rounds = test_scale(60, 3);
    CHECK_EQ(weft::run(
                 [&] {
                     for (long i = 0; i < rounds; i++) {
                         play<plain>(&seed);
                         play<relocated>(&seed);
                         play<boxed>(&seed);
                     }
                 },
                 &cfg),
             0);
}

/* Exceptions, panics and codes of children at once: join gives one of them, and all closures are gone. */
void endings(uint64_t *rnd) {
    std::atomic<int> thrown{0}, failed{0};
    bool caught = false;
    int rc = 0;
    weft::scope s;
    for (int i = 0; i < 20; i++) {
        uint64_t kind = test_below(rnd, 4), pause = test_below(rnd, 30);
        s.spawn([&, kind, pause, token = boxed(i)] {
            int r = weft::sleep(std::chrono::microseconds(pause));
            if (kind == 0) {
                ++thrown;
                throw std::runtime_error("thrown");
            }
            if (kind == 1) {
                ++failed;
                return -EIO;
            }
            return r;
        });
    }
    try {
        rc = s.join();
    } catch (const std::runtime_error &e) {
        CHECK_STR(e.what(), "thrown");
        caught = true;
    }
    CHECK_EQ(caught, thrown.load() > 0);
    if (!caught) CHECK_EQ(rc, failed.load() ? -EIO : 0);
    CHECK_EQ(alive.load(), 0);
}

} // namespace

TEST_T(hpp_stress, every_object_is_received_or_destroyed_once_1, 120) { all_forms(1); }
TEST_T(hpp_stress, every_object_is_received_or_destroyed_once_2, 120) { all_forms(2); }
TEST_T(hpp_stress, every_object_is_received_or_destroyed_once_4, 120) { all_forms(4); }
TEST_T(hpp_stress, every_object_is_received_or_destroyed_once_8, 120) { all_forms(8); }
TEST(hpp_stress, one_exception_of_many_is_thrown_by_join) {
    for (int workers : {1, 2, 4}) {
        weft_config cfg{};
        cfg.workers = workers;
        CHECK_EQ(weft::run(
                     [] {
                         uint64_t seed = test_seed();
                         for (long i = test_scale(500, 20); i > 0; i--) endings(&seed);
                     },
                     &cfg),
                 0);
    }
}
