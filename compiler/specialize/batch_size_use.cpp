#include "compiler/specialize/batch_size_use.h"
#include "compiler/normalize/constants.h"
#include "compiler/training/sample_place.h"
#include "dialects/onnx/Onnx.h"
#include <cstring>
#include <llvm/ADT/DenseSet.h>
#include <llvm/ADT/STLExtras.h>

using namespace mlir;
namespace cleave {
namespace {

using runtime::HostTensor;

// Whether both hold the same for every sample: equal where no extent differs; along others, an entry may depend on
// what stands before and after the sample in the dimension, but not on the sample.
bool sameForAllSamples(const HostTensor &a, const HostTensor &b, int64_t samplesOfA, int64_t samplesOfB) {
  if (a.dtype != b.dtype || a.shape.size() != b.shape.size()) return false;
  if (a.shape == b.shape) return a.data == b.data;
  SmallVector<size_t> differing;
  for (size_t d = 0; d < a.shape.size(); ++d) {
    if (a.shape[d] == b.shape[d]) continue;
    if (a.shape[d] % samplesOfA || b.shape[d] % samplesOfB || a.shape[d] / samplesOfA != b.shape[d] / samplesOfB)
      return false;
    differing.push_back(d);
  }
  int64_t elements = 1;
  for (int64_t size : a.shape) elements *= size;
  if (elements == 0 || b.data.empty()) return true;
  const size_t width = a.data.size() / static_cast<size_t>(elements);
  const std::vector<int64_t> strides = runtime::rowMajorStrides(b.shape);
  // The sample stands `inner` entries from the next one in each of the dimensions.
  auto holds = [&](int64_t inner) {
    auto offsetOfFirst = [&](int64_t element, const std::vector<int64_t> &shape, int64_t samples) {
      int64_t offset = 0;
      for (size_t d = shape.size(); d-- > 0;) {
        int64_t index = element % shape[d];
        element /= shape[d];
        if (llvm::is_contained(differing, d)) index = index / (inner * samples) * inner * samplesOfB + index % inner;
        offset += index * strides[d];
      }
      return static_cast<size_t>(offset) * width;
    };
    auto all = [&](const HostTensor &tensor, int64_t samples) {
      const int64_t count = static_cast<int64_t>(tensor.data.size() / width);
      for (int64_t i = 0; i < count; ++i)
        if (std::memcmp(tensor.data.data() + static_cast<size_t>(i) * width,
                        b.data.data() + offsetOfFirst(i, tensor.shape, samples), width) != 0)
          return false;
      return true;
    };
    return all(b, samplesOfB) && all(a, samplesOfA);
  };
  const int64_t perSample = a.shape[differing.front()] / samplesOfA;
  for (int64_t inner = 1; inner <= perSample; ++inner)
    if (llvm::all_of(differing, [&](size_t d) { return a.shape[d] / samplesOfA % inner == 0; }) && holds(inner))
      return true;
  return false;
}

class SizeComparison {
public:
  SizeComparison(func::FuncOp model, func::FuncOp other)
      : model(model), places(training::samplePlaces(model)), samples(training::samplesOf(model)),
        otherSamples(training::samplesOf(other)), otherModel(other) {}

  BatchSizeUse run() {
    Operation *end = model.front().getTerminator(), *otherEnd = otherModel.front().getTerminator();
    for (auto [value, other] : llvm::zip(end->getOperands(), otherEnd->getOperands())) push(value, other, end);
    while (!pending.empty()) {
      const Pair pair = pending.pop_back_val();
      compare(pair);
    }
    if (Operation *op = firstUse()) return {nameOf(op), true};
    if (unlike) return {nameOf(unlike), false};
    return {};
  }

private:
  struct Pair {
    Value value, other;
    Operation *reader;
  };

  static std::string nameOf(Operation *op) {
    auto name = op->getLoc()->findInstanceOf<NameLoc>();
    return name ? name.getName().str() : op->getName().stripDialect().str();
  }

  void push(Value value, Value other, Operation *reader) {
    if (seen.insert({value, other}).second) pending.push_back({value, other, reader});
  }
  void differ(Operation *op) {
    if (!unlike) unlike = op;
  }

  void compare(const Pair &pair) {
    auto [value, other, reader] = pair;
    Operation *op = value.getDefiningOp(), *otherOp = other.getDefiningOp();
    if (!op || !otherOp) {
      auto argument = dyn_cast<BlockArgument>(value), otherArgument = dyn_cast<BlockArgument>(other);
      if (!argument || !otherArgument || argument.getArgNumber() != otherArgument.getArgNumber()) differ(reader);
      return;
    }
    if (isa<onnx::ConstantOp>(op) || isa<onnx::ConstantOp>(otherOp)) return compareConstants(pair);
    const bool isSame = op->getName() == otherOp->getName() && op->getNumOperands() == otherOp->getNumOperands() &&
                        cast<OpResult>(value).getResultNumber() == cast<OpResult>(other).getResultNumber();
    if (!isSame) return compareConstants(pair);
    matched.insert(op);
    if (!haveSameAttributes(op, otherOp) || !hasSameExtents(value, other) || sumsOverExtent(op, otherOp))
      uses.insert(op);
    for (auto [operand, otherOperand] : llvm::zip(op->getOperands(), otherOp->getOperands()))
      push(operand, otherOperand, op);
  }

