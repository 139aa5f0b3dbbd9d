#include "compiler/codegen/clusters/cluster_graph.h"
#include "compiler/training/loss_scale.h"
#include "compiler/training/step_function.h"
#include "compiler/tuning.h"
#include "dialects/dist/Dist.h"
#include "dialects/onnx/kinds.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/SmallPtrSet.h"
#include <tuple>

using namespace mlir;
namespace cleave::codegen {
namespace {

// Kept beside any result: no more than a page.
constexpr int64_t fewBytes = 4096;

// Alive for the whole function, or so small, by itself and beside the result that waits for it, that keeping it costs
// nothing: reading it late is free.
bool isAlwaysThere(Value value, int64_t resultBytes) {
  Operation *op = value.getDefiningOp();
  return !op || onnx::isResident(op) || bytesOf(value) <= std::min(tuning::smallBytes, std::max(resultBytes, fewBytes));
}

// The value that must be kept so that this one can be had later for nothing: the source of a view, nothing for an Iota.
Value behindFree(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    bool isFree = (isView(op) && canJoinKernel(op)) || isa<onnx::RandomUniformOp>(op);
    if (!isFree) break;
    value = op->getOperand(0);
  }
  return value;
}

// A reduction of the innermost dimension, which goes row by row; others go over columns.
bool isRowReduction(Operation *op) {
  if (!isReduction(op)) return false;
  auto type = cast<RankedTensorType>(op->getOperand(0).getType());
  int64_t innermost = type.getRank() - 1;
  while (innermost > 0 && type.getDimSize(innermost) == 1) --innermost;
  return llvm::is_contained(op->getAttrOfType<DenseI64ArrayAttr>("axes").asArrayRef(), innermost);
}

bool keepsInnermost(onnx::TransposeOp op) {
  ArrayRef<int64_t> shape = cast<RankedTensorType>(op.getX().getType()).getShape();
  ArrayRef<int64_t> permutation = op.getPerm();
  int64_t source = static_cast<int64_t>(shape.size()) - 1, target = source;
  while (source >= 0 && shape[source] == 1) --source;
  while (target >= 0 && shape[permutation[target]] == 1) --target;
  return source < 0 || permutation[target] == source;
}

// A collective whose members are stages of a pipeline.
bool isBetweenStages(Operation *op) {
  auto reduce = dyn_cast<dist::AllReduceOp>(op);
  return reduce && llvm::any_of(reduce.getAxes().getAsRange<StringAttr>(),
                                [](StringAttr axis) { return dist::isPipelineAxis(axis.getValue()); });
}

// Is `ops` one that only looks at other elements, so that it costs nothing inside and little outside?
bool isOnlyViews(ArrayRef<Operation *> ops) {
  return llvm::all_of(
      ops, [](Operation *op) { return onnx::isConstant(op) || (isView(op) && !isa<onnx::BroadcastOp>(op)); });
}

// The parameter whose rule (training/step_function.h) the op belongs to, "" for other ops. Ops that each user has for
// itself belong anywhere: none.
std::optional<StringRef> ruleOf(Operation *op) {
  if (onnx::isConstant(op) || isView(op)) return std::nullopt;
  return place::ruleAttr.of(op).value_or("");
}

} // namespace

bool isClusterOp(Operation *op) {
  if (!canJoinKernel(op)) return false;
  if (auto transpose = dyn_cast<onnx::TransposeOp>(op)) return keepsInnermost(transpose);
  if (auto slice = dyn_cast<onnx::SliceOp>(op)) return slice.getSteps().empty() || slice.getSteps().back() == 1;
  return llvm::all_of(op->getResultTypes(), [](Type type) {
    auto tensor = dyn_cast<RankedTensorType>(type);
    return tensor && tensor.hasStaticShape() && tensor.getNumElements() > 0;
  });
}

SmallVector<Value> outputsOfCluster(ArrayRef<Operation *> ops) {
  llvm::SmallPtrSet<Operation *, 32> inside(ops.begin(), ops.end());
  SmallVector<Value> outputs;
  for (Operation *op : ops)
    for (Value result : op->getResults())
      if (llvm::any_of(result.getUsers(), [&](Operation *user) { return !inside.contains(user); }))
        outputs.push_back(result);
  return outputs;
}

