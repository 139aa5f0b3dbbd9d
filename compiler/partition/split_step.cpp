#include "compiler/partition/split_step.h"
#include "compiler/partition/layouts.h"

using namespace mlir;

namespace cleave::partition {
namespace {

int64_t valueBytes(Value value) {
  auto type = cast<ShapedType>(value.getType());
  return type.getNumElements() * int64_t(llvm::divideCeil(type.getElementTypeBitWidth(), 8));
}

} // namespace

LogicalResult StepSplit::analyze() {
  Block &block = function.getBody().front();
  int64_t count = 0;
  llvm::SetVector<Operation *> unknown; // what the backward pass makes of forward values for the layout it wants
  for (Operation &op : block.without_terminator()) {
    for (Value result : op.getResults()) order[result] = count++;
    if (floating.contains(&op)) continue;
    if (isLate(&op)) {
      late.insert(&op);
      continue;
    }
    const std::optional<int64_t> known = place::stageOf(&op);
    Place place;
    place.stage = known.value_or(0);
    bool backward = phaseOf(&op) == Phase::Backward, anyBackward = false;
    std::optional<int64_t> earliest, latest;
    for (Value operand : op.getOperands()) {
      auto home = homes.find(operand.getDefiningOp());
      if (home == homes.end()) continue;
      latest = std::max(latest.value_or(0), home->second.stage);
      if (home->second.part == Part::Forward || unknown.contains(home->first)) continue;
      anyBackward = true;
      earliest = std::min(earliest.value_or(home->second.stage), home->second.stage);
    }
    place.part = backward || (phaseOf(&op) == Phase::Update && anyBackward) ? Part::Backward : Part::Forward;
    if (place.part == Part::Backward && !known && !earliest) {
      unknown.insert(&op);
      place.stage = latest.value_or(0);
    } else if (!known) {
      place.stage = place.part == Part::Backward ? *earliest : latest.value_or(0);
    }
    homes[&op] = place;
  }
  for (Operation *op : llvm::reverse(unknown)) { // they run where they are read
    std::optional<int64_t> users;
    for (Operation *user : op->getUsers())
      if (auto home = homes.find(user); home != homes.end()) users = std::max(users.value_or(0), home->second.stage);
    if (users) homes[op].stage = *users;
  }
  placeGathers();
  placeLate();
  halve();
  for (Operation &op : block.without_terminator()) {
    auto home = homes.find(&op);
    if (home == homes.end()) continue;
    for (Value operand : op.getOperands())
      if (failed(provide(operand, home->second.stage, home->second.part, &op))) return failure();
  }
  return success();
}

// A value that another stage wants in another layout is sent as it lies and brought there by that stage: it may be
// sent for others of its operations anyway, and a gathered tensor is as many times larger.
void StepSplit::placeGathers() {
  for (Operation &op : llvm::reverse(function.getBody().front().without_terminator())) {
    auto home = homes.find(&op);
    if (!isa<dist::AllGatherOp, dist::AllToAllOp>(op) || home == homes.end() || place::stageOf(&op)) continue;
    std::optional<Place> there;
    bool isOne = true;
    for (Operation *user : op.getUsers()) {
      auto of = homes.find(user);
      if (of == homes.end() || of->second.part != home->second.part || (there && there->stage != of->second.stage))
        isOne = false;
      else
        there = of->second;
    }
    if (isOne && there) home->second.stage = there->stage;
  }
}

// Is it a tensor that the function itself writes, as it was before? A later microbatch must read it when it computes
// with it.
bool StepSplit::isLate(Operation *op) const {
  if (isa<onnx::ReadOp>(op)) return !floating.contains(op);
  bool any = false;
  for (Value operand : op->getOperands()) {
    bool isLateOperand = operand.getDefiningOp() && late.contains(operand.getDefiningOp());
    if (!isLateOperand && !floating.contains(operand)) return false;
    any |= isLateOperand;
  }
  return any && op->getName().getDialectNamespace() == "dist";
}

void StepSplit::placeLate() {
  for (Operation *op : llvm::reverse(late))
    for (Operation *user : op->getUsers())
      if (auto home = homes.find(user); home != homes.end()) {
        const Place place = home->second; // a new entry may move the others
        homes[op] = place;
      }
}

// The second half of a backward pass: what only one persistent tensor's new value needs. Everything that leads to the
// stage before, or to several parameters, is the first.
void StepSplit::halve() {
  struct Reach {
    Operation *only = nullptr;
    bool more = false;
  };
  llvm::DenseMap<Operation *, Reach> reach;
  for (Operation &op : llvm::reverse(function.getBody().front().without_terminator())) {
    auto home = homes.find(&op);
    if (home == homes.end() || home->second.part == Part::Forward || !halved[home->second.stage]) continue;
    Reach &own = reach[&op];
    if (isa<onnx::WriteOp>(op)) own.only = &op;
    for (Operation *user : op.getUsers()) {
      auto other = homes.find(user);
      if (other == homes.end() || other->second.stage != home->second.stage) {
        own.more = true;
        continue;
      }
      Reach of = reach.lookup(user);
      own.more |= of.more || (own.only && of.only && own.only != of.only);
      if (!own.only) own.only = of.only;
    }
    if (!own.more) home->second.part = Part::BackwardWeight;
  }
  makeHeldValues();
  placeLate(); // accumulators
}

// The first half makes a value that is computed again for the second half alone, from values that nothing else holds
// for it, where it is smaller than they are together. (The last product of a GELU for the weight behind it: one value
// is held, not two.)
void StepSplit::makeHeldValues() {
  for (Operation &op : function.getBody().front().without_terminator()) {
    auto home = homes.find(&op);
    if (home == homes.end() || home->second.part != Part::BackwardWeight || !place::isRecomputed(&op) ||
        FloatingValues::isAnchored(&op))
      continue;
    int64_t freed = 0, made = 0;
    bool isAtHand = true;
    for (Value operand : llvm::SetVector<Value>(op.operand_begin(), op.operand_end())) {
      auto producer = homes.find(operand.getDefiningOp());
      if (producer == homes.end()) continue;
      isAtHand &= producer->second.part != Part::BackwardWeight;
      const bool isHeld = llvm::any_of(
          operand.getUsers(), [&](Operation *user) { return user != &op && homes.lookup(user) == home->second; });
      if (producer->second.part == Part::Backward && !isHeld) freed += valueBytes(operand);
    }
    for (Value result : op.getResults()) made += valueBytes(result);
    if (isAtHand && made < freed) home->second.part = Part::Backward;
  }
}

LogicalResult StepSplit::provide(Value value, int64_t stage, Part part, Operation *user) {
  if (floating.contains(value)) return success();
  Place home = homes.lookup(value.getDefiningOp()), place{stage, part};
  if (home == place || !available.insert({value.getAsOpaquePointer(), place}).second) return success();
  auto number = [&] {
    auto [entry, fresh] = keptNumber.try_emplace({value.getAsOpaquePointer(), stage}, keptNumbers);
    keptNumbers += fresh;
    return entry->second;
  };
  auto keep = [&](Place from) {
    built[from].out[value] = number();
    built[place].in[value] = number();
    return success();
  };
  if (home.stage == stage) {
    if (part < home.part) return user->emitOpError("needs a value that its stage computes only later");
    return keep(home);
  }
  if (isa<onnx::ReadOp>(value.getDefiningOp()))
    return user->emitOpError("on stage ")
           << stage << " reads a persistent tensor that stage " << home.stage << " writes";
  // Where the value arrives at the stage, and from where it is sent.
  bool ahead = home.part == Part::Forward && home.stage < stage;
  Place from{home.stage, ahead ? Part::Forward : Part::Backward}, to{stage, from.part};
  bool wrongWay = ahead ? false : part == Part::Forward || home.stage < stage || home.part == Part::BackwardWeight;
  if (wrongWay)
    return user->emitOpError("on stage ") << stage << " needs a value of stage " << home.stage
                                          << ", which would have to cross against the direction of its phase";
  if (!(to == place)) {
    if (failed(provide(value, to.stage, to.part, user))) return failure();
    return keep(to);
  }
  if (failed(provide(value, from.stage, from.part, user))) return failure();
  transfers.push_back({order.lookup(value), value, from, to});
  return success();
}

Operation *StepSplit::cloneInto(Built &target, Operation *op) {
  for (Value operand : op->getOperands()) materialize(target, operand);
  OpBuilder builder(target.function.getBody().front().getTerminator());
  Operation *clone = builder.clone(*op, target.values);
  place::Place inFunction = place::of(clone);
  inFunction.stage = inFunction.origin = std::nullopt;
  inFunction.set(clone);
  return clone;
}

Value StepSplit::materialize(Built &target, Value value) {
  if (Value known = target.values.lookupOrNull(value)) return known;
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    unsigned number = target.function.getNumArguments();
    // Appending to an argument list cannot fail.
    (void)target.function.insertArgument(number, value.getType(), function.getArgAttrDict(argument.getArgNumber()),
                                         value.getLoc());
    target.values.map(value, target.function.getArgument(number));
  } else {
    cloneInto(target, value.getDefiningOp());
  }
  return target.values.lookup(value);
}

