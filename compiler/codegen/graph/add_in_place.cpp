#include "compiler/codegen/codegen.h"
#include "compiler/codegen/commands/lower_contract.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::codegen {
#define GEN_PASS_DEF_ADDINPLACE
#include "compiler/codegen/Passes.h.inc"

using namespace mlir;
namespace {

// The value behind reshapes that nobody else looks at.
Value behindReshapes(Value value) {
  while (auto reshape = value.getDefiningOp<onnx::ReshapeOp>()) {
    if (!value.hasOneUse()) break;
    value = reshape.getX();
  }
  return value;
}

class SumOfProduct {
public:
  SumOfProduct(onnx::WriteOp write, const SymbolTable &symbols) : write(write), symbols(symbols) {
    add = behindReshapes(write.getValue()).getDefiningOp<onnx::AddOp>();
    if (!add || !add->hasOneUse()) return;
    for (auto [before, term] : {std::pair{add.getA(), add.getB()}, {add.getB(), add.getA()}}) {
      read = behindReshapes(before).getDefiningOp<onnx::ReadOp>();
      product = behindReshapes(term).getDefiningOp<onnx::ContractOp>();
      if (read && product) break;
    }
  }
  bool isWhole() {
    if (!add || !read || !product || !product->hasOneUse() || !read->hasOneUse()) return false;
    auto param = symbols.lookup<onnx::ParamOp>(write.getParam());
    return read.getParamAttr() == write.getParamAttr() && param && param.getRole() == "accumulator";
  }
  FlatSymbolRefAttr param() { return write.getParamAttr(); }

  void fold() {
    LoweredProduct lowered(OpBuilder(product), product, symbols);
    plan::ContractCommandOp command = lowered.get();
    if (!command) return lowered.undo();
    OpBuilder builder(command);
    auto sum = onnx::ReadOp::create(builder, read.getLoc(), read.getValue().getType(), read.getParamAttr());
    command.getSumMutable().assign(sum.getValue());
    builder.setInsertionPoint(add);
    Value result = command.getY();
    if (result.getType() != add.getY().getType())
      result = onnx::ReshapeOp::create(builder, add.getLoc(), add.getY().getType(), result,
                                       cast<RankedTensorType>(add.getY().getType()).getShape());
    add.getY().replaceAllUsesWith(result);
    for (Value unused : {add.getY(), add.getA(), add.getB()}) eraseUnused(unused.getDefiningOp());
  }

private:
  static void eraseUnused(Operation *op) {
    while (op && op->use_empty()) {
      Operation *next = op->getNumOperands() == 1 ? op->getOperand(0).getDefiningOp() : nullptr;
      op->erase();
      op = next;
    }
  }

  onnx::WriteOp write;
  const SymbolTable &symbols;
  onnx::AddOp add;
  onnx::ReadOp read;
  onnx::ContractOp product;
};

struct AddInPlace : impl::AddInPlaceBase<AddInPlace> {
  void runOnOperation() override {
    const SymbolTable symbols(getOperation());
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      llvm::DenseMap<Attribute, int> reads, writes;
      for (auto read : function.getOps<onnx::ReadOp>()) ++reads[read.getParamAttr()];
      for (auto write : function.getOps<onnx::WriteOp>()) ++writes[write.getParamAttr()];
      for (auto write : function.getOps<onnx::WriteOp>()) {
        SumOfProduct sum(write, symbols);
        if (sum.isWhole() && reads[sum.param()] == 1 && writes[sum.param()] == 1) sum.fold();
      }
    }
  }
};

} // namespace
} // namespace cleave::codegen
