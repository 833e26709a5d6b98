/* SPDX-License-Identifier: MIT */
/* What the tests of weft.hpp share: elements of each form that count how many of them live. */
#ifndef WEFT_TEST_HPP_H
#define WEFT_TEST_HPP_H

#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <weft.hpp>

#include "test.h"

/* fn on one worker, two and four. */
template <class F>
void on_each(F fn) {
    for (int workers : {1, 2, 4}) {
        weft_config cfg{};
        cfg.workers = workers;
        CHECK_EQ(weft::run(fn, &cfg), 0);
    }
}

inline std::atomic<int> alive{0};

/* Points at itself, so that it notices when its bytes are moved; and must be destroyed. */
class boxed {
  public:
    explicit boxed(int v = 0) : value(v) { ++alive; }
    boxed(const boxed &other) : value(other.value) { ++alive; }
    boxed(boxed &&other) noexcept : value(other.value) {
        ++alive;
        other.value = -1;
    }
    boxed &operator=(boxed &&other) noexcept {
        value = other.value;
        other.value = -1;
        return *this;
    }
    ~boxed() {
        CHECK(self == this);
        --alive;
    }
    int get() const {
        CHECK(self == this);
        return value;
    }
    int value;

  private:
    const boxed *self = this;
};

/* May be moved by its bytes, and owns something. */
class relocated {
  public:
    explicit relocated(int v = 0) : p(new boxed(v)) {}
    int get() const { return p ? p->get() : -1; }

  private:
    std::unique_ptr<boxed> p;
};
template <>
struct weft::relocatable<relocated> : std::true_type {};

/* Trivially copyable. */
struct plain {
    explicit plain(int v = 0) : value(v) {}
    int get() const { return value; }
    int value;
};
static_assert(weft::detail::form_of<boxed> == weft::detail::form::boxed, "");
static_assert(weft::detail::form_of<relocated> == weft::detail::form::relocated, "");
static_assert(weft::detail::form_of<plain> == weft::detail::form::bytes, "");

#endif
