// Devices, software profiles, and every constant of the cost model, each with its source.
//
//   Cluster c = standardCluster("a100-80g", "cleave", 1, 8);   // 80 GiB, 19.5 TFLOP/s fp32, 2039 GB/s, NVLink, ...
#pragma once
#include "compiler/cluster/cluster.h"
#include "compiler/elements/buffer_alignment.h"
#include <cmath>

namespace cleave::planner {

// "a100-80g", ...: the device kinds that presets exist for.
std::vector<std::string> presetKinds();
bool isPreset(const std::string &kind);
// The kind that a person means: "h100" and "H100-80GB" are h100-80g; "a100" is an error that names both of its kinds.
Result<std::string> presetMeant(const std::string &kind);
std::string presetSyntax(); // for errors
// "sm_90": the compute capability of a GPU by its kind, from the first part of the name ("h100-80g", "h100-pcie"), or
// a kind that is itself a capability ("sm_89"). Empty: no NVIDIA GPU.
std::string computeCapability(const std::string &kind);
// Names of the profiles; an error for an unknown one, and for another than Cleave on CPUs.
std::vector<std::string> softwareNames();
Status checkSoftware(const std::string &kind, const std::string &software);
// The known figures of devices of a kind, and of the servers that they are sold in; fillIn says the rest.
Cluster standardCluster(const std::string &kind, const std::string &software, int64_t nodes, int64_t devicesPerNode);
// Figures that a cluster does not tell: those of its software's profile, and those that follow from others.
void fillIn(Cluster &cluster);
// `devices` virtual devices of a machine with `cores` and `memoryBytes`: they share its cores, memory and its
// bandwidth.
Device cpuDevice(int64_t devices, int64_t cores, double memoryBytes);

inline constexpr double gib = 1024.0 * 1024 * 1024, giga = 1e9, gigabit = 1e9 / 8; // bytes

namespace constants {
// The compiler folds constants to at most a few MiB (normalize); larger ones are splats, which kernels hold as scalars.
inline constexpr double storedConstantBytes = 16.0 * (1 << 20);
// Numbers of a step that each have a place of their own in memory: the loss, the weight of its labels, the sums of
// both, the gradients' norm and what clips it, the loss scale, what counts overflows; the learning rate, the step,
// powers of the betas and what an optimizer makes of them (runtime/plan's host scalars, training/optimizers.cpp).
inline constexpr double stepScalars = 16;

// A softmax that is not fused copies scores to fp32, scales, masks, normalises and copies them back by a kernel each: 5
// for 1, and 34 bytes a score for 4; dropout after it, 5 bytes, stays.
inline constexpr double unfusedSoftmaxKernels = 5;
inline constexpr double unfusedSoftmaxTraffic = (34.0 + 5) / (4 + 5);

// Spread of the times at which devices arrive at a collective that each of them waits for, in kernels that their hosts
// hand over (cost.h); and how much longer hosts need for each doubling of such a group. Fitted on the
// calibration rows (docs/internals/cost-model.md; `./dev bench cost-model` names them), one set for all GPUs.
inline constexpr double arrivalSpread = 0.3;
inline constexpr double hostPace = 0.04;
// Copies between pinned memory and a GPU: 24.5 to 26.5 GB/s of PCIe 4.0's 31.5 are reached (NVIDIA's bandwidthTest on
// A100 SXM4, as commonly reported).
inline constexpr double hostEfficiency = 0.8;
inline constexpr double localPass = 0.48;
inline constexpr double networkEfficiency = 0.92;
// NCCL gathers and scatters in rings: a step to the next rank in a node, 1.9 us, and to the next node, 4 us
// (src/graph/tuning.cc, ring with LL128, which also has 0.92 of the bandwidth), in latencies of the link.
inline constexpr double ringStepInNode = 1.9 / 20, ringStepBetweenNodes = 4.0 / 20;
// Attention in one kernel: rows and columns of a tile, of which the causal ones on the diagonal are worked on whole; and
// the arithmetic on a score in the backward pass, in exponentials: chosen with a trace of GPT-2 on an H200 known.
inline constexpr double attentionTile = 128, backwardExponentials = 2.5;
// A grouped product (codegen/cuda/grouped_code.h): its part of the rate of products where those have instructions of warp
// groups, and its kernels: a sort, its merge, a table, and the product.
inline constexpr double ofWarpGroups = 0.629, groupedKernels = 4;
// Part of its devices' shares of the network that a group reaches where it crosses cards that others use too. Fitted on
// vTrain's rows, whose nodes have four cards for eight devices: one cluster, and nothing else that was found says it.
inline constexpr double acrossCards = 0.3;
// Where devices take turns on cores: part of the time that one waits which others do not fill, since threads stay on
// the core they are on for a while. Measured: pipelines of two and four stages of three small models, four devices on
// two cores, took 0.03 to 0.8 of it, 0.3 in the mean (docs/internals/cost-model.md).
inline constexpr double unfilledWaits = 0.3;
} // namespace constants

// The bytes of memory that so many bytes take up.
inline double aligned(double bytes) { return std::ceil(bytes / bufferAlignment) * bufferAlignment; }

} // namespace cleave::planner
