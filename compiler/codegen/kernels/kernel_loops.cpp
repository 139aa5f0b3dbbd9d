#include "compiler/codegen/kernels/kernel_loops.h"
#include "compiler/codegen/kernels/clone_body.h"
#include "compiler/codegen/kernels/kernel_element.h"
#include "compiler/codegen/kernels/loop_builder.h"
#include "dialects/onnx/kinds.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
namespace cleave::codegen {
namespace {

// Costly values of a row are kept for later phases if they fit in this much stack.
constexpr int64_t rowBufferBytes = 256 << 10;

FactorSet bit(int64_t factor) { return FactorSet(1) << factor; }

class KernelLoops {
public:
  KernelLoops(plan::KernelOp kernel, const KernelSchedule &schedule, ModuleOp module)
      : kernel(kernel), s(schedule), nodes(schedule.nodes), loops(kernel.getLoc(), module, kernel.getSymName()) {
    inside.resize(nodes.size());
    lasting.resize(nodes.size());
    arrays.resize(nodes.size());
    accumulators.resize(nodes.size());
  }

  void run() {
    if (s.shape == KernelSchedule::Columns)
      chooseColumnArrays();
    else if (s.shape == KernelSchedule::Rows)
      chooseRowBuffers();
    for (auto [number, node] : llvm::enumerate(nodes))
      if (node.kind == KernelNode::Reduce)
        accumulators[number] = loops.array(elementType(node), s.shape == KernelSchedule::Columns ? s.tile : 1);
    prepareCaptured();
    if (s.rangeIsVector)
      emitElements();
    else
      emitRange();
    loops.finish();
  }

private:
  using Nest = SmallVector<int>; // the nodes a nest of loops is there for

  static Type elementType(const KernelNode &node) {
    return elementInKernel(cast<RankedTensorType>(node.op->getResult(0).getType()).getElementType());
  }
  bool isParallelOnly(const KernelNode &node) const { return (node.set & s.reduced) == 0; }
  bool isTarget(const KernelNode &node) const {
    return node.kind == KernelNode::Reduce || node.kind == KernelNode::Store;
  }

  //===--- what is kept between phases
  //------------------------------------------------------------------------------===//

  // The nodes that must be computed inside the nest of `targets`: not what is kept already.
  SmallVector<char> needed(const Nest &targets) {
    SmallVector<char> needs(nodes.size(), 0);
    for (int target : targets) needs[target] = 1;
    for (int i = static_cast<int>(nodes.size()) - 1; i >= 0; --i) {
      if (!needs[i]) continue;
      bool isTargetHere = llvm::is_contained(targets, i);
      if (!isTargetHere && (nodes[i].kind == KernelNode::Reduce || isKept(i))) continue;
      for (int producer : nodes[i].producers) needs[producer] = 1;
    }
    return needs;
  }
  bool isKept(int number) const { return arrays[number].filled; }

  Nest fullTargets(int phase) const {
    Nest nest;
    for (auto [i, node] : llvm::enumerate(nodes)) {
      if (!isTarget(node) || node.level != phase) continue;
      if (node.kind == KernelNode::Reduce || !isParallelOnly(node) || s.reduced == 0) nest.push_back(i);
    }
    return nest;
  }
  Nest parallelTargets(int phase) const {
    Nest nest;
    if (s.reduced == 0) return nest;
    for (auto [i, node] : llvm::enumerate(nodes))
      if (node.kind == KernelNode::Store && node.level == phase && isParallelOnly(node)) nest.push_back(i);
    return nest;
  }

