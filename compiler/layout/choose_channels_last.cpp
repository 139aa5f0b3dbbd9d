#include "compiler/layout/image_operation.h"
#include "compiler/layout/layout.h"
#include "dialects/onnx/channels_last.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/EquivalenceClasses.h"

using namespace mlir;
namespace cleave::layout {
#define GEN_PASS_DEF_CHOOSECHANNELSLAST
#include "compiler/layout/Passes.h.inc"

namespace {

// An operation that reads a value through a Transpose for nothing.
bool readsThrough(Operation *op) { return isa<onnx::ContractOp, onnx::TransposeOp>(op); }

int64_t borderBytes(Value value) {
  ArrayRef<int64_t> shape = tensorOf(value).getShape();
  return onnx::keepsOrder(shape, onnx::lastPermutation(tensorOf(value).getRank())) ? 0 : bytesOf(value);
}

class Chooser {
public:
  Chooser(Block &block, Convolutions which) : block(block), which(which) {}

  void run() {
    for (Operation &op : block)
      if (carriesOrder(&op) && !isBorderCast(&op)) connect(&op);
    for (auto value : values) price(value);
    for (Operation &op : block) {
      Value ordered;
      if (carried.contains(&op))
        ordered = firstOrdered(&op);
      else if (reads(&op))
        ordered = op.getOperand(0);
      else if (makes(&op))
        ordered = op.getResult(0);
      if (ordered && isLast(ordered)) onnx::channelsLastAttr.set(&op);
    }
  }

private:
  struct Price {
    int64_t saved = 0, cost = 0;
  };

  // Where a tensor enters or leaves the group and is wider outside of it, the narrow one is transposed.
  bool isBorderCast(Operation *op) const {
    if (!isa<onnx::CastOp>(op)) return false;
    const int64_t from = bytesOf(op->getOperand(0)), to = bytesOf(op->getResult(0));
    Operation *made = op->getOperand(0).getDefiningOp();
    if (to < from) return op->getOperand(0).hasOneUse() && !(made && (carriesOrder(made) || makes(made)));
    return to > from && llvm::none_of(op->getResult(0).getUsers(),
                                      [](Operation *user) { return carriesOrder(user) || reads(user); });
  }

  bool wants(Operation *op) const {
    if (!isConvolution(op)) return false;
    auto element = dyn_cast<FloatType>(tensorOf(op->getOperand(0)).getElementType());
    if (!element) return false;
    switch (which) {
    case Convolutions::Float:
      return true;
    case Convolutions::Low:
      return element.getWidth() == 16;
    case Convolutions::Rounded:
      return element.getWidth() <= 32;
    }
    return false;
  }

  static Value firstOrdered(Operation *op) {
    SmallVector<OpOperand *> operands = orderedOperands(op);
    return operands.empty() ? Value() : operands.front()->get();
  }

  void connect(Operation *op) {
    Value first = firstOrdered(op);
    if (!first) return;
    carried.insert(op);
    int64_t bytes = 0;
    auto add = [&](Value value) {
      if (values.insert(value)) groups.insert(value.getAsOpaquePointer());
      groups.unionSets(first.getAsOpaquePointer(), value.getAsOpaquePointer());
      bytes += bytesOf(value);
    };
    for (OpOperand *operand : orderedOperands(op)) add(operand->get());
    for (Value result : orderedResults(op)) add(result);
    if (wants(op)) savings.push_back({first, bytes});
  }

  const void *groupOf(Value value) const { return groups.getLeaderValue(value.getAsOpaquePointer()); }

  void price(Value value) {
    if (prices.empty())
      for (auto [at, bytes] : savings) prices[groupOf(at)].saved += bytes;
    Operation *made = value.getDefiningOp();
    const int64_t bytes = borderBytes(value);
    int64_t cost = 0;
    if (made && carried.contains(made)) {
      bool leaves = llvm::any_of(value.getUsers(), [&](Operation *user) {
        return !carried.contains(user) && !reads(user) && !readsThrough(user);
      });
      if (leaves) cost = bytes;
    } else if (!made || !(makes(made) || readsThrough(made))) {
      cost = bytes;
    }
    prices[groupOf(value)].cost += cost;
  }

  bool isLast(Value value) {
    if (!values.contains(value)) return false;
    const Price &price = prices[groupOf(value)];
    return price.saved > 0 && price.cost <= price.saved;
  }

  Block &block;
  Convolutions which;
  llvm::EquivalenceClasses<const void *> groups;
  llvm::SetVector<Value> values; // that are in groups
  llvm::SmallPtrSet<Operation *, 32> carried;
  std::vector<std::pair<Value, int64_t>> savings;
  llvm::DenseMap<const void *, Price> prices;
};

class ChooseChannelsLast : public impl::ChooseChannelsLastBase<ChooseChannelsLast> {
public:
  using Base::Base;
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isExternal() && function.getSymName() != "model") Chooser(function.front(), convolutions).run();
  }
};

} // namespace

} // namespace cleave::layout
