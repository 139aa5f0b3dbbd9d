#include "compiler/normalize/constants.h"
#include "compiler/normalize/normalize.h"
#include "dialects/onnx/result_shape.h"
#include "dialects/onnx/sample_dim.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "runtime/base/sharding/samples.h"
#include <llvm/ADT/STLExtras.h>
#include <numeric>

using namespace mlir;
namespace cleave::normalize {
#define GEN_PASS_DEF_RESIZEBATCH
#include "compiler/normalize/Passes.h.inc"

namespace {

using Samples = dist::SamplePlace;
using dist::SampleFactor;

class Resizer {
public:
  Resizer(int64_t exported, int64_t samples) : exported(exported), samples(samples) {}

  LogicalResult run(func::FuncOp function) {
    Block &body = function.getBody().front();
    for (BlockArgument argument : body.getArguments()) {
      auto type = cast<RankedTensorType>(argument.getType());
      const int64_t dim = onnx::sampleDim(function, argument.getArgNumber());
      if (onnx::hostAttr.of(function, argument.getArgNumber()) || dim < 0 || type.getDimSize(dim) != exported) continue;
      lies[argument] = {dim, 1};
      exportedType[argument] = type;
      argument.setType(type.clone(resized(type.getShape(), lies[argument])));
    }
    for (Operation &op : llvm::make_early_inc_range(body.without_terminator()))
      if (failed(resize(&op))) return failure();
    function.setType(
        FunctionType::get(function.getContext(), body.getArgumentTypes(), body.getTerminator()->getOperandTypes()));
    return success();
  }

private:
  SmallVector<int64_t> resized(ArrayRef<int64_t> shape, Samples at) const {
    SmallVector<int64_t> result(shape);
    result[at.dim] = shape[at.dim] / exported * samples;
    return result;
  }

  LogicalResult refuse(Operation *op, const Twine &why) const {
    return op->emitError() << why << ": the model was exported for a fixed batch of " << exported
                           << " samples, and has no form for " << samples
                           << "; export it with a symbolic batch dimension";
  }

  // `op` on operands of the new size, of which those that do not come from the inputs are made so.
  LogicalResult resize(Operation *op) {
    std::optional<SampleFactor> at;
    auto rules = dyn_cast<onnx::FactorRuleOpInterface>(op);
    dist::FactorRule rule;
    for (auto [index, operand] : llvm::enumerate(op->getOperands())) {
      auto samples = lies.find(operand);
      if (samples == lies.end()) continue;
      if (!rules) return refuse(op, "needs all samples at once");
      if (rule.operands.empty()) rule = ruleOf(rules);
      auto here = dist::sampleFactor(rule, rule.operands[index], samples->second, exported);
      if (!here || (at && *here != *at)) return refuse(op, "mixes samples with what is not a sample");
      at = here;
    }
    return at ? resizeBy(op, rule, *at) : success();
  }

  // The rule at the op's exported shapes: operands that were resized already have theirs back meanwhile.
  dist::FactorRule ruleOf(onnx::FactorRuleOpInterface op) {
    SmallVector<Type> now(op->getOperandTypes());
    for (Value operand : op->getOperands())
      if (auto before = exportedType.find(operand); before != exportedType.end()) operand.setType(before->second);
    dist::FactorRule rule = op.getFactorRule();
    for (auto [operand, type] : llvm::zip(op->getOperands(), now)) operand.setType(type);
    return rule;
  }

  LogicalResult resizeBy(Operation *op, const dist::FactorRule &rule, SampleFactor at) {
    if (rule.factors[at.factor].kind != dist::Factor::Parallel || isa<onnx::RollOp>(op))
      return refuse(op, "needs all samples at once");
    for (auto [index, operand] : llvm::enumerate(op->getOpOperands())) {
      auto samples = dist::samplePlace(rule, rule.operands[index], at);
      if (!samples || lies.contains(operand.get())) continue;
      auto own = madeFor(operand.get(), *samples, op);
      if (failed(own)) return failure();
      operand.set(*own);
    }
    for (auto [index, result] : llvm::enumerate(op->getResults())) {
      auto samples = dist::samplePlace(rule, rule.results[index], at);
      if (!samples) return refuse(op, "needs all samples at once");
      auto type = cast<RankedTensorType>(result.getType());
      SmallVector<int64_t> shape = resized(type.getShape(), *samples);
      if (index == 0) onnx::setResultShape(op, shape);
      exportedType[result] = type;
      lies[result] = *samples;
      result.setType(type.clone(shape));
    }
    return success();
  }

