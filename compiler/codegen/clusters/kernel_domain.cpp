#include "compiler/codegen/clusters/kernel_domain.h"
#include "compiler/codegen/graph/factor_space.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
namespace cleave::codegen {

bool isCostly(Operation *op) {
  auto cost = dyn_cast<onnx::CostOpInterface>(op);
  if (!cost) return false;
  dist::ElementWork work = cost.getKind().work;
  return work == dist::ElementWork::Division || work == dist::ElementWork::Function || isReduction(op);
}
bool canJoinKernel(Operation *op) {
  if (onnx::isConstant(op)) return onnx::isSplat(op->getResult(0));
  return op->hasTrait<onnx::PerElement>() || isReduction(op) || isView(op);
}

namespace {

using List = FactorSpace::List;
using Layout = SmallVector<List>; // one list of factors a dimension

ArrayRef<int64_t> shapeOf(Value value) { return cast<RankedTensorType>(value.getType()).getShape(); }

List flat(const Layout &layout) {
  List all;
  for (const List &dim : layout) all.append(dim);
  return all;
}

class Analysis {
public:
  Analysis(ArrayRef<Operation *> ops, ArrayRef<Value> outputs) : ops(ops), outputs(outputs) {}

  std::optional<KernelDomain> run() {
    for (Operation *op : ops)
      for (Value result : op->getResults()) layouts[result] = fresh(result);
    for (Operation *op : ops)
      if (!constrain(op)) return std::nullopt;
    alignReads();
    if (!chooseFactors()) return std::nullopt;
    for (Operation *op : ops) placeAccesses(op);
    for (Value output : outputs) domain.writes[output] = position(output, layouts[output]);
    if (!checkOutputs()) return std::nullopt;
    collapse();
    return std::move(domain);
  }

private:
  Layout fresh(Value value) {
    Layout layout;
    for (int64_t size : shapeOf(value)) layout.push_back(size == 1 ? List{} : List{space.make(size)});
    return layout;
  }
  // The layout of an operand: the value's own inside the kernel, one for each use outside.
  Layout &of(OpOperand &operand) {
    if (auto found = layouts.find(operand.get()); found != layouts.end()) return found->second;
    auto [entry, isNew] = readLayouts.try_emplace(&operand);
    if (isNew) entry->second = fresh(operand.get());
    return entry->second;
  }
  bool isInside(Value value) const { return layouts.contains(value); }

  bool unifyDims(const Layout &a, const Layout &b) {
    for (auto [x, y] : llvm::zip_equal(a, b))
      if (!space.unify(x, y)) return false;
    return true;
  }

  bool constrain(Operation *op) {
    if (onnx::isGenerator(op)) return llvm::none_of(op->getOperands(), [&](Value key) { return isInside(key); });
    Layout result = layouts[op->getResult(0)];
    if (auto slice = dyn_cast<onnx::SliceOp>(op)) return !isInside(slice.getX());
    if (onnx::isAlias(op)) return space.unify(flat(of(op->getOpOperand(0))), flat(result));
    if (auto view = dyn_cast<onnx::StridedViewOpInterface>(op)) {
      const Layout source = of(op->getOpOperand(0));
      for (auto [i, to] : llvm::enumerate(view.getStridedMap().dims))
        if (!source[i].empty() && !space.unify(source[i], result[to])) return false;
      return true;
    }
    if (isReduction(op)) {
      const Layout source = of(op->getOpOperand(0));
      ArrayRef<int64_t> axes = axesOf(op);
      size_t to = 0;
      for (size_t d = 0; d < source.size(); ++d)
        if (!llvm::is_contained(axes, static_cast<int64_t>(d)) && !space.unify(source[d], result[to++])) return false;
      return true;
    }
    for (OpOperand &operand : op->getOpOperands())
      if (!unifyDims(result, of(operand))) return false;
    return true;
  }

