#include "compiler/planner/unit_costs.h"
#include "compiler/planner/device_presets.h"
#include <algorithm>

namespace cleave::planner {

UnitMemory &UnitMemory::operator+=(const UnitMemory &other) {
  kept += other.kept;
  held += other.held;
  keptOnHost += other.keptOnHost;
  largestLeaving = std::max(largestLeaving, other.largestLeaving);
  transient = std::max(transient, other.transient);
  keptOfLast += other.keptOfLast;
  workspace = std::max(workspace, other.workspace);
  beside = std::max(beside, other.beside);
  isAgain |= other.isAgain;
  return *this;
}

double UnitMemory::passing() const {
  return keptOnHost > 0 ? 2 * std::max(keptOnHost / constants::hostBuckets, largestLeaving) : 0;
}

UnitMemory UnitMemory::times(double count) const {
  UnitMemory all = *this;
  for (double *part : {&all.kept, &all.held, &all.keptOnHost, &all.keptOfLast}) *part *= count;
  return all;
}

UnitActivity &UnitActivity::operator+=(const UnitActivity &other) {
  UnitMemory::operator+=(other);
  forward += other.forward;
  backwardInput += other.backwardInput;
  backwardWeight += other.backwardWeight;
  communication += other.communication;
  again += other.again;
  waiting += other.waiting;
  return *this;
}

UnitActivity UnitActivity::times(double count) const {
  UnitActivity all = *this;
  static_cast<UnitMemory &>(all) = UnitMemory::times(count);
  for (double *part :
       {&all.forward, &all.backwardInput, &all.backwardWeight, &all.communication, &all.again, &all.waiting})
    *part *= count;
  return all;
}

UnitState UnitState::times(double count) const {
  UnitState all = *this;
  for (double *part : {&all.parameters, &all.gradients, &all.optimizer, &all.update, &all.exposed, &all.hideable,
                       &all.hideableLower, &all.elements, &all.host, &all.hostSeconds, &all.hostExposed})
    *part *= count;
  return all;
}

UnitState &UnitState::operator+=(const UnitState &other) {
  parameters += other.parameters;
  gradients += other.gradients;
  optimizer += other.optimizer;
  host += other.host;
  hostSeconds += other.hostSeconds;
  hostExposed += other.hostExposed;
  update += other.update;
  exposed += other.exposed;
  hideable += other.hideable;
  hideableLower += other.hideableLower;
  largestParameter = std::max(largestParameter, other.largestParameter);
  largestGradient = std::max(largestGradient, other.largestGradient);
  gatheredAgain = std::max(gatheredAgain, other.gatheredAgain);
  elements += other.elements;
  return *this;
}

double workspaceBytes(const Setting &setting, double largest, const UnitState &state) {
  double bytes = largest;
  // A bucket under way: a gradient that is larger is one by itself. What it is scattered to stands beside it, and so
  // does that of the gradient before. With ZeRO-3 the parameters of the operation at work and of the next one.
  if (setting.gradientWays() > 1) {
    const double bucket = std::max(constants::bucketBytes, state.largestGradient);
    bytes += std::min(bucket, state.gradients + state.parameters);
    if (setting.zero >= 2) bytes += 2 * std::min(bucket / double(setting.zeroWays()), state.gradients);
  }
  if (setting.zero >= 3) bytes += 2 * state.largestParameter;
  // State that is there, and state that is on its way.
  if (movesState(setting.offload))
    bytes += 2 * setting.stateRatio * state.largestParameter / double(setting.zero >= 1 ? setting.zeroWays() : 1);
  return bytes;
}

MemoryBreakdown deviceMemory(const Setting &setting, const UnitState &state, const UnitMemory &work, double kept,
                             double buffers) {
  const double gathered = setting.zero >= 3 && work.isAgain ? state.gatheredAgain : 0;
  return {state.parameters,
          state.gradients,
          state.optimizer,
          kept + work.keptOfLast + work.passing() + work.transient,
          buffers - work.transient + gathered + workspaceBytes(setting, work.beside, state),
          state.host};
}

} // namespace cleave::planner
