#include "compiler/training/graph_loss.h"
#include "compiler/training/node_names.h"
#include "compiler/training/sample_place.h"
#include "compiler/training/step_function.h"
#include "dialects/onnx/kinds.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/ScopeExit.h"

using namespace mlir;
using cleave::onnx::Formula;

namespace cleave::training {
namespace {

std::string nameOf(Operation *op) {
  auto name = dyn_cast<NameLoc>(op->getLoc());
  return name ? name.getName().str() : op->getName().stripDialect().str();
}

// A microbatch's part of a value that is linear in sums over samples: the parts add up to the batch's. Makes new
// operations beside the model's; those of a value that has no part are dead.
class Parts {
public:
  Parts(func::FuncOp model, int64_t microbatches, const std::vector<double> &whole)
      : builder(model, Phase::Forward), module(model->getParentOfType<ModuleOp>()), places(samplePlaces(model)),
        samples(samplesOf(model)), microbatches(static_cast<double>(microbatches)), whole(whole) {
    DenseSet<Attribute> written;
    for (auto write : model.getOps<onnx::WriteOp>()) written.insert(write.getParamAttr());
    for (Operation &op : model.front().without_terminator()) {
      auto read = dyn_cast<onnx::ReadOp>(op);
      auto param = read ? module.lookupSymbol<onnx::ParamOp>(read.getParamAttr()) : onnx::ParamOp();
      const bool changes = read && (!param || param.getTrainable() || written.contains(read.getParamAttr()));
      auto any = [&](const DenseSet<Value> &values) {
        return llvm::any_of(op.getOperands(), [&](Value operand) { return values.contains(operand); });
      };
      const bool readsAll = any(ofAll) || llvm::any_of(op.getOperands(), [&](Value v) { return hasSamples(v); });
      const bool readsModel = changes || any(ofModel);
      for (Value result : op.getResults()) {
        if (readsAll && !hasSamples(result)) ofAll.insert(result);
        if (readsModel) ofModel.insert(result);
      }
    }
  }

  std::vector<double> coefficients;
  SmallVector<Value> counts;
  Value weight;                  // the count that divides all of the loss; null: none
  Operation *obstacle = nullptr; // has no part: it is the mean of the microbatches'

  // `factor`: how many times its part a microbatch has where no weight divides it.
  Value ofLoss(Value loss, double factor) {
    each = factor;
    dividesAll = true;
    return partOf(loss, 1);
  }

private:
  bool hasSamples(Value value) const { return places.lookup(value).has_value(); }
  // Made of a sum over the samples, or of something else of all of them.
  bool dependsOnAll(Value value) const { return ofAll.contains(value); }

  bool isTrained(Value value) {
    return llvm::any_of(parametersOf(value), [&](StringAttr name) {
      auto param = module.lookupSymbol<onnx::ParamOp>(name);
      return param && param.getTrainable();
    });
  }

  // Is it a sum over samples? That of a single one may have been folded away.
  bool isSumOverSamples(Value value) const {
    if (hasSamples(value)) return samples == 1;
    return isa_and_nonnull<onnx::ReduceSumOp, onnx::ContractOp>(value.getDefiningOp()) &&
           llvm::any_of(value.getDefiningOp()->getOperands(), [&](Value operand) { return hasSamples(operand); });
  }

  Value partOf(Value value, double coefficient) {
    if (!dependsOnAll(value) && !hasSamples(value))
      return onnx::isFloatTensor(value) ? scaled(value, each / microbatches) : Value();
    if (isSumOverSamples(value)) {
      const size_t number = coefficients.size();
      coefficients.push_back(coefficient);
      const bool isScaled = microbatches > 1 && coefficient != 0 && number < whole.size();
      return scaled(value, isScaled ? each * whole[number] / coefficient : 1);
    }
    if (Value part = linearPart(value, coefficient)) return part;
    if (isCounting) return {};
    if (Value ofWhole = ofBatch(value)) return scaled(ofWhole, each / microbatches);
    if (weight) return {};
    if (!obstacle) obstacle = value.getDefiningOp();
    return scaled(value, each / microbatches);
  }

  // Null: the operation is not linear in sums.
  Value linearPart(Value value, double coefficient) {
    Operation *op = value.getDefiningOp();
    if (!op) return {};
    SmallVector<Value> operands(op->getOperands());
    auto take = [&](unsigned operand, double factor) {
      operands[operand] = partOf(operands[operand], coefficient * factor);
      return static_cast<bool>(operands[operand]);
    };
    if (isa<onnx::MulOp, onnx::DivOp, onnx::ContractOp>(op)) {
      if (!onnx::isFloatTensor(value)) return {};
      const bool divides = isa<onnx::DivOp>(op);
      if (divides && dividesAll)
        if (Value part = weightedPart(operands[0], operands[1], coefficient)) return part;
      for (unsigned i = 0; i < (divides ? 1 : 2); ++i) {
        Value factor = factorOf(operands[1 - i]);
        if (!factor) continue;
        operands[1 - i] = factor;
        const double known = isa<onnx::ContractOp>(op) ? 1 : onnx::repeatedNumber(factor).value_or(1);
        return take(i, divides ? 1 / known : known) ? made(value, operands) : Value();
      }
      return {};
    }
    if (auto cast = dyn_cast<onnx::CastOp>(op)) {
      if (onnx::isFloatTensor(cast.getX()) && !onnx::isFloatTensor(value)) return {};
    } else if (!isa<onnx::NegOp, onnx::ReshapeOp>(op)) {
      if (!onnx::isSum(op) && !onnx::isMovement(op) && !isa<onnx::SubOp, onnx::ReduceSumOp, onnx::WhereOp>(op))
        return {};
      dividesAll = false;
    }
    if (isa<onnx::WhereOp>(op) && !(operands[0] = factorOf(operands[0]))) return {};
    for (unsigned i = isa<onnx::WhereOp>(op); i < operands.size(); ++i)
      if (!take(i, isa<onnx::NegOp>(op) || (isa<onnx::SubOp>(op) && i == 1) ? -1 : 1)) return {};
    return made(value, operands);
  }

