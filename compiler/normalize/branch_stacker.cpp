#include "compiler/normalize/branch_stacker.h"
#include "dialects/onnx/kinds.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
namespace cleave::normalize {
namespace {

constexpr size_t maxBundles = 4096; // operations of a branch that are looked at

Dims prefixed(int64_t first, ArrayRef<int64_t> rest, int64_t shift = 0) {
  Dims all{first};
  for (int64_t value : rest) all.push_back(value + shift);
  return all;
}

// "experts.0.up.weight", "experts.1.up.weight" -> "experts.*.up.weight"
std::string commonName(ArrayRef<StringRef> names) {
  size_t shortest = names[0].size(), prefix, suffix = 0;
  for (StringRef name : names) shortest = std::min(shortest, name.size());
  auto same = [&](auto character) {
    return llvm::all_of(names, [&](StringRef name) { return character(name) == character(names[0]); });
  };
  for (prefix = 0; prefix < shortest && same([&](StringRef name) { return name[prefix]; });) ++prefix;
  while (prefix + suffix < shortest && same([&](StringRef name) { return name[name.size() - 1 - suffix]; })) ++suffix;
  return (names[0].take_front(prefix) + "*" + names[0].take_back(suffix)).str();
}

// The dimensions behind a new first one.
Dims shifted(int64_t rank) {
  Dims dims;
  for (int64_t d = 0; d < rank; ++d) dims.push_back(d + 1);
  return dims;
}

} // namespace

bool BranchStacker::InOrder::operator()(const Values &a, const Values &b) const {
  return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(),
                                      [](Value x, Value y) { return x.getAsOpaquePointer() < y.getAsOpaquePointer(); });
}

Value BranchStacker::stack(ArrayRef<Value> branches, Operation *reader, bool chosen) {
  count = static_cast<int64_t>(branches.size());
  int root = match(Values(branches));
  if (root < 0 || bundles[root].kind != Bundle::Same || !haveWeights() || (chosen && !haveChoice()) ||
      !isSelfContained(reader))
    return {};
  OpBuilder builder(reader);
  CoreBuilder b(builder, branches[0].getLoc());
  return build(root, b);
}

void BranchStacker::eraseBranches() {
  llvm::SetVector<Operation *> old;
  for (const Bundle &bundle : bundles)
    if (bundle.kind != Bundle::Shared)
      for (Value value : bundle.values) old.insert(value.getDefiningOp());
  for (bool changed = true; changed;) {
    changed = false;
    for (Operation *op : llvm::to_vector(old))
      if (op->use_empty()) {
        old.remove(op);
        op->erase();
        changed = true;
      }
  }
  for (onnx::ParamOp piece : pieces) piece.erase();
}

int BranchStacker::match(Values values) {
  auto known = numbers.find(values);
  if (known != numbers.end()) return known->second;
  if (bundles.size() >= maxBundles) return -1;
  Bundle bundle;
  bundle.values = values;
  int number = describe(bundle) ? static_cast<int>(bundles.size()) : -1;
  if (number >= 0) bundles.push_back(std::move(bundle));
  return numbers[values] = number;
}

bool BranchStacker::describe(Bundle &bundle) {
  if (llvm::all_equal(bundle.values)) return true;
  SmallVector<Operation *> ops;
  for (Value value : bundle.values) {
    Operation *op = value.getDefiningOp();
    if (!op || value.getType() != bundle.values[0].getType() ||
        op->getName() != bundle.values[0].getDefiningOp()->getName() || op->getNumResults() != 1 ||
        op->getNumOperands() != bundle.values[0].getDefiningOp()->getNumOperands())
      return false;
    ops.push_back(op);
  }
  if (isa<onnx::ReadOp>(ops[0])) return describeReads(bundle);
  bool alike = llvm::all_of(ops, [&](Operation *op) { return op->getAttrDictionary() == ops[0]->getAttrDictionary(); });
  if (onnx::isConstant(ops[0])) {
    if (alike) return true;
    bundle.kind = Bundle::Constants;
    return llvm::all_of(ops, [](Operation *op) { return onnx::isSplat(op->getResult(0)); });
  }
  if (isa<onnx::SliceOp>(ops[0]) && !alike) return describeSlices(bundle);
  if (!alike || !isStackable(ops[0])) return false;
  bool shared = true;
  for (unsigned i = 0; i < ops[0]->getNumOperands(); ++i) {
    Values operands;
    for (Operation *op : ops) operands.push_back(op->getOperand(i));
    int operand = match(operands);
    if (operand < 0) return false;
    shared &= bundles[operand].kind == Bundle::Shared;
    bundle.operands.push_back(operand);
  }
  bundle.kind = shared ? Bundle::Shared : Bundle::Same; // the same of the same
  return true;
}

