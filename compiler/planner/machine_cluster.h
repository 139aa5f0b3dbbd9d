// The cluster that a probed machine is for the planner: figures of commands become rates, latencies and sizes.
//
//   MachineFigures figures = *MachineProbe{.devices = 2}.measure();
//   Cluster cluster = clusterOf(figures);        // cluster.yaml() is what `cleave probe` writes
#pragma once
#include "compiler/planner/cluster.h"
#include "runtime/probe/machine.h"

namespace cleave::planner {

// - Matrix products: the rate `c` and the lost elements `h` of c / ((1 + h/m) (1 + h/n) (1 + h/k)) (cost.h) that come
//   closest to the measured rates, in the mean of squared logarithms; `tflops` is the best rate measured, or c. What
//   strided batches reach of that rate, and how often weights that stream move, in the mean.
// - Kernels: of two that do the same with fewer and more elements, what no element explains is the launch (threads that
//   are woken); the rest an element and kind of work, after the bytes.
// - Bandwidths with all devices active: of the largest copy (memory), and of the largest that is a quarter faster
//   (the cache, as large as that copy).
// - Collectives: the latency of those over all devices that move next to nothing; the mean rate after it, of those that
//   fit into that cache and of larger ones.
Cluster clusterOf(const runtime::MachineFigures &figures);

} // namespace cleave::planner
