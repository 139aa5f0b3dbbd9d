// Figures that follow a known law give its constants back.
#include "compiler/calibrate/machine_cluster.h"
#include "compiler/calibrate/product_fit.h"
#include "compiler/cluster/cost.h"
#include <cmath>
#include <gtest/gtest.h>

namespace cleave::planner {
namespace {

// A machine whose products, copies and collectives take exactly what the model says.
runtime::MachineFigures lawful(int64_t devices) {
  constexpr double rate = 2e11, lost = 5, call = 1e-6, reading = 20e-12;
  runtime::MachineFigures figures;
  figures.devices = devices;
  figures.cores = 8;
  figures.memoryBytes = 64e9;
  // Three products; both weights and, for their gradient, what they multiply and are multiplied by are copied.
  for (double samples : {1024.0, 64.0})
    for (double in : {1024.0, 128.0, 16.0})
      for (double out : {256.0, 32.0}) {
        double working = 2 * samples * in * out / rate * (1 + lost / samples) * (1 + lost / in) * (1 + lost / out);
        double rows = 2 * (call + working + 4 * in * out * reading);
        double weights = call + working + 4 * samples * (in + out) * reading;
        figures.layers.push_back({int64_t(samples), int64_t(in), int64_t(out), rows + weights, rows});
      }
  // A trial that something else disturbed.
  figures.layers[3].seconds *= 3;
  // Attention at a third of the rate, and 100 ns a product.
  for (double size : {64.0, 16.0}) {
    double flops = 2 * size * size * 16 * 8, edges = (1 + lost / size) * (1 + lost / size) * (1 + lost / 16);
    figures.products.push_back(
        {8, int64_t(size), int64_t(size), 16, flops / (3 * flops / rate * edges + 8 * 100e-9 + call), true});
  }
  // Experts: 300 ns a product.
  for (double size : {64.0, 32.0}) {
    double flops = 2 * 24 * size * size * 4, edges = (1 + lost / 24) * (1 + lost / size) * (1 + lost / size);
    double seconds = call + flops / rate * edges + 4 * (300e-9 + 4 * size * size * reading);
    figures.products.push_back({4, 24, int64_t(size), int64_t(size), flops / seconds, false, false, true});
  }
  // Convolutions at half the rate, in blocks of 16 channels: of 8 channels half of what is done counts, on either side.
  auto convolution = [&](double samples, double in, double out, double side, double inFill, double outFill) {
    double positions = samples * side * side, flops = 2 * positions * in * out * 9;
    double x = 4 * positions * in, y = 4 * positions * out, weights = 4 * in * out * 9;
    auto pass = [&](double filling, double ordered) {
      return 3e-6 + flops * filling / (rate / 2) + (ordered + 2 * weights) * 15e-12;
    };
    double inOrder = x * (1 + inFill), outOrder = y * (1 + outFill), plainIn = in < 16 ? 0 : inOrder;
    double plain = (in < 16 ? 1 : inFill) * outFill;
    figures.convolutions.push_back({int64_t(samples), int64_t(in), int64_t(out), int64_t(side), 3,
                                    pass(plain, plainIn + outOrder), pass(inFill * outFill, inOrder + outOrder),
                                    pass(plain, plainIn + outOrder)});
  };
  convolution(32, 8, 8, 16, 2, 2);
  convolution(32, 4, 16, 16, 4, 1);
  convolution(8, 32, 32, 16, 1, 1);
  convolution(8, 16, 24, 8, 1, 32.0 / 24);
  convolution(2, 64, 64, 8, 1, 1);
  // Weights that are read at a quarter of a copy's rate beside the work, and of which half is written beside it.
  double weights = 4096.0 * 4096, edges = (1 + lost / 16) * (1 + lost / 4096) * (1 + lost / 4096);
  double working = call + 2 * 16 * weights / rate * edges;
  auto streaming = [&](int64_t m, int64_t n, int64_t k, double moving) {
    figures.products.push_back({1, m, n, k, 2 * 16 * weights / (working + moving), false, true});
  };
  streaming(16, 4096, 4096, 4 * 4 * weights / 50e9);
  streaming(4096, 4096, 16, 4 * weights * 0.5 * (1 / 50e9 - 1 / 200e9) + 4 * 2 * 16 * 4096 * reading);
  // A step has 39 commands, 24 of them products with weights of 64 by 64, each of which takes so long to start.
  auto step = [&](double samples, double start) {
    double product = 2 * samples * 64 * 64 / rate * (1 + lost / samples) * (1 + lost / 64) * (1 + lost / 64);
    return runtime::KernelFigure{{"step", samples * 64, 0, 39, 24, 64}, 39 * start + 24 * product + samples * 1e-8};
  };
  figures.kernelSeconds = 2e-7;
  figures.soloSeconds = 5e-8;
  figures.kernels = {{{"arithmetic", 1e4, 1e4, 1, 0, 0}, 6e-7 + 1e4 / 200e9 + 1e4 * 2e-11},
                     {{"arithmetic", 1e5, 1e5, 1, 0, 0}, 6e-7 + 1e5 / 200e9 + 1e5 * 2e-11},
                     {{"function", 1e5, 1e5, 1, 0, 0}, 6e-7 + 1e5 / 200e9 + 1e5 * 3e-10},
                     step(128, 25e-7),
                     step(512, 25e-7),
                     step(128, 60e-7), // something disturbed it
                     step(512, 25e-7),
                     step(128, 10e-7), // the machine was faster just then
                     step(512, 25e-7),
                     step(128, 25e-7),
                     {{"update", 3e8, 2e9, 1, 0, 0}, 6e-7 + 0.5 * 2e9 / 50e9 + 3e8 * 2e-11}};
  figures.streams = {{1 << 18, 200e9, 220e9}, {1 << 20, 180e9, 200e9}, {1 << 27, 50e9, 90e9}};
  // Others push out what lies untouched: after 2 ms 1/e is left.
  for (double pause : {0.5e-3, 3e-3}) {
    const double left = std::exp(-pause / 2e-3), bytes = 1 << 20;
    figures.returns.push_back({int64_t(bytes), pause, bytes * (left / 180e9 + (1 - left) / 50e9)});
  }
  for (int64_t members = 2; members <= devices; members *= 2)
    for (int64_t bytes : {int64_t(1) << 10, int64_t(1) << 20, int64_t(1) << 23}) {
      const bool isFar = bytes > 1 << 20;
      double rate = isFar ? 25e9 : 75e9;
      double waits = std::log2(double(members)) / std::log2(double(devices));
      // Every rank reads all inputs' part and writes it; in the cache reading what others wrote is all that counts.
      double moved = bytes <= 4096 ? 0 : isFar ? 1 + 1 / double(members) : 1 - 1 / double(members);
      figures.collectives.push_back(
          {"reduce_scatter", members, bytes, 40e-6 * waits + moved * double(bytes) / rate, isFar});
    }
  return figures;
}

TEST(MachineCluster, FindsTheConstantsOfAMachine) {
  Cluster cluster = clusterOf(lawful(4));
  EXPECT_NEAR(cluster.device.flopsAt("fp32") * cluster.device.computeEfficiency / 2e11, 1, 0.02);
  EXPECT_NEAR(cluster.device.halfRateDimension, 5, 0.2);
  EXPECT_LE(cluster.device.computeEfficiency, 1);
  EXPECT_NEAR(cluster.device.launchSeconds, 25e-7, 3e-8); // lost is found in steps
  EXPECT_DOUBLE_EQ(cluster.device.soloLaunchSeconds, 5e-8);
  EXPECT_DOUBLE_EQ(cluster.device.memoryBandwidth, 50e9);
  EXPECT_DOUBLE_EQ(cluster.device.cacheBytes(), 1 << 20); // the largest copy that is a quarter faster than memory
  EXPECT_DOUBLE_EQ(cluster.device.secondsPerByte(1 << 10), 1 / 200e9);
  EXPECT_DOUBLE_EQ(cluster.device.secondsPerByte(1 << 20), 1 / 180e9);
  EXPECT_DOUBLE_EQ(cluster.device.secondsPerByte(1 << 19), (1 / 200e9 + 1 / 180e9) / 2); // half way, in powers of two
  EXPECT_DOUBLE_EQ(cluster.device.secondsPerByte(1e12), 1 / 50e9);
  EXPECT_NEAR(cluster.device.cacheHoldSeconds, 2e-3, 1e-9);
  EXPECT_DOUBLE_EQ(cluster.device.memoryBytes, 16e9);
  EXPECT_EQ(cluster.node.topology, Link::Topology::Memory);
  EXPECT_NEAR(cluster.node.latency, 40e-6, 1e-9);
  EXPECT_NEAR(cluster.node.bandwidth / 25e9, 1, 0.02);
  EXPECT_NEAR(cluster.node.cacheBandwidth / 75e9, 1, 0.02);
  EXPECT_NEAR(cluster.device.batchedEfficiency, 1 / 3.0, 0.01);
  EXPECT_NEAR(cluster.device.batchStartSeconds, 100e-9, 4e-9);
  EXPECT_NEAR(cluster.device.expertStartSeconds, 300e-9, 4e-9);
  EXPECT_NEAR(fitConvolutions(lawful(4).convolutions).start, 3e-6, 1e-8);
  EXPECT_EQ(cluster.device.convolutions.block, 16);
  EXPECT_NEAR(cluster.device.flopsAt("fp32") * cluster.device.convolutions.efficiency, 1e11, 1e8);
  EXPECT_NEAR(cluster.device.convolutions.startSeconds, 4 * 25e-7, 12e-8); // in a step: of four commands
  EXPECT_NEAR(cluster.device.convolutions.orderSeconds, 15e-12, 1e-13);
  EXPECT_NEAR(cluster.device.productStartSeconds, 25e-7, 3e-8);
  EXPECT_NEAR(cluster.device.productReadSeconds, 20e-12, 1e-13);
  EXPECT_NEAR(cluster.device.productTraffic, 4, 0.01);
  EXPECT_NEAR(cluster.device.productWriteTraffic, 0.5, 0.01);
  EXPECT_NEAR(cluster.device.updateTraffic, 0.5, 1e-3);
  EXPECT_NEAR(cluster.device.elementSeconds[size_t(ElementWork::Function)], 3e-10, 1e-14);
  EXPECT_NEAR(cluster.device.elementSeconds[size_t(ElementWork::Arithmetic)], 2e-11, 1e-15);
  EXPECT_EQ(cluster.device.elementSeconds[size_t(ElementWork::Random)], 0);
}

// A machine of one's own keeps what lies in its caches, but for chance.
TEST(MachineCluster, AQuietMachineHoldsItsCaches) {
  runtime::MachineFigures figures = lawful(1);
  for (runtime::ReturnFigure &figure : figures.returns) figure.seconds = double(figure.bytes) / 180e9 * 1.01;
  EXPECT_EQ(clusterOf(figures).device.cacheHoldSeconds, 0);
}

// Two devices that take turns on each core copy at half the rate together, and each at the whole one meanwhile.
TEST(MachineCluster, DevicesThatTakeTurnsHoldTheirCachesAsLong) {
  runtime::MachineFigures figures = lawful(16);
  for (runtime::ReturnFigure &figure : figures.returns) figure.seconds /= 2;
  EXPECT_NEAR(clusterOf(figures).device.cacheHoldSeconds, 2e-3, 1e-9);
}

// In a step no kernel starts sooner than by itself.
TEST(MachineCluster, StartsAtLeastAsLongInAStep) {
  runtime::MachineFigures figures = lawful(1);
  for (runtime::KernelFigure &kernel : figures.kernels)
    if (kernel.work != runtime::KernelTrial::step) kernel.seconds += 5e-6;
  EXPECT_NEAR(clusterOf(figures).device.launchSeconds, 5.6e-6, 1e-10);
  EXPECT_NEAR(clusterOf(figures).device.productStartSeconds, 5.6e-6, 1e-10);
}

TEST(MachineCluster, NorDoesAProduct) {
  runtime::MachineFigures figures = lawful(1);
  for (runtime::KernelFigure &kernel : figures.kernels)
    if (kernel.work == runtime::KernelTrial::step) kernel.seconds = kernel.elements * 1e-8; // starts take nothing
  EXPECT_NEAR(clusterOf(figures).device.launchSeconds, 6e-7, 1e-12);
  EXPECT_NEAR(clusterOf(figures).device.productStartSeconds, 1e-6, 1e-8);
}

TEST(MachineCluster, YamlReadsBack) {
  for (int64_t devices : {1, 2, 4}) {
    Cluster cluster = clusterOf(lawful(devices));
    auto again = parseClusterYaml(cluster.yaml(), "probed.yaml");
    ASSERT_TRUE(again) << again.status().message();
    EXPECT_EQ(again->yaml(), cluster.yaml());
    EXPECT_EQ(again->numDevices(), devices);
  }
}

// GPUs whose products, kernels and all-reduces take exactly what the model says.
TEST(MachineCluster, FindsTheConstantsOfGpus) {
  constexpr double lost = 6, start = 2e-6;
  runtime::GpuFigures figures;
  figures.gpu = {"NVIDIA H100 80GB HBM3", 90, 79.6 * 1024 * 1024 * 1024};
  figures.devices = 8;
  figures.launchSeconds = start;
  figures.streamRate = 2.9e12;
  figures.hostRate = 40e9;
  for (auto [precision, rate] : {std::pair{"fp32", 5e13}, {"tf32", 4e14}, {"fp16", 7e14}, {"bf16", 7e14}})
    for (double size : {8192.0, 2048.0, 512.0})
      for (double k : {8192.0, 512.0}) {
        double flops = 2 * size * size * k;
        double seconds = flops / rate * (1 + lost / size) * (1 + lost / size) * (1 + lost / k) + start;
        figures.products[precision].push_back({1, int64_t(size), int64_t(size), int64_t(k), flops / seconds});
      }
  Cluster truth;
  truth.devicesPerNode = 8;
  truth.device.kind = "h100-80g";
  truth.node = {400e9, 5e-6};
  for (int64_t bytes : {int64_t(1) << 6, int64_t(1) << 20, int64_t(1) << 30})
    figures.collectives.push_back(
        {"all_reduce", 8, bytes, collectiveSeconds(truth, Collective::AllReduce, {8, 8}, double(bytes))});

  Cluster cluster = clusterOf(figures);
  EXPECT_EQ(cluster.device.kind, "h100-80g");
  EXPECT_NEAR(cluster.device.flopsAt("bf16") * cluster.device.computeEfficiency / 7e14, 1, 0.01);
  EXPECT_NEAR(cluster.device.flopsAt("fp32") * cluster.device.computeEfficiency / 5e13, 1, 0.01);
  EXPECT_EQ(cluster.device.flopsAt("fp8"), 2 * cluster.device.flopsAt("bf16"));
  EXPECT_NEAR(cluster.device.halfRateDimension, lost, 0.2);
  EXPECT_EQ(cluster.device.launchSeconds, start);
  EXPECT_EQ(cluster.device.dispatchSeconds, 0);
  EXPECT_EQ(cluster.device.memoryBandwidth * cluster.device.bandwidthEfficiency, 2.9e12);
  EXPECT_NEAR(cluster.node.latency / 5e-6, 1, 0.01);
  EXPECT_NEAR(cluster.node.bandwidth / 400e9, 1, 0.01);
  EXPECT_NEAR(hostCopySeconds(cluster, 40e9, 0), 1, 1e-9);
  auto again = parseClusterYaml(cluster.yaml(), "probed.yaml");
  ASSERT_TRUE(again) << again.status().message();
  EXPECT_EQ(again->yaml(), cluster.yaml());
}

} // namespace
} // namespace cleave::planner
