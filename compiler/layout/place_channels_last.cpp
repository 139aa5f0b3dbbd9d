#include "compiler/layout/image_operation.h"
#include "compiler/layout/layout.h"
#include "dialects/onnx/channels_last.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
namespace cleave::layout {
#define GEN_PASS_DEF_PLACECHANNELSLAST
#include "compiler/layout/Passes.h.inc"

namespace {

using Dims = SmallVector<int64_t>;

// The place of each dimension when the channels are last.
Dims placesOf(int64_t rank) { return onnx::firstPermutation(rank); }

class Placer {
public:
  Placer(func::FuncOp function, bool weights) : function(function), weights(weights) {}

  LogicalResult run() {
    for (Operation &op : llvm::make_early_inc_range(function.front())) {
      if (!onnx::channelsLastAttr.remove(&op)) continue;
      if (reads(&op))
        placeReduction(&op);
      else if (makes(&op))
        placeMaker(&op);
      else
        placeCarrier(&op);
      if (failed(check(&op))) return failure();
    }
    return success();
  }

private:
  // The transposed value, made at the operation, in its part of the step.
  static Value transposed(OpBuilder &builder, Operation *op, Value value, Dims permutation) {
    auto transpose = onnx::TransposeOp::create(builder, op->getLoc(), value, permutation);
    place::copy(op, transpose);
    return transpose.getY();
  }
  static void putLast(OpOperand &operand) {
    OpBuilder builder(operand.getOwner());
    operand.set(transposed(builder, operand.getOwner(), operand.get(),
                           onnx::lastPermutation(tensorOf(operand.get()).getRank())));
  }
  // The result's own order is now with its channels last; who reads it gets it as before.
  static void putLast(Value result) {
    RankedTensorType type = tensorOf(result);
    result.setType(type.clone(onnx::channelsLast(type.getShape())));
    giveBack(result, onnx::firstPermutation(type.getRank()));
  }
  static void giveBack(Value result, Dims permutation) {
    Operation *op = result.getDefiningOp();
    OpBuilder builder(op->getContext());
    builder.setInsertionPointAfter(op);
    Value before = transposed(builder, op, result, std::move(permutation));
    result.replaceAllUsesExcept(before, before.getDefiningOp());
  }

  void placeCarrier(Operation *op) {
    const int64_t rank = tensorOf(op->getOperand(0)).getRank();
    for (OpOperand *operand : orderedOperands(op)) putLast(*operand);
    if (OpOperand *weight = weightOperand(op); weight && weights) putLast(*weight);
    placeAttributes(op, rank);
    for (Value result : orderedResults(op)) putLast(result);
    if (isa<onnx::ConvGradWeightOp>(op) && weights) putLast(op->getResult(0));
  }

  void placeAttributes(Operation *op, int64_t rank) {
    Builder builder(op->getContext());
    const Dims places = placesOf(rank);
    auto last = [](ArrayRef<int64_t> list) { return onnx::channelsLast(list); };
    auto place = [&](uint64_t dim) { return places[dim]; };
    auto number = [&](StringRef name) {
      if (auto dim = op->getAttrOfType<IntegerAttr>(name))
        op->setAttr(name, builder.getI64IntegerAttr(place(uint64_t(dim.getInt()))));
    };
    llvm::TypeSwitch<Operation *>(op)
        .Case<onnx::ConvOp, onnx::ConvGradInputOp, onnx::ConvGradWeightOp>([&](auto convolution) {
          convolution.setChannelsLast(true);
          convolution.setWeightChannelsLast(weights);
          if constexpr (std::is_same_v<decltype(convolution), onnx::ConvGradInputOp>)
            convolution.setInputShape(last(convolution.getInputShape()));
          if constexpr (std::is_same_v<decltype(convolution), onnx::ConvGradWeightOp>)
            if (weights) convolution.setWeightShape(last(convolution.getWeightShape()));
        })
        .Case<onnx::MaxPoolOp, onnx::MaxPoolGradOp, onnx::AveragePoolOp, onnx::AveragePoolGradOp>([&](auto pool) {
          pool.setChannelsLast(true);
          if constexpr (std::is_same_v<decltype(pool), onnx::AveragePoolGradOp>)
            pool.setInputShape(last(pool.getInputShape()));
        })
        .Case([&](onnx::PadOp pad) {
          pad.setLow(last(pad.getLow()));
          pad.setHigh(last(pad.getHigh()));
          pad.setInterior(last(pad.getInterior()));
        })
        .Case([&](onnx::SliceOp slice) {
          slice.setStarts(last(slice.getStarts()));
          slice.setSizes(last(slice.getSizes()));
          slice.setSteps(last(slice.getSteps()));
        })
        .Default([&](Operation *) {
          for (StringRef name : {"axis", "dim", "split_dim"}) number(name);
        });
  }

