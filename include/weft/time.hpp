/* SPDX-License-Identifier: MIT */
/* Timers and tickers that end with their block. */
#ifndef WEFT_TIME_HPP
#define WEFT_TIME_HPP

#include <chrono>
#include <utility>

#include <weft/chan.hpp>

namespace weft {

/* A function that is called at a moment, once or again and again: weft::timer t([&] { … }); t.start(5ms). Stopped, and waited for, at its end. As
 * weft_timer: the function must not wait. */
template <class F>
class timer {
  public:
    explicit timer(F f) : f_(std::move(f)) {}
    ~timer() {
        weft_timer_stop_wait(&t_);
    }
    timer(const timer &) = delete;
    timer &operator=(const timer &) = delete;
    int start(deadline at, std::chrono::nanoseconds interval = {}) {
        return weft_timer_start(&t_, at, interval.count(), call, this);
    }
    int stop() {
        return weft_timer_stop(&t_);
    }
    bool armed() {
        return weft_timer_armed(&t_);
    }
    int stop_wait() {
        return weft_timer_stop_wait(&t_);
    }

  private:
    static void call(void *self) {
        static_cast<timer *>(self)->f_();
    }
    weft_timer t_{};
    F f_;
};

/* Sends the moment of each tick, of weft_now's clock, to a channel of its own. As weft_ticker. */
class ticker {
  public:
    ticker() : c_(1) {}
    ~ticker() {
        weft_ticker_stop(&t_);
    }
    ticker(const ticker &) = delete;
    ticker &operator=(const ticker &) = delete;
    int start(std::chrono::nanoseconds interval) {
        return weft_ticker_start(&t_, interval.count(), c_.get());
    }
    int stop() {
        return weft_ticker_stop(&t_);
    }
    receiver<int64_t> ticks() const noexcept {
        return c_.rx();
    }

  private:
    weft_ticker t_{};
    chan<int64_t> c_;
};

} // namespace weft

#endif
