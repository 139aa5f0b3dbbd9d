#include "compiler/training/graph_loss.h"
#include "compiler/training/sample_place.h"
#include "compiler/training/step_function.h"
#include "llvm/ADT/STLExtras.h"
#include <llvm/ADT/TypeSwitch.h>

using namespace mlir;
using cleave::onnx::Formula;

namespace cleave::training {
namespace {

std::optional<double> splatOf(Value value) {
  if (auto broadcast = value.getDefiningOp<onnx::BroadcastOp>()) return splatOf(broadcast.getX());
  if (auto reshape = value.getDefiningOp<onnx::ReshapeOp>()) return splatOf(reshape.getX());
  auto constant = value.getDefiningOp<onnx::ConstantOp>();
  auto data = constant ? dyn_cast<DenseElementsAttr>(constant.getValue()) : DenseElementsAttr();
  if (!data || !data.isSplat() || !isa<FloatType>(data.getElementType())) return std::nullopt;
  return data.getSplatValue<APFloat>().convertToDouble();
}

std::string nameOf(Operation *op) {
  auto name = dyn_cast<NameLoc>(op->getLoc());
  return name ? name.getName().str() : op->getName().stripDialect().str();
}

// Where the loss, or its count, reads a sum over samples; or a number without samples (a penalty on weights).
struct Term {
  OpOperand *use;
  double coefficient;
  bool isOverSamples;
};

class Reader {
public:
  explicit Reader(func::FuncOp model) : places(samplePlaces(model)) {
    for (Operation &op : model.front().without_terminator())
      if (llvm::any_of(op.getOperands(),
                       [&](Value operand) { return isOfAll.contains(operand) || hasSamples(operand); }))
        for (Value result : op.getResults())
          if (!hasSamples(result)) isOfAll.insert(result);
  }

  bool hasSamples(Value value) const { return places.lookup(value).has_value(); }
  // Made of a sum over the samples, or of something else of all of them.
  bool dependsOnAll(Value value) const { return isOfAll.contains(value); }

  // The terms of a value that is a sum of them; the op in the way, if it is none.
  Operation *termsOf(OpOperand &use, double coefficient, SmallVectorImpl<Term> &terms) {
    Value value = use.get();
    Operation *op = value.getDefiningOp();
    if (!dependsOnAll(value)) {
      terms.push_back({&use, coefficient, false});
      return nullptr;
    }
    if (isSumOverSamples(op)) {
      terms.push_back({&use, coefficient, true});
      return nullptr;
    }
    Operation *obstacle = op;
    auto through = [&](unsigned operand, double factor) {
      return termsOf(op->getOpOperand(operand), coefficient * factor, terms);
    };
    llvm::TypeSwitch<Operation *>(op)
        .Case<onnx::ReshapeOp, onnx::CastOp, onnx::ReduceSumOp, onnx::BroadcastOp>(
            [&](auto) { obstacle = through(0, 1); })
        .Case([&](onnx::NegOp) { obstacle = through(0, -1); })
        .Case<onnx::AddOp, onnx::SumOp>([&](auto) {
          obstacle = nullptr;
          for (unsigned i = 0; i < op->getNumOperands() && !obstacle; ++i) obstacle = through(i, 1);
        })
        .Case([&](onnx::SubOp) {
          obstacle = through(0, 1);
          if (!obstacle) obstacle = through(1, -1);
        })
        .Case([&](onnx::MulOp mul) {
          for (unsigned i = 0; i < 2; ++i)
            if (!dependsOnAll(mul->getOperand(1 - i))) {
              obstacle = through(i, splatOf(mul->getOperand(1 - i)).value_or(1));
              return;
            }
        })
        .Case([&](onnx::DivOp div) {
          if (!dependsOnAll(div->getOperand(1))) obstacle = through(0, 1 / splatOf(div->getOperand(1)).value_or(1));
        });
    return obstacle;
  }

  // The quotient of two sums over samples that the loss is, but for a constant factor; null: it is none.
  onnx::DivOp quotientOf(Value loss) const {
    while (Operation *op = loss.getDefiningOp()) {
      if (auto div = dyn_cast<onnx::DivOp>(op); div && dependsOnAll(div->getOperand(1))) return div;
      if (isa<onnx::ReshapeOp, onnx::CastOp, onnx::NegOp>(op) ||
          (isa<onnx::DivOp>(op) && !dependsOnAll(op->getOperand(1))))
        loss = op->getOperand(0);
      else if (isa<onnx::MulOp>(op) && dependsOnAll(op->getOperand(0)) != dependsOnAll(op->getOperand(1)))
        loss = op->getOperand(dependsOnAll(op->getOperand(0)) ? 0 : 1);
      else
        return {};
    }
    return {};
  }