bool BranchStacker::describeReads(Bundle &bundle) {
  auto paramOf = [&](Value value) {
    return symbols.lookup<onnx::ParamOp>(value.getDefiningOp<onnx::ReadOp>().getParam());
  };
  llvm::SmallDenseSet<Operation *> distinct;
  onnx::ParamOp first = paramOf(bundle.values[0]);
  for (Value value : bundle.values) {
    onnx::ParamOp param = paramOf(value);
    if (!param) return false;
    distinct.insert(param);
    bool fits = param.getRole() == "parameter" && param.getTrainable() == first.getTrainable() &&
                reads.lookup(param.getSymName()) == 1 && !onnx::piecesAttr.isOn(param);
    if (!fits && param != first) return false;
    if (!fits) bundle.kind = Bundle::Same; // may still be one that all read
  }
  if (distinct.size() == 1) {
    bundle.kind = Bundle::Shared;
    return true;
  }
  bool stackable = bundle.kind != Bundle::Same && static_cast<int64_t>(distinct.size()) == count;
  bundle.kind = Bundle::Weights;
  return stackable;
}

bool BranchStacker::describeSlices(Bundle &bundle) {
  auto sliceOf = [](Value value) { return value.getDefiningOp<onnx::SliceOp>(); };
  onnx::SliceOp first = sliceOf(bundle.values[0]);
  bundle.kind = Bundle::Slices;
  bundle.dim = -1;
  for (auto [d, start] : llvm::enumerate(sliceOf(bundle.values[1]).getStarts()))
    if (start != first.getStarts()[d]) bundle.dim = static_cast<int64_t>(d);
  if (bundle.dim < 0) return false;
  Values sources;
  for (Value value : bundle.values) sources.push_back(sliceOf(value).getX());
  int source = match(sources);
  if (source < 0 || bundles[source].kind != Bundle::Shared) return false;
  for (auto [i, value] : llvm::enumerate(bundle.values)) {
    onnx::SliceOp slice = sliceOf(value);
    if (llvm::any_of(slice.getSteps(), [](int64_t step) { return step != 1; })) return false;
    for (auto [d, start] : llvm::enumerate(slice.getStarts())) {
      int64_t expected = first.getStarts()[d];
      if (static_cast<int64_t>(d) == bundle.dim) expected += static_cast<int64_t>(i) * first.getSizes()[d];
      if (start != expected) return false;
    }
  }
  return true;
}

bool BranchStacker::isStackable(Operation *op) {
  return onnx::isPointwise(op) || onnx::isView(op) || onnx::isReduction(op) ||
         isa<onnx::ContractOp, onnx::PadOp, onnx::ConcatOp, onnx::CumSumOp>(op);
}

// Slices of one parameter: experts whose weights are stacked already.
static bool isOfStackedWeights(const Bundle &bundle) {
  return bundle.kind == Bundle::Slices &&
         isa_and_present<onnx::ReadOp>(bundle.values[0].getDefiningOp<onnx::SliceOp>().getX().getDefiningOp());
}

bool BranchStacker::haveWeights() const {
  return llvm::any_of(bundles, [](const Bundle &bundle) {
    return (bundle.kind == Bundle::Weights || isOfStackedWeights(bundle)) &&
           llvm::all_of(bundle.values, [](Value value) {
             while (value.hasOneUse() && isa<onnx::ReshapeOp, onnx::TransposeOp>(*value.getUsers().begin()))
               value = value.getUsers().begin()->getResult(0);
             return value.hasOneUse() && isa<onnx::ContractOp>(*value.getUsers().begin());
           });
  });
}

