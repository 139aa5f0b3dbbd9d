#include "compiler/codegen/codegen.h"
#include "compiler/codegen/commands/command_building.h"
#include "compiler/codegen/memory/persistent_layout.h"
#include "dialects/dist/Dist.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/TypeSwitch.h"

namespace cleave::codegen {
#define GEN_PASS_DEF_LOWERCOLLECTIVES
#include "compiler/codegen/Passes.h.inc"

using namespace mlir;
using dist::Collective;
using dist::Reduction;
namespace {

struct Description {
  dist::Collective op;
  dist::Reduction reduce;
  SmallVector<int64_t> dims, splitDims;
};

std::optional<Description> describe(Operation *op) {
  return llvm::TypeSwitch<Operation *, std::optional<Description>>(op)
      .Case([](dist::AllReduceOp op) { return Description{Collective::AllReduce, op.getReduce(), {-1}, {-1}}; })
      .Case([](dist::ReduceScatterOp op) {
        return Description{Collective::ReduceScatter, op.getReduce(), {int64_t(op.getDim())}, {-1}};
      })
      .Case([](dist::AllGatherOp op) {
        return Description{Collective::AllGather, Reduction::Sum, {int64_t(op.getDim())}, {-1}};
      })
      .Case([](dist::AllToAllOp op) {
        return Description{Collective::AllToAll, Reduction::Sum, {int64_t(op.getDim())}, {int64_t(op.getSplitDim())}};
      })
      .Case([](dist::BroadcastOp op) { return Description{Collective::Broadcast, Reduction::Sum, {-1}, {-1}}; })
      .Case([](dist::ShiftOp op) {
        return Description{Collective::Shift, Reduction::Sum, {int64_t(op.getDistance())}, {-1}};
      })
      .Case([](dist::BucketOp op) {
        Description bucket{op.getOp(), op.getReduce().value_or(Reduction::Sum), SmallVector<int64_t>(op.getDims()),
                           SmallVector<int64_t>(op.getXs().size(), -1)};
        bucket.dims.resize(op.getXs().size(), -1);
        if (auto splits = op->getAttrOfType<DenseI64ArrayAttr>("split_dims"))
          bucket.splitDims.assign(splits.asArrayRef().begin(), splits.asArrayRef().end());
        return bucket;
      })
      .Default([](Operation *) { return std::nullopt; });
}

struct LowerCollectives : impl::LowerCollectivesBase<LowerCollectives> {
  void runOnOperation() override {
    const dist::Mesh mesh = meshOfModule(getOperation());
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      llvm::StringMap<int64_t> positions;
      for (Operation &op : llvm::make_early_inc_range(function.getOps())) {
        if (lowerTransfer(&op, mesh)) continue;
        auto description = describe(&op);
        if (!description) {
          if (isa<dist::DistDialect>(op.getDialect()) && !isa<dist::OwnPartOp>(op)) {
            op.emitOpError("is not a collective: it should be gone after MaterializeCollectives");
            return signalPassFailure();
          }
          continue;
        }
        OpBuilder builder(&op);
        auto axes = op.getAttrOfType<ArrayAttr>("axes");
        auto why = op.getAttrOfType<StringAttr>("why");
        auto command = plan::CollectiveCommandOp::create(
            builder, op.getLoc(), op.getResultTypes(), op.getOperands(),
            dist::CollectiveAttr::get(&getContext(), description->op), axes,
            dist::ReductionAttr::get(&getContext(), description->reduce),
            builder.getDenseI64ArrayAttr(description->dims), builder.getDenseI64ArrayAttr(description->splitDims),
            why ? why : builder.getStringAttr(""), builder.getI64IntegerAttr(positions[groupName(axes)]++));
        if (auto order = dist::orderAttr.of(&op)) command.setSequence(*order);
        place::copy(&op, command);
        dist::tensorsAttr.copy(&op, command);
        op.replaceAllUsesWith(command.getResults());
        op.erase();
      }
    }
  }

private:
  // The device with another coordinate along pp: its number is the row-major index of its coordinate.
  static plan::AffineOfCoordinateAttr peerAt(Builder &builder, const dist::Mesh &mesh, int64_t coordinate) {
    int64_t base = 0, stride = mesh.numDevices();
    SmallVector<Attribute> axes;
    SmallVector<int64_t> strides;
    for (const dist::MeshAxis &axis : mesh.axes) {
      stride /= axis.size;
      if (dist::isPipelineAxis(axis.name)) {
        base = coordinate * stride;
        continue;
      }
      axes.push_back(builder.getStrArrayAttr({axis.name}));
      strides.push_back(stride);
    }
    return plan::AffineOfCoordinateAttr::get(builder.getContext(), base, builder.getArrayAttr(axes),
                                             builder.getDenseI64ArrayAttr(strides));
  }

  static void inheritChannel(Operation *command, Operation *origin) {
    place::copy(origin, command);
    dist::channelAttr.copy(origin, command);
    dist::buffersAttr.copy(origin, command);
    dist::tensorsAttr.copy(origin, command);
  }

  static bool lowerTransfer(Operation *op, const dist::Mesh &mesh) {
    OpBuilder builder(op);
    if (auto send = dyn_cast<dist::SendOp>(op)) {
      auto command =
          plan::SendCommandOp::create(builder, op->getLoc(), send.getX(), peerAt(builder, mesh, send.getTo()),
                                      send.getTagAttr(), send.getWhyAttr());
      inheritChannel(command, op);
      op->erase();
      return true;
    }
    auto receive = dyn_cast<dist::ReceiveOp>(op);
    if (!receive) return false;
    auto command = plan::ReceiveCommandOp::create(builder, op->getLoc(), receive.getY().getType(),
                                                  peerAt(builder, mesh, receive.getFrom()), receive.getTagAttr(),
                                                  receive.getWhyAttr());
    inheritChannel(command, op);
    op->replaceAllUsesWith(command);
    op->erase();
    return true;
  }
};

} // namespace
} // namespace cleave::codegen
