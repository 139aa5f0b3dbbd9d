#include "compiler/planner/cost.h"
#include "compiler/planner/device_presets.h"
#include <algorithm>
#include <cmath>

namespace cleave::planner {

GroupShape groupAlong(const Cluster &cluster, int64_t size, int64_t stride) {
  int64_t inside = std::max<int64_t>(1, cluster.devicesPerNode / std::max<int64_t>(1, stride));
  return {size, std::min(size, inside)};
}

const char *name(Collective collective) {
  switch (collective) {
  case Collective::AllReduce:
    return "all_reduce";
  case Collective::ReduceScatter:
    return "reduce_scatter";
  case Collective::AllGather:
    return "all_gather";
  case Collective::AllToAll:
    return "all_to_all";
  }
  return "";
}

double collectiveSeconds(const Cluster &cluster, Collective collective, GroupShape group, double bytes) {
  if (group.size <= 1 || bytes <= 0) return 0;
  double n = double(group.size), traffic = (n - 1) / n * bytes;
  if (collective == Collective::AllReduce) traffic *= 2;
  bool crosses = group.size > group.perNode;
  double bandwidth = cluster.node.bandwidth;
  if (collective == Collective::AllToAll) {
    traffic /= n;
    // Most of it goes to other nodes, over the rank's own share.
    if (crosses) bandwidth = std::min(bandwidth, cluster.network.bandwidth * n / (n - double(group.perNode)));
  } else if (crosses) {
    bandwidth = std::min(bandwidth, cluster.network.bandwidth * double(group.perNode));
  }
  double steps = std::ceil(std::log2(n)) * (collective == Collective::AllReduce ? 2 : 1);
  double latency = steps * (crosses ? cluster.network.latency : cluster.node.latency);
  return latency + traffic / bandwidth;
}

double operationSeconds(const Cluster &cluster, const std::string &precision, const LocalWork &work) {
  const Device &device = cluster.device;
  double efficiency = device.computeEfficiency, traffic = work.bytes;
  if (work.cheap)
    traffic *= constants::fusedTraffic;
  else
    efficiency *= work.smallestDimension / (work.smallestDimension + constants::halfRateDimension);
  double compute = work.flops / (device.flopsAt(precision) * std::max(0.02, efficiency));
  double memory = traffic / (device.memoryBandwidth * device.bandwidthEfficiency);
  return std::max(compute, memory) + device.launchSeconds * (work.cheap ? constants::fusedTraffic : 1.0);
}

} // namespace cleave::planner
