#include "compiler/codegen/cuda/grid_kernel.h"
#include "compiler/codegen/cuda/grid_builder.h"
#include "compiler/codegen/kernels/clone_body.h"
#include "compiler/codegen/kernels/kernel_element.h"
#include "dialects/onnx/kinds.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
namespace cleave::codegen {
namespace {

constexpr int64_t stepsInFlight = 4; // steps whose loads a thread issues before it uses any

class GridKernel {
public:
  GridKernel(plan::KernelOp kernel, const KernelSchedule &schedule, const GridSchedule &grid,
             ArrayRef<int64_t> alignment, gpu::GPUModuleOp module, StringRef symbol, std::optional<int64_t> groupSteps)
      : kernel(kernel), s(schedule), g(grid), nodes(schedule.nodes), alignment(alignment),
        grid(kernel.getLoc(), module, symbol, alignment.size(), kernel.getScalarArguments().size(), g.threads,
             groupSteps),
        reduced(nodes.size()), unit(nodes.size()) {
    if (g.blocks > 1) this->grid.setBlocks(g.blocks);
  }

  void run() {
    prepareCaptured();
    if (s.shape == KernelSchedule::Flat)
      emitFlat();
    else
      emitTeams();
    grid.finish();
  }

private:
  using Values = GridBuilder::Values;
  using NodeList = SmallVector<int>; // indices in nodes

  // Values at one place of the iteration space: of `width` neighbours along the vector factor.
  struct Frame {
    explicit Frame(size_t nodes) : values(nodes) {}
    DenseMap<int64_t, Value> indices; // of the factors; of the vector factor that of the first neighbour
    SmallVector<Values> values;       // by node: one, or one a neighbour
    Value keptStep;                   // null: shared memory has nothing of it
  };

  static FactorSet bit(int64_t factor) { return FactorSet(1) << factor; }
  static Type elementType(const KernelNode &node) {
    return elementInKernel(cast<RankedTensorType>(node.op->getResult(0).getType()).getElementType());
  }
  bool dependsOnVector(const KernelNode &node) const { return s.vector >= 0 && (node.set & bit(s.vector)) != 0; }
  bool isOfUnit(const KernelNode &node) const { return (node.set & s.reduced) == 0 && s.reduced != 0; }
  bool isTarget(const KernelNode &node) const {
    return node.kind == KernelNode::Reduce || node.kind == KernelNode::Store;
  }
  int64_t size(ArrayRef<int64_t> factors) const {
    int64_t count = 1;
    for (int64_t factor : factors) count *= s.sizes[factor];
    return count;
  }

  void prepareCaptured() {
    for (BlockArgument scalar : kernel.getScalarArguments())
      captured.map(scalar, grid.scalar(scalar.getArgNumber() - kernel.getTensorArguments().size()));
    for (Operation &op : kernel.getBlock()) {
      if (isa<arith::ConstantOp>(op)) captured.map(op.getResult(0), grid.here().clone(op)->getResult(0));
      if (auto extract = dyn_cast<tensor::ExtractOp>(op)) {
        APInt at;
        matchPattern(extract.getIndices()[0], m_ConstantInt(&at));
        int64_t buffer = cast<BlockArgument>(extract.getTensor()).getArgNumber();
        captured.map(extract.getResult(),
                     grid.load(grid.buffer(buffer), extract.getType(), grid.number(at.getSExtValue())).front());
      }
    }
  }

  // Cuts a row-major index over `factors` into theirs.
  void unravel(Frame &frame, Value index, ArrayRef<int64_t> factors) {
    int64_t below = size(factors);
    for (size_t i = factors.size(); i-- > 0;) {
      int64_t extent = s.sizes[factors[i]];
      frame.indices[factors[i]] = i == 0 ? index : grid.remainder(index, extent, below);
      if (i > 0) index = grid.quotient(index, extent, below);
      below /= std::max<int64_t>(1, extent);
    }
  }

  //===--- Flat
  //-----------------------------------------------------------------------------------------------------===//

