// What all processes of a run do together beside their steps, over one tree (tree_operation.h). All call the same in
// the same order; errors are those of all of them: a rank is gone, or does not answer within the limit.
//
//   ControlPlane control(endpoint, abort);      // ControlPlane alone;  where there is one process
//   Result<uint64_t> largest = control.allReduceMax(7, limits.step);
#pragma once
#include "runtime/base/time_limits.h"
#include "runtime/engine/comm/tree_operation.h"
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace cleave::runtime {

class ControlPlane {
public:
  ControlPlane() = default;
  // `grace`: seconds that it goes on for when the run is aborted.
  ControlPlane(Endpoint &endpoint, const AbortFlag &abort, double grace = 0)
      : endpoint(&endpoint), abort(&abort), grace(grace) {}
  // Ok until something has failed: from then on all fails at once, for the same reason.
  const Status &state() const { return lost; }
  int rank() const { return endpoint ? endpoint->rank() : 0; }
  int size() const { return endpoint ? endpoint->size() : 1; }
  Status barrier(TimeLimit limit);
  Result<bool> allEqual(uint64_t digest, TimeLimit limit);
  Result<uint64_t> allReduceMax(uint64_t mine, TimeLimit limit);
  Status broadcast(std::span<std::byte> bytes, TimeLimit limit);                        // rank 0's
  Result<std::vector<std::string>> allGather(const std::string &mine, TimeLimit limit); // by rank
  Result<std::string> fromRank0(const std::string &text, TimeLimit limit);
  // Ok where it is on all ranks. A rank that failed gets its own status, the others that of the first rank that did.
  Status outcome(const Status &mine, TimeLimit limit);
  // Called in place of endpoint.wait where it is set; it returns soon.
  std::function<void()> whileWaiting;

private:
  Result<std::string> run(std::string mine, TreeOperation::Combine combine, TimeLimit limit);
  Endpoint *endpoint = nullptr;
  const AbortFlag *abort = nullptr;
  double grace = 0;
  Status lost;
};

} // namespace cleave::runtime
