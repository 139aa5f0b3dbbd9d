#include "compiler/codegen/clusters/cluster_graph.h"
#include "compiler/codegen/passes.h"
#include "compiler/tuning.h"
#include "dialects/onnx/kinds.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
namespace cleave::codegen {
#define GEN_PASS_DEF_REMATERIALIZECHEAP
#include "compiler/codegen/Passes.h.inc"

namespace {

constexpr int maxDepth = 12;            // of a recomputed expression
constexpr double trafficPenalty = 0.01; // of a byte that is written only for this, or read besides

bool isBackward(Operation *op) { return place::hasPhase(op, place::Phase::Backward); }
bool isForward(Operation *op) { return place::hasPhase(op, place::Phase::Forward); }
// The stage in a pipeline that is not cut yet; -1: anywhere.
int64_t stageOf(Operation *op) { return place::stageOf(op).value_or(-1); }
class Rematerializer {
public:
  void run(Block &block) {
    // Grows across products, collectives and copies: ops with different labels share no kernel. (ClusterGraph knows
    // more reasons why two ops do not, from the order of a pipeline's stages and of segments that are computed again.)
    for (Operation &op : block)
      for (Value operand : op.getOperands())
        if (Operation *def = operand.getDefiningOp(); def && !isa<onnx::ReadOp>(def))
          labels[&op] = std::max(labels[&op], labels.lookup(def) + (isClusterOp(def) ? 0 : 1));
    SmallVector<Operation *> candidates;
    for (Operation &op : llvm::reverse(block))
      if ((isForward(&op) || place::isRecomputed(&op)) && canRecompute(&op)) candidates.push_back(&op);
    for (Operation *op : candidates) consider(op);
  }

private:
  static bool canRecompute(Operation *op) { return isClusterOp(op) && !isReduction(op) && op->getNumResults() == 1; }
  bool isHere(Operation *op) const { return stageOf(op) < 0 || stageOf(op) == stage; }
  // Runs when the considered value is made; and after that, when it would be made again.
  bool isEarly(Operation *op) const { return isForward(op) || (isOfSegment && place::isRecomputed(op)); }
  bool isLate(Operation *op) const { return isBackward(op) && !(isOfSegment && place::isRecomputed(op)); }

  // Kept for the backward phase of this stage whatever happens here.
  bool isAlive(Value value) {
    Operation *op = value.getDefiningOp();
    if (!op || onnx::isResident(op) || bytesOf(value) <= tuning::smallBytes || kept.contains({value, stage}))
      return true;
    return isReadByProducts(value) ||
           llvm::any_of(value.getUsers(), [&](Operation *user) { return isHere(user) && isLate(user); });
  }
  // By what takes it from memory in the backward phase, in this shape or another one.
  bool isReadByProducts(Value value) const {
    return llvm::any_of(value.getUsers(), [&](Operation *user) {
      if (onnx::isAlias(user)) return isReadByProducts(user->getResult(0));
      return isHere(user) && !isEarly(user) && !isClusterOp(user);
    });
  }
  // Bytes that must be kept to have the value later, by keeping it or by computing it again (noted in `expanded`).
  double cost(Value value, int depth) {
    if (isAlive(value)) return 0;
    double keep = costOfKeeping(value);
    Operation *op = value.getDefiningOp();
    if (!canRecompute(op) || place::isRecomputed(op) != isOfSegment || !isHere(op) || depth >= maxDepth ||
        isOfStream(op))
      return keep;
    double recompute = costOfOperands(op, depth);
    if (recompute > keep) return keep;
    expanded.insert(op);
    return recompute;
  }
  double costOfOperands(Operation *op, int depth) {
    double sum = 0;
    SmallVector<Value> seen;
    for (Value operand : op->getOperands()) {
      if (llvm::is_contained(seen, operand)) continue;
      seen.push_back(operand);
      sum += cost(operand, depth + 1);
    }
    return sum;
  }
  // In the forward pass, for others than its own kernel.
  bool isWritten(Value value) const {
    Operation *op = value.getDefiningOp();
    return !canRecompute(op) || llvm::any_of(value.getUsers(), [&](Operation *user) {
      return !isClusterOp(user) || (isEarly(user) && labels.lookup(user) > labels.lookup(op));
    });
  }
  double costOfKeeping(Value value) const { return bytesOf(value) * (isWritten(value) ? 1 : 1 + trafficPenalty); }
  // Written, and made of what an earlier kernel has written so.
  bool isOfStream(Operation *op) const {
    if (isView(op) || onnx::isWideningCast(op) || !isWritten(op->getResult(0))) return false;
    SmallVector<Operation *> open{op};
    llvm::SmallDenseSet<Operation *> seen;
    while (!open.empty())
      for (Value operand : open.pop_back_val()->getOperands()) {
        Operation *made = operand.getDefiningOp();
        // Masks and the like depend on no product (label 0).
        if (!made || bytesOf(operand) <= tuning::smallBytes || !canRecompute(made) || labels.lookup(made) == 0 ||
            !seen.insert(made).second)
          continue;
        const bool isLook = isView(made) || onnx::isWideningCast(made),
                   isEarlier = labels.lookup(made) < labels.lookup(op);
        if (!isLook && isEarlier && isWritten(operand)) return true;
        if (isLook || !isEarlier) open.push_back(made);
      }
    return false;
  }
  // Where a value is read from: views are looked through.
  static Value sourceOf(Value value) {
    for (Operation *def = value.getDefiningOp(); def && isView(def) && isClusterOp(def); def = value.getDefiningOp())
      value = def->getOperand(0);
    return value;
  }
  // Collects the values that the clone of `op` reads from memory; constants, numbers and broadcast values are at hand
  // in a kernel.
  void collectReads(Operation *op, int depth, llvm::SmallDenseSet<Operation *> &seen,
                    llvm::SmallDenseSet<Value> &reads) {
    if (!seen.insert(op).second) return;
    for (Value operand : op->getOperands()) {
      Operation *def = operand.getDefiningOp();
      if (def && expanded.contains(def) && depth < maxDepth && !isAlive(operand)) {
        collectReads(def, depth + 1, seen, reads);
        continue;
      }
      Value source = sourceOf(operand);
      Operation *made = source.getDefiningOp();
      if (!(made && onnx::isGenerator(made)) && bytesOf(source) > tuning::smallBytes) reads.insert(source);
    }
  }
  // The cost of what each user reads beyond the value itself, summed over the users.
  double costOfReading(Operation *op, ArrayRef<Operation *> users) {
    llvm::SmallDenseSet<Operation *> seen;
    llvm::SmallDenseSet<Value> reads;
    collectReads(op, 0, seen, reads);
    double cost = 0;
    for (Operation *user : users) {
      double more = -bytesOf(op->getResult(0));
      for (Value read : reads)
        if (llvm::none_of(user->getOperands(), [&](Value operand) { return sourceOf(operand) == read; }))
          more += bytesOf(read);
      cost += std::max(0.0, more) * trafficPenalty;
    }
    return cost;
  }

