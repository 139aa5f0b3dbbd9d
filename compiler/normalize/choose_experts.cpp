#include "compiler/normalize/along_axis.h"
#include "compiler/normalize/normalize.h"
#include "dialects/onnx/kinds.h"
#include "mlir/IR/Iterators.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include <map>

using namespace mlir;
namespace cleave::normalize {
#define GEN_PASS_DEF_CHOOSEEXPERTS
#include "compiler/normalize/Passes.h.inc"

namespace {

// What a dimension of a value is: that of the experts, or one of the rows that choose (counted from 0), or another.
constexpr int64_t expert = -1, other = -2;

// Values as they are for the expert that each row chooses, from the weights on.
class ChosenExpert {
public:
  // `groups`: the expert of each row, from 0 on.
  ChosenExpert(CoreBuilder &b, Value groups) : b(b), groups(groups), rows(shapeOf(groups)) {}

  bool hasMatrices = false; // a product with a matrix of each expert was met

  // [rows.., other dimensions..] of a value whose dimensions are `kinds`; null: it cannot be told for one expert.
  Value of(Value value, ArrayRef<int64_t> kinds) {
    auto [at, isNew] = known.try_emplace({value.getAsOpaquePointer(), {kinds.begin(), kinds.end()}});
    if (isNew) at->second = compute(value, kinds);
    return at->second;
  }

private:
  CoreBuilder &b;
  Value groups;
  Dims rows;
  std::map<std::pair<void *, std::vector<int64_t>>, Value> known;

  DenseI64ArrayAttr array(ArrayRef<int64_t> values) { return b.builder.getDenseI64ArrayAttr(values); }
  int64_t rowCount() const { return static_cast<int64_t>(rows.size()); }

  // [rows.., others..] of a value that has some of the rows and no experts (or those as others).
  Value spread(Value value, ArrayRef<int64_t> kinds) {
    Dims perm, dims, shape(rows);
    for (int64_t row = 0; row < rowCount(); ++row)
      if (auto *at = llvm::find(kinds, row); at != kinds.end()) perm.push_back(at - kinds.begin()), dims.push_back(row);
    for (auto [d, kind] : llvm::enumerate(kinds))
      if (kind < 0) {
        perm.push_back(static_cast<int64_t>(d)), dims.push_back(static_cast<int64_t>(shape.size()));
        shape.push_back(shapeOf(value)[d]);
      }
    return b.create<onnx::BroadcastOp>(b.transpose(value, perm), array(shape), array(dims));
  }

  Value compute(Value value, ArrayRef<int64_t> kinds) {
    if (!llvm::is_contained(kinds, expert)) return spread(value, kinds);
    if (auto along = alongAxis(value); along && along->dim >= 0 && kinds[along->dim] == expert &&
                                       along->values == countUp(static_cast<int64_t>(along->values.size())))
      return ofNumbers(value, kinds);
    Operation *op = value.getDefiningOp();
    if (!llvm::any_of(kinds, [](int64_t kind) { return kind >= 0; })) return lookup(value, kinds);
    if (!op) return picked(value, kinds);
    if (auto broadcast = dyn_cast<onnx::BroadcastOp>(op)) return ofBroadcast(broadcast, kinds);
    if (auto transpose = dyn_cast<onnx::TransposeOp>(op)) return ofTranspose(transpose, kinds);
    if (auto reshape = dyn_cast<onnx::ReshapeOp>(op)) return ofReshape(reshape, kinds);
    if (auto slice = dyn_cast<onnx::SliceOp>(op)) return ofSlice(slice, kinds);
    if (auto contract = dyn_cast<onnx::ContractOp>(op)) return ofContract(contract, kinds);
    if (onnx::isReduction(op)) return ofReduction(op, kinds);
    if (onnx::isPointwise(op)) return ofPointwise(op, kinds);
    return picked(value, kinds);
  }