  // At one size the value may have been folded that at another has too many elements.
  void compareConstants(const Pair &pair) {
    auto constant = normalize::constantOf(pair.value), otherConstant = normalize::constantOf(pair.other);
    if (constant && otherConstant && constant.isSplat() && otherConstant.isSplat()) {
      if (constant.getElementType() != otherConstant.getElementType() ||
          constant.getSplatValue<Attribute>() != otherConstant.getSplatValue<Attribute>())
        sized.insert(pair.value);
      return;
    }
    auto evaluated = normalize::evaluateOnDemand(pair.value), otherEvaluated = normalize::evaluateOnDemand(pair.other);
    if (!evaluated || !otherEvaluated) return differ(pair.reader);
    if (!sameForAllSamples(*evaluated, *otherEvaluated, samples, otherSamples)) sized.insert(pair.value);
  }

  static bool haveSameAttributes(Operation *op, Operation *other) {
    // These are the result's, which hasSameExtents compares.
    auto isExtent = [](NamedAttribute attribute) {
      const StringRef name = attribute.getName();
      return name == "shape" || name == "global_shape" || name == "input_shape" || name == "sizes" ||
             isa<TypeAttr>(attribute.getValue());
    };
    DictionaryAttr others = other->getAttrDictionary();
    return llvm::all_of(op->getAttrDictionary(), [&](NamedAttribute attribute) {
      return isExtent(attribute) || others.get(attribute.getName()) == attribute.getValue();
    });
  }

  // Only the dimension of samples has another extent.
  bool hasSameExtents(Value value, Value other) const {
    auto type = dyn_cast<RankedTensorType>(value.getType()), otherType = dyn_cast<RankedTensorType>(other.getType());
    const auto place = places.lookup(value);
    if (!type || !otherType) return true;
    if (auto slice = value.getDefiningOp<onnx::SliceOp>(); slice && !place) { // so many rows of a table
      auto otherSlice = other.getDefiningOp<onnx::SliceOp>();
      auto from = cast<RankedTensorType>(slice.getX().getType());
      auto otherFrom = cast<RankedTensorType>(otherSlice.getX().getType());
      for (int64_t d = 0; d < type.getRank(); ++d)
        if (type.getDimSize(unsigned(d)) != otherType.getDimSize(unsigned(d)) &&
            from.getDimSize(unsigned(d)) == otherFrom.getDimSize(unsigned(d)))
          return false;
    }
    if (!place) return true;
    if (type.getRank() != otherType.getRank()) return false;
    for (int64_t d = 0; d < type.getRank(); ++d) {
      const int64_t size = type.getDimSize(unsigned(d)), otherSize = otherType.getDimSize(unsigned(d));
      if (d == place->dim ? size * otherSamples != otherSize * samples : size != otherSize) return false;
    }
    return true;
  }

  // Of what has no samples, over as many entries as the batch has: as many times the weight.
  bool sumsOverExtent(Operation *op, Operation *other) const {
    auto hasSamples = [&](Value operand) { return places.lookup(operand).has_value(); };
    if (llvm::any_of(op->getOperands(), hasSamples) || op->getOperandTypes() == other->getOperandTypes()) return false;
    auto rules = dyn_cast<onnx::FactorRuleOpInterface>(op), otherRules = dyn_cast<onnx::FactorRuleOpInterface>(other);
    if (!rules || !otherRules) return false;
    const dist::FactorRule rule = rules.getFactorRule(), otherRule = otherRules.getFactorRule();
    for (auto [factor, otherFactor] : llvm::zip(rule.factors, otherRule.factors))
      if (factor.size != otherFactor.size && factor.kind == dist::Factor::Reduced) return true;
    return false;
  }

  // The first operation, in the model's order, that reads a constant made of the size, or that has such an attribute.
  Operation *firstUse() {
    DenseSet<Value> ofAll, fixed; // of all samples; of constants alone
    for (Operation &op : model.front().without_terminator()) {
      auto any = [&](auto holds) { return llvm::any_of(op.getOperands(), holds); };
      const bool readsAll = any([&](Value v) { return ofAll.contains(v) || places.lookup(v).has_value(); });
      const bool isFixed = isa<onnx::ConstantOp>(op) ||
                           (op.getNumOperands() > 0 &&
                            llvm::all_of(op.getOperands(), [&](Value operand) { return fixed.contains(operand); }));
      for (Value result : op.getResults()) {
        if (readsAll && !places.lookup(result)) ofAll.insert(result);
        if (isFixed) fixed.insert(result);
      }
      if (!matched.contains(&op)) continue;
      if (uses.contains(&op)) return &op;
      if (!any([&](Value operand) { return sized.contains(operand); })) continue;
      if (isFixed) {
        sized.insert(op.getResults().begin(), op.getResults().end());
        continue;
      }
      const bool scales = isa<onnx::MulOp>(op) || (isa<onnx::DivOp>(op) && !sized.contains(op.getOperand(0)));
      if (!scales || !any([&](Value operand) { return ofAll.contains(operand); })) return &op;
    }
    return nullptr;
  }

  func::FuncOp model;
  const training::SamplePlaces places;
  const int64_t samples, otherSamples;
  func::FuncOp otherModel;
  SmallVector<Pair> pending;
  DenseSet<std::pair<Value, Value>> seen;
  DenseSet<Operation *> matched, uses;
  DenseSet<Value> sized; // constants that are others at the other size
  Operation *unlike = nullptr;
};

} // namespace

BatchSizeUse findBatchSizeUse(func::FuncOp model, func::FuncOp other) { return SizeComparison(model, other).run(); }

} // namespace cleave
