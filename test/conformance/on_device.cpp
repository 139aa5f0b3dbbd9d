#include "test/conformance/on_device.h"
#include "compiler/codegen/codegen.h"
#include "compiler/driver/pass_list.h"
#include "compiler/layout/image_operation.h"
#include "compiler/layout/layout.h"
#include "compiler/normalize/constants.h"
#include "dialects/onnx/Onnx.h"
#include "runtime/engine/comm/local.h"
#include "runtime/engine/executor/executor.h"
#include "runtime/plan/routine.h"
#include "test/unit/cuda/plan/for_fake_gpu.h"
#include <algorithm>
#include <fmt/format.h>

using namespace mlir;
namespace cleave::conformance {
namespace {

constexpr StringLiteral routine = "evaluate";

std::string resultName(size_t number) { return fmt::format("result{}", number); }

// @model becomes @evaluate, which writes its results into persistent tensors: those can be read on any device.
void makeRoutine(func::FuncOp model) {
  auto module = cast<ModuleOp>(model->getParentOp());
  Builder attributes(module.getContext());
  for (Operation &op : model.getBody().front().without_terminator()) place::setPhase(&op, place::Phase::Forward);
  Operation *end = model.getBody().front().getTerminator();
  for (auto [number, value] : llvm::enumerate(end->getOperands())) {
    std::string name = resultName(number);
    SmallVector<NamedAttribute> param{attributes.getNamedAttr("sym_name", attributes.getStringAttr(name)),
                                      attributes.getNamedAttr("type", TypeAttr::get(value.getType())),
                                      attributes.getNamedAttr("role", attributes.getStringAttr("parameter")),
                                      attributes.getNamedAttr("trainable", attributes.getBoolAttr(false)),
                                      attributes.getNamedAttr("fill", attributes.getF64FloatAttr(0))};
    OpBuilder atStart = OpBuilder::atBlockBegin(module.getBody());
    onnx::ParamOp::create(atStart, value.getLoc(), TypeRange(), ValueRange(), param);
    OpBuilder atEnd(end);
    onnx::WriteOp::create(atEnd, value.getLoc(), FlatSymbolRefAttr::get(atEnd.getStringAttr(name)), value);
  }
  end->setOperands({});
  (void)model.eraseResults(BitVector(model.getNumResults(), true));
  model.setName(routine);
  place::routinesAttr.set(
      module, attributes.getArrayAttr(attributes.getDictionaryAttr(
                  {attributes.getNamedAttr("program", attributes.getI64IntegerAttr(0)),
                   attributes.getNamedAttr("name", attributes.getStringAttr(routine)),
                   attributes.getNamedAttr(
                       "fragments", attributes.getArrayAttr(FlatSymbolRefAttr::get(module.getContext(), routine))),
                   attributes.getNamedAttr("microbatches", attributes.getDenseI64ArrayAttr(0)),
                   attributes.getNamedAttr("slots", attributes.getDenseI64ArrayAttr(0))})));
}

LogicalResult putChannelsLast(ModuleOp module, bool weights) {
  module.walk([](Operation *op) {
    if (layout::isConvolution(op) || layout::isPool(op)) onnx::channelsLastAttr.set(op);
  });
  PassManager passes(module.getContext());
  passes.addPass(layout::createPlaceChannelsLast({weights}));
  passes.addPass(layout::createElideTransposes());
  return passes.run(module);
}

Result<plan::Plan> compile(func::FuncOp model, Device device, const std::string &target, bool channelsLast) {
  auto module = cast<ModuleOp>(model->getParentOp());
  makeRoutine(model);
  if (channelsLast && failed(putChannelsLast(module, /*weights=*/device != Device::Cpu)))
    return inputError("the layout pass failed");
  codegen::CodegenOptions options;
  options.threads = 1;
  if (device != Device::Cpu) options.gpu = target;
  options.emulate = device == Device::Emulation || device == Device::FakeCuda;
  FailureOr<plan::Plan> plan = cleave::generate(module, dist::Mesh{}, options);
  if (failed(plan)) return inputError("code generation failed");
  plan->mutable_training()->set_global_batch(1);
  plan->mutable_training()->set_microbatches(1);
  if (device == Device::FakeCuda) makeForFakeGpu(*plan);
  return std::move(*plan);
}

// Runs the routine once and reads what it leaves.
Result<std::vector<HostTensor>> runOnce(runtime::Executor &executor, const std::vector<const std::byte *> &inputs,
                                        const std::vector<runtime::TensorType> &results) {
  // A buffer that no command writes must not look like a result.
  for (const plan::Parameter &parameter : executor.plan().parameters())
    std::ranges::fill(executor.shard(0, parameter, runtime::ShardAccess::Replace), std::byte{0xa5});
  auto ran = executor.run(routine.str(), inputs, 0);
  if (!ran) return ran.status();
  std::vector<HostTensor> tensors;
  for (auto [number, type] : llvm::enumerate(results)) {
    auto parameter = llvm::find_if(executor.plan().parameters(),
                                   [&](const plan::Parameter &one) { return one.name() == resultName(number); });
    runtime::ShardBytes bytes = executor.shard(0, *parameter, runtime::ShardAccess::Read);
    HostTensor tensor = HostTensor::unset(type.dtype, type.shape);
    std::ranges::copy(bytes, tensor.data.begin());
    tensors.push_back(std::move(tensor));
  }
  if (Status failure = executor.lastFailure(); !failure) return failure;
  return tensors;
}

// Twice: the second run of a GPU is a graph, and on every device it has to leave the same bits.
Result<std::vector<HostTensor>> execute(const plan::Plan &plan, const std::vector<HostTensor> &arguments,
                                        const std::vector<runtime::TensorType> &results) {
  auto executor = runtime::Executor::create(plan, std::make_unique<runtime::LocalFabric>(dist::Mesh{}), {});
  if (!executor) return executor.status();
  std::vector<const std::byte *> inputs;
  inputs.reserve(arguments.size());
  for (const HostTensor &argument : arguments) inputs.push_back(argument.data.data());
  auto first = runOnce(**executor, inputs, results);
  if (!first) return first;
  auto second = runOnce(**executor, inputs, results);
  if (!second) return second;
  for (auto [number, once, again] : llvm::enumerate(*first, *second))
    if (once.data != again.data) return runError(fmt::format("output {}: a second run gives other bits", number));
  return first;
}

} // namespace

Evaluate evaluateOn(Device device, std::string target, bool channelsLast) {
  return [device, target = std::move(target), channelsLast](
             func::FuncOp model, const std::vector<HostTensor> &arguments) -> Result<std::vector<HostTensor>> {
    std::vector<runtime::TensorType> results;
    for (Type type : model.getResultTypes()) results.push_back(normalize::tensorTypeOf(type));
    Result<plan::Plan> plan = compile(model, device, target, channelsLast);
    if (!plan) return plan.status();
    return execute(*plan, arguments, results);
  };
}

} // namespace cleave::conformance
