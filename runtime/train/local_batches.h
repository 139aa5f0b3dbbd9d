// Batches of which each process of a run passes its own part, as torch's DistributedSampler gives them out.
//
//   Result<SampleRange> own = samplesRead(plan, executor);         // dp=2, 8 samples a microbatch: rank 1 has {4, 4}
//   Status s = checkSameParts(control, *own, digests, limit);      // before a step, on all processes
#pragma once
#include "plan/plan.pb.h"
#include "runtime/base/status.h"
#include "runtime/engine/comm/control_plane.h"
#include "runtime/engine/executor/executor.h"
#include <map>
#include <string>

namespace cleave::runtime {

// Samples of a microbatch that the devices of a process read: all of them where one process runs all devices.
struct SampleRange {
  int64_t begin = 0, count = 0;
  bool operator==(const SampleRange &) const = default;
};

// In the step of each shape (step_shapes.h), the same of every input, whether this process' devices read it or not.
// Error: inputs differ, or the devices read samples that do not lie side by side.
Result<std::vector<SampleRange>> samplesRead(const plan::Plan &plan, const Executor &executor);

// Processes with the same samples, such as those of one group of tp or pp, have to pass equal arrays. `digests`: of
// this process' arrays, by the input's name. Error, on all processes: which ranks differ, and in which input.
Status checkSameParts(ControlPlane &control, const SampleRange &own, const std::map<std::string, std::string> &digests,
                      TimeLimit limit);

// Before each batch, and once after the last: error, on all processes, where some have one more and others have not.
Status agreeOnMore(ControlPlane &control, bool hasMore, TimeLimit limit);

} // namespace cleave::runtime
