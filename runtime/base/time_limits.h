// How long a run waits for its processes: each wait for others has one of these limits, and an error names its flag.
#pragma once
#include <fmt/format.h>
#include <string>

namespace cleave::runtime {

struct TimeLimit {
  double seconds;
  const char *flag; // null: none sets it
  // A longer limit of the same flag, for work that itself takes `more` seconds.
  TimeLimit plus(double more) const { return {seconds + more, flag}; }
  // "60.0 s (--step-timeout)".
  std::string text() const { return fmt::format("{:.1f} s{}", seconds, flag ? fmt::format(" ({})", flag) : ""); }
};

struct TimeLimits {
  TimeLimit meeting{120, "--meeting-timeout"};          // for all processes to come
  TimeLimit preparation{1800, "--preparation-timeout"}; // before the first step: libraries' algorithms, connections,
                                                        // data, what is resumed
  TimeLimit step{600, "--step-timeout"};                // without progress in a step; and where processes meet between
                                                        // steps
};

} // namespace cleave::runtime
