#include "compiler/trials/trial_kernels.h"
#include "compiler/cluster/cluster.h"
#include "compiler/codegen/codegen.h"
#include "compiler/codegen/kernels/kernels.h"
#include "compiler/driver/pass_list.h"
#include "dialects/dist/Dist.h"
#include "dialects/onnx/Onnx.h"
#include "dialects/plan/Plan.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"
#include "plan/plan.pb.h"
#include <fmt/format.h>

namespace cleave {
namespace {

using planner::ElementWork;

// Rows and columns of what the kernels work on: with its result half of a core's second cache of 512 KiB or more.
constexpr int64_t rows = 512, columns = 64;
// The arithmetic is also done on fewer rows: the difference is its time, and what remains is that of starting a kernel
// on all threads.
constexpr int64_t fewRows = 128;

// Two batch sizes of the training step, and its number of layers. Each of its kernels has enough elements for several
// threads to share.
constexpr int64_t stepSamples[] = {256, 1024};
constexpr int stepLayers = 24;

struct Body {
  ElementWork work;
  double operations; // of its kind, an element
  const char *text;  // from %x to %y; T is the tensor's type
};

// Operations that follow each other, so that what is measured is the work and not the traffic; nothing that could be
// simplified. Sums run along rows in one kernel and along columns in the other.
constexpr Body bodies[] = {
    {ElementWork::Arithmetic, 8, R"(
  %a = onnx.Mul %x, %x {place.at = #place.at<phase = forward>} : (T, T) -> T
  %b = onnx.Add %a, %x {place.at = #place.at<phase = forward>} : (T, T) -> T
  %c = onnx.Mul %b, %a {place.at = #place.at<phase = forward>} : (T, T) -> T
  %d = onnx.Sub %c, %x {place.at = #place.at<phase = forward>} : (T, T) -> T
  %e = onnx.Max %d, %b {place.at = #place.at<phase = forward>} : (T, T) -> T
  %f = onnx.Mul %e, %c {place.at = #place.at<phase = forward>} : (T, T) -> T
  %g = onnx.Add %f, %d {place.at = #place.at<phase = forward>} : (T, T) -> T
  %y = onnx.Sub %g, %e {place.at = #place.at<phase = forward>} : (T, T) -> T
)"},
    {ElementWork::Division, 4, R"(
  %a = onnx.Sqrt %x {place.at = #place.at<phase = forward>} : (T) -> T
  %b = onnx.Div %a, %x {place.at = #place.at<phase = forward>} : (T, T) -> T
  %c = onnx.Sqrt %b {place.at = #place.at<phase = forward>} : (T) -> T
  %y = onnx.Div %c, %a {place.at = #place.at<phase = forward>} : (T, T) -> T
)"},
    {ElementWork::Function, 2, R"(
  %a = onnx.Exp %x {place.at = #place.at<phase = forward>} : (T) -> T
  %y = onnx.Erf %a {place.at = #place.at<phase = forward>} : (T) -> T
)"},
    {ElementWork::Reduction, 4, R"(
  %a = onnx.ReduceMax %x {axes = array<i64: 1>, place.at = #place.at<phase = forward>} : (T) -> tensor<512xf32>
  %b = onnx.Broadcast %a {shape = array<i64: 512, 64>, dims = array<i64: 0>, place.at = #place.at<phase = forward>} : (tensor<512xf32>) -> T
  %c = onnx.Sub %x, %b {place.at = #place.at<phase = forward>} : (T, T) -> T
  %d = onnx.ReduceSum %c {axes = array<i64: 1>, place.at = #place.at<phase = forward>} : (T) -> tensor<512xf32>
  %e = onnx.Broadcast %d {shape = array<i64: 512, 64>, dims = array<i64: 0>, place.at = #place.at<phase = forward>} : (tensor<512xf32>) -> T
  %y = onnx.Sub %c, %e {place.at = #place.at<phase = forward>} : (T, T) -> T
)"},
    {ElementWork::Random, 1, R"(
  %key = onnx.Constant dense<[1, 2]> : tensor<2xi64>
  %a = onnx.RandomUniform %key {stream = 0 : i64, type = T} : (tensor<2xi64>) -> T
  %y = onnx.Add %a, %x {place.at = #place.at<phase = forward>} : (T, T) -> T
)"},
};

// An optimizer's step in memory, momentum's: reads three tensors and writes two of them in place.
constexpr const char *update = R"(
  %x = onnx.read @x : T
  %y = onnx.read @y : T
  %z = onnx.read @z : T
  %a = onnx.Mul %y, %y {place.at = #place.at<phase = forward>} : (T, T) -> T
  %b = onnx.Add %a, %z {place.at = #place.at<phase = forward>} : (T, T) -> T
  %c = onnx.Sub %x, %b {place.at = #place.at<phase = forward>} : (T, T) -> T
  onnx.write @y, %b : T
  onnx.write @x, %c : T
)";
constexpr double updateOperations = 3, updateAccesses = 5;
constexpr int64_t updateTensors = 3;

// A max pool as residual networks have it.
constexpr const char *pool = R"(
  %x = onnx.read @x : tensor<4x32x32x32xf32>
  %y = onnx.MaxPool %x {kernel = array<i64: 3, 3>, strides = array<i64: 2, 2>, pads_begin = array<i64: 1, 1>,
                        pads_end = array<i64: 1, 1>, dilations = array<i64: 1, 1>, place.at = #place.at<phase = forward>}
       : (tensor<4x32x32x32xf32>) -> tensor<4x32x16x16xf32>
  onnx.write @y, %y : tensor<4x32x16x16xf32>
)";
constexpr double poolInputs = 4 * 32 * 32 * 32, poolOutputs = 4 * 32 * 16 * 16, poolWindow = 3 * 3;

// The text of a training step of linear layers with an elementwise kernel after each, forward and backward. As in plans
// of models, a command reads tensors that were written some commands before, perhaps by another core.
std::string trainingStep(int64_t samples) {
  const std::string rowsType = fmt::format("tensor<{}x{}xf32>", samples, columns),
                    weightsType = fmt::format("tensor<{0}x{0}xf32>", columns);
  std::vector<std::pair<std::string, std::string>> tensors{{"x", rowsType}};
  std::string body = fmt::format("  %a0 = onnx.read @x : {}\n", rowsType);
  auto addProduct = [&](const std::string &result, const std::string &lhs, const std::string &rhs, const char *indices,
                        const std::string &rhsType, const std::string &type) {
    body +=
        fmt::format("  %{} = onnx.Contract %{}, %{} {{{}, place.at = #place.at<phase = forward>}} : ({}, {}) -> {}\n",
                    result, lhs, rhs, indices, rowsType, rhsType, type);
  };
  auto addElementwise = [&](const std::string &result, const char *op, const std::string &lhs, const std::string &rhs) {
    body += fmt::format("  %{} = onnx.{} %{}, %{} {{place.at = #place.at<phase = forward>}} : ({}, {}) -> {}\n", result,
                        op, lhs, rhs, rowsType, rowsType, rowsType);
  };
  for (int i = 0; i < stepLayers; ++i) {
    tensors.emplace_back(fmt::format("w{}", i), weightsType);
    tensors.emplace_back(fmt::format("d{}", i), weightsType);
    body += fmt::format("  %w{0} = onnx.read @w{0} : {1}\n", i, weightsType);
    addProduct(fmt::format("h{}", i), fmt::format("a{}", i), fmt::format("w{}", i),
               "lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>",
               weightsType, rowsType);
    addElementwise(fmt::format("a{}", i + 1), "Max", fmt::format("h{}", i), fmt::format("a{}", i));
  }
  std::string gradient = fmt::format("a{}", stepLayers);
  for (int i = stepLayers; i-- > 0;) {
    // k: the gradient before the elementwise kernel, d: of the weight, g: of the layer's input
    addElementwise(fmt::format("k{}", i), "Mul", gradient, fmt::format("h{}", i));
    addProduct(fmt::format("d{}", i), fmt::format("a{}", i), fmt::format("k{}", i),
               "lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 0, 2>, result_indices = array<i64: 1, 2>",
               rowsType, weightsType);
    addProduct(fmt::format("g{}", i), fmt::format("k{}", i), fmt::format("w{}", i),
               "lhs_indices = array<i64: 0, 2>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 1>",
               weightsType, rowsType);
    body += fmt::format("  onnx.write @d{0}, %d{0} : {1}\n", i, weightsType);
    gradient = fmt::format("g{}", i);
  }
  body += fmt::format("  onnx.write @x, %{} : {}\n", gradient, rowsType);
  return trialModule(tensors, body);
}

// `names`: the tensors of T that the body reads and writes.
std::string moduleOf(std::string body, int64_t height, const std::vector<std::string> &names = {"x", "y"}) {
  const std::string type = fmt::format("tensor<{}x{}xf32>", height, columns);
  std::vector<std::pair<std::string, std::string>> tensors;
  for (const std::string &name : names) tensors.emplace_back(name, type);
  for (size_t at = body.find('T'); at != std::string::npos; at = body.find('T', at)) {
    auto isLetter = [&](size_t i) { return i < body.size() && std::isalpha(static_cast<unsigned char>(body[i])); };
    if (isLetter(at + 1) || isLetter(at - 1))
      ++at;
    else
      body.replace(at, 1, type);
  }
  return trialModule(tensors, body);
}

} // namespace

std::string trialModule(const std::vector<std::pair<std::string, std::string>> &tensors, const std::string &step) {
  std::string parameters;
  for (const auto &[name, type] : tensors)
    parameters += fmt::format("onnx.param @{} : {} \"parameter\" {{trainable = false, fill = 0.0}}\n", name, type);
  return fmt::format(R"(
module attributes {{place.routines = [{{program = 0 : i64, name = "step", fragments = [@final],
                                       microbatches = array<i64: 0>, slots = array<i64: 0>}}]}} {{
{}func.func @final() {{
{}  return
}}
}}
)",
                     parameters, step);
}

Result<plan::Plan> compileTrial(const std::string &text, const dist::Mesh &mesh,
                                const codegen::CodegenOptions &options) {
  mlir::DialectRegistry registry;
  registry.insert<onnx::OnnxDialect, dist::DistDialect, plan::PlanDialect, mlir::func::FuncDialect>();
  codegen::registerKernelDialects(registry);
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  auto module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
  if (!module) return runError("a trial for measuring does not parse");
  mlir::FailureOr<plan::Plan> plan = cleave::generate(*module, mesh, options);
  if (mlir::failed(plan)) return runError("a trial for measuring does not compile");
  plan->mutable_training()->set_global_batch(1);
  plan->mutable_training()->set_microbatches(1);
  return std::move(*plan);
}

Result<std::vector<runtime::KernelTrial>> trialKernels(int64_t devices, int64_t farBytes) {
  std::vector<runtime::KernelTrial> trials;
  auto add = [&](const std::string &work, const std::string &module, double operations, double accesses) -> Status {
    Result<plan::Plan> plan = compileTrial(module, dist::Mesh{{{"dp", devices}}});
    if (!plan) return plan.status();
    const bool isStep = work == runtime::KernelTrial::step;
    const int commands = plan->programs(0).fragments(0).commands_size();
    trials.push_back({{work, operations, 4 * accesses, commands, isStep ? 3 * stepLayers : 0, isStep ? columns : 0},
                      std::make_shared<plan::Plan>(std::move(*plan))});
    return Status::ok();
  };
  auto addBody = [&](const Body &body, int64_t height) {
    const double elements = double(height * columns);
    const std::string text = fmt::format("  %x = onnx.read @x : T\n{}  onnx.write @y, %y : T\n", body.text);
    return add(planner::elementWorkNames[size_t(body.work)], moduleOf(text, height), body.operations * elements,
               2 * elements);
  };
  for (int64_t samples : stepSamples)
    CLEAVE_RETURN_IF_ERROR(add(runtime::KernelTrial::step, trainingStep(samples), double(samples * columns), 0));
  const std::vector<runtime::KernelTrial> steps = trials;
  CLEAVE_RETURN_IF_ERROR(addBody(bodies[0], fewRows));
  for (const Body &body : bodies) {
    CLEAVE_RETURN_IF_ERROR(addBody(body, rows));
    // Between the other trials, so that what disturbs the machine for a second or two does not disturb all of them: a
    // small difference of theirs is what counts.
    trials.insert(trials.end(), steps.begin(), steps.end());
  }
  const int64_t updateRows = farBytes / updateTensors / (4 * columns);
  const double updated = double(updateRows * columns);
  CLEAVE_RETURN_IF_ERROR(add(planner::elementWorkNames[size_t(ElementWork::Window)],
                             trialModule({{"x", "tensor<4x32x32x32xf32>"}, {"y", "tensor<4x32x16x16xf32>"}}, pool),
                             poolWindow * poolOutputs, poolInputs + poolOutputs));
  CLEAVE_RETURN_IF_ERROR(add(runtime::KernelTrial::update, moduleOf(update, updateRows, {"x", "y", "z"}),
                             updateOperations * updated, updateAccesses * updated));
  return trials;
}

} // namespace cleave
