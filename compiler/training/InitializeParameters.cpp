// InitializeParameters: a recipe whose `init` is not from_model says how trained parameters begin; the rule that fits a
// parameter's name (or a node that uses it) is written on its onnx.param as numbers for the counter-based generator.
//
//   init: {kind: normal, std: 0.02, rules: [{match: "*ln*weight", kind: ones}]}
//   onnx.param @"h.0.ln_1.weight" ... {fill = 1.0}      onnx.param @"wte" ... {init = {kind = "normal", std = 0.02, ...}}
//
// Fans, as torch.nn.init: a weight of rank 2 is [out, in] or [in, out], which cannot be told apart here; its fan in is
// taken as dimension 0 where a MatMul reads it as [in, out] (the exporters' form), dimension 1 of rank 3 and more.
#include "compiler/training/training.h"
#include "dialects/onnx/Onnx.h"
#include <cmath>

using namespace mlir;
namespace cleave::training {
namespace {

struct Fans {
  double in = 1, out = 1;
};

Fans fansOf(ArrayRef<int64_t> shape) {
  Fans fans;
  if (shape.size() < 2) {
    if (!shape.empty()) fans.in = fans.out = double(shape[0]);
    return fans;
  }
  if (shape.size() == 2) return {double(shape[0]), double(shape[1])};
  double window = 1;
  for (int64_t size : shape.drop_front(2)) window *= double(size);
  return {double(shape[1]) * window, double(shape[0]) * window};
}

const recipe::InitRule &ruleFor(const recipe::Init &init, const recipe::ParameterNames &names) {
  for (const recipe::InitRule &rule : init.rules)
    if (recipe::matchParameter({rule.match}, names)) return rule;
  return init.base;
}

struct InitializeParameters : PassWrapper<InitializeParameters, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(InitializeParameters)
  explicit InitializeParameters(recipe::Init init) : init(std::move(init)) {}
  StringRef getArgument() const final { return "initialize-parameters"; }
  StringRef getDescription() const final { return "write the recipe's initial distributions on trained parameters"; }

  void runOnOperation() override {
    if (init.fromModel) return;
    int64_t stream = 0;
    for (auto param : getOperation().getOps<onnx::ParamOp>()) {
      if (param.getRole() != "parameter" || !param.getTrainable()) continue;
      ++stream;
      recipe::ParameterNames names{param.getSymName().str(), {}};
      if (auto nodes = param->getAttrOfType<ArrayAttr>("onnx.nodes"))
        for (auto node : nodes.getAsRange<StringAttr>()) names.nodes.push_back(node.str());
      apply(param, ruleFor(init, names), stream);
    }
  }

  void apply(onnx::ParamOp param, const recipe::InitRule &rule, int64_t stream) {
    Builder builder(&getContext());
    auto type = cast<RankedTensorType>(param.getType());
    ArrayRef<int64_t> shape = type.getShape();
    if (auto original = param.getOriginalShape()) shape = *original;
    param.removePathAttr();
    param.removeOffsetAttr();
    param.removeLengthAttr();
    param.removeFileTypeAttr();
    if (rule.kind == "zeros" || rule.kind == "ones" || rule.kind == "constant") {
      double value = rule.kind == "zeros" ? 0.0 : rule.kind == "ones" ? 1.0 : rule.value;
      param.setFillAttr(builder.getF64FloatAttr(value));
      return;
    }
    Fans fans = fansOf(shape);
    std::string kind = rule.kind;
    double mean = rule.mean, deviation = rule.std, low = rule.low, high = rule.high;
    auto uniform = [&](double bound) { kind = "uniform", low = -bound, high = bound; };
    if (kind == "xavier_uniform") uniform(rule.gain * std::sqrt(6.0 / (fans.in + fans.out)));
    else if (kind == "kaiming_uniform") uniform(rule.gain * std::sqrt(3.0 / fans.in));
    else if (kind == "xavier_normal") kind = "normal", mean = 0, deviation = rule.gain * std::sqrt(2.0 / (fans.in + fans.out));
    else if (kind == "kaiming_normal") kind = "normal", mean = 0, deviation = rule.gain / std::sqrt(fans.in);
    param.setInitAttr(builder.getDictionaryAttr({
        builder.getNamedAttr("kind", builder.getStringAttr(kind)),
        builder.getNamedAttr("mean", builder.getF64FloatAttr(mean)),
        builder.getNamedAttr("std", builder.getF64FloatAttr(deviation)),
        builder.getNamedAttr("low", builder.getF64FloatAttr(low)),
        builder.getNamedAttr("high", builder.getF64FloatAttr(high)),
        builder.getNamedAttr("stream", builder.getI64IntegerAttr(stream)),
    }));
  }

  recipe::Init init;
};

} // namespace

std::unique_ptr<Pass> createInitializeParameters(const recipe::Recipe &recipe) {
  return std::make_unique<InitializeParameters>(recipe.init);
}

} // namespace cleave::training
