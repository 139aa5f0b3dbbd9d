#include "compiler/attention/attention.h"
#include "compiler/attention/sequence_layout.h"
#include "dialects/onnx/formula.h"
#include "dialects/onnx/kinds.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using cleave::dist::Factor;
using cleave::dist::FactorRule;
using cleave::onnx::tensorType;

namespace cleave::attention {
#define GEN_PASS_DEF_BALANCESEQUENCE
#include "compiler/attention/Passes.h.inc"

namespace {

// All dimensions of one function that are indexed by the sequence.
class SequenceDimensions {
public:
  using Entry = std::pair<Value, int64_t>;

  // False: an operation among them goes by position.
  bool spread(func::FuncOp function) {
    for (auto attention : function.getOps<onnx::AttentionOp>())
      if (attention.getCausal() && !enter(attention)) return false;
    for (auto attention : function.getOps<onnx::ScaledAttentionOp>())
      if (attention.getBand().isCausal()) enter(attention);
    while (!open.empty()) {
      auto [value, dim] = open.pop_back_val();
      if (!visitMaker(value, dim)) return false;
      for (OpOperand &use : value.getUses())
        if (!visitUse(use, dim)) return false;
    }
    return true;
  }
  ArrayRef<Entry> sources() const { return found; }

private:
  void add(Value value, int64_t dim) {
    if (dim >= 0 && known.insert({value, dim})) open.push_back({value, dim});
  }

  // Attention ties the positions of its queries to those of its keys.
  bool enter(onnx::AttentionOp op) {
    for (Region *region : {&op.getScore(), &op.getWeigh()})
      if (!region->getOps<onnx::RandomUniformOp>().empty()) return false;
    for (auto [x, query, key] : llvm::zip_equal(op.getXs(), op.getQueryDims(), op.getKeyDims())) {
      add(x, query);
      add(x, key);
    }
    int64_t query = op.getScoreQuery(), key = op.getScoreKey();
    add(op.getOut(), op.getOutQuery());
    add(op.getMax(), query - (key < query));
    add(op.getSum(), query - (key < query));
    return true;
  }
  bool enter(onnx::ScaledAttentionOp op) {
    for (Value x : {op.getQuery(), op.getKey(), op.getValue(), op.getOut()}) add(x, 1);
    add(op.getStats(), 2);
    return true;
  }
  // On a ring it has no bias.
  static bool isPosition(onnx::ScaledAttentionOp op, Value value, int64_t dim) {
    return dim == (value == op.getStats() ? 2 : 1);
  }
  static bool countsSequence(onnx::AttentionOp op, unsigned operand, int64_t dim) {
    return op.getQueryDims()[operand] == dim || op.getKeyDims()[operand] == dim;
  }

  bool visitMaker(Value value, int64_t dim) {
    Operation *op = value.getDefiningOp();
    if (isa_and_present<onnx::RandomUniformOp>(op)) return false;
    if (auto attention = dyn_cast_or_null<onnx::AttentionOp>(op)) return enter(attention);
    if (auto attention = dyn_cast_or_null<onnx::ScaledAttentionOp>(op); attention && isPosition(attention, value, dim))
      return enter(attention);
    if (isSplat(value)) return true;
    auto iota = dyn_cast_or_null<onnx::IotaOp>(op);
    if (iota && static_cast<int64_t>(iota.getDim()) != dim) return true;
    if (!op || iota || onnx::isResident(op)) {
      found.push_back({value, dim});
      return true;
    }
    auto rules = dyn_cast<onnx::FactorRuleOpInterface>(op);
    return rules && follow(op, rules.getFactorRule(), rules.getFactorRule().results[0][dim]);
  }

