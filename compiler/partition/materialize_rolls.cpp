#include "compiler/partition/materialize_rolls.h"

using namespace mlir;
using namespace cleave::dist;

namespace cleave::partition {
namespace {

Value rollWhole(OpBuilder &builder, onnx::RollOp roll, int64_t distance) {
  auto type = cast<RankedTensorType>(roll.getY().getType());
  int64_t dim = roll.getDim(), size = type.getDimSize(dim);
  SmallVector<int64_t> steps(type.getRank(), 1);
  auto part = [&](int64_t start, int64_t length) -> Value {
    SmallVector<int64_t> starts(type.getRank(), 0), sizes(type.getShape());
    starts[dim] = start, sizes[dim] = length;
    auto slice = onnx::SliceOp::create(builder, roll.getLoc(), roll.getX(), starts, sizes, steps);
    place::setPhase(slice, phaseOf(roll));
    return slice.getY();
  };
  Value last = part(size - distance, distance), first = part(0, size - distance);
  return onnx::ConcatOp::create(builder, roll.getLoc(), ValueRange{last, first}, dim).getY();
}

} // namespace

LogicalResult materializeRolls(func::FuncOp function, const Mesh &mesh) {
  for (auto roll : llvm::make_early_inc_range(function.getOps<onnx::RollOp>())) {
    std::optional<FactorSharding> split = factorsOf(roll);
    size_t dim = roll.getDim();
    Axes axes = split ? (*split)[dim] : Axes();
    int64_t local = shapeOf(roll.getY())[dim], size = local * mesh.groupSize(axes);
    int64_t distance = ((static_cast<int64_t>(roll.getDistance()) % size) + size) % size;
    OpBuilder builder(roll);
    Value result = roll.getX();
    if (!axes.empty() && local > 1)
      return roll.emitOpError("along a dimension of which every device holds ") << local << " entries, not one";
    if (distance != 0) {
      if (axes.empty()) {
        result = rollWhole(builder, roll, distance);
      } else {
        auto name = roll.getLoc()->findInstanceOf<NameLoc>();
        std::string why = (name ? name.getName().str() : "a block") + ": a block to the next device over " + axes[0];
        result = dist::ShiftOp::create(builder, roll.getLoc(), roll.getY().getType(), roll.getX(),
                                       axesAttribute(builder.getContext(), axes), builder.getI64IntegerAttr(distance),
                                       builder.getStringAttr(why));
        if (name) dist::tensorsAttr.set(result.getDefiningOp(), name.getName().str());
      }
      place::setPhase(result.getDefiningOp(), phaseOf(roll));
    }
    roll.getY().replaceAllUsesWith(result);
    roll.erase();
  }
  return success();
}

} // namespace cleave::partition
