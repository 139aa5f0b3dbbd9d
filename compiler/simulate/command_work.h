// What a command of a plan has to do on one device: arithmetic, bytes, starts. Free of MLIR, and of any device.
//
//   PlanWork work(plan);
//   CommandWork product = work.of(command);   // 2 m n k FLOP, the bytes of its operands and its result, one launch
#pragma once
#include "compiler/cluster/cost.h"
#include "plan/plan.pb.h"
#include <array>
#include <vector>

namespace cleave::simulate {

double bytesOf(const plan::Buffer &buffer);

struct CommandWork {
  double flops = 0;                                     // of products and convolutions
  double bytes = 0;                                     // read and written; 0 of collectives and transfers
  double launches = 1;                                  // kernels and library calls
  std::array<double, planner::elementWorks> elements{}; // FLOP of what is memory bound, by kind of work
  double exponentials = 0;                              // of attention, in the backward pass as many as it takes
  planner::Product product;                             // where there are `flops`
};

class PlanWork {
public:
  explicit PlanWork(const plan::Plan &plan);
  CommandWork of(const plan::Command &command) const;

private:
  // Of a launch of `extent`; `per` 0: of any launch.
  struct KernelWork {
    std::array<double, planner::elementWorks> flops{};
    double per = 0; // elements of the extent that these are of
  };
  void addLaunch(const plan::Launch &launch, CommandWork &work) const;

  const plan::Plan &plan;
  std::vector<KernelWork> kernels;
};

} // namespace cleave::simulate
