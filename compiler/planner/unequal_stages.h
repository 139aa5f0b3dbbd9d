// Pipelines whose stages have different numbers of devices: what a regular mesh cannot say, and nothing can execute
// yet. Priced so that it is known what they would bring.
//
//   8 devices, three blocks and a head as long as two:   [3 blocks] on 4 devices, [head] on 4      a regular mesh
//                                                        [3 blocks] on 5, [head] on 3              samples permitting
//
// One stage a rank, schedule 1f1b; all stages have the same microbatches and ZeRO stage, each its own data parallel
// ways on its own devices. The search gives all the same tensor parallel ways, fewer where a stage's devices do not
// divide by them, and at least two microbatches a stage. A stage lies inside one node or on whole nodes. Devices are
// handed out in parts of a node, or several nodes at a time: at most eight parts in all.
#pragma once
#include "compiler/planner/outer_search.h"

namespace cleave::planner {

struct UnequalStage {
  int64_t devices = 1, tp = 1;
  int firstUnit = 0;
  Recompute recompute = Recompute::None; // of its blocks
};

struct UnequalPlan {
  std::vector<UnequalStage> stages;
  int64_t microbatches = 1;
  int zero = 0;
  double seconds = 0, bytes = 0; // a step's; of the device that needs most
  bool fits = false;
  std::string str() const; // "2+6 devices (tp 2+2)"
};

// Prices one; `stages` says where stages begin, on how many devices and in how many ways. Nothing where samples do not
// divide, or the model cannot be split so.
class UnequalPricing {
public:
  UnequalPricing(const Problem &problem, const ProblemFacts &facts, const Cluster &cluster,
                 const Constraints &constraints);
  ~UnequalPricing();
  // Chooses recomputation of each stage; only a bound of the seconds where that is at least `worth`.
  std::optional<UnequalPlan> price(UnequalPlan plan, double worth);
  // Cuts the units so that the slowest stage is as fast as it can be, memory aside; `plan` has the devices. False where
  // it cannot.
  bool cut(UnequalPlan &plan);

private:
  struct Impl;
  std::unique_ptr<Impl> impl;
};

// The best with stages of different device counts that fits, if any is faster than `worth` seconds. Stops at
// `seconds`, if that is not 0.
std::optional<UnequalPlan> bestUnequalStages(const Problem &problem, const ProblemFacts &facts, const Cluster &cluster,
                                             const Constraints &constraints, double worth, double seconds);

} // namespace cleave::planner
