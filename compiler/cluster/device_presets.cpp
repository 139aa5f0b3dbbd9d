#include "compiler/cluster/device_presets.h"
#include "runtime/base/names/glob.h"
#include <algorithm>
#include <cctype>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::planner {
namespace {

constexpr double tera = 1e12;
constexpr double nodeLatency = 20e-6, networkLatency = 20e-6, hostLatency = 10e-6; // a start of a collective, of a copy

struct Preset {
  const char *kind;
  double memoryGib, fp32, tf32, half, memoryGbps; // TFLOP/s dense; GB/s
  double bestProduct;                             // what the fastest bf16 product sustains, as a part of the peak
  double exponentials;                            // 10^12/s
  double nodeGbps, networkGbps, cardGbps;         // bits, each way: a device's share, twice, and a network card's
  double hostGbps;                                // bits, each way
  int64_t hostSharedBy;                           // GPUs behind one switch's upstream port
  double hostMemoryGib;                           // of a node
};

// NVIDIA data sheets: V100 (SXM2), A100 (SXM4), H100 (SXM5), H200 (SXM), B200 (HGX, dense figures).
// NVLink: 300, 600, 900, 900, 1800 GB/s both ways together. Networks: DGX-1 four 100 Gb/s for eight devices, DGX A100
// eight 200 Gb/s, DGX H100, H200 and B200 eight 400 Gb/s. Hosts: PCI Express 3.0, 4.0, 5.0 with 16 lanes (PCI-SIG: 8,
// 16, 32 GT/s, 128b/130b); user guides of DGX-1 (512 GB, a switch for two GPUs), DGX A100 (1 TB and 2 TB, a switch for
// two), DGX H100, H200 and B200 (2 TB, a port for each).
// Best products, under the power limit: means of 100 large products after 50 others, the fastest of many shapes (Bekman,
// Machine Learning Engineering, compute/accelerator, 2026-08: A100 SXM 271.2 of 312, H100 SXM 794.5 of 989 and H200 the
// same, B200 1745 of 2250 TFLOP/s); none is given for V100, which counts as A100 does. Exponentials: 16 a clock and
// multiprocessor; FlashAttention-3 gives 3.9 of H100, the others follow from their clocks.
constexpr Preset presets[] = {
    {"v100-16g", 16, 15.7, 0, 125, 900, 0.869, 1.96, 1200, 50, 100, 126, 2, 512},
    {"v100-32g", 32, 15.7, 0, 125, 900, 0.869, 1.96, 1200, 50, 100, 126, 2, 512},
    {"a100-40g", 40, 19.5, 156, 312, 1555, 0.869, 2.44, 2400, 200, 200, 252, 2, 1024},
    {"a100-80g", 80, 19.5, 156, 312, 2039, 0.869, 2.44, 2400, 200, 200, 252, 2, 2048},
    {"h100-80g", 80, 67, 494.7, 989.4, 3350, 0.803, 3.9, 3600, 400, 400, 504, 1, 2048},
    {"h200", 141, 67, 494.7, 989.4, 4800, 0.803, 3.9, 3600, 400, 400, 504, 1, 2048},
    {"b200", 180, 75, 1100, 2250, 7700, 0.776, 4.65, 7200, 400, 400, 504, 1, 2048},
};

const Preset *find(const std::string &kind) {
  auto found = std::ranges::find_if(presets, [&](const Preset &preset) { return kind == preset.kind; });
  return found == std::end(presets) ? nullptr : found;
}

// Figures below 0 are those of all GPUs, or as another figure (fillIn).
struct Software {
  const char *name;
  int fusedAttentionFrom; // the compute capability
  Device figures;
};
constexpr int never = 1000;

// clang-format off
// Fitted on the calibration rows (docs/internals/cost-model.md; `./dev bench cost-model` names them): what products reach of the
// best one (ofBestProduct) and lose at an edge. Streaming kernels reach 85 to 90 % of an A100's bandwidth (STREAM). NCCL's
// kernels take multiprocessors, bandwidth and power: compute is 1.189 times slower beside them, the mean of GPTs and Llamas
// on four A100, H100, MI250 or MI210 (arXiv 2507.03114). What can hide is 1 / 1.126 of compute (Galvatron). Devices of one kind differ: 8 % in the
// mean of five centers (Sinha et al. 2022), taken as the range of a box plot's whiskers, 5.4 standard deviations,
// and 5 % between the ends of eight in a node (Bekman), which are 2.8. Megatron-LM's fused softmax kernels take
// rows of up to 16,384 elements.
// Memory in reserve is 6.4 GiB of 80: the CUDA context, cuBLAS and cuDNN take 1 GiB (estimate), NCCL 1.6 GB with one communicator and
// 6 GB with three or more (NVIDIA/nccl issue 864), or 0.5 to 0.7 GB each (issue 964).
const Device onGpu{.memoryReserve = 0.08, .overlap = 1 / 1.126, .interference = 1 - 1 / 1.189, .speedSpread = 0.015,
                   .predictionError = 0.2, .bandwidthEfficiency = 0.85, .halfRateDimension = 4, .softmaxMatrices = 1, .fusedRow = 16384, .tensorOverlap = 0};
constexpr double ofBestProduct = 0.99;
const Software profiles[] = {
    // The figures of our plans, none of them measured: steps are graphs, so the host hands nothing over; a kernel
    // stands for itself, and moves what it must, with rows of any length; cuDNN has attention in 16 bits from Ampere on;
    // gradients are summed beside the backward pass, and what products read is waited for.
    {"cleave", 80, {.launchSeconds = 3e-6, .dispatchSeconds = 0, .fusedRow = 0, .kernelTraffic = 1, .updateTraffic = 1}},
    // Megatron-LM of 2021 and 2022, and Megatron-DeepSpeed: scores in memory, gradients summed after the backward pass.
    // Fitted likewise: the traffic of kernels and of scores (softmax and dropout are kernels of their own), a launch (from
    // the end of one kernel to the full speed of the next; a kernel here stands for two or three of Megatron-LM's) and a
    // dispatch. Counted: an fp16 or bf16 optimizer copies gradients to fp32 (6 bytes a parameter), unscales them (8), takes
    // their norm (4), clips them (8), updates (28) and copies parameters back (6), 60 bytes, of 30 that it must. The fused
    // softmax takes matrices of scores only in fours (FusedScaleMaskSoftmax.is_kernel_available).
    {"megatron-2021", never, {.launchSeconds = 9e-6, .dispatchSeconds = 87e-6, .gradientOverlap = 0,
                              .softmaxMatrices = 4, .scoreTraffic = 2.7, .kernelTraffic = 1.15, .updateTraffic = 2}},
    // FlashAttention, gradients summed beside the backward pass, and --tp-comm-overlap.
    {"megatron-core-2024", 80, {.launchSeconds = 9e-6, .dispatchSeconds = 87e-6, .softmaxMatrices = 4, .scoreTraffic = 2.7,
                                .tensorOverlap = 0.8, .kernelTraffic = 1.15, .updateTraffic = 2}},
    // PyTorch without its compiler, with autocast and DDP or FSDP. Counted, not measured, against Megatron-LM: a GPT layer's
    // forward pass has 15 kernels beside its products (casts, normalizations, dropouts, sums) where Megatron-LM has 10, and
    // they move 62 bytes an element where fused ones move 34; AdamW (foreach) with clipping moves 92 bytes a parameter.
    {"pytorch", 70, {.launchSeconds = 13.5e-6, .dispatchSeconds = 130e-6, .kernelTraffic = 2.1, .updateTraffic = 3}},
};
// A command of the CPU executor with its barrier takes about 4 us, without one, in traces of steps, 0.3. oneDNN reaches 90 %
// of its rate at 512x2048x512. The same cores compute and copy: nothing hides.
// The system and other programs have 6 % of a machine's memory; chosen.
const Device onCpu{.memoryReserve = 0.06, .launchSeconds = 4e-6, .soloLaunchSeconds = 0.3e-6, .dispatchSeconds = 0, .overlap = 0,
                   .interference = 0, .speedSpread = 0, .exponentialSeconds = 0, .predictionError = 0,
                   .computeEfficiency = 0.9, .bandwidthEfficiency = 0.8, .halfRateDimension = 24, .softmaxMatrices = 1,
                   .fusedRow = 0, .tensorOverlap = 0, .kernelTraffic = 1, .updateTraffic = 1};
// clang-format on

const Software *profileOf(const std::string &name) {
  auto found = std::ranges::find_if(profiles, [&](const Software &software) { return name == software.name; });
  return found == std::end(profiles) ? nullptr : found;
}

// A collective in one process reads the peers' buffers: memory bandwidth, shared by all devices, and a copy to the
// host's memory reads and writes. Threads that have to be woken meet in tens of microseconds. Where nothing else wants
// the cores it is less (1 us for two on two cores, 5 for four): `cleave probe` tells.
void setCpuLinks(Cluster &cluster) {
  const double bandwidth = 35 * giga / double(cluster.devicesPerNode), barrier = 20e-6;
  cluster.node = cluster.network = {bandwidth, barrier, Link::Topology::Memory};
  cluster.host = {bandwidth / 2, barrier};
}

} // namespace

