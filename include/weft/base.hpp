/* SPDX-License-Identifier: MIT */
/* Deadlines from std::chrono. */
#ifndef WEFT_BASE_HPP
#define WEFT_BASE_HPP

#include <chrono>
#include <cstdint>

#include <weft/base.h>
#include <weft/time.h>

namespace weft {

namespace detail {
/* Nanoseconds, saturated. A double is exact enough to tell what does not fit. */
template <class Rep, class Period>
int64_t nanoseconds(std::chrono::duration<Rep, Period> d) {
    double seconds = std::chrono::duration<double>(d).count();
    if (seconds <= -9.2e9) return INT64_MIN;
    if (!(seconds < 9.2e9)) return INT64_MAX;
    return std::chrono::duration_cast<std::chrono::duration<int64_t, std::nano>>(d).count();
}
} // namespace detail

/* What every operation that may wait takes: forever, poll, a duration from now (5ms) or a moment of std::chrono::steady_clock, which is
 * weft_now's clock. */
class deadline {
  public:
    constexpr deadline() noexcept : d_{0} {}
    constexpr deadline(weft_deadline d) noexcept : d_(d) {}
    template <class Rep, class Period>
    deadline(std::chrono::duration<Rep, Period> from_now) noexcept : d_(weft_after(detail::nanoseconds(from_now))) {}
    template <class D>
    deadline(std::chrono::time_point<std::chrono::steady_clock, D> at) noexcept
        : d_(weft_at(detail::nanoseconds(at.time_since_epoch()))) {}
    constexpr operator weft_deadline() const noexcept {
        return d_;
    }

  private:
    weft_deadline d_;
};

inline constexpr deadline forever{};
inline constexpr deadline poll{weft_deadline{INT64_MIN}};

/* Sleeps until the moment, or for the duration. As weft_sleep. */
inline int sleep(deadline until) {
    return weft_sleep(until);
}

} // namespace weft

#endif
