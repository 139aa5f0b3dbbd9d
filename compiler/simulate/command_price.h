// The seconds of a plan's commands on a cluster, by the cost model that the planner prices operations with
// (compiler/cluster/cost.h).
//
//   CommandPrices prices(plan, cluster, mesh);
//   prices.of(command, /*device=*/0)          // {work, 1.2e-3 s}; of a send the time until it has arrived
#pragma once
#include "compiler/simulate/command_work.h"
#include "runtime/base/sharding/mesh.h"

namespace cleave::simulate {

struct CommandPrice {
  CommandWork work;
  double seconds = 0;
};

// A copy between a device and its host's memory.
bool isWithHost(const plan::Command &command);

class CommandPrices {
public:
  CommandPrices(const plan::Plan &plan, const planner::Cluster &cluster, const dist::Mesh &mesh);
  CommandPrice of(const plan::Command &command, int64_t device) const;

private:
  double computeSeconds(const plan::Command &command, const CommandWork &work) const;
  std::string precisionOf(const plan::Buffer &operand) const;

  const plan::Plan &plan;
  const planner::Cluster &cluster;
  const dist::Mesh &mesh;
  PlanWork works;
  double weightSecondsPerByte = 0; // of memory that all weights pass through
};

} // namespace cleave::simulate
