#include "compiler/cluster/cost.h"
#include "compiler/cluster/device_presets.h"
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

namespace cleave::planner {

namespace {

// Under one node, or one switch, of a tier that lies between devices.
int64_t devicesWithin(const Cluster &cluster, Tier tier) {
  return (tier == inNode ? 1 : cluster.levels[tier - 1].nodes) * cluster.devicesPerNode;
}

// Where groups along an axis meet nodes or switches of so many devices. Groups fill blocks of size * stride devices one
// after the other, `meshDevices` in all; in a block, switches end at multiples of gcd(block, devices) from its first
// device on, and at all of them in some block, if there are enough switches. The last one may have fewer devices.
struct Borders {
  Borders(const AxisPlace &axis, int64_t devices, int64_t meshDevices)
      : block(axis.size * axis.stride), devices(devices), step(std::gcd(block, devices)),
        used(std::max<int64_t>(1, meshDevices / block) * block), areAll(used % std::lcm(block, devices) == 0) {}

  template <class Take> void each(const Take &take) const {
    for (int64_t border = 1; border < block / step && border * devices < used; ++border)
      if (const int64_t place = border * devices % block; place > 0) take(place);
  }
  // Devices of the smallest part that a border cuts off a block; the block's where there is none.
  int64_t smallestPart() const {
    int64_t least = areAll ? step : block;
    if (!areAll) each([&](int64_t place) { least = std::min({least, place, block - place, devices}); });
    return least;
  }
  // Is there one behind the place `first`, and no farther than `last`?
  bool areBetween(int64_t first, int64_t last) const {
    if (areAll) return first / step != last / step;
    bool isBetween = false;
    each([&](int64_t place) { isBetween |= first < place && place <= last; });
    return isBetween;
  }