  // The dimensions that stay come out in the order in which they lie.
  void placeReduction(Operation *op) {
    const int64_t rank = tensorOf(op->getOperand(0)).getRank();
    const Dims places = placesOf(rank);
    putLast(op->getOpOperand(0));
    Dims axes, kept;
    for (int64_t axis : op->getAttrOfType<DenseI64ArrayAttr>("axes").asArrayRef()) axes.push_back(places[axis]);
    llvm::sort(axes);
    op->setAttr("axes", DenseI64ArrayAttr::get(op->getContext(), axes));
    for (int64_t dim : onnx::lastPermutation(rank)) // dimensions of the operand as it was
      if (!llvm::is_contained(axes, places[dim])) kept.push_back(dim);
    if (llvm::is_sorted(kept)) return;
    // kept = [2, 3, 1]: the result was [1, 2, 3] and is now permuted likewise.
    Dims order(llvm::to_vector(llvm::seq<int64_t>(int64_t(kept.size()))));
    llvm::sort(order, [&](int64_t a, int64_t b) { return kept[a] < kept[b]; });
    Value result = op->getResult(0);
    Dims shape(kept.size());
    for (auto [now, before] : llvm::enumerate(order)) shape[before] = tensorOf(result).getDimSize(now);
    result.setType(tensorOf(result).clone(shape));
    giveBack(result, order);
  }

  void placeMaker(Operation *op) {
    Value result = op->getResult(0);
    RankedTensorType type = tensorOf(result), last = type.clone(onnx::channelsLast(type.getShape()));
    const Dims places = placesOf(type.getRank());
    Builder builder(op->getContext());
    if (auto constant = dyn_cast<onnx::ConstantOp>(op)) {
      constant.setValueAttr(cast<DenseElementsAttr>(constant.getValue()).resizeSplat(last));
    } else if (auto iota = dyn_cast<onnx::IotaOp>(op)) {
      iota.setTypeAttr(TypeAttr::get(last));
      iota.setDimAttr(builder.getI64IntegerAttr(places[iota.getDim()]));
    } else {
      auto broadcast = cast<onnx::BroadcastOp>(op);
      Dims dims, order(llvm::to_vector(llvm::seq<int64_t>(int64_t(broadcast.getDims().size()))));
      for (int64_t dim : broadcast.getDims()) dims.push_back(places[dim]);
      llvm::sort(order, [&](int64_t a, int64_t b) { return dims[a] < dims[b]; });
      if (!llvm::is_sorted(order)) {
        OpBuilder before(op);
        broadcast.getXMutable().assign(transposed(before, op, broadcast.getX(), order));
        llvm::sort(dims);
      }
      broadcast.setDims(dims);
      broadcast.setShape(last.getShape());
    }
    putLast(result);
  }

  // The shape facet agrees with what was done.
  static LogicalResult check(Operation *op) {
    auto infer = dyn_cast<InferTypeOpInterface>(op);
    if (!infer) return success();
    SmallVector<Type> types;
    if (failed(infer.inferReturnTypes(op->getContext(), op->getLoc(), op->getOperands(), op->getAttrDictionary(),
                                      op->getPropertiesStorage(), op->getRegions(), types)))
      return failure();
    if (infer.isCompatibleReturnTypes(types, op->getResultTypes())) return success();
    return op->emitOpError("gives ") << types.front() << " with its channels last, not "
                                     << op->getResultTypes().front();
  }

  func::FuncOp function;
  bool weights;
};

class PlaceChannelsLast : public impl::PlaceChannelsLastBase<PlaceChannelsLast> {
public:
  using Base::Base;
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isExternal() && failed(Placer(function, weights).run())) return signalPassFailure();
  }
};

} // namespace

} // namespace cleave::layout
