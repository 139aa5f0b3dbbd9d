// Pipelines whose stages have different numbers of devices: what a regular mesh cannot say, and nothing can execute
// yet. Priced so that it is known what they would bring, as equal stages are (stage_plan.h).
//
//   8 devices, three blocks and a head as long as two:   [3 blocks] on 4 devices, [head] on 4      a regular mesh
//                                                        [3 blocks] on 5, [head] on 3              samples permitting
//
// One stage a rank, schedule 1f1b; all stages have the same microbatches and ZeRO stage, each its own data and tensor
// parallel ways on its own devices, and the fastest split of operations for these. The search gives a stage at most
// eight tensor parallel ways, and at least two microbatches a stage. A stage lies inside one node or on whole nodes.
// Devices are handed out in parts of a node, or several nodes at a time: at most eight parts in all.
#pragma once
#include "compiler/planner/search/driver/outer_search.h"
#include "compiler/planner/search_clock.h"

namespace cleave::planner {

struct UnequalStage {
  int64_t devices = 1, tp = 1;
  int firstUnit = 0;
};

struct UnequalPlan {
  std::vector<UnequalStage> stages;
  int64_t microbatches = 1;
  int zero = 0;
  Recompute recompute = Recompute::None; // of most blocks
  double seconds = 0, bytes = 0;         // a step's; of the device that needs most
  bool fits = false;
  std::string str() const; // "2+6 devices (tp 2+2)"
};

// Prices one; `stages` says where stages begin, on how many devices and in how many ways.
class UnequalPricing {
public:
  UnequalPricing(const Problem &problem, const ProblemFacts &facts, const Cluster &cluster,
                 const Constraints &constraints);
  ~UnequalPricing();
  // Chooses recomputation of each block. Nothing where samples do not divide, or the model cannot be split so.
  std::optional<UnequalPlan> price(UnequalPlan plan);
  // Chooses where stages begin and their tensor parallel ways, of which `plan` has only the devices: so that the
  // slowest stage is as fast as it can be within the memory, then by single changes. Nothing where no such plan fits
  // that is faster than `worth` seconds.
  std::optional<UnequalPlan> choose(UnequalPlan plan, double worth, const SearchClock &clock);

private:
  struct Impl;
  std::unique_ptr<Impl> impl;
};

// The best with stages of different device counts that fits, if any is faster than `worth` seconds, of those that were
// looked at until the clock was over.
std::optional<UnequalPlan> bestUnequalStages(const Problem &problem, const ProblemFacts &facts, const Cluster &cluster,
                                             const Constraints &constraints, double worth, const SearchClock &clock);

} // namespace cleave::planner
