#include "compiler/partition/choose_split.h"
#include "compiler/partition/layout_hints.h"
#include "compiler/partition/layout_versions.h"
#include "compiler/partition/mirrored_split.h"
#include "compiler/partition/passes.h"
#include "dialects/onnx/kinds.h"
#include "dialects/onnx/sample_dim.h"

using namespace mlir;
using namespace cleave::dist;

namespace cleave::partition {
#define GEN_PASS_DEF_PROPAGATESHARDINGS
#include "compiler/partition/Passes.h.inc"

namespace {

class Propagation {
public:
  Propagation(func::FuncOp function, const Mesh &mesh, SymbolTable &symbols, Axes zeroAxes, Axes batchAxes,
              bool gathersAgain)
      : function(function), mesh(mesh), symbols(symbols), zeroAxes(std::move(zeroAxes)),
        batchAxes(std::move(batchAxes)), versions(mesh, gathersAgain), hints(layoutHints(function, mesh, symbols)),
        products(function) {}

  LogicalResult run() {
    layOutArguments();
    for (Operation &op : llvm::make_early_inc_range(function.getBody().front()))
      if (failed(visit(&op))) return failure();
    eraseDead();
    return success();
  }

private:
  // Samples lie over the batch axes; everything else every device has.
  void layOutArguments() {
    for (BlockArgument argument : function.getArguments()) {
      Sharding layout = Sharding::replicated(shapeOf(argument).size());
      if (auto given = dist::layoutAttr.of(function, argument.getArgNumber()))
        layout = given.getSharding();
      else if (int64_t dim = onnx::sampleDim(function, argument.getArgNumber());
               dim >= 0 && !onnx::hostAttr.of(function, argument.getArgNumber()))
        layout.dims[size_t(dim)] = batchAxes;
      layout = fitted(mesh, layout, shapeOf(argument));
      dist::layoutAttr.setArg(function, argument.getArgNumber(), ShardingAttr::get(function.getContext(), layout));
      versions.define(argument, layout);
    }
  }

  LogicalResult visit(Operation *op) {
    if (auto read = dyn_cast<onnx::ReadOp>(op)) return visitRead(read);
    if (auto write = dyn_cast<onnx::WriteOp>(op)) return visitWrite(write);
    if (isa<func::ReturnOp>(op)) return visitReturn(op);
    if (auto sum = dyn_cast<onnx::SumOp>(op); sum && failed(sumPartial(sum))) return failure();
    if (isa<onnx::FactorRuleOpInterface>(op)) return visitCore(op);
    return op->emitOpError("has no factor rule: it cannot stand in a function that is split");
  }

  LogicalResult visitRead(onnx::ReadOp read) {
    auto param = symbols.lookup<onnx::ParamOp>(read.getParam());
    if (!param) return read.emitOpError("reads a persistent tensor that does not exist: @") << read.getParam();
    bool undecided = param.getRole() == "accumulator" && !param.getSharding();
    if (undecided && moveToFirstUse(read)) return success(); // it comes again
    Sharding home = undecided ? accumulatorLayout(read, param) : homeOf(mesh, param);
    versions.define(read.getValue(), home);
    dist::resultsAttr.set(read, ArrayAttr::get(read.getContext(), ShardingAttr::get(read.getContext(), home)));
    return success();
  }

  // A read may stand anywhere in its function. False if it stands before its first use already.
  static bool moveToFirstUse(onnx::ReadOp read) {
    Operation *first = nullptr;
    for (Operation *user : read.getValue().getUsers())
      if (!first || user->isBeforeInBlock(first)) first = user;
    if (!first || read->getNextNode() == first) return false;
    read->moveBefore(first);
    return true;
  }

  // An accumulator takes the layout in which what is added to it comes out, a partial sum included: it then needs no
  // communication before the step's end. What @count adds up is read by every microbatch, and so whole.
  Sharding accumulatorLayout(onnx::ReadOp read, onnx::ParamOp param) {
    Sharding home = Sharding::replicated(shapeOf(read.getValue()).size());
    for (Operation *user : read.getValue().getUsers()) {
      if (!onnx::isSum(user)) continue;
      for (Value addend : user->getOperands())
        if (addend != read.getValue() && versions.known(addend)) {
          home = versions.layout(addend);
          bool real = isa<FloatType>(cast<RankedTensorType>(addend.getType()).getElementType());
          const bool isWhole = function.getName() == "count";
          if (isWhole || home.reduction != Reduction::Sum || !addend.hasOneUse() || !real) home.partial.clear();
        }
    }
    param.setShardingAttr(ShardingAttr::get(read.getContext(), home));
    return home;
  }

  LogicalResult visitWrite(onnx::WriteOp write) {
    auto param = symbols.lookup<onnx::ParamOp>(write.getParam());
    if (!param) return write.emitOpError("writes a persistent tensor that does not exist: @") << write.getParam();
    write.getValueMutable().assign(versions.get(write.getValue(), homeOf(mesh, param), write));
    return success();
  }

