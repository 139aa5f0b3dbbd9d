// Recompute: the backward phase computes block activations again instead of keeping them. The forward ops are cut into
// segments where little crosses (in a transformer: the residual stream between two halves of a block); only what
// crosses a cut is kept. A segment's ops that its backward needs are cloned in front of the first backward op that
// needs one.
//
//   forward   x0 -[segment 1]-> x1 -[segment 2]-> x2 -> loss          kept: x1
//   backward  segment 2 as it is (its values still live), then clones of segment 1 from x0, then its gradients
//
// Cuts: of all places where no more crosses than at the narrowest places nearby, those are taken that make the sum of
// kept bytes and the largest segment smallest. Names and shapes of layers play no part.
#include "compiler/training/step_function.h"
#include "compiler/training/training.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
namespace cleave::training {
namespace {

int64_t bytesOf(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  if (!type || !type.getElementType().isIntOrFloat()) return 0;
  return type.getNumElements() * ((type.getElementTypeBitWidth() + 7) / 8);
}

bool isPhase(Operation &op, Phase phase) {
  auto text = op.getAttrOfType<StringAttr>(phaseName);
  return text && text == phaseText(phase);
}

// Costs nothing to make again and holds nothing: never counts as an activation.
bool isFree(Operation *op) { return !op || isa<onnx::ReadOp, onnx::ConstantOp, onnx::IotaOp>(op); }

class Recompute : public PassWrapper<Recompute, OperationPass<ModuleOp>> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(Recompute)
  StringRef getArgument() const final { return "recompute"; }
  StringRef getDescription() const final { return "compute activations again in the backward phase"; }

  void runOnOperation() override {
    func::FuncOp model = findFunction(getOperation(), "model", "the normalize phase");
    if (!model) return signalPassFailure();
    forward.clear();
    backward.clear();
    position.clear();
    for (Operation &op : model.front().without_terminator()) {
      if (isPhase(op, Phase::Backward)) {
        backward.push_back(&op);
      } else {
        position[&op] = static_cast<int64_t>(forward.size());
        forward.push_back(&op);
      }
    }
    if (backward.empty()) return;
    findCuts();
    recomputeSegments();
    eraseDeadOps(model);
  }

private:
  std::vector<Operation *> forward, backward;
  DenseMap<Operation *, int64_t> position; // of forward ops
  std::vector<int64_t> segmentOf;          // by position
  int64_t segments = 0;

  bool isForward(Operation *op) { return op && position.contains(op); }

  // crossing[i]: bytes made before op i that op i or a later forward op reads.
  std::vector<int64_t> crossingBytes() {
    int64_t count = static_cast<int64_t>(forward.size());
    std::vector<int64_t> change(count + 2, 0);
    for (int64_t i = 0; i < count; ++i) {
      if (isFree(forward[i])) continue;
      for (Value result : forward[i]->getResults()) {
        int64_t last = i;
        for (Operation *user : result.getUsers())
          if (auto found = position.find(user); found != position.end()) last = std::max(last, found->second);
        change[i + 1] += bytesOf(result);
        change[last + 1] -= bytesOf(result);
      }
    }
    for (int64_t i = 1; i <= count; ++i) change[i] += change[i - 1];
    change.resize(count + 1);
    return change;
  }

  // What a segment holds while its gradients are computed: results that the backward phase reads.
  std::vector<int64_t> keptBytesPrefix() {
    std::vector<int64_t> prefix(forward.size() + 1, 0);
    for (size_t i = 0; i < forward.size(); ++i) {
      prefix[i + 1] = prefix[i];
      if (isFree(forward[i])) continue;
      for (Value result : forward[i]->getResults())
        if (llvm::any_of(result.getUsers(), [&](Operation *user) { return isPhase(*user, Phase::Backward); }))
          prefix[i + 1] += bytesOf(result);
    }
    return prefix;
  }

