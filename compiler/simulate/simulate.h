// A step of a plan, command by command: each takes what it costs on a cluster, waits for the events, actions and messages
// that the runtime waits for, and lies on its lane (a GPU's stream). One device stands for all that run its program.
//
//   Result<SimulatedStep> step = simulateStep(plan, cluster);
//   step->seconds                              // 12.3e-3
//   step->commands                             // in the order of their begin on each lane: begin, end
#pragma once
#include "compiler/simulate/command_price.h"
#include "runtime/base/status.h"

namespace cleave::simulate {

struct SimulatedCommand {
  int64_t device = 0; // that stands for its program's
  int lane = 0;
  const plan::Command *command = nullptr;
  const plan::Action *action = nullptr;
  const plan::Fragment *fragment = nullptr;
  double begin = 0, end = 0; // seconds from the step's begin
};

struct SimulatedTotal {
  std::string kind;
  double count = 0, launches = 0, flops = 0, bytes = 0, seconds = 0; // of a step on one device: the mean of programs
};

struct SimulatedStep {
  double seconds = 0;
  double computeSeconds = 0;              // busy, on the fullest device
  double communicationSeconds = 0;        // likewise, on any of its other lanes
  int64_t count = 0;                      // commands of all programs
  std::vector<SimulatedTotal> totals;     // longest first
  std::vector<SimulatedCommand> commands; // only where they are asked for
};

// Error: the plan's mesh has not as many devices as the cluster; its programs wait for each other.
Result<SimulatedStep> simulateStep(const plan::Plan &plan, const planner::Cluster &cluster, bool keepsCommands = false);

} // namespace cleave::simulate