  void emitFlat() {
    Value first = grid.product(grid.sum(grid.product(grid.block(), g.threads), grid.thread()), g.width);
    if (!s.rangeIsVector || g.width == 1) {
      grid.when(grid.less(first, grid.extent()), [&] { flatBody(first, g.width); });
      return;
    }
    Value end = grid.sum(first, grid.number(g.width));
    grid.when(
        grid.less(grid.extent(), end),
        [&] {
          grid.loop(first, grid.extent(), 1, {}, [&](Value index, ValueRange) {
            flatBody(index, 1);
            return Values();
          });
        },
        [&] { flatBody(first, g.width); });
  }

  void flatBody(Value first, int64_t width) {
    Frame frame(nodes.size());
    if (s.vector >= 0 && !s.rangeIsVector) {
      const int64_t row = s.sizes[s.vector], below = row * size(s.outer);
      frame.indices[s.vector] = grid.remainder(first, row, below);
      unravel(frame, grid.quotient(first, row, below), s.outer);
    } else if (s.vector >= 0) {
      frame.indices[s.vector] = first;
    }
    NodeList stores;
    for (auto [number, node] : llvm::enumerate(nodes))
      if (node.kind == KernelNode::Store) stores.push_back(number);
    compute(stores, frame, width);
    for (int number : stores) store(number, frame, width, {});
  }

  // All that the targets need, before anything is written: an input may lie where a result goes.
  void compute(const NodeList &targets, Frame &frame, int64_t width) {
    for (int target : targets)
      for (int64_t u = 0; u < width; ++u) value(nodes[target].producers.front(), u, frame, width);
  }

  //===--- Rows and Columns
  //-----------------------------------------------------------------------------------------===//

  void emitTeams() {
    bool isRows = s.shape == KernelSchedule::Rows;
    Value rest = grid.block();
    if (isRows) {
      member = grid.thread();
      if (g.threads > g.team) {
        member = grid.remainder(grid.thread(), g.team, g.threads);
        rest = grid.sum(grid.product(rest, g.threads / g.team), grid.quotient(grid.thread(), g.team, g.threads));
      }
      if (g.extent % g.grain != 0) {
        isActive = grid.less(rest, grid.number(g.extent));
        rest = grid.minimum(rest, grid.number(g.extent - 1));
      }
      steps = s.rowElements() / g.width;
    } else {
      int64_t chunks = s.sizes[s.vector] / g.width, tiles = (chunks + g.lanes - 1) / g.lanes;
      const int64_t blocks = tiles * size(s.outer);
      member = grid.quotient(grid.thread(), g.lanes, g.threads);
      Value chunk = grid.sum(grid.product(s.outer.empty() ? rest : grid.remainder(rest, tiles, blocks), g.lanes),
                             grid.remainder(grid.thread(), g.lanes, g.threads));
      if (chunks % g.lanes != 0) {
        isActive = grid.less(chunk, grid.number(chunks));
        chunk = grid.minimum(chunk, grid.number(chunks - 1));
      }
      unit.indices[s.vector] = grid.product(chunk, g.width);
      if (!s.outer.empty()) rest = grid.quotient(rest, tiles, blocks);
      steps = size(s.inner);
    }
    unravel(unit, rest, s.outer);
    if (g.unrolled)
      for (int64_t item = 0; item < g.items; ++item) openItem(item);
    for (int phase = 0; phase < s.phases; ++phase) emitPhase(phase);
  }

  // The thread's place in its chunk number `step` of the row (Rows), in its row of that number (Columns).
  Frame frameAt(Value step) {
    Frame frame(nodes.size());
    frame.indices = unit.indices;
    if (s.shape == KernelSchedule::Rows) {
      Value element = grid.product(step, g.width);
      const int64_t row = s.sizes[s.vector], below = s.rowElements();
      frame.indices[s.vector] = s.inner.empty() ? element : grid.remainder(element, row, below);
      if (!s.inner.empty()) unravel(frame, grid.quotient(element, row, below), s.inner);
    } else {
      unravel(frame, step, s.inner);
    }
    return frame;
  }

