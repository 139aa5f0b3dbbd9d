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

// The dialect's simpler form of a Transpose or Reshape, in its place.
void simplify(Operation *op) {
  place::PlaceLike placing(op);
  PatternRewriter rewriter(op->getContext());
  rewriter.setListener(&placing);
  rewriter.setInsertionPoint(op);
  SmallVector<Value> simpler;
  while (succeeded(rewriter.tryFold(op, simpler)))
    if (!simpler.empty()) return rewriter.replaceOp(op, simpler);
  auto transpose = dyn_cast<onnx::TransposeOp>(op);
  if (transpose && succeeded(onnx::TransposeOp::canonicalize(transpose, rewriter)))
    simplify(placing.inserted.front()); // a Reshape now
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
  for (Operation &op : llvm::make_early_inc_range(block))
    if (onnx::isRearrangement(&op)) simplify(&op);
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
    if (onnx::isRearrangement(&op) && op.use_empty()) op.erase();
}

struct ElideTransposes : impl::ElideTransposesBase<ElideTransposes> {
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isExternal() && hasChannelsLast(function.front())) elide(function.front());
  }
};

} // namespace
} // namespace cleave::layout
