#include "compiler/codegen/codegen.h"
#include "compiler/codegen/commands/command_building.h"
#include "compiler/codegen/commands/command_list.h"
#include "compiler/codegen/memory/persistent_layout.h"
#include "compiler/tuning.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::codegen {
#define GEN_PASS_DEF_OFFLOADSTATE
#include "compiler/codegen/Passes.h.inc"

using namespace mlir;
namespace {

struct OffloadState : impl::OffloadStateBase<OffloadState> {
  void runOnOperation() override {
    if (!offloads(getOperation(), "optimizer")) return;
    llvm::DenseMap<Attribute, int64_t> bytesHere; // of each as it lies on this device
    for (auto function : getOperation().getOps<func::FuncOp>())
      for (auto read : function.getOps<onnx::ReadOp>())
        bytesHere[read.getParamAttr()] = bytesOf(read.getValue().getType());
    llvm::SmallVector<std::pair<onnx::ParamOp, Attribute>> states;
    llvm::StringMap<int64_t> bytesOf; // by parameter
    for (auto param : getOperation().getOps<onnx::ParamOp>()) {
      if (param.getRole() != "optimizer_state") continue;
      states.emplace_back(param, FlatSymbolRefAttr::get(param.getSymNameAttr()));
      bytesOf[parameterOf(param)] += bytesHere.lookup(states.back().second);
    }
    llvm::DenseSet<Attribute> moved, used;
    for (auto [param, name] : states)
      if (bytesOf[parameterOf(param)] >= tuning::leastOnHost) moved.insert(name);
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      llvm::DenseMap<Attribute, Value> fetched; // once for all that read it
      for (auto read : llvm::make_early_inc_range(function.getOps<onnx::ReadOp>())) {
        if (!moved.contains(read.getParamAttr()) || read.getValue().use_empty()) continue;
        used.insert(read.getParamAttr());
        Value &copy = fetched[read.getParamAttr()];
        if (copy) {
          read.getValue().replaceAllUsesWith(copy);
          continue;
        }
        plan::CopyCommandOp fetch = copyAfter(read.getValue(), "fetch");
        copy = fetch.getY();
        read.getValue().replaceAllUsesExcept(copy, fetch);
      }
    }
    for (auto function : getOperation().getOps<func::FuncOp>())
      for (auto store : llvm::make_early_inc_range(function.getOps<plan::StoreOp>()))
        if (used.contains(store.getParamAttr())) store->setOperand(0, copyAfter(store.getValue(), "evict").getY());
    for (auto param : getOperation().getOps<onnx::ParamOp>())
      if (used.contains(FlatSymbolRefAttr::get(param.getSymNameAttr()))) plan::onHostAttr.set(param);
  }

private:
  // The parameter that the state is of; itself where nothing says.
  static StringRef parameterOf(onnx::ParamOp state) { return state.getOf() ? *state.getOf() : state.getSymName(); }
  static plan::CopyCommandOp copyAfter(Value value, StringRef link) {
    OpBuilder builder(value.getContext());
    builder.setInsertionPointAfterValue(value);
    return addHostCopy(builder, value, link, place::Phase::Update).getDefiningOp<plan::CopyCommandOp>();
  }
};

} // namespace

bool offloads(ModuleOp module, StringRef what) { return llvm::is_contained(plan::offloadAttr.of(module), what); }

Value addHostCopy(OpBuilder &builder, Value value, StringRef link, place::Phase phase) {
  auto one = builder.getDenseI64ArrayAttr({1});
  int64_t elements = cast<RankedTensorType>(value.getType()).getNumElements();
  auto copy = plan::CopyCommandOp::create(builder, value.getLoc(), value.getType(), value,
                                          builder.getDenseI64ArrayAttr({elements}), one, one,
                                          constantAffine(builder, 0), builder.getI64IntegerAttr(0), FloatAttr());
  place::setPhase(copy, phase);
  plan::linkAttr.set(copy, link);
  return copy.getY();
}

bool isFetch(Operation *op) {
  auto link = plan::linkAttr.of(op);
  return link && *link == "fetch";
}
bool isEvict(Operation *op) {
  auto link = plan::linkAttr.of(op);
  return link && *link == "evict";
}

} // namespace cleave::codegen