  void openItem(int64_t item) {
    Value step = grid.sum(member, grid.number(item * g.team)), active;
    if ((item + 1) * g.team > steps) {
      active = grid.less(step, grid.number(steps));
      step = grid.minimum(step, grid.number(steps - 1));
    }
    items.push_back(frameAt(step));
    itemActive.push_back(active);
  }

  void emitPhase(int phase) {
    currentPhase = phase;
    NodeList targets, reductions, ofUnit;
    for (auto [number, node] : llvm::enumerate(nodes)) {
      if (!isTarget(node) || node.level != phase) continue;
      if (node.kind == KernelNode::Reduce) reductions.push_back(number);
      (node.kind == KernelNode::Store && isOfUnit(node) ? ofUnit : targets).push_back(number);
    }
    Values carried;
    for (int sum : reductions) carried.append(g.width, neutral(sum));
    if (!targets.empty()) {
      // Values that are the same in every step are computed before the loop.
      const SmallVector<char> needs = neededBy(s, targets);
      for (size_t i = 0; i < nodes.size(); ++i)
        if (needs[i] && isOfUnit(nodes[i]) && nodes[i].kind != KernelNode::Reduce)
          for (int64_t u = 0; u < (dependsOnVector(nodes[i]) ? g.width : 1); ++u) value(i, u, unit, g.width);
      if (g.unrolled) {
        for (auto [frame, active] : llvm::zip_equal(items, itemActive))
          carried = visit(targets, reductions, frame, active, carried);
      } else {
        carried = emitStepLoop(0, g.keptSteps, targets, reductions, needs, carried);
        carried = emitStepLoop(g.keptSteps, steps, targets, reductions, needs, carried);
      }
    }
    for (auto [i, sum] : llvm::enumerate(reductions)) {
      ArrayRef<Value> mine = ArrayRef<Value>(carried).slice(i * g.width, g.width);
      reduced[sum] = s.shape == KernelSchedule::Rows ? Values{alongRow(sum, mine)} : downColumns(sum, mine);
    }
    if (ofUnit.empty()) return;
    // One thread reads what the results are made of and then writes them: they may lie where it reads.
    auto write = [&] {
      compute(ofUnit, unit, g.width);
      for (int number : ofUnit) store(number, unit, g.width, {});
    };
    const Frame before = unit;
    Value isFirst = g.team == 1 ? Value() : grid.equal(member, grid.number(0));
    if (Value condition = grid.both(isActive, isFirst))
      grid.when(condition, write);
    else
      write();
    unit = before;
  }

  // Emits the loop over steps [begin, end); shared memory holds all of them or none.
  // A kernel that uses shared memory has few blocks per SM, so each thread issues the loads of several steps at once.
  Values emitStepLoop(int64_t begin, int64_t end, const NodeList &targets, const NodeList &reductions,
                      ArrayRef<char> needs, Values carried) {
    if (begin == end) return carried;
    const bool isKept = end <= g.keptSteps;
    NodeList loads;
    for (auto [number, node] : llvm::enumerate(nodes))
      if (needs[number] && node.kind == KernelNode::Load && dependsOnVector(node) && !isOfUnit(node) &&
          !(isKept && isReadBefore(static_cast<int>(number), currentPhase)))
        loads.push_back(static_cast<int>(number));
    auto visitSome = [&](Value first, int64_t count, ValueRange soFar) {
      SmallVector<Frame> frames;
      for (int64_t k = 0; k < count; ++k) {
        Value step = grid.sum(first, grid.number(k * g.team));
        frames.push_back(frameAt(step));
        if (isKept) frames.back().keptStep = step;
      }
      for (Frame &frame : frames)
        for (int load : loads) value(load, 0, frame, g.width);
      for (Frame &frame : frames) keep(frame);
      Values next(soFar);
      for (Frame &frame : frames) next = visit(targets, reductions, frame, {}, next);
      return next;
    };
    const int64_t unroll = g.kept.empty() || loads.empty() ? 1 : stepsInFlight;
    const int64_t unrolledStride = unroll * g.team,
                  unrolledSteps = unroll == 1 ? 0 : (end - begin) / unrolledStride * unrolledStride;
    if (unrolledSteps > 0)
      carried =
          grid.loop(grid.number(begin), grid.number(begin + unrolledSteps), unrolledStride, carried,
                    [&](Value base, ValueRange soFar) { return visitSome(grid.sum(base, member), unroll, soFar); });
    if (begin + unrolledSteps == end) return carried;
    return grid.loop(grid.sum(member, grid.number(begin + unrolledSteps)), grid.number(end), g.team, carried,
                     [&](Value step, ValueRange soFar) { return visitSome(step, 1, soFar); });
  }
  const GridSchedule::Kept *keptOf(int number) const {
    const auto *found = llvm::find_if(g.kept, [&](const GridSchedule::Kept &one) { return one.node == number; });
    return found == g.kept.end() ? nullptr : found;
  }
  // Does shared memory have what the load gives, by that phase?
  bool isReadBefore(int number, int phase) const {
    const GridSchedule::Kept *kept = keptOf(number);
    return kept && kept->phase < phase;
  }

