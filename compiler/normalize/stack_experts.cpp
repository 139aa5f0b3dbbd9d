// StackExperts: experts that are modules of their own become one expert with stacked weights, as an einsum over all of
// them would have written it. A mixture of experts is a sum of branches of the same operations, which differ in their
// weights and in which part of the router's result they are multiplied with:
//
//   %g0 = Slice %gate [0:1] ; %y0 = Contract %x, read @experts.0.w ; %s0 = Mul %g0, %y0
//   %g1 = Slice %gate [1:2] ; %y1 = Contract %x, read @experts.1.w ; %s1 = Mul %g1, %y1
//   %s = Add %s0, %s1
//   becomes
//   %y = Contract %x, read @experts.*.w ; %s = ReduceSum(Mul %gate, %y) over experts
//
// Their results may also be stacked (a concatenation of single entries) to be multiplied with the gate and summed
// after.
//
// The stacked parameter knows the tensors it is made of (attribute onnx.pieces: their onnx.param attributes, in order),
// and is initialized from them and exported as them. Branches that no choice tells apart (the sum of two projections)
// stay as they are: they are no experts, and nothing is gained by stacking them.
#include "compiler/normalize/core_builder.h"
#include "compiler/normalize/normalize.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"
#include <map>

using namespace mlir;
namespace cleave::normalize {
namespace {

constexpr size_t maxBundles = 4096; // operations of a branch that are looked at

// The same place in every branch.
struct Bundle {
  enum Kind : uint8_t { Shared, Weights, Slices, Constants, Same } kind = Shared;
  Values values;                   // one a branch; Shared: the first stands for all
  llvm::SmallVector<int> operands; // bundles, of Same
  int64_t dim = 0;                 // of Slices: the one along which the branches have consecutive parts
};

bool isSum(Operation *op) { return isa<onnx::AddOp, onnx::SumOp>(op); }

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

class BranchStacker {
public:
  BranchStacker(SymbolTable &symbols, llvm::StringMap<int> &reads) : symbols(symbols), reads(reads) {}

  // The branches' values as one with a new first dimension; `reader`: the operation that needs them. Null: these are no
  // experts. `chosen`: only if the branches themselves say which part of a choice they are.
  Value stack(ArrayRef<Value> branches, Operation *reader, bool chosen) {
    count = static_cast<int64_t>(branches.size());
    int root = match(Values(branches));
    if (root < 0 || bundles[root].kind != Bundle::Same || !haveWeights() || (chosen && !haveChoice()) ||
        !isSelfContained(reader))
      return {};
    OpBuilder builder(reader);
    CoreBuilder b(builder, branches[0].getLoc());
    return build(root, b);
  }