  bool visitUse(OpOperand &use, int64_t dim) {
    Operation *op = use.getOwner();
    if (auto attention = dyn_cast<onnx::AttentionOp>(op))
      return countsSequence(attention, use.getOperandNumber(), dim) && enter(attention);
    if (auto attention = dyn_cast<onnx::ScaledAttentionOp>(op); attention && isPosition(attention, use.get(), dim))
      return enter(attention);
    auto rules = dyn_cast<onnx::FactorRuleOpInterface>(op);
    if (!rules) return false; // a result or a write: the order would be seen
    FactorRule rule = rules.getFactorRule();
    bool lookedUp = isa<onnx::GatherOp>(op) && use.getOperandNumber() == 0 &&
                    dim == static_cast<int64_t>(cast<onnx::GatherOp>(op).getAxis());
    return !lookedUp && !isa<onnx::ScatterAddOp>(op) && follow(op, rule, rule.operands[use.getOperandNumber()][dim]);
  }

  // All dimensions that one factor of an operation indexes.
  bool follow(Operation *op, const FactorRule &rule, const std::vector<int64_t> &factors) {
    if (factors.size() != 1 || rule.factors[factors[0]].kind == Factor::Whole) return false;
    auto visit = [&](Value value, const dist::TensorFactors &dims) {
      for (auto [dim, own] : llvm::enumerate(dims)) {
        if (!llvm::is_contained(own, factors[0])) continue;
        if (own.size() != 1) return false;
        add(value, static_cast<int64_t>(dim));
      }
      return true;
    };
    for (auto [value, dims] : llvm::zip_equal(op->getOperands(), rule.operands))
      if (!visit(value, dims)) return false;
    for (auto [value, dims] : llvm::zip_equal(op->getResults(), rule.results))
      if (!visit(value, dims)) return false;
    return true;
  }

  llvm::SetVector<Entry> known;
  SmallVector<Entry> open, found;
};

struct BalanceSequence : impl::BalanceSequenceBase<BalanceSequence> {
  using Base::Base;
  void runOnOperation() override {
    auto model = getOperation().lookupSymbol<func::FuncOp>("model");
    if (!model) return;
    const bool isCausal =
        llvm::any_of(model.getOps<onnx::AttentionOp>(), [](onnx::AttentionOp op) { return op.getCausal(); }) ||
        llvm::any_of(model.getOps<onnx::ScaledAttentionOp>(),
                     [](onnx::ScaledAttentionOp op) { return op.getBand().isCausal(); });
    SequenceDimensions sequence;
    if (blocks < 2 || !isCausal || !sequence.spread(model)) return;
    for (auto [value, dim] : sequence.sources())
      if (tensorType(value).getDimSize(dim) % (2 * blocks)) return;
    for (auto [value, dim] : sequence.sources()) reorder(model, value, dim, blocks);
    onnx::headTailAttr.set(getOperation());
  }

private:
  // Chunks p and 2n - 1 - p side by side, looked up, so that every device takes its own.
  void reorder(func::FuncOp model, Value value, int64_t dim, int64_t blocks) {
    OpBuilder builder(model.getContext());
    builder.setInsertionPointToStart(&model.getBody().front());
    if (Operation *op = value.getDefiningOp()) builder.setInsertionPointAfter(op);
    place::Stamp marker(place::Phase::Forward);
    builder.setListener(&marker);
    Location loc = NameLoc::get(builder.getStringAttr("sequence order"));
    onnx::Formula f(builder, loc);
    SmallVector<int64_t> order, shape(tensorType(value).getShape());
    for (int64_t block = 0; block < blocks; ++block) order.append({block, 2 * blocks - 1 - block});
    SmallVector<int64_t> chunks(shape);
    chunks[dim] /= 2 * blocks;
    chunks.insert(chunks.begin() + dim, 2 * blocks);
    auto type = RankedTensorType::get({2 * blocks}, builder.getI64Type());
    auto cut = onnx::ReshapeOp::create(builder, loc, value, chunks);
    Value indices = f.make<onnx::ConstantOp>(DenseElementsAttr::get(type, ArrayRef(order)));
    Value moved = f.make<onnx::GatherOp>(cut, indices, dim, ArrayAttr(), IntegerAttr());
    value.replaceAllUsesExcept(f.make<onnx::ReshapeOp>(moved, shape), cut);
  }
};

} // namespace

} // namespace cleave::attention