  LogicalResult visitReturn(Operation *op) {
    for (OpOperand &operand : op->getOpOperands())
      operand.set(versions.get(operand.get(), Sharding::replicated(shapeOf(operand.get()).size()), op));
    return success();
  }

  // Partial terms of a sum are added first, so that they are combined once: the gradients of
  // queries, keys and values beside that of the residual.
  LogicalResult sumPartial(onnx::SumOp sum) {
    if (factorsOf(sum)) return success();
    SmallVector<Value> partial, others;
    for (Value term : sum.getOperands()) {
      bool isPartial = versions.known(term) && term.hasOneUse() && versions.pending(term) &&
                       versions.layout(term).reduction == Reduction::Sum &&
                       (partial.empty() || versions.layout(term) == versions.layout(partial[0]));
      (isPartial ? partial : others).push_back(term);
    }
    if (partial.size() < 2 || others.empty()) return success();
    OpBuilder builder(sum);
    auto first = onnx::SumOp::create(builder, sum.getLoc(), sum.getType(), partial);
    first->setDiscardableAttrs(sum->getDiscardableAttrDictionary());
    others.push_back(first);
    sum->setOperands(others);
    return visitCore(first);
  }

  LogicalResult visitCore(Operation *op) {
    FactorRule rule = cast<onnx::FactorRuleOpInterface>(op).getFactorRule();
    if (rule.operands.size() != op->getNumOperands() || rule.results.size() != op->getNumResults())
      return op->emitOpError("has a factor rule of another arity: ") << rule.str();
    for (Value operand : op->getOperands())
      if (!versions.known(operand)) return op->emitOpError("reads a value that has no layout");
    std::optional<FactorSharding> given = factorsOf(op);
    Axes passing = passingAxes(op, rule, given.has_value());
    std::optional<MirroredProduct> mirrored = given ? std::nullopt : products.find(op);
    FactorSharding split = given      ? fitted(mesh, rule, *given)
                           : mirrored ? fitted(mesh, rule, mirrored->split)
                                      : infer(op, rule, passing);
    for (Axes &axes : split)
      axes.erase(
          std::remove_if(axes.begin(), axes.end(), [&](const std::string &axis) { return contains(passing, axis); }),
          axes.end());
    for (OpOperand &operand : op->getOpOperands()) {
      size_t index = operand.getOperandNumber();
      Sharding wanted = operandSharding(rule, split, index);
      if (!passing.empty() && rule.linearOperands[index] && carries(operand.get(), passing)) wanted.partial = passing;
      replacements.push_back(versions.get(operand.get(), wanted, op));
    }
    std::vector<Sharding> layouts;
    for (auto [index, result] : llvm::enumerate(op->getResults())) {
      Sharding layout = resultSharding(rule, split, index);
      layout.partial.insert(layout.partial.end(), passing.begin(), passing.end());
      layout.partial = inMeshOrder(mesh, layout.partial);
      versions.define(result, layout);
      layouts.push_back(std::move(layout));
    }
    // Later uses and copies of generated values go by the original operands, so those are replaced at the very end.
    pendingOperands.emplace_back(op, std::move(replacements));
    replacements.clear();
    annotate(op, split, layouts);
    if (mirrored && !isParameter(mirrored->differentiated))
      layGradient(op->getResult(0), versions.layout(mirrored->differentiated));
    if (!passing.empty()) passLayout(op, rule);
    return success();
  }

  // A persistent tensor as it is read, or in fp8 scaled and rounded.
  static bool isParameter(Value value) {
    Operation *op = value.getDefiningOp();
    while (op && onnx::fp8ScalingAttr.isOn(op) && op->getNumOperands() > 0) op = op->getOperand(0).getDefiningOp();
    return isa_and_nonnull<onnx::ReadOp>(op);
  }

  // The gradient of an activation will lie as the activation does, whatever reads it; so will what a partial sum of it
  // becomes on its way.
  void layGradient(Value gradient, Sharding layout) {
    layout.partial.clear();
    gradients.try_emplace(gradient, std::move(layout));
  }
  void passLayout(Operation *op, const FactorRule &rule) {
    for (OpOperand &operand : op->getOpOperands()) {
      auto known = gradients.find(operand.get());
      if (known == gradients.end() || !versions.pending(operand.get())) continue;
      std::vector<const Sharding *> operands(op->getNumOperands());
      operands[operand.getOperandNumber()] = &known->second;
      FactorSharding split = inferFactorSharding(mesh, rule, operands, {nullptr}, {});
      return layGradient(op->getResult(0), resultSharding(rule, split, 0));
    }
  }

  // Is the value a partial sum over these axes that was not reduced for another use?
  bool carries(Value value, const Axes &axes) const {
    const Sharding &layout = versions.layout(value);
    return layout.reduction == Reduction::Sum && versions.pending(value) &&
           llvm::all_of(axes, [&](const std::string &axis) { return contains(layout.partial, axis); });
  }

