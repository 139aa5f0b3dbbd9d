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

void eraseUnused(Operation *op) {
  while (op && op->use_empty()) {
    Operation *next = op->getNumOperands() == 1 ? op->getOperand(0).getDefiningOp() : nullptr;
    op->erase();
    op = next;
  }
}

// The product becomes a command that adds to `sum`; `add`, of both, is what the last of a chain of such commands gives.
// `last`: this product, or the command whose chain begins with it. False: it does not lie as a sum must.
bool addInPlace(onnx::ContractOp product, Value sum, Value last, onnx::AddOp add, const SymbolTable &symbols) {
  LoweredProduct lowered(OpBuilder(product), product, symbols);
  plan::ContractCommandOp command = lowered.get();
  if (!command) return lowered.undo(), false;
  command.getSumMutable().assign(sum);
  Value result = last == product.getY() ? command.getY() : last;
  if (last != product.getY()) {
    product.getY().replaceAllUsesWith(command.getY());
    product.erase();
  }
  OpBuilder builder(add);
  if (result.getType() != add.getY().getType())
    result = onnx::ReshapeOp::create(builder, add.getLoc(), add.getY().getType(), result,
                                     cast<RankedTensorType>(add.getY().getType()).getShape());
  add.getY().replaceAllUsesWith(result);
  Value a = add.getA(), b = add.getB();
  add->erase();
  for (Value unused : {a, b}) eraseUnused(unused.getDefiningOp());
  return true;
}

// Terms of one gradient, of which each is a product.
void addProducts(onnx::AddOp add, const SymbolTable &symbols) {
  if (!place::hasPhase(add, place::Phase::Backward)) return;
  for (auto [before, term] : {std::pair{add.getA(), add.getB()}, {add.getB(), add.getA()}}) {
    Value sum = behindReshapes(before);
    auto product = behindReshapes(term).getDefiningOp<onnx::ContractOp>();
    Operation *first = sum.getDefiningOp();
    const bool isProduct = isa_and_nonnull<onnx::ContractOp, plan::ContractCommandOp>(first);
    if (!product || !isProduct || !product->hasOneUse() || !sum.hasOneUse() || !first->isBeforeInBlock(product))
      continue;
    if (addInPlace(product, sum, product.getY(), add, symbols)) return;
  }
}

// What is stored is the sum of what lies there and of a product, or of a chain of them.
void addToStored(onnx::WriteOp write, const SymbolTable &symbols) {
  auto add = behindReshapes(write.getValue()).getDefiningOp<onnx::AddOp>();
  auto param = symbols.lookup<onnx::ParamOp>(write.getParam());
  if (!add || !add->hasOneUse() || !param || param.getRole() != "accumulator") return;
  for (auto [before, term] : {std::pair{add.getA(), add.getB()}, {add.getB(), add.getA()}}) {
    auto read = behindReshapes(before).getDefiningOp<onnx::ReadOp>();
    Value last = behindReshapes(term), first = last;
    for (auto command = first.getDefiningOp<plan::ContractCommandOp>();
         command && command.getSum() && first.hasOneUse(); command = first.getDefiningOp<plan::ContractCommandOp>())
      first = command.getSum();
    auto product = first.getDefiningOp<onnx::ContractOp>();
    if (!read || !product || !product->hasOneUse() || !read->hasOneUse() || read.getParamAttr() != write.getParamAttr())
      continue;
    OpBuilder builder(product);
    auto sum = onnx::ReadOp::create(builder, read.getLoc(), read.getValue().getType(), read.getParamAttr());
    if (addInPlace(product, sum.getValue(), last, add, symbols)) return;
    sum->erase();
  }
}

struct AddInPlace : impl::AddInPlaceBase<AddInPlace> {
  void runOnOperation() override {
    const SymbolTable symbols(getOperation());
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      for (auto add : llvm::make_early_inc_range(function.getOps<onnx::AddOp>())) addProducts(add, symbols);
      llvm::DenseMap<Attribute, int> reads, writes;
      for (auto read : function.getOps<onnx::ReadOp>()) ++reads[read.getParamAttr()];
      for (auto write : function.getOps<onnx::WriteOp>()) ++writes[write.getParamAttr()];
      for (auto write : function.getOps<onnx::WriteOp>())
        if (reads[write.getParamAttr()] == 1 && writes[write.getParamAttr()] == 1) addToStored(write, symbols);
    }
  }
};

} // namespace
} // namespace cleave::codegen