void StepSplit::send(Built &target, const Transfer &transfer) {
  OpBuilder builder(target.function.getBody().front().getTerminator());
  std::string why = (transfer.from.part == Part::Forward ? "an activation of stage " : "a gradient of stage ") +
                    std::to_string(transfer.from.stage) + " for stage " + std::to_string(transfer.to.stage);
  auto send = dist::SendOp::create(builder, transfer.value.getLoc(), target.values.lookup(transfer.value),
                                   builder.getI64IntegerAttr(rankOfStage[transfer.to.stage]),
                                   builder.getI64IntegerAttr(transfer.tag), builder.getStringAttr(why));
  if (auto name = transfer.value.getLoc()->findInstanceOf<NameLoc>()) dist::tensorsAttr.set(send, name.getName().str());
  mark(send, transfer);
}

// Each pair of stages has a channel of its own between two ranks: with several stages on a rank, or values that pass
// over stages, what one pair sends may be taken in another order than what another pair does. And so has each size of a
// message, since the message buffers of a channel are all as large as its largest.
void StepSplit::numberTransfers(int64_t &tag) {
  llvm::sort(transfers, [](const Transfer &a, const Transfer &b) {
    return std::tie(a.from.part, a.order, a.to.stage) < std::tie(b.from.part, b.order, b.to.stage);
  });
  std::map<std::pair<int, int>, std::map<std::tuple<int64_t, int64_t, int64_t>, int64_t>> channels; // by ranks
  for (Transfer &transfer : transfers) {
    transfer.tag = tag++;
    auto &ofRanks = channels[{rankOfStage[transfer.from.stage], rankOfStage[transfer.to.stage]}];
    int64_t next = static_cast<int64_t>(ofRanks.size());
    transfer.channel =
        ofRanks.try_emplace({transfer.from.stage, transfer.to.stage, valueBytes(transfer.value)}, next).first->second;
  }
}

