#include "compiler/attention/blocks.h"
#include "compiler/partition/local_attributes.h"
#include "dialects/onnx/kinds.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace cleave::dist;
using cleave::onnx::tensorType;

namespace cleave::attention {
namespace {

SmallVector<int64_t> shapeOf(Value value) { return SmallVector<int64_t>(tensorType(value).getShape()); }

// 0 1 2 ... with `first` dimensions brought to the front.
SmallVector<int64_t> toFront(int64_t rank, ArrayRef<int64_t> first) {
  SmallVector<int64_t> perm(first);
  for (int64_t dim = 0; dim < rank; ++dim)
    if (!llvm::is_contained(first, dim)) perm.push_back(dim);
  return perm;
}

SmallVector<int64_t> shiftByOne(ArrayRef<int64_t> dims) {
  SmallVector<int64_t> shifted;
  for (int64_t dim : dims) shifted.push_back(dim + 1);
  return shifted;
}

SmallVector<int64_t> prepend(int64_t first, ArrayRef<int64_t> rest) {
  SmallVector<int64_t> all{first};
  all.append(rest.begin(), rest.end());
  return all;
}

} // namespace

Value Blocks::split(Value x, SequenceDims dims) {
  SmallVector<int64_t> shape = shapeOf(x);
  int64_t rank = static_cast<int64_t>(shape.size());
  if (dims.query < 0 && dims.key < 0)
    return f.make<onnx::BroadcastOp>(x, prepend(count, shape), shiftByOne(toFront(rank, {})));
  SmallVector<int64_t> cut;
  int64_t query = -1, key = -1; // where the block numbers are
  for (int64_t dim = 0; dim < rank; ++dim) {
    if (dim != dims.query && dim != dims.key) {
      cut.push_back(shape[dim]);
      continue;
    }
    (dim == dims.query ? query : key) = static_cast<int64_t>(cut.size());
    cut.append({count, shape[dim] / count});
  }
  SmallVector<int64_t> first;
  for (int64_t number : {query, key})
    if (number >= 0) first.push_back(number);
  int64_t cutRank = static_cast<int64_t>(cut.size());
  return f.make<onnx::TransposeOp>(f.make<onnx::ReshapeOp>(x, cut), toFront(cutRank, first));
}

Value Blocks::join(Value blocked, RankedTensorType type, SequenceDims dims) {
  if (dims.query < 0 && dims.key < 0) return f.reduceSum(blocked, {0});
  SmallVector<int64_t> first;
  int64_t extra = 0;
  for (int64_t dim = 0; dim < type.getRank(); ++dim)
    if (dim == dims.query || dim == dims.key) first.push_back(dim + extra++);
  if (dims.both() && dims.key < dims.query) std::swap(first[0], first[1]); // the blocks of queries come first
  int64_t rank = type.getRank() + extra;
  SmallVector<int64_t> perm = toFront(rank, first), back(rank);
  for (auto [to, from] : llvm::enumerate(perm)) back[from] = static_cast<int64_t>(to);
  return f.make<onnx::ReshapeOp>(f.make<onnx::TransposeOp>(blocked, back), type.getShape());
}

// [n, n', ...] where n' = (n - turn) mod n.
Value Blocks::hit(ArrayRef<int64_t> shape, int64_t turn) {
  auto type = RankedTensorType::get({count, count}, builder.getI64Type());
  auto index = [&](int64_t dim) {
    return f.make<onnx::IotaOp>(TypeAttr::get(type), builder.getI64IntegerAttr(dim), ArrayAttr());
  };
  Value distance = f.make<onnx::ModOp>(f.sub(index(0), index(1)), f.constant(type, static_cast<double>(count)));
  Value hit = f.make<onnx::EqualOp>(distance, f.constant(type, static_cast<double>(turn % count)));
  return f.make<onnx::BroadcastOp>(hit, shape, ArrayRef<int64_t>{0, 1});
}

Value Blocks::pick(Value table, int64_t turn) {
  auto type = tensorType(table);
  bool logical = type.getElementType().isInteger(1);
  Value values = logical ? f.cast(table, builder.getF32Type()) : table;
  Value picked = f.reduceSum(f.only(hit(type.getShape(), turn), values), {1});
  return logical ? f.cast(picked, type.getElementType()) : picked;
}

Value Blocks::put(Value picked, int64_t turn) {
  SmallVector<int64_t> shape = shapeOf(picked);
  shape.insert(shape.begin() + 1, count);
  return f.only(hit(shape, turn), f.expand(picked, shape, {1}));
}

// A block of the same random numbers as the whole tensor has: drawn for all blocks of a row and picked.
Value Blocks::draw(onnx::RandomUniformOp op, Value key, SequenceDims dims, int64_t turn) {
  auto type = cast<RankedTensorType>(op.getType());
  SmallVector<int64_t> cut, first;
  int64_t query = -1, keys = -1;
  for (int64_t dim = 0; dim < type.getRank(); ++dim) {
    bool sequence = dim == dims.query || dim == dims.key;
    if (sequence) (dim == dims.query ? query : keys) = static_cast<int64_t>(cut.size());
    if (sequence) cut.push_back(count);
    cut.push_back(sequence ? type.getDimSize(dim) / count : type.getDimSize(dim));
  }
  Value all = f.make<onnx::RandomUniformOp>(key, TypeAttr::get(type.clone(cut)), op.getStreamAttr(),
                                            DenseI64ArrayAttr(), ArrayAttr());
  Value table = f.make<onnx::TransposeOp>(all, toFront(static_cast<int64_t>(cut.size()), {query, keys}));
  return pick(table, turn);
}

Value Blocks::cloneForBlocks(Operation *op, ValueRange operands, const FactorRule &rule, const FactorSharding &split,
                             const Sharding &layout, int64_t parts) {
  auto global = tensorType(op->getResult(0));
  Mesh mesh = sequenceMesh(parts);
  std::vector<int64_t> local;
  std::string error;
  Sharding withoutPartial = layout;
  withoutPartial.partial.clear();
  if (!localShape(mesh, withoutPartial, global.getShape().vec(), local, error)) return {};
  Operation *made = builder.clone(*op);
  partition::localizeAttributes(made, mesh, rule, split, local);
  llvm::TypeSwitch<Operation *>(made)
      .Case([&](onnx::BroadcastOp broadcast) {
        broadcast.setShape(prepend(count, broadcast.getShape()));
        broadcast.setDims(prepend(0, shiftByOne(broadcast.getDims())));
      })
      .Case([&](onnx::ReshapeOp reshape) { reshape.setShape(prepend(count, reshape.getShape())); })
      .Case([&](onnx::TransposeOp transpose) { transpose.setPerm(prepend(0, shiftByOne(transpose.getPerm()))); })
      .Case([&](onnx::ContractOp contract) {
        int64_t blockIndex = 0;
        for (ArrayRef<int64_t> indices : {contract.getLhsIndices(), contract.getRhsIndices()})
          for (int64_t used : indices) blockIndex = std::max(blockIndex, used + 1);
        contract.setLhsIndices(prepend(blockIndex, contract.getLhsIndices()));
        contract.setRhsIndices(prepend(blockIndex, contract.getRhsIndices()));
        contract.setResultIndices(prepend(blockIndex, contract.getResultIndices()));
      });
  made->setOperands(operands);
  made->setLoc(loc);
  made->getResult(0).setType(global.clone(prepend(count, local)));
  return made->getResult(0);
}

// How every operation of a region is split: forwards from the arguments, then back, because a broadcast's new dimension
// is known only to those who read it.
DenseMap<Operation *, FactorSharding> Blocks::splits(Region &region, ArrayRef<SequenceDims> dims, int64_t parts) {
  Mesh mesh = sequenceMesh(parts);
  DenseMap<Value, Sharding> layouts;
  DenseMap<Operation *, FactorSharding> found;
  for (auto [argument, where] : llvm::zip_equal(region.getArguments(), dims))
    layouts[argument] = layoutOf(tensorType(argument).getRank(), where);
  auto visit = [&](Operation &op) {
    FactorRule rule = cast<onnx::FactorRuleOpInterface>(op).getFactorRule();
    auto known = [&](Value value) {
      auto layout = layouts.find(value);
      return layout == layouts.end() ? nullptr : &layout->second;
    };
    std::vector<const Sharding *> operands;
    for (Value operand : op.getOperands()) operands.push_back(known(operand));
    FactorSharding split = inferFactorSharding(mesh, rule, operands, {known(op.getResult(0))}, {});
    Sharding result = resultSharding(rule, split, 0);
    result.partial.clear();
    layouts[op.getResult(0)] = result;
    for (auto [index, operand] : llvm::enumerate(op.getOperands()))
      if (operand.getDefiningOp()) layouts[operand] = operandSharding(rule, split, index);
    found[&op] = std::move(split);
  };
  for (Operation &op : region.front())
    if (!onnx::isConstant(&op)) visit(op);
  for (Operation &op : llvm::reverse(region.front()))
    if (!onnx::isConstant(&op)) visit(op);
  return found;
}

Value Blocks::run(Region &region, ValueRange arguments, ValueRange whole, ArrayRef<SequenceDims> dims, Turn turn,
                  SmallVectorImpl<Operation *> *made) {
  Mesh mesh = sequenceMesh(turn.parts);
  DenseMap<Operation *, FactorSharding> split = splits(region, dims, turn.parts);
  DenseMap<Value, Value> blocked, original;
  for (auto [argument, value, before] : llvm::zip_equal(region.getArguments(), arguments, whole)) {
    blocked[argument] = value;
    original[argument] = before;
  }
  // A constant is made where it is read, at the size that is wanted there.
  auto constantBlock = [&](onnx::ConstantOp constant, const Sharding &layout) -> Value {
    auto type = tensorType(constant.getY());
    std::vector<int64_t> local;
    std::string error;
    if (!localShape(mesh, layout, type.getShape().vec(), local, error)) return {};
    auto value = cast<DenseElementsAttr>(constant.getValue()).resizeSplat(type.clone(prepend(count, local)));
    return f.make<onnx::ConstantOp>(value);
  };
  Value result;
  for (Operation &op : region.front()) {
    if (onnx::isConstant(&op)) continue;
    FactorRule rule = cast<onnx::FactorRuleOpInterface>(op).getFactorRule();
    Sharding layout = resultSharding(rule, split[&op], 0);
    if (auto random = dyn_cast<onnx::RandomUniformOp>(op)) {
      blocked[op.getResult(0)] = draw(random, original[random.getKey()], dimsOf(layout), turn.number);
      continue;
    }
    SmallVector<Value> operands;
    for (auto [index, operand] : llvm::enumerate(op.getOperands())) {
      auto constant = operand.getDefiningOp<onnx::ConstantOp>();
      operands.push_back(constant ? constantBlock(constant, operandSharding(rule, split[&op], index))
                                  : blocked[operand]);
      if (!operands.back()) return {};
    }
    result = cloneForBlocks(&op, operands, rule, split[&op], layout, turn.parts);
    if (!result) return {};
    blocked[op.getResult(0)] = result;
    if (made) made->push_back(result.getDefiningOp());
  }
  return result;
}

FailureOr<SmallVector<Value>> differentiate(OpBuilder &builder, ArrayRef<Operation *> line, Value result,
                                            Value gradient, ValueRange wanted) {
  DenseSet<Value> active(wanted.begin(), wanted.end());
  for (Operation *op : line)
    if (onnx::isFloatTensor(op->getResult(0)) && isa<onnx::GradientOpInterface>(op) &&
        llvm::any_of(op->getOperands(), [&](Value operand) { return active.contains(operand); }))
      active.insert(op->getResult(0));
  DenseMap<Value, SmallVector<Value, 1>> found;
  found[result].push_back(gradient);
  auto total = [&](Value value) {
    auto terms = found.find(value);
    return terms == found.end() ? Value() : onnx::Formula(builder, value.getLoc()).sum(terms->second);
  };
  for (Operation *op : llvm::reverse(line)) {
    Value own = active.contains(op->getResult(0)) ? total(op->getResult(0)) : Value();
    if (!own) continue;
    SmallVector<bool> flags;
    for (Value operand : op->getOperands()) flags.push_back(active.contains(operand));
    SmallVector<Value> gradients;
    if (failed(cast<onnx::GradientOpInterface>(op).buildGradient(builder, {own}, flags, gradients))) return failure();
    for (auto [operand, grad, flag] : llvm::zip_equal(op->getOperands(), gradients, flags))
      if (grad && flag) found[operand].push_back(grad);
  }
  SmallVector<Value> gradients;
  for (Value value : wanted) gradients.push_back(total(value));
  return gradients;
}

} // namespace cleave::attention