  // Of a quotient that is all of the loss: sum and count are added up, and divided when all microbatches are done.
  Value weightedPart(Value sum, Value count, double coefficient) {
    if (!dependsOnAll(count) || isTrained(count)) return {};
    const size_t known = coefficients.size();
    const double ofMean = std::exchange(each, 1);
    dividesAll = false;
    weight = countedPart(count);
    if (Value part = weight ? partOf(sum, coefficient) : Value()) return part;
    coefficients.resize(known);
    each = ofMean;
    weight = {};
    return {};
  }

  // A value that sums are multiplied with or divided by.
  Value factorOf(Value value) {
    if (!dependsOnAll(value)) return hasSamples(value) ? Value() : value;
    return isCounting ? Value() : ofBatch(value);
  }

  // The part of a value that is added up by itself; null, and nothing has changed: it is not linear.
  Value countedPart(Value value) {
    const size_t known = coefficients.size();
    auto back = llvm::make_scope_exit(
        [this, was = std::tuple(each, dividesAll, isCounting)] { std::tie(each, dividesAll, isCounting) = was; });
    each = 1;
    dividesAll = false;
    isCounting = true;
    Value part = partOf(value, 1);
    if (!part) coefficients.resize(known);
    return part;
  }

  // The value as the whole batch has it, of counts that are added up ahead: it must be made of inputs alone.
  Value ofBatch(Value value) {
    if (!dependsOnAll(value)) return hasSamples(value) ? Value() : value;
    if (Value known = batchValues.lookup(value)) return known;
    Operation *op = value.getDefiningOp();
    if (ofModel.contains(value)) return {};
    if (Value part = countedPart(value)) {
      if (microbatches == 1) return batchValues[value] = value;
      builder.setInsertionPointAfterValue(part);
      auto symbol = builder.getStringAttr(countTensor(counts.size()));
      counts.push_back(part);
      return batchValues[value] =
                 onnx::ReadOp::create(builder, op->getLoc(), value.getType(), FlatSymbolRefAttr::get(symbol));
    }
    SmallVector<Value> operands;
    for (Value operand : op->getOperands()) {
      operands.push_back(ofBatch(operand));
      if (!operands.back()) return {};
    }
    return batchValues[value] = made(value, operands);
  }

  // The value of other operands.
  Value made(Value value, ArrayRef<Value> operands) {
    Operation *op = value.getDefiningOp();
    if (llvm::equal(op->getOperands(), operands)) return value;
    builder.setInsertionPointAfter(op);
    Operation *copy = builder.clone(*op);
    copy->setOperands(operands);
    return copy->getResult(cast<OpResult>(value).getResultNumber());
  }

  Value scaled(Value value, double factor) {
    if (factor == 1) return value;
    builder.setInsertionPointAfterValue(value);
    return Formula(builder, NameLoc::get(builder.getStringAttr(partOfBatch))).scale(value, factor);
  }

  PhaseBuilder builder;
  ModuleOp module;
  SamplePlaces places;
  int64_t samples;
  double microbatches, each = 1;
  const std::vector<double> &whole;
  DenseSet<Value> ofAll, ofModel; // ofModel: of parameters that train, or of running statistics
  bool dividesAll = false, isCounting = false;
  DenseMap<Value, Value> batchValues;
};

} // namespace

GraphLoss splitGraphLoss(Formula f, func::FuncOp model, Value loss, bool isMean, int64_t microbatches,
                         const std::vector<double> &whole) {
  GraphLoss made;
  Parts parts(model, microbatches, whole);
  auto scalar = [&](Value value) { return f.make<onnx::ReshapeOp>(value, ArrayRef<int64_t>()); };
  Value part = parts.ofLoss(loss, isMean ? static_cast<double>(microbatches) : 1);
  made.coefficients = parts.coefficients;
  if (parts.obstacle) made.meetsAt = nameOf(parts.obstacle);
  if (microbatches > 1 && made.coefficients.size() != whole.size()) { // a microbatch has other sums
    made.meetsAt = nameOf(loss.getDefiningOp());
    part = loss;
    parts.weight = {};
  } else {
    made.counts = parts.counts;
  }
  made.terms.sum = scalar(part);
  if (parts.weight)
    made.terms.weight = scalar(parts.weight);
  else if (isMean)
    made.terms.weight = f.like(made.terms.sum, 1);
  return made;
}

} // namespace cleave::training
