#include "compiler/training/fp8/weight_products.h"
#include "compiler/recipe/glob.h"
#include "compiler/training/parameter_names.h"
#include "compiler/training/step_function.h"
#include "dialects/onnx/formula.h"
#include "dialects/onnx/kinds.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;

namespace cleave::training {
namespace {

bool isForward(Operation *op) { return place::hasPhase(op, Phase::Forward); }

// The weight that a value is, but for movement; null: none, or parts of several.
onnx::ReadOp weightOf(Value value) {
  Operation *op = value.getDefiningOp();
  if (!op || !onnx::isMovement(op)) return dyn_cast_or_null<onnx::ReadOp>(op);
  onnx::ReadOp weight = weightOf(op->getOperand(0));
  for (Value other : op->getOperands().drop_front()) { // an LSTM's gates, in another order
    onnx::ReadOp read = weight ? weightOf(other) : nullptr;
    if (!read || read.getParam() != weight.getParam()) return nullptr;
  }
  return weight;
}

std::optional<WeightProduct> weightProductOf(onnx::ContractOp op, const SymbolTable &symbols) {
  auto isFull = [](Value value) { return onnx::tensorType(value).getElementType().isF32(); };
  if (!isForward(op) || !isFull(op.getLhs()) || !isFull(op.getRhs()) || !isFull(op.getY())) return std::nullopt;
  onnx::ReadOp left = weightOf(op.getLhs()), right = weightOf(op.getRhs());
  if (!left == !right) return std::nullopt;
  onnx::ReadOp read = left ? left : right;
  auto param = symbols.lookup<onnx::ParamOp>(read.getParam());
  if (!param || param.getRole() != "parameter") return std::nullopt;
  return WeightProduct{op, read.getParam(), left ? 0u : 1u};
}

// The forward operations with a product or a convolution behind them.
DenseSet<Operation *> beforeProducts(func::FuncOp function) {
  DenseSet<Operation *> found;
  for (Operation &op : llvm::reverse(function.front()))
    if (isForward(&op) && llvm::any_of(op.getUsers(), [&](Operation *user) {
          return isForward(user) && (onnx::isHeavy(user) || found.contains(user));
        }))
      found.insert(&op);
  return found;
}

bool isLookedUp(Value value) {
  return llvm::any_of(value.getUsers(), [](Operation *user) {
    return isa<onnx::GatherOp>(user) || (onnx::isMovement(user) && isLookedUp(user->getResult(0)));
  });
}

// A side of the weight's matrix that is no multiple of 16: the size that is summed over, or the weight's own in the
// result. Indices that all three tensors have only count the matrices.
std::optional<int64_t> oddSide(WeightProduct product) {
  ArrayRef<int64_t> own = product.op.getRhsIndices(), others = product.op.getLhsIndices();
  if (product.weightOperand == 0) std::swap(own, others);
  int64_t summed = 1, kept = 1;
  for (auto [index, size] :
       llvm::zip_equal(own, onnx::tensorType(product.op->getOperand(product.weightOperand)).getShape()))
    if (!llvm::is_contained(product.op.getResultIndices(), index))
      summed *= size;
    else if (!llvm::is_contained(others, index))
      kept *= size;
  for (int64_t side : {summed, kept})
    if (side % onnx::eightBitAlignment != 0) return side;
  return std::nullopt;
}

} // namespace

SmallVector<WeightProduct> weightProducts(func::FuncOp function, const SymbolTable &symbols) {
  SmallVector<WeightProduct> products;
  for (auto op : function.getOps<onnx::ContractOp>())
    if (std::optional<WeightProduct> product = weightProductOf(op, symbols)) products.push_back(*product);
  return products;
}

std::map<std::string, std::string> weightsToKeep(func::FuncOp function, ArrayRef<WeightProduct> products,
                                                 const recipe::Recipe &recipe, const SymbolTable &symbols) {
  llvm::StringSet<> lookedUp;
  for (auto read : function.getOps<onnx::ReadOp>())
    if (isLookedUp(read.getValue())) lookedUp.insert(read.getParam());
  std::optional<recipe::ParameterPatterns> patterns;
  if (recipe.fp8.keep) patterns.emplace(*recipe.fp8.keep);
  const DenseSet<Operation *> others = beforeProducts(function);
  auto reasonToKeep = [&](WeightProduct product) -> std::string {
    auto param = symbols.lookup<onnx::ParamOp>(product.weight);
    if (patterns && patterns->match(namesOf(param->getAttrDictionary()))) return "fp8.keep";
    if (!patterns && !others.contains(product.op)) return "the last product";
    if (lookedUp.contains(product.weight)) return "also looked up";
    if (std::optional<int64_t> side = oddSide(product)) return "size " + std::to_string(*side);
    return "";
  };
  std::map<std::string, std::string> kept;
  for (WeightProduct product : products)
    if (std::string reason = reasonToKeep(product); !reason.empty()) kept.try_emplace(product.weight.str(), reason);
  return kept;
}

} // namespace cleave::training
