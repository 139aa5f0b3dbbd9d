// ElideCollectives: removes collectives whose work is undone or already done.
//
//   own_part(all_gather(x, tp, dim 0), tp, dim 0)  ->  x            and the other way round
//   all_reduce(all_reduce(x, tp), dp)              ->  all_reduce(x, [dp, tp]), if the inner has no other use
//   a collective over one device                   ->  its operand
//   own_part(Broadcast(x), dp, dim 0), x repeated along dim 0  ->  Broadcast(x) of the part's size
#include "compiler/partition/layouts.h"
#include "compiler/partition/passes.h"

using namespace mlir;
using namespace cleave::dist;

namespace cleave::partition {
namespace {

template <typename Outer, typename Inner> Value undone(Outer outer) {
  auto inner = outer.getX().template getDefiningOp<Inner>();
  bool same = inner && inner.getAxes() == outer.getAxes() && inner.getDim() == outer.getDim();
  return same ? inner.getX() : Value();
}

struct ElideCollectives : PassWrapper<ElideCollectives, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(ElideCollectives)
  StringRef getArgument() const override { return "elide-collectives"; }
  StringRef getDescription() const override { return "remove collectives whose work is undone or already done"; }

  void runOnOperation() override {
    FailureOr<Mesh> mesh = meshOf(getOperation());
    if (failed(mesh)) return signalPassFailure();
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal()) continue;
      for (Operation &op : llvm::make_early_inc_range(function.getBody().front())) {
        Value simpler = simplify(&op, *mesh);
        if (!simpler) continue;
        op.getResult(0).replaceAllUsesWith(simpler);
        op.erase();
      }
      for (Operation &op : llvm::make_early_inc_range(llvm::reverse(function.getBody().front())))
        if (isOpTriviallyDead(&op)) op.erase();
    }
  }

private:
  // Every device repeats what it has as often as its part is long: the gradient of a mean over all samples.
  static Value broadcastPart(dist::OwnPartOp part) {
    auto broadcast = part.getX().getDefiningOp<onnx::BroadcastOp>();
    if (!broadcast || llvm::is_contained(broadcast.getDims(), int64_t(part.getDim()))) return {};
    OpBuilder builder(part);
    Operation *own = onnx::BroadcastOp::create(builder, part.getLoc(), broadcast.getX(),
                                               cast<RankedTensorType>(part.getType()).getShape(), broadcast.getDims());
    own->setDiscardableAttrs(llvm::to_vector(broadcast->getDiscardableAttrs()));
    return own->getResult(0);
  }

  static Value simplify(Operation *op, const Mesh &mesh) {
    auto axes = op->getName().getDialectNamespace() == "dist" ? op->getAttrOfType<ArrayAttr>("axes") : ArrayAttr();
    if (!axes || op->getNumResults() != 1) return {};
    if (mesh.groupSize(axesOf(axes)) == 1) return op->getOperand(0);
    if (auto part = dyn_cast<dist::OwnPartOp>(op)) {
      if (Value repeated = broadcastPart(part)) return repeated;
      return undone<dist::OwnPartOp, dist::AllGatherOp>(part);
    }
    if (auto gather = dyn_cast<dist::AllGatherOp>(op)) return undone<dist::AllGatherOp, dist::OwnPartOp>(gather);
    if (auto reduce = dyn_cast<dist::AllReduceOp>(op)) {
      auto inner = reduce.getX().getDefiningOp<dist::AllReduceOp>();
      if (!inner || !inner->hasOneUse() || inner.getReduce() != reduce.getReduce()) return {};
      Axes joined = axesOf(inner.getAxes());
      for (const std::string &axis : axesOf(reduce.getAxes())) {
        if (contains(joined, axis)) return {};
        joined.push_back(axis);
      }
      reduce.setAxesAttr(axesAttribute(op->getContext(), inMeshOrder(mesh, joined)));
      reduce.getXMutable().assign(inner.getX());
    }
    return {};
  }
};

} // namespace

std::unique_ptr<Pass> createElideCollectives() { return std::make_unique<ElideCollectives>(); }

} // namespace cleave::partition
