#include "compiler/attention/attention.h"
#include "compiler/attention/band_table.h"
#include "compiler/attention/sequence_layout.h"
#include "compiler/attention/softmax_pattern.h"
#include "dialects/onnx/facets/rule_building.h"
#include "dialects/onnx/formula.h"
#include "dialects/onnx/kinds.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace cleave::dist;

namespace cleave::attention {
#define GEN_PASS_DEF_RECOGNIZEATTENTION
#include "compiler/attention/Passes.h.inc"

namespace {

// A score this low gives exp(..) = 0 beside every score that training reaches.
constexpr double maskedOut = -1e8;

// The attention that one softmax's surroundings come to.
class Candidate {
public:
  Candidate(const Softmax &softmax, int64_t blocks, int64_t query)
      : softmax(softmax), blocks(blocks), mesh(sequenceMesh(blocks)), scoreDims{query, softmax.axis} {}

  bool collect() {
    int64_t rank = cast<RankedTensorType>(softmax.scores.getType()).getRank();
    Sharding layout = layoutOf(rank, scoreDims);
    if (!collect(softmax.scores, layout, score, nullptr) || !isProduct) return false;
    final = findWeighing();
    if (!final) return false;
    FactorRule rule = final.getFactorRule();
    bool left = weighed(final.getLhs());
    Value p = left ? final.getLhs() : final.getRhs(), v = left ? final.getRhs() : final.getLhs();
    if (weighed(v)) return false;
    std::vector<const Sharding *> known{left ? &layout : nullptr, left ? nullptr : &layout};
    FactorSharding split = inferFactorSharding(mesh, rule, known, {nullptr}, {});
    Sharding out = resultSharding(rule, split, 0);
    if (out.partial != Axes{"key"} || dimsOf(out).query < 0 || dimsOf(out).key >= 0) return false;
    outQuery = dimsOf(out).query;
    layouts[softmax.probabilities] = layout;
    OpOperand &pUse = final->getOpOperand(left ? 0 : 1), &vUse = final->getOpOperand(left ? 1 : 0);
    if (!collect(p, layout, weigh, &pUse)) return false;
    if (!collect(v, operandSharding(rule, split, left ? 1 : 0), weigh, &vUse)) return false;
    weigh.insert(final);
    return true;
  }

  void build() {
    place::Stamp marker(place::phaseOf(final));
    OpBuilder builder(final, &marker);
    Location loc = final.getLoc();
    SmallVector<Value> xs = operands;
    SmallVector<int64_t> queryDims, keyDims;
    for (SequenceDims dims : operandDims) {
      queryDims.push_back(dims.query);
      keyDims.push_back(dims.key);
    }
    if (!tables.empty() || !positions.empty()) { // two more operands: the positions of the queries and of the keys
      auto type = RankedTensorType::get({sequence()}, builder.getI64Type());
      for (bool key : {false, true}) {
        xs.push_back(
            onnx::IotaOp::create(builder, loc, TypeAttr::get(type), builder.getI64IntegerAttr(0), ArrayAttr()));
        queryDims.push_back(key ? -1 : 0);
        keyDims.push_back(key ? 0 : -1);
      }
    }
    auto rows = cast<RankedTensorType>(softmax.scores.getType());
    SmallVector<int64_t> shape(rows.getShape());
    shape.erase(shape.begin() + softmax.axis);
    Type state = rows.clone(shape);
    auto op = onnx::AttentionOp::create(
        builder, loc, final.getType(), state, state, xs, builder.getDenseI64ArrayAttr(queryDims),
        builder.getDenseI64ArrayAttr(keyDims), builder.getI64IntegerAttr(scoreDims.query),
        builder.getI64IntegerAttr(scoreDims.key), builder.getI64IntegerAttr(outQuery),
        builder.getI64IntegerAttr(blocks), softmax.zeroEmptyRows ? builder.getUnitAttr() : UnitAttr(),
        isCausal() ? builder.getUnitAttr() : UnitAttr());
    fill(op.getScore(), score.getArrayRef(), {}, xs);
    fill(op.getWeigh(), weigh.getArrayRef(), softmax.probabilities, xs);
    final.getY().replaceAllUsesWith(op.getOut());
  }

private:
  using Ops = llvm::SetVector<Operation *>;

