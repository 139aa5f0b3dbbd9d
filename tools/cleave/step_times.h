// Steps of a plan that are run to be timed: bench and tune share them.
//
//   StepRun run{.warmup = 3, .steps = 20};
//   Result<StepTimes> times = timeSteps(plan, run);   // times->seconds[19]: of step 23
#pragma once
#include "plan/plan.pb.h"
#include "runtime/base/status.h"
#include <string>
#include <vector>

namespace cleave::tool {

struct StepRun {
  std::string data = {}, model = {}; // as of TrainOptions; empty: the plan's
  int threads = 0;                   // a device; 0: as the plan says
  int64_t warmup = 3, steps = 20;    // steps that are not timed, and those that are
};

struct StepTimes {
  std::vector<double> seconds; // of the timed steps, in their order; none: another process has them
  int64_t bytes = 0;           // on the fullest device
};

Result<StepTimes> timeSteps(const plan::Plan &plan, const StepRun &run);

inline constexpr int64_t tracedSteps = 3; // after the warm-up, in a run of its own: writing a trace costs time
// A file that is removed with this.
class StepTrace {
public:
  StepTrace();
  ~StepTrace();
  StepTrace(const StepTrace &) = delete;
  StepTrace &operator=(const StepTrace &) = delete;

  Status write(const plan::Plan &plan, const StepRun &run);
  const std::string path;
};

// Sorted seconds: the value that this part of them do not exceed (nearest rank).
double percentile(const std::vector<double> &sorted, double part);

} // namespace cleave::tool
