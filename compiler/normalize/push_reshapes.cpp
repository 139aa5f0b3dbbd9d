#include "compiler/normalize/core_builder.h"
#include "compiler/normalize/normalize.h"
#include "dialects/onnx/kinds.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;
namespace cleave::normalize {
#define GEN_PASS_DEF_PUSHRESHAPES
#include "compiler/normalize/Passes.h.inc"

namespace {

// Dimension `dim` becomes several, of these sizes (none is 1).
struct Split {
  int64_t dim;
  Dims sizes;
};

Dims splitShape(ArrayRef<int64_t> shape, const Split &split) {
  Dims result(shape.take_front(split.dim));
  llvm::append_range(result, split.sizes);
  llvm::append_range(result, shape.drop_front(split.dim + 1));
  return result;
}

// The dimensions of `from` that a reshape to `to` cuts into several; dimensions that it merges and cuts at once are not
// among them.
SmallVector<Split> splitsOf(ArrayRef<int64_t> from, ArrayRef<int64_t> to) {
  SmallVector<Split> splits;
  size_t i = 0, j = 0;
  while (true) {
    while (i < from.size() && from[i] == 1) ++i;
    while (j < to.size() && to[j] == 1) ++j;
    if (i >= from.size() || j >= to.size()) return splits;
    size_t first = i;
    int64_t left = from[i++], right = to[j];
    Dims sizes{to[j++]};
    while (left != right) {
      if (left < right) {
        if (i >= from.size()) return splits;
        left *= from[i++];
      } else {
        if (j >= to.size()) return splits;
        if (to[j] != 1) sizes.push_back(to[j]);
        right *= to[j++];
      }
    }
    if (left == 0) return splits;
    bool single = true;
    for (size_t d = first + 1; d < i; ++d) single &= from[d] == 1;
    if (single && sizes.size() > 1) splits.push_back({int64_t(first), sizes});
  }
}

class Pusher {
public:
  explicit Pusher(SymbolTable &symbols) : symbols(symbols) {}

  void push(onnx::ReshapeOp reshape) {
    // Each round undoes one split; a reshape has few.
    for (int round = 0; round < 8; ++round) {
      bool moved = false;
      for (const Split &split : splitsOf(shapeOf(reshape.getX()), reshape.getShape())) {
        budget = 300;
        if (!absorbable(reshape.getX(), split, true)) continue;
        splitValue(reshape.getX(), split);
        moved = true;
        break;
      }
      if (!moved) return;
      OpBuilder builder(reshape);
      CoreBuilder b(builder, reshape.getLoc());
      Value simpler = b.reshape(reshape.getX(), reshape.getShape());
      reshape.getResult().replaceAllUsesWith(simpler);
      reshape.erase();
      reshape = simpler.getDefiningOp<onnx::ReshapeOp>();
      if (!reshape) return;
    }
  }

private:
  // Running statistics are written too, so they keep their shape.
  bool isWeight(onnx::ReadOp read) {
    auto param = symbols.lookup<onnx::ParamOp>(read.getParam());
    return param && param.getRole() == "parameter";
  }

  // Whether a slice of the split dimension is a slice of its outermost part.
  static bool slices(onnx::SliceOp slice, const Split &split, Split &ofOperand) {
    int64_t d = split.dim, whole = shapeOf(slice.getX())[d];
    if (slice.getSizes()[d] == whole) {
      ofOperand = split;
      return true;
    }
    int64_t inner = 1;
    for (int64_t size : ArrayRef(split.sizes).drop_front()) inner *= size;
    if (slice.getSteps()[d] != 1 || slice.getStarts()[d] % inner || whole % inner) return false;
    ofOperand = split;
    ofOperand.sizes[0] = whole / inner;
    return true;
  }