bool BranchStacker::haveChoice() const {
  return llvm::any_of(bundles, [](const Bundle &bundle) {
    return (bundle.kind == Bundle::Slices && !isOfStackedWeights(bundle)) || bundle.kind == Bundle::Constants;
  });
}

bool BranchStacker::isSelfContained(Operation *reader) const {
  llvm::SmallDenseSet<Operation *> inside;
  for (const Bundle &bundle : bundles)
    if (bundle.kind == Bundle::Same)
      for (Value value : bundle.values) inside.insert(value.getDefiningOp());
  std::vector<bool> weighed(bundles.size());
  for (auto [i, bundle] : llvm::enumerate(bundles)) { // operands stand before those that read them
    weighed[i] = bundle.kind == Bundle::Weights;
    for (int operand : bundle.operands) weighed[i] = weighed[i] || weighed[operand];
    if (!weighed[i]) continue;
    for (Value value : bundle.values)
      for (Operation *user : value.getUsers())
        if (!inside.contains(user) && user != reader && !isSum(user)) return false;
  }
  return true;
}

Value BranchStacker::build(int number, CoreBuilder &b) {
  if (auto known = built.find(number); known != built.end()) return known->second;
  const Bundle &bundle = bundles[number];
  Value value = bundle.values[0];
  if (bundle.kind == Bundle::Weights) value = buildWeights(bundle, b);
  if (bundle.kind == Bundle::Slices) value = buildSlices(bundle, b);
  if (bundle.kind == Bundle::Constants) value = buildConstants(bundle, b);
  if (bundle.kind == Bundle::Same) {
    Operation *op = bundle.values[0].getDefiningOp();
    SmallVector<bool> stacked;
    Values operands;
    for (int operand : bundle.operands) {
      stacked.push_back(bundles[operand].kind != Bundle::Shared);
      operands.push_back(build(operand, b));
    }
    CoreBuilder own(b.builder, op->getLoc());
    value = buildSame(op, operands, stacked, own);
  }
  return built[number] = value;
}

Value BranchStacker::buildSame(Operation *op, Values operands, ArrayRef<bool> stacked, CoreBuilder &b) {
  auto array = [&](ArrayRef<int64_t> values) { return b.builder.getDenseI64ArrayAttr(values); };
  if (auto contract = dyn_cast<onnx::ContractOp>(op)) {
    int64_t fresh = 0;
    for (ArrayRef<int64_t> indices : {contract.getLhsIndices(), contract.getRhsIndices()})
      for (int64_t index : indices) fresh = std::max(fresh, index + 1);
    auto with = [&](ArrayRef<int64_t> indices, bool stack) { return stack ? prefixed(fresh, indices) : Dims(indices); };
    return b.contract(operands[0], operands[1], with(contract.getLhsIndices(), stacked[0]),
                      with(contract.getRhsIndices(), stacked[1]), prefixed(fresh, contract.getResultIndices()));
  }
  for (auto [operand, isStacked] : llvm::zip(operands, stacked))
    if (!isStacked)
      operand = b.create<onnx::BroadcastOp>(operand, array(prefixed(count, shapeOf(operand))),
                                            array(shifted(rankOf(operand))));
  if (auto broadcast = dyn_cast<onnx::BroadcastOp>(op))
    return b.create<onnx::BroadcastOp>(operands[0], array(prefixed(count, broadcast.getShape())),
                                       array(prefixed(0, broadcast.getDims(), 1)));
  if (auto reshape = dyn_cast<onnx::ReshapeOp>(op))
    return b.create<onnx::ReshapeOp>(operands[0], array(prefixed(count, reshape.getShape())));
  if (auto transpose = dyn_cast<onnx::TransposeOp>(op))
    return b.create<onnx::TransposeOp>(operands[0], array(prefixed(0, transpose.getPerm(), 1)));
  Operation *copy = b.builder.clone(*op);
  copy->setLoc(b.loc);
  copy->setOperands(operands);
  auto type = cast<RankedTensorType>(op->getResult(0).getType());
  copy->getResult(0).setType(type.clone(prefixed(count, type.getShape())));
  auto change = [&](StringRef name, int64_t first, int64_t shift, bool prefix) {
    auto old = op->getAttrOfType<DenseI64ArrayAttr>(name).asArrayRef();
    Dims all = prefixed(first, old, shift);
    copy->setAttr(name, array(prefix ? ArrayRef<int64_t>(all) : ArrayRef<int64_t>(all).drop_front()));
  };
  if (isa<onnx::SliceOp>(op))
    change("starts", 0, 0, true), change("sizes", count, 0, true), change("steps", 1, 0, true);
  if (isa<onnx::PadOp>(op)) change("low", 0, 0, true), change("high", 0, 0, true), change("interior", 0, 0, true);
  if (onnx::isReduction(op)) change("axes", 0, 1, false);
  if (isa<onnx::ConcatOp, onnx::CumSumOp>(op))
    copy->setAttr("axis", b.builder.getI64IntegerAttr(op->getAttrOfType<IntegerAttr>("axis").getInt() + 1));
  return copy->getResult(0);
}

