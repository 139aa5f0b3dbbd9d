// The cluster that a probed machine is for the planner: figures of commands become rates, latencies and sizes.
//
//   MachineFigures figures = *MachineProbe{.devices = 2}.measure();
//   Cluster cluster = clusterOf(figures);        // cluster.yaml() is what `cleave probe` writes
#pragma once
#include "compiler/cluster/cluster.h"
#include "runtime/plan/machine_figures.h"

namespace cleave::planner {

// - Matrix products: the rate `c` and the lost elements `h` of c / ((1 + h/m) (1 + h/n) (1 + h/k)) (cost.h) that come
//   closest to the measured rates, in the mean of squared logarithms; `tflops` is the best rate measured, or c. What
//   strided batches reach of that rate, and how often weights that stream move, in the mean.
// - Convolutions: what comes closest of the blocks of channels, the rate with whole ones, the start and the ordering.
//   In a step it starts as four commands do at least: two operands are brought into blocks, the result back.
// - Kernels: of two that do the same with fewer and more elements, what no element explains is the launch (threads that
//   are woken); the rest an element and kind of work, after the bytes.
// - Bandwidths with all devices active: of the largest copy (memory), and of the largest that is a quarter faster
//   (the cache, as large as that copy). How long caches hold what is not touched: of copies after pauses, what part
//   came from memory.
// - Collectives: the latency of those over all devices that move next to nothing; the mean rate after it, of those that
//   fit into that cache and of larger ones.
Cluster clusterOf(const runtime::MachineFigures &figures);
// One node of GPUs. Products: one `c` and `h` for all precisions, those of the one with the best rate; the others'
// peaks are such that they come closest to their rates. Work made of kernels moves the bytes that it must and no more;
// the step is a graph, so the host hands nothing over. The kind is the preset's that is named in the GPU's name and has
// as much memory, or its compute capability. Figures that are not measured (overlap, the network) are as for GPUs that
// no preset knows.
Cluster clusterOf(const runtime::GpuFigures &figures);

} // namespace cleave::planner
