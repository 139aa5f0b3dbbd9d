#include "compiler/cluster/cluster_fields.h"
#include "compiler/cluster/device_presets.h"

namespace cleave::planner {
namespace {

constexpr double mib = 1024.0 * 1024;
constexpr double tiny = 1e-6; // more than nothing
constexpr int64_t most = int64_t(1) << 24;

// `at<Cluster, &Cluster::node, &Link::latency>`: a member of a member.
template <class Owner, auto... members> FieldPlace at(Owner &owner) { return &(owner.*....*members); }

template <size_t i> FieldPlace rateAt(Cluster &cluster) {
  static constexpr const char *precisions[] = {"fp64", "fp32", "tf32", "bf16", "fp16", "fp8"};
  return Rate{cluster.device.flops, precisions[i]};
}

template <ElementWork work> FieldPlace workAt(Cluster &cluster) { return &cluster.device.elementSeconds[size_t(work)]; }

using D = Device;
using L = Link;
using V = ConvolutionLaw;
using enum Needed;
template <auto member> constexpr auto device = at<Cluster, &Cluster::device, member>;
template <auto member> constexpr auto law = at<Cluster, &Cluster::device, &D::convolutions, member>;
template <auto member> constexpr auto node = at<Cluster, &Cluster::node, member>;
template <auto member> constexpr auto network = at<Cluster, &Cluster::network, member>;
template <auto member> constexpr auto host = at<Cluster, &Cluster::host, member>;
template <auto member> constexpr auto whole = at<Cluster, member>;

// clang-format off
constexpr Field<Cluster> fields[] = {
  {"name", "", 1, 0, 0, Never, "the file's name", "shown in reports", whole<&Cluster::name>},
  {"nodes", "", 1, 1, most, Always, "", "whole number", whole<&Cluster::nodes>},
  {"devices_per_node", "", 1, 1, most, Always, "", "whole number", whole<&Cluster::devicesPerNode>},
  {"software", "", 1, 0, 0, Never, "`cleave`",
   "whose steps are priced on GPUs: a profile, for what is not told of `device`", whole<&Cluster::software>},
  {"device.kind", "", 1, 0, 0, Always, "",
   "a preset's kind, `cpu`, or a name of your own. `compile` makes GPU code ([GPU](../internals/gpu.md)) when its first part names a GPU "
   "(`v100`, `t4`, `a100`, `a30`, `a10`, `a40`, `l4`, `l40`, `h100`, `h200`, `h20`, `gh200`, `b100`, `b200`, `gb200`) or it "
   "is a compute capability such as `sm_89`; else code for this machine's CPU", device<&D::kind>},
  {"device.cpu", "", 1, 0, 0, Never, "`native`",
   "CPU: whose instructions kernels may use: `native` (those of the machine that compiles), `x86-64`, `x86-64-v2`, "
   "`x86-64-v3`, `x86-64-v4`, or a name that LLVM knows, such as `haswell` or `znver4`. `compile --cpu` comes before it, "
   "and so does the variable `CLEAVE_CPU`", device<&D::cpu>},
  {"device.memory_gib", "GiB", gib, tiny, unbounded, OfOwnKinds, "the preset's", "memory of a device", device<&D::memoryBytes>},
  {"device.memory_reserve", "", 1, 0, 0.9, Never, "0.08; cpu 0.06",
   "part of it that no plan fills: the context and workspaces of CUDA, buffers of NCCL, fragmentation ([cost-model.md](../internals/cost-model.md#memory-in-reserve))",
   device<&D::memoryReserve>},
  {"device.tflops.fp64", "10¹² FLOP/s", 1e12, 1e-9, unbounded, Never, "as `fp32`", "peak by precision", rateAt<0>},
  {"device.tflops.fp32", "10¹² FLOP/s", 1e12, 1e-9, unbounded, OfOwnKinds, "the preset's", "", rateAt<1>},
  {"device.tflops.tf32", "10¹² FLOP/s", 1e12, 1e-9, unbounded, Never, "the preset's; as `fp32`", "", rateAt<2>},
  {"device.tflops.bf16", "10¹² FLOP/s", 1e12, 1e-9, unbounded, Never, "the preset's; as `fp32`", "", rateAt<3>},
  {"device.tflops.fp16", "10¹² FLOP/s", 1e12, 1e-9, unbounded, Never, "the preset's; as `fp32`", "", rateAt<4>},
  {"device.tflops.fp8", "10¹² FLOP/s", 1e12, 1e-9, unbounded, Never, "the preset's; as `bf16`", "", rateAt<5>},
  {"device.memory_gbps", "10⁹ bytes/s", giga, tiny, unbounded, OfOwnKinds, "the preset's", "memory bandwidth of a device", device<&D::memoryBandwidth>},
  {"device.launch_us", "µs", 1e-6, 0, unbounded, Never, "the profile's; cpu 4", "fixed cost of a kernel on the device", device<&D::launchSeconds>},
  {"device.solo_launch_us", "µs", 1e-6, 0, unbounded, Never, "`launch_us`; cpu 0.3, at most `launch_us`",
   "CPU: the same of a kernel of at most 4,096 elements, which one thread does", device<&D::soloLaunchSeconds>},
  {"device.dispatch_us", "µs", 1e-6, 0, unbounded, Never, "the profile's; cpu 0", "what the host needs to hand a kernel over", device<&D::dispatchSeconds>},
  {"device.half_rate_dimension", "elements", 1, 0, unbounded, Never, "4; cpu 24", "what a matrix product loses at each edge", device<&D::halfRateDimension>},
  {"device.kernel_traffic", "", 1, 1e-3, unbounded, Never, "the profile's; cpu 1", "bytes that fused kernels move for each that they must", device<&D::kernelTraffic>},
  {"device.score_traffic", "", 1, 1e-3, unbounded, Never, "the profile's; cpu `kernel_traffic`", "the same of kernels on attention's scores", device<&D::scoreTraffic>},
  {"device.update_traffic", "", 1, 1e-3, unbounded, Never, "the profile's; cpu 1", "the same of the optimizer's kernels", device<&D::updateTraffic>},
  {"device.fused_attention", "", 1, 0, 0, Never, "the profile's", "`true`, `false`: attention's scores stay on the chip", device<&D::fusedAttention>},
  {"device.softmax_matrices", "", 1, 1, unbounded, Never, "the profile's; cpu 1",
   "a fused softmax takes matrices of scores (a device's samples times heads) only in so many; others take five kernels", device<&D::softmaxMatrices>},
  {"device.fused_row", "elements", 1, 0, unbounded, Never, "the profile's; cpu 0",
   "longest row of a softmax or another reduction that is one kernel with its neighbours: at least 1; 0: of any length", device<&D::fusedRow>},
  {"device.tensor_overlap", "", 1, 0, 1, Never, "the profile's; cpu 0", "part of tensor parallel gathers and scatters that products hide", device<&D::tensorOverlap>},
  {"device.overlap", "", 1, 0, 1, Never, "0.888; cpu 0", "part of compute time behind which communication can hide", device<&D::overlap>},
  {"device.gradient_overlap", "", 1, 0, 1, Never, "the profile's; cpu `overlap`",
   "the same for gradients that are summed once a step (ZeRO 0 and 1)", device<&D::gradientOverlap>},
  {"device.interference", "", 1, 0, 1, Never, "0.159; cpu 0",
   "part of a collective's time by which compute beside it takes longer: collectives take multiprocessors, bandwidth and power", device<&D::interference>},
  {"device.speed_spread", "", 1, 0, 1, Never, "0.015; cpu 0",
   "relative standard deviation of the speed of devices of one kind; a step goes at the pace of the slowest of all", device<&D::speedSpread>},
  {"device.exponential_ps", "ps", 1e-12, 0, unbounded, Never, "the preset's; cpu 0", "GPU: an exponential of attention that is one kernel", device<&D::exponentialSeconds>},
  {"device.prediction_error", "", 1, 0, 1, Never, "0.14 of Megatron-LM on A100, else 0.2; cpu 0: not told",
   "nine of ten measured steps differ by no more from the predicted one; alternatives within it count as equal", device<&D::predictionError>},
  {"device.compute_efficiency", "", 1, tiny, 1, Never, "by kind: A100 0.86, H100 and H200 0.79, B200 0.77; cpu 0.9", "part of `tflops` that large matrix products reach", device<&D::computeEfficiency>},
  {"device.bandwidth_efficiency", "", 1, tiny, 1, Never, "0.85; cpu 0.8", "part of `memory_gbps` that streaming kernels reach", device<&D::bandwidthEfficiency>},
  {"device.compute_factor", "", 1, 1e-3, 1e3, Never, "1",
   "seconds of compute for each that the other figures give: what [`cleave tune`](../guide/tune.md) measured on steps", device<&D::computeFactor>},
  {"device.caches", "list of `{mib, gbps}`: MiB, 10⁹ bytes/s", 1, 0, 0, Never, "no caches",
   "what is touched again after at most so many bytes comes so fast; rising sizes, and between two of them linear in the "
   "size's logarithm; beyond the last it is `memory_gbps`", device<&D::caches>},
  {"device.cache_hold_ms", "ms", 1e-3, 0, unbounded, Never, "0: nobody else uses them",
   "after so long others who use the caches leave 1/e of what was not touched ([cost-model.md](../internals/cost-model.md))", device<&D::cacheHoldSeconds>},
  {"device.core_share", "", 1, tiny, 1, Never, "1",
   "cores of a device's own: 0.5 where two devices take turns on one core. Rates are those with all devices at work; while "
   "one waits for another, as in a pipeline, others have its core", device<&D::coreShare>},
  {"device.batched_efficiency", "", 1, tiny, 1, Never, "1",
   "part of a product's rate, reached by products in batches whose rows lie apart (attention)", device<&D::batchedEfficiency>},
  {"device.grouped_efficiency", "", 1, tiny, 1, Never, "1; of Cleave on H100, H200 and later 0.629",
   "GPU: part of a product's rate, reached by grouped products (experts that tokens look up)", device<&D::groupedEfficiency>},
  {"device.batch_start_ns", "ns", 1e-9, 0, unbounded, Never, "0",
   "what each product of a batch takes beside its work: small ones are little else", device<&D::batchStartSeconds>},
  {"device.expert_start_us", "µs", 1e-6, 0, unbounded, Never, "`product_start_us`",
   "CPU: what each product of a batch takes beside its work where it has weights of its own, as experts have", device<&D::expertStartSeconds>},
  {"device.product_start_us", "µs", 1e-6, 0, unbounded, Never, "`launch_us`", "what a matrix product takes beside its work", device<&D::productStartSeconds>},
  {"device.product_read_ps", "ps", 1e-12, 0, unbounded, Never, "0",
   "CPU: a byte that a product copies into another order before it works, from the cache", device<&D::productReadSeconds>},
  {"device.product_traffic", "", 1, 1e-3, unbounded, Never, "1", "bytes that products read from memory for each that they must", device<&D::productTraffic>},
  {"device.product_write_traffic", "", 1, 0, unbounded, Never, "0", "CPU: the same of bytes that they write to memory beside their work", device<&D::productWriteTraffic>},
  {"device.convolution.block", "channels", 1, 0, unbounded, Never, "0: a convolution is the product that it is; `cpu:N` 16",
   "CPU: channels of a block that are worked on together ([cost-model.md](../internals/cost-model.md))", law<&V::block>},
  {"device.convolution.efficiency", "", 1, 1e-3, unbounded, Never, "1; `cpu:N` 0.9", "part of `tflops` with whole blocks", law<&V::efficiency>},
  {"device.convolution.start_us", "µs", 1e-6, 0, unbounded, Never, "0; `cpu:N` 2", "what a convolution takes beside its work", law<&V::startSeconds>},
  {"device.convolution.order_ps", "ps", 1e-12, 0, unbounded, Never, "0; `cpu:N` 40 a core", "a byte that is brought into blocks or back", law<&V::orderSeconds>},
  {"device.element_ps.arithmetic", "ps", 1e-12, 0, unbounded, Never, "0; of `cpu:N` those of a core",
   "of memory-bound kernels, beside moving: an element and operation, such as a sum or a comparison", workAt<ElementWork::Arithmetic>},
  {"device.element_ps.division", "ps", 1e-12, 0, unbounded, Never, "likewise", "a division or a root", workAt<ElementWork::Division>},
  {"device.element_ps.function", "ps", 1e-12, 0, unbounded, Never, "likewise", "an exponential and its like", workAt<ElementWork::Function>},
  {"device.element_ps.reduction", "ps", 1e-12, 0, unbounded, Never, "likewise", "a term of a sum, or of a maximum", workAt<ElementWork::Reduction>},
  {"device.element_ps.random", "ps", 1e-12, 0, unbounded, Never, "likewise", "a drawn number", workAt<ElementWork::Random>},
  {"device.element_ps.window", "ps", 1e-12, 0, unbounded, Never, "likewise", "an element of a pooling's window", workAt<ElementWork::Window>},
  {"links.node.gbps", "10⁹ **bits**/s", gigabit, tiny, unbounded, InNodes, "the preset's",
   "between devices of one node: what one device can send, and at the same time receive", node<&L::bandwidth>},
  {"links.node.latency_us", "µs", 1e-6, 0, unbounded, Never, "20", "of one message", node<&L::latency>},
  {"links.node.topology", "", 1, 0, 0, Never, "`switch`; cpu `memory`",
   "`switch`; `memory`: devices of one process that read each other's memory", node<&L::topology>},
  {"links.node.cache_read_gbps", "10⁹ **bits**/s", gigabit, 0, unbounded, Never, "0: the same as `gbps`",
   "`memory` only: of collectives that fit into the last of `device.caches` that is a quarter faster than memory; counts "
   "what a device reads of the others'", node<&L::cacheBandwidth>},
  {"links.network.gbps", "10⁹ **bits**/s", gigabit, tiny, unbounded, BetweenNodes, "the preset's", "between nodes, a device's share", network<&L::bandwidth>},
  {"links.network.latency_us", "µs", 1e-6, 0, unbounded, Never, "20", "", network<&L::latency>},
  {"links.network.topology", "", 1, 0, 0, Never, "as `links.node`'s", "", network<&L::topology>},
  {"links.network.cache_read_gbps", "10⁹ **bits**/s", gigabit, 0, unbounded, Never, "as `links.node`'s", "", network<&L::cacheBandwidth>},
  {"links.network.shared_by", "", 1, 1, most, Never, "as many as make up a card of the preset's server: two for an A100 with 100 Gb/s",
   "devices that share a network card. Groups with some of a node's devices, not one and not all, cross such cards and are "
   "slower ([cost-model.md](../internals/cost-model.md))", whole<&Cluster::networkSharedBy>},
  {"links.network.levels", "list of `{nodes, gbps, latency_us}`", 1, 0, 0, Never, "all nodes are under one switch; a level's `latency_us`: that of the level below",
   "switches above the nodes, from the lowest up (at most 4; see below)", whole<&Cluster::levels>},
  {"links.host.gbps", "10⁹ **bits**/s", gigabit, tiny, unbounded, Never, "the preset's; PCI Express 4.0; of `cpu:N` half its memory's",
   "between a device and its host's memory, each way ([offload.md](../internals/offload.md))", host<&L::bandwidth>},
  {"links.host.latency_us", "µs", 1e-6, 0, unbounded, Never, "10; cpu 20", "", host<&L::latency>},
  {"links.host.shared_by", "", 1, 1, most, Never, "the preset's; 1", "devices that share one such link", whole<&Cluster::hostSharedBy>},
  {"host_memory_gib", "GiB", gib, 0, unbounded, Never, "the preset's; not told",
   "memory of a node for what is offloaded; where it is told, the search may use it", whole<&Cluster::hostMemoryBytes>},
  {"price_per_hour", "money", 1, 0, unbounded, Never, "not told",
   "of the whole cluster: `cleave estimate` with several clusters tells what a million samples cost", whole<&Cluster::pricePerHour>},
};

constexpr Field<CacheLevel> ofCaches[] = {
  {"mib", "MiB", mib, tiny, unbounded, Always, "", "", at<CacheLevel, &CacheLevel::bytes>},
  {"gbps", "10⁹ bytes/s", giga, tiny, unbounded, Always, "", "", at<CacheLevel, &CacheLevel::bandwidth>},
};

constexpr Field<NetworkLevel> ofLevels[] = {
  {"nodes", "", 1, 1, most, Always, "", "", at<NetworkLevel, &NetworkLevel::nodes>},
  {"gbps", "10⁹ **bits**/s", gigabit, tiny, unbounded, Always, "", "", at<NetworkLevel, &NetworkLevel::bandwidth>},
  {"latency_us", "µs", 1e-6, 0, unbounded, Never, "", "", at<NetworkLevel, &NetworkLevel::latency>},
};
// clang-format on

} // namespace

std::span<const Field<Cluster>> clusterFields() { return fields; }
std::span<const Field<CacheLevel>> cacheFields() { return ofCaches; }
std::span<const Field<NetworkLevel>> networkLevelFields() { return ofLevels; }

} // namespace cleave::planner
