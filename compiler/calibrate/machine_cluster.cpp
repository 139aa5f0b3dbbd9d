#include "compiler/calibrate/machine_cluster.h"
#include "compiler/calibrate/product_fit.h"
#include "compiler/cluster/cost.h"
#include "compiler/cluster/device_presets.h"
#include "compiler/planner/infinity.h"
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <map>
#include <optional>

namespace cleave::planner {
namespace {

using runtime::CollectiveFigure;
using runtime::MachineFigures;

// Fits the part that the law of plain products leaves out: for a given start of each product of a batch a mean ratio,
// so only the start is searched.
void fitBatched(const MachineFigures &figures, const LayerFit &fit, Device &device) {
  constexpr double most = 1e-6, step = 2e-9;
  double least = infinity;
  for (double start = 0; start <= most; start += step) {
    std::vector<double> logs;
    for (const runtime::ProductFigure &p : figures.products) {
      if (!p.isStrided) continue;
      const double edges = edgeFactor(p, fit.lost);
      const double seconds = flopsOf(p) / p.rate;
      const double working = std::max(0.1 * seconds, seconds - fit.start - double(p.batch) * start);
      logs.push_back(std::log(flopsOf(p) / working * edges / fit.rate));
    }
    if (logs.empty()) return;
    const Spread spread = spreadOf(logs, 0);
    if (spread.error >= least) continue;
    least = spread.error;
    device.batchedEfficiency = std::exp(spread.mean);
    device.batchStartSeconds = start;
  }
}

// Experts: what each product takes beside its work and the copy of its weights.
void fitExperts(const MachineFigures &figures, const LayerFit &fit, Device &device) {
  double starts = 0, count = 0;
  for (const runtime::ProductFigure &p : figures.products) {
    if (!p.hasOwnWeights) continue;
    const double working = flopsOf(p) / fit.rate * edgeFactor(p, fit.lost);
    const double copying = 4 * double(p.batch) * double(p.k) * double(p.n) * fit.readSeconds;
    starts += std::max(0.0, flopsOf(p) / p.rate - fit.start - working - copying) / double(p.batch);
    ++count;
  }
  if (count > 0) device.expertStartSeconds = starts / count;
}

// Weights from memory: what their products take beside their work, reading and, for their gradient, writing them.
void fitStreaming(const MachineFigures &figures, const LayerFit &fit, Device &device) {
  double logs = 0, count = 0, written = 0, writes = 0;
  for (const runtime::ProductFigure &p : figures.products) {
    if (!p.isStreaming) continue;
    const double edges = edgeFactor(p, fit.lost);
    const double seconds = flopsOf(p) / p.rate;
    const double left = std::max(0.1 * seconds, seconds - fit.start - flopsOf(p) / fit.rate * edges);
    if (p.k < p.m) {
      const double far = 1 / device.memoryBandwidth - device.secondsPerByte(0);
      const double read = 4 * double(p.k) * double(p.m + p.n) * fit.readSeconds;
      if (far > 0) written += std::max(0.0, left - read) / (4 * double(p.m) * double(p.n) * far), ++writes;
    } else {
      logs += std::log(left * device.memoryBandwidth / (4 * double(p.k) * double(p.n)));
      ++count;
    }
  }
  if (count > 0) device.productTraffic = std::exp(logs / count);
  if (writes > 0) device.productWriteTraffic = written / writes;
}

// Nearer bytes are no slower: what a small copy loses is the start, which is counted apart.
void fitMemory(const MachineFigures &figures, Device &device) {
  if (figures.streams.empty()) return;
  device.memoryBandwidth = figures.streams.back().together;
  device.bandwidthEfficiency = 1;
  device.caches.clear();
  double fastest = 0;
  for (auto stream = figures.streams.rbegin(); stream != figures.streams.rend(); ++stream) {
    fastest = std::max(fastest, stream->together);
    device.caches.insert(device.caches.begin(), {double(stream->bytes), fastest});
  }
}

// The part of untouched bytes that comes back from memory and not from the cache tells how fast others fill the caches:
// 1 - exp(-pause / hold). A hold of more than a tenth of a second is as good as for ever. A copy by itself is not
// waited for: where devices take turns on cores it has a whole one.
void fitHold(const MachineFigures &figures, Device &device) {
  constexpr double most = 0.95, longest = 0.1; // part of the bytes that has left; seconds
  double pauses = 0, left = 0;
  for (const runtime::ReturnFigure &figure : figures.returns) {
    const double near = device.coreShare * device.secondsPerByte(double(figure.bytes)),
                 memory = device.coreShare / device.memoryBandwidth;
    if (memory <= near) continue;
    const double part = std::clamp((figure.seconds / double(figure.bytes) - near) / (memory - near), 0.0, most);
    pauses += figure.pause;
    left -= std::log1p(-part);
  }
  if (left * longest > pauses) device.cacheHoldSeconds = pauses / left;
}

// Kernels work in the cache: what remains when the bytes have moved at the rate of a copy of as many.
double workingSeconds(const Device &device, const runtime::KernelFigure &kernel) {
  return kernel.seconds - kernel.bytes * device.secondsPerByte(kernel.bytes);
}

// Seconds that the products of a step lose at the edge of their rows, however many rows there are.
double edgeSeconds(const Device &device, const runtime::KernelFigure &step) {
  const double width = double(step.width), lost = device.halfRateDimension, across = width + lost;
  return step.products * 2 * lost * across * across / (device.flopsAt("fp32") * device.computeEfficiency);
}

double medianOf(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + std::ptrdiff_t(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// Seconds to start a command: the part that no element explains, of two commands that do the same with fewer and more
// elements. In a step it is more than in a trial of one kernel: every command is another one, and what it reads lies
// with other cores. Repeated measurements count by their median: the machine may change its speed meanwhile, and the
// quickest of one need not be of the time of the quickest of the other.
double fitStart(const MachineFigures &figures, const Device &device, bool inStep) {
  std::map<std::pair<std::string, double>, std::vector<double>> seconds; // of work on so many elements
  for (const runtime::KernelFigure &kernel : figures.kernels)
    if ((kernel.work == runtime::KernelTrial::step) == inStep)
      seconds[{kernel.work, kernel.elements}].push_back(workingSeconds(device, kernel));
  for (const runtime::KernelFigure &few : figures.kernels)
    for (const auto &[many, taken] : seconds) {
      auto same = seconds.find({few.work, few.elements});
      if (same == seconds.end() || few.work != many.first || few.elements >= many.second) continue;
      const double ratio = few.elements / many.second, more = medianOf(same->second) - ratio * medianOf(taken);
      return std::max(0.0, (more / (1 - ratio) - edgeSeconds(device, few)) / few.commands);
    }
  return 0;
}

// The last of several kernels of a kind, the largest, counts.
void fitElements(const MachineFigures &figures, double start, Device &device) {
  for (const runtime::KernelFigure &kernel : figures.kernels) {
    double left = std::max(0.1 * kernel.seconds, workingSeconds(device, kernel) - start);
    for (size_t work = 1; work < elementWorks; ++work)
      if (kernel.work == elementWorkNames[work]) device.elementSeconds[work] = left / kernel.elements;
  }
}

// Fits the time of an optimizer's step in memory for each byte of a copy: its writes find in the cache what they
// replace.
void fitUpdate(const MachineFigures &figures, double start, Device &device) {
  for (const runtime::KernelFigure &kernel : figures.kernels) {
    if (kernel.work != runtime::KernelTrial::update) continue;
    const double working = kernel.elements * device.elementSeconds[size_t(ElementWork::Arithmetic)];
    const double moving = std::max(0.1 * kernel.seconds, kernel.seconds - start - working);
    device.updateTraffic = moving * device.memoryBandwidth / kernel.bytes;
  }
}

// Mean rate of collectives of bytes in memory or in a cache, after their latency.
double fitRate(const MachineFigures &figures, const Cluster &cluster, const Link &link, bool isFar) {
  const double small = isFar ? 1 << 20 : 1 << 16; // bytes: less is mostly latency
  const double large = isFar ? infinity : cluster.device.cacheBytes();
  // collectiveSeconds() with a bandwidth of 1 and no latency tells what a collective moves.
  Cluster unit = cluster;
  unit.node = {1, 0, Link::Topology::Memory, isFar ? 0.0 : 1.0};
  double logs = 0, count = 0;
  for (const CollectiveFigure &c : figures.collectives) {
    std::optional<Collective> collective = dist::collectiveNamed(c.op);
    if (!collective || c.isFar != isFar || double(c.bytes) < small || double(c.bytes) > large) continue;
    double moved = collectiveSeconds(unit, *collective, {c.members, c.members}, double(c.bytes));
    double waits = std::log2(double(c.members)) / std::log2(double(figures.devices));
    logs += std::log(moved / std::max(0.1 * c.seconds, c.seconds - waits * link.latency));
    ++count;
  }
  return count > 0 ? std::exp(logs / count) : 0;
}

Link fitLink(const MachineFigures &figures, const Cluster &cluster) {
  Link link = cluster.node;
  int64_t least = std::numeric_limits<int64_t>::max(); // bytes
  for (const CollectiveFigure &c : figures.collectives)
    if (c.members == figures.devices) least = std::min(least, c.bytes);
  std::vector<double> latencies;
  for (const CollectiveFigure &c : figures.collectives)
    if (c.members == figures.devices && c.bytes < 2 * least) latencies.push_back(c.seconds);
  if (latencies.empty()) return link; // one device
  link.latency = medianOf(latencies);
  if (double rate = fitRate(figures, cluster, link, true); rate > 0) link.bandwidth = rate;
  if (cluster.device.cacheBytes() > 0) link.cacheBandwidth = fitRate(figures, cluster, link, false);
  return link;
}

} // namespace

Cluster clusterOf(const MachineFigures &figures) {
  Cluster cluster = standardCluster("cpu", "cleave", 1, figures.devices);
  cluster.name = fmt::format("probed cpu:{}", figures.devices);
  Device &device = cluster.device;
  device = cpuDevice(figures.devices, figures.cores, figures.memoryBytes);
  device.cpu = figures.cpu;
  fitMemory(figures, device);
  fitHold(figures, device);
  const double alone = std::max(figures.kernelSeconds, fitStart(figures, device, false));
  device.soloLaunchSeconds = figures.soloSeconds;
  device.launchSeconds = alone;
  if (!figures.layers.empty()) {
    const LayerFit fit = fitLayers(figures.layers);
    double peak = fit.rate;
    for (const runtime::LayerFigure &layer : figures.layers)
      peak = std::max(peak, 6 * double(layer.samples) * double(layer.in) * double(layer.out) / layer.seconds);
    if (!figures.convolutions.empty()) {
      const ConvolutionFit convolutions = fitConvolutions(figures.convolutions);
      peak = std::max(peak, convolutions.rate);
      device.convolutions = {convolutions.block, convolutions.rate / peak, convolutions.start,
                             convolutions.orderSeconds};
    }
    device.flops = {{"fp32", peak}};
    device.computeEfficiency = fit.rate / peak;
    device.halfRateDimension = fit.lost;
    device.launchSeconds = std::max(alone, fitStart(figures, device, true));
    device.productStartSeconds = std::max(device.launchSeconds, fit.start);
    // It brings its operands into blocks, and its result back, by commands of their own.
    device.convolutions.startSeconds = std::max(device.convolutions.startSeconds, 4 * device.launchSeconds);
    device.productReadSeconds = fit.readSeconds;
    fitBatched(figures, fit, device);
    fitExperts(figures, fit, device);
    fitStreaming(figures, fit, device);
  }
  device.elementSeconds.fill(0);
  fitElements(figures, alone, device);
  fitUpdate(figures, alone, device);
  cluster.node = cluster.network = fitLink(figures, cluster);
  fillIn(cluster);
  return cluster;
}

} // namespace cleave::planner