std::vector<std::string> presetKinds() {
  std::vector<std::string> kinds;
  for (const Preset &preset : presets) kinds.emplace_back(preset.kind);
  return kinds;
}

bool isPreset(const std::string &kind) { return find(kind); }

Result<std::string> presetMeant(const std::string &kind) {
  std::string lower = kind;
  std::ranges::transform(lower, lower.begin(), [](char c) { return char(std::tolower(uint8_t(c))); });
  if (isPreset(lower) || lower == "cpu") return lower;
  std::vector<std::string> meant;
  for (const std::string &preset : presetKinds())
    if (preset.starts_with(lower + "-") || lower.starts_with(preset + "-") || lower == preset + "b")
      meant.push_back(preset);
  if (meant.size() == 1) return meant[0];
  if (!meant.empty())
    return inputError(fmt::format("device kind '{}' has several sizes: give {}", kind, fmt::join(meant, " or ")));
  return inputError(fmt::format("no device kind '{}'{}", kind, names::suggestion(lower, presetKinds())));
}

std::vector<std::string> softwareNames() {
  std::vector<std::string> names;
  for (const Software &software : profiles) names.emplace_back(software.name);
  return names;
}

std::string presetSyntax() {
  return fmt::format(
      "presets are cpu:DEVICES and KIND:DEVICESxNODES[,software=PROFILE] (8x16 is 16 nodes of 8) with KIND "
      "one of {} and PROFILE one of {}",
      fmt::join(presetKinds(), ", "), fmt::join(softwareNames(), ", "));
}

