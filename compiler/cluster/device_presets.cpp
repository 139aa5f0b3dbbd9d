#include "compiler/cluster/device_presets.h"
#include <algorithm>
#include <cmath>

namespace cleave::planner {
namespace {

constexpr double tera = 1e12, giga = 1e9;

struct Row {
  const char *kind;
  double memoryGib, fp32, tf32, half, memoryGbps; // TFLOP/s dense; GB/s
  double nodeGbps, networkGbps;                   // bits, a device, each way
  double cardGbps;                                // bits, a network card
};

// NVIDIA data sheets: V100 (SXM2), A100 (SXM4), H100 (SXM5), H200 (SXM), B200 (HGX, dense figures).
// NVLink: 300, 600, 900, 900, 1800 GB/s both ways together. Networks: DGX-1 four 100 Gb/s for eight devices, DGX A100
// eight 200 Gb/s, DGX H100, H200 and B200 eight 400 Gb/s.
constexpr Row rows[] = {
    {"v100-16g", 16, 15.7, 0, 125, 900, 1200, 50, 100},       {"v100-32g", 32, 15.7, 0, 125, 900, 1200, 50, 100},
    {"a100-40g", 40, 19.5, 156, 312, 1555, 2400, 200, 200},   {"a100-80g", 80, 19.5, 156, 312, 2039, 2400, 200, 200},
    {"h100-80g", 80, 67, 494.7, 989.4, 3350, 3600, 400, 400}, {"h200", 141, 67, 494.7, 989.4, 4800, 3600, 400, 400},
    {"b200", 180, 75, 1100, 2250, 7700, 7200, 400, 400},
};

const Row *find(const std::string &kind) {
  for (const Row &row : rows)
    if (kind == row.kind) return &row;
  return nullptr;
}

} // namespace

std::vector<std::string> presetKinds() {
  std::vector<std::string> kinds;
  for (const Row &row : rows) kinds.emplace_back(row.kind);
  return kinds;
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

std::optional<Device> devicePreset(const std::string &kind) {
  const Row *row = find(kind);
  if (!row) return std::nullopt;
  Device device;
  device.kind = kind;
  device.memoryBytes = row->memoryGib * gib;
  device.flops = {{"fp32", row->fp32 * tera}, {"fp16", row->half * tera}};
  if (row->tf32 > 0) device.flops["tf32"] = row->tf32 * tera;
  device.flops["bf16"] = (row->tf32 > 0 ? row->half : row->fp32) * tera; // V100 has no bf16 units
  device.memoryBandwidth = row->memoryGbps * giga;
  // The software of the times that these devices' measured runs are of: Megatron-LM of 2021 and 2022 with scores in
  // memory and gradients summed after the backward pass, Megatron-Core of 2024 with FlashAttention and gradients summed
  // beside it.
  device.fusedAttention = !kind.starts_with("v100") && !kind.starts_with("a100");
  fillDefaults(device);
  return device;
}

void linkPreset(const std::string &kind, Link &node, Link &network) {
  const Row *row = find(kind);
  // Unknown devices: PCIe 4.0 x16 inside a node (32 GB/s, 25 usable) and 100 Gb/s Ethernet or InfiniBand between nodes.
  node.bandwidth = (row ? row->nodeGbps : 200) / 8 * giga;
  network.bandwidth = (row ? row->networkGbps : 100) / 8 * giga;
  node.latency = constants::nodeLatency;
  network.latency = constants::networkLatency;
}

int64_t cardSharedBy(const std::string &kind, const Link &network, int64_t devicesPerNode) {
  const Row *row = find(kind);
  if (!row) return 1;
  const double card = row->cardGbps / 8 * giga;
  return std::clamp<int64_t>(std::llround(card / network.bandwidth), 1, devicesPerNode);
}

void hostPreset(const std::string &kind, Cluster &cluster) {
  struct Host {
    const char *kind;
    double gbps;      // bits, each way: PCI Express 3.0, 4.0, 5.0 with 16 lanes (PCI-SIG: 8, 16, 32 GT/s, 128b/130b)
    int64_t sharedBy; // GPUs behind one switch's upstream port
    double memoryGib; // of a node
  };
  // NVIDIA, user guides of DGX-1 (512 GB, a switch for two GPUs), DGX A100 (1 TB and 2 TB, a switch for two), DGX H100,
  // H200 and B200 (2 TB, a port for each).
  static constexpr Host hosts[] = {{"v100-16g", 126, 2, 512},  {"v100-32g", 126, 2, 512},  {"a100-40g", 252, 2, 1024},
                                   {"a100-80g", 252, 2, 2048}, {"h100-80g", 504, 1, 2048}, {"h200", 504, 1, 2048},
                                   {"b200", 504, 1, 2048}};
  cluster.host = {252 * giga / 8, constants::hostLatency}; // unknown devices: PCI Express 4.0, alone
  for (const Host &host : hosts) {
    if (kind != host.kind) continue;
    cluster.host.bandwidth = host.gbps * giga / 8;
    cluster.hostSharedBy = std::min(host.sharedBy, cluster.devicesPerNode);
    cluster.hostMemoryBytes = host.memoryGib * gib;
  }
}

void fillDefaults(Device &device) {
  bool cpu = device.isCpu();
  auto fill = [](double &value, double standard) {
    if (value < 0) value = standard;
  };
  if (device.computeEfficiency <= 0) device.computeEfficiency = cpu ? 0.9 : constants::gpuComputeEfficiency;
  if (device.bandwidthEfficiency <= 0) device.bandwidthEfficiency = cpu ? 0.8 : constants::gpuBandwidthEfficiency;
  if (device.kernelTraffic <= 0) device.kernelTraffic = cpu ? 1.0 : constants::gpuKernelTraffic;
  if (device.updateTraffic <= 0) device.updateTraffic = cpu ? 1.0 : constants::gpuUpdateTraffic;
  // A command of the CPU executor with its barrier costs about 4 us.
  if (device.launchSeconds <= 0) device.launchSeconds = cpu ? 4e-6 : constants::gpuLaunchSeconds;
  fill(device.soloLaunchSeconds,
       cpu ? std::min(constants::cpuSoloLaunchSeconds, device.launchSeconds) : device.launchSeconds);
  fill(device.scoreTraffic, cpu ? device.kernelTraffic : constants::gpuScoreTraffic);
  fill(device.tensorOverlap, device.fusedAttention ? constants::gpuTensorOverlap : 0.0);
  fill(device.dispatchSeconds, cpu ? 0.0 : constants::gpuDispatchSeconds);
  // oneDNN reaches 90 % of its rate at 512x2048x512.
  fill(device.halfRateDimension, cpu ? 24 : constants::gpuHalfRateDimension);
  // NCCL's kernels take some multiprocessors: Galvatron measures compute 1.126 times slower while overlapped. On the
  // CPU the same cores compute and copy: nothing hides.
  if (device.overlap <= 0) device.overlap = cpu ? 0.0 : 1 / 1.126;
  fill(device.gradientOverlap, device.fusedAttention ? device.overlap : 0.0);
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
  fillDefaults(device);
  return device;
}

Link cpuLink(int64_t devices) {
  // A collective in one process reads the peers' buffers: memory bandwidth, shared by all devices.
  // Threads that have to be woken meet in tens of microseconds. Where nothing else wants the cores it is less (1 us for
  // two on two cores, 5 for four): `cleave probe` tells.
  return {35 * giga / double(std::max<int64_t>(1, devices)), 20e-6, Link::Topology::Memory};
}

Link cpuHostLink(int64_t devices) {
  // What is copied is read and written; a start takes as long as a barrier.
  return {35 * giga / 2 / double(std::max<int64_t>(1, devices)), 20e-6};
}

} // namespace cleave::planner