  // The numbers 0, 1, .. of the experts.
  Value ofNumbers(Value value, ArrayRef<int64_t> kinds) {
    Dims shape(rows), dims = countUp(rowCount());
    for (auto [kind, size] : llvm::zip_equal(kinds, shapeOf(value)))
      if (kind == other) shape.push_back(size);
    return b.create<onnx::BroadcastOp>(b.cast(groups, elementOf(value)), array(shape), array(dims));
  }
  // A table of the experts.
  Value lookup(Value value, ArrayRef<int64_t> kinds) {
    const int64_t axis = llvm::find(kinds, expert) - kinds.begin();
    Dims perm;
    for (int64_t row = 0; row < rowCount(); ++row) perm.push_back(axis + row);
    for (int64_t d = 0; d < rankOf(value); ++d)
      if (d != axis) perm.push_back(d < axis ? d : d + rowCount() - 1);
    return b.transpose(b.gather(value, groups, axis), perm);
  }
  // One number for each row and expert, of which each row takes one.
  Value picked(Value value, ArrayRef<int64_t> kinds) {
    if (llvm::is_contained(kinds, other)) return {};
    Value all = spread(value, kinds), index = b.indexAlong(shapeOf(all), rowCount());
    Value hit = b.binary<onnx::EqualOp>(b.insertOnes(b.cast(groups, elementOf(index)), {rowCount()}), index);
    const bool isBit = elementOf(all).isInteger(1);
    if (isBit) all = b.cast(all, b.builder.getI32Type());
    Value one = b.reduceSum(b.where(hit, all, b.scalar(all, 0)), {rowCount()}, false);
    return isBit ? b.binary<onnx::GreaterOp>(one, b.scalar(one, 0)) : one;
  }

  Value ofBroadcast(onnx::BroadcastOp op, ArrayRef<int64_t> kinds) {
    Dims inner, shape(rows), dims = countUp(rowCount());
    for (int64_t d : op.getDims()) inner.push_back(kinds[d]);
    for (auto [d, kind] : llvm::enumerate(kinds)) {
      if (kind != other) continue;
      if (llvm::is_contained(op.getDims(), static_cast<int64_t>(d))) dims.push_back(static_cast<int64_t>(shape.size()));
      shape.push_back(op.getShape()[d]);
    }
    Value x = of(op.getX(), inner);
    return x ? b.create<onnx::BroadcastOp>(x, array(shape), array(dims)) : Value();
  }
  Value ofTranspose(onnx::TransposeOp op, ArrayRef<int64_t> kinds) {
    Dims inner(kinds), perm = countUp(rowCount());
    for (auto [to, from] : llvm::enumerate(op.getPerm())) inner[from] = kinds[to];
    for (auto [to, from] : llvm::enumerate(op.getPerm()))
      if (kinds[to] == other)
        perm.push_back(rowCount() + llvm::count(ArrayRef<int64_t>(inner).take_front(from), other));
    Value x = of(op.getX(), inner);
    return x ? b.transpose(x, perm) : Value();
  }
  // Experts and rows keep their dimensions.
  Value ofReshape(onnx::ReshapeOp op, ArrayRef<int64_t> kinds) {
    ArrayRef<int64_t> from = shapeOf(op.getX()), to = op.getShape();
    Dims inner(from.size(), other), shape(rows);
    for (auto [d, kind] : llvm::enumerate(kinds)) {
      if (kind == other) {
        shape.push_back(to[d]);
        continue;
      }
      int64_t before = 1, seen = 1;
      for (int64_t size : to.take_front(d)) before *= size;
      size_t at = 0;
      while (at < from.size() && (seen != before || from[at] != to[d] || inner[at] != other)) seen *= from[at++];
      if (at == from.size()) return {};
      inner[at] = kind;
    }
    Value x = of(op.getX(), inner);
    return x ? b.reshape(x, shape) : Value();
  }
  Value ofSlice(onnx::SliceOp op, ArrayRef<int64_t> kinds) {
    Dims starts(rows.size(), 0), sizes(rows), steps(rows.size(), 1);
    for (auto [d, kind] : llvm::enumerate(kinds)) {
      if (kind == other)
        starts.push_back(op.getStarts()[d]), sizes.push_back(op.getSizes()[d]), steps.push_back(op.getSteps()[d]);
      else if (op.getSizes()[d] != shapeOf(op.getX())[d])
        return {};
    }
    Value x = of(op.getX(), kinds);
    return x ? b.create<onnx::SliceOp>(x, array(starts), array(sizes), array(steps)) : Value();
  }
  Value ofReduction(Operation *op, ArrayRef<int64_t> kinds) {
    auto axes = op->getAttrOfType<DenseI64ArrayAttr>("axes").asArrayRef();
    Dims inner(kinds), own;
    for (int64_t axis : axes) inner.insert(inner.begin() + axis, other);
    for (int64_t axis : axes) own.push_back(rowCount() + llvm::count(ArrayRef<int64_t>(inner).take_front(axis), other));
    Value x = of(op->getOperand(0), inner);
    if (!x) return {};
    if (isa<onnx::ReduceSumOp>(op)) return b.reduceSum(x, own, false);
    return isa<onnx::ReduceMaxOp>(op) ? b.reduceMax(x, own, false) : b.reduceMin(x, own, false);
  }
  Value ofPointwise(Operation *op, ArrayRef<int64_t> kinds) {
    Values operands;
    for (Value operand : op->getOperands()) {
      if (shapeOf(operand) != shapeOf(op->getResult(0))) return {};
      operands.push_back(of(operand, kinds));
      if (!operands.back()) return {};
    }
    Operation *same = b.builder.clone(*op);
    same->setOperands(operands);
    same->getResult(0).setType(typeOf(op->getResult(0)).clone(shapeOf(operands[0])));
    return same->getResult(0);
  }