  // In elements; each thread reads there only what it wrote.
  Value keptPlace(const GridSchedule::Kept &kept, const Frame &frame) {
    const int64_t first = kept.offset / onnx::elementBytes(elementType(nodes[kept.node]));
    return grid.sum(grid.product(frame.keptStep, g.width), grid.number(first));
  }
  void keep(Frame &frame) {
    for (const GridSchedule::Kept &one : g.kept)
      if (frame.keptStep && one.phase == currentPhase)
        grid.store(frame.values[one.node], grid.shared(), keptPlace(one, frame), true);
  }

  // Emits the stores and reductions of one step; returns the updated accumulators.
  Values visit(const NodeList &targets, const NodeList &reductions, Frame &frame, Value active, Values carried) {
    compute(targets, frame, g.width);
    for (int number : targets)
      if (nodes[number].kind == KernelNode::Store) store(number, frame, g.width, grid.both(isActive, active));
    for (auto [i, number] : llvm::enumerate(reductions))
      for (int64_t u = 0; u < g.width; ++u) {
        Value &sum = carried[i * g.width + u];
        Value x = value(nodes[number].producers.front(), u, frame, g.width);
        Value next = cloneBody(nodes[number], {x, sum}, u, frame);
        sum = active ? grid.select(active, next, sum) : next;
      }
    return carried;
  }

  //===--- reductions
  //-----------------------------------------------------------------------------------------------===//

  Value neutral(int number) {
    linalg::GenericOp op = nodes[number].op;
    auto fill = op.getDpsInits()[0].getDefiningOp<linalg::FillOp>();
    return captured.lookup(fill.getInputs()[0]);
  }

  // Two partial results of a reduction as one: the operation that the body ends with. Never contracted with what made
  // one of them, or the lanes of a warp would end with different bits.
  Value combine(int number, Value a, Value b) {
    linalg::GenericOp op = nodes[number].op;
    Operation *last = op.getBody()->getTerminator()->getOperand(0).getDefiningOp();
    IRMapping mapping;
    mapping.map(last->getOperand(0), a);
    mapping.map(last->getOperand(1), b);
    Operation *combined = grid.here().clone(*last, mapping);
    if (auto fast = dyn_cast<arith::ArithFastMathInterface>(combined))
      combined->setAttr(fast.getFastMathAttrName(),
                        arith::FastMathFlagsAttr::get(combined->getContext(), arith::FastMathFlags::none));
    return combined->getResult(0);
  }

