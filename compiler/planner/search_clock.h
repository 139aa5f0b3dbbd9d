// How long a search has taken and whether its time is over. Every loop of the search that may run long asks it, so that
// it is also what tells a person who waits that it goes on.
//
//   SearchClock clock(0.5, tell);
//   for (...) if (clock.isOver()) break;      // half a second later; tell() at once and ten times a second until then
#pragma once
#include <chrono>
#include <functional>

namespace cleave::planner {

inline constexpr double tellInterval = 0.1; // seconds

class SearchClock {
public:
  using Tell = std::function<void(double elapsed)>;
  SearchClock() = default; // never over
  // From now on; 0 seconds: no limit.
  explicit SearchClock(double seconds, Tell tell = {}) : limit(seconds), tell(std::move(tell)) {}

  double elapsed() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); }
  bool isOver() const {
    if (limit <= 0 && !tell) return false;
    const double now = elapsed();
    if (tell && now >= told + tellInterval) {
      told = now;
      tell(now);
    }
    return limit > 0 && now > limit;
  }

private:
  double limit = 0;
  Tell tell;
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  mutable double told = -tellInterval; // when `tell` was called last
};

} // namespace cleave::planner
