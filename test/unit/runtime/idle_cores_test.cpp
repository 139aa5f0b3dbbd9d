#include "runtime/engine/probe/idle_cores.h"
#include <gtest/gtest.h>
#include <sstream>

namespace cleave::runtime {
namespace {

// Columns of proc(5): user, nice, system, idle, iowait, irq, softirq, steal, guest, guest_nice.
constexpr const char *statistics = R"(cpu  999 0 0 0 0 0 0 0 0 0
cpu0 100 20 30 4000 500 6 7 8 90 9
cpu1 1 2 3 4 5 6 7 8 0 0
cpu12 1000 0 0 0 0 0 0 0 0 0
intr 17
)";

double busyOf(const std::vector<int> &cores) {
  std::istringstream text(statistics);
  return busySeconds(text, cores, 100);
}

TEST(IdleCores, CountsAllButIdlingOfTheCores) {
  EXPECT_DOUBLE_EQ(busyOf({0}), 1.71);
  EXPECT_DOUBLE_EQ(busyOf({0, 1}), 1.98);
  EXPECT_DOUBLE_EQ(busyOf({12}), 10);
  EXPECT_LT(busyOf({0, 2}), 0); // no such core
  EXPECT_LT(busyOf({}), 0);
}

TEST(IdleCores, OthersHaveWhatIsNeitherIdleNorOwn) {
  EXPECT_DOUBLE_EQ(partOfOthers(7, 4, 5, 2), 0.3);
  EXPECT_DOUBLE_EQ(partOfOthers(4, 4.02, 5, 2), 0); // clocks that tick at different times
  EXPECT_DOUBLE_EQ(partOfOthers(30, 0, 5, 2), 1);
  EXPECT_DOUBLE_EQ(partOfOthers(1, 0, 0, 2), 0);
  EXPECT_LE(IdleCores{}.busyWithOthers(), 1);
}

} // namespace
} // namespace cleave::runtime
