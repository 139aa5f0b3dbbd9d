#include "compiler/partition/layouts.h"
#include "compiler/partition/mirrored_split.h"
#include "compiler/partition/passes.h"
#include "dialects/onnx/kinds.h"
#include "dialects/place/Place.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;

namespace cleave::partition {
#define GEN_PASS_DEF_RECOMPUTE
#include "compiler/partition/Passes.h.inc"

namespace {

// Costs nothing to make again and holds nothing.
bool isAlwaysThere(Operation *op) { return !op || onnx::isResident(op) || isa<onnx::IotaOp>(op); }

class Recomputation {
public:
  explicit Recomputation(func::FuncOp function) : function(function), block(function.getBody().front()) {}

  void run() {
    findSegments();
    if (segmentOf.empty()) return;
    numberProducts(function);
    findNeeded();
    for (auto &[segment, ops] : needed) cloneSegment(ops, firstUser[segment]);
  }

private:
  using Segment = std::pair<int64_t, std::optional<int64_t>>; // number, stage

  void findSegments() {
    for (Operation &op : block) {
      if (phaseOf(&op) != Phase::Forward || isAlwaysThere(&op) || !isPure(&op) || op.hasTrait<OpTrait::IsTerminator>())
        continue;
      const place::Place place = place::of(&op);
      std::optional<int64_t> number = place.segment;
      bool isMarked = place.recompute;
      if (!number && !dist::factorsAttr.isOn(&op)) std::tie(number, isMarked) = ofOperands(&op);
      if (!number) continue;
      segmentOf[&op] = {*number, place.stage};
      if (isMarked) marked.insert(&op);
    }
    for (Operation &op : llvm::reverse(block)) followUsers(&op);
  }

  // Scaling that has no segment by its operands belongs where it is read; so does a weight in 8 bits.
  void followUsers(Operation *op) {
    if (!onnx::fp8ScalingAttr.isOn(op) || phaseOf(op) != Phase::Forward || segmentOf.contains(op) || op->use_empty())
      return;
    const Segment one = segmentOf.lookup(*op->user_begin());
    bool isMarked = true;
    for (Operation *user : op->getUsers()) {
      auto found = segmentOf.find(user);
      if (found == segmentOf.end() || found->second != one) return;
      isMarked &= marked.contains(user);
    }
    segmentOf[op] = one;
    if (isMarked) marked.insert(op);
  }

  std::pair<std::optional<int64_t>, bool> ofOperands(Operation *op) const {
    std::optional<int64_t> one;
    bool all = true;
    for (Value operand : op->getOperands()) {
      if (isAlwaysThere(operand.getDefiningOp())) continue;
      auto found = segmentOf.find(operand.getDefiningOp());
      if (found == segmentOf.end() && onnx::fp8ScalingAttr.isOn(operand.getDefiningOp())) continue; // a scale
      if (found == segmentOf.end() || (one && *one != found->second.first)) return {std::nullopt, false};
      one = found->second.first;
      all &= marked.contains(found->first);
    }
    return {one, all};
  }

  // Made by a marked operation, and read nowhere but in its segment and by gradients.
  bool isDropped(Value value) const {
    Operation *op = value.getDefiningOp();
    if (!marked.contains(op)) return false;
    Segment segment = segmentOf.lookup(op);
    return llvm::all_of(value.getUsers(), [&](Operation *user) {
      auto found = segmentOf.find(user);
      return phaseOf(user) != Phase::Forward || (found != segmentOf.end() && found->second == segment);
    });
  }

  // The operation that is computed again on this stage, where `value` is read there.
  Operation *again(Value value, Operation *reader) const {
    return isDropped(value) && isHere(reader, value.getDefiningOp()) ? value.getDefiningOp() : nullptr;
  }
  bool isHere(Operation *reader, Operation *made) const {
    const std::optional<int64_t> stage = place::stageOf(reader);
    return !stage || stage == segmentOf.lookup(made).second;
  }

