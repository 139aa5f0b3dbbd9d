#include "compiler/planner/cost/device_memory.h"
#include "compiler/cluster/device_presets.h"
#include "compiler/tuning.h"
#include <algorithm>

namespace cleave::planner {

double passingBytes(const Cost &rank) {
  return rank.keptOnHost > 0 ? 2 * std::max(rank.keptOnHost / tuning::hostBuckets, rank.largestLeaving) : 0;
}

Workspace workspaceOf(const Setting &setting, const Cost &rank) {
  Workspace space;
  const double gradients = rank.gradients + rank.inRoom;
  space.always = constants::stepScalars * bufferAlignment;
  // Sums become means before the update. Where it needs a number of all of them, all that do not lie there stand beside
  // the sums until then.
  const double means = setting.addsUpGradients() && setting.meetsAtUpdate ? rank.means : 0;
  space.update = means + rank.largestUpdate;
  // A bucket under way: a gradient that is larger is one by itself. The result of its scatter stands beside it, and so
  // does that of the gradient before. With ZeRO-3 the parameters of the operation at work and of the next one.
  if (setting.gradientWays() > 1) {
    const double bucket = std::max(double(tuning::bucketBytes), rank.largestGradient);
    space.buckets = std::min(bucket, gradients + rank.parameters);
    if (setting.zero >= 2) space.scattered = 2 * std::min(bucket / double(setting.zeroWays()), gradients);
  } else if (setting.zero >= 1) { // samples that do not divide: a device cuts its part out of its own gradient
    space.scattered = 2 * std::min(rank.largestGradient / double(setting.zeroWays()), gradients);
  }
  if (setting.zero >= 3) space.gathered = 2 * rank.largestParameter;
  // State that is there, and state that is on its way.
  space.moved = 2 * rank.largestState;
  return space;
}

namespace {

// Bytes at the last microbatch: a gradient that is made, beside the parts of means that were scattered before and wait
// for a number of all gradients; those of the largest gradient are not there while it is made. The loss's workspace,
// which is often the largest, is gone by then.
double besideScattered(const Setting &setting, const Cost &rank) {
  const bool scatters = setting.zero >= 1 && setting.gradientWays() > 1 && setting.addsUpGradients();
  if (!scatters || !setting.meetsAtUpdate) return 0;
  return rank.largestGradient + std::max(0.0, rank.means - rank.largestGradient / double(setting.zeroWays()));
}

} // namespace

double workspaceBytes(const Setting &setting, double largest, const Cost &rank) {
  const Workspace space = workspaceOf(setting, rank);
  return std::max({largest, besideScattered(setting, rank), space.update}) + space.always + space.buckets +
         space.scattered + space.gathered + space.moved;
}

namespace {

double gatheredAgain(const Setting &setting, const Cost &rank) {
  return setting.zero >= 3 && rank.unitsAgain > 0 ? rank.gatheredAgain : 0;
}

// Where no bucket is counted for the batch's axes: one over tp stands beside the sums that it is made of.
double combinedBucket(const Setting &setting, const Cost &rank) {
  if (setting.gradientWays() > 1) return 0;
  return std::min(std::max(double(tuning::bucketBytes), rank.largestGradient), rank.combined);
}

// Bytes of parameters that tp gathers: the block that is read, and the next one.
double gatheredOverTensor(const Cost &rank) {
  return std::min(rank.gathered, 2 * std::max(double(tuning::gatherBlockBytes), rank.largestGathered));
}

} // namespace

double besideOfTensor(const Setting &setting, const Cost &rank) {
  return combinedBucket(setting, rank) + gatheredOverTensor(rank);
}

namespace {

// The workspace that is not for a device's messages to other stages.
double ownWorkspace(const Setting &setting, const Cost &rank) {
  return gatheredAgain(setting, rank) + besideOfTensor(setting, rank) + workspaceBytes(setting, rank.beside, rank) -
         rank.transient;
}

} // namespace

MemoryBreakdown deviceMemory(const Setting &setting, const Cost &rank, double kept, double buffers) {
  const double beyond = rank.kept - rank.activations; // of gradients, the room of activations
  return {rank.parameters,
          rank.gradients + beyond + rank.sums,
          rank.optimizer,
          kept - beyond + rank.keptOfLast + passingBytes(rank) + rank.transient,
          buffers + rank.staged + ownWorkspace(setting, rank),
          rank.host};
}

MemoryByPart memoryByPart(const Setting &setting, const Cost &rank, const MemoryBreakdown &device) {
  const Workspace space = workspaceOf(setting, rank);
  const double always = device.workspace - ownWorkspace(setting, rank) + space.always;
  const double first = setting.addsUpGradients() ? device.gradients : 0;
  const double ofLast = setting.zero >= 2 ? 0 : space.buckets; // those with ZeRO-2 scatter every microbatch's
  return {{first, always + rank.workspace + space.gathered + gatheredOverTensor(rank)},
          {device.gradients, device.workspace - ofLast},
          {device.gradients, device.workspace},
          {rank.gradients + rank.inRoom + rank.sums,
           always + space.update + space.buckets + combinedBucket(setting, rank) + space.moved}};
}

} // namespace cleave::planner