  void consider(Operation *op) {
    Value value = op->getResult(0);
    stage = stageOf(op);
    isOfSegment = place::isRecomputed(op);
    if (isReadByProducts(value)) return;
    SmallVector<Operation *> users;
    for (Operation *user : value.getUsers())
      if (isLate(user) && isHere(user) && !llvm::is_contained(users, user)) users.push_back(user);
    if (users.empty() || onnx::isConstant(op)) return;
    bool isFree = onnx::isGenerator(op) || isView(op) || onnx::isWideningCast(op);
    if (!isFree && (bytesOf(value) <= tuning::smallBytes || isOfStream(op))) return;
    expanded.clear();
    double again = costOfOperands(op, 0);
    if (again + costOfReading(op, users) > costOfKeeping(value)) return;
    for (Operation *user : users) {
      OpBuilder builder(user);
      IRMapping clones;
      user->replaceUsesOfWith(value, clone(builder, op, user, clones, 0));
    }
  }
  Value clone(OpBuilder &builder, Operation *op, Operation *user, IRMapping &clones, int depth) {
    if (Value known = clones.lookupOrNull(op->getResult(0))) return known;
    IRMapping operands;
    for (Value operand : op->getOperands()) {
      Operation *def = operand.getDefiningOp();
      if (def && expanded.contains(def) && depth < maxDepth && !isAlive(operand))
        operands.map(operand, clone(builder, def, user, clones, depth + 1));
      else
        kept.insert({operand, stage});
    }
    Operation *copy = builder.clone(*op, operands);
    place::Place place = place::of(copy);
    place.phase = place::Phase::Backward;
    place.recomputed = place::of(user).recomputed;
    place.set(copy);
    clones.map(op->getResult(0), copy->getResult(0));
    return copy->getResult(0);
  }

  int64_t stage = -1;       // of the value that is considered
  bool isOfSegment = false; // that value: it is computed again, and its gradients are what runs late
  llvm::DenseMap<Operation *, int64_t> labels;
  llvm::DenseSet<std::pair<Value, int64_t>> kept;
  llvm::DenseSet<Operation *> expanded;
};

struct RematerializeCheap : impl::RematerializeCheapBase<RematerializeCheap> {
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isExternal()) Rematerializer().run(function.front());
  }
};

} // namespace
} // namespace cleave::codegen