ClusterGraph::ClusterGraph(Block &block) : block(block) {
  for (Operation &op : block) position.try_emplace(&op, position.size());
}

std::vector<SmallVector<Operation *>> ClusterGraph::run() {
  // A pipeline's stages agree to the last bit. And where an update waits for the sign of a step that is skipped, which
  // is made of sums over all gradients, what it makes must not come with those sums: it would wait for all others'.
  Operation *function = block.getParentOp();
  const bool keepsRules =
      place::programAttr.isOn(function) ||
      SymbolTable::lookupNearestSymbolFrom(function, StringAttr::get(function->getContext(), training::skippedName));
  if (keepsRules) findWaiting();
  label();
  for (Operation &op : block) {
    if (!isClusterOp(&op)) continue;
    clusterOfOp[&op] = clusters.size();
    places.push_back(position[&op]);
    std::optional<StringRef> rule = keepsRules ? ruleOf(&op) : std::nullopt;
    if (rule && rule->empty() && waiting.contains(&op)) rule = "waiting";
    clusters.push_back({{&op}, rule});
  }
  absorbIntoReductions();
  mergeAlongValues();
  computeWhereRead();
  mergeReadersOfOneTensor();
  mergeReadersOfOneKernel();
  mergeReadersOfOverwritten();
  releaseUpdates();
  std::vector<SmallVector<Operation *>> groups;
  for (Cluster &cluster : clusters)
    if (isWorthKernel(cluster)) groups.push_back(cluster.ops);
  return groups;
}

int ClusterGraph::clusterOf(Operation *op) const {
  auto found = clusterOfOp.find(op);
  return found == clusterOfOp.end() ? -1 : found->second;
}

bool ClusterGraph::isWorthKernel(const Cluster &cluster) const {
  return !cluster.ops.empty() && !isOnlyViews(cluster.ops) &&
         KernelDomain::of(cluster.ops, outputsOfCluster(cluster.ops)).has_value();
}

//===--- labels
//-----------------------------------------------------------------------------------------------------===//

// Pipeline stages that wait for each other add paths that no operand shows: what a rank receives may have been made
// from what it has sent before. So labels also grow from a send to the receives after it; a collective between stages
// is both.
void ClusterGraph::label() {
  int64_t answered = 0; // least label of what another stage may have made with what this one has sent so far
  int64_t highest = 0;
  llvm::DenseMap<int64_t, int64_t> begins, chunkBegins; // of segments that are computed again, of chunks
  for (Operation &op : block) {
    bool gives = isa<dist::SendOp>(op) || isBetweenStages(&op),
         takes = isa<dist::ReceiveOp>(op) || isBetweenStages(&op);
    int64_t label = takes ? answered : 0;
    for (Value operand : op.getOperands())
      if (Operation *def = operand.getDefiningOp(); def && !isa<onnx::ReadOp>(def))
        label = std::max(label, labels[def] + (isClusterOp(def) ? 0 : 1));
    // With the forward pass it would be one computation, and its results would be kept.
    if (auto segment = place::of(&op).recomputed)
      label = std::max(label, begins.try_emplace(*segment, highest + 1).first->second);
    // With the chunk before, both would be there at once.
    if (auto chunk = place::of(&op).chunk)
      label = std::max(label, chunkBegins.try_emplace(*chunk, highest + 1).first->second);
    highest = std::max(highest, label);
    labels[&op] = label;
    if (gives) answered = std::max(answered, label + 1);
  }
  for (Operation &op : llvm::reverse(block)) {
    if (!isClusterOp(&op) || op.use_empty()) continue;
    int64_t late = std::numeric_limits<int64_t>::max();
    for (Operation *user : op.getUsers()) late = std::min(late, labels[user]);
    if (late > labels[&op] && (isUpdateThatWaits(&op) || isWorthDelaying(&op, late))) labels[&op] = late;
  }
}