  // Rows: costly full values that the nests of two phases need.
  void chooseRowBuffers() {
    int64_t budget = rowBufferBytes;
    SmallVector<char> before(nodes.size(), 0);
    for (int phase = 0; phase < s.phases; ++phase) {
      SmallVector<char> now = needed(fullTargets(phase));
      for (size_t i = 0; i < nodes.size(); ++i) {
        if (!now[i] || isParallelOnly(nodes[i]) || !nodes[i].isCostly) continue;
        int64_t bytes = s.rowElements() * onnx::elementBytes(elementType(nodes[i]));
        if (before[i] && !arrays[i].filled && bytes <= budget && hasAllInner(nodes[i])) {
          budget -= bytes;
          arrays[i] = {loops.array(elementType(nodes[i]), s.rowElements()), true};
        }
      }
      for (size_t i = 0; i < nodes.size(); ++i) before[i] |= now[i];
    }
    for (Array &array : arrays) array.filled = false; // set again when the code that fills it is emitted
  }
  bool hasAllInner(const KernelNode &node) const { return (node.set & s.reduced) == s.reduced; }

  // Columns: values of a column made from sums, which every row of the next phase reads.
  void chooseColumnArrays() {
    for (auto [i, node] : llvm::enumerate(nodes))
      if (node.kind == KernelNode::Compute && isParallelOnly(node) && node.level > 0)
        arrays[i].memory = loops.array(elementType(node), s.tile);
  }

  //===--- values from outside the generics
  //-------------------------------------------------------------------------===//

  void prepareCaptured() {
    for (BlockArgument scalar : kernel.getScalarArguments())
      captured.map(scalar, loops.scalar(scalar.getArgNumber() - kernel.getTensorArguments().size()));
    for (Operation &op : kernel.getBlock()) {
      if (isa<arith::ConstantOp>(op)) captured.map(op.getResult(0), loops.entry().clone(op)->getResult(0));
      if (auto extract = dyn_cast<tensor::ExtractOp>(op)) {
        APInt at;
        matchPattern(extract.getIndices()[0], m_ConstantInt(&at));
        int64_t buffer = cast<BlockArgument>(extract.getTensor()).getArgNumber();
        Value index =
            arith::ConstantOp::create(loops.entry(), op.getLoc(), loops.entry().getI64IntegerAttr(at.getSExtValue()));
        captured.map(extract.getResult(), loops.load(loops.entry(), loops.buffer(buffer), extract.getType(), index,
                                                     /*inParallelLoop=*/false));
      }
    }
  }

  //===--- loops
  //----------------------------------------------------------------------------------------------------===//

  void emitElements() {
    runNest(fullTargets(0), {s.vector}, [&](int64_t) { return std::pair(loops.begin(), loops.end()); });
  }

  void emitRange() {
    Value end = loops.end();
    if (s.rangeIsColumns) // as many tiles as the range's columns need
      end = loops.quotient(loops.sum(loops.difference(loops.end(), loops.begin()), loops.number(s.tile - 1)), s.tile);
    Value row = loops.open(s.rangeIsColumns ? loops.number(0) : loops.begin(), end, false);
    atRow = true;
    Value rest = row;
    if (s.rangeIsColumns) {
      tileBegin = loops.sum(loops.begin(), loops.product(row, s.tile));
      tileEnd = loops.minimum(loops.sum(tileBegin, loops.number(s.tile)), loops.end());
    } else if (s.shape == KernelSchedule::Columns) {
      int64_t columns = s.sizes[s.vector], tiles = (columns + s.tile - 1) / s.tile;
      tileBegin = loops.product(loops.remainder(row, tiles), s.tile);
      tileEnd = loops.minimum(loops.sum(tileBegin, loops.number(s.tile)), loops.number(columns));
      rest = loops.quotient(row, tiles);
    }
    for (size_t i = s.outer.size(); i-- > 0;) {
      int64_t size = s.sizes[s.outer[i]];
      indices[s.outer[i]] = i == 0 ? rest : loops.remainder(rest, size);
      if (i > 0) rest = loops.quotient(rest, size);
      rowFactors |= bit(s.outer[i]);
    }
    for (int phase = 0; phase < s.phases; ++phase) {
      if (s.shape == KernelSchedule::Columns)
        columnPhase(phase);
      else
        rowPhase(phase);
    }
    loops.close();
  }

  std::pair<Value, Value> wholeRange(int64_t factor) {
    if (factor == s.vector && s.shape == KernelSchedule::Columns) return {tileBegin, tileEnd};
    return {loops.number(0), loops.number(s.sizes[factor])};
  }

