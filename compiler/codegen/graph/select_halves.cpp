#include "compiler/codegen/clusters/cluster_graph.h"
#include "compiler/codegen/passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
namespace cleave::codegen {
#define GEN_PASS_DEF_SELECTHALVES
#include "compiler/codegen/Passes.h.inc"

namespace {

constexpr int mostMoves = 16; // of the slices of one half

RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }

bool isArithmetic(Operation *op) { return onnx::isPointwise(op) && !isCostly(op); }

// Elementwise operations read it, through views: they take the selection into their kernels.
bool isReadByKernels(Value value) {
  return !value.use_empty() && llvm::all_of(value.getUsers(), [](Operation *user) {
    if (onnx::isAlias(user)) return false; // of the whole, whose halves it may mix
    if (isView(user)) return isClusterOp(user) && isReadByKernels(user->getResult(0));
    return user->hasTrait<onnx::PerElement>() && isClusterOp(user);
  });
}

bool areHalves(onnx::ConcatOp concat) {
  if (concat.getXs().size() != 2 || concat.getXs()[0].getType() != concat.getXs()[1].getType()) return false;
  return typeOf(concat.getY()).hasStaticShape() && typeOf(concat.getY()).getNumElements() > 0 &&
         isReadByKernels(concat.getY());
}

// A value that the forward pass made and kept is not made again from values that it did not keep.
bool isOfOnePass(Operation *a, Operation *b) {
  return place::of(a).phase == place::of(b).phase && place::of(a).recomputed == place::of(b).recomputed;
}

class HalfSelector {
public:
  explicit HalfSelector(onnx::ConcatOp concat) : concat(concat), builder(concat) {}

  void run() {
    const auto axis = int64_t(concat.getAxis());
    RankedTensorType half = typeOf(concat.getXs()[0]), whole = typeOf(concat.getY());
    SmallVector<int64_t> shape(half.getShape()), dims;
    shape.insert(shape.begin() + axis, 2);
    for (int64_t dim = 0; dim < int64_t(shape.size()); ++dim)
      if (dim != axis) dims.push_back(dim);
    auto of = [&](Type element) { return RankedTensorType::get(shape, element); };
    auto i64 = of(builder.getI64Type());
    Value which = make<onnx::IotaOp>(i64, i64, uint64_t(axis), ArrayAttr());
    Value zero = make<onnx::ConstantOp>(DenseElementsAttr::get(i64, int64_t(0)));
    Value isFirst = make<onnx::EqualOp>(of(builder.getI1Type()), which, zero);
    Value parts[2];
    for (unsigned i : {0, 1}) {
      takeSlicesInFront(concat.getXs()[i]);
      parts[i] = make<onnx::BroadcastOp>(of(half.getElementType()), concat.getXs()[i], shape, dims);
    }
    Value selected = make<onnx::WhereOp>(of(half.getElementType()), isFirst, parts[0], parts[1]);
    Value joined = make<onnx::ReshapeOp>(whole, selected, whole.getShape());
    concat.getY().replaceAllUsesWith(joined);
    concat.erase();
  }

private:
  using Slices = llvm::SmallSetVector<Operation *, 4>; // one may be reached twice

  template <typename Op, typename... Arguments> Value make(Arguments &&...arguments) {
    auto op = Op::create(builder, concat.getLoc(), std::forward<Arguments>(arguments)...);
    place::copy(concat, op);
    return op->getResult(0);
  }

  // The slices that the arithmetic behind `value` ends in.
  void takeSlicesInFront(Value value) {
    Slices slices;
    SmallVector<Value> work{value};
    for (int seen = 0; !work.empty() && seen < mostMoves; ++seen) {
      Operation *op = work.pop_back_val().getDefiningOp();
      if (!op) continue;
      if (auto slice = dyn_cast<onnx::SliceOp>(op))
        slices.insert(slice);
      else if (isArithmetic(op) && op->hasOneUse())
        work.append(op->operand_begin(), op->operand_end());
    }
    int moves = 0;
    while (!slices.empty() && moves++ < mostMoves) moveInFront(cast<onnx::SliceOp>(slices.pop_back_val()), slices);
  }

  // Slice(f(x)) -> f(Slice(x)); the new slices are added to the list.
  static void moveInFront(onnx::SliceOp slice, Slices &slices) {
    Operation *from = slice.getX().getDefiningOp();
    if (!from) return;
    place::PlaceLike placing(slice);
    PatternRewriter rewriter(slice.getContext());
    rewriter.setListener(&placing);
    rewriter.setInsertionPoint(slice);
    if (isArithmetic(from) && from->getNumResults() == 1 && isOfOnePass(from, slice)) {
      if (llvm::any_of(from->getOperandTypes(),
                       [&](Type type) { return cast<ShapedType>(type).getShape() != typeOf(slice.getX()).getShape(); }))
        return;
      SmallVector<Value> operands;
      for (Value operand : from->getOperands())
        operands.push_back(onnx::SliceOp::create(rewriter, slice.getLoc(), operand, slice.getStarts(), slice.getSizes(),
                                                 slice.getSteps()));
      Operation *clone = from->clone();
      clone->setOperands(operands);
      clone->getResult(0).setType(slice.getType());
      rewriter.replaceOp(slice, rewriter.insert(clone));
    } else if (!isClusterOp(from) || failed(onnx::SliceOp::canonicalize(slice, rewriter))) {
      return;
    }
    rewriter.setListener(nullptr); // the slice is gone
    for (Operation *made : placing.inserted) {
      SmallVector<Value> simpler;
      if (!isa<onnx::SliceOp>(made)) continue;
      rewriter.setInsertionPoint(made);
      if (succeeded(rewriter.tryFold(made, simpler)))
        rewriter.replaceOp(made, simpler);
      else
        slices.insert(made);
    }
    if (from->use_empty()) from->erase();
  }

  onnx::ConcatOp concat;
  OpBuilder builder;
};

struct SelectHalves : impl::SelectHalvesBase<SelectHalves> {
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      for (auto concat : llvm::make_early_inc_range(function.getOps<onnx::ConcatOp>()))
        if (areHalves(concat)) HalfSelector(concat).run();
  }
};

} // namespace
} // namespace cleave::codegen
