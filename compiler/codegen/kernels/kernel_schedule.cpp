#include "compiler/codegen/kernels/kernel_schedule.h"
#include "compiler/tuning.h"
#include "dialects/onnx/kinds.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
namespace cleave::codegen {
namespace {

// Columns are cut at multiples of this: whole vectors, four at a time.
constexpr int64_t columnsOfGrain = 64;

// The value behind reshapes and the beginnings of rows.
Value behindReshape(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    if (!isa<tensor::CollapseShapeOp, tensor::ExpandShapeOp, tensor::ExtractSliceOp>(op)) break;
    value = op->getOperand(0);
  }
  return value;
}

// Adds `scale` times the expression to a form; the loops are `loops`.
void addExpression(LinearForm &form, AffineExpr expression, ArrayRef<int64_t> loops, int64_t scale) {
  if (auto dim = dyn_cast<AffineDimExpr>(expression)) {
    form.strides[loops[dim.getPosition()]] += scale;
  } else if (auto constant = dyn_cast<AffineConstantExpr>(expression)) {
    form.offset += scale * constant.getValue();
  } else {
    auto binary = cast<AffineBinaryOpExpr>(expression);
    if (binary.getKind() == AffineExprKind::Add) {
      addExpression(form, binary.getLHS(), loops, scale);
      addExpression(form, binary.getRHS(), loops, scale);
    } else { // a product with a constant, which stands on the right
      addExpression(form, binary.getLHS(), loops, scale * cast<AffineConstantExpr>(binary.getRHS()).getValue());
    }
  }
}

bool bodyIsCostly(linalg::GenericOp op) {
  return llvm::any_of(op.getBody()->without_terminator(), [](Operation &inner) {
    return isa<math::MathDialect>(inner.getDialect()) || isa<arith::DivFOp, arith::RemFOp, arith::DivSIOp>(inner) ||
           (isa<arith::MulIOp>(inner) && inner.getResult(0).getType().isInteger(64));
  });
}

class Scheduler {
public:
  explicit Scheduler(plan::KernelOp kernel) : kernel(kernel) {}

  FailureOr<KernelSchedule> run() {
    auto sizes = plan::domainAttr.of(kernel);
    auto reduced = plan::reducedAttr.of(kernel);
    if (!sizes || !reduced) return kernel.emitOpError("is not in linalg form; run lower-kernels-to-linalg first");
    schedule.sizes.assign(sizes->begin(), sizes->end());
    for (int64_t factor : *reduced) schedule.reduced |= FactorSet(1) << factor;
    for (auto op : kernel.getBlock().getOps<linalg::GenericOp>()) addNode(op);
    chooseShape();
    writeLate();
    findInplace();
    return std::move(schedule);
  }

private:
  void addNode(linalg::GenericOp op) {
    KernelNode node;
    node.op = op;
    ArrayRef<int64_t> loops = *plan::loopsAttr.of(op);
    node.loops.assign(loops.begin(), loops.end());
    for (int64_t factor : loops) node.set |= FactorSet(1) << factor;
    node.form.strides.assign(schedule.sizes.size(), 0);
    SmallVector<AffineMap> maps = op.getIndexingMapsArray();
    for (Value input : op.getDpsInputs()) {
      if (auto argument = dyn_cast<BlockArgument>(behindReshape(input))) {
        node.kind = KernelNode::Load;
        node.buffer = argument.getArgNumber();
        addExpression(node.form, maps.front().getResult(0), node.loops, 1);
      } else {
        int producer = numbers.lookup(input.getDefiningOp());
        const KernelNode &from = schedule.nodes[producer];
        node.producers.push_back(producer);
        node.level = std::max(node.level, from.level + (from.kind == KernelNode::Reduce));
      }
    }
    if (op.getNumReductionLoops() != 0) {
      node.kind = KernelNode::Reduce;
      node.set &= ~schedule.reduced;
    }
    for (auto [i, value] : llvm::enumerate(kernel.getYield().getValues()))
      if (behindReshape(value) == op.getResult(0)) {
        node.kind = KernelNode::Store;
        node.buffer = i;
        addExpression(node.form, maps.back().getResult(0), node.loops, 1);
      }
    node.isCostly = node.kind == KernelNode::Compute && bodyIsCostly(op);
    schedule.phases = std::max(schedule.phases, node.level + 1);
    numbers[op] = schedule.nodes.size();
    schedule.nodes.push_back(std::move(node));
  }

