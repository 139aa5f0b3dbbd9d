// How a cost grows, told by two calls in one run: neither the machine nor its other work matters.
//
//     EXPECT_LT(processorSeconds([&] { verifyPlan(many); }), 10 * processorSeconds([&] { verifyPlan(few); }));
#pragma once
#include <algorithm>
#include <ctime>

namespace cleave::test {

// The least of three calls, in seconds of this process's threads.
template <typename Call> double processorSeconds(const Call &call) {
  double least = 0;
  for (int turn = 0; turn < 3; ++turn) {
    const std::clock_t begin = std::clock();
    call();
    const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    least = turn == 0 ? seconds : std::min(least, seconds);
  }
  return least;
}

} // namespace cleave::test