  int64_t sequence() const { return cast<RankedTensorType>(softmax.scores.getType()).getDimSize(scoreDims.key); }

  // Follows `value`, which lies as `layout` where `use` reads it, back; false if the form cannot be blocked.
  bool collect(Value value, const Sharding &layout, Ops &ops, OpOperand *use) {
    SequenceDims dims = dimsOf(layout);
    Operation *op = value.getDefiningOp();
    if (isSplat(value)) {
      ops.insert(op);
      return true;
    }
    if (!dims.both() && !(use && dims.key >= 0 && widened(value))) return addOperand(value, dims, use);
    if (auto [known, fresh] = layouts.try_emplace(value, layout); !fresh && known->second != layout) return false;
    if (value == softmax.probabilities || (op && ops.contains(op))) return true;
    if (auto table = bandTable(value, dims)) {
      tables[value] = *table;
      ops.insert(op);
      return true;
    }
    if (auto iota = dyn_cast_or_null<onnx::IotaOp>(op)) {
      int64_t dim = iota.getDim();
      if (dim != dims.query && dim != dims.key) return addOperand(value, dims, use);
      positions[value] = dim == dims.key;
      ops.insert(op);
      return true;
    }
    // A table of pairs: every device cuts its blocks from it.
    if (!op || onnx::isResident(op)) return addOperand(value, dims, use);
    if (!isRegionOp(op) || (isa<onnx::RandomUniformOp>(op) && &ops == &score)) return false;
    FactorRule rule = cast<onnx::FactorRuleOpInterface>(op).getFactorRule();
    std::vector<const Sharding *> unknown(op->getNumOperands(), nullptr);
    FactorSharding split = inferFactorSharding(mesh, rule, unknown, {&layout}, {});
    if (resultSharding(rule, split, 0) != layout) return false;
    if (isa<onnx::ContractOp>(op)) {
      SequenceDims a = dimsOf(operandSharding(rule, split, 0)), b = dimsOf(operandSharding(rule, split, 1));
      isProduct |= (a.query >= 0) != (a.key >= 0) && (b.query >= 0) != (b.key >= 0) && (a.query >= 0) != (b.query >= 0);
    }
    for (OpOperand &operand : op->getOpOperands())
      if (!collect(operand.get(), operandSharding(rule, split, operand.getOperandNumber()), ops, &operand))
        return false;
    ops.insert(op);
    return true;
  }

  // Of the whole sequence by itself.
  std::optional<BandTable> bandTable(Value value, SequenceDims dims) const {
    auto type = cast<RankedTensorType>(value.getType());
    const bool isWhole = dims == SequenceDims{0, 1} && type.getRank() == 2 && type.getDimSize(0) == type.getDimSize(1);
    return isWhole ? matchBandTable(value, 0, 1) : std::nullopt;
  }
  static bool isScaling(Operation *op) { return isa<onnx::MulOp, onnx::DivOp>(op) && isSplat(op->getOperand(1)); }
  // Reshape(Broadcast(x)) and the like, possibly scaled: a smaller tensor, repeated. Grouped keys and values travel as
  // they are before they are repeated for every head.
  static bool widened(Value value) {
    for (int depth = 0; depth < 6; ++depth) {
      Operation *op = value.getDefiningOp();
      if (!op || isa<onnx::BroadcastOp>(op)) return op;
      if (!onnx::isRearrangement(op) && !isScaling(op)) return false;
      value = op->getOperand(0);
    }
    return false;
  }