  // The partial axes that pass through the operation from its operands to its result.
  Axes passingAxes(Operation *op, const FactorRule &rule, bool decided) const {
    if (rule.linearity == FactorRule::NotLinear) return {};
    Axes limit;
    for (const MeshAxis &axis : mesh.axes) limit.push_back(axis.name);
    if (decided) limit = dist::factorsAttr.of(op).getPartial().getAxes();
    if (limit.empty()) return {};
    double resultBytes = bytesOf(op->getResult(0).getType());
    bool one = rule.linearity == FactorRule::LinearInOne;
    int partialOperands = 0;
    Axes common = limit;
    for (auto [index, operand] : llvm::enumerate(op->getOperands())) {
      const Sharding &layout = versions.layout(operand);
      bool partial = !layout.partial.empty() && layout.reduction == Reduction::Sum && versions.pending(operand);
      if (!partial && (one || !rule.linearOperands[index])) continue;
      if (!partial || !rule.linearOperands[index]) return {};
      ++partialOperands;
      bool onlyUse = llvm::all_of(operand.getUsers(), [&](Operation *user) { return user == op; });
      if (!decided && (!onlyUse || resultBytes > bytesOf(operand.getType()))) return {};
      Axes kept;
      for (const std::string &axis : common)
        if (contains(layout.partial, axis)) kept.push_back(axis);
      common = kept;
    }
    if (partialOperands == 0 || (one && partialOperands > 1)) return {};
    return inMeshOrder(mesh, common);
  }

  FactorSharding infer(Operation *op, const FactorRule &rule, const Axes &passing) const {
    SplitQuestion question{op, rule, {}, passing, nullptr, zeroAxes};
    for (Value operand : op->getOperands()) question.votes.push_back(without(vote(op, operand), passing));
    if (op->getNumResults() == 1)
      if (auto hint = hints.find(op->getResult(0)); hint != hints.end()) question.hint = &hint->second;
    return chooseSplit(mesh, question, versions);
  }

  // The layout an operand has for the purpose of choosing a split.
  Sharding vote(Operation *op, Value operand) const {
    if (auto known = gradients.find(operand); known != gradients.end()) return known->second;
    if (operand.getDefiningOp<onnx::ReadOp>() && phaseOf(op) == Phase::Update && !versions.pending(operand))
      return versions.layout(operand);
    Sharding layout = versions.latest(operand);
    if (operand.getDefiningOp<onnx::ReadOp>() && phaseOf(op) != Phase::Update) return without(layout, zeroAxes);
    if (!versions.pending(operand)) {
      layout.partial.clear();
      return layout;
    }
    auto hint = hints.find(operand);
    layout = versions.layout(operand);
    if (hint != hints.end() && refines(hint->second, layout)) return hint->second;
    layout.partial.clear();
    return layout;
  }

  // Does `finer` only split further, by axes that `layout` is partial over or does not use?
  static bool refines(const Sharding &finer, const Sharding &layout) {
    for (auto [fine, coarse] : llvm::zip_equal(finer.dims, layout.dims))
      if (fine.size() < coarse.size() || !std::equal(coarse.begin(), coarse.end(), fine.begin())) return false;
    return true;
  }

  void eraseDead() {
    for (auto &[op, operands] : pendingOperands) op->setOperands(operands);
    for (Operation &op : llvm::make_early_inc_range(llvm::reverse(function.getBody().front())))
      if (isOpTriviallyDead(&op)) op.erase();
  }

  func::FuncOp function;
  const Mesh &mesh;
  SymbolTable &symbols;
  Axes zeroAxes, batchAxes;
  LayoutVersions versions;
  DenseMap<Value, Sharding> hints;
  MirroredProducts products;
  DenseMap<Value, Sharding> gradients; // how gradients of activations are to lie
  SmallVector<Value> replacements;
  std::vector<std::pair<Operation *, SmallVector<Value>>> pendingOperands;
};

struct PropagateShardings : impl::PropagateShardingsBase<PropagateShardings> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    FailureOr<Mesh> mesh = meshOf(module);
    if (failed(mesh)) return signalPassFailure();
    SymbolTable symbols(module);
    // The functions that accumulate decide how accumulators lie.
    SmallVector<func::FuncOp> functions;
    for (auto function : module.getOps<func::FuncOp>())
      if (!function.isExternal()) functions.push_back(function);
    auto accumulates = [](func::FuncOp function) {
      return function.getName() == "accumulate" || function.getName() == "count";
    };
    std::ranges::stable_partition(functions, accumulates);
    for (func::FuncOp function : functions) {
      Propagation propagation(function, *mesh, symbols, dist::zeroAxesAttr.of(module).getAxes(),
                              dist::batchAxesAttr.of(module).getAxes(), dist::gathersAgainAttr.isOn(module));
      if (failed(propagation.run())) return signalPassFailure();
    }
  }
};

} // namespace
} // namespace cleave::partition
