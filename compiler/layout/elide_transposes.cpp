#include "compiler/layout/image_operation.h"
#include "compiler/layout/layout.h"
#include "compiler/partition/layouts.h"
#include "dialects/place/Place.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include <map>
#include <tuple>

using namespace mlir;
namespace cleave::layout {
#define GEN_PASS_DEF_ELIDETRANSPOSES
#include "compiler/layout/Passes.h.inc"

namespace {

// The value of the Transpose or Reshape, made with less; null if it is as simple as it can be.
Value simplified(Operation *op) {
  OpBuilder builder(op);
  auto reshaped = [&](Value x) -> Value {
    if (x.getType() == op->getResult(0).getType()) return x;
    auto reshape = onnx::ReshapeOp::create(builder, op->getLoc(), x, tensorOf(op->getResult(0)).getShape());
    place::copy(op, reshape);
    return reshape.getY();
  };
  if (auto transpose = dyn_cast<onnx::TransposeOp>(op)) {
    if (keepsElements(tensorOf(transpose.getX()).getShape(), transpose.getPerm())) {
      auto before = transpose.getX().getDefiningOp<onnx::ReshapeOp>();
      return reshaped(before ? before.getX() : transpose.getX());
    }
    auto before = transpose.getX().getDefiningOp<onnx::TransposeOp>();
    if (!before) return {};
    SmallVector<int64_t> both;
    for (int64_t dim : transpose.getPerm()) both.push_back(before.getPerm()[dim]);
    if (keepsElements(tensorOf(before.getX()).getShape(), both)) return reshaped(before.getX());
    auto joined = onnx::TransposeOp::create(builder, op->getLoc(), before.getX(), both);
    place::copy(op, joined);
    return joined.getY();
  }
  auto reshape = cast<onnx::ReshapeOp>(op);
  auto before = reshape.getX().getDefiningOp<onnx::ReshapeOp>();
  return before ? reshaped(before.getX()) : Value();
}

bool isWeight(onnx::TransposeOp transpose) {
  return llvm::all_of(transpose.getY().getUses(), [](OpOperand &use) { return weightOperand(use.getOwner()) == &use; });
}

// Other functions have transposes of their own, which later passes know.
bool hasChannelsLast(Block &block) {
  return llvm::any_of(block,
                      [](Operation &op) { return (isConvolution(&op) || isPool(&op)) && op.hasAttr("channels_last"); });
}

void elide(Block &block) {
  for (Operation &op : llvm::make_early_inc_range(block)) {
    if (!isa<onnx::TransposeOp, onnx::ReshapeOp>(op)) continue;
    if (Value simpler = simplified(&op)) {
      op.getResult(0).replaceAllUsesWith(simpler);
      op.erase();
    }
  }
  using Number = std::optional<int64_t>;
  using Key = std::tuple<void *, const void *, Number, Number, std::optional<place::Phase>>;
  std::map<Key, Value> known; // by operand, permutation, and where it is wanted
  for (auto transpose : llvm::make_early_inc_range(block.getOps<onnx::TransposeOp>())) {
    const place::Place place = place::of(transpose);
    Key key{transpose.getX().getAsOpaquePointer(), transpose.getPermAttr().getAsOpaquePointer(), place.stage,
            place.recomputed, isWeight(transpose) ? place.phase : std::nullopt};
    auto [found, isNew] = known.try_emplace(key, transpose.getY());
    if (isNew) continue;
    transpose.getY().replaceAllUsesWith(found->second);
    transpose.erase();
  }
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
    if (isa<onnx::TransposeOp, onnx::ReshapeOp>(op) && op.use_empty()) op.erase();
}

struct ElideTransposes : impl::ElideTransposesBase<ElideTransposes> {
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isExternal() && hasChannelsLast(function.front())) elide(function.front());
  }
};

} // namespace
} // namespace cleave::layout