Value BranchStacker::buildSlices(const Bundle &bundle, CoreBuilder &b) {
  auto array = [&](ArrayRef<int64_t> values) { return b.builder.getDenseI64ArrayAttr(values); };
  auto first = bundle.values[0].getDefiningOp<onnx::SliceOp>();
  size_t dim = static_cast<size_t>(bundle.dim);
  Dims sizes(first.getSizes()), parted;
  sizes[dim] *= count;
  Value all = b.create<onnx::SliceOp>(first.getX(), first.getStartsAttr(), array(sizes), first.getStepsAttr());
  Dims order{bundle.dim};
  for (auto [d, size] : llvm::enumerate(first.getSizes())) {
    if (d == dim) parted.push_back(count);
    parted.push_back(size);
    order.push_back(static_cast<int64_t>(d) + (d >= dim));
  }
  return b.transpose(b.reshape(all, parted), order);
}

Value BranchStacker::buildConstants(const Bundle &bundle, CoreBuilder &b) {
  SmallVector<Attribute> elements;
  for (Value value : bundle.values)
    elements.push_back(
        cast<SplatElementsAttr>(value.getDefiningOp<onnx::ConstantOp>().getValue()).getSplatValue<Attribute>());
  auto type = cast<RankedTensorType>(bundle.values[0].getType());
  Value row = b.constant(DenseElementsAttr::get(type.clone({count}), elements));
  return b.create<onnx::BroadcastOp>(row, b.builder.getDenseI64ArrayAttr(prefixed(count, type.getShape())),
                                     b.builder.getDenseI64ArrayAttr({0}));
}

Value BranchStacker::buildWeights(const Bundle &bundle, CoreBuilder &b) {
  SmallVector<StringRef> names;
  SmallVector<Attribute> parts;
  std::vector<std::string> nodes;
  onnx::ParamOp first;
  for (Value value : bundle.values) {
    auto param = symbols.lookup<onnx::ParamOp>(value.getDefiningOp<onnx::ReadOp>().getParam());
    if (!first) first = param;
    names.push_back(param.getSymName());
    parts.push_back(param->getAttrDictionary());
    llvm::append_range(nodes, onnx::nodesAttr.of(param));
    pieces.push_back(param);
  }
  OpBuilder &builder = b.builder;
  auto type = cast<RankedTensorType>(bundle.values[0].getType());
  RankedTensorType whole = type.clone(prefixed(count, type.getShape()));
  OpBuilder atParam(first);
  auto stacked = cast<onnx::ParamOp>(atParam.clone(*first));
  for (StringAttr name :
       {stacked.getPathAttrName(), stacked.getOffsetAttrName(), stacked.getLengthAttrName(), stacked.getFillAttrName(),
        stacked.getInitAttrName(), stacked.getAliasesAttrName(), stacked.getOriginalShapeAttrName()})
    stacked->removeAttr(name);
  stacked.setTypeAttr(TypeAttr::get(whole));
  onnx::piecesAttr.set(stacked, builder.getArrayAttr(parts));
  onnx::nodesAttr.set(stacked, nodes);
  stacked.setSymName(commonName(names));
  symbols.insert(stacked);
  return onnx::ReadOp::create(builder, b.loc, whole, FlatSymbolRefAttr::get(stacked.getSymNameAttr()));
}

} // namespace cleave::normalize