  Value alongRow(int number, ArrayRef<Value> partials) {
    Value sum = partials.front();
    for (Value partial : partials.drop_front()) sum = combine(number, sum, partial);
    sum = acrossWarp(number, sum, warp);
    if (g.team == warp) return sum;
    int64_t warps = g.team / warp;
    Value lane = grid.remainder(grid.thread(), warp, g.threads);
    grid.when(grid.equal(lane, grid.number(0)),
              [&] { grid.store(sum, grid.shared(), grid.quotient(grid.thread(), warp, g.threads)); });
    grid.barrier();
    Value mine = grid.load(grid.shared(), sum.getType(), grid.remainder(lane, warps, warp)).front();
    grid.barrier(); // the memory is free for the next reduction
    return acrossWarp(number, mine, warps);
  }
  // `lanes`: how many neighbouring lanes have values of their own.
  Value acrossWarp(int number, Value sum, int64_t lanes) {
    for (int64_t mask = lanes / 2; mask > 0; mask /= 2) sum = combine(number, sum, grid.shuffle(sum, mask));
    return sum;
  }

  Values downColumns(int number, ArrayRef<Value> partials) {
    if (g.team == 1) return Values(partials);
    Type type = partials.front().getType();
    Value column = grid.product(grid.remainder(grid.thread(), g.lanes, g.threads), g.width);
    int64_t row = g.lanes * g.width;
    grid.store(partials, grid.shared(), grid.sum(grid.product(member, row), column));
    grid.barrier();
    Values sums;
    for (int64_t u = 0; u < g.width; ++u) sums.push_back(neutral(number));
    sums = grid.loop(grid.number(0), grid.number(g.team), 1, sums, [&](Value other, ValueRange soFar) {
      Values next = grid.load(grid.shared(), type, grid.sum(grid.product(other, row), column), g.width);
      for (int64_t u = 0; u < g.width; ++u) next[u] = combine(number, soFar[u], next[u]);
      return next;
    });
    grid.barrier();
    return sums;
  }

  //===--- values
  //---------------------------------------------------------------------------------------------------===//

  // The node's value for neighbour `u` of the frame.
  Value value(int number, int64_t u, Frame &frame, int64_t width) {
    const KernelNode &node = nodes[number];
    if (node.kind == KernelNode::Reduce) return reduced[number][reduced[number].size() == 1 ? 0 : u];
    Frame &home = isOfUnit(node) ? unit : frame;
    Values &known = home.values[number];
    bool isOfVector = dependsOnVector(node);
    if (known.empty()) known.resize(isOfVector ? width : 1);
    if (!isOfVector) u = 0;
    if (known[u]) return known[u];
    if (node.kind == KernelNode::Load) {
      if (home.keptStep && isReadBefore(number, currentPhase)) {
        home.values[number] =
            grid.load(grid.shared(), elementType(node), keptPlace(*keptOf(number), home), width, true);
        return home.values[number][u];
      }
      Values loaded = load(node, home, width);
      for (size_t i = 0; i < known.size(); ++i)
        home.values[number][i] = cloneBody(node, loaded[i], static_cast<int64_t>(i), home);
      return home.values[number][u];
    }
    Values arguments;
    for (int producer : node.producers) arguments.push_back(value(producer, u, home, width));
    return home.values[number][u] = cloneBody(node, arguments, u, home);
  }

  Value address(const LinearForm &form, Frame &frame) {
    Value index = grid.number(form.offset);
    for (auto [factor, stride] : llvm::enumerate(form.strides))
      if (stride != 0) index = grid.sum(index, grid.product(frame.indices[factor], stride));
    return index;
  }

  // Is every place that the form leads to, for neighbours `width` apart, a multiple of so many bytes?
  bool isAligned(const LinearForm &form, int64_t buffer, Type element, int64_t width) const {
    int64_t bytes = onnx::elementBytes(element) * width;
    if (form.strides[s.vector] != 1 || alignment[buffer] % bytes != 0 || form.offset % width != 0) return false;
    for (auto [factor, stride] : llvm::enumerate(form.strides))
      if (static_cast<int>(factor) != s.vector && stride % width != 0) return false;
    return true;
  }

