#include "compiler/training/fp8/scales.h"
#include "compiler/training/fp8/weight_products.h"
#include "compiler/training/step_function.h"
#include "compiler/training/training.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using cleave::onnx::Formula;

namespace cleave::training {
#define GEN_PASS_DEF_QUANTIZEPRODUCTS
#include "compiler/training/Passes.h.inc"

namespace {

// An operand of a product on 8 bits. The backward pass rounds a weight again rather than keep it: it may have been
// gathered.
enum class Role { Input, Weight, WeightAgain, Gradient };
bool isWeight(Role role) { return role == Role::Weight || role == Role::WeightAgain; }

// "gradient/W": what its scale and its history are called.
std::string tensorName(Role role, StringRef weight) {
  const StringRef kind = isWeight(role) ? "weight/" : role == Role::Gradient ? "gradient/" : "input/";
  return (kind + weight).str();
}

// A product that is to be on 8 bits.
struct Multiplication {
  StringRef weight;
  Role lhs, rhs;
};

// A tensor in 8 bits.
struct Quantized {
  Value codes;
  Value scale; // f32, of rank 0
};

// Operations of the builder belong where `of` does; `isAside`: they are no matter for the planner.
struct Placing : OpBuilder::Listener {
  explicit Placing(Operation *of) : of(of) {}
  void notifyOperationInserted(Operation *op, OpBuilder::InsertPoint) override {
    place::copy(of, op);
    if (isAside && place::hasPhase(of, Phase::Forward)) onnx::fp8ScalingAttr.set(op);
  }
  Operation *of;
  bool isAside = false;
};

class FunctionQuantizing {
public:
  FunctionQuantizing(func::FuncOp function, const recipe::Recipe &recipe, SymbolTable &symbols, bool trains)
      : function(function), recipe(recipe), symbols(symbols), trains(trains),
        isDelayed(recipe.fp8.scaling == recipe::Scaling::Delayed) {}

  // Returns how many products are now on 8 bits: these and those of their gradients.
  int64_t run(ArrayRef<WeightProduct> products) {
    const DenseMap<Operation *, Multiplication> multiplications = withGradients(products);
    for (auto op : llvm::make_early_inc_range(function.getOps<onnx::ContractOp>()))
      if (auto found = multiplications.find(op); found != multiplications.end()) multiply(op, found->second);
    if (!amaxes.empty()) {
      SmallVector<StepResult> results = stepResults(function);
      results.append(amaxes);
      setStepResults(function, results);
    }
    eraseDeadOps(function);
    return multiplications.size();
  }

private:
  func::FuncOp function;
  const recipe::Recipe &recipe;
  SymbolTable &symbols;
  const bool trains, isDelayed;
  std::map<std::pair<const void *, Role>, Quantized> quantizedOf; // by value
  SmallVector<StepResult> amaxes;

  // The gradient facet made `dy, rhs` for the lhs and `lhs, dy` for the rhs.
  DenseMap<Operation *, Multiplication> withGradients(ArrayRef<WeightProduct> products) {
    DenseMap<int64_t, SmallVector<onnx::ContractOp, 2>> gradients;
    for (auto op : function.getOps<onnx::ContractOp>())
      if (auto number = place::productAttr.of(op); number && place::hasPhase(op, Phase::Backward))
        gradients[*number].push_back(op);
    DenseMap<Operation *, Multiplication> found;
    for (auto [op, weight, weightOperand] : products) {
      const bool isLeft = weightOperand == 0;
      found[op] = {weight, isLeft ? Role::Weight : Role::Input, isLeft ? Role::Input : Role::Weight};
      const auto number = place::productAttr.of(op); // none in @evaluate, which has no gradients
      if (!number) continue;
      for (onnx::ContractOp gradient : gradients.lookup(*number)) {
        const bool isOfLeft =
            gradient.getRhsIndices() == op.getRhsIndices() && gradient.getResultIndices() == op.getLhsIndices();
        const Role other = isOfLeft == isLeft ? Role::Input : Role::WeightAgain;
        found[gradient] = {weight, isOfLeft ? Role::Gradient : other, isOfLeft ? other : Role::Gradient};
      }
    }
    return found;
  }

  // The value in 8 bits, made before `user` where no operation before it has asked for it.
  Quantized quantized(Value value, Role role, StringRef weight, Operation *user) {
    auto [known, isNew] = quantizedOf.try_emplace({value.getAsOpaquePointer(), role});
    if (!isNew) return known->second;
    OpBuilder builder(user);
    const std::string tensor = tensorName(role, weight);
    Placing placing(user);
    placing.isAside = isWeight(role) || isDelayed;
    builder.setListener(&placing);
    Formula f(builder, user->getLoc());
    Value scale;
    if (isDelayed)
      scale = onnx::ReadOp::create(builder, user->getLoc(), scalarType(), stateOf(scalePrefix, tensor, weight, {}, 1))
                  .getValue();
    // A weight lies in 16 bits: it is gathered so, and its 8 bits follow from them.
    if (isWeight(role)) value = f.cast(f.cast(value, builder.getBF16Type()), builder.getF32Type());
    if (!isDelayed) {
      Value amax = amaxOf(f, value);
      scale = scaleOf(f, amax, tensor, recipe.fp8.margin, f.like(amax, 1));
    } else if (trains && role != Role::WeightAgain) {
      stateOf(historyPrefix, tensor, weight, {recipe.fp8.history}, 0);
      amaxes.push_back({(amaxPrefix + tensor).str(), {}, amaxOf(f, value)});
    }
    Value scaled = f.mul(value, f.spread(scale, onnx::tensorType(value).getShape()));
    placing.isAside = isWeight(role); // the planner sees a cast of other tensors, and the weight itself
    Type element =
        isGradientTensor(tensor) ? Type(builder.getType<Float8E5M2Type>()) : Type(builder.getType<Float8E4M3FNType>());
    return known->second = {f.cast(scaled, element), scale};
  }

