#include "runtime/engine/probe/figures_json.h"
#include <nlohmann/json.hpp>

namespace cleave::runtime {
namespace {

using Json = nlohmann::ordered_json;

Json rowOf(const LayerFigure &layer) {
  return {{"samples", layer.samples},
          {"in", layer.in},
          {"out", layer.out},
          {"seconds", layer.seconds},
          {"row_seconds", layer.rowSeconds}};
}
Json rowOf(const ProductFigure &product) {
  return {{"batch", product.batch},
          {"m", product.m},
          {"n", product.n},
          {"k", product.k},
          {"strided", product.isStrided},
          {"streaming", product.isStreaming},
          {"own_weights", product.hasOwnWeights},
          {"flop_per_s", product.rate}};
}
Json rowOf(const ConvolutionFigure &convolution) {
  return {{"samples", convolution.samples},
          {"in", convolution.in},
          {"out", convolution.out},
          {"side", convolution.side},
          {"kernel", convolution.kernel},
          {"forward_seconds", convolution.forward},
          {"input_gradient_seconds", convolution.gradInput},
          {"weight_gradient_seconds", convolution.gradWeight}};
}
Json rowOf(const KernelFigure &kernel) {
  return {{"work", kernel.work},         {"elements", kernel.elements}, {"bytes", kernel.bytes},
          {"commands", kernel.commands}, {"products", kernel.products}, {"width", kernel.width},
          {"seconds", kernel.seconds}};
}
Json rowOf(const StreamFigure &stream) {
  return {{"bytes", stream.bytes}, {"together_bytes_per_s", stream.together}, {"alone_bytes_per_s", stream.alone}};
}
Json rowOf(const ReturnFigure &copy) {
  return {{"bytes", copy.bytes}, {"pause_seconds", copy.pause}, {"seconds", copy.seconds}};
}
Json rowOf(const CollectiveFigure &collective) {
  return {{"op", collective.op},
          {"members", collective.members},
          {"bytes", collective.bytes},
          {"far", collective.isFar},
          {"seconds", collective.seconds}};
}

template <typename Figure> Json rowsOf(const std::vector<Figure> &figures) {
  Json rows = Json::array();
  for (const Figure &figure : figures) rows.push_back(rowOf(figure));
  return rows;
}

} // namespace

Json figuresJson(const MachineFigures &figures) {
  return {{"device", "cpu"},
          {"devices", figures.devices},
          {"cores", figures.cores},
          {"threads", figures.threads},
          {"cpu", figures.cpu},
          {"memory_bytes", figures.memoryBytes},
          {"empty_step_seconds", figures.emptyStepSeconds},
          {"kernel_seconds", figures.kernelSeconds},
          {"solo_kernel_seconds", figures.soloSeconds},
          {"layers", rowsOf(figures.layers)},
          {"products", rowsOf(figures.products)},
          {"convolutions", rowsOf(figures.convolutions)},
          {"kernels", rowsOf(figures.kernels)},
          {"streams", rowsOf(figures.streams)},
          {"returns", rowsOf(figures.returns)},
          {"collectives", rowsOf(figures.collectives)}};
}

Json figuresJson(const GpuFigures &figures) {
  Json products = Json::object();
  for (const auto &[precision, measured] : figures.products) products[precision] = rowsOf(measured);
  return {{"device", figures.gpu.name},
          {"devices", figures.devices},
          {"capability", figures.gpu.capability},
          {"memory_bytes", figures.gpu.memoryBytes},
          {"launch_seconds", figures.launchSeconds},
          {"stream_bytes_per_s", figures.streamRate},
          {"host_bytes_per_s", figures.hostRate},
          {"products", products},
          {"collectives", rowsOf(figures.collectives)}};
}

} // namespace cleave::runtime