  // A product for each expert: of the expert's matrix where it is a table of the experts.
  Value ofContract(onnx::ContractOp op, ArrayRef<int64_t> kinds) {
    ArrayRef<int64_t> letters = op.getResultIndices();
    int64_t fresh = 0;
    for (ArrayRef<int64_t> indices : {op.getLhsIndices(), op.getRhsIndices()})
      for (int64_t index : indices) fresh = std::max(fresh, index + 1);
    Dims rowLetters;
    for (int64_t row = 0; row < rowCount(); ++row) {
      auto *at = llvm::find(kinds, row);
      rowLetters.push_back(at == kinds.end() ? fresh++ : letters[at - kinds.begin()]);
    }
    auto kindOf = [&](int64_t letter) {
      auto *at = llvm::find(letters, letter);
      return at == letters.end() ? other : kinds[at - letters.begin()];
    };
    auto operand = [&](Value value, ArrayRef<int64_t> own) {
      Dims inner, renamed(rowLetters);
      for (int64_t letter : own) inner.push_back(kindOf(letter));
      if (!llvm::is_contained(inner, expert)) return std::pair(value, Dims(own));
      for (auto [letter, kind] : llvm::zip_equal(own, inner))
        if (kind == other) renamed.push_back(letter);
      const bool isTable = !llvm::any_of(inner, [](int64_t kind) { return kind >= 0; });
      const bool isSummed = llvm::any_of(own, [&](int64_t l) { return !llvm::is_contained(letters, l); });
      const bool isKept =
          llvm::any_of(own, [&](int64_t l) { return llvm::is_contained(letters, l) && kindOf(l) == other; });
      hasMatrices |= isTable && isSummed && isKept;
      return std::pair(of(value, inner), renamed);
    };
    auto [lhs, left] = operand(op.getLhs(), op.getLhsIndices());
    auto [rhs, right] = operand(op.getRhs(), op.getRhsIndices());
    if (!lhs || !rhs) return {};
    Dims result(rowLetters);
    for (auto [letter, kind] : llvm::zip_equal(letters, kinds))
      if (kind == other) result.push_back(letter);
    return b.contract(lhs, rhs, left, right, result);
  }
};

// An equality that holds wherever the condition does: of a row's choice and the experts' numbers.
struct Choice {
  Value groups; // of each row
  Dims kinds;   // of the condition's dimensions
};
std::optional<Choice> choiceIn(Value condition, Dims places, int64_t rank, int depth = 12) {
  Operation *op = condition.getDefiningOp();
  if (!op || depth == 0) return std::nullopt;
  auto next = [&](Value value, const Dims &at) { return choiceIn(value, at, rank, depth - 1); };
  if (auto broadcast = dyn_cast<onnx::BroadcastOp>(op)) {
    Dims inner;
    for (int64_t d : broadcast.getDims()) inner.push_back(places[d]);
    return next(broadcast.getX(), inner);
  }
  if (auto transpose = dyn_cast<onnx::TransposeOp>(op)) {
    Dims inner(places);
    for (auto [to, from] : llvm::enumerate(transpose.getPerm())) inner[from] = places[to];
    return next(transpose.getX(), inner);
  }
  if (auto reshape = dyn_cast<onnx::ReshapeOp>(op)) { // ones that come or go
    Dims inner, sizes;
    for (auto [place, size] : llvm::zip_equal(places, reshape.getShape()))
      if (size != 1) inner.push_back(place), sizes.push_back(size);
    Dims all;
    size_t at = 0;
    for (int64_t size : shapeOf(reshape.getX())) {
      if (size != 1 && (at == sizes.size() || sizes[at] != size)) return std::nullopt;
      all.push_back(size == 1 ? -1 : inner[at++]);
    }
    return next(reshape.getX(), all);
  }
  if (isa<onnx::AndOp, onnx::MulOp>(op)) {
    auto first = next(op->getOperand(0), places);
    return first ? first : next(op->getOperand(1), places);
  }
  if (isa<onnx::CastOp>(op)) return next(op->getOperand(0), places);
  if (auto where = dyn_cast<onnx::WhereOp>(op))
    return onnx::repeatedNumber(where.getB()) == 0.0 ? next(where.getCondition(), places) : std::nullopt;
  if (isa<onnx::GreaterOp>(op))
    return onnx::repeatedNumber(op->getOperand(1)) == 0.0 ? next(op->getOperand(0), places) : std::nullopt;
  if (isa<onnx::NotOp>(op)) {
    auto equal = op->getOperand(0).getDefiningOp<onnx::EqualOp>();
    return equal && onnx::repeatedNumber(equal.getB()) == 0.0 ? next(equal.getA(), places) : std::nullopt;
  }
  if (!isa<onnx::EqualOp>(op)) return std::nullopt;
  for (int side : {0, 1}) {
    Value numbers = op->getOperand(unsigned(side)), chosen = op->getOperand(unsigned(1 - side));
    auto along = alongAxis(numbers);
    if (!along || along->dim < 0 || places[along->dim] < 0 || along->values.size() < 2 ||
        along->values != countUp(static_cast<int64_t>(along->values.size())))
      continue;
    Dims of = countUp(rankOf(chosen));
    if (auto broadcast = chosen.getDefiningOp<onnx::BroadcastOp>())
      chosen = broadcast.getX(), of = Dims(broadcast.getDims());
    if (llvm::is_contained(of, along->dim) || isFloatTensor(chosen)) continue;
    Choice choice{chosen, Dims(rank, other)};
    choice.kinds[places[along->dim]] = expert;
    for (auto [row, d] : llvm::enumerate(of)) {
      if (places[d] < 0) return std::nullopt;
      choice.kinds[places[d]] = static_cast<int64_t>(row);
    }
    return choice;
  }
  return std::nullopt;
}

struct ChooseExperts : impl::ChooseExpertsBase<ChooseExperts> {
  void runOnOperation() override {
    SmallVector<onnx::ReduceSumOp> sums;
    getOperation().walk([&](onnx::ReduceSumOp sum) { sums.push_back(sum); });
    for (onnx::ReduceSumOp sum : sums) replace(sum);
    getOperation().walk<WalkOrder::PostOrder, ReverseIterator>([](Operation *op) {
      if (isOpTriviallyDead(op)) op->erase();
    });
  }