Status checkSoftware(const std::string &kind, const std::string &software) {
  if (!profileOf(software))
    return inputError(fmt::format("no software '{}'; the profiles are {}", software, fmt::join(softwareNames(), ", ")));
  if (kind == "cpu" && software != profiles[0].name)
    return inputError(fmt::format("software '{}' is of GPUs; CPUs have '{}'", software, profiles[0].name));
  return Status::ok();
}

std::string computeCapability(const std::string &kind) {
  // NVIDIA, "CUDA GPU Compute Capability" (developer.nvidia.com/cuda-gpus).
  static const std::pair<const char *, const char *> known[] = {
      {"v100", "sm_70"}, {"t4", "sm_75"},    {"a100", "sm_80"},  {"a30", "sm_80"},   {"a10", "sm_86"},
      {"a40", "sm_86"},  {"l4", "sm_89"},    {"l40", "sm_89"},   {"h100", "sm_90"},  {"h200", "sm_90"},
      {"h20", "sm_90"},  {"gh200", "sm_90"}, {"b100", "sm_100"}, {"b200", "sm_100"}, {"gb200", "sm_100"}};
  if (kind.rfind("sm_", 0) == 0) return kind;
  std::string first = kind.substr(0, kind.find('-'));
  for (auto [name, capability] : known)
    if (first == name) return capability;
  return "";
}

Cluster standardCluster(const std::string &kind, const std::string &software, int64_t nodes, int64_t devicesPerNode) {
  Cluster cluster{.software = software, .nodes = nodes, .devicesPerNode = devicesPerNode};
  Device &device = cluster.device;
  device.kind = kind;
  if (device.isCpu()) {
    setCpuLinks(cluster);
    return cluster;
  }
  const std::string capability = computeCapability(kind);
  device.fusedAttention =
      !capability.empty() && std::atoi(capability.c_str() + 3) >= profileOf(software)->fusedAttentionFrom;
  cluster.networkSharedBy = 0;
  // Unknown devices: PCI Express 4.0 with 16 lanes inside a node (32 GB/s, 25 usable) and to the host, 100 Gb/s
  // Ethernet or InfiniBand between nodes.
  const Preset *preset = find(kind);
  cluster.node = {(preset ? preset->nodeGbps : 200) * gigabit, nodeLatency};
  cluster.network = {(preset ? preset->networkGbps : 100) * gigabit, networkLatency};
  cluster.host = {(preset ? preset->hostGbps : 252) * gigabit, hostLatency};
  if (!preset) return cluster;
  device.memoryBytes = preset->memoryGib * gib;
  device.flops = {{"fp32", preset->fp32 * tera}, {"fp16", preset->half * tera}};
  if (preset->tf32 > 0) device.flops["tf32"] = preset->tf32 * tera;
  device.flops["bf16"] = (preset->tf32 > 0 ? preset->half : preset->fp32) * tera;             // V100 has no bf16 units
  if (std::atoi(capability.c_str() + 3) >= 89) device.flops["fp8"] = 2 * preset->half * tera; // by the data sheets
  device.memoryBandwidth = preset->memoryGbps * giga;
  cluster.hostSharedBy = std::min(preset->hostSharedBy, devicesPerNode);
  cluster.hostMemoryBytes = preset->hostMemoryGib * gib;
  return cluster;
}

