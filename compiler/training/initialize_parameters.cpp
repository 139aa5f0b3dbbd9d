#include "compiler/training/initial_values.h"
#include "compiler/training/parameter_names.h"
#include "compiler/training/training.h"
#include "dialects/onnx/Onnx.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include <cmath>

using namespace mlir;
namespace cleave::training {
#define GEN_PASS_DEF_INITIALIZEPARAMETERS
#include "compiler/training/Passes.h.inc"

namespace {

struct Fans {
  double in = 0, out = 0;
};

class InitializeParameters : public impl::InitializeParametersBase<InitializeParameters> {
public:
  using Base::Base;
  void runOnOperation() override {
    if (recipe.init.fromModel && recipe.init.rules.empty()) return;
    findInputMajor();
    if (!recipe.init.fromModel) beginStatistics();
    std::vector<std::string> matches;
    for (const recipe::InitRule &rule : recipe.init.rules) matches.push_back(rule.match);
    const recipe::ParameterPatterns rules(matches);
    for (auto param : getOperation().getOps<onnx::ParamOp>()) {
      auto type = dyn_cast<ShapedType>(param.getType());
      if (param.getRole() != "parameter" || !param.getTrainable() || !type || !isa<FloatType>(type.getElementType()))
        continue;
      const recipe::InitRule *rule = ruleFor(param, rules);
      if (rule && failed(applyRule(param, *rule))) signalPassFailure();
    }
  }

private:
  DenseSet<StringAttr> inputMajor; // weights of shape [in, out]

  // A weight is [out, in, kernel...] unless a product reads it the other way round.
  void findInputMajor() {
    inputMajor.clear();
    getOperation().walk([&](onnx::NodeOp node) {
      StringRef type = node.getOpType();
      if (node.getInputs().size() < 2 || (type != "MatMul" && type != "Gemm")) return;
      auto read = node.getInputs()[1].getDefiningOp<onnx::ReadOp>();
      auto transposed = dyn_cast_or_null<IntegerAttr>(node.getOnnxAttributes().get("transB"));
      if (read && !(transposed && transposed.getInt())) inputMajor.insert(read.getParamAttr().getAttr());
    });
  }

  void beginStatistics() {
    getOperation().walk([&](onnx::NodeOp node) {
      if (node.getOpType() != "BatchNormalization") return;
      for (auto [operand, value] : {std::pair(3, 0.0), std::pair(4, 1.0)}) {
        auto read = node.getInputs()[operand].getDefiningOp<onnx::ReadOp>();
        if (!read) continue;
        auto param = SymbolTable::lookupNearestSymbolFrom<onnx::ParamOp>(node, read.getParamAttr());
        if (param.getRole() == "running_statistic") fill(param, value);
      }
    });
  }

  // Null: as the model's file has it.
  const recipe::InitRule *ruleFor(onnx::ParamOp param, const recipe::ParameterPatterns &rules) {
    if (std::optional<size_t> rule = rules.match(namesOf(param->getAttrDictionary()))) return &recipe.init.rules[*rule];
    return recipe.init.fromModel ? nullptr : &recipe.init.base;
  }

  // As PyTorch counts them: the first two dimensions, times the size of the kernel.
  FailureOr<Fans> fansOf(onnx::ParamOp param, const recipe::InitRule &rule) {
    auto type = cast<ShapedType>(param.getType());
    if (type.getRank() < 2)
      return param.emitError() << "init kind " << rule.kind << " needs two dimensions or more, parameter '"
                               << param.getSymName() << "' is " << type << "; give it a rule of its own (zeros, ones)";
    double kernel = 1;
    for (int64_t size : type.getShape().drop_front(2)) kernel *= static_cast<double>(size);
    double first = static_cast<double>(type.getDimSize(0)), second = static_cast<double>(type.getDimSize(1));
    if (inputMajor.contains(param.getSymNameAttr())) return Fans{first, second};
    return Fans{second * kernel, first * kernel};
  }

  LogicalResult applyRule(onnx::ParamOp param, const recipe::InitRule &rule) {
    const std::string &kind = rule.kind;
    if (kind == "zeros") return fill(param, 0), success();
    if (kind == "ones") return fill(param, 1), success();
    if (kind == "constant") return fill(param, rule.value), success();
    if (kind == "normal") return drawNormal(param, rule.mean, rule.std), success();
    if (kind == "uniform") return drawUniform(param, rule.low, rule.high), success();
    FailureOr<Fans> fans = fansOf(param, rule);
    if (failed(fans)) return failure();
    double scale = kind == "xavier_uniform" || kind == "xavier_normal" ? 2 / (fans->in + fans->out) : 1 / fans->in;
    double deviation = rule.gain * std::sqrt(scale), bound = rule.gain * std::sqrt(3 * scale);
    if (kind == "xavier_normal" || kind == "kaiming_normal") return drawNormal(param, 0, deviation), success();
    if (kind == "xavier_uniform" || kind == "kaiming_uniform") return drawUniform(param, -bound, bound), success();
    return param.emitError() << "unknown init kind '" << kind << "'";
  }
};

} // namespace
} // namespace cleave::training