  // The scores with nothing but a causal mask: blocks of later keys may then be skipped.
  bool isCausal() const {
    if (auto add = softmax.scores.getDefiningOp<onnx::AddOp>())
      return (isProductAlone(add.getA()) && hidesFuture(add.getB())) ||
             (isProductAlone(add.getB()) && hidesFuture(add.getA()));
    auto where = softmax.scores.getDefiningOp<onnx::WhereOp>();
    return where && seesPast(where.getCondition()) && isProductAlone(where.getA()) && isHidden(where.getB());
  }
  static bool isProductAlone(Value value) {
    while (Operation *op = value.getDefiningOp()) {
      if (isa<onnx::ContractOp>(op)) return true;
      if (!isScaling(op) && !onnx::isAlias(op)) return false;
      value = op->getOperand(0);
    }
    return false;
  }
  static Value throughBroadcasts(Value value) {
    while (auto broadcast = value.getDefiningOp<onnx::BroadcastOp>()) value = broadcast.getX();
    return value;
  }
  static bool isHidden(Value value) {
    auto number = onnx::repeatedNumber(value);
    return number && *number <= maskedOut;
  }
  bool hidesFuture(Value mask) const {
    mask = throughBroadcasts(mask);
    if (auto table = tables.find(mask); table != tables.end())
      return table->second.band.isCausal() && table->second.inside == 0 && table->second.outside <= maskedOut;
    auto where = mask.getDefiningOp<onnx::WhereOp>();
    return where && seesPast(where.getCondition()) && onnx::rules::isZero(where.getA()) && isHidden(where.getB());
  }
  bool seesPast(Value condition) const {
    condition = throughBroadcasts(condition);
    if (auto table = tables.find(condition); table != tables.end())
      return table->second.band.isCausal() && table->second.inside == 1 && table->second.outside == 0;
    if (auto compare = condition.getDefiningOp<onnx::LessOrEqualOp>())
      return isPosition(compare.getA(), true) && isPosition(compare.getB(), false);
    auto compare = condition.getDefiningOp<onnx::GreaterOrEqualOp>();
    return compare && isPosition(compare.getA(), false) && isPosition(compare.getB(), true);
  }
  // The number of the key (query) in every pair.
  bool isPosition(Value value, bool key) const {
    if (auto iota = positions.find(value); iota != positions.end()) return iota->second == key;
    auto broadcast = value.getDefiningOp<onnx::BroadcastOp>();
    auto layout = layouts.find(value);
    if (!broadcast || layout == layouts.end() || broadcast.getDims().size() != 1) return false;
    SequenceDims dims = dimsOf(layout->second);
    return broadcast.getDims()[0] == (key ? dims.key : dims.query) && countsUp(broadcast.getX());
  }

  bool addOperand(Value value, SequenceDims dims, OpOperand *use) {
    if (!use) return false;
    size_t number = 0;
    while (number < operands.size() && !(operands[number] == value && operandDims[number] == dims)) ++number;
    if (number == operands.size()) {
      operands.push_back(value);
      operandDims.push_back(dims);
    }
    operandOf[use] = number;
    return true;
  }

  // Made from the probabilities.
  bool weighed(Value value) const { return fromProbabilities.contains(value); }

  // The product with the values: everything between it and the probabilities is elementwise and linear in them.
  onnx::ContractOp findWeighing() {
    onnx::ContractOp found;
    SmallVector<Value> open{softmax.probabilities};
    while (!open.empty()) {
      Value value = open.pop_back_val();
      if (!fromProbabilities.insert(value).second) continue;
      for (OpOperand &use : value.getUses()) {
        Operation *user = use.getOwner();
        if (auto contract = dyn_cast<onnx::ContractOp>(user)) {
          if (found && found != contract) return {};
          found = contract;
          continue;
        }
        if (!user->hasTrait<onnx::PerElement>()) return {};
        FactorRule rule = cast<onnx::FactorRuleOpInterface>(user).getFactorRule();
        bool linear = rule.linearity == FactorRule::LinearInOne && rule.linearOperands[use.getOperandNumber()];
        if (!linear) return {};
        open.push_back(user->getResult(0));
      }
    }
    return found;
  }