  // The count below `use`: what one adds up before it is bounded (Max(count, 1)) or changed by a constant. Its terms.
  OpOperand *countBelow(OpOperand &use, SmallVectorImpl<Term> &terms) {
    terms.clear();
    if (!termsOf(use, 1, terms) && llvm::all_of(terms, [](const Term &term) { return term.isOverSamples; }))
      return &use;
    Operation *op = use.get().getDefiningOp();
    OpOperand *only = nullptr;
    for (OpOperand &operand : op->getOpOperands())
      if (dependsOnAll(operand.get())) {
        if (only || hasSamples(operand.get())) return nullptr;
        only = &operand;
      }
    return only ? countBelow(*only, terms) : nullptr;
  }

private:
  bool isSumOverSamples(Operation *op) const {
    return isa<onnx::ReduceSumOp, onnx::ContractOp>(op) &&
           llvm::any_of(op->getOperands(), [&](Value operand) { return hasSamples(operand); });
  }

  SamplePlaces places;
  DenseSet<Value> isOfAll;
};

bool isTrained(Value value, ModuleOp module) {
  return llvm::any_of(parametersOf(value), [&](StringAttr name) {
    auto param = module.lookupSymbol<onnx::ParamOp>(name);
    return param && param.getTrainable();
  });
}

// The use reads `factor` times what it read.
void scale(const Term &term, double factor) {
  if (factor == 1 || term.coefficient == 0) return;
  Operation *owner = term.use->getOwner();
  OpBuilder builder(owner);
  Formula f(builder, owner->getLoc());
  Value factors = f.like(term.use->get(), factor), scaled = f.mul(term.use->get(), factors);
  for (Value made : {factors, scaled})
    made.getDefiningOp()->setDiscardableAttrs(llvm::to_vector(owner->getDiscardableAttrs()));
  term.use->set(scaled);
}

} // namespace

GraphLoss splitGraphLoss(Formula f, func::FuncOp model, Value loss, bool isMean, int64_t microbatches,
                         const std::vector<double> &whole) {
  GraphLoss made;
  Reader reader(model);
  auto scalar = [&](Value value) { return f.make<onnx::ReshapeOp>(value, ArrayRef<int64_t>()); };
  made.terms.sum = scalar(loss);
  SmallVector<Term> terms, counted;
  onnx::DivOp quotient = reader.quotientOf(loss);
  OpOperand *count = quotient ? reader.countBelow(quotient->getOpOperand(1), counted) : nullptr;
  const bool isWeighted = count && !isTrained(quotient->getOperand(1), model->getParentOfType<ModuleOp>());
  OpOperand &summed = isWeighted ? quotient->getOpOperand(0) : made.terms.sum.getDefiningOp()->getOpOperand(0);
  Operation *obstacle = reader.termsOf(summed, 1, terms);
  if (isWeighted) llvm::append_range(terms, counted);
  for (const Term &term : terms)
    if (term.isOverSamples) made.coefficients.push_back(term.coefficient);
  if (!obstacle && microbatches > 1 && made.coefficients.size() != whole.size())
    obstacle = made.terms.sum.getDefiningOp();
  if (obstacle) {
    made.meetsAt = nameOf(obstacle);
    if (isMean) made.terms.weight = f.like(made.terms.sum, 1);
    return made;
  }
  if (microbatches > 1) {
    // So that the microbatches' losses add up to the batch's; or their mean is it.
    const double parts = static_cast<double>(microbatches), each = isMean && !isWeighted ? parts : 1;
    size_t next = 0;
    for (const Term &term : terms)
      scale(term, each * (term.isOverSamples ? whole[next++] / term.coefficient : 1 / parts));
  }
  if (isWeighted) {
    made.terms.weight = scalar(quotient->getOperand(1));
    if (count != &quotient->getOpOperand(1)) made.terms.count = count->get();
    quotient.getResult().replaceAllUsesWith(quotient->getOperand(0));
  } else if (isMean) {
    made.terms.weight = f.like(made.terms.sum, 1);
  }
  return made;
}

} // namespace cleave::training