  void rowPhase(int phase) {
    Nest full = fullTargets(phase), parallel = parallelTargets(phase);
    if (!full.empty()) {
      for (int i : full)
        if (nodes[i].kind == KernelNode::Reduce) storeNeutral(i, loops.number(0));
      SmallVector<int64_t> factors(s.inner);
      if (s.vector >= 0) factors.push_back(s.vector);
      runNest(full, factors, [&](int64_t factor) { return wholeRange(factor); });
      for (int i : full)
        if (nodes[i].kind == KernelNode::Reduce)
          lasting[i] = loops.load(loops.here(), accumulators[i], elementType(nodes[i]), loops.number(0), false);
    }
    if (!parallel.empty()) runNest(parallel, {}, [&](int64_t factor) { return wholeRange(factor); });
  }

  void columnPhase(int phase) {
    Nest full = fullTargets(phase), parallel = parallelTargets(phase), made;
    auto columns = [&](int64_t factor) { return wholeRange(factor); };
    for (auto [i, node] : llvm::enumerate(nodes))
      if (arrays[i].memory && node.level == phase) made.push_back(i);
    if (!made.empty()) {
      runNest(made, {s.vector}, columns);
      for (int i : made) arrays[i].filled = true;
    }
    if (!full.empty()) {
      bool reduces = false;
      for (int i : full) reduces |= nodes[i].kind == KernelNode::Reduce;
      if (reduces) {
        Value column = loops.open(tileBegin, tileEnd, true);
        for (int i : full)
          if (nodes[i].kind == KernelNode::Reduce) storeNeutral(i, loops.difference(column, tileBegin));
        loops.close();
      }
      SmallVector<int64_t> factors(s.inner);
      factors.push_back(s.vector);
      runNest(full, factors, columns);
    }
    if (!parallel.empty()) runNest(parallel, {s.vector}, columns);
  }

  // The index of a node's value in its array: within the tile, or within the row.
  Value arrayIndex() {
    if (s.shape == KernelSchedule::Columns) return loops.difference(indices[s.vector], tileBegin);
    Value index = loops.number(0);
    for (int64_t factor : s.inner) index = loops.sum(loops.product(index, s.sizes[factor]), indices[factor]);
    if (s.vector >= 0) index = loops.sum(loops.product(index, s.sizes[s.vector]), indices[s.vector]);
    return index;
  }

  void storeNeutral(int number, Value at) {
    linalg::GenericOp op = nodes[number].op;
    Value init = op.getDpsInits()[0];
    auto fill = init.getDefiningOp<linalg::FillOp>();
    loops.store(captured.lookup(fill.getInputs()[0]), accumulators[number], at, s.shape == KernelSchedule::Columns);
  }

  //===--- one nest
  //-------------------------------------------------------------------------------------------------===//

  // Opens loops over `factors`, computes in each loop what its indices allow, and the targets in the innermost.
  template <typename Range> void runNest(const Nest &targets, ArrayRef<int64_t> factors, Range range) {
    SmallVector<char> needs = needed(targets);
    FactorSet bound = rowFactors;
    std::fill(inside.begin(), inside.end(), Value());
    computeBound(needs, targets, bound, factors.empty());
    for (auto [depth, factor] : llvm::enumerate(factors)) {
      bool isLast = depth + 1 == factors.size();
      auto [begin, end] = range(factor);
      indices[factor] = loops.open(begin, end, isLast);
      bound |= bit(factor);
      computeBound(needs, targets, bound, isLast, isLast);
    }
    for (size_t i = 0; i < factors.size(); ++i) loops.close();
    for (int target : targets)
      if (arrays[target].memory) arrays[target].filled = true;
    for (size_t i = 0; i < nodes.size(); ++i)
      if (needs[i] && arrays[i].memory && s.shape == KernelSchedule::Rows) arrays[i].filled = true;
  }

