// QuantizeProducts: the products of a training in fp8 that multiply by a weight, and their gradients, on 8 bits
// (Micikevicius et al.: FP8 Formats for Deep Learning, 2022; as Transformer Engine and torchao do): inputs and weights
// in e4m3, gradients in e5m2, each tensor with one scale.
//
//   %y = onnx.Contract %x, %w      ->   %qx = onnx.Cast (%x * %sx) {to = f8E4M3FN}      saturates
//                                       %qw = onnx.Cast (bf16(%w) * %sw) {to = f8E4M3FN}
//                                       %r = onnx.Contract %qx, %qw : (f8E4M3FN, f8E4M3FN) -> bf16
//                                       %y = f32(%r) * (1 / %sx * 1 / %sw)
//   %dx = onnx.Contract %dy, %w    ->   the same with %qdy in f8E5M2 and %qw
//   %dw = onnx.Contract %x, %dy    ->   of %qx and %qdy, in f32
//
// Scales are persistent (delayed scaling, scales.h); a function that is differentiated also gives each tensor's
// amax. Or they are made of the tensor's own amax (current scaling).
//
// All other products stay for LowerPrecision: those of two activations (attention), those whose weight has a dimension
// that is no multiple of 16 (no library multiplies them), is also looked up, or is kept by the recipe: where it does
// not say, the weights of products behind which there is no other (the head). The module attribute cleave.fp8 says
// which.
#include "compiler/recipe/glob.h"
#include "compiler/training/fp8/scales.h"
#include "compiler/training/parameter_names.h"
#include "compiler/training/recipe_pass.h"
#include "compiler/training/step_function.h"
#include "compiler/training/training.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;
using cleave::onnx::Formula;

namespace cleave::training {
namespace {

bool hasPhase(Operation *op, Phase phase) {
  auto of = op->getAttrOfType<StringAttr>(phaseName);
  return of && of == phaseText(phase);
}
bool isFull(Value value) { return onnx::tensorType(value).getElementType().isF32(); }

// The weight that a value is, but for movement; null: none.
onnx::ReadOp weightOf(Value value) {
  Operation *op = value.getDefiningOp();
  while (op && isa<onnx::ReshapeOp, onnx::TransposeOp, onnx::SliceOp, onnx::BroadcastOp>(op))
    op = op->getOperand(0).getDefiningOp();
  return dyn_cast_or_null<onnx::ReadOp>(op);
}

// A product by a weight, in the order of its operands.
struct Product {
  onnx::ContractOp op;
  onnx::ReadOp weight;
  unsigned weightOperand;
  Value input() const { return op->getOperand(1 - weightOperand); }
};

// A tensor in 8 bits.
struct Quantized {
  Value codes;
  Value scale; // f32, of rank 0
  SmallVector<Operation *> made = {};
};

class FunctionQuantizing {
public:
  FunctionQuantizing(func::FuncOp function, const recipe::Recipe &recipe, SymbolTable &symbols, bool trains)
      : function(function), recipe(recipe), symbols(symbols), trains(trains),
        isDelayed(recipe.fp8.scaling == recipe::Scaling::Delayed) {
    if (recipe.fp8.keep) kept.emplace(*recipe.fp8.keep);
  }

  void run() {
    findLastProducts();
    SmallVector<Product> products;
    for (auto op : function.getOps<onnx::ContractOp>())
      if (std::optional<Product> product = productOf(op)) products.push_back(*product);
    for (Product product : products) {
      if (std::string reason = reasonToKeep(product); !reason.empty()) {
        left[product.weight.getParam().str()] = reason;
        continue;
      }
      quantize(product);
    }
    if (!amaxes.empty()) {
      SmallVector<StepResult> results = stepResults(function);
      results.append(amaxes);
      setStepResults(function, results);
    }
    eraseDeadOps(function);
  }