  // Tries segments of at least `target` kept bytes, for targets that double, and takes the best sum.
  void findCuts() {
    std::vector<int64_t> crossing = crossingBytes(), kept = keptBytesPrefix();
    int64_t count = static_cast<int64_t>(forward.size()), total = kept[count];
    std::vector<int64_t> best;
    int64_t bestBytes = total;
    for (int64_t target = std::max<int64_t>(total / 4096, 1); target < total; target *= 2) {
      std::vector<int64_t> cuts;
      int64_t start = 0, stored = 0, largest = 0;
      while (kept[count] - kept[start] > target) {
        // The narrowest place at which the segment holds between one and two targets; the later of equals.
        int64_t cut = -1;
        for (int64_t i = start + 1; i < count && kept[i] - kept[start] <= 2 * target; ++i)
          if (kept[i] - kept[start] >= target && (cut < 0 || crossing[i] <= crossing[cut])) cut = i;
        if (cut < 0)
          for (cut = start + 1; cut < count && kept[cut] - kept[start] < target;) ++cut;
        if (cut >= count) break;
        largest = std::max(largest, kept[cut] - kept[start]);
        stored += crossing[cut];
        cuts.push_back(cut);
        start = cut;
      }
      largest = std::max(largest, kept[count] - kept[start]);
      if (stored + largest < bestBytes) bestBytes = stored + largest, best = cuts;
    }
    segmentOf.assign(forward.size(), 0);
    segments = 0;
    for (int64_t i = 0, next = 0; i < count; ++i) {
      if (next < static_cast<int64_t>(best.size()) && best[next] == i) ++segments, ++next;
      segmentOf[i] = segments;
    }
    ++segments;
  }

  // A value that a later segment's forward ops read is kept: it crosses a cut.
  bool isKept(Value value) {
    Operation *op = value.getDefiningOp();
    int64_t segment = segmentOf[position[op]];
    return llvm::any_of(value.getUsers(), [&](Operation *user) {
      auto found = position.find(user);
      return found != position.end() && segmentOf[found->second] > segment;
    });
  }

  // Backward ops in order; every segment but the last (whose values are still live) is cloned when first needed. The
  // needed ops of a segment are known by a walk from all backward uses towards its start.
  void recomputeSegments() {
    std::vector<std::vector<Operation *>> needed(segments);
    std::vector<Operation *> firstUser(segments, nullptr);
    DenseSet<Operation *> marked;
    auto mark = [&](Value value) { // an op of a segment to compute again, if it is one
      Operation *op = value.getDefiningOp();
      if (!isForward(op) || isFree(op) || segmentOf[position[op]] == segments - 1 || isKept(value)) return;
      if (marked.insert(op).second) needed[segmentOf[position[op]]].push_back(op);
    };
    for (Operation *op : backward) {
      for (Value operand : op->getOperands()) {
        mark(operand);
        Operation *made = operand.getDefiningOp();
        if (isForward(made) && marked.contains(made)) {
          Operation *&first = firstUser[segmentOf[position[made]]];
          if (!first) first = op;
        }
      }
    }
    for (int64_t segment = 0; segment + 1 < segments; ++segment) {
      std::vector<Operation *> &ops = needed[segment];
      for (size_t i = 0; i < ops.size(); ++i)
        for (Value operand : ops[i]->getOperands()) mark(operand);
      if (ops.empty()) continue;
      llvm::sort(ops, [&](Operation *a, Operation *b) { return position[a] < position[b]; });
      cloneSegment(ops, firstUser[segment]);
    }
  }

  void cloneSegment(ArrayRef<Operation *> ops, Operation *before) {
    OpBuilder builder(before);
    IRMapping mapping;
    auto backwardPhase = builder.getStringAttr(phaseText(Phase::Backward));
    for (Operation *op : ops) {
      // A parameter is read again, so that it may be gathered again; a constant is no load on memory.
      for (Value operand : op->getOperands())
        if (isFree(operand.getDefiningOp()) && operand.getDefiningOp() && !mapping.contains(operand))
          builder.clone(*operand.getDefiningOp(), mapping)->setAttr(phaseName, backwardPhase);
      Operation *again = builder.clone(*op, mapping);
      again->setAttr(phaseName, backwardPhase);
      if (op->hasAttr(originName)) again->setAttr(recomputedName, builder.getUnitAttr());
    }
    for (Operation *op : ops)
      for (Value result : op->getResults())
        result.replaceUsesWithIf(mapping.lookup(result),
                                 [&](OpOperand &use) { return isPhase(*use.getOwner(), Phase::Backward); });
  }
};

} // namespace

std::unique_ptr<Pass> createRecompute() { return std::make_unique<Recompute>(); }
void registerRecompute() { PassRegistration<Recompute>(); }

} // namespace cleave::training
