#include "compiler/partition/layouts.h"
#include "compiler/partition/passes.h"
#include "dialects/onnx/kinds.h"
#include "dialects/place/Place.h"

using namespace mlir;
using namespace cleave::dist;

namespace cleave::partition {
#define GEN_PASS_DEF_ELIDECOLLECTIVES
#include "compiler/partition/Passes.h.inc"

namespace {

template <typename Outer, typename Inner> Value undone(Outer outer) {
  auto inner = outer.getX().template getDefiningOp<Inner>();
  bool same = inner && inner.getAxes() == outer.getAxes() && inner.getDim() == outer.getDim();
  return same ? inner.getX() : Value();
}

struct ElideCollectives : impl::ElideCollectivesBase<ElideCollectives> {
  void runOnOperation() override {
    FailureOr<Mesh> mesh = meshOf(getOperation());
    if (failed(mesh)) return signalPassFailure();
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal()) continue;
      computeParts(function.getBody().front());
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
  // A value of which every reader takes the same part is computed in that part: from the last one on, so that the parts
  // of its operands are readers of what stands before.
  static void computeParts(Block &block) {
    for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block))) {
      if (!onnx::isPointwise(&op)) continue;
      SmallVector<dist::OwnPartOp> parts;
      for (Operation *user : op.getUsers()) parts.push_back(dyn_cast<dist::OwnPartOp>(user));
      auto isAsFirst = [&](dist::OwnPartOp part) {
        return part && part.getAxes() == parts[0].getAxes() && part.getDim() == parts[0].getDim();
      };
      if (parts.empty() || !llvm::all_of(parts, isAsFirst)) continue;
      OpBuilder builder(&op);
      ArrayRef<int64_t> shape = cast<RankedTensorType>(parts[0].getType()).getShape();
      for (OpOperand &operand : op.getOpOperands()) {
        auto type = cast<RankedTensorType>(operand.get().getType()).clone(shape);
        auto part = dist::OwnPartOp::create(builder, op.getLoc(), type, operand.get(), parts[0].getAxesAttr(),
                                            parts[0].getDimAttr(), parts[0].getWhyAttr());
        part->setDiscardableAttrs(llvm::to_vector(op.getDiscardableAttrs()));
        operand.set(part);
      }
      op.getResult(0).setType(cast<RankedTensorType>(parts[0].getType()));
      for (dist::OwnPartOp part : parts) {
        part.getResult().replaceAllUsesWith(op.getResult(0));
        part.erase();
      }
    }
  }

  // Every device repeats what it has as often as its part is long: the gradient of a mean over all samples, a bias.
  static Value repeatedPart(dist::OwnPartOp part) {
    OpBuilder builder(part);
    auto type = cast<RankedTensorType>(part.getType());
    Operation *whole = part.getX().getDefiningOp(), *own = nullptr;
    if (auto constant = dyn_cast_or_null<onnx::ConstantOp>(whole)) {
      auto dense = dyn_cast<DenseElementsAttr>(constant.getValue());
      if (dense && dense.isSplat()) own = onnx::ConstantOp::create(builder, part.getLoc(), dense.resizeSplat(type));
    } else if (auto broadcast = dyn_cast_or_null<onnx::BroadcastOp>(whole)) {
      if (Value x = partOf(broadcast, part))
        own = onnx::BroadcastOp::create(builder, part.getLoc(), x, type.getShape(), broadcast.getDims());
    }
    if (!own) return {};
    own->setDiscardableAttrs(llvm::to_vector(whole->getDiscardableAttrs()));
    // The part of an activation that the backward pass takes belongs there, and to the stage that reads it.
    if (place::of(part).phase && place::of(part).phase != place::of(whole).phase) place::copy(part, own);
    return own->getResult(0);
  }

  // The part that is repeated for the own part of the result: all of it, or its part in the dimension that it has.
  static Value partOf(onnx::BroadcastOp broadcast, dist::OwnPartOp part) {
    const auto at = llvm::find(broadcast.getDims(), int64_t(part.getDim()));
    if (at == broadcast.getDims().end()) return broadcast.getX();
    const int64_t dim = at - broadcast.getDims().begin();
    auto type = cast<RankedTensorType>(broadcast.getX().getType());
    SmallVector<int64_t> shape(type.getShape());
    if (shape[size_t(dim)] != cast<RankedTensorType>(part.getX().getType()).getDimSize(part.getDim())) return {};
    shape[size_t(dim)] = cast<RankedTensorType>(part.getType()).getDimSize(part.getDim());
    OpBuilder builder(part);
    auto own = dist::OwnPartOp::create(builder, part.getLoc(), type.clone(shape), broadcast.getX(), part.getAxesAttr(),
                                       builder.getI64IntegerAttr(dim), part.getWhyAttr());
    own->setDiscardableAttrs(llvm::to_vector(part->getDiscardableAttrs()));
    return own;
  }

  static bool addsUp(Operation *collective) {
    if (auto reduce = dyn_cast<dist::AllReduceOp>(collective)) return reduce.getReduce() == Reduction::Sum;
    if (auto scatter = dyn_cast<dist::ReduceScatterOp>(collective)) return scatter.getReduce() == Reduction::Sum;
    return isa<dist::AllToAllOp, dist::AllGatherOp>(collective);
  }

  // The collective of the sum of two terms to which the same one is done.
  static Value summedFirst(onnx::AddOp add) {
    Operation *a = add.getA().getDefiningOp(), *b = add.getB().getDefiningOp();
    if (!a || !b || a == b || a->getName() != b->getName() || !addsUp(a) || !a->hasOneUse() || !b->hasOneUse() ||
        a->getOperand(0).getType() != b->getOperand(0).getType())
      return {};
    auto whatItDoes = [](Operation *collective) {
      NamedAttrList attributes(collective->getAttrs());
      attributes.erase("why");
      return attributes.getDictionary(collective->getContext());
    };
    if (whatItDoes(a) != whatItDoes(b)) return {};
    if (place::of(a).phase != place::of(add).phase || place::stageOf(a) != place::stageOf(add)) return {};
    OpBuilder builder(add);
    auto sum =
        onnx::AddOp::create(builder, add.getLoc(), a->getOperand(0).getType(), a->getOperand(0), b->getOperand(0));
    sum->setDiscardableAttrs(llvm::to_vector(add->getDiscardableAttrs()));
    Operation *collective = builder.clone(*a);
    collective->setOperand(0, sum.getResult());
    return collective->getResult(0);
  }

  static Value simplify(Operation *op, const Mesh &mesh) {
    if (auto add = dyn_cast<onnx::AddOp>(op)) return summedFirst(add);
    auto axes = op->getName().getDialectNamespace() == "dist" ? op->getAttrOfType<ArrayAttr>("axes") : ArrayAttr();
    if (!axes || op->getNumResults() != 1) return {};
    if (mesh.groupSize(axesOf(axes)) == 1) return op->getOperand(0);
    if (auto part = dyn_cast<dist::OwnPartOp>(op)) {
      if (Value repeated = repeatedPart(part)) return repeated;
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
} // namespace cleave::partition
