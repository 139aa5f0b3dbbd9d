#include "compiler/normalize/branch_stacker.h"
#include "compiler/normalize/normalize.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;
namespace cleave::normalize {
#define GEN_PASS_DEF_STACKEXPERTS
#include "compiler/normalize/Passes.h.inc"

namespace {

struct StackExperts : impl::StackExpertsBase<StackExperts> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    SymbolTable symbols(module);
    llvm::StringMap<int> reads;
    module.walk([&](onnx::ReadOp read) { ++reads[read.getParam()]; });
    SmallVector<Operation *> sums;
    SmallVector<onnx::ConcatOp> concats;
    module.walk([&](Operation *op) {
      if (isSum(op) && !isPartOfSum(op)) sums.push_back(op);
      if (auto concat = dyn_cast<onnx::ConcatOp>(op)) concats.push_back(concat);
    });
    for (Operation *sum : sums) replaceSum(sum, symbols, reads);
    for (onnx::ConcatOp concat : concats) replaceConcat(concat, symbols, reads);
  }

private:
  static bool isPartOfSum(Operation *op) {
    return op->getResult(0).hasOneUse() && isSum(*op->getResult(0).getUsers().begin());
  }

  // The terms of the sum, from left to right.
  static void collectTerms(Operation *sum, Values &terms) {
    Values stack(llvm::reverse(sum->getOperands()));
    while (!stack.empty()) {
      Value value = stack.pop_back_val();
      Operation *op = value.getDefiningOp();
      if (op && isSum(op) && isPartOfSum(op))
        llvm::append_range(stack, llvm::reverse(op->getOperands()));
      else
        terms.push_back(value);
    }
  }

  static void replaceSum(Operation *sum, SymbolTable &symbols, llvm::StringMap<int> &reads) {
    Values terms;
    collectTerms(sum, terms);
    llvm::MapVector<llvm::hash_code, Values> alike;
    for (Value term : terms)
      if (term.getDefiningOp()) alike[form(term, 4)].push_back(term);
    for (auto &[hash, branches] : alike) {
      if (branches.size() < 2) continue;
      BranchStacker stacker(symbols, reads);
      Value stacked = stacker.stack(branches, sum, /*chosen=*/true);
      if (!stacked) continue;
      OpBuilder builder(sum);
      CoreBuilder b(builder, sum->getLoc());
      stacked = b.create<onnx::ReduceSumOp>(stacked, builder.getDenseI64ArrayAttr({0}));
      Value all;
      for (Value term : terms)
        if (!llvm::is_contained(branches, term)) all = all ? b.add(all, term) : term;
      sum->getResult(0).replaceAllUsesWith(all ? b.add(all, stacked) : stacked);
      eraseSum(sum);
      stacker.eraseBranches();
      return;
    }
  }

  static void replaceConcat(onnx::ConcatOp concat, SymbolTable &symbols, llvm::StringMap<int> &reads) {
    Values branches(concat.getXs());
    int64_t axis = concat.getAxis();
    if (branches.size() < 2 || shapeOf(concat.getY())[axis] != static_cast<int64_t>(branches.size())) return;
    BranchStacker stacker(symbols, reads);
    Value stacked = stacker.stack(branches, concat, /*chosen=*/false);
    if (!stacked) return;
    OpBuilder builder(concat);
    CoreBuilder b(builder, concat.getLoc());
    Dims shape(shapeOf(stacked)), order; // [experts, .., 1, ..]
    shape.erase(shape.begin() + 1 + axis);
    for (int64_t d = 0; d < static_cast<int64_t>(shape.size()); ++d)
      order.push_back(d < axis ? d + 1 : d == axis ? 0 : d);
    concat.getY().replaceAllUsesWith(b.transpose(b.reshape(stacked, shape), order));
    concat.erase();
    stacker.eraseBranches();
  }

  static void eraseSum(Operation *sum) {
    SmallVector<Operation *> parts;
    for (Value operand : sum->getOperands())
      if (Operation *op = operand.getDefiningOp(); op && isSum(op) && isPartOfSum(op)) parts.push_back(op);
    sum->erase();
    for (Operation *part : parts) eraseSum(part);
  }

  // Equal for values computed alike, as far as `depth` operations back.
  static llvm::hash_code form(Value value, int depth) {
    Operation *op = value.getDefiningOp();
    llvm::hash_code hash =
        llvm::hash_combine(value.getType().getAsOpaquePointer(), op ? op->getName().getAsOpaquePointer() : nullptr);
    if (op && depth > 0)
      for (Value operand : op->getOperands()) hash = llvm::hash_combine(hash, form(operand, depth - 1));
    return hash;
  }
};

} // namespace
} // namespace cleave::normalize