  int64_t quantizedProducts = 0;
  std::map<std::string, std::string> left; // weight -> why its products stay in 16 bits

private:
  func::FuncOp function;
  const recipe::Recipe &recipe;
  SymbolTable &symbols;
  const bool trains, isDelayed;
  std::optional<recipe::ParameterPatterns> kept;
  DenseSet<Operation *> beforeOthers; // forward ops with a product behind them
  int products = 0;                   // of the forward pass
  llvm::StringMap<int> uses;          // of a weight by quantized products
  std::map<std::tuple<const void *, const void *, bool>, Quantized> quantizedOf; // value, type, whether for a gradient
  SmallVector<StepResult> amaxes;

  std::optional<Product> productOf(onnx::ContractOp op) {
    if (!hasPhase(op, Phase::Forward) || !isFull(op.getY())) return std::nullopt;
    onnx::ReadOp left = weightOf(op.getLhs()), right = weightOf(op.getRhs());
    if (!isFull(op.getLhs()) || !isFull(op.getRhs()) || !left == !right) return std::nullopt;
    Product product{op, left ? left : right, left ? 0u : 1u};
    auto param = symbols.lookup<onnx::ParamOp>(product.weight.getParam());
    if (!param || param.getRole() != "parameter") return std::nullopt;
    return product;
  }

  void findLastProducts() {
    for (Operation &op : llvm::reverse(function.front()))
      if (hasPhase(&op, Phase::Forward) && llvm::any_of(op.getUsers(), [&](Operation *user) {
            return hasPhase(user, Phase::Forward) && (onnx::isHeavy(user) || beforeOthers.contains(user));
          }))
        beforeOthers.insert(&op);
  }

  std::string reasonToKeep(Product product) {
    auto param = symbols.lookup<onnx::ParamOp>(product.weight.getParam());
    if (kept && kept->match(namesOf(param->getAttrDictionary()))) return "fp8.keep";
    if (!kept && !beforeOthers.contains(product.op)) return "the last product";
    if (isLookedUp(product.weight.getValue())) return "also looked up";
    for (int64_t index : indicesOf(product.op, product.weightOperand)) {
      bool isBatch = llvm::is_contained(indicesOf(product.op, 1 - product.weightOperand), index) &&
                     llvm::is_contained(product.op.getResultIndices(), index);
      if (!isBatch && sizeOf(product, index) % onnx::eightBitAlignment != 0)
        return "size " + std::to_string(sizeOf(product, index));
    }
    return "";
  }
  static ArrayRef<int64_t> indicesOf(onnx::ContractOp op, unsigned operand) {
    return operand == 0 ? op.getLhsIndices() : op.getRhsIndices();
  }
  // All indices of one group (summed over, or the weight's alone) together are one size of the matrix.
  static int64_t sizeOf(Product product, int64_t index) {
    auto isSummed = [&](int64_t one) { return !llvm::is_contained(product.op.getResultIndices(), one); };
    int64_t size = 1;
    auto shape = onnx::tensorType(product.op->getOperand(product.weightOperand)).getShape();
    for (auto [one, extent] : llvm::zip_equal(indicesOf(product.op, product.weightOperand), shape)) {
      bool isBatch = llvm::is_contained(indicesOf(product.op, 1 - product.weightOperand), one) && !isSummed(one);
      if (!isBatch && isSummed(one) == isSummed(index)) size *= extent;
    }
    return size;
  }
  static bool isLookedUp(Value value) {
    return llvm::any_of(value.getUsers(), [](Operation *user) {
      if (isa<onnx::GatherOp>(user)) return true;
      return isa<onnx::ReshapeOp, onnx::TransposeOp, onnx::SliceOp>(user) && isLookedUp(user->getResult(0));
    });
  }