  const int64_t block, devices, step, used;
  const bool areAll;
};

// The ranks of the group and switch with fewest. A part of a block is shared out to `stride` groups in turns, device by
// device.
int64_t fewestWithin(const AxisPlace &axis, int64_t devices, int64_t meshDevices) {
  const Borders borders(axis, devices, meshDevices);
  const int64_t least = borders.smallestPart();
  return least == borders.block ? axis.size : std::max<int64_t>(1, least / axis.stride);
}

GroupShape groupAlong(const Cluster &cluster, const AxisPlace &axis, int64_t meshDevices) {
  GroupShape group{axis.size, fewestWithin(axis, cluster.devicesPerNode, meshDevices)};
  for (size_t l = 0; l < cluster.levels.size(); ++l)
    group.perSwitch[l] =
        std::max(group.perNode, fewestWithin(axis, devicesWithin(cluster, l + betweenNodes), meshDevices));
  return group;
}

} // namespace

GroupShape groupAlong(const Cluster &cluster, int64_t size, int64_t stride) {
  return groupAlong(cluster, AxisPlace{size, stride}, cluster.numDevices());
}

GroupShape groupAlong(const Cluster &cluster, std::span<const AxisPlace> axes, int64_t meshDevices) {
  GroupShape group;
  for (size_t first = 0, next = 0; first < axes.size(); first = next) {
    AxisPlace place{1, axes[first].stride};
    for (next = first; next < axes.size() && axes[next].stride == place.size * place.stride; ++next)
      place.size *= axes[next].size;
    group *= groupAlong(cluster, place, meshDevices);
  }
  return group;
}

bool isAligned(const Cluster &cluster, const AxisPlace &axis) {
  const int64_t block = axis.size * axis.stride;
  for (Tier tier = inNode; tier < cluster.levels.size() + betweenNodes; ++tier) {
    const int64_t devices = devicesWithin(cluster, tier);
    if (devices % block == 0 || devices >= cluster.numDevices()) continue;
    if (block % devices != 0 || (devices % axis.stride != 0 && axis.stride % devices != 0)) return false;
  }
  return true;
}

Tier tierAlong(const Cluster &cluster, const AxisPlace &axis, int64_t rank, int64_t other) {
  const int64_t first = std::min(rank, other) * axis.stride, last = (std::max(rank, other) + 1) * axis.stride - 1;
  const Tier highest = cluster.levels.size() + betweenNodes;
  Tier tier = inNode;
  while (rank != other && tier < highest &&
         Borders(axis, devicesWithin(cluster, tier), cluster.numDevices()).areBetween(first, last))
    ++tier;
  return tier;
}

GroupShape &GroupShape::operator*=(const GroupShape &other) {
  size *= other.size;
  perNode *= other.perNode;
  for (size_t l = 0; l < perSwitch.size(); ++l) perSwitch[l] *= other.perSwitch[l];
  return *this;
}

GroupShape pairAcross(Tier tier) {
  GroupShape pair{2, tier == inNode ? 2 : 1};
  for (size_t l = 0; l < pair.perSwitch.size(); ++l) pair.perSwitch[l] = tier > l + betweenNodes ? 1 : 2;
  return pair;
}

Tier tierBetween(const Cluster &cluster, int64_t device, int64_t other) {
  const int64_t nodes[] = {device / cluster.devicesPerNode, other / cluster.devicesPerNode};
  if (nodes[0] == nodes[1]) return inNode;
  Tier tier = betweenNodes;
  for (const NetworkLevel &level : cluster.levels) tier += nodes[0] / level.nodes != nodes[1] / level.nodes;
  return tier;
}

Tier tierOf(const Cluster &cluster, const GroupShape &group) {
  const Tier highest = cluster.levels.size() + betweenNodes;
  Tier tier = inNode;
  while (tier < highest && group.within(tier) < group.size) ++tier;
  return tier;
}

bool crossesCards(const Cluster &cluster, int64_t perNode) {
  const bool isShared = cluster.networkSharedBy > 1 && cluster.networkSharedBy < cluster.devicesPerNode;
  return isShared && perNode > 1 && perNode < cluster.devicesPerNode;
}

namespace {

// Devices that read each other's memory: every rank sums up its part of all (reads n parts, writes one) and copies the
// others' sums; of what is gathered or exchanged it copies its own part too. `bandwidth` counts reads and writes. Where
// all of it is in caches what others have written there takes the time, whatever is done with it: `cacheBandwidth`
// counts reads of that. `latency` is of a collective of all devices, of fewer (measured on four devices that share two
// cores: 50 us all, 26 us two) it grows with log2.
double sharedMemorySeconds(const Cluster &cluster, Collective collective, double n, double bytes, double distance) {
  Link link = cluster.node;
  link.latency *= std::log2(n) / std::max(1.0, std::log2(double(cluster.devicesPerNode)));
  if (std::max(bytes, distance) <= cluster.device.cacheBytes() && link.cacheBandwidth > 0) {
    const double others = (n - 1) / n * bytes;
    return link.latency + (collective == Collective::AllToAll ? others / n : others) / link.cacheBandwidth;
  }
  double reduced = bytes + bytes / n, copied = 2 * (n - 1) / n * bytes;
  switch (collective) {
  case Collective::AllReduce:
    return link.latency + (reduced + copied) / link.bandwidth;
  case Collective::ReduceScatter:
    return link.latency + reduced / link.bandwidth;
  case Collective::AllGather:
    return link.latency + 2 * bytes / link.bandwidth;
  case Collective::AllToAll:
    return link.latency + 2 * bytes / n / link.bandwidth;
  default: // no split broadcasts or shifts
    return 0;
  }
}

struct Share {
  double bandwidth = 0, latency = 0; // bytes/s of a device, seconds
};

Share shareOf(const Cluster &cluster, Tier tier) {
  if (tier == inNode) return {cluster.node.bandwidth, cluster.node.latency};
  const double efficiency = constants::networkEfficiency;
  if (tier == betweenNodes) return {cluster.network.bandwidth * efficiency, cluster.network.latency};
  const NetworkLevel &level = cluster.levels[tier - betweenNodes - 1];
  return {level.bandwidth * efficiency, level.latency};
}

// The seconds of a group's traffic between nodes, at the slowest level that it crosses. `traffic`: bytes of a rank.
double networkSeconds(const Cluster &cluster, Collective collective, const GroupShape &group, double traffic) {
  const double n = double(group.size);
  double slowest = 0;
  for (Tier tier = betweenNodes; tier <= tierOf(cluster, group); ++tier) {
    double between = shareOf(cluster, tier).bandwidth;
    const int64_t together = group.within(tier - 1);
    if (collective == Collective::AllToAll) {
      between *= n / (n - double(together)); // most of it goes elsewhere, over the rank's own share
    } else {
      between *= double(together);
      if (tier == betweenNodes && crossesCards(cluster, together)) between *= constants::acrossCards;
    }
    slowest = std::max(slowest, traffic / between);
  }
  return slowest;
}

// Bytes of one rank.
struct Moved {
  double traffic = 0, local = 0; // over links; through its own memory
};

Moved movedBy(Collective collective, double n, double bytes) {
  Moved moved{(n - 1) / n * bytes, constants::localPass * bytes};
  if (collective == Collective::AllReduce)
    moved.traffic *= 2;
  else
    moved.local /= 2;
  if (collective == Collective::AllToAll) {
    moved.traffic /= n;
    moved.local /= n;
  }
  return moved;
}

} // namespace

double collectiveSeconds(const Cluster &cluster, Collective collective, GroupShape group, double bytes,
                         double distance) {
  if (group.size <= 1 || bytes <= 0) return 0;
  if (cluster.node.topology == Link::Topology::Memory)
    return sharedMemorySeconds(cluster, collective, double(group.size), bytes, distance);
  const double n = double(group.size);
  const auto [traffic, local] = movedBy(collective, n, bytes);
  const double transfer =
      std::max((traffic + local) / cluster.node.bandwidth, networkSeconds(cluster, collective, group, traffic));
  double steps = 1 + std::log2(n);
  if (collective != Collective::AllReduce) steps /= 2;
  const double farthest = shareOf(cluster, tierOf(cluster, group)).latency;
  double latency = steps * farthest;
  if ((collective == Collective::AllGather || collective == Collective::ReduceScatter) && !cluster.device.isCpu()) {
    const double nodes = std::ceil(n / double(group.perNode));
    latency = std::max(latency, (n - nodes) * constants::ringStepInNode * cluster.node.latency +
                                    (nodes - 1) * constants::ringStepBetweenNodes * farthest);
  }
  return latency + transfer;
}

LinkSeconds linkSeconds(const Cluster &cluster, Collective collective, const GroupShape &group, double bytes) {
  if (group.size <= 1 || bytes <= 0) return {};
  const double n = double(group.size);
  if (cluster.node.topology == Link::Topology::Memory)
    return {sharedMemorySeconds(cluster, collective, n, bytes, 0), 0};
  const auto [traffic, local] = movedBy(collective, n, bytes);
  return {group.perNode > 1 ? (traffic + local) / cluster.node.bandwidth : 0,
          networkSeconds(cluster, collective, group, traffic)};
}

LinkSeconds linkSeconds(const Cluster &cluster, Tier tier, double bytes) {
  const double seconds = bytes / shareOf(cluster, tier).bandwidth;
  return tier == inNode ? LinkSeconds{seconds, 0} : LinkSeconds{0, seconds};
}

double waitSeconds(const Cluster &cluster, Collective collective, GroupShape group) {
  if (group.size <= 1) return 0;
  const double spread = constants::arrivalSpread * cluster.device.dispatchSeconds;
  const double wait = spread * std::sqrt(2 * std::log(double(group.size)));
  return collective == Collective::AllReduce ? wait : wait / 2;
}

double hostCopySeconds(const Cluster &cluster, double bytes, double copies) {
  double efficiency = cluster.device.isCpu() ? 1 : constants::hostEfficiency;
  double bandwidth = cluster.host.bandwidth / double(cluster.hostSharedBy) * efficiency;
  return bytes / bandwidth + copies * cluster.host.latency;
}

double sendSeconds(const Cluster &cluster, Tier tier, double bytes) {
  const Share share = shareOf(cluster, tier);
  return share.latency + bytes / share.bandwidth;
}

double leastShare(const Device &device, int64_t ranks) { return std::max(device.coreShare, 1 / double(ranks)); }

double chainShare(const Device &device, int64_t ranks) {
  const double share = device.coreShare < 1 ? leastShare(device, ranks) : 1;
  return share + (1 - share) * constants::unfilledWaits;
}

double leastOnSharedCores(const Device &device, int64_t ranks, double seconds, double busy) {
  if (device.coreShare >= 1) return seconds;
  const double alone = std::max(seconds, busy), filled = std::max(busy, leastShare(device, ranks) * alone);
  return constants::unfilledWaits * alone + (1 - constants::unfilledWaits) * filled;
}

Blocked blockedBy(double block, ConvolutionPass pass, const ConvolutionShape &shape) {
  auto filled = [&](double channels) { return std::ceil(channels / block) * block / channels; };
  const bool isGrouped = shape.groups > 1,
             isPlain = !isGrouped && shape.in < block && pass != ConvolutionPass::GradInput;
  Blocked blocked;
  if (!isGrouped) {
    blocked.work = (isPlain ? 1 : filled(shape.in)) * filled(shape.out);
  } else if (shape.in > 1 || shape.out > 1) {
    blocked.work = filled(shape.in) * (pass == ConvolutionPass::GradWeight ? filled(shape.out) : 1);
  }
  if (!isPlain) blocked.ordered += shape.inputBytes * (1 + filled(shape.in * shape.groups));
  blocked.ordered += shape.outputBytes * (1 + filled(shape.out * shape.groups));
  blocked.ordered += shape.weightBytes * 2;
  return blocked;
}

double slowestOf(const Cluster &cluster) {
  return 1 + cluster.device.speedSpread * std::sqrt(2 * std::log(double(cluster.numDevices())));
}

double edgeFactor(const Product &product, double lost) {
  return (1 + lost / product.m) * (1 + lost / product.n) * (1 + lost / product.k);
}

// By the figures of the device, without its computeFactor.
static double figuredSeconds(const Cluster &cluster, const std::string &precision, const LocalWork &work) {
  const Device &device = cluster.device;
  double seconds = work.bytes * device.secondsPerByte(std::max(work.bytes, work.distance), work.age);
  const double exponentials = work.exponentials * device.exponentialSeconds;
  if (work.memoryBound) {
    // Arithmetic of its own units; small beside the traffic, but work done twice shows.
    double traffic = work.isUpdate ? 1 : work.isScores ? device.scoreTraffic : device.kernelTraffic;
    seconds = seconds * traffic + work.flops / device.flopsAt("fp32") +
              work.elements * device.elementSeconds[size_t(work.work)] + exponentials;
  } else if (work.isConvolution) {
    const ConvolutionLaw &law = device.convolutions;
    const double far = device.secondsPerByte(std::max(work.bytes, work.distance));
    return work.kernels * law.startSeconds + work.flops / (device.flopsAt(precision) * law.efficiency) +
           work.read * std::max(law.orderSeconds, far);
  } else if (work.flops > 0) {
    const Product &p = work.product;
    const bool isEachAlone = device.isCpu() && (p.batch <= 1 || work.hasOwnWeights);
    double efficiency = device.computeEfficiency / edgeFactor(p, device.halfRateDimension) / slowestOf(cluster);
    const bool hasOwnKernel = work.isGrouped && !device.isCpu();
    if (hasOwnKernel)
      efficiency *= device.groupedEfficiency;
    else if (p.batch > 1 && !isEachAlone)
      efficiency *= device.batchedEfficiency;
    const double launch = device.productStartSeconds >= 0 ? device.productStartSeconds : device.launchSeconds;
    const double expertStart = device.expertStartSeconds >= 0 ? device.expertStartSeconds : launch;
    const double starts = p.batch > 1 ? p.batch * (isEachAlone ? expertStart : device.batchStartSeconds) : 0;
    const double rate = device.flopsAt(hasOwnKernel && precision == "tf32" ? "fp32" : precision);
    const double working = work.flops / (rate * efficiency) + work.kernels * starts + exponentials;
    if (!isEachAlone) return work.kernels * launch + std::max(seconds * device.productTraffic, working);
    const double far = device.secondsPerByte(std::max(work.bytes, work.distance));
    return work.kernels * launch + working +
           work.read * std::max(device.productReadSeconds, std::max(far, work.readSeconds) * device.productTraffic) +
           work.written * device.productWriteTraffic * (std::max(far, work.writtenSeconds) - device.secondsPerByte(0));
  }
  return work.kernels * (work.isSolo ? device.soloLaunchSeconds : device.launchSeconds) + seconds;
}

double operationSeconds(const Cluster &cluster, const std::string &precision, const LocalWork &work) {
  return cluster.device.computeFactor * figuredSeconds(cluster, precision, work);
}

double keptSeconds(const Cluster &cluster, const LocalWork &work, double far) {
  const Device &device = cluster.device;
  if (device.caches.empty()) return 0;
  const double traffic = !work.memoryBound ? device.productTraffic
                         : work.isScores   ? device.scoreTraffic
                                           : device.kernelTraffic;
  return device.computeFactor * std::max(0.0, far - device.secondsPerByte(work.bytes)) * work.kept * traffic;
}

} // namespace cleave::planner
