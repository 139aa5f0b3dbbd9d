// The time of operations and collectives on a cluster, in seconds: a roofline for the former, latency and bandwidth by
// topology for the latter.
//
//   GroupShape tp{8, 8};                            // 8 ranks, all in one node
//   collectiveSeconds(cluster, Collective::AllReduce, tp, 64e6)   // 64 MB on every rank before and after
#pragma once
#include "compiler/cluster/cluster.h"
#include "runtime/base/sharding/collective.h"
#include <compare>
#include <span>

namespace cleave::planner {

// The distance of two devices: in one node, in two nodes under one switch of the lowest level, or under one switch of
// the so many-th level above that (Cluster::levels).
using Tier = size_t;
inline constexpr Tier inNode = 0, betweenNodes = 1;
Tier tierBetween(const Cluster &cluster, int64_t device, int64_t other);

// Ranks that communicate, and how many of them stand in one node (the others in as many nodes as it takes).
struct GroupShape {
  int64_t size = 1;
  int64_t perNode = 1;
  std::array<int64_t, mostNetworkLevels> perSwitch = ones; // likewise, of each level that the cluster's network has

  // Ranks that are no farther apart.
  int64_t within(Tier tier) const { return tier == inNode ? perNode : perSwitch[tier - 1]; }
  GroupShape &operator*=(const GroupShape &other); // of ranks along the axes of both
  auto operator<=>(const GroupShape &) const = default;