  // `first`: nothing was moved yet, so that stopping here gains nothing.
  bool absorbable(Value value, const Split &split, bool first = false) {
    if (--budget < 0) return false;
    Operation *op = value.getDefiningOp();
    if (!op) return false;
    if (onnx::isConstant(op)) return true;
    if (auto read = dyn_cast<onnx::ReadOp>(op)) return isWeight(read);
    if (auto reshape = dyn_cast<onnx::ReshapeOp>(op)) {
      if (first) return false; // reshapes of reshapes are composed already
      Dims target = splitShape(reshape.getShape(), split);
      for (const Split &left : splitsOf(shapeOf(reshape.getX()), target))
        if (!absorbable(reshape.getX(), left)) return false;
      return true;
    }
    if (auto slice = dyn_cast<onnx::SliceOp>(op)) {
      Split ofOperand;
      return slices(slice, split, ofOperand) && absorbable(slice.getX(), ofOperand);
    }
    if (auto view = dyn_cast<onnx::StridedViewOpInterface>(op)) {
      Dims dims = view.getStridedMap().dims;
      auto at = llvm::find(dims, split.dim);
      return at == dims.end() || absorbable(op->getOperand(0), {at - dims.begin(), split.sizes});
    }
    if (auto gather = dyn_cast<onnx::GatherOp>(op)) {
      if (gather.getBatchDims()) return false;
      int64_t at = split.dim - int64_t(gather.getAxis());
      return at >= 0 && at < rankOf(gather.getIndices()) && absorbable(gather.getIndices(), {at, split.sizes});
    }
    if (auto contract = dyn_cast<onnx::ContractOp>(op)) {
      int64_t index = contract.getResultIndices()[split.dim];
      auto operandAbsorbs = [&](Value operand, ArrayRef<int64_t> indices) {
        auto at = llvm::find(indices, index);
        return at == indices.end() || absorbable(operand, {at - indices.begin(), split.sizes});
      };
      return operandAbsorbs(contract.getLhs(), contract.getLhsIndices()) &&
             operandAbsorbs(contract.getRhs(), contract.getRhsIndices());
    }
    if (onnx::isPointwise(op))
      return llvm::all_of(op->getOperands(), [&](Value operand) { return absorbable(operand, split); });
    return false;
  }

  // The value with its dimension split; users of the old one read a reshape of the new one.
  Value splitValue(Value value, const Split &split) {
    Operation *op = value.getDefiningOp();
    OpBuilder builder(op);
    CoreBuilder b(builder, op->getLoc());
    if (auto reshape = dyn_cast<onnx::ReshapeOp>(op)) {
      Value source = reshape.getX();
      Dims target = splitShape(reshape.getShape(), split);
      const SmallVector<Split> splits = splitsOf(shapeOf(source), target);
      for (const Split &left : llvm::reverse(splits)) source = splitValue(source, left);
      return b.reshape(source, target);
    }
    if (onnx::isConstant(op)) { // each user has its own view
      builder.setInsertionPointAfter(op);
      return b.reshape(value, splitShape(shapeOf(value), split));
    }
    Value made = build(op, split, b);
    for (NamedAttribute mark : op->getDiscardableAttrs())
      if (Operation *now = made.getDefiningOp()) now->setAttr(mark.getName(), mark.getValue());
    value.replaceAllUsesWith(b.reshape(made, shapeOf(value)));
    return made;
  }

