// Every constant of the cost model, in one place with its source.
//
//   Device d = devicePreset("a100-80g").value();   // 80 GiB, 19.5 TFLOP/s fp32, 2039 GB/s
#pragma once
#include "compiler/cluster/cluster.h"
#include "compiler/elements/buffer_alignment.h"
#include <cmath>
#include <optional>

namespace cleave::planner {

// Device kinds: data sheets of the makers. Empty for a kind that is not known.
std::optional<Device> devicePreset(const std::string &kind);
// "sm_90": the compute capability of a GPU by its kind, from the first part of the name ("h100-80g", "h100-pcie"), or
// a kind that is itself a capability ("sm_89"). Empty: no NVIDIA GPU.
std::string computeCapability(const std::string &kind);
// Links of the servers these devices are sold in: NVLink inside a node; between nodes one NIC a device.
void linkPreset(const std::string &kind, Link &node, Link &network);
// Devices that share a network card of the kind that such servers have, where a device's share is `network`'s.
int64_t cardSharedBy(const std::string &kind, const Link &network, int64_t devicesPerNode);
// The link to the host's memory, who shares it, and how much memory the host has.
void hostPreset(const std::string &kind, Cluster &cluster);
// `devices` virtual devices of a machine with `cores` and `memoryBytes`: they share its cores, memory and its
// bandwidth.
Device cpuDevice(int64_t devices, int64_t cores, double memoryBytes);
Link cpuLink(int64_t devices);
// Its memory as a host's: a copy by one thread of each.
Link cpuHostLink(int64_t devices);
// Figures that a cluster file may leave out, by what they describe.
void fillDefaults(Device &device);

inline constexpr double gib = 1024.0 * 1024 * 1024; // bytes

namespace constants {
// The compiler folds constants to at most a few MiB (normalize); larger ones are splats, which kernels hold as scalars.
inline constexpr double storedConstantBytes = 16.0 * (1 << 20);
// Numbers of a step that each have a place of their own in memory: the loss, the weight of its labels, the sums of
// both, the gradients' norm and what clips it, the loss scale, what counts overflows; the learning rate, the step,
// powers of the betas and what an optimizer makes of them (runtime/plan's host scalars, training/optimizers.cpp).
inline constexpr double stepScalars = 16;
// A command without a barrier, from one to the next in traces of steps.
inline constexpr double cpuSoloLaunchSeconds = 3e-7;
// Part of a device's memory a plan may fill: the rest is for the library's own allocations and fragmentation.
// Estimate; CUDA context, cuBLAS and NCCL take 1 to 3 GiB of an 80 GiB device.
inline constexpr double usableMemory = 0.94;
// Longest row, in elements, of a reduction that is fused with its neighbours: Megatron-LM's fused softmax kernels take
// rows of up to 16384.
inline constexpr double fusedRow = 16384;

// Megatron-LM's fused softmax takes matrices of scores (samples times heads of a device) only in fours
// (FusedScaleMaskSoftmax.is_kernel_available). Otherwise scores are copied to fp32, scaled, masked, normalised and
// copied back by a kernel each: 5 for 1, and 34 bytes a score for 4; dropout after it, 5 bytes, stays.
inline constexpr double fusedSoftmaxMatrices = 4;
inline constexpr double unfusedSoftmaxKernels = 5;
inline constexpr double unfusedSoftmaxTraffic = (34.0 + 5) / (4 + 5);

// Fitted on the calibration rows (docs/internals/cost-model.md). One set for all GPUs.
inline constexpr double gpuComputeEfficiency = 0.8;
inline constexpr double gpuBandwidthEfficiency = 0.85;
inline constexpr double gpuKernelTraffic = 1.15;
// Softmax and dropout are kernels of their own in Megatron-LM, each reads and writes the scores.
inline constexpr double gpuScoreTraffic = 2.7;
// Megatron-Core's --tp-comm-overlap; presets with fused attention.
inline constexpr double gpuTensorOverlap = 0.8;
// Not fitted: an fp16 or bf16 optimizer of Megatron-LM copies gradients to fp32 (6 bytes a parameter), unscales them
// (8), takes their norm (4), clips them (8), updates (28) and copies parameters back (6), 60 bytes, of 30 that it must.
inline constexpr double gpuUpdateTraffic = 2;
inline constexpr double gpuHalfRateDimension = 4;
// From the end of one kernel to the full speed of the next; a kernel here stands for two or three of Megatron-LM's.
inline constexpr double gpuLaunchSeconds = 9e-6;
inline constexpr double gpuDispatchSeconds = 87e-6;
inline constexpr double nodeLatency = 20e-6;
inline constexpr double networkLatency = 20e-6;
// Spread of the times at which devices arrive at a collective that each of them waits for, in kernels that their hosts
// hand over (cost.h); and how much longer hosts need for each doubling of such a group. Fitted as the ones above.
inline constexpr double arrivalSpread = 0.3;
inline constexpr double hostPace = 0.04;
// Copies between pinned memory and a GPU: 24.5 to 26.5 GB/s of PCIe 4.0's 31.5 are reached (NVIDIA's bandwidthTest on
// A100 SXM4, as commonly reported); from the end of one to the begin of the next.
inline constexpr double hostEfficiency = 0.8;
inline constexpr double hostLatency = 10e-6;
inline constexpr double localPass = 0.48;
inline constexpr double networkEfficiency = 0.92;
// Part of its devices' shares of the network that a group reaches where it crosses cards that others use too. Fitted on
// vTrain's rows, whose nodes have four cards for eight devices: one cluster, and nothing else that was found says it.
inline constexpr double acrossCards = 0.3;
// Where devices take turns on cores: part of the time that one waits which others do not fill, since threads stay on
// the core they are on for a while. Measured: pipelines of two and four stages of three small models, four devices on
// two cores, took 0.03 to 0.8 of it, 0.3 in the mean (docs/internals/cost-model.md).
inline constexpr double unfilledWaits = 0.3;
} // namespace constants

// What so many bytes take in memory.
inline double aligned(double bytes) { return std::ceil(bytes / bufferAlignment) * bufferAlignment; }

} // namespace cleave::planner