  // Computes the needed nodes whose factors are bound and that have no value yet.
  void computeBound(const SmallVector<char> &needs, const Nest &targets, FactorSet bound, bool isInnermost,
                    bool isParallelLoop = false) {
    parallelLoop = isParallelLoop;
    for (size_t i = 0; i < nodes.size(); ++i) {
      if (!needs[i] || inside[i] || lasting[i]) continue;
      const KernelNode &node = nodes[i];
      bool isTargetHere = llvm::is_contained(targets, static_cast<int>(i));
      if (isTargetHere && !isInnermost) continue;
      if ((node.set & ~bound) != 0) continue;
      if (node.kind == KernelNode::Reduce && !isTargetHere) {
        if (!isInnermost) continue; // Columns: one element of the array of sums
        inside[i] = loops.load(loops.here(), accumulators[i], elementType(node), arrayIndex(), parallelLoop);
        continue;
      }
      if (arrays[i].filled) {
        if (!isInnermost) continue;
        inside[i] = loops.load(loops.here(), arrays[i].memory, elementType(node), arrayIndex(), parallelLoop);
        continue;
      }
      // Kept in an array: computed where the array's index is known.
      if (arrays[i].memory && !isInnermost) continue;
      Value value = compute(i);
      if (!value) continue;
      if (arrays[i].memory) loops.store(value, arrays[i].memory, arrayIndex(), parallelLoop);
      // Values computed outside the nest's loops stay valid for the whole row.
      bool outside = (bound & ~rowFactors) == 0 && !parallelLoop && atRow;
      (outside ? lasting[i] : inside[i]) = value;
    }
  }

  Value valueOf(int number) { return inside[number] ? inside[number] : lasting[number]; }

  Value address(const LinearForm &form) {
    Value index = loops.number(form.offset);
    for (auto [factor, stride] : llvm::enumerate(form.strides))
      if (stride != 0) index = loops.sum(index, loops.product(indices[factor], stride));
    return index;
  }

  // Emits the node here. Null for targets, which have no value.
  Value compute(int number) {
    const KernelNode &node = nodes[number];
    SmallVector<Value> arguments;
    if (node.kind == KernelNode::Load) {
      arguments.push_back(
          loops.load(loops.here(), loops.buffer(node.buffer), elementType(node), address(node.form), parallelLoop));
    } else {
      for (int producer : node.producers) arguments.push_back(valueOf(producer));
    }
    Value at;
    if (node.kind == KernelNode::Reduce) {
      at = s.shape == KernelSchedule::Columns ? arrayIndex() : loops.number(0);
      arguments.push_back(loops.load(loops.here(), accumulators[number], elementType(node), at,
                                     parallelLoop && s.shape == KernelSchedule::Columns));
    }
    Value result = cloneBody(node, arguments);
    if (node.kind == KernelNode::Reduce) {
      loops.store(result, accumulators[number], at, parallelLoop && s.shape == KernelSchedule::Columns);
      return {};
    }
    if (node.kind == KernelNode::Store) {
      loops.store(result, loops.buffer(kernel.getTensorArguments().size() + node.buffer), address(node.form),
                  parallelLoop);
      return {};
    }
    return result;
  }

  Value cloneBody(const KernelNode &node, ArrayRef<Value> arguments) {
    return codegen::cloneBody(node.op, captured, arguments, loops.here(),
                              [&](int64_t loop) { return indices[node.loops[loop]]; });
  }

  struct Array {
    Value memory;
    bool filled = false;
  };
  plan::KernelOp kernel;
  const KernelSchedule &s;
  const SmallVector<KernelNode> &nodes;
  LoopBuilder loops;
  IRMapping captured;
  SmallVector<Value> inside, lasting; // a node's value in the current nest; for the whole row
  SmallVector<Array> arrays;          // values kept for later nests of the row or tile
  SmallVector<Value> accumulators;
  DenseMap<int64_t, Value> indices;
  FactorSet rowFactors = 0;
  Value tileBegin, tileEnd;
  bool parallelLoop = false, atRow = false;
};

} // namespace

void buildKernelLoops(plan::KernelOp kernel, const KernelSchedule &schedule, ModuleOp module) {
  KernelLoops(kernel, schedule, module).run();
}

} // namespace cleave::codegen