  // Two reads of one tensor from outside, and the operands of two reductions over the same axes, go over the same
  // factors if nothing speaks against it (x + transpose(x) does).
  void alignReads() {
    for (auto first = readLayouts.begin(); first != readLayouts.end(); ++first)
      for (auto second = std::next(first); second != readLayouts.end(); ++second)
        if (first->first->get() == second->first->get()) tryUnify(first->second, second->second);
    Operation *earlier = nullptr;
    for (Operation *op : ops) {
      if (!isReduction(op)) continue;
      if (earlier && axesOf(earlier) == axesOf(op) && shapeOf(earlier->getOperand(0)) == shapeOf(op->getOperand(0))) {
        const Layout a = of(earlier->getOpOperand(0)), b = of(op->getOpOperand(0));
        tryUnify(a, b);
      }
      earlier = op;
    }
  }
  void tryUnify(const Layout &a, const Layout &b) {
    FactorSpace before = space;
    auto isSound = [&](const Layout &layout) { return leaves(layout).has_value(); };
    if (!unifyDims(a, b) || !llvm::all_of(llvm::make_second_range(layouts), isSound) ||
        !llvm::all_of(llvm::make_second_range(readLayouts), isSound))
      space = std::move(before);
  }
  static ArrayRef<int64_t> axesOf(Operation *op) { return cast<DenseI64ArrayAttr>(op->getAttr("axes")).asArrayRef(); }

  // The uncut factors of a layout, outermost first; nothing if a factor stands twice (a diagonal).
  std::optional<List> leaves(const Layout &layout) {
    List list = space.resolve(flat(layout));
    llvm::SmallDenseSet<int> seen;
    for (int factor : list)
      if (!seen.insert(factor).second) return std::nullopt;
    return list;
  }
  FactorSet setOf(const Layout &layout) {
    FactorSet set = 0;
    for (int leaf : space.resolve(flat(layout))) set |= FactorSet(1) << index[leaf];
    return set;
  }

  // Numbers the factors in the order of the value that has all of them, and finds those that are reduced.
  bool chooseFactors() {
    std::optional<List> reference;
    llvm::SmallDenseSet<int> every;
    auto consider = [&](const Layout &layout, bool preferred) {
      std::optional<List> list = leaves(layout);
      if (!list) return false;
      every.insert(list->begin(), list->end());
      if (!reference || list->size() > reference->size() || (preferred && list->size() == reference->size()))
        reference = list;
      return true;
    };
    for (auto &[operand, layout] : readLayouts)
      if (!leaves(layout)) return false;
    Operation *firstReduction = nullptr;
    for (Operation *op : ops) {
      for (Value result : op->getResults())
        if (!consider(layouts[result], llvm::is_contained(outputs, result))) return false;
      if (isReduction(op)) {
        if (!consider(of(op->getOpOperand(0)), !firstReduction)) return false;
        if (!firstReduction) firstReduction = op;
      }
    }
    if (!reference || every.size() > reference->size() || reference->size() > 32) return false;
    if (firstReduction) { // its operand has the order in which memory is read
      std::optional<List> list = leaves(of(firstReduction->getOpOperand(0)));
      if (list->size() != every.size()) return false;
      reference = list;
    }
    for (int leaf : *reference) {
      index[leaf] = domain.sizes.size();
      domain.sizes.push_back(space.size(leaf));
    }
    for (Operation *op : ops) {
      if (!isReduction(op)) continue;
      FactorSet source = setOf(of(op->getOpOperand(0)));
      FactorSet mine = source & ~setOf(layouts[op->getResult(0)]);
      if (source != domain.all() || (domain.reduced && mine != domain.reduced)) return false;
      domain.reduced = mine;
    }
    return true;
  }

  LinearForm zero() const { return {SmallVector<int64_t>(domain.sizes.size(), 0), 0}; }
  void addDim(LinearForm &form, const List &factors, int64_t stride) {
    List list = space.resolve(factors);
    for (int leaf : llvm::reverse(list)) {
      form.strides[index[leaf]] += stride;
      stride *= space.size(leaf);
    }
  }
  LinearForm position(Value value, const Layout &layout) {
    LinearForm form = zero();
    int64_t stride = 1;
    for (size_t d = layout.size(); d-- > 0; stride *= shapeOf(value)[d]) addDim(form, layout[d], stride);
    return form;
  }

