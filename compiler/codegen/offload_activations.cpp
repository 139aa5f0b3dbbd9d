// OffloadActivations: what the forward pass keeps for the backward pass lies in the host's memory in between
// (`cleave.offload` of the module has "activations").
//
//   %a = plan.launch @gelu ...                    %a = plan.launch @gelu ...
//                                                 %h = plan.copy %a {plan.link = "evict"}    a buffer in the host's
//                                                 memory
//   ... the rest of the forward pass ...     ->   ...
//                                                 %b = plan.copy %h {plan.link = "fetch"}
//   %g = plan.contract %a, %dy                    %g = plan.contract %b, %dy
//
// Only values that are small beside all of them, or wanted again soon after their last use, stay: near the loss there
// is no time to bring them away and back.
#include "compiler/codegen/codegen.h"
#include "compiler/codegen/command_building.h"
#include "compiler/codegen/command_list.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::codegen {
using namespace mlir;
namespace {

constexpr int64_t smallestPart = 1024; // of all bytes kept
constexpr int64_t leastWay = 8;        // an eighth of the commands lies between leaving and coming back

StringRef phaseOf(Operation *op) {
  auto phase = op->getAttrOfType<StringAttr>("cleave.phase");
  return phase ? phase.getValue() : StringRef();
}

struct Kept {
  Value root;
  int64_t bytes = 0;
  Operation *back = nullptr;     // the first command of the backward pass that reads it
  SmallVector<OpOperand *> uses; // of the backward pass
};

class Offloading {
public:
  explicit Offloading(func::FuncOp function) : list(function) {}

  void run() {
    SmallVector<Kept> all;
    int64_t bytes = 0;
    for (Value root : list.rootsInOrder())
      if (std::optional<Kept> kept = keptOf(root)) {
        bytes += kept->bytes;
        all.push_back(std::move(*kept));
      }
    for (Kept &kept : all)
      if (kept.bytes * smallestPart >= bytes) move(kept);
  }

private:
  // Made from parameters and constants alone: made again rather than moved.
  static bool isMadeFromParameters(Operation *op) {
    return llvm::all_of(op->getOperands(), [](Value operand) {
      return isa_and_nonnull<onnx::ReadOp, plan::ConstantCommandOp, plan::FillCommandOp>(
          placeOf(operand).root.getDefiningOp());
    });
  }

  std::optional<Kept> keptOf(Value root) const {
    Operation *definition = root.getDefiningOp();
    if (!definition || phaseOf(definition) != "forward" || isa<plan::ReceiveCommandOp>(definition) ||
        isMadeFromParameters(definition))
      return std::nullopt;
    Kept kept{root, tensorBytes(root.getType()), nullptr, {}};
    int64_t last = list.position(definition);
    for (OpOperand *use : list.usesOf(root)) {
      Operation *user = use->getOwner();
      StringRef phase = phaseOf(user);
      if (phase == "forward") {
        last = std::max(last, list.position(user));
      } else if (phase == "backward") {
        if (!kept.back || user->isBeforeInBlock(kept.back)) kept.back = user;
        kept.uses.push_back(use);
      } else {
        return std::nullopt; // it stays until then
      }
    }
    if (!kept.back || (list.position(kept.back) - last) * leastWay < list.end()) return std::nullopt;
    return kept;
  }

  static void move(Kept &kept) {
    OpBuilder builder(kept.root.getContext());
    builder.setInsertionPointAfterValue(kept.root);
    Value away = addHostCopy(builder, kept.root, "evict", "forward");
    builder.setInsertionPoint(kept.back);
    Value here = addHostCopy(builder, away, "fetch", "backward");
    llvm::DenseMap<Value, Value> views;
    views[kept.root] = here;
    for (OpOperand *use : kept.uses) use->set(viewOf(use->get(), views, builder));
  }

  // The same view of what came back.
  static Value viewOf(Value value, llvm::DenseMap<Value, Value> &views, OpBuilder &builder) {
    if (Value known = views.lookup(value)) return known;
    auto view = value.getDefiningOp<plan::ViewOp>();
    IRMapping mapping;
    mapping.map(view.getX(), viewOf(view.getX(), views, builder));
    return views[value] = builder.clone(*view, mapping)->getResult(0);
  }

  CommandList list;
};

struct OffloadActivations : PassWrapper<OffloadActivations, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(OffloadActivations)
  StringRef getArgument() const override { return "offload-activations"; }
  StringRef getDescription() const override { return "what is kept for the backward pass in the host's memory"; }
  void getDependentDialects(DialectRegistry &registry) const override { registry.insert<plan::PlanDialect>(); }

  void runOnOperation() override {
    if (!offloads(getOperation(), "activations")) return;
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal()) continue;
      if (function->hasAttr("cleave.region")) {
        function.emitOpError("keeps activations in a pipeline's slots, which are not offloaded: leave out --offload "
                             "activations or the pipeline stages");
        return signalPassFailure();
      }
      Offloading(function).run();
    }
  }
};

} // namespace

std::unique_ptr<Pass> createOffloadActivations() { return std::make_unique<OffloadActivations>(); }

} // namespace cleave::codegen
