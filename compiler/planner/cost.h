// What operations and collectives take on a cluster, in seconds: a roofline for the former, latency and bandwidth by
// topology for the latter.
//
//   GroupShape tp{8, 8};                            // 8 ranks, all in one node
//   collectiveSeconds(cluster, Collective::AllReduce, tp, 64e6)   // 64 MB on every rank before and after
#pragma once
#include "compiler/planner/cluster.h"

namespace cleave::planner {

// Ranks that communicate, and how many of them stand in one node (the others in as many nodes as it takes).
struct GroupShape {
  int64_t size = 1;
  int64_t perNode = 1;
};

// Ranks that differ along a mesh axis of `size` whose neighbours are `stride` devices apart. Devices fill nodes in
// order, so the innermost axis (stride 1) lies inside nodes first.
GroupShape groupAlong(const Cluster &cluster, int64_t size, int64_t stride);

enum class Collective : uint8_t { AllReduce, ReduceScatter, AllGather, AllToAll };
const char *name(Collective collective); // "all_reduce", ...

// Seconds of one collective. `bytes` is the size of the whole tensor of the group: what every rank has before an
// all-reduce or a reduce-scatter, what it has after an all-gather, the group's sum of all parts for an all-to-all.
// Ring traffic (Patarasu and Yuan 2009): 2(n-1)/n, (n-1)/n, (n-1)/n and (n-1)/n^2 times `bytes` a rank; latency
// grows with log2(n) (trees; NCCL 2.4). Between nodes, the ranks of the group in one node use their links together.
double collectiveSeconds(const Cluster &cluster, Collective collective, GroupShape group, double bytes);

// An operation's shape on one device.
struct LocalWork {
  double flops = 0, bytes = 0;    // FLOP; bytes read and written
  double smallestDimension = 1e9; // of a matrix product
  bool cheap = false;             // fused with its neighbours: part of the traffic, no launch of its own
};

double operationSeconds(const Cluster &cluster, const std::string &precision, const LocalWork &work);

} // namespace cleave::planner