  static void replace(onnx::ReduceSumOp sum) {
    // The sums of sums as one: dimensions of the first operand that are left.
    Value x = sum.getX();
    Dims kept = countUp(rankOf(x));
    llvm::erase_if(kept, [&](int64_t d) { return llvm::is_contained(sum.getAxes(), d); });
    while (auto inner = x.getDefiningOp<onnx::ReduceSumOp>()) {
      x = inner.getX();
      Dims left = countUp(rankOf(x));
      llvm::erase_if(left, [&](int64_t d) { return llvm::is_contained(inner.getAxes(), d); });
      for (int64_t &d : kept) d = left[d];
    }
    auto where = x.getDefiningOp<onnx::WhereOp>();
    if (!where || !isFloatTensor(x) || onnx::repeatedNumber(where.getB()) != 0.0) return;
    auto choice = choiceIn(where.getCondition(), countUp(rankOf(x)), rankOf(x));
    if (!choice) return;
    const int64_t at = llvm::find(choice->kinds, expert) - choice->kinds.begin();
    if (llvm::is_contained(kept, at)) return;

    OpBuilder builder(sum);
    SmallVector<Operation *> made;
    CoreBuilder b(builder, sum.getLoc());
    // A choice of none of them is of any, since the condition does not hold then.
    Value groups = choice->groups, most = b.scalar(groups, double(shapeOf(x)[at] - 1));
    groups = b.binary<onnx::MaxOp>(b.binary<onnx::MinOp>(groups, most), b.scalar(groups, 0));
    ChosenExpert chosen(b, groups);
    Value condition = chosen.of(where.getCondition(), choice->kinds), y = chosen.of(where.getA(), choice->kinds);
    if (!condition || !y || !chosen.hasMatrices) return; // what was made is dead
    y = b.where(condition, y, b.scalar(y, 0));
    // [rows.., others..]: which dimension of the sum's operand each is
    Dims places, axes, left;
    for (int64_t row = 0; row < rankOf(groups); ++row)
      places.push_back(llvm::find(choice->kinds, row) - choice->kinds.begin());
    for (auto [d, kind] : llvm::enumerate(choice->kinds))
      if (kind == other) places.push_back(static_cast<int64_t>(d));
    for (auto [i, place] : llvm::enumerate(places))
      llvm::is_contained(kept, place) ? left.push_back(place) : axes.push_back(static_cast<int64_t>(i));
    y = b.reduceSum(y, axes, false);
    Dims perm;
    for (int64_t d : kept) perm.push_back(llvm::find(left, d) - left.begin());
    sum.getY().replaceAllUsesWith(b.transpose(y, perm));
  }
};

} // namespace
} // namespace cleave::normalize
