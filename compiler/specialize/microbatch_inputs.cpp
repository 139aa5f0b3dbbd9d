#include "compiler/specialize/microbatch_inputs.h"
#include "compiler/specialize/input_bounds.h"
#include "dialects/onnx/sample_dim.h"
#include "runtime/plan/empty_label.h"
#include <fmt/format.h>

using namespace mlir;
namespace cleave {

std::map<std::string, StepInput> stepInputs(ModuleOp module) {
  std::map<std::string, StepInput> inputs;
  auto step = module.lookupSymbol<func::FuncOp>("final");
  for (BlockArgument argument : step.getArguments()) {
    auto name = onnx::nameAttr.of(step, argument.getArgNumber());
    auto type = dyn_cast<RankedTensorType>(argument.getType());
    if (!name || !type) continue;
    StepInput &input = inputs[name->str()];
    input.shape.assign(type.getShape().begin(), type.getShape().end());
    input.sampleDim = onnx::sampleDim(step, argument.getArgNumber());
    input.isLabel = onnx::labelAttr.of(step, argument.getArgNumber());
    const IndexRange range = indexRange(argument, input.isLabel);
    if (type.getElementType().isInteger())
      input.range = range;
    else if (llvm::is_contained(range.ignored, static_cast<int64_t>(runtime::emptyLabel)))
      input.range.ignored = {static_cast<int64_t>(runtime::emptyLabel)};
  }
  return inputs;
}

Status checkMicrobatchInputs(const std::map<std::string, StepInput> &ofBatch,
                             const std::map<std::string, StepInput> &ofMicrobatch, int64_t microbatches) {
  for (const auto &[name, whole] : ofBatch) {
    auto found = ofMicrobatch.find(name);
    if (found == ofMicrobatch.end()) continue;
    const StepInput &part = found->second;
    auto refuse = [&](const std::string &why) {
      return inputError(fmt::format("input '{}' {}: the batch cannot be cut into {} microbatches; with "
                                    "--microbatches 1 every split, as over dp or tp, has the whole batch",
                                    name, why, microbatches));
    };
    if (whole.range.bound != part.range.bound)
      return refuse(fmt::format("numbers the samples of a batch (0 to {}, of a microbatch 0 to {})",
                                whole.range.bound - 1, part.range.bound - 1));
    for (size_t dim = 0; dim < whole.shape.size() && dim < part.shape.size(); ++dim)
      if (static_cast<int64_t>(dim) != whole.sampleDim && whole.shape[dim] != part.shape[dim])
        return refuse(
            fmt::format("has an entry for each sample of a batch in dimension {}, too ({}, of a microbatch {})", dim,
                        whole.shape[dim], part.shape[dim]));
  }
  return Status::ok();
}

} // namespace cleave