  void placeAccesses(Operation *op) {
    FactorSet depends = 0;
    Layout &result = layouts[op->getResult(0)];
    if (auto iota = dyn_cast<onnx::IotaOp>(op)) {
      LinearForm form = zero();
      addDim(form, result[iota.getDim()], 1);
      depends = setOf({result[iota.getDim()]});
      domain.generators[op] = form;
    } else if (auto random = dyn_cast<onnx::RandomUniformOp>(op)) {
      ArrayRef<int64_t> global = random.getGlobalShape().value_or(shapeOf(random.getY()));
      LinearForm form = zero();
      int64_t stride = 1;
      for (size_t d = result.size(); d-- > 0; stride *= global[d]) addDim(form, result[d], stride);
      depends = setOf(result);
      domain.generators[op] = form;
    } else if (auto slice = dyn_cast<onnx::SliceOp>(op)) {
      LinearForm form = zero();
      int64_t stride = 1;
      for (size_t d = result.size(); d-- > 0; stride *= shapeOf(slice.getX())[d]) {
        addDim(form, result[d], stride * slice.getSteps()[d]);
        form.offset += stride * slice.getStarts()[d];
      }
      depends = setOf(result);
      domain.reads[&op->getOpOperand(0)] = form;
    } else {
      for (OpOperand &operand : op->getOpOperands()) {
        if (isInside(operand.get())) {
          depends |= domain.depends[operand.get()];
          continue;
        }
        domain.reads[&operand] = position(operand.get(), of(operand));
        depends |= setOf(of(operand));
      }
      if (isReduction(op)) depends = setOf(of(op->getOpOperand(0))) & ~domain.reduced;
    }
    for (Value value : op->getResults()) {
      domain.shape[value] = setOf(layouts[value]);
      domain.depends[value] = depends;
    }
  }

  bool checkOutputs() {
    FactorSet parallel = domain.all() & ~domain.reduced;
    for (Value output : outputs) {
      FactorSet set = domain.shape[output], inner = set & domain.reduced;
      if ((set & parallel) != parallel || (inner != 0 && inner != domain.reduced)) return false;
    }
    for (Operation *op : ops) {
      if (!isCostly(op)) continue;
      FactorSet set = domain.depends[op->getResult(0)];
      if (set != 0 && (set & parallel) != parallel) return false; // would be computed again for every row
    }
    return true;
  }

  // Joins neighbouring factors that every access steps through as if they were one.
  void collapse() {
    for (size_t f = 0; f + 1 < domain.sizes.size();) {
      if (!canJoin(f)) {
        ++f;
        continue;
      }
      domain.sizes[f] *= domain.sizes[f + 1];
      domain.sizes.erase(domain.sizes.begin() + f + 1);
      auto dropForm = [&](LinearForm &form) { form.strides.erase(form.strides.begin() + f); };
      for (auto &[key, form] : domain.reads) dropForm(form);
      for (auto &[key, form] : domain.writes) dropForm(form);
      for (auto &[key, form] : domain.generators) dropForm(form);
      auto dropBit = [&](FactorSet set) {
        FactorSet low = set & ((FactorSet(1) << (f + 1)) - 1);
        return low | ((set >> (f + 2)) << (f + 1));
      };
      for (auto &[key, set] : domain.shape) set = dropBit(set);
      for (auto &[key, set] : domain.depends) set = dropBit(set);
      domain.reduced = dropBit(domain.reduced);
    }
  }
  bool canJoin(size_t f) const {
    auto both = [&](FactorSet set) { return ((set >> f) & 1) == ((set >> (f + 1)) & 1); };
    auto steps = [&](const LinearForm &form) { return form.strides[f] == form.strides[f + 1] * domain.sizes[f + 1]; };
    return both(domain.reduced) && llvm::all_of(llvm::make_second_range(domain.shape), both) &&
           llvm::all_of(llvm::make_second_range(domain.depends), both) &&
           llvm::all_of(llvm::make_second_range(domain.reads), steps) &&
           llvm::all_of(llvm::make_second_range(domain.writes), steps) &&
           llvm::all_of(llvm::make_second_range(domain.generators), steps);
  }

  ArrayRef<Operation *> ops;
  ArrayRef<Value> outputs;
  FactorSpace space;
  DenseMap<Value, Layout> layouts;
  llvm::MapVector<OpOperand *, Layout> readLayouts;
  DenseMap<int, size_t> index;
  KernelDomain domain;
};

} // namespace

std::optional<KernelDomain> KernelDomain::of(ArrayRef<Operation *> ops, ArrayRef<Value> outputs) {
  return Analysis(ops, outputs).run();
}

} // namespace cleave::codegen
