// How long a run waits for its processes: each wait for others has one of these limits, and an error names its flag.
#pragma once

namespace cleave::runtime {

struct TimeLimit {
  double seconds;
  const char *flag;
  // The same flag's, for what takes so many seconds by itself.
  TimeLimit plus(double more) const { return {seconds + more, flag}; }
};

struct TimeLimits {
  TimeLimit meeting{120, "--meeting-timeout"};          // for all processes to come
  TimeLimit preparation{1800, "--preparation-timeout"}; // before the first step: libraries' algorithms, connections,
                                                        // data, what is resumed
  TimeLimit step{600, "--step-timeout"};                // without progress in a step; and where processes meet between
                                                        // steps
};

} // namespace cleave::runtime