  // Finds the values of segments that backward operations read, and those that they are made from inside the same
  // segment.
  void findNeeded() {
    DenseSet<Operation *> seen;
    for (Operation &op : block) {
      if (phaseOf(&op) != Phase::Backward) continue;
      for (Value operand : op.getOperands())
        if (Operation *made = again(operand, &op)) {
          Segment segment = segmentOf[made];
          firstUser.try_emplace(segment, &op);
          if (seen.insert(made).second) needed[segment].push_back(made);
        }
    }
    for (auto &[segment, ops] : needed) {
      for (size_t i = 0; i < ops.size(); ++i)
        for (Value operand : ops[i]->getOperands()) {
          if (Operation *made = operand.getDefiningOp();
              made && isDropped(operand) && segmentOf[made] == segment && seen.insert(made).second)
            ops.push_back(made);
        }
      llvm::sort(ops, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
    }
  }

  void cloneSegment(ArrayRef<Operation *> ops, Operation *before) {
    OpBuilder builder(before);
    IRMapping mapping;
    const Segment segment = segmentOf.lookup(ops.front());
    SmallVector<std::pair<Operation *, Operation *>> rereads;
    for (Operation *op : ops) {
      // A parameter is read again, so that it may be gathered again; a constant is no load on memory.
      for (Value operand : op->getOperands())
        if (Operation *made = operand.getDefiningOp(); made && isAlwaysThere(made) && !mapping.contains(operand)) {
          Operation *again = builder.clone(*made, mapping);
          place::setPhase(again, Phase::Backward);
          if (isa<onnx::ReadOp>(made)) rereads.emplace_back(made, again);
        }
      Operation *clone = builder.clone(*op, mapping);
      place::Place place = place::of(op);
      place.phase = Phase::Backward;
      place.recompute = false;
      place.recomputed = segment.first;
      place.set(clone);
    }
    for (auto [read, again] : rereads) shareRead(read, again, segment);
    Operation *last = before->getPrevNode();
    for (Operation *op : ops)
      for (Value result : op->getResults())
        if (isDropped(result))
          result.replaceUsesWithIf(mapping.lookup(result), [&](OpOperand &use) {
            return phaseOf(use.getOwner()) == Phase::Backward && isHere(use.getOwner(), op);
          });
    sinkGradients(mapping.lookup(ops.front()->getResult(0)).getDefiningOp(), last);
  }

  // Products of the gradients behind a segment that only gradients of the segment read, such as that of an MLP's last
  // product, come after what is computed again (from `first` to `last`): four times as large as what they are made of,
  // which has to stay anyway, they would lie beside all of it.
  void sinkGradients(Operation *first, Operation *last) {
    SmallVector<std::pair<Operation *, Operation *>> moves; // and before which
    for (Operation *op = first->getPrevNode(); op && phaseOf(op) == Phase::Backward && !place::isRecomputed(op);
         op = op->getPrevNode()) {
      if (!isa<onnx::ContractOp>(op)) continue;
      Operation *reader = nullptr;
      for (Operation *user : op->getUsers())
        if (!reader || user->isBeforeInBlock(reader)) reader = user;
      if (!reader || phaseOf(reader) != Phase::Backward || !last->isBeforeInBlock(reader)) continue;
      if (place::stageOf(op) != place::stageOf(reader)) continue; // it is sent as soon as it is made
      const bool stays = llvm::all_of(op->getOperands(), [&](Value operand) {
        return isAlwaysThere(operand.getDefiningOp()) ||
               llvm::any_of(operand.getUsers(), [&](Operation *user) { return !user->isBeforeInBlock(reader); });
      });
      if (stays) moves.emplace_back(op, reader);
    }
    for (auto [op, reader] : moves) op->moveBefore(reader);
  }

  // The segment's gradients use the parameter that was read for computing it again, where no other segment reads it:
  // one that is gathered is gathered for both.
  void shareRead(Operation *read, Operation *again, const Segment &segment) {
    auto isOfSegment = [&](Operation *user) {
      auto found = segmentOf.find(user);
      return phaseOf(user) != Phase::Forward || (found != segmentOf.end() && found->second == segment);
    };
    if (!llvm::all_of(read->getUsers(), isOfSegment)) return;
    read->getResult(0).replaceUsesWithIf(again->getResult(0), [&](OpOperand &use) {
      Operation *user = use.getOwner();
      const std::optional<int64_t> stage = place::stageOf(user);
      return phaseOf(user) == Phase::Backward && again->isBeforeInBlock(user) && (!stage || stage == segment.second);
    });
  }

  func::FuncOp function;
  Block &block;
  DenseMap<Operation *, Segment> segmentOf;
  DenseSet<Operation *> marked;
  llvm::MapVector<Segment, SmallVector<Operation *>> needed;
  DenseMap<Segment, Operation *> firstUser; // in the backward pass
};

struct Recompute : impl::RecomputeBase<Recompute> {
  using Base::Base;
  void runOnOperation() override {
    ModuleOp module = getOperation();
    func::FuncOp keeping;
    if (exceptLast) {
      auto accumulate = module.lookupSymbol<func::FuncOp>("accumulate");
      if (!accumulate) {
        module.emitError("has no function @accumulate that all but the last microbatch could run");
        return signalPassFailure();
      }
      keeping = accumulate.clone();
      keeping.setName("accumulate_last");
      module.insert(std::next(accumulate->getIterator()), keeping);
    }
    for (auto function : module.getOps<func::FuncOp>()) {
      if (function.isExternal()) continue;
      if (function != keeping) Recomputation(function).run();
      function.walk([](Operation *op) {
        place::Place place = place::of(op);
        place.segment.reset();
        place.recompute = false;
        place.set(op);
      });
    }
  }
};

} // namespace

} // namespace cleave::partition