void StepSplit::mark(Operation *op, const Transfer &transfer) const {
  Builder builder(op->getContext());
  place::setPhase(op, transfer.from.part == Part::Forward ? Phase::Forward : Phase::Backward);
  dist::channelAttr.set(op, transfer.channel);
  auto [first, last] = std::minmax(transfer.from.stage, transfer.to.stage);
  if (last - first > 1 || rankOfStage[first] == rankOfStage[last]) dist::crossesAttr.set(op, first);
}

int64_t StepSplit::build(ArrayRef<StringRef> names, StringRef routine, int64_t firstTag, StringRef suffix) {
  numberTransfers(firstTag);
  Builder attributes(function.getContext());
  bool single = names.size() == 1;
  for (int64_t stage = 0; stage < static_cast<int64_t>(rankOfStage.size()); ++stage)
    for (Part part : {Part::Forward, Part::Backward, Part::BackwardWeight}) {
      if ((single && part != Part::Forward) || (part == Part::BackwardWeight && !halved[stage])) continue;
      StringRef name = single                         ? names[0]
                       : part == Part::Forward        ? names[0]
                       : part == Part::BackwardWeight ? names[3]
                       : halved[stage]                ? names[2]
                                                      : names[1];
      OpBuilder builder(function);
      auto made = func::FuncOp::create(builder, function.getLoc(), (name + "." + Twine(stage) + suffix).str(),
                                       builder.getFunctionType({}, {}));
      builder.createBlock(&made.getBody());
      func::ReturnOp::create(builder, function.getLoc());
      place::programAttr.set(made, rankOfStage[stage]);
      place::regionAttr.set(made, (routine + "." + Twine(stage) + suffix).str());
      built[{stage, part}].function = made;
    }
  for (auto &[place, target] : built) {
    OpBuilder builder(target.function.getBody().front().getTerminator());
    for (const Transfer &transfer : transfers) {
      if (!(transfer.to == place)) continue;
      auto receive = dist::ReceiveOp::create(
          builder, transfer.value.getLoc(), transfer.value.getType(),
          builder.getI64IntegerAttr(rankOfStage[transfer.from.stage]), builder.getI64IntegerAttr(transfer.tag),
          builder.getStringAttr("a value of stage " + std::to_string(transfer.from.stage)));
      mark(receive, transfer);
      target.values.map(transfer.value, receive.getY());
    }
    for (auto &[value, number] : target.in) {
      unsigned index = target.function.getNumArguments();
      (void)target.function.insertArgument(
          index, value.getType(), builder.getDictionaryAttr(place::keptAttr.named(builder.getContext(), number)),
          value.getLoc());
      target.values.map(value, target.function.getArgument(index));
    }
    for (const Transfer &transfer : transfers)
      if (transfer.from == place && !(homes.lookup(transfer.value.getDefiningOp()) == place)) send(target, transfer);
  }
  llvm::DenseMap<Value, SmallVector<const Transfer *>> leaving;
  for (const Transfer &transfer : transfers) leaving[transfer.value].push_back(&transfer);
  for (Operation &op : function.getBody().front().without_terminator()) {
    auto home = homes.find(&op);
    if (home == homes.end()) continue;
    Built &target = built[home->second];
    cloneInto(target, &op);
    for (Value result : op.getResults())
      for (const Transfer *transfer : leaving.lookup(result))
        if (transfer->from == home->second) send(target, *transfer);
  }
  for (auto &[place, target] : built) {
    SmallVector<Value> values;
    SmallVector<Type> types;
    SmallVector<DictionaryAttr> kept;
    for (auto &[value, number] : target.out) {
      values.push_back(target.values.lookup(value));
      types.push_back(values.back().getType());
      kept.push_back(attributes.getDictionaryAttr(place::keptAttr.named(attributes.getContext(), number)));
    }
    target.function.getBody().front().getTerminator()->setOperands(values);
    target.function.setType(attributes.getFunctionType(target.function.getArgumentTypes(), types));
    target.function.setAllResultAttrs(kept);
  }
  return firstTag;
}

func::FuncOp StepSplit::functionOf(int64_t stage, Part part) const {
  auto found = built.find({stage, part});
  return found == built.end() ? func::FuncOp() : found->second.function;
}

Value StepSplit::valueIn(int64_t stage, Part part, Value value) { return materialize(built[{stage, part}], value); }

} // namespace cleave::partition
