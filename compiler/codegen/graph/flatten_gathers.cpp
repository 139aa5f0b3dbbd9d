#include "compiler/codegen/codegen.h"
#include "dialects/onnx/formula.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::codegen {
#define GEN_PASS_DEF_FLATTENGATHERS
#include "compiler/codegen/Passes.h.inc"

using namespace mlir;
namespace {

int64_t countOf(ArrayRef<int64_t> shape) {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  return count;
}

class Flattening {
public:
  // `rows`: of an entry; `batch`: the dimensions that entries have.
  Flattening(Operation *op, Value indices, int64_t batch, int64_t rows)
      : op(op), builder(op), f(builder, op->getLoc()), entries(countOf(shapeOf(indices).take_front(batch))) {
    auto type = RankedTensorType::get({entries}, onnx::tensorType(indices).getElementType());
    Value first = f.scale(f.make<onnx::IotaOp>(type, 0, ArrayAttr()), static_cast<double>(rows));
    int64_t each = entries ? countOf(shapeOf(indices)) / entries : 0;
    Value cut = f.make<onnx::ReshapeOp>(indices, ArrayRef<int64_t>{entries, each});
    Value starts = f.make<onnx::BroadcastOp>(first, ArrayRef<int64_t>{entries, each}, ArrayRef<int64_t>{0});
    flat = f.make<onnx::ReshapeOp>(f.add(cut, starts), ArrayRef<int64_t>{entries * each});
  }

  // `value` with its first `leading` dimensions as one.
  Value joined(Value value, int64_t leading) {
    SmallVector<int64_t> shape{countOf(shapeOf(value).take_front(leading))};
    llvm::append_range(shape, shapeOf(value).drop_front(leading));
    return f.make<onnx::ReshapeOp>(value, shape);
  }
  void finish(Value result) {
    Value made = f.make<onnx::ReshapeOp>(result, shapeOf(op->getResult(0)));
    op->getResult(0).replaceAllUsesWith(made);
  }

  static ArrayRef<int64_t> shapeOf(Value value) { return onnx::tensorType(value).getShape(); }
  Operation *op;
  OpBuilder builder;
  onnx::Formula f;
  int64_t entries;
  Value flat; // indices into all rows
};

void flatten(onnx::GatherOp gather) {
  const int64_t batch = gather.getBatchDims();
  const int64_t rows = onnx::tensorType(gather.getTable()).getDimSize(batch);
  Flattening to(gather, gather.getIndices(), batch, rows);
  to.finish(to.f.make<onnx::GatherOp>(to.joined(gather.getTable(), batch + 1), to.flat, 0, ArrayAttr(), IntegerAttr()));
}

void flatten(onnx::ScatterAddOp scatter) {
  const int64_t batch = scatter.getBatchDims(), rows = scatter.getRows();
  Flattening to(scatter, scatter.getIndices(), batch, rows);
  Value updates = to.joined(scatter.getUpdates(), onnx::tensorType(scatter.getIndices()).getRank());
  to.finish(to.f.make<onnx::ScatterAddOp>(to.flat, updates, 0, to.entries * rows, ArrayAttr(), IntegerAttr()));
}

struct FlattenGathers : impl::FlattenGathersBase<FlattenGathers> {
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      for (Operation &op : llvm::make_early_inc_range(function.front())) {
        Operation *before = op.getPrevNode();
        if (auto gather = dyn_cast<onnx::GatherOp>(op); gather && gather.getBatchDims())
          flatten(gather);
        else if (auto scatter = dyn_cast<onnx::ScatterAddOp>(op); scatter && scatter.getBatchDims())
          flatten(scatter);
        else
          continue;
        // The ops in its place bear its phase and its stage.
        for (Operation *made = before ? before->getNextNode() : &function.front().front(); made != &op;
             made = made->getNextNode())
          made->setDiscardableAttrs(llvm::to_vector(op.getDiscardableAttrs()));
        op.erase();
      }
  }
};

} // namespace
} // namespace cleave::codegen
