#include "compiler/planner/cost/unit_costs.h"
#include "compiler/cluster/device_presets.h"
#include <algorithm>

namespace cleave::planner {

double UnitMemory::passing() const {
  return keptOnHost > 0 ? 2 * std::max(keptOnHost / constants::hostBuckets, largestLeaving) : 0;
}

UnitState &UnitState::add(const UnitState &one, double count) {
  parameters += count * one.parameters;
  gradients += count * one.gradients;
  means += count * one.means;
  sums += count * one.sums;
  optimizer += count * one.optimizer;
  host += count * one.host;
  hostSeconds += count * one.hostSeconds;
  hostExposed += count * one.hostExposed;
  update += count * one.update;
  exposed += count * one.exposed;
  hideable += count * one.hideable;
  hideableLower += count * one.hideableLower;
  hideableLinks.add(one.hideableLinks, count);
  largestParameter = std::max(largestParameter, one.largestParameter);
  largestGradient = std::max(largestGradient, one.largestGradient);
  largestUpdate = std::max(largestUpdate, one.largestUpdate);
  largestState = std::max(largestState, one.largestState);
  gatheredAgain = std::max(gatheredAgain, one.gatheredAgain);
  elements += count * one.elements;
  return *this;
}

Workspace workspaceOf(const Setting &setting, const UnitState &state) {
  Workspace space;
  space.always = constants::stepScalars * bufferAlignment;
  // Sums become means before the update. Where it needs a number of all of them, all that do not lie there stand beside
  // the sums until then.
  const double means = setting.addsUpGradients() && setting.meetsAtUpdate ? state.means : 0;
  space.update = means + state.largestUpdate;
  // A bucket under way: a gradient that is larger is one by itself. What it is scattered to stands beside it, and so
  // does that of the gradient before. With ZeRO-3 the parameters of the operation at work and of the next one.
  if (setting.gradientWays() > 1) {
    const double bucket = std::max(constants::bucketBytes, state.largestGradient);
    space.buckets = std::min(bucket, state.gradients + state.parameters);
    if (setting.zero >= 2) space.scattered = 2 * std::min(bucket / double(setting.zeroWays()), state.gradients);
  } else if (setting.zero >= 1) { // samples that do not divide: a device cuts its part out of its own gradient
    space.scattered = 2 * std::min(state.largestGradient / double(setting.zeroWays()), state.gradients);
  }
  if (setting.zero >= 3) space.gathered = 2 * state.largestParameter;
  // State that is there, and state that is on its way.
  space.moved = 2 * state.largestState;
  return space;
}

namespace {

// Of the last microbatch: a gradient that is made, beside the parts of means that were scattered before and wait for a
// number of all gradients; those of the largest gradient are not there while it is made. What the loss has in hand,
// which is often most, is gone by then.
double besideScattered(const Setting &setting, const UnitState &state) {
  const bool scatters = setting.zero >= 1 && setting.gradientWays() > 1 && setting.addsUpGradients();
  if (!scatters || !setting.meetsAtUpdate) return 0;
  return state.largestGradient + std::max(0.0, state.means - state.largestGradient / double(setting.zeroWays()));
}

} // namespace

double workspaceBytes(const Setting &setting, double largest, const UnitState &state) {
  const Workspace space = workspaceOf(setting, state);
  return std::max({largest, besideScattered(setting, state), space.update}) + space.always + space.buckets +
         space.scattered + space.gathered + space.moved;
}

namespace {

double gatheredAgain(const Setting &setting, const UnitState &state, const UnitMemory &work) {
  return setting.zero >= 3 && work.isAgain ? state.gatheredAgain : 0;
}

// Where no bucket is counted for the batch's axes: one over tp stands beside the sums that it is made of.
double combinedBucket(const Setting &setting, const UnitState &state, const UnitMemory &work) {
  if (setting.gradientWays() > 1) return 0;
  return std::min(std::max(constants::bucketBytes, state.largestGradient), work.combined);
}

// Of parameters that tp gathers: the block that is read, and the next one.
double gatheredOverTensor(const UnitMemory &work) {
  return std::min(work.gathered, 2 * std::max(constants::gatherBlockBytes, work.largestGathered));
}

} // namespace

double besideOfTensor(const Setting &setting, const UnitState &state, const UnitMemory &work) {
  return combinedBucket(setting, state, work) + gatheredOverTensor(work);
}

namespace {

// What is not for a device's messages to other stages.
double ownWorkspace(const Setting &setting, const UnitState &state, const UnitMemory &work) {
  return gatheredAgain(setting, state, work) + besideOfTensor(setting, state, work) +
         workspaceBytes(setting, work.beside, state) - work.transient;
}

} // namespace

MemoryBreakdown deviceMemory(const Setting &setting, const UnitState &state, const UnitMemory &work, double kept,
                             double buffers) {
  return {state.parameters,
          state.gradients + state.sums + work.sums,
          state.optimizer,
          kept + work.keptOfLast + work.passing() + work.transient,
          buffers + ownWorkspace(setting, state, work),
          state.host};
}

MemoryByPart memoryByPart(const Setting &setting, const UnitState &state, const UnitMemory &work,
                          const MemoryBreakdown &device) {
  const Workspace space = workspaceOf(setting, state);
  const double always = device.workspace - ownWorkspace(setting, state, work) + space.always;
  const double first = setting.addsUpGradients() ? device.gradients : 0;
  const double ofLast = setting.zero >= 2 ? 0 : space.buckets; // those with ZeRO-2 scatter every microbatch's
  return {
      {first, always + work.workspace + space.gathered + gatheredOverTensor(work)},
      {device.gradients, device.workspace - ofLast},
      {device.gradients, device.workspace},
      {device.gradients, always + space.update + space.buckets + combinedBucket(setting, state, work) + space.moved}};
}

} // namespace cleave::planner