// Finds three kinds of operation in the update: those that choose between the old and the new by one sign for all of a
// tensor, those made for that alone (none that makes the sign), and those made of it: a copy in 16 bits.
void ClusterGraph::findWaiting() {
  llvm::SmallPtrSet<Operation *, 32> ahead; // the sign is made of them
  SmallVector<Operation *> work;
  for (Operation &op : block) {
    auto choice = dyn_cast<onnx::WhereOp>(op);
    auto spread = choice ? choice.getCondition().getDefiningOp<onnx::BroadcastOp>() : nullptr;
    if (!spread || cast<RankedTensorType>(spread.getX().getType()).getNumElements() != 1) continue;
    if (const auto phase = place::of(&op).phase; phase && phase != place::Phase::Update) continue;
    waiting.insert(&op);
    if (ahead.insert(spread).second) work.push_back(spread);
  }
  while (!work.empty())
    for (Value operand : work.pop_back_val()->getOperands())
      if (Operation *def = operand.getDefiningOp(); def && ahead.insert(def).second) work.push_back(def);
  for (Operation &op : llvm::reverse(block))
    if (!ahead.contains(&op) && !op.use_empty() &&
        llvm::all_of(op.getUsers(), [&](Operation *user) { return waiting.contains(user); }))
      waiting.insert(&op);
  for (Operation &op : block)
    if (llvm::any_of(op.getOperands(), [&](Value operand) { return waiting.contains(operand.getDefiningOp()); }))
      waiting.insert(&op);
}

// One that waits for the sign of a step that is skipped, and is of no rule that sums. Its gradient waits, too, and what
// is made of it goes where it stays: made early, as the largest of a row would be, it would lie beside the old.
bool ClusterGraph::isUpdateThatWaits(Operation *op) const { return waiting.contains(op) && ruleOf(op) == StringRef(); }

// Bytes that must be kept for the op to run late, together with at most so many others that nothing else needs early.
int64_t ClusterGraph::keptFor(Operation *op, int64_t until, size_t others) const {
  llvm::SmallSetVector<Operation *, 16> late;
  late.insert(op);
  auto isLate = [&](Operation *user) { return late.contains(user) || labels.lookup(user) >= until; };
  auto canBeLate = [&](Operation *def) {
    return def && isClusterOp(def) && !isReduction(def) && llvm::all_of(def->getUsers(), isLate);
  };
  // An operation that two of them read joins when the second has.
  for (bool grows = true; grows && late.size() <= others;) {
    grows = false;
    for (size_t i = 0; i < late.size() && late.size() <= others; ++i)
      for (Value operand : late[i]->getOperands())
        if (canBeLate(operand.getDefiningOp())) grows |= late.insert(operand.getDefiningOp());
  }
  llvm::SmallDenseSet<Value> kept;
  const int64_t resultBytes = bytesOf(op->getResult(0));
  int64_t bytes = 0;
  for (Operation *one : late)
    for (Value seen : one->getOperands()) {
      Value operand = behindFree(seen);
      if (isAlwaysThere(operand, resultBytes) || isa<onnx::IotaOp>(operand.getDefiningOp())) continue;
      if (late.contains(operand.getDefiningOp())) continue;
      // A product that stands right before has it, too: an activation whose sign the kernel behind wants.
      bool isAliveThen = llvm::any_of(operand.getUsers(), [&](Operation *user) {
        return !late.contains(user) && labels.lookup(user) + 1 >= until;
      });
      if (!isAliveThen && kept.insert(operand).second) bytes += bytesOf(operand);
    }
  return bytes;
}

// Computing the op late keeps alive what it is made from instead of its result: its operands, or what those are made
// from, which can then be late, too.
bool ClusterGraph::isWorthDelaying(Operation *op, int64_t until) const {
  int64_t result = bytesOf(op->getResult(0)), most = result + result / 8; // statistics of rows come with the rows
  return keptFor(op, until, 0) <= most || keptFor(op, until, 32) <= most;
}

//===--- merging
//----------------------------------------------------------------------------------------------------===//

// First, what only a reduction needs belongs to that reduction, before anything else claims it.
void ClusterGraph::absorbIntoReductions() {
  SmallVector<Operation *> work;
  for (Operation &op : block)
    if (isReduction(&op)) work.push_back(&op);
  for (size_t i = 0; i < work.size(); ++i) {
    int cluster = clusterOf(work[i]);
    if (cluster < 0) continue;
    for (Value operand : work[i]->getOperands()) {
      Operation *def = operand.getDefiningOp();
      if (!def || isReduction(def) || clusterOf(def) < 0 || clusterOf(def) == cluster) continue;
      bool isExclusive = llvm::all_of(operand.getUsers(), [&](Operation *user) { return clusterOf(user) == cluster; });
      if (isExclusive && tryMerge(clusterOf(def), cluster)) {
        cluster = clusterOf(work[i]);
        work.push_back(def);
      }
    }
  }
}

