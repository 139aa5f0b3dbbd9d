// When a search that has a time limit must end.
//
//   Deadline deadline(0.5);
//   for (...) if (deadline.isOver()) break;      // half a second later
#pragma once
#include <chrono>

namespace cleave::planner {

class Deadline {
public:
  explicit Deadline(double seconds) : limit(seconds) {} // from now on; 0: there is none
  double elapsed() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); }
  bool isOver() const { return limit > 0 && elapsed() > limit; }

private:
  double limit;
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
};

} // namespace cleave::planner