  Values load(const KernelNode &node, Frame &frame, int64_t width) {
    Type element = elementType(node);
    Value memory = grid.buffer(node.buffer), first = address(node.form, frame);
    if (!dependsOnVector(node)) return grid.load(memory, element, first);
    int64_t stride = node.form.strides[s.vector];
    if (stride == 1) return grid.load(memory, element, first, width, isAligned(node.form, node.buffer, element, width));
    Values loaded;
    for (int64_t u = 0; u < width; ++u)
      loaded.append(grid.load(memory, element, grid.sum(first, grid.number(u * stride))));
    return loaded;
  }

  void store(int number, Frame &frame, int64_t width, Value condition) {
    const KernelNode &node = nodes[number];
    Values values;
    int64_t count = dependsOnVector(node) ? width : 1;
    for (int64_t u = 0; u < count; ++u)
      values.push_back(cloneBody(node, value(node.producers.front(), u, frame, width), u, frame));
    int64_t buffer = static_cast<int64_t>(kernel.getTensorArguments().size()) + node.buffer;
    auto write = [&] {
      Value memory = grid.buffer(buffer), first = address(node.form, frame);
      int64_t stride = count > 1 ? node.form.strides[s.vector] : 1;
      if (stride == 1) {
        grid.store(values, memory, first, count > 1 && isAligned(node.form, buffer, values.front().getType(), width));
        return;
      }
      for (int64_t u = 0; u < count; ++u) grid.store(values[u], memory, grid.sum(first, grid.number(u * stride)));
    };
    if (condition)
      grid.when(condition, write);
    else
      write();
  }

  Value cloneBody(const KernelNode &node, ValueRange arguments, int64_t u, Frame &frame) {
    return codegen::cloneBody(node.op, captured, arguments, grid.here(), [&](int64_t loop) {
      int64_t factor = node.loops[loop];
      Value at = frame.indices[factor];
      return factor == s.vector ? grid.sum(at, grid.number(u)) : at;
    });
  }

  plan::KernelOp kernel;
  const KernelSchedule &s;
  const GridSchedule &g;
  const SmallVector<KernelNode> &nodes;
  ArrayRef<int64_t> alignment;
  GridBuilder grid;
  IRMapping captured;
  SmallVector<Values> reduced; // by node: results of the reductions, one or one a neighbour
  Frame unit;                  // what does not change along a row or down a column
  SmallVector<Frame> items;    // written-out items
  SmallVector<Value> itemActive;
  Value member, isActive; // number in the team; null: always
  int64_t steps = 1;      // of a whole row or column
  int currentPhase = 0;
};

// Have all of its largest tensors, read and written, floats of 16 bits? Exponentials may then be approximated.
bool isOfSixteenBits(const KernelSchedule &s) {
  FactorSet all = 0;
  for (auto [factor, size] : llvm::enumerate(s.sizes))
    if (size > 1) all |= FactorSet(1) << factor;
  bool isAny = false;
  for (const KernelNode &node : s.nodes) {
    if ((node.kind != KernelNode::Load && node.kind != KernelNode::Store) || (node.set & all) != all) continue;
    Type element = cast<RankedTensorType>(node.op->getResult(0).getType()).getElementType();
    if (!isa<FloatType>(element)) continue; // masks, indices
    if (element.getIntOrFloatBitWidth() > 16) return false;
    isAny = true;
  }
  return isAny;
}

} // namespace

void buildGridKernel(plan::KernelOp kernel, const KernelSchedule &schedule, const GridSchedule &grid,
                     ArrayRef<int64_t> alignment, gpu::GPUModuleOp module, StringRef symbol,
                     std::optional<int64_t> groupSteps) {
  GridKernel(kernel, schedule, grid, alignment, module, symbol, groupSteps).run();
  if (!isOfSixteenBits(schedule)) return;
  module.lookupSymbol(symbol)->walk(
      [](math::ExpOp op) { op.setFastmath(op.getFastmath() | arith::FastMathFlags::afn); });
}

} // namespace cleave::codegen
