// Message buffers between the stages of a pipeline: what a device sends to which peer, how large, how many in flight.
//
//   forward.0 sends y[4x64xf32] to device 4 twice a step, one an action  ->  {from 0, to 4, channel 0, 1024 bytes, 2
//   buffers}
#pragma once
#include "plan/plan.pb.h"
#include "runtime/base/sharding/mesh.h"
#include <cstdint>
#include <vector>

namespace cleave::runtime {

// All messages of one channel between an ordered pair of devices; of a device to itself where it has both stages.
// `buffers`: so many sends are done before the first of them is received, however late that is.
struct MessageRoute {
  int64_t from = 0, to = 0;
  int channel = 0;
  int64_t bytes = 0; // of the largest message
  int buffers = 0;
};

// The routes that begin or end at `device`, over all routines; by peer and channel, those it sends on
// first; one to itself is named once.
std::vector<MessageRoute> routesOf(const plan::Plan &plan, const dist::Mesh &mesh, int64_t device);

} // namespace cleave::runtime