void fillIn(Cluster &cluster) {
  Device &device = cluster.device;
  const bool tellsSolo = device.soloLaunchSeconds >= 0;
  const Preset *preset = find(device.kind);
  if (!device.isCpu()) { // of kinds without a preset the oldest known figures
    const Preset &known = preset ? *preset : *find("a100-80g");
    if (device.computeEfficiency < 0) device.computeEfficiency = ofBestProduct * known.bestProduct;
    if (device.exponentialSeconds < 0) device.exponentialSeconds = 1 / (known.exponentials * tera);
    // Our kernel's mma.sync reaches 62.9 % of Hopper's rate, which wgmma has (arXiv 2402.13499); its own losses are not
    // measured.
    const std::string capability = computeCapability(device.kind);
    const bool hasFaster = !capability.empty() && std::atoi(capability.c_str() + 3) >= 90;
    if (device.groupedEfficiency < 0)
      device.groupedEfficiency = cluster.software == "cleave" && hasFaster ? constants::ofWarpGroups : 1;
    const bool isMeasured = device.kind.starts_with("a100") && cluster.software.starts_with("megatron");
    if (device.predictionError < 0 && isMeasured) device.predictionError = 0.14;
  }
  for (const Device &standard : {device.isCpu() ? onCpu : profileOf(cluster.software)->figures, onGpu})
    for (double Device::*figure :
         {&Device::memoryReserve, &Device::launchSeconds, &Device::soloLaunchSeconds, &Device::dispatchSeconds,
          &Device::overlap, &Device::gradientOverlap, &Device::interference, &Device::speedSpread,
          &Device::exponentialSeconds, &Device::predictionError, &Device::computeEfficiency,
          &Device::bandwidthEfficiency, &Device::halfRateDimension, &Device::softmaxMatrices, &Device::fusedRow,
          &Device::scoreTraffic, &Device::tensorOverlap, &Device::kernelTraffic, &Device::updateTraffic})
      if (device.*figure < 0) device.*figure = standard.*figure;
  if (device.soloLaunchSeconds < 0) device.soloLaunchSeconds = device.launchSeconds;
  if (!tellsSolo) device.soloLaunchSeconds = std::min(device.soloLaunchSeconds, device.launchSeconds);
  if (device.scoreTraffic < 0) device.scoreTraffic = device.kernelTraffic;
  if (device.gradientOverlap < 0) device.gradientOverlap = device.overlap;
  if (cluster.networkSharedBy > 0) return;
  // Devices share a card of their server's where a device's part of the network is less than a card's.
  const double card = preset ? preset->cardGbps * gigabit : cluster.network.bandwidth;
  cluster.networkSharedBy =
      std::clamp<int64_t>(std::llround(card / cluster.network.bandwidth), 1, cluster.devicesPerNode);
}

Device cpuDevice(int64_t devices, int64_t cores, double memoryBytes) {
  Device device;
  device.kind = "cpu";
  // oneDNN, f32, AVX-512 Zen 4: 110 GFLOP/s a core; 35 GB/s of memory bandwidth for two cores, little more for many
  // on one such virtual machine. Fixed, not measured, so that the same model gives the same plan every time;
  // `cleave probe` writes a cluster file with this machine's own.
  double share = double(cores) / double(devices);
  device.coreShare = std::min(1.0, share);
  device.memoryBytes = memoryBytes / double(devices);
  device.flops = {{"fp32", 110 * giga * share}};
  device.memoryBandwidth = std::max(1.0, double(cores) / 2) * 35 * giga / double(devices);
  // The compiler's kernels on such a core: half the speed that `cleave probe` finds on Zen 5, as of the products.
  constexpr double perCore[elementWorks] = {0, 10e-12, 100e-12, 700e-12, 200e-12, 1500e-12, 1000e-12};
  for (size_t work = 0; work < elementWorks; ++work) device.elementSeconds[work] = perCore[work] / share;
  // oneDNN's blocks with AVX-512, and as fast as products; bringing tensors into them likewise at half of Zen 5's
  // speed.
  device.convolutions = {16, 0.9, 2e-6, 40e-12 / share};
  return device;
}

} // namespace cleave::planner
