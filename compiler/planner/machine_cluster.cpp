#include "compiler/planner/machine_cluster.h"
#include "compiler/planner/cost.h"
#include "compiler/planner/device_presets.h"
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <optional>

namespace cleave::planner {
namespace {

using runtime::CollectiveFigure;
using runtime::MachineFigures;

struct ProductFit {
  double rate = 0, lost = 0;
};

// Least squares of log(rate): for a given `lost` the best rate is a mean, so only `lost` is searched.
ProductFit fitProducts(const MachineFigures &figures) {
  ProductFit best;
  double least = std::numeric_limits<double>::infinity();
  for (double lost = 0; lost <= 64; lost += 0.125) {
    std::vector<double> logs;
    for (const runtime::ProductFigure &p : figures.products) {
      double seconds = 2.0 * double(p.batch) * double(p.m) * double(p.n) * double(p.k) / p.rate;
      double working = std::max(0.1 * seconds, seconds - figures.smallProductSeconds);
      double edges = (1 + lost / double(p.m)) * (1 + lost / double(p.n)) * (1 + lost / double(p.k));
      logs.push_back(std::log(p.rate * seconds / working * edges));
    }
    double mean = 0, error = 0;
    for (double value : logs) mean += value / double(logs.size());
    for (double value : logs) error += (value - mean) * (value - mean);
    if (error >= least) continue;
    least = error;
    best = {std::exp(mean), lost};
  }
  return best;
}

std::optional<Collective> collectiveNamed(const std::string &op) {
  for (Collective one : {Collective::AllReduce, Collective::ReduceScatter, Collective::AllGather, Collective::AllToAll})
    if (op == name(one)) return one;
  return std::nullopt;
}

Link fitLink(const MachineFigures &figures, const Cluster &cluster) {
  Link link = cpuLink(figures.devices);
  std::vector<double> latencies;
  for (const CollectiveFigure &c : figures.collectives)
    if (c.members == figures.devices && c.bytes <= 4096) latencies.push_back(c.seconds);
  if (latencies.empty()) return link; // one device
  std::sort(latencies.begin(), latencies.end());
  link.latency = latencies[latencies.size() / 2];
  // collectiveSeconds() with a bandwidth of 1 and no latency tells what a collective moves.
  Cluster unit = cluster;
  unit.node = {1, 0, Link::Topology::Memory};
  double logs = 0, count = 0;
  for (const CollectiveFigure &c : figures.collectives) {
    std::optional<Collective> collective = collectiveNamed(c.op);
    if (!collective || c.bytes < (1 << 20)) continue;
    double moved = collectiveSeconds(unit, *collective, {c.members, c.members}, double(c.bytes));
    double waits = std::log2(double(c.members)) / std::log2(double(figures.devices));
    logs += std::log(moved / std::max(0.1 * c.seconds, c.seconds - waits * link.latency));
    ++count;
  }
  if (count > 0) link.bandwidth = std::exp(logs / count);
  return link;
}

} // namespace

Cluster clusterOf(const MachineFigures &figures) {
  Cluster cluster;
  cluster.name = fmt::format("probed cpu:{}", figures.devices);
  cluster.devicesPerNode = figures.devices;
  Device &device = cluster.device;
  device = cpuDevice(figures.devices, figures.cores, figures.memoryBytes);
  device.launchSeconds = figures.smallProductSeconds;
  if (!figures.products.empty()) {
    ProductFit fit = fitProducts(figures);
    double peak = fit.rate;
    for (const runtime::ProductFigure &p : figures.products) peak = std::max(peak, p.rate);
    device.flops = {{"fp32", peak}};
    device.computeEfficiency = fit.rate / peak;
    device.halfRateDimension = fit.lost;
  }
  if (!figures.streams.empty()) {
    device.memoryBandwidth = figures.streams.back().together;
    device.bandwidthEfficiency = 1;
    device.cacheBytes = device.cacheBandwidth = 0;
    for (const runtime::StreamFigure &s : figures.streams)
      if (s.together > 1.25 * device.memoryBandwidth) {
        device.cacheBytes = double(s.bytes);
        device.cacheBandwidth = s.together;
      }
  }
  cluster.node = cluster.network = fitLink(figures, cluster);
  return cluster;
}

} // namespace cleave::planner