  static constexpr std::array<int64_t, mostNetworkLevels> ones = [] {
    std::array<int64_t, mostNetworkLevels> all{};
    all.fill(1);
    return all;
  }();
};
// Two ranks that are so far apart.
GroupShape pairAcross(Tier tier);

// A mesh axis on the devices: neighbours are `stride` devices apart.
struct AxisPlace {
  int64_t size = 1, stride = 1;
};
// Ranks that differ along a mesh axis. Devices fill nodes in order, so the innermost axis (stride 1) lies inside nodes
// first. This is the group along it that has fewest ranks in some node, and so with switches: every group takes
// part in a step, and a ring is as fast as the node that it leaves with fewest links. Groups need not begin where nodes
// do: 6 on nodes of 8 are devices 0 to 5, 6 to 11 (two and four in a node), 12 to 17, ..., so that perNode is 2.
GroupShape groupAlong(const Cluster &cluster, int64_t size, int64_t stride);
// Do groups along the axis, and their neighbours, begin and end where nodes and switches do, or lie inside them?
bool isAligned(const Cluster &cluster, const AxisPlace &axis);
// Along several axes, the innermost first, of a mesh of so many devices. Those that follow each other are one, of the
// product of their sizes; of others the numbers are multiplied, which where neither begins where nodes do may be less
// than the fewest.
GroupShape groupAlong(const Cluster &cluster, std::span<const AxisPlace> axes, int64_t meshDevices);
// The farthest that the devices of two ranks along an axis are apart, of all its groups: rank `rank` of each sends to
// rank `other`.
Tier tierAlong(const Cluster &cluster, const AxisPlace &axis, int64_t rank, int64_t other);

// How far a group's ranks are apart: the slowest hop of a ring through all of them.
Tier tierOf(const Cluster &cluster, const GroupShape &group);

// Do groups with so many ranks in a node cross network cards that other groups use too? Then two ranks can have less of
// the network together than one alone (constants::acrossCards).
bool crossesCards(const Cluster &cluster, int64_t perNode);

using dist::Collective;

// Seconds of one collective. `bytes` is the size of the whole tensor of the group: what every rank has before an
// all-reduce or a reduce-scatter, what it has after an all-gather, the group's sum of all parts for an all-to-all.
// Ring traffic (Patarasu and Yuan 2009): 2(n-1)/n, (n-1)/n, (n-1)/n and (n-1)/n^2 times `bytes` a rank, and inside a
// node one pass more through the device's own memory (constants::localPass); latency grows with log2(n) (trees; NCCL
// 2.4). Between nodes, the ranks of the group in one node use their links together, and no others' links: a link is a
// device's own share of the node's, so that groups side by side slow each other. Where a node has several network
// cards, each for several devices, a group with some of a node's devices, not one and not all, crosses cards that
// others use at the same time (constants::acrossCards). So it is between switches, with the shares of the ranks that
// are under one of them: the slowest level counts, and the latency of the highest.
// `distance`: bytes that were touched since those of the tensor were, which caches of one process' devices tell.
double collectiveSeconds(const Cluster &cluster, Collective collective, GroupShape group, double bytes,
                         double distance = 0);

// For how many seconds a device's links are busy, those inside its node and those to other nodes (at whatever level of
// the network): transfers without latencies. Transfers over different links at the same time do not slow each other.
struct LinkSeconds {
  double node = 0, network = 0;
  LinkSeconds &add(const LinkSeconds &other, double times = 1) {
    node += times * other.node;
    network += times * other.network;
    return *this;
  }
};
LinkSeconds linkSeconds(const Cluster &cluster, Collective collective, const GroupShape &group, double bytes);
LinkSeconds linkSeconds(const Cluster &cluster, Tier tier, double bytes); // of what is sent

// The time of a collective in the middle of a pass beyond collectiveSeconds: all wait for the last one to arrive,
// because hosts do not hand kernels over in step. The latest of n normally distributed times is about sigma * sqrt(2 ln
// n) late (extreme values), sigma a part of the time for one kernel (constants::arrivalSpread). A gather and a scatter
// share a wait. None on the CPU, where nothing is handed over.
double waitSeconds(const Cluster &cluster, Collective collective, GroupShape group);

// Seconds until `bytes` of one rank have arrived at another.
double sendSeconds(const Cluster &cluster, Tier tier, double bytes);

// Where devices take turns on the cores (Device::coreShare): what a chain of one after the other of so many ranks takes
// at least, as a part of its time with all devices at work; others fill most of what the rest of them wait.
double chainShare(const Device &device, int64_t ranks);
// The least part that counts, if all waits were filled, of a time in which not all ranks work: one rank works, or none
// does.
double leastShare(const Device &device, int64_t ranks);
// And at least what passes take there that take `seconds` where devices have cores of their own at the same rates, and
// in which they work for `busy` seconds on average: all need that together, and of their waits a part is not filled.
// It grows with both, so that bounds of them give a bound.
double leastOnSharedCores(const Device &device, int64_t ranks, double seconds, double busy);

// Seconds until `bytes` of one device have come from its host's memory, or have gone there, in so many copies.
double hostCopySeconds(const Cluster &cluster, double bytes, double copies);

// A matrix product on one device: out[m,n] += a[m,k] b[k,n], `batch` of them.
struct Product {
  double m = 1, n = 1, k = 1, batch = 1;
};

// The passes of a convolution, and its channels on one device: of one of its groups.
enum class ConvolutionPass : uint8_t { Forward, GradInput, GradWeight };
struct ConvolutionShape {
  double in = 1, out = 1, groups = 1;
  double inputBytes = 0, outputBytes = 0, weightBytes = 0;
};
// The effect of blocks of channels on a pass: `work` times its FLOP, and bytes read and written to bring its operands
// into blocks and its result back. oneDNN's forward pass and the weights' gradient take fewer channels than a block as
// they are; groups of channels are filled up one by one, on one side but for the weights' gradient, and those of one
// channel not at all.
struct Blocked {
  double work = 1, ordered = 0;
};
Blocked blockedBy(double block, ConvolutionPass pass, const ConvolutionShape &shape);

// By how much products of the slowest of all devices take longer than those of the mean: 1 + spread * sqrt(2 ln n), as
// waitSeconds() has it. Clocks under a power limit differ from chip to chip.
double slowestOf(const Cluster &cluster);

// By how much a product takes longer for the `lost` elements of each edge.
double edgeFactor(const Product &product, double lost);

// One operation on one device. `product` counts only where flops > 0 and it is not `memoryBound`.
struct LocalWork {
  double flops = 0, bytes = 0; // FLOP; bytes read and written
  double kept = 0;             // bytes of them that wait for the other pass, and are touched late (keptSeconds)
  Product product;
  double read = 0, written = 0; // bytes of them that a product on a CPU reorders before it works; those of its result
  double readSeconds = 0, writtenSeconds = 0; // what a byte of either takes at least, where it comes from afar
  bool hasOwnWeights = false;                 // each product of a batch multiplies by weights of its own, as experts do
  bool isGrouped = false;                     // each row is multiplied by the matrix of its group
  bool isConvolution = false; // `flops` counts what blocks of channels are filled up with; `read` is what is ordered
  bool memoryBound = false;
  bool isScores = false;                // memory bound, in the core of an attention
  bool isUpdate = false;                // memory bound, of the optimizer
  bool isSolo = false;                  // memory bound, with too few elements to share (tuning::soloElements)
  ElementWork work = ElementWork::None; // memory bound: what is done with `elements`
  double elements = 0;
  double distance = 0;     // bytes that others touched since it touched its own; 0: none
  double age = 0;          // and the seconds since
  double exponentials = 0; // of attention in one kernel, which its products do not hide
  double kernels = 1;      // launches; a part of one where a fused kernel is shared
};

// The seconds that the device needs to run it, Device::computeFactor times:  kernels * start + max(flops / (peak * efficiency), bytes / bandwidth),
// and of memory-bound operations  kernels * launch (of those that one thread does, soloLaunch) + bytes / bandwidth +
// elements * elementSeconds with efficiency = c / ((1 + h/m) (1 + h/n) (1 + h/k)) of matrix products, over slowestOf() of all devices: h elements of a
// tile's edge are lost in each dimension (filling and draining the pipeline of k, tiles that stand over the edge of m
// and n). Products in a batch go at batchedEfficiency of that rate, and each takes batchStartSeconds more; grouped ones
// go at groupedEfficiency on a GPU, and without TF32; those with weights of their own, as experts have them, are as many products on a CPU, and each takes expertStartSeconds more. A
// CPU's product does not read while it works: weights are copied into another order first, and for their gradient what
// it is made of; what it writes to memory is written beside its work for a part. There, of products that are not in
// batches,
//   start + flops / (peak * efficiency) + read * max(productReadSeconds, productTraffic / bandwidth)
//         + written * productWriteTraffic * (1 / bandwidth - 1 / nearest cache's bandwidth)
// where weights, and their gradients, have the bandwidth of memory that all weights pass through; and of convolutions
//   start + flops * filling / (peak * efficiency) + ordered * max(orderSeconds, 1 / bandwidth)
// with constants of their own (ConvolutionLaw).
// The host hands kernels over ahead of the device: what it needs counts for whole units (activity_costs.h).
double operationSeconds(const Cluster &cluster, const std::string &precision, const LocalWork &work);

// The further seconds where caches tell near from far: bytes that one pass writes and the other reads last came by
// when what lies between had not been made, and those of the first layer before the whole step. As many distances lie
// between nothing and twice what is kept: passes go there and back. `far`: Device::meanSecondsPerByte of that. A CPU
// that waits for memory computes nothing meanwhile, so it comes on top of operationSeconds.
double keptSeconds(const Cluster &cluster, const LocalWork &work, double far);

} // namespace cleave::planner