  int64_t elements(FactorSet set) const {
    int64_t count = 1;
    for (auto [f, size] : llvm::enumerate(schedule.sizes))
      if ((set >> f) & 1) count *= size;
    return count;
  }

  // The factor along which most of the traffic is contiguous.
  int chooseVector() const {
    SmallVector<double> votes(schedule.sizes.size(), 0);
    for (const KernelNode &node : schedule.nodes) {
      if (node.kind != KernelNode::Load && node.kind != KernelNode::Store) continue;
      for (auto [f, stride] : llvm::enumerate(node.form.strides))
        if (stride == 1) votes[f] += static_cast<double>(elements(node.set)) * (node.kind == KernelNode::Store ? 2 : 1);
    }
    int best = static_cast<int>(votes.size()) - 1;
    for (int f = best - 1; f >= 0; --f)
      if (votes[f] > votes[best]) best = f;
    return best;
  }

  void chooseShape() {
    KernelSchedule &s = schedule;
    s.vector = chooseVector();
    bool vectorIsReduced = s.vector >= 0 && ((s.reduced >> s.vector) & 1);
    for (int f = 0; f < static_cast<int>(s.sizes.size()); ++f) {
      if (f == s.vector) continue;
      ((s.reduced >> f) & 1 ? s.inner : s.outer).push_back(f);
    }
    int64_t rows = 1;
    for (int64_t factor : s.outer) rows *= s.sizes[factor];
    if (s.reduced == 0) {
      s.shape = KernelSchedule::Flat;
      s.rangeIsVector = s.vector >= 0 && s.outer.empty();
      s.extent = s.rangeIsVector ? s.sizes[s.vector] : rows;
      // Cuts at whole vectors keep the bits independent of the number of threads.
      s.grain = s.rangeIsVector ? tuning::soloElements : grainOf(s.vector >= 0 ? s.sizes[s.vector] : 1);
    } else if (vectorIsReduced) {
      s.shape = KernelSchedule::Rows;
      s.extent = rows;
      s.grain = grainOf(elements(s.reduced));
    } else {
      s.shape = KernelSchedule::Columns;
      int64_t columns = s.sizes[s.vector];
      s.rangeIsColumns = s.outer.empty();
      if (s.rangeIsColumns) {
        // A thread takes its columns as wide as it can: narrow strips of long rows are read at a fraction of the speed.
        s.tile = std::min<int64_t>(columns, 512);
        s.extent = columns;
        s.grain = (grainOf(elements(s.reduced)) + columnsOfGrain - 1) / columnsOfGrain * columnsOfGrain;
      } else {
        int64_t eighth = (columns / 8 + 15) / 16 * 16;
        s.tile = rows >= 8 ? std::min<int64_t>(columns, 512) : std::clamp<int64_t>(eighth, columnsOfGrain, 512);
        s.extent = rows * ((columns + s.tile - 1) / s.tile);
        s.grain = grainOf(elements(s.reduced) * std::min(columns, s.tile));
      }
    }
  }
  static int64_t grainOf(int64_t elementsOfOne) {
    return std::max<int64_t>(1, tuning::soloElements / std::max<int64_t>(1, elementsOfOne));
  }

