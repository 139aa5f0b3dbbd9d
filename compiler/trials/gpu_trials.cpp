#include "compiler/trials/gpu_trials.h"
#include "compiler/trials/trial_kernels.h"
#include <array>
#include <fmt/format.h>

namespace cleave {
namespace {

using runtime::GpuTrial;
using Kind = GpuTrial::Kind;

std::string vectorOf(int64_t elements) { return fmt::format("tensor<{}xf32>", elements); }

// Reads @x and writes @y, as many bytes each.
std::string elementwise(int64_t elements) {
  const std::string type = vectorOf(elements);
  return trialModule(
      {{"x", type}, {"y", type}},
      fmt::format("  %x = onnx.read @x : {0}\n"
                  "  %y = onnx.Add %x, %x {{place.at = #place.at<phase = forward>}} : ({0}, {0}) -> {0}\n"
                  "  onnx.write @y, %y : {0}\n",
                  type));
}

std::string product(const std::string &element, int64_t m, int64_t n, int64_t k) {
  auto matrix = [&](int64_t rows, int64_t columns) { return fmt::format("tensor<{}x{}x{}>", rows, columns, element); };
  const std::string a = matrix(m, k), b = matrix(k, n), c = matrix(m, n);
  return trialModule(
      {{"a", a}, {"b", b}, {"c", c}},
      fmt::format("  %a = onnx.read @a : {0}\n  %b = onnx.read @b : {1}\n"
                  "  %c = onnx.Contract %a, %b {{lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: "
                  "1, 2>, result_indices = array<i64: 0, 2>, place.at = #place.at<phase = forward>}} : ({0}, {1}) -> "
                  "{2}\n  onnx.write @c, %c : {2}\n",
                  a, b, c));
}

constexpr int allReduces = 8;
std::string allReduce(int64_t elements) {
  const std::string type = vectorOf(elements);
  std::string step = fmt::format("  %s0 = onnx.read @x : {}\n", type);
  for (int i = 0; i < allReduces; ++i)
    step += fmt::format("  %s{1} = dist.all_reduce %s{0} {{axes = [\"dp\"], reduce = #dist.reduction<sum>, "
                        "place.at = #place.at<phase = forward>}} : ({2}) -> {2}\n",
                        i, i + 1, type);
  step += fmt::format("  onnx.write @y, %s{} : {}\n", allReduces, type);
  return trialModule({{"x", type}, {"y", type}}, step);
}

} // namespace

Result<std::vector<GpuTrial>> gpuTrials(const runtime::GpuDescription &gpu, int64_t devices, bool emulate) {
  const dist::Mesh mesh{{{"dp", devices}}};
  std::vector<GpuTrial> trials;
  auto add = [&](GpuTrial trial, const std::string &text) -> Status {
    codegen::CodegenOptions options;
    options.gpu = fmt::format("sm_{}", gpu.capability);
    options.emulate = emulate;
    options.tf32 = trial.precision == "tf32";
    Result<plan::Plan> plan = compileTrial(text, mesh, options);
    if (!plan) return plan.status();
    trial.plan = std::make_shared<plan::Plan>(std::move(*plan));
    trials.push_back(std::move(trial));
    return Status::ok();
  };
  CLEAVE_RETURN_IF_ERROR(add({Kind::Launch}, elementwise(32)));

  // Many times the largest cache: 320 MiB of 80 GiB.
  const int64_t streamed = std::max<int64_t>(1024, int64_t(gpu.memoryBytes / 256) / 4);
  CLEAVE_RETURN_IF_ERROR(add({.kind = Kind::Stream, .bytes = 8.0 * double(streamed)}, elementwise(streamed)));

  // Squares down to a sixteenth, and with one thin dimension; the largest takes a 64th of the memory at most.
  int64_t edge = 8192;
  while (edge > 32 && 3.0 * 4 * double(edge * edge) > gpu.memoryBytes / 64) edge /= 2;
  std::vector<std::pair<const char *, const char *>> precisions = {{"fp32", "f32"}};
  if (gpu.capability >= 80) precisions.insert(precisions.end(), {{"tf32", "f32"}, {"bf16", "bf16"}});
  if (gpu.capability >= 70) precisions.emplace_back("fp16", "f16");
  for (auto [precision, element] : precisions)
    for (auto [m, n, k] : std::initializer_list<std::array<int64_t, 3>>{{edge, edge, edge},
                                                                        {edge / 2, edge / 2, edge / 2},
                                                                        {edge / 4, edge / 4, edge / 4},
                                                                        {edge / 8, edge / 8, edge / 8},
                                                                        {edge / 16, edge / 16, edge / 16},
                                                                        {edge, edge / 16, edge},
                                                                        {edge, edge, edge / 16},
                                                                        {edge / 16, edge, edge}})
      CLEAVE_RETURN_IF_ERROR(
          add({.kind = Kind::Product, .precision = precision, .m = m, .n = n, .k = k}, product(element, m, n, k)));

  if (devices > 1)
    for (int64_t bytes : {streamed * 4, streamed / 4, streamed / 64, int64_t(1) << 10})
      CLEAVE_RETURN_IF_ERROR(
          add({.kind = Kind::AllReduce, .times = allReduces, .bytes = double(bytes / 4 * 4)}, allReduce(bytes / 4)));
  return trials;
}

} // namespace cleave