// Then along every value from producer to consumer, the largest first: that saves the most memory traffic. Column sums
// come last: they can read what a kernel has stored, while a row's values are at hand only in the kernel that has the
// row.
void ClusterGraph::mergeAlongValues() {
  struct Edge {
    bool intoColumns;
    int64_t bytes;
    size_t order;
    Operation *from, *to;
    auto key() const { return std::tuple(intoColumns, -bytes, order); }
  };
  std::vector<Edge> edges;
  for (Operation &op : block) {
    if (clusterOf(&op) < 0) continue;
    bool intoColumns = isReduction(&op) && !isRowReduction(&op);
    for (Value operand : op.getOperands())
      if (Operation *def = operand.getDefiningOp(); def && clusterOf(def) >= 0)
        edges.push_back({intoColumns, bytesOf(operand), edges.size(), def, &op});
  }
  llvm::sort(edges, [](const Edge &a, const Edge &b) { return a.key() < b.key(); });
  for (bool columns : {false, true}) {
    bool changed = true;
    for (int round = 0; changed && round < 4; ++round) { // what was refused may be allowed once a neighbour has joined
      changed = false;
      for (const Edge &edge : edges) {
        int a = clusterOf(edge.from), b = clusterOf(edge.to);
        if (a != b && (columns || !edge.intoColumns)) changed |= tryMerge(a, b);
      }
    }
  }
}

// Then merges reductions that read the same tensor: the gradients of a layer norm's weight and bias are two sums over
// one dy.
void ClusterGraph::mergeReadersOfOneTensor() {
  auto mergeUsers = [&](Value value) {
    SmallVector<int> readers;
    for (Operation *user : value.getUsers()) {
      const int cluster = clusterOf(user);
      if (cluster < 0 || !reduces(cluster) || llvm::is_contained(readers, cluster)) continue;
      if (llvm::none_of(readers, [&](int other) { return tryMerge(other, cluster); })) readers.push_back(cluster);
    }
  };
  for (BlockArgument argument : block.getArguments()) mergeUsers(argument);
  for (Operation &op : block)
    for (Value result : op.getResults())
      if (auto type = dyn_cast<RankedTensorType>(result.getType()); type && bytesOf(result) >= fewBytes)
        mergeUsers(result);
}

// Then merges reductions of what one kernel stores: the parts of a batch norm's sums.
void ClusterGraph::mergeReadersOfOneKernel() {
  for (size_t kernel = 0; kernel < clusters.size(); ++kernel) {
    SmallVector<int> readers;
    for (Value output : outputsOfCluster(clusters[kernel].ops))
      for (Operation *user : output.getUsers()) {
        const int cluster = clusterOf(user);
        if (!isReduction(user) || cluster < 0 || cluster == int(kernel) || llvm::is_contained(readers, cluster))
          continue;
        if (llvm::none_of(readers, [&](int other) { return tryMerge(other, cluster); })) readers.push_back(cluster);
      }
  }
}

// Last, merges kernels of the update that read a parameter or state which the step overwrites: the kernels of Lion's
// new momentum and of its parameter both read the old momentum. Apart, they would need a buffer for the new momentum
// until both have read the old one.
void ClusterGraph::mergeReadersOfOverwritten() {
  llvm::DenseSet<Attribute> overwritten;
  for (auto write : block.getOps<onnx::WriteOp>()) overwritten.insert(write.getParamAttr());
  for (auto read : block.getOps<onnx::ReadOp>()) {
    if (!overwritten.contains(read.getParamAttr())) continue;
    int first = -1;
    for (Operation *user : read->getUsers()) {
      const int cluster = clusterOf(user);
      if (cluster < 0 || !place::hasPhase(user, place::Phase::Update) || reduces(cluster)) continue;
      if (first < 0)
        first = cluster;
      else if (cluster != first)
        tryMerge(first, cluster);
    }
  }
}

bool ClusterGraph::reduces(int cluster) const { return llvm::any_of(clusters[cluster].ops, isReduction); }

} // namespace cleave::codegen
