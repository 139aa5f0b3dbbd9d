// What all ranks of a run do together beside their steps, over one tree (tree_operation.h). All processes call the same
// in the same order; errors are those of all of them: a rank is gone, or does not answer within so many seconds.
//
//   ControlPlane control(endpoint, abort);
//   Result<uint64_t> largest = control.allReduceMax(7, 600);
#pragma once
#include "runtime/comm/tree_operation.h"
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace cleave::runtime {

class ControlPlane {
public:
  ControlPlane(Endpoint &endpoint, const AbortFlag &abort) : endpoint(endpoint), abort(abort) {}
  Status barrier(double seconds);
  Result<bool> allEqual(uint64_t digest, double seconds);
  Result<uint64_t> allReduceMax(uint64_t mine, double seconds);
  Status broadcast(std::span<std::byte> bytes, double seconds); // rank 0's
  Result<std::vector<std::string>> allGather(const std::string &mine, double seconds); // by rank
  // In place of sleeping until something arrives.
  std::function<void()> whileWaiting;

private:
  Result<std::string> run(std::string mine, TreeOperation::Combine combine, double seconds);
  Endpoint &endpoint;
  const AbortFlag &abort;
};

} // namespace cleave::runtime