  static Value amaxOf(Formula &f, Value value) {
    auto axes = llvm::to_vector(llvm::seq<int64_t>(0, onnx::tensorType(value).getRank()));
    return f.make<onnx::ReduceMaxOp>(f.make<onnx::AbsOp>(value), axes);
  }

  void multiply(onnx::ContractOp op, const Multiplication &multiplication) {
    Quantized lhs = quantized(op.getLhs(), multiplication.lhs, multiplication.weight, op),
              rhs = quantized(op.getRhs(), multiplication.rhs, multiplication.weight, op);
    OpBuilder builder(op);
    Placing placing(op);
    builder.setListener(&placing);
    Formula f(builder, op.getLoc());
    const bool isGradientOfWeight = !isWeight(multiplication.lhs) && !isWeight(multiplication.rhs);
    Type element = isGradientOfWeight ? Type(builder.getF32Type()) : Type(builder.getBF16Type());
    auto type = onnx::tensorType(op.getY());
    auto product = onnx::ContractOp::create(builder, op.getLoc(), type.clone(element), lhs.codes, rhs.codes,
                                            op.getLhsIndices(), op.getRhsIndices(), op.getResultIndices());
    product->setDiscardableAttrs(op->getDiscardableAttrDictionary());
    Value wide = f.cast(product.getY(), builder.getF32Type());
    placing.isAside = true;
    Value inverse = f.mul(f.make<onnx::ReciprocalOp>(lhs.scale), f.make<onnx::ReciprocalOp>(rhs.scale));
    Value result = f.mul(wide, f.spread(inverse, type.getShape()));
    op.getY().replaceAllUsesWith(result);
    op.erase();
  }

  RankedTensorType scalarType() { return RankedTensorType::get({}, Float32Type::get(function.getContext())); }

  FlatSymbolRefAttr stateOf(StringRef prefix, StringRef tensor, StringRef weight, ArrayRef<int64_t> shape,
                            double fill) {
    const std::string name = (prefix + tensor).str();
    if (!symbols.lookup(name)) {
      auto state = addPersistent(function, symbols, name, scalarType().clone(shape), "optimizer_state", fill);
      onnx::besideAttr.set(state, FlatSymbolRefAttr::get(function.getContext(), weight));
    }
    return FlatSymbolRefAttr::get(function.getContext(), name);
  }
};

// "fp8: 12 products of a step are in 8 bits; in 16 bits are those of head.weight (the last product)"
std::string noteOf(int64_t quantized, const std::map<std::string, std::string> &kept) {
  std::map<std::string, std::vector<std::string>> weights; // by reason
  for (const auto &[weight, reason] : kept) weights[reason].push_back(weight);
  std::string text = "fp8: " + std::to_string(quantized) + " products of a step are in 8 bits";
  const char *separator = "; in 16 bits are those of ";
  for (const auto &[reason, names] : weights) {
    text += separator + names.front();
    if (names.size() > 1) text += " and " + std::to_string(names.size() - 1) + " more";
    text += " (" + reason + ")";
    separator = ", ";
  }
  return text;
}

class QuantizeProducts : public impl::QuantizeProductsBase<QuantizeProducts> {
public:
  using Base::Base;
  void runOnOperation() override {
    func::FuncOp model = findFunction(getOperation(), "model", "the normalize phase");
    if (!model) return signalPassFailure();
    SymbolTable symbols(getOperation());
    SmallVector<WeightProduct> products = weightProducts(model, symbols);
    const std::map<std::string, std::string> kept = weightsToKeep(model, products, recipe, symbols);
    llvm::erase_if(products, [&](const WeightProduct &product) { return kept.contains(product.weight.str()); });
    llvm::StringSet<> weights; // on 8 bits
    for (const WeightProduct &product : products) weights.insert(product.weight);
    const int64_t quantized = FunctionQuantizing(model, recipe, symbols, /*trains=*/true).run(products);
    if (auto evaluate = symbols.lookup<func::FuncOp>("evaluate")) {
      SmallVector<WeightProduct> evaluated = weightProducts(evaluate, symbols);
      llvm::erase_if(evaluated, [&](const WeightProduct &product) { return !weights.contains(product.weight); });
      FunctionQuantizing(evaluate, recipe, symbols, /*trains=*/false).run(evaluated);
    }
    onnx::fp8NoteAttr.set(getOperation(), noteOf(quantized, kept));
  }
};

} // namespace
} // namespace cleave::training
