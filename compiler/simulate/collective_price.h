// A plan's collective on a cluster: its group, the bytes that it is about, and its seconds.
//
//   priceOf(collective, cluster, mesh)     // all_gather over tp=8 of 1 MiB a device: {8 in a node}, 8 MiB, 38e-6 s
#pragma once
#include "compiler/cluster/cost.h"
#include "plan/plan.pb.h"
#include "runtime/base/sharding/mesh.h"

namespace cleave::simulate {

struct CollectivePrice {
  planner::GroupShape group;
  double bytes =
      0; // of the tensors as the group has them together (planner::collectiveSeconds); of a shift, of one device
  double seconds = 0; // with nothing beside it
};
CollectivePrice priceOf(const plan::Collective &collective, const planner::Cluster &cluster, const dist::Mesh &mesh);

} // namespace cleave::simulate