  void quantize(Product product) {
    StringRef weight = product.weight.getParam();
    const int use = ++uses[weight];
    const std::string name = (weight + (use > 1 ? "#" + Twine(use) : Twine())).str();
    Value input = product.input(), matrix = product.op->getOperand(product.weightOperand);
    // Found before their operands change.
    SmallVector<onnx::ContractOp> gradients = gradientsOf(product);
    Quantized x = quantized(input, "input/" + name, weight, product.op);
    Quantized w = quantized(matrix, "weight/" + name, weight, product.op);
    auto number = StringAttr::get(function.getContext(), "fp8." + Twine(products++));
    product.op->setAttr(productName, number);
    multiply(product.op, product.weightOperand == 0 ? w : x, product.weightOperand == 0 ? x : w, /*isSum=*/false);
    ++quantizedProducts;
    for (onnx::ContractOp gradient : gradients) {
      const bool isOfWeight = gradient.getLhs() == input || gradient.getRhs() == input;
      const unsigned operand = gradient->getOperand(0) == (isOfWeight ? input : matrix) ? 1 : 0;
      Quantized dy = quantized(gradient->getOperand(operand), "gradient/" + name, weight, gradient);
      // The weight is rounded again rather than kept: it may have been gathered.
      Quantized other = isOfWeight ? x : quantized(matrix, "weight/" + name, weight, gradient);
      gradient->setAttr(productName, number);
      multiply(gradient, operand == 0 ? dy : other, operand == 0 ? other : dy, isOfWeight);
      ++quantizedProducts;
    }
  }

  // The products that the gradient facet made of this one.
  static SmallVector<onnx::ContractOp> gradientsOf(Product product) {
    onnx::ContractOp op = product.op;
    SmallVector<onnx::ContractOp> found;
    auto consider = [&](Value operand, unsigned place, ArrayRef<int64_t> left, ArrayRef<int64_t> right,
                        ArrayRef<int64_t> result) {
      for (Operation *user : operand.getUsers()) {
        auto gradient = dyn_cast<onnx::ContractOp>(user);
        if (gradient && hasPhase(gradient, Phase::Backward) && gradient.getLoc() == op.getLoc() &&
            gradient->getOperand(place) == operand && gradient.getLhsIndices() == left &&
            gradient.getRhsIndices() == right && gradient.getResultIndices() == result &&
            !llvm::is_contained(found, gradient))
          found.push_back(gradient);
      }
    };
    consider(op.getRhs(), 1, op.getResultIndices(), op.getRhsIndices(), op.getLhsIndices());
    consider(op.getLhs(), 0, op.getLhsIndices(), op.getResultIndices(), op.getRhsIndices());
    llvm::sort(found, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
    return found;
  }

  // Operations of the builder belong where `place` does; `isAside`: they are no matter for the planner.
  struct Placing : OpBuilder::Listener {
    explicit Placing(Operation *place) : place(place) {}
    void notifyOperationInserted(Operation *op, OpBuilder::InsertPoint) override {
      op->setAttr(phaseName, place->getAttr(phaseName));
      if (isAside && hasPhase(place, Phase::Forward)) op->setAttr(asideName, UnitAttr::get(op->getContext()));
      if (Attribute origin = place->getAttr(originName); origin && hasPhase(place, Phase::Backward))
        op->setAttr(originName, origin);
      made.push_back(op);
    }
    Operation *place;
    SmallVector<Operation *> made;
    bool isAside = false;
  };

  // `user`, a product by `weight` or its gradient, asks for it first.
  Quantized quantized(Value value, const std::string &tensor, StringRef weight, Operation *user) {
    OpBuilder builder(user);
    Type element =
        isGradientTensor(tensor) ? Type(builder.getType<Float8E5M2Type>()) : Type(builder.getType<Float8E4M3FNType>());
    const bool isWeight = StringRef(tensor).starts_with("weight/"),
               isAgain = isWeight && hasPhase(user, Phase::Backward);
    auto [known, isNew] = quantizedOf.try_emplace({value.getAsOpaquePointer(), element.getAsOpaquePointer(), isAgain});
    if (!isNew) {
      // Gradients of later products stand before those of earlier ones.
      if (user->isBeforeInBlock(known->second.codes.getDefiningOp()))
        for (Operation *op : known->second.made) op->moveBefore(user);
      return known->second;
    }
    Placing placing(user);
    placing.isAside = isWeight || isDelayed;
    builder.setListener(&placing);
    Formula f(builder, user->getLoc());
    Value scale;
    if (isDelayed)
      scale = onnx::ReadOp::create(builder, user->getLoc(), scalarType(), stateOf(scalePrefix, tensor, weight, {}, 1))
                  .getValue();
    // A weight lies in 16 bits: it is gathered so, and its 8 bits follow from them.
    if (isWeight) value = f.cast(f.cast(value, builder.getBF16Type()), builder.getF32Type());
    if (!isDelayed) {
      Value amax = amaxOf(f, value);
      scale = scaleOf(f, amax, tensor, recipe.fp8.margin, f.like(amax, 1));
    } else if (trains && !isAgain) {
      stateOf(historyPrefix, tensor, weight, {recipe.fp8.history}, 0);
      amaxes.push_back({(amaxPrefix + Twine(tensor)).str(), {}, amaxOf(f, value)});
    }
    Value scaled = f.mul(value, f.spread(scale, onnx::tensorType(value).getShape()));
    placing.isAside = isWeight; // the planner sees a cast of other tensors, and the weight itself
    Value codes = f.cast(scaled, element);
    return known->second = {codes, scale, placing.made};
  }

  static Value amaxOf(Formula &f, Value value) {
    auto axes = llvm::to_vector(llvm::seq<int64_t>(0, onnx::tensorType(value).getRank()));
    return f.make<onnx::ReduceMaxOp>(f.make<onnx::AbsOp>(value), axes);
  }

  void multiply(onnx::ContractOp op, const Quantized &lhs, const Quantized &rhs, bool isSum) {
    OpBuilder builder(op);
    Placing placing(op);
    builder.setListener(&placing);
    Formula f(builder, op.getLoc());
    Type element = isSum ? Type(builder.getF32Type()) : Type(builder.getBF16Type());
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
      state->setAttr(besideName, FlatSymbolRefAttr::get(function.getContext(), weight));
    }
    return FlatSymbolRefAttr::get(function.getContext(), name);
  }
};

class QuantizeProducts : public RecipePass<QuantizeProducts> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(QuantizeProducts)
  using RecipePass::RecipePass;
  StringRef getArgument() const final { return "quantize-products"; }
  StringRef getDescription() const final { return "products of weights on floats of 8 bits, with scales"; }

