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

// How a device spends a step, seconds: its commands' time, those that lie beside each other counted once.
struct DeviceTimes {
  int64_t device = 0;
  double compute = 0, communication = 0, hostCopies = 0;
  double overlapped = 0; // of the compute: beside either of the others
};

struct SimulatedStep {
  double seconds = 0;
  DeviceTimes fullest;                    // the device that is longest at work
  double count = 0;                       // commands of one device: the mean of programs
  std::vector<SimulatedTotal> totals;     // longest first
  std::vector<SimulatedCommand> commands; // only where they are asked for
};

// Verifies the plan first (runtime::verifyPlan). Error: what is wrong with it; its mesh has not as many devices as the
// cluster; the step takes longer than a trace can hold.
Result<SimulatedStep> simulateStep(const plan::Plan &plan, const planner::Cluster &cluster, bool keepsCommands = false);

// Which of the steps it is where they differ: "the longest of 3 lengths"; else "".
std::string simulatedShape(const plan::Plan &plan);

} // namespace cleave::simulate