  Value build(Operation *op, const Split &split, CoreBuilder &b) {
    OpBuilder &builder = b.builder;
    auto list = [&](ArrayRef<int64_t> values) { return builder.getDenseI64ArrayAttr(values); };
    Dims shape = splitShape(shapeOf(op->getResult(0)), split);
    int64_t more = int64_t(split.sizes.size()) - 1;
    if (auto read = dyn_cast<onnx::ReadOp>(op)) return viewParameter(read, shape, builder);
    if (auto transpose = dyn_cast<onnx::TransposeOp>(op)) {
      int64_t from = transpose.getPerm()[split.dim];
      Value x = splitValue(transpose.getX(), {from, split.sizes});
      Dims perm;
      for (int64_t d : transpose.getPerm()) {
        if (d == from)
          for (int64_t i = 0; i <= more; ++i) perm.push_back(from + i);
        else
          perm.push_back(d > from ? d + more : d);
      }
      return b.transpose(x, perm);
    }
    if (auto broadcast = dyn_cast<onnx::BroadcastOp>(op)) {
      Value x = broadcast.getX();
      Dims dims;
      for (auto [i, d] : llvm::enumerate(broadcast.getDims())) {
        if (d == split.dim) {
          x = splitValue(x, {int64_t(i), split.sizes});
          for (int64_t k = 0; k <= more; ++k) dims.push_back(d + k);
        } else {
          dims.push_back(d > split.dim ? d + more : d);
        }
      }
      return b.create<onnx::BroadcastOp>(x, list(shape), list(dims));
    }
    if (auto slice = dyn_cast<onnx::SliceOp>(op)) {
      Split ofOperand;
      slices(slice, split, ofOperand);
      Value x = splitValue(slice.getX(), ofOperand);
      int64_t inner = 1;
      for (int64_t size : ArrayRef(split.sizes).drop_front()) inner *= size;
      auto spread = [&](ArrayRef<int64_t> values, ArrayRef<int64_t> ofSplit) {
        Dims result(values.take_front(split.dim));
        llvm::append_range(result, ofSplit);
        llvm::append_range(result, values.drop_front(split.dim + 1));
        return result;
      };
      Dims zeros(split.sizes.size(), 0), ones(split.sizes.size(), 1);
      zeros[0] = slice.getStarts()[split.dim] / inner;
      return b.create<onnx::SliceOp>(x, list(spread(slice.getStarts(), zeros)), list(shape),
                                     list(spread(slice.getSteps(), ones)));
    }
    if (auto gather = dyn_cast<onnx::GatherOp>(op)) {
      Value indices = splitValue(gather.getIndices(), {split.dim - int64_t(gather.getAxis()), split.sizes});
      return b.gather(gather.getTable(), indices, int64_t(gather.getAxis()), 0, int64_t(gather.getPaddingRow()));
    }
    if (auto contract = dyn_cast<onnx::ContractOp>(op)) {
      int64_t index = contract.getResultIndices()[split.dim], fresh = 0;
      for (ArrayRef<int64_t> indices : {contract.getLhsIndices(), contract.getRhsIndices()})
        for (int64_t i : indices) fresh = std::max(fresh, i + 1);
      auto renamed = [&](ArrayRef<int64_t> indices) {
        Dims result;
        for (int64_t i : indices) {
          result.push_back(i);
          if (i == index)
            for (int64_t k = 0; k < more; ++k) result.push_back(fresh + k);
        }
        return result;
      };
      auto operand = [&](unsigned which, ArrayRef<int64_t> indices) {
        auto at = llvm::find(indices, index);
        return at == indices.end() ? contract->getOperand(which)
                                   : splitValue(contract->getOperand(which), {at - indices.begin(), split.sizes});
      };
      Value lhs = operand(0, contract.getLhsIndices()), rhs = operand(1, contract.getRhsIndices());
      return b.create<onnx::ContractOp>(lhs, rhs, list(renamed(contract.getLhsIndices())),
                                        list(renamed(contract.getRhsIndices())),
                                        list(renamed(contract.getResultIndices())));
    }
    Values operands; // elementwise; an operand may have become a reshape of what an earlier one was split into
    for (unsigned i = 0; i < op->getNumOperands(); ++i) operands.push_back(splitValue(op->getOperand(i), split));
    Operation *copy = builder.clone(*op);
    copy->setOperands(operands);
    copy->getResult(0).setType(typeOf(op->getResult(0)).clone(shape));
    return copy->getResult(0);
  }

  Value viewParameter(onnx::ReadOp read, ArrayRef<int64_t> shape, OpBuilder &builder) {
    auto param = symbols.lookup<onnx::ParamOp>(read.getParam());
    auto type = cast<RankedTensorType>(param.getType());
    if (!param.getOriginalShapeAttr()) param.setOriginalShapeAttr(builder.getDenseI64ArrayAttr(type.getShape()));
    param.setTypeAttr(TypeAttr::get(type.clone(shape)));
    return onnx::ReadOp::create(builder, read.getLoc(), type.clone(shape), read.getParamAttr());
  }

  SymbolTable &symbols;
  int budget = 0;
};

struct PushReshapes : impl::PushReshapesBase<PushReshapes> {
  void runOnOperation() override {
    auto function = getOperation().lookupSymbol<func::FuncOp>("model");
    if (!function) return;
    SymbolTable symbols(getOperation());
    Pusher pusher(symbols);
    SmallVector<onnx::ReshapeOp> reshapes(function.getOps<onnx::ReshapeOp>());
    try {
      for (onnx::ReshapeOp reshape : reshapes)
        if (!reshape->use_empty()) pusher.push(reshape);
    } catch (const Failure &) {
      signalPassFailure();
    }
  }
};

} // namespace
} // namespace cleave::normalize