  // `value`, which does not come from the inputs, for the new number of samples at `at`.
  FailureOr<Value> madeFor(Value value, Samples at, Operation *user) {
    Operation *op = value.getDefiningOp();
    auto cannot = [&] {
      auto read = dyn_cast_if_present<onnx::ReadOp>(op);
      return refuse(user, read ? "reads '" + read.getParam().str() + "', which has values of its own for each sample"
                               : "reads values of its own for each sample");
    };
    if (!op) return cannot();
    OpBuilder builder(op);
    if (auto constant = dyn_cast<onnx::ConstantOp>(op)) {
      auto type = cast<RankedTensorType>(value.getType());
      auto data =
          constantFor(cast<DenseElementsAttr>(constant.getValue()), type.clone(resized(type.getShape(), at)), at);
      if (!data) return cannot();
      return onnx::ConstantOp::create(builder, op->getLoc(), data).getResult();
    }
    auto rules = dyn_cast<onnx::FactorRuleOpInterface>(op);
    if (!rules) return cannot();
    if (auto iota = dyn_cast<onnx::IotaOp>(op); iota && static_cast<int64_t>(iota.getDim()) == at.dim) return cannot();
    size_t result = cast<OpResult>(value).getResultNumber();
    if (Value known = made.lookup({value, {at.dim, at.inner}})) return known;
    dist::FactorRule rule = rules.getFactorRule();
    auto factor = dist::sampleFactor(rule, rule.results[result], at, exported);
    if (!factor) return cannot();
    Operation *copy = builder.clone(*op);
    if (failed(resizeBy(copy, rule, *factor))) return failure();
    for (Value other : copy->getResults()) lies.erase(other); // known to whom asked for it only
    return made[{value, {at.dim, at.inner}}] = copy->getResult(result);
  }

  // Null where the samples differ.
  DenseElementsAttr constantFor(DenseElementsAttr value, RankedTensorType type, Samples at) const {
    if (value.isSplat()) return value.resizeSplat(type);
    runtime::HostTensor all = toHostTensor(value);
    runtime::HostTensor some = runtime::HostTensor::zeros(all.dtype, type.getShape());
    auto product = [](ArrayRef<int64_t> sizes) {
      return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
    };
    ArrayRef<int64_t> shape = value.getType().getShape();
    size_t element = all.data.size() / static_cast<size_t>(all.elements());
    size_t block = element * static_cast<size_t>(at.inner * product(shape.drop_front(at.dim + 1)));
    size_t outer = all.data.size() / block / static_cast<size_t>(exported);
    for (size_t i = 0; i < outer; ++i) {
      const std::byte *first = all.data.data() + i * block * static_cast<size_t>(exported);
      for (int64_t sample = 1; sample < exported; ++sample)
        if (!std::equal(first, first + block, first + static_cast<size_t>(sample) * block)) return nullptr;
      for (int64_t sample = 0; sample < samples; ++sample)
        std::copy_n(first, block,
                    some.data.data() + (i * static_cast<size_t>(samples) + static_cast<size_t>(sample)) * block);
    }
    return toAttribute(some, type);
  }

  int64_t exported, samples;
  DenseMap<Value, Samples> lies;
  DenseMap<Value, Type> exportedType; // of what was resized
  DenseMap<std::pair<Value, std::pair<int64_t, int64_t>>, Value> made;
};

struct ResizeBatch : impl::ResizeBatchBase<ResizeBatch> {
  using Base::Base;
  void runOnOperation() override {
    if (samples == exported) return;
    auto model = getOperation().lookupSymbol<func::FuncOp>("model");
    if (exported == 1) {
      model.emitError() << "was exported for one sample, which does not show where other samples would lie; export the "
                           "model with a symbolic batch dimension, or for two samples";
      return signalPassFailure();
    }
    if (failed(Resizer(exported, samples).run(model))) signalPassFailure();
  }
};

} // namespace

} // namespace cleave::normalize
