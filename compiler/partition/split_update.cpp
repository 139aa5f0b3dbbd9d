#include "compiler/partition/split_update.h"
#include "compiler/partition/layouts.h"
#include "dialects/onnx/formula.h"
#include "dialects/onnx/kinds.h"

using namespace mlir;

namespace cleave::partition {

Value sumOverStages(OpBuilder &builder, Location loc, Type type, Value own, Phase phase, int64_t order) {
  auto mark = [&](Value value) {
    place::setPhase(value.getDefiningOp(), phase);
    return value;
  };
  if (!own) own = mark(onnx::Formula(builder, loc).constant(cast<RankedTensorType>(type), 0));
  auto sum =
      dist::AllReduceOp::create(builder, loc, type, own, axesAttribute(builder.getContext(), {dist::pipelineAxis}),
                                dist::ReductionAttr::get(builder.getContext(), dist::Reduction::Sum),
                                builder.getStringAttr("a number of all stages"));
  dist::orderAttr.set(sum, order);
  return mark(sum.getY());
}

bool UpdateSplit::isScalar(Value value) const {
  return cast<RankedTensorType>(value.getType()).getNumElements() == 1 &&
         isa<FloatType>(cast<RankedTensorType>(value.getType()).getElementType());
}

Ranks UpdateSplit::ranksWith(Value value) const {
  auto found = can.find(value.getDefiningOp());
  return found == can.end() ? Ranks(ranks, true) : found->second;
}

LogicalResult UpdateSplit::analyze() {
  Block &block = function.getBody().front();
  for (Operation &op : block.without_terminator()) {
    if (isa<onnx::WriteOp>(op)) continue;
    // `asked` has the ranks that hold all operands but scalars, which cost next to nothing to ask for.
    Ranks all(ranks, true), asked(ranks, true), any(ranks);
    if (auto read = dyn_cast<onnx::ReadOp>(op)) {
      auto held = holders.find(read.getParam());
      if (held == holders.end() || held->second.none())
        return op.emitOpError("reads a persistent tensor that no stage holds");
      can[&op] = held->second;
      continue;
    }
    for (Value operand : op.getOperands()) {
      Ranks of = ranksWith(operand);
      all &= of;
      if (!isScalar(operand)) asked &= of;
      if (!of.all()) any |= of;
    }
    bool toScalar = op.getNumResults() == 1 && isScalar(op.getResult(0));
    if (all.any() && (toScalar || all == asked)) {
      can[&op] = all;
    } else if (onnx::isSum(&op) && toScalar) {
      reduced.insert(&op);
      can[&op] = Ranks(ranks, true);
    } else {
      can[&op] = asked.any() ? asked : any;
    }
  }
  for (Operation &op : llvm::reverse(block)) {
    if (auto write = dyn_cast<onnx::WriteOp>(op)) {
      auto held = holders.find(write.getParam());
      if (held == holders.end()) return op.emitOpError("writes a persistent tensor that no stage holds");
      needed[&op] = held->second;
    } else if (op.hasTrait<OpTrait::IsTerminator>()) {
      Ranks &where = needed.try_emplace(&op, Ranks(ranks)).first->second;
      where.set(0);
      if (results == Results::OfAll) where.set();
    } else if (auto lacking = op.getNumResults() ? missing.find(op.getResult(0)) : missing.end();
               lacking != missing.end()) {
      Ranks &where = needed.try_emplace(&op, Ranks(ranks)).first->second;
      where.set(ownerOf(op.getResult(0)));
    }
    auto where = needed.find(&op);
    if (where == needed.end()) continue;
    Ranks here = where->second;
    for (Value operand : op.getOperands()) {
      Ranks one(ranks);
      if (reduces(&op)) one.set(ownerOf(operand));
      need(operand, reduces(&op) ? one : here);
    }
  }
  return success();
}

void UpdateSplit::need(Value value, const Ranks &where) {
  Operation *op = value.getDefiningOp();
  if (!op) return;
  Ranks have = ranksWith(value), lack = where;
  lack.reset(have);
  Ranks own = where;
  own &= have;
  Ranks &all = needed.try_emplace(op, Ranks(ranks)).first->second;
  all |= own;
  if (lack.any()) {
    Ranks &lacking = missing.try_emplace(value, Ranks(ranks)).first->second;
    lacking |= lack;
  }
}

bool UpdateSplit::meets() const {
  return llvm::any_of(reduced, [&](Operation *op) {
    auto where = needed.find(op);
    return where != needed.end() && where->second.count() > 1;
  });
}

void UpdateSplit::send(OpBuilder &builder, Location loc, Value value, int64_t to, int64_t tag, StringRef why) const {
  auto send = dist::SendOp::create(builder, loc, value, builder.getI64IntegerAttr(to), builder.getI64IntegerAttr(tag),
                                   builder.getStringAttr(why));
  place::setPhase(send, Phase::Update);
  dist::channelAttr.set(send, channel);
}

Value UpdateSplit::receive(OpBuilder &builder, Location loc, Type type, int64_t from, int64_t tag,
                           StringRef why) const {
  auto receive = dist::ReceiveOp::create(builder, loc, type, builder.getI64IntegerAttr(from),
                                         builder.getI64IntegerAttr(tag), builder.getStringAttr(why));
  place::setPhase(receive, Phase::Update);
  dist::channelAttr.set(receive, channel);
  return receive.getY();
}

int64_t UpdateSplit::build(int64_t firstTag, int64_t ownChannel) {
  channel = ownChannel;
  Block &block = function.getBody().front();
  llvm::DenseMap<Value, int64_t> numbers; // of sums and transfers together: all ranks do them in this order
  for (Operation &op : block.without_terminator())
    for (Value result : op.getResults())
      if (reduces(&op) || missing.contains(result)) numbers[result] = firstTag++;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    OpBuilder at(function);
    auto made =
        func::FuncOp::create(at, function.getLoc(), ("update." + Twine(rank)).str(), at.getFunctionType({}, {}));
    OpBuilder builder(function.getContext());
    builder.createBlock(&made.getBody());
    place::programAttr.set(made, rank);
    place::fragmentAttr.set(made, "update");
    IRMapping values;
    auto use = [&](Operation &op) {
      for (Value operand : op.getOperands())
        if (auto argument = dyn_cast<BlockArgument>(operand); argument && !values.contains(operand)) {
          unsigned number = made.getNumArguments();
          (void)made.insertArgument(number, operand.getType(), function.getArgAttrDict(argument.getArgNumber()),
                                    operand.getLoc());
          values.map(operand, made.getArgument(number));
        }
    };
    for (Operation &op : block.without_terminator()) {
      auto where = needed.find(&op);
      bool mine = where != needed.end() && where->second.test(rank);
      if (reduces(&op)) { // every rank takes part, whoever needs it
        if (where == needed.end() || where->second.none()) continue;
        use(op);
        SmallVector<Value> own;
        for (Value operand : op.getOperands())
          if (ownerOf(operand) == rank) own.push_back(values.lookup(operand));
        Value sum;
        if (!own.empty()) {
          sum = onnx::Formula(builder, op.getLoc()).sum(own);
          if (own.size() > 1) place::setPhase(sum.getDefiningOp(), Phase::Update);
        }
        Value result = op.getResult(0);
        int64_t number = numbers[result];
        if (results == Results::OfAll || where->second.count() > 1) {
          values.map(result, sumOverStages(builder, op.getLoc(), result.getType(), sum, Phase::Update, number));
          continue;
        }
        const char *why = "a rank's part of a sum";
        int64_t to = where->second.find_first();
        if (rank != to) {
          if (sum) send(builder, op.getLoc(), sum, to, number, why);
          continue;
        }
        SmallVector<Value> parts;
        if (sum) parts.push_back(sum);
        Ranks owners(ranks);
        for (Value operand : op.getOperands()) owners.set(ownerOf(operand));
        for (int from : owners.set_bits())
          if (from != rank) parts.push_back(receive(builder, op.getLoc(), result.getType(), from, number, why));
        Value all = onnx::Formula(builder, op.getLoc()).sum(parts);
        if (parts.size() > 1) place::setPhase(all.getDefiningOp(), Phase::Update);
        values.map(result, all);
        continue;
      }
      if (mine) {
        use(op);
        builder.clone(op, values);
      }
      for (Value result : op.getResults()) {
        auto lacking = missing.find(result);
        if (lacking == missing.end()) continue;
        int64_t owner = ownerOf(result);
        if (isScalar(result) && results == Results::OfAll) {
          Value own = owner == rank ? values.lookup(result) : Value();
          values.map(result,
                     sumOverStages(builder, op.getLoc(), result.getType(), own, Phase::Update, numbers[result]));
          continue;
        }
        std::string why =
            (isScalar(result) ? "a number of rank " : "a gradient's part on rank ") + std::to_string(owner);
        if (owner == rank)
          for (int to : lacking->second.set_bits())
            send(builder, op.getLoc(), values.lookup(result), to, numbers[result], why);
        if (lacking->second.test(rank))
          values.map(result, receive(builder, op.getLoc(), result.getType(), owner, numbers[result], why));
      }
    }
    SmallVector<Value> returned;
    SmallVector<DictionaryAttr> attributes;
    if (rank == 0 || results == Results::OfAll) {
      use(*block.getTerminator());
      for (Value value : block.getTerminator()->getOperands()) returned.push_back(values.lookup(value));
      for (unsigned i = 0; i < function.getNumResults(); ++i) attributes.push_back(function.getResultAttrDict(i));
    }
    func::ReturnOp::create(builder, function.getLoc(), returned);
    made.setType(builder.getFunctionType(made.getArgumentTypes(), TypeRange(ValueRange(returned))));
    made.setAllResultAttrs(attributes);
    // A write stands where its function's order has it: writes were skipped above only where the rank holds nothing.
    for (Operation &op : llvm::make_early_inc_range(llvm::reverse(made.getBody().front())))
      if (isOpTriviallyDead(&op)) op.erase();
    giveTensorsChannels(made);
  }
  return firstTag;
}

void UpdateSplit::giveTensorsChannels(func::FuncOp made) {
  llvm::DenseMap<std::pair<Attribute, int64_t>, SmallVector<Operation *>> messages; // by peer and direction, bytes
  Builder builder(made.getContext());
  for (Operation &op : made.getBody().front()) {
    if (!isa<dist::SendOp, dist::ReceiveOp>(op)) continue;
    auto sent = dyn_cast<dist::SendOp>(op);
    auto type = cast<RankedTensorType>(sent ? sent.getX().getType() : op.getResult(0).getType());
    if (type.getNumElements() == 1) continue;
    int64_t bytes = onnx::bytesOf(type);
    auto [own, fresh] = channelOfBytes.try_emplace(bytes, channel + 1 + static_cast<int64_t>(channelOfBytes.size()));
    dist::channelAttr.set(&op, own->second);
    Attribute peer =
        builder.getDictionaryAttr(builder.getNamedAttr(sent ? "to" : "from", op.getAttr(sent ? "to" : "from")));
    messages[{peer, bytes}].push_back(&op);
  }
  for (auto &[key, ops] : messages)
    for (Operation *op : ops) dist::buffersAttr.set(op, static_cast<int64_t>(ops.size()));
}

} // namespace cleave::partition
