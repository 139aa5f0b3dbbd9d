#include "compiler/training/sample_place.h"
#include "dialects/onnx/Onnx.h"
#include "dialects/onnx/sample_dim.h"

using namespace mlir;
namespace cleave::training {

int64_t samplesOf(func::FuncOp model) {
  for (BlockArgument argument : model.getArguments())
    if (int64_t dim = onnx::sampleDim(model, argument.getArgNumber()); dim >= 0)
      return cast<RankedTensorType>(argument.getType()).getDimSize(dim);
  return 0;
}

SamplePlaces samplePlaces(func::FuncOp model) {
  SamplePlaces places;
  const int64_t samples = samplesOf(model);
  if (samples == 0) return places;
  for (BlockArgument argument : model.getArguments())
    if (int64_t dim = onnx::sampleDim(model, argument.getArgNumber()); dim >= 0)
      places[argument] = dist::SamplePlace{dim, 1};
  for (Operation &op : model.front().without_terminator()) {
    auto rules = dyn_cast<onnx::FactorRuleOpInterface>(op);
    std::vector<std::optional<dist::SamplePlace>> operands;
    for (Value operand : op.getOperands()) operands.push_back(places.lookup(operand));
    if (!rules || llvm::none_of(operands, [](const auto &place) { return place.has_value(); })) continue;
    dist::SampleStep step = dist::samplesThrough(rules.getFactorRule(), operands, samples);
    if (step.meet) continue;
    for (auto [result, place] : llvm::zip_equal(op.getResults(), step.results)) places[result] = place;
  }
  return places;
}

} // namespace cleave::training