  // Clones ops into a region whose block arguments stand for the operands.
  void fill(Region &region, ArrayRef<Operation *> ops, Value p, ArrayRef<Value> xs) {
    Block &block = region.emplaceBlock();
    IRMapping mapping;
    Location loc = final.getLoc();
    if (p) mapping.map(p, block.addArgument(p.getType(), loc));
    SmallVector<Value> arguments;
    for (Value x : xs) arguments.push_back(block.addArgument(x.getType(), loc));
    OpBuilder builder(final.getContext());
    builder.setInsertionPointToEnd(&block);
    for (Operation *op : ops) {
      if (auto position = positions.find(op->getResult(0)); position != positions.end()) {
        Value row = arguments[arguments.size() - (position->second ? 1 : 2)];
        mapping.map(position->first, spreadPositions(builder, cast<onnx::IotaOp>(op), row));
        continue;
      }
      auto table = tables.find(op->getResult(0));
      if (table != tables.end()) {
        mapping.map(table->first,
                    comparePositions(builder, table->first, table->second, ArrayRef(arguments).take_back(2)));
        continue;
      }
      Operation *copy = builder.clone(*op, mapping);
      for (OpOperand &operand : op->getOpOperands())
        if (auto number = operandOf.find(&operand); number != operandOf.end())
          copy->setOperand(operand.getOperandNumber(), arguments[number->second]);
    }
  }

  static Value spreadPositions(OpBuilder &builder, onnx::IotaOp iota, Value row) {
    onnx::Formula f(builder, iota.getLoc());
    auto type = cast<RankedTensorType>(iota.getType());
    int64_t dim = iota.getDim();
    return f.make<onnx::BroadcastOp>(f.cast(row, type.getElementType()), type.getShape(), ArrayRef<int64_t>{dim});
  }
  static Value comparePositions(OpBuilder &builder, Value table, const BandTable &entries, ArrayRef<Value> positions) {
    onnx::Formula f(builder, table.getLoc());
    auto type = cast<RankedTensorType>(table.getType());
    Value row = f.make<onnx::BroadcastOp>(positions[0], type.getShape(), ArrayRef<int64_t>{0});
    Value column = f.make<onnx::BroadcastOp>(positions[1], type.getShape(), ArrayRef<int64_t>{1});
    return hideOutside(f, entries.band, row, column, f.constant(type, entries.inside),
                       f.constant(type, entries.outside));
  }

  const Softmax &softmax;
  int64_t blocks, outQuery = -1;
  Mesh mesh;
  SequenceDims scoreDims;
  DenseMap<Value, Sharding> layouts;
  Ops score, weigh;
  SmallVector<Value> operands;
  SmallVector<SequenceDims> operandDims;
  DenseMap<OpOperand *, size_t> operandOf;
  llvm::MapVector<Value, BandTable> tables;
  llvm::MapVector<Value, bool> positions; // indices along the queries (false) or keys (true)
  DenseSet<Value> fromProbabilities;
  onnx::ContractOp final;
  bool isProduct = false;
};

struct RecognizeAttention : impl::RecognizeAttentionBase<RecognizeAttention> {
  using Base::Base;
  void runOnOperation() override {
    func::FuncOp model = modelOf(getOperation());
    if (!model) return signalPassFailure();
    for (auto exp : llvm::make_early_inc_range(model.getOps<onnx::ExpOp>()))
      if (auto softmax = matchSoftmax(exp)) recognize(*softmax);
    for (Operation &op : llvm::make_early_inc_range(llvm::reverse(model.getBody().front())))
      if (isOpTriviallyDead(&op)) op.erase();
  }

private:
  void recognize(const Softmax &softmax) {
    auto type = cast<RankedTensorType>(softmax.scores.getType());
    int64_t keys = type.getDimSize(softmax.axis);
    if (keys % blocks) return;
    // Which dimension counts queries: first those with as many entries as there are keys.
    SmallVector<int64_t> dims;
    for (int64_t dim = type.getRank() - 1; dim >= 0; --dim)
      if (dim != softmax.axis && type.getDimSize(dim) % blocks == 0) dims.push_back(dim);
    llvm::stable_sort(
        dims, [&](int64_t a, int64_t b) { return (type.getDimSize(a) == keys) > (type.getDimSize(b) == keys); });
    for (int64_t query : dims) {
      Candidate candidate(softmax, blocks, query);
      if (!candidate.collect()) continue;
      candidate.build();
      return;
    }
  }
};

} // namespace

} // namespace cleave::attention
