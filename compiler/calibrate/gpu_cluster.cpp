// Figures of GPUs as a cluster: machine_cluster.h.
#include "compiler/calibrate/machine_cluster.h"
#include "compiler/calibrate/product_fit.h"
#include "compiler/cluster/cost.h"
#include "compiler/cluster/device_presets.h"
#include <algorithm>
#include <cmath>
#include <fmt/format.h>

namespace cleave::planner {
namespace {

using runtime::GpuFigures;

constexpr const char *software = "cleave"; // it launches what is measured

// "NVIDIA H100 80GB HBM3", 79.6 GiB -> "h100-80g".
std::string kindOf(const runtime::GpuDescription &gpu) {
  auto isLetter = [](char c) { return std::isalnum(static_cast<unsigned char>(c)); };
  std::vector<std::string> words(1); // of its name
  for (char c : gpu.name)
    if (isLetter(c))
      words.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    else
      words.emplace_back();
  for (const std::string &kind : presetKinds()) {
    const double memory = standardCluster(kind, software, 1, 1).device.memoryBytes;
    if (std::ranges::find(words, kind.substr(0, kind.find('-'))) != words.end() &&
        std::abs(gpu.memoryBytes / memory - 1) < 0.15)
      return kind;
  }
  return fmt::format("sm_{}", gpu.capability);
}

void fitProducts(const GpuFigures &figures, Device &device) {
  const std::vector<runtime::ProductFigure> *best = nullptr;
  auto peakOf = [](const std::vector<runtime::ProductFigure> &products) {
    double peak = 0;
    for (const runtime::ProductFigure &p : products) peak = std::max(peak, p.rate);
    return peak;
  };
  for (const auto &[precision, products] : figures.products)
    if (!best || peakOf(products) > peakOf(*best)) best = &products;
  if (!best) return;
  const ProductFit fit = planner::fitProducts(*best, figures.launchSeconds);
  const double peak = std::max(peakOf(*best), fit.rate);
  device.computeEfficiency = fit.rate / peak;
  device.halfRateDimension = fit.lost;
  for (const auto &[precision, products] : figures.products)
    device.flops[precision] =
        planner::fitProducts(products, figures.launchSeconds, fit.lost).rate / device.computeEfficiency;
}

// An all-reduce of next to nothing is its latency; what large ones take beyond it, their traffic.
Link fitLink(const GpuFigures &figures, const Cluster &cluster) {
  Link link = cluster.node;
  if (figures.collectives.empty()) return link;
  const GroupShape all{figures.devices, figures.devices};
  auto bySize = [](const auto &a, const auto &b) { return a.bytes < b.bytes; };
  const auto [least, most] = std::ranges::minmax_element(figures.collectives, bySize);
  Cluster unit = cluster;
  unit.node = {1, 0};
  const double starts = 1 + std::log2(double(figures.devices)); // cost.h
  link.latency = least->seconds / starts;
  const double moved = collectiveSeconds(unit, Collective::AllReduce, all, double(most->bytes));
  link.bandwidth = moved / std::max(0.1 * most->seconds, most->seconds - least->seconds);
  return link;
}

} // namespace

Cluster clusterOf(const GpuFigures &figures) {
  Cluster cluster = standardCluster(kindOf(figures.gpu), software, 1, figures.devices);
  cluster.name = fmt::format("probed {} x {}", figures.devices, figures.gpu.name);
  Device &device = cluster.device;
  device.memoryBytes = figures.gpu.memoryBytes;
  device.memoryBandwidth = figures.streamRate;
  device.bandwidthEfficiency = 1;
  device.launchSeconds = figures.launchSeconds;
  const bool hasFp8 = device.flops.contains("fp8");
  device.flops.clear();
  fitProducts(figures, device);
  // Not measured: twice the rate of 16 bits, as in the data sheets.
  if (hasFp8 && device.flops.contains("bf16")) device.flops["fp8"] = 2 * device.flops["bf16"];
  fillIn(cluster);
  cluster.node = fitLink(figures, cluster);
  if (figures.hostRate > 0) {
    cluster.host.bandwidth = figures.hostRate / constants::hostEfficiency; // hostCopySeconds() takes that part of it
    cluster.hostSharedBy = 1;                                              // all of them copied at the same time
  }
  return cluster;
}

} // namespace cleave::planner