  // A result that an input could lie under if it were written in a later phase, which computes it anyway, is written
  // there: a moving average that the length of a step is first summed up from, and then the step.
  void writeLate() {
    SmallVector<SmallVector<char>> computed; // by phase, before any store moves
    for (int phase = 0; phase < schedule.phases; ++phase) computed.push_back(neededBy(phase));
    for (KernelNode &store : schedule.nodes) {
      if (store.kind != KernelNode::Store || !sharingInputs(store).empty()) continue;
      const int first = store.level;
      for (int phase = schedule.phases - 1; phase > first && store.level == first; --phase) {
        if (!computed[phase][store.producers.front()]) continue;
        store.level = phase;
        if (sharingInputs(store).empty()) store.level = first;
      }
    }
  }
  // The nodes that the targets of a phase are computed from there.
  SmallVector<char> neededBy(int phase) {
    SmallVector<char> needs(schedule.nodes.size(), 0);
    for (size_t i = needs.size(); i-- > 0;) {
      const KernelNode &node = schedule.nodes[i];
      const bool isSum = node.kind == KernelNode::Reduce;
      const bool isTarget = (isSum || node.kind == KernelNode::Store) && node.level == phase;
      if (isTarget || (needs[i] && !isSum))
        for (int producer : node.producers) needs[producer] = 1;
    }
    return needs;
  }

  void findInplace() {
    for (const KernelNode &store : schedule.nodes) {
      if (store.kind != KernelNode::Store) continue;
      for (int64_t input : sharingInputs(store)) schedule.inplace.append({input, store.buffer});
    }
  }
  // An input may lie where a result is written if every read of it is at the element that is written next, and no phase
  // reads it after the result's phase.
  SmallVector<int64_t> sharingInputs(const KernelNode &store) {
    SmallVector<int64_t> inputs;
    auto result = cast<RankedTensorType>(kernel.getYield().getValues()[store.buffer].getType());
    for (BlockArgument argument : kernel.getTensorArguments()) {
      auto type = cast<RankedTensorType>(argument.getType());
      if (type.getNumElements() != result.getNumElements() || onnx::bytesOf(type) != onnx::bytesOf(result)) continue;
      if (readsOnlyBefore(argument, store)) inputs.push_back(argument.getArgNumber());
    }
    return inputs;
  }
  bool readsOnlyBefore(BlockArgument argument, const KernelNode &store) {
    for (Operation *user : argument.getUsers())
      if (isa<tensor::ExtractOp>(user)) return false;
    bool isRead = false;
    for (auto [number, load] : llvm::enumerate(schedule.nodes)) {
      if (load.kind != KernelNode::Load || load.buffer != static_cast<int>(argument.getArgNumber())) continue;
      isRead = true;
      if (load.set != store.set || load.form.strides != store.form.strides || load.form.offset != store.form.offset)
        return false;
      if (lastPhaseReading(number) > store.level) return false;
    }
    return isRead;
  }
  // The last phase whose results need the node.
  int lastPhaseReading(int number) {
    SmallVector<char> needs(schedule.nodes.size(), 0);
    needs[number] = 1;
    int last = 0;
    for (size_t i = number + 1; i < schedule.nodes.size(); ++i) {
      const KernelNode &node = schedule.nodes[i];
      for (int producer : node.producers) needs[i] |= needs[producer];
      if (!needs[i]) continue;
      last = std::max(last, node.level);
      if (node.kind == KernelNode::Reduce) needs[i] = 0; // its value is kept, not computed again
    }
    return last;
  }

  plan::KernelOp kernel;
  KernelSchedule schedule;
  DenseMap<Operation *, int> numbers;
};

} // namespace

int64_t KernelSchedule::rowElements() const {
  int64_t count = vector >= 0 ? sizes[vector] : 1;
  for (int64_t factor : inner) count *= sizes[factor];
  return count;
}

FailureOr<KernelSchedule> KernelSchedule::of(plan::KernelOp kernel) { return Scheduler(kernel).run(); }

} // namespace cleave::codegen