  // What is left of the branches when nobody reads their sum any more.
  void eraseBranches() {
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

private:
  // The bundle of these values; -1: they are not of one form.
  int match(Values values) {
    auto known = numbers.find(values);
    if (known != numbers.end()) return known->second;
    if (bundles.size() >= maxBundles) return -1;
    Bundle bundle;
    bundle.values = values;
    int number = describe(bundle) ? static_cast<int>(bundles.size()) : -1;
    if (number >= 0) bundles.push_back(std::move(bundle));
    return numbers[values] = number;
  }

  bool describe(Bundle &bundle) {
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
    bool alike =
        llvm::all_of(ops, [&](Operation *op) { return op->getAttrDictionary() == ops[0]->getAttrDictionary(); });
    if (isa<onnx::ConstantOp>(ops[0])) {
      if (alike) return true;
      bundle.kind = Bundle::Constants;
      return llvm::all_of(ops,
                          [](Operation *op) { return isa<SplatElementsAttr>(cast<onnx::ConstantOp>(op).getValue()); });
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

  bool describeReads(Bundle &bundle) {
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
                  reads.lookup(param.getSymName()) == 1 && !param->hasAttr("onnx.pieces");
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

  // Branch i reads part i of one tensor.
  bool describeSlices(Bundle &bundle) {
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

  static bool isStackable(Operation *op) {
    if (isa<onnx::IotaOp, onnx::RandomUniformOp>(op)) return false;
    return op->hasTrait<onnx::PerElement>() ||
           isa<onnx::ContractOp, onnx::BroadcastOp, onnx::ReshapeOp, onnx::TransposeOp, onnx::SliceOp, onnx::PadOp,
               onnx::ConcatOp, onnx::CumSumOp, onnx::ReduceSumOp, onnx::ReduceMaxOp, onnx::ReduceMinOp>(op);
  }

  // Do the branches differ in a product's weights?
  bool haveWeights() const {
    return llvm::any_of(bundles, [](const Bundle &bundle) {
      return bundle.kind == Bundle::Weights && llvm::all_of(bundle.values, [](Value value) {
               return value.hasOneUse() && isa<onnx::ContractOp>(*value.getUsers().begin());
             });
    });
  }
  // And in what chooses between them?
  bool haveChoice() const {
    return llvm::any_of(bundles, [](const Bundle &bundle) {
      return bundle.kind == Bundle::Slices || bundle.kind == Bundle::Constants;
    });
  }

  // Nothing else may need an old weight, or what is made with it: the reader alone, or the sum that it is the end of.
  bool isSelfContained(Operation *reader) const {
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

  // A value with a first dimension of the branches; of a Shared bundle the value as it is.
  Value build(int number, CoreBuilder &b) {
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

  Value buildSame(Operation *op, Values operands, ArrayRef<bool> stacked, CoreBuilder &b) {
    auto array = [&](ArrayRef<int64_t> values) { return b.builder.getDenseI64ArrayAttr(values); };
    if (auto contract = dyn_cast<onnx::ContractOp>(op)) {
      int64_t fresh = 0;
      for (ArrayRef<int64_t> indices : {contract.getLhsIndices(), contract.getRhsIndices()})
        for (int64_t index : indices) fresh = std::max(fresh, index + 1);
      auto with = [&](ArrayRef<int64_t> indices, bool stack) {
        return stack ? prefixed(fresh, indices) : Dims(indices);
      };
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
    if (isa<onnx::ReduceSumOp, onnx::ReduceMaxOp, onnx::ReduceMinOp>(op)) change("axes", 0, 1, false);
    if (isa<onnx::ConcatOp, onnx::CumSumOp>(op))
      copy->setAttr("axis", b.builder.getI64IntegerAttr(op->getAttrOfType<IntegerAttr>("axis").getInt() + 1));
    return copy->getResult(0);
  }

  static Dims shifted(int64_t rank) {
    Dims dims;
    for (int64_t d = 0; d < rank; ++d) dims.push_back(d + 1);
    return dims;
  }

  Value buildSlices(const Bundle &bundle, CoreBuilder &b) {
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

  Value buildConstants(const Bundle &bundle, CoreBuilder &b) {
    SmallVector<Attribute> elements;
    for (Value value : bundle.values)
      elements.push_back(
          cast<SplatElementsAttr>(value.getDefiningOp<onnx::ConstantOp>().getValue()).getSplatValue<Attribute>());
    auto type = cast<RankedTensorType>(bundle.values[0].getType());
    Value row = b.constant(DenseElementsAttr::get(type.clone({count}), elements));
    return b.create<onnx::BroadcastOp>(row, b.builder.getDenseI64ArrayAttr(prefixed(count, type.getShape())),
                                       b.builder.getDenseI64ArrayAttr({0}));
  }

  Value buildWeights(const Bundle &bundle, CoreBuilder &b) {
    SmallVector<StringRef> names;
    SmallVector<Attribute> parts, nodes;
    onnx::ParamOp first;
    for (Value value : bundle.values) {
      auto param = symbols.lookup<onnx::ParamOp>(value.getDefiningOp<onnx::ReadOp>().getParam());
      if (!first) first = param;
      names.push_back(param.getSymName());
      parts.push_back(param->getAttrDictionary());
      if (auto users = param->getAttrOfType<ArrayAttr>("onnx.nodes")) llvm::append_range(nodes, users);
      pieces.push_back(param);
    }
    OpBuilder &builder = b.builder;
    auto type = cast<RankedTensorType>(bundle.values[0].getType());
    RankedTensorType whole = type.clone(prefixed(count, type.getShape()));
    OpBuilder atParam(first);
    auto stacked = cast<onnx::ParamOp>(atParam.clone(*first));
    for (StringAttr name : {stacked.getPathAttrName(), stacked.getOffsetAttrName(), stacked.getLengthAttrName(),
                            stacked.getFillAttrName(), stacked.getInitAttrName(), stacked.getAliasesAttrName(),
                            stacked.getOriginalShapeAttrName()})
      stacked->removeAttr(name);
    stacked.setTypeAttr(TypeAttr::get(whole));
    stacked->setAttr("onnx.pieces", builder.getArrayAttr(parts));
    stacked->setAttr("onnx.nodes", builder.getArrayAttr(nodes));
    stacked.setSymName(commonName(names));
    symbols.insert(stacked);
    return onnx::ReadOp::create(builder, b.loc, whole, FlatSymbolRefAttr::get(stacked.getSymNameAttr()));
  }

  SymbolTable &symbols;
  llvm::StringMap<int> &reads;
  int64_t count = 0;
  std::vector<Bundle> bundles;
  std::map<Values, int, decltype([](const Values &a, const Values &b) {
             return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(), [](Value x, Value y) {
               return x.getAsOpaquePointer() < y.getAsOpaquePointer();
             });
           })>
      numbers;
  llvm::DenseMap<int, Value> built;
  SmallVector<onnx::ParamOp> pieces;
};

struct StackExperts : PassWrapper<StackExperts, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(StackExperts)
  StringRef getArgument() const final { return "stack-experts"; }
  StringRef getDescription() const final { return "experts that are modules of their own get stacked weights"; }

  void runOnOperation() override {
    ModuleOp module = getOperation();
    SymbolTable symbols(module);
    llvm::StringMap<int> reads;
    module.walk([&](onnx::ReadOp read) { ++reads[read.getParam()]; });
    SmallVector<Operation *> sums;
    SmallVector<onnx::ConcatOp> concats;
    module.walk([&](Operation *op) {
      if (isSum(op) && !isPartOfSum(op)) sums.push_back(op);
      if (auto concat = dyn_cast<onnx::ConcatOp>(op)) concats.push_back(concat);
    });
    for (Operation *sum : sums) replaceSum(sum, symbols, reads);
    for (onnx::ConcatOp concat : concats) replaceConcat(concat, symbols, reads);
  }

private:
  static bool isPartOfSum(Operation *op) {
    return op->getResult(0).hasOneUse() && isSum(*op->getResult(0).getUsers().begin());
  }

  // What is added up, from left to right.
  static void collectTerms(Operation *sum, Values &terms) {
    Values stack(llvm::reverse(sum->getOperands()));
    while (!stack.empty()) {
      Value value = stack.pop_back_val();
      Operation *op = value.getDefiningOp();
      if (op && isSum(op) && isPartOfSum(op))
        llvm::append_range(stack, llvm::reverse(op->getOperands()));
      else
        terms.push_back(value);
    }
  }

  static void replaceSum(Operation *sum, SymbolTable &symbols, llvm::StringMap<int> &reads) {
    Values terms;
    collectTerms(sum, terms);
    llvm::MapVector<llvm::hash_code, Values> alike;
    for (Value term : terms)
      if (term.getDefiningOp()) alike[form(term, 4)].push_back(term);
    for (auto &[hash, branches] : alike) {
      if (branches.size() < 2) continue;
      BranchStacker stacker(symbols, reads);
      Value stacked = stacker.stack(branches, sum, /*chosen=*/true);
      if (!stacked) continue;
      OpBuilder builder(sum);
      CoreBuilder b(builder, sum->getLoc());
      stacked = b.create<onnx::ReduceSumOp>(stacked, builder.getDenseI64ArrayAttr({0}));
      Value all;
      for (Value term : terms)
        if (!llvm::is_contained(branches, term)) all = all ? b.add(all, term) : term;
      sum->getResult(0).replaceAllUsesWith(all ? b.add(all, stacked) : stacked);
      eraseSum(sum);
      stacker.eraseBranches();
      return;
    }
  }

  static void replaceConcat(onnx::ConcatOp concat, SymbolTable &symbols, llvm::StringMap<int> &reads) {
    Values branches(concat.getXs());
    int64_t axis = concat.getAxis();
    if (branches.size() < 2 || shapeOf(concat.getY())[axis] != static_cast<int64_t>(branches.size())) return;
    BranchStacker stacker(symbols, reads);
    Value stacked = stacker.stack(branches, concat, /*chosen=*/false);
    if (!stacked) return;
    OpBuilder builder(concat);
    CoreBuilder b(builder, concat.getLoc());
    Dims shape(shapeOf(stacked)), order; // [experts, .., 1, ..]
    shape.erase(shape.begin() + 1 + axis);
    for (int64_t d = 0; d < static_cast<int64_t>(shape.size()); ++d)
      order.push_back(d < axis ? d + 1 : d == axis ? 0 : d);
    concat.getY().replaceAllUsesWith(b.transpose(b.reshape(stacked, shape), order));
    concat.erase();
    stacker.eraseBranches();
  }

  static void eraseSum(Operation *sum) {
    SmallVector<Operation *> parts;
    for (Value operand : sum->getOperands())
      if (Operation *op = operand.getDefiningOp(); op && isSum(op) && isPartOfSum(op)) parts.push_back(op);
    sum->erase();
    for (Operation *part : parts) eraseSum(part);
  }

  // Equal for values computed alike, as far as `depth` operations back.
  static llvm::hash_code form(Value value, int depth) {
    Operation *op = value.getDefiningOp();
    llvm::hash_code hash =
        llvm::hash_combine(value.getType().getAsOpaquePointer(), op ? op->getName().getAsOpaquePointer() : nullptr);
    if (op && depth > 0)
      for (Value operand : op->getOperands()) hash = llvm::hash_combine(hash, form(operand, depth - 1));
    return hash;
  }
};

} // namespace

std::unique_ptr<Pass> createStackExpertsPass() { return std::make_unique<StackExperts>(); }

} // namespace cleave::normalize
