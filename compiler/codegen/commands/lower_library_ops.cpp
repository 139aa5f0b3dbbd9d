#include "compiler/codegen/codegen.h"
#include "compiler/codegen/commands/command_building.h"
#include "compiler/codegen/commands/lower_contract.h"
#include "compiler/codegen/commands/strided_view.h"
#include "dialects/dist/Dist.h"
#include "dialects/onnx/kinds.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/TypeSwitch.h"

namespace cleave::codegen {
#define GEN_PASS_DEF_LOWERLIBRARYOPS
#include "compiler/codegen/Passes.h.inc"

using namespace mlir;
namespace {

int64_t product(llvm::ArrayRef<int64_t> sizes) {
  int64_t result = 1;
  for (int64_t size : sizes) result *= size;
  return result;
}

llvm::ArrayRef<int64_t> shapeOf(Value value) { return cast<RankedTensorType>(value.getType()).getShape(); }

Value lowerGather(OpBuilder &builder, onnx::GatherOp op) {
  auto shape = shapeOf(op.getTable());
  int64_t axis = op.getAxis(), rows = shape[axis];
  return plan::GatherCommandOp::create(
      builder, op.getLoc(), op.getType(), op.getTable(), op.getIndices(),
      builder.getI64IntegerAttr(product(shape.take_front(axis))), builder.getI64IntegerAttr(rows),
      builder.getI64IntegerAttr(product(shape.drop_front(axis + 1))), localStart(builder, op.getShardAxes(), rows),
      builder.getI64IntegerAttr(op.getGlobalRows().value_or(rows)));
}

Value lowerScatterAdd(OpBuilder &builder, onnx::ScatterAddOp op) {
  auto shape = shapeOf(op.getY());
  int64_t axis = op.getAxis(), rows = op.getRows();
  return plan::ScatterAddCommandOp::create(
      builder, op.getLoc(), op.getType(), op.getIndices(), op.getUpdates(),
      builder.getI64IntegerAttr(product(shape.take_front(axis))), builder.getI64IntegerAttr(rows),
      builder.getI64IntegerAttr(product(shape.drop_front(axis + 1))), localStart(builder, op.getShardAxes(), rows),
      builder.getI64IntegerAttr(op.getGlobalRows().value_or(rows)));
}

Value lowerCumSum(OpBuilder &builder, onnx::CumSumOp op) {
  auto shape = shapeOf(op.getX());
  int64_t axis = op.getAxis();
  return plan::CumSumCommandOp::create(
      builder, op.getLoc(), op.getType(), op.getX(), builder.getI64IntegerAttr(product(shape.take_front(axis))),
      builder.getI64IntegerAttr(shape[axis]), builder.getI64IntegerAttr(product(shape.drop_front(axis + 1))),
      op.getExclusiveAttr(), op.getReverseAttr());
}

template <typename Conv> Value lowerConvolution(OpBuilder &builder, Conv op, llvm::StringRef pass) {
  return plan::ConvolutionCommandOp::create(builder, op.getLoc(), op.getType(), op->getOperand(0), op->getOperand(1),
                                            builder.getStringAttr(pass), op.getStridesAttr(), op.getPadsBeginAttr(),
                                            op.getPadsEndAttr(), op.getDilationsAttr(), op.getGroupsAttr(),
                                            op.getChannelsLastAttr(), op.getWeightChannelsLastAttr());
}

// Sizes or strides of a tensor of attention [batch.., positions, heads, features] as those of [batch, positions, heads,
// features]; none: strides cannot express it.
std::optional<llvm::SmallVector<int64_t, 4>> withOneBatch(ArrayRef<int64_t> shape, ArrayRef<int64_t> strides) {
  int64_t batch = 1, stride = 0;
  for (auto [size, own] : llvm::reverse(llvm::zip_equal(shape.drop_back(3), strides.drop_back(3)))) {
    if (size == 1) continue;
    if (batch > 1 && own != stride * batch) return std::nullopt;
    if (batch == 1) stride = own;
    batch *= size;
  }
  if (batch == 1) stride = strides[strides.size() - 4]; // of one sample, as the tensor has it
  return llvm::SmallVector<int64_t, 4>{stride, strides[strides.size() - 3], strides[strides.size() - 2],
                                       strides.back()};
}

// An operand of attention as [batch, heads, positions, features] by strides. The library wants features side by side:
// where they are not, the operand itself is read, and its movement becomes a copy.
struct AttentionOperand {
  Value base;
  llvm::SmallVector<int64_t, 4> strides;
  int64_t offset = 0;
};
AttentionOperand attentionOperand(Value value) {
  StridedView view = viewOf(value);
  auto strides = withOneBatch(shapeOf(value), view.strides);
  if (!strides || strides->back() != 1) {
    view = {value, 0, llvm::SmallVector<int64_t, 6>(shapeOf(value)), rowMajorStrides(shapeOf(value))};
    strides = withOneBatch(shapeOf(value), view.strides);
  }
  return {view.base, {(*strides)[0], (*strides)[2], (*strides)[1], (*strides)[3]}, view.offset};
}

// A gradient of attention, which is dense [batch, positions, heads, features] of the operation: the value that the
// command makes, and the strides of batch, heads, positions and features in it.
struct WrittenGradient {
  Value value;
  llvm::SmallVector<int64_t, 4> strides;
};

// Where only the transpose of a gradient is read, the command writes that.
WrittenGradient writtenGradient(Value gradient) {
  llvm::SmallVector<Value> moved{gradient};
  while (moved.back().hasOneUse() && onnx::isRearrangement(*moved.back().user_begin()))
    moved.push_back(moved.back().user_begin()->getResult(0));
  auto stridesIn = [&](size_t last) -> std::optional<llvm::SmallVector<int64_t, 6>> {
    llvm::SmallVector<int64_t, 6> strides = rowMajorStrides(shapeOf(moved[last]));
    for (size_t i = last; i > 0; --i) {
      llvm::SmallVector<int64_t, 6> before(shapeOf(moved[i - 1]).size());
      if (auto transpose = moved[i].getDefiningOp<onnx::TransposeOp>()) {
        for (auto [stride, dim] : llvm::zip_equal(strides, transpose.getPerm())) before[dim] = stride;
      } else if (!reshapeStrides(shapeOf(moved[i]), strides, shapeOf(moved[i - 1]), before)) {
        return std::nullopt;
      }
      strides = before;
    }
    return strides;
  };
  size_t last = moved.size() - 1;
  while (last > 0 && !moved[last].getDefiningOp<onnx::TransposeOp>()) --last; // reshapes behind it cost nothing
  auto found = stridesIn(last);
  auto strides = found ? withOneBatch(shapeOf(gradient), *found) : std::nullopt;
  if (!strides || strides->back() != 1)
    last = 0, strides = withOneBatch(shapeOf(gradient), rowMajorStrides(shapeOf(gradient)));
  return {moved[last], {(*strides)[0], (*strides)[2], (*strides)[1], (*strides)[3]}};
}

template <typename Attention> void lowerAttention(OpBuilder &builder, Attention op) {
  AttentionOperand q = attentionOperand(op.getQuery()), k = attentionOperand(op.getKey()),
                   v = attentionOperand(op.getValue());
  llvm::SmallVector<int64_t> offsets{q.offset, k.offset, v.offset}, biasStrides;
  Value bias = op.getBias();
  if (bias) { // [batch or 1, heads or 1, queries, keys], dense
    biasStrides.assign(rowMajorStrides(shapeOf(bias)));
    for (int64_t dim : {0, 1})
      if (shapeOf(bias)[dim] == 1) biasStrides[dim] = 0;
    offsets.push_back(0);
  }
  auto query = shapeOf(op.getQuery()), key = shapeOf(op.getKey());
  const size_t last = query.size() - 1;
  int64_t batch = 1;
  for (int64_t size : query.drop_back(3)) batch *= size;
  llvm::SmallVector<int64_t> sizes{
      batch, query[last - 1], key[last - 1], query[last - 2], key[last - 2], query[last], shapeOf(op.getValue())[last]};
  Value out, stats, outGradient;
  llvm::SmallVector<Value> made(op->getResults());
  llvm::SmallVector<int64_t> gradientStrides;
  if constexpr (std::is_same_v<Attention, onnx::ScaledAttentionGradOp>) {
    out = op.getOut(), stats = op.getStats(), outGradient = op.getOutGradient();
    for (Value &gradient : made) {
      const WrittenGradient written = writtenGradient(gradient);
      gradient = written.value;
      gradientStrides.append(written.strides);
    }
  }
  auto command = plan::AttentionCommandOp::create(
      builder, op.getLoc(), TypeRange(ValueRange(made)), q.base, k.base, v.base, bias, out, stats, outGradient,
      builder.getDenseI64ArrayAttr(sizes), builder.getDenseI64ArrayAttr(q.strides),
      builder.getDenseI64ArrayAttr(k.strides), builder.getDenseI64ArrayAttr(v.strides),
      builder.getDenseI64ArrayAttr(biasStrides), builder.getDenseI64ArrayAttr(gradientStrides),
      builder.getDenseI64ArrayAttr(offsets), op.getScaleAttr(), op.getLeftBoundAttr(), op.getRightBoundAttr(),
      op.getSoftCapAttr());
  place::copy(op, command);
  for (auto [old, value] : llvm::zip_equal(made, command.getYs())) {
    old.replaceAllUsesWith(value);
    for (Value unused = old; unused.getDefiningOp() != op;) { // movement that the command has done
      Operation *movement = unused.getDefiningOp();
      unused = movement->getOperand(0);
      movement->erase();
    }
  }
  op->erase();
}

template <typename Pool> Value lowerPool(OpBuilder &builder, Pool op, llvm::StringRef kind) {
  return plan::PoolCommandOp::create(builder, op.getLoc(), op.getType(), op->getOperands(), builder.getStringAttr(kind),
                                     op.getKernelAttr(), op.getStridesAttr(), op.getPadsBeginAttr(),
                                     op.getPadsEndAttr(), op.getDilationsAttr(), op.getChannelsLastAttr());
}

Value lowerPad(OpBuilder &builder, onnx::PadOp op) {
  StridedView source = viewOf(op.getX());
  auto strides = rowMajorStrides(shapeOf(op.getY()));
  int64_t offset = 0;
  llvm::SmallVector<int64_t, 6> target;
  for (auto [stride, low, interior] : llvm::zip(strides, op.getLow(), op.getInterior())) {
    offset += low * stride;
    target.push_back(stride * (interior + 1));
  }
  return plan::CopyCommandOp::create(
      builder, op.getLoc(), op.getType(), source.base, builder.getDenseI64ArrayAttr(source.sizes),
      builder.getDenseI64ArrayAttr(source.strides), builder.getDenseI64ArrayAttr(target),
      constantAffine(builder, source.offset), builder.getI64IntegerAttr(offset), op.getValueAttr());
}

Value lowerOwnPart(OpBuilder &builder, dist::OwnPartOp op) {
  auto sizes = shapeOf(op.getY());
  auto strides = rowMajorStrides(shapeOf(op.getX()));
  int64_t dim = op.getDim();
  return plan::CopyCommandOp::create(
      builder, op.getLoc(), op.getType(), op.getX(), builder.getDenseI64ArrayAttr(sizes),
      builder.getDenseI64ArrayAttr(strides), builder.getDenseI64ArrayAttr(rowMajorStrides(sizes)),
      indexAffine(builder, op.getAxesAttr(), sizes[dim] * strides[dim]), builder.getI64IntegerAttr(0), FloatAttr());
}

// The result of a chain of movement ops: a view where the elements are adjacent, else one strided copy.
Value lowerMovement(OpBuilder &builder, Operation *op) {
  Value result = op->getResult(0);
  StridedView view = viewOf(result);
  if (view.base == result) // strides cannot express the Reshape: its operand has to be made dense first
    return plan::ViewOp::create(builder, op->getLoc(), result.getType(), op->getOperand(0),
                                builder.getI64IntegerAttr(0));
  if (view.isDense())
    return plan::ViewOp::create(builder, op->getLoc(), result.getType(), view.base,
                                builder.getI64IntegerAttr(view.offset));
  return plan::CopyCommandOp::create(
      builder, op->getLoc(), result.getType(), view.base, builder.getDenseI64ArrayAttr(view.sizes),
      builder.getDenseI64ArrayAttr(view.strides), builder.getDenseI64ArrayAttr(rowMajorStrides(view.sizes)),
      constantAffine(builder, view.offset), builder.getI64IntegerAttr(0), FloatAttr());
}

Value lowerConstant(OpBuilder &builder, onnx::ConstantOp op) {
  auto value = op.getValue();
  if (value.isSplat()) return plan::FillCommandOp::create(builder, op.getLoc(), op.getType(), value);
  return plan::ConstantCommandOp::create(builder, op.getLoc(), op.getType(), value);
}

// Ops that compute. Null: not one of them.
Value lowerComputing(OpBuilder &builder, Operation *op, const SymbolTable &symbols) {
  return llvm::TypeSwitch<Operation *, Value>(op)
      .Case([&](onnx::ContractOp op) { return lowerContract(builder, op, symbols); })
      .Case([&](onnx::GroupedContractOp op) { return lowerGroupedContract(builder, op); })
      .Case([&](onnx::GatherOp op) { return lowerGather(builder, op); })
      .Case([&](onnx::ScatterAddOp op) { return lowerScatterAdd(builder, op); })
      .Case([&](onnx::CumSumOp op) { return lowerCumSum(builder, op); })
      .Case([&](onnx::ConvOp op) { return lowerConvolution(builder, op, "forward"); })
      .Case([&](onnx::ConvGradInputOp op) { return lowerConvolution(builder, op, "grad_input"); })
      .Case([&](onnx::ConvGradWeightOp op) { return lowerConvolution(builder, op, "grad_weight"); })
      .Case([&](onnx::MaxPoolOp op) { return lowerPool(builder, op, "max"); })
      .Case([&](onnx::MaxPoolGradOp op) { return lowerPool(builder, op, "max_grad"); })
      .Case([&](onnx::AveragePoolOp op) {
        return lowerPool(builder, op, op.getIncludePad() ? "average_include_pad" : "average");
      })
      .Case([&](onnx::AveragePoolGradOp op) {
        return lowerPool(builder, op, op.getIncludePad() ? "average_include_pad_grad" : "average_grad");
      })
      .Case([&](onnx::PadOp op) { return lowerPad(builder, op); })
      .Case([&](onnx::ConcatOp op) {
        return plan::ConcatCommandOp::create(builder, op.getLoc(), op.getType(), op.getXs(), op.getAxisAttr())
            .getResult();
      })
      .Case([&](dist::OwnPartOp op) { return lowerOwnPart(builder, op); })
      .Default([](Operation *) { return Value(); });
}

void replace(Operation *op, Value value) {
  place::copy(op, value.getDefiningOp());
  op->getResult(0).replaceAllUsesWith(value);
  op->erase();
}

// A loss that is no number ends the run, at a command with a name.
void checkLoss(func::FuncOp function) {
  Operation *terminator = function.getBody().front().getTerminator();
  for (OpOperand &result : terminator->getOpOperands()) {
    auto name = onnx::nameAttr.ofResult(function, result.getOperandNumber());
    if (name != StringRef("loss")) continue;
    OpBuilder builder(terminator);
    auto check = plan::CheckFiniteCommandOp::create(builder, NameLoc::get(builder.getStringAttr(*name)), result.get(),
                                                    builder.getStringAttr("the loss"));
    if (Operation *maker = result.get().getDefiningOp()) place::copy(maker, check);
  }
}

LogicalResult lowerFunction(func::FuncOp function, const SymbolTable &symbols) {
  checkLoss(function);
  Block &block = function.getBody().front();
  for (auto attention : llvm::make_early_inc_range(block.getOps<onnx::ScaledAttentionOp>())) {
    OpBuilder builder(attention);
    lowerAttention(builder, attention);
  }
  const SmallVector<onnx::ScaledAttentionGradOp> gradients(block.getOps<onnx::ScaledAttentionGradOp>());
  for (onnx::ScaledAttentionGradOp gradient : gradients) { // and movement behind them
    OpBuilder builder(gradient);
    lowerAttention(builder, gradient);
  }
  for (Operation &op : llvm::make_early_inc_range(block)) {
    OpBuilder builder(&op);
    if (auto write = dyn_cast<onnx::WriteOp>(op)) {
      auto store = plan::StoreOp::create(builder, op.getLoc(), write.getValue(), write.getParamAttr(), UnitAttr());
      place::copy(&op, store);
      op.erase();
    } else if (Value value = lowerComputing(builder, &op, symbols)) {
      replace(&op, value);
    }
  }
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block))) {
    if (op.getNumResults() > 0 && op.use_empty() && (isMemoryEffectFree(&op) || onnx::isResident(&op))) {
      op.erase();
      continue;
    }
    OpBuilder builder(&op);
    if (auto constant = dyn_cast<onnx::ConstantOp>(op))
      replace(&op, lowerConstant(builder, constant));
    else if (onnx::isView(&op))
      replace(&op, lowerMovement(builder, &op));
  }
  bool failed = false;
  for (Operation &op : block) {
    bool known = isa<plan::PlanDialect>(op.getDialect()) || isa<onnx::ReadOp, func::ReturnOp>(op) ||
                 isa<dist::DistDialect>(op.getDialect());
    if (known) continue;
    op.emitOpError("has no command: a kernel should have taken it (FormClusters)");
    failed = true;
  }
  return failure(failed);
}

struct LowerLibraryOps : impl::LowerLibraryOpsBase<LowerLibraryOps> {
  void runOnOperation() override {
    const SymbolTable symbols(getOperation());
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isExternal() && failed(lowerFunction(function, symbols))) signalPassFailure();
  }
};

} // namespace
} // namespace cleave::codegen