  void runOnOperation() override {
    func::FuncOp model = findFunction(getOperation(), "model", "the normalize phase");
    if (!model) return signalPassFailure();
    SymbolTable symbols(getOperation());
    FunctionQuantizing step(model, recipe, symbols, /*trains=*/true);
    step.run();
    if (auto evaluate = symbols.lookup<func::FuncOp>("evaluate"))
      FunctionQuantizing(evaluate, recipe, symbols, /*trains=*/false).run();
    std::map<std::string, std::vector<std::string>> weights; // by reason
    for (const auto &[weight, reason] : step.left) weights[reason].push_back(weight);
    std::string text = "fp8: " + std::to_string(step.quantizedProducts) + " products of a step are in 8 bits";
    const char *separator = "; in 16 bits are those of ";
    for (const auto &[reason, names] : weights) {
      text += separator + names.front();
      if (names.size() > 1) text += " and " + std::to_string(names.size() - 1) + " more";
      text += " (" + reason + ")";
      separator = ", ";
    }
    getOperation()->setAttr(fp8NoteName, StringAttr::get(&getContext(), text));
  }
};

} // namespace

std::unique_ptr<Pass> createQuantizeProducts(const recipe::Recipe &recipe) {
  return std::make_unique<QuantizeProducts>(recipe);
}
void registerQuantizeProducts() { PassRegistration<QuantizeProducts>(); }

} // namespace cleave::training
