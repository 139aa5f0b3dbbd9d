// SimplifyCore: the identities of simplify.h and constant folding over a whole function, operands first.
// FoldConstants: the folding alone.
//
//   %a = onnx.Transpose %x {perm = [1, 0]} ; %b = onnx.Transpose %a {perm = [1, 0]}   ->   %x
#include "compiler/normalize/normalize.h"
#include "compiler/normalize/simplify.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;
namespace cleave::normalize {
namespace {

// Replaces every core op that `better` knows something better for; one walk, each op once.
void replaceForward(func::FuncOp function, function_ref<Value(Operation *, CoreBuilder &)> better) {
  for (Operation &op : llvm::make_early_inc_range(function.getBody().front())) {
    if (op.getNumResults() != 1 || !isa<RankedTensorType>(op.getResult(0).getType()) ||
        isa<onnx::NodeOp, onnx::ReadOp, onnx::ConstantOp>(op))
      continue;
    OpBuilder builder(&op);
    CoreBuilder b(builder, op.getLoc());
    if (Value value = better(&op, b)) {
      op.getResult(0).replaceAllUsesWith(value);
      op.erase();
    }
  }
}

Value folded(Operation *op, CoreBuilder &b) {
  DenseElementsAttr value = foldOp(op);
  return value ? b.compactConstant(value) : Value();
}

template <typename Pass> struct Forward : PassWrapper<Pass, OperationPass<ModuleOp>> {
  void runOnOperation() override {
    bool good = true;
    this->getOperation().walk([&](func::FuncOp function) {
      try {
        if (!function.isExternal()) replaceForward(function, Pass::better);
      } catch (const Failure &) {
        good = false;
      }
    });
    if (!good) this->signalPassFailure();
  }
};

struct SimplifyCore : Forward<SimplifyCore> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(SimplifyCore)
  StringRef getArgument() const final { return "simplify-core"; }
  StringRef getDescription() const final { return "apply the identities of core ops, and fold constants"; }
  static Value better(Operation *op, CoreBuilder &b) {
    Value simple = simplify(op, b);
    return simple ? simple : folded(op, b);
  }
};

struct FoldConstants : Forward<FoldConstants> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(FoldConstants)
  StringRef getArgument() const final { return "fold-constants"; }
  StringRef getDescription() const final { return "evaluate core ops of constants, up to a size"; }
  static Value better(Operation *op, CoreBuilder &b) { return folded(op, b); }
};

} // namespace

std::unique_ptr<Pass> createSimplifyCorePass() { return std::make_unique<SimplifyCore>(); }
std::unique_ptr<Pass> createFoldConstantsPass() { return std::make_unique<FoldConstants>(); }

} // namespace cleave::normalize
