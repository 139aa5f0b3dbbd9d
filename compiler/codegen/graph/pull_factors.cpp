#include "compiler/codegen/clusters/kernel_domain.h"
#include "compiler/codegen/passes.h"
#include "dialects/onnx/Onnx.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include <map>

using namespace mlir;
namespace cleave::codegen {
#define GEN_PASS_DEF_PULLFACTORS
#include "compiler/codegen/Passes.h.inc"

namespace {

constexpr size_t mostFactors = 8; // of one product

class FactorPuller {
public:
  explicit FactorPuller(MLIRContext *context) : builder(context) {}

  void run(Block &block) {
    for (Operation &op : block) position.try_emplace(&op, position.size());
    for (Operation &op : llvm::make_early_inc_range(block)) {
      auto sum = dyn_cast<onnx::ReduceSumOp>(op);
      if (!sum || !isOfColumns(sum)) continue;
      reduction = sum;
      builder.setInsertionPoint(sum);
      Value x = sum.getOperand(), y = sum->getResult(0);
      Value pulled = hasFactor(x) ? sumOf(x) : Value();
      if (!pulled) {
        auto [known, isNew] = sums.try_emplace(keyOf(x), y);
        pulled = known->second;
        if (isNew) continue;
      }
      y.replaceAllUsesWith(pulled);
      sum.erase();
    }
  }

private:
  struct Product {
    SmallVector<Value> shared, others; // the same for all elements of a column; as large as the tensor
  };
  using Key = std::tuple<const void *, const void *, const void *>; // value, axes, attributes of the place in the step

  static RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }

  static bool isOfColumns(onnx::ReduceSumOp sum) {
    RankedTensorType type = typeOf(sum.getOperand());
    if (!type.getElementType().isF32() && !type.getElementType().isF64()) return false;
    int64_t innermost = type.getRank() - 1;
    while (innermost > 0 && type.getDimSize(innermost) == 1) --innermost;
    return innermost >= 0 && !llvm::is_contained(sum.getAxes(), innermost);
  }

  bool isShared(Value value) const {
    auto broadcast = value.getDefiningOp<onnx::BroadcastOp>();
    return broadcast && llvm::none_of(broadcast.getDims(),
                                      [&](int64_t dim) { return llvm::is_contained(reduction.getAxes(), dim); });
  }

  void collect(Value value, Product &product) const {
    auto mul = value.getDefiningOp<onnx::MulOp>();
    if (isShared(value)) {
      product.shared.push_back(value);
    } else if (mul) {
      collect(mul->getOperand(0), product);
      collect(mul->getOperand(1), product);
    } else {
      product.others.push_back(value);
    }
  }
  Product productOf(Value value) const {
    Product product;
    collect(value, product);
    return product;
  }

  // Does taking factors out leave nothing of the size of the tensor but sums of its other factors?
  bool hasFactor(Value value) const {
    if (auto neg = value.getDefiningOp<onnx::NegOp>()) return hasFactor(neg->getOperand(0));
    if (auto sum = value.getDefiningOp<onnx::SumOp>())
      return llvm::all_of(sum.getXs(), [&](Value term) { return hasFactor(term); });
    Product product = productOf(value);
    return !product.shared.empty() && !product.others.empty() &&
           product.shared.size() + product.others.size() <= mostFactors;
  }

  Value sumOf(Value value) {
    if (auto neg = value.getDefiningOp<onnx::NegOp>())
      return made(onnx::NegOp::create(builder, neg.getLoc(), resultType(), sumOf(neg->getOperand(0))));
    if (auto sum = value.getDefiningOp<onnx::SumOp>()) {
      SmallVector<Value> terms;
      for (Value term : sum.getXs()) {
        const size_t before = llvm::find(sum.getXs(), term) - sum.getXs().begin();
        terms.push_back(before < terms.size() ? terms[before] : sumOf(term));
      }
      return made(onnx::SumOp::create(builder, sum.getLoc(), resultType(), terms));
    }
    Product product = productOf(value);
    Value result = plainSum(multiplied(product.others));
    for (Value factor : product.shared) result = times(result, inColumns(factor));
    return result;
  }

  // In one order of factors, whatever the order in which they stand, so that equal products are found.
  Value multiplied(SmallVector<Value> factors) {
    llvm::sort(factors, [&](Value a, Value b) { return orderOf(a) < orderOf(b); });
    Value product = factors.front();
    for (Value factor : ArrayRef<Value>(factors).drop_front()) {
      auto [known, isNew] =
          products.try_emplace({product.getAsOpaquePointer(), factor.getAsOpaquePointer(), keyOfPlace()}, Value());
      if (isNew) known->second = times(product, factor);
      product = known->second;
    }
    return product;
  }
  Value plainSum(Value x) {
    auto [known, isNew] = sums.try_emplace(keyOf(x), Value());
    if (isNew)
      known->second =
          made(onnx::ReduceSumOp::create(builder, reduction.getLoc(), resultType(), x, reduction.getAxesAttr()));
    return known->second;
  }
  Value times(Value a, Value b) { return made(onnx::MulOp::create(builder, reduction.getLoc(), a.getType(), a, b)); }

  // The factor of each column.
  Value inColumns(Value factor) {
    auto broadcast = factor.getDefiningOp<onnx::BroadcastOp>();
    if (broadcast.getX().getType() == resultType()) return broadcast.getX();
    SmallVector<int64_t> dims;
    for (int64_t dim : broadcast.getDims())
      dims.push_back(dim - llvm::count_if(reduction.getAxes(), [&](int64_t axis) { return axis < dim; }));
    return made(onnx::BroadcastOp::create(builder, broadcast.getLoc(), resultType(), broadcast.getX(),
                                          resultType().getShape(), dims));
  }

  RankedTensorType resultType() const { return typeOf(reduction->getResult(0)); }
  Value made(Operation *op) { // at the place of the sum in the step
    op->setDiscardableAttrs(llvm::to_vector(reduction->getDiscardableAttrs()));
    return op->getResult(0);
  }
  const void *keyOfPlace() const { return reduction->getDiscardableAttrDictionary().getAsOpaquePointer(); }
  Key keyOf(Value x) const {
    return {x.getAsOpaquePointer(), reduction.getAxesAttr().getAsOpaquePointer(), keyOfPlace()};
  }
  std::pair<size_t, unsigned> orderOf(Value value) const {
    auto argument = dyn_cast<BlockArgument>(value);
    return argument ? std::pair<size_t, unsigned>(0, argument.getArgNumber())
                    : std::pair<size_t, unsigned>(position.lookup(value.getDefiningOp()) + 1, 0);
  }

  mutable onnx::ReduceSumOp reduction; // that is looked at
  OpBuilder builder;
  llvm::DenseMap<Operation *, size_t> position;
  std::map<Key, Value> sums, products;
};

struct PullFactors : impl::PullFactorsBase<PullFactors> {
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal()) continue;
      FactorPuller(&getContext()).run(function.front());
      for (Operation &op : llvm::make_early_inc_range(llvm::reverse(function.front())))
        if (isOpTriviallyDead(&op)) op.erase();
    }
  }
};

} // namespace
} // namespace cleave::codegen
