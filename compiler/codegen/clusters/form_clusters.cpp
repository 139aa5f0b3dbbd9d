#include "compiler/codegen/clusters/cluster_graph.h"
#include "compiler/codegen/clusters/program_order.h"
#include "compiler/codegen/kernels/clone_body.h"
#include "compiler/codegen/passes.h"
#include "compiler/training/step_function.h"
#include "dialects/onnx/kinds.h"
#include "dialects/plan/Plan.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Dominance.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Transforms/CSE.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringMap.h"

using namespace mlir;
namespace cleave::codegen {
#define GEN_PASS_DEF_FORMCLUSTERS
#include "compiler/codegen/Passes.h.inc"

bool isOfUpdate(ArrayRef<Operation *> ops) {
  return llvm::all_of(ops,
                      [](Operation *op) {
                        const auto phase = place::of(op).phase;
                        return !phase || phase == place::Phase::Update;
                      }) &&
         llvm::any_of(ops, [](Operation *op) { return place::of(op).phase.has_value(); });
}

namespace {

// The size that stands for any in a flat kernel.
constexpr int64_t flatSize = 4096;

// A copy for a kernel. Where the op stands in the step is the launch's matter.
Operation *cloneWithoutPlace(OpBuilder &builder, Operation *op, IRMapping &mapping) {
  Operation *clone = builder.clone(*op, mapping);
  clone->setDiscardableAttrs(ArrayRef<NamedAttribute>());
  return clone;
}

RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }

// Each user has it for itself: it costs nothing inside a kernel.
bool isOwnOfUser(Operation *op) { return onnx::isGenerator(op) || (isView(op) && isClusterOp(op)); }

// Work that would compute a tensor without elements becomes an empty constant.
void eraseEmptyWork(Block &block) {
  for (Operation &op : llvm::make_early_inc_range(block)) {
    if (!op.hasTrait<onnx::PerElement>() && !isReduction(&op)) continue;
    RankedTensorType type = typeOf(op.getResult(0));
    if (type.getNumElements() != 0) continue;
    OpBuilder builder(&op);
    auto nothing = DenseElementsAttr::get(type, ArrayRef<Attribute>());
    op.getResult(0).replaceAllUsesWith(onnx::ConstantOp::create(builder, op.getLoc(), nothing));
    op.erase();
  }
}

// StopGradient has done its work; a Broadcast, reduction or Transpose of dimensions of one element is a Reshape.
void simplifyViews(Block &block) {
  for (Operation &op : llvm::make_early_inc_range(block)) {
    if (auto stop = dyn_cast<onnx::StopGradientOp>(op)) {
      stop.getY().replaceAllUsesWith(stop.getX());
      stop.erase();
    } else if (isa<onnx::BroadcastOp, onnx::TransposeOp>(op) || isReduction(&op)) {
      Value x = op.getOperand(0), y = op.getResult(0);
      if (typeOf(x).getNumElements() != typeOf(y).getNumElements()) continue;
      if (auto transpose = dyn_cast<onnx::TransposeOp>(op);
          transpose && !onnx::keepsOrder(typeOf(x).getShape(), transpose.getPerm()))
        continue;
      OpBuilder builder(&op);
      auto reshape = onnx::ReshapeOp::create(builder, op.getLoc(), y.getType(), x, typeOf(y).getShape());
      place::copy(&op, reshape);
      y.replaceAllUsesWith(reshape.getY());
      op.erase();
    }
  }
}

// Gives each user its own clone of a free op, the last users first so that chains are cloned whole.
void cloneFreeOps(Block &block) {
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block))) {
    if (!isOwnOfUser(&op) || !canJoinKernel(&op)) continue;
    SmallVector<Operation *> users;
    for (Operation *user : op.getUsers())
      if (isClusterOp(user) && !llvm::is_contained(users, user)) users.push_back(user);
    bool hasOthers = llvm::any_of(op.getUsers(), [](Operation *user) { return !isClusterOp(user); });
    for (size_t i = hasOthers ? 0 : 1; i < users.size(); ++i) {
      OpBuilder builder(users[i]);
      Operation *clone = builder.clone(op);
      users[i]->replaceUsesOfWith(op.getResult(0), clone->getResult(0));
    }
  }
}

// A Reshape at the end of a cluster is a view of the cluster's output: users outside get their own.
void moveReshapesOut(ArrayRef<Operation *> ops, SmallVectorImpl<Operation *> &kept) {
  llvm::SmallPtrSet<Operation *, 32> inside(ops.begin(), ops.end());
  for (Operation *op : llvm::reverse(ops)) {
    if (!onnx::isAlias(op)) continue;
    bool isUsedInside = llvm::any_of(op->getUsers(), [&](Operation *user) { return inside.contains(user); });
    bool isUsedOutside = llvm::any_of(op->getUsers(), [&](Operation *user) { return !inside.contains(user); });
    if (!isUsedOutside) continue;
    if (isUsedInside) {
      OpBuilder builder(op);
      builder.setInsertionPointAfter(op);
      Operation *clone = builder.clone(*op);
      op->getResult(0).replaceUsesWithIf(clone->getResult(0),
                                         [&](OpOperand &use) { return !inside.contains(use.getOwner()); });
    } else {
      inside.erase(op);
    }
  }
  for (Operation *op : ops)
    if (inside.contains(op)) kept.push_back(op);
}

class Outliner {
public:
  explicit Outliner(ModuleOp module) : module(module), builder(module.getContext()) {}

  LogicalResult outline(ArrayRef<Operation *> group) {
    SmallVector<Operation *> ops;
    moveReshapesOut(group, ops);
    if (ops.empty()) return success();
    SmallVector<Value> outputs = outputsOfCluster(ops), inputs;
    if (outputs.empty()) return success();
    std::optional<KernelDomain> domain = KernelDomain::of(ops, outputs);
    if (!domain) return ops.back()->emitOpError("a cluster lost its loop nest when its reshapes were moved out");
    llvm::SmallPtrSet<Operation *, 32> inside(ops.begin(), ops.end());
    for (Operation *op : ops)
      for (Value operand : op->getOperands())
        if (!inside.contains(operand.getDefiningOp()) && !llvm::is_contained(inputs, operand))
          inputs.push_back(operand);
    SmallVector<Attribute> scalars;
    plan::KernelOp kernel =
        isFlat(*domain, ops, inputs, outputs) ? buildFlat(ops, inputs, outputs) : build(ops, inputs, outputs, scalars);
    kernel = mergeEqualOps(kernel);
    // Copies of a parameter tied across stages have kernels of their own, merged with what else their ranks compute,
    // and must stay the same bits: products and sums are not fused, which would depend on what is beside them.
    if (isOfUpdate(ops)) kernel->setAttr(roundsEachAttr, builder.getUnitAttr());
    SmallVector<size_t> resultOf = dropEqualResults(kernel);
    kernel = unique(kernel, ops);
    Operation *last = ops.back();
    builder.setInsertionPoint(ops.back()); // its place in the program, if nobody needs it earlier (program_order.h)
    SmallVector<Type> types;
    for (auto [i, output] : llvm::enumerate(outputs))
      if (resultOf[i] == types.size()) types.push_back(output.getType());
    auto launch =
        plan::LaunchOp::create(builder, last->getLoc(), types, inputs, FlatSymbolRefAttr::get(kernel.getSymNameAttr()),
                               /*extent=*/builder.getI64IntegerAttr(1), /*grain=*/builder.getI64IntegerAttr(1),
                               /*inplace=*/builder.getDenseI64ArrayAttr({}), builder.getArrayAttr(scalars));
    place::copy(last, launch);
    for (auto [i, output] : llvm::enumerate(outputs)) output.replaceAllUsesWith(launch.getResults()[resultOf[i]]);
    // Uses inside the group were replaced too, so erase from the end without regard to them.
    for (Operation *op : llvm::reverse(ops)) {
      op->dropAllUses();
      op->erase();
    }
    return success();
  }

private:
  plan::KernelOp emptyKernel(ArrayRef<Operation *> ops, Block *&body) {
    OpBuilder detached(module.getContext());
    auto kernel =
        plan::KernelOp::create(detached, ops.back()->getLoc(), detached.getStringAttr("k"), UnitAttr(), StringAttr());
    body = &kernel.getBody().emplaceBlock();
    return kernel;
  }

  // The ops as they are; ops whose index depends on the device get a scalar argument.
  plan::KernelOp build(ArrayRef<Operation *> ops, ArrayRef<Value> inputs, ArrayRef<Value> outputs,
                       SmallVectorImpl<Attribute> &scalars) {
    Block *body;
    plan::KernelOp kernel = emptyKernel(ops, body);
    IRMapping mapping;
    for (Value input : inputs) mapping.map(input, body->addArgument(input.getType(), input.getLoc()));
    OpBuilder inner(module.getContext());
    inner.setInsertionPointToEnd(body);
    for (Operation *op : ops) {
      Operation *clone = cloneWithoutPlace(inner, op, mapping);
      if (plan::AffineOfCoordinateAttr start = startOnDevice(op)) {
        plan::scalarAttr.set(clone, scalars.size());
        clone->removeAttr("shard_axes"); // the launch says it
        scalars.push_back(start);
      }
    }
    for (size_t i = 0; i < scalars.size(); ++i) body->addArgument(inner.getI64Type(), kernel.getLoc());
    yield(inner, outputs, mapping);
    return kernel;
  }
  void yield(OpBuilder &inner, ArrayRef<Value> outputs, IRMapping &mapping) {
    SmallVector<Value> values;
    for (Value output : outputs) values.push_back(mapping.lookup(output));
    plan::YieldOp::create(inner, builder.getUnknownLoc(), values);
  }

  // Where the device's part of an Iota or RandomUniform starts: null if it is not split.
  plan::AffineOfCoordinateAttr startOnDevice(Operation *op) {
    SmallVector<Attribute> axes;
    SmallVector<int64_t> strides;
    if (auto iota = dyn_cast<onnx::IotaOp>(op)) {
      if (!iota.getShardAxes() || iota.getShardAxes()->empty()) return {};
      axes.push_back(*iota.getShardAxes());
      strides.push_back(typeOf(iota.getY()).getDimSize(iota.getDim()));
    } else if (auto random = dyn_cast<onnx::RandomUniformOp>(op)) {
      if (!random.getShardAxes()) return {};
      ArrayRef<int64_t> local = typeOf(random.getY()).getShape(), global = random.getGlobalShape().value_or(local);
      int64_t stride = 1;
      for (size_t d = local.size(); d-- > 0; stride *= global[d]) {
        auto group = d < random.getShardAxes()->size() ? dyn_cast<ArrayAttr>((*random.getShardAxes())[d]) : ArrayAttr();
        if (!group || group.empty()) continue;
        axes.push_back(group);
        strides.push_back(stride * local[d]);
      }
      if (axes.empty()) return {};
    } else {
      return {};
    }
    return plan::AffineOfCoordinateAttr::get(module.getContext(), 0, builder.getArrayAttr(axes),
                                             builder.getDenseI64ArrayAttr(strides));
  }

  // One factor, and every tensor is the whole row of elements or a single one.
  static bool isFlat(const KernelDomain &domain, ArrayRef<Operation *> ops, ArrayRef<Value> inputs,
                     ArrayRef<Value> outputs) {
    if (domain.sizes.size() != 1 || domain.reduced || !domain.generators.empty()) return false;
    if (llvm::any_of(ops, llvm::IsaPred<onnx::SliceOp>)) return false;
    int64_t size = domain.sizes.front();
    auto fits = [&](Value value) {
      int64_t count = typeOf(value).getNumElements();
      return count == size || count == 1;
    };
    auto steps = [](const LinearForm &form) { return form.strides[0] <= 1 && form.offset == 0; };
    // A result that is only another look at an input would leave the kernel nothing to do for it.
    auto isComputed = [](Value output) { return !isView(output.getDefiningOp()); };
    return llvm::all_of(inputs, fits) && llvm::all_of(outputs, fits) && llvm::all_of(outputs, isComputed) &&
           llvm::all_of(llvm::make_second_range(domain.reads), steps) &&
           llvm::all_of(llvm::make_second_range(domain.writes), steps);
  }

  // The same computation on rows of `flatSize` elements, without views.
  plan::KernelOp buildFlat(ArrayRef<Operation *> ops, ArrayRef<Value> inputs, ArrayRef<Value> outputs) {
    Block *body;
    plan::KernelOp kernel = emptyKernel(ops, body);
    kernel.setFlat(true);
    auto flat = [&](Value value) {
      RankedTensorType type = typeOf(value);
      SmallVector<int64_t> shape;
      if (type.getNumElements() != 1) shape.push_back(flatSize);
      return RankedTensorType::get(shape, type.getElementType());
    };
    IRMapping mapping;
    for (Value input : inputs) mapping.map(input, body->addArgument(flat(input), input.getLoc()));
    OpBuilder inner(module.getContext());
    inner.setInsertionPointToEnd(body);
    for (Operation *op : ops) {
      Value result = op->getResult(0);
      RankedTensorType type = flat(result);
      if (auto constant = dyn_cast<onnx::ConstantOp>(op)) {
        auto splat = cast<SplatElementsAttr>(constant.getValue());
        mapping.map(result, onnx::ConstantOp::create(inner, op->getLoc(), type, splat.resizeSplat(type)));
      } else if (isView(op)) {
        Value source = mapping.lookup(op->getOperand(0));
        if (source.getType() != type)
          source = onnx::BroadcastOp::create(inner, op->getLoc(), type, source, type.getShape(), ArrayRef<int64_t>{});
        mapping.map(result, source);
      } else {
        Operation *clone = cloneWithoutPlace(inner, op, mapping);
        clone->getResult(0).setType(type);
      }
    }
    yield(inner, outputs, mapping);
    return kernel;
  }

  // Equal outputs of one type are written once: the number of the result that each output has.
  static SmallVector<size_t> dropEqualResults(plan::KernelOp kernel) {
    SmallVector<Value> kept;
    SmallVector<size_t> resultOf;
    for (Value value : kernel.getYield().getValues()) {
      size_t found = llvm::find(kept, value) - kept.begin();
      resultOf.push_back(found);
      if (found == kept.size()) kept.push_back(value);
    }
    kernel.getYield().getValuesMutable().assign(kept);
    return resultOf;
  }

  // Merges ops that compute the same, unless the two are looked at along different factors.
  static plan::KernelOp mergeEqualOps(plan::KernelOp kernel) {
    plan::KernelOp merged = kernel.clone();
    IRRewriter rewriter(kernel.getContext());
    DominanceInfo dominance(merged);
    eliminateCommonSubExpressions(rewriter, dominance, merged);
    SmallVector<Operation *> ops;
    for (Operation &op : merged.getBlock().without_terminator()) ops.push_back(&op);
    SmallVector<Value> outputs(merged.getYield().getValues());
    bool isSound = KernelDomain::of(ops, outputs).has_value();
    (isSound ? kernel : merged)->destroy();
    return isSound ? merged : kernel;
  }

  // The kernel with the same text, or this one under a new name. Takes ownership of `kernel`.
  plan::KernelOp unique(plan::KernelOp kernel, ArrayRef<Operation *> ops) {
    std::string text;
    llvm::raw_string_ostream stream(text);
    kernel->print(stream, OpPrintingFlags().useLocalScope().printGenericOpForm());
    auto [entry, isNew] = kernels.try_emplace(text, kernel);
    if (!isNew) {
      kernel->destroy();
      return entry->second;
    }
    std::string description = describe(ops);
    std::string name = "k" + std::to_string(kernels.size() - 1) + "_" + description.substr(0, 40);
    std::replace_if(name.begin(), name.end(), [](char c) { return !llvm::isAlnum(c); }, '_');
    kernel.setSymName(name);
    kernel.setDescription(description);
    module.push_back(kernel);
    return kernel;
  }
  // "add+mul+reducesum": the kinds of arithmetic, each once.
  static std::string describe(ArrayRef<Operation *> ops) {
    SmallVector<std::string> names;
    for (Operation *op : ops) {
      std::string name = op->getName().stripDialect().lower();
      if (isView(op) || onnx::isConstant(op) || llvm::is_contained(names, name)) continue;
      names.push_back(name);
    }
    return names.empty() ? "broadcast" : llvm::join(names, "+");
  }

  ModuleOp module;
  OpBuilder builder;
  llvm::StringMap<plan::KernelOp> kernels;
};

struct FormClusters : impl::FormClustersBase<FormClusters> {
  void runOnOperation() override {
    Outliner outliner(getOperation());
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal()) continue;
      Block &block = function.front();
      eraseEmptyWork(block);
      simplifyViews(block);
      cloneFreeOps(block);
      for (auto &group : ClusterGraph(block).run())
        if (failed(outliner.outline(group))) return signalPassFailure();
      eraseUnused(block); // they have a place, and would pull there what they read
      if (!sortInProgramOrder(block)) {
        function.emitOpError("its clusters wait for each other; this is a defect of form-clusters");
        return signalPassFailure();
      }
    }
  }
  // Views whose users have all taken them into their kernels. Kernels do not stand after what they read yet.
  static void eraseUnused(Block &block) {
    llvm::SetVector<Operation *> work;
    for (Operation &op : block) work.insert(&op);
    while (!work.empty()) {
      Operation *op = work.pop_back_val();
      if (!isOpTriviallyDead(op)) continue;
      for (Value operand : op->getOperands())
        if (Operation *producer = operand.getDefiningOp(); producer && producer->getBlock() == &block)
          work.insert(producer);
      op->erase();
    }
  }
};

} // namespace
} // namespace cleave::codegen
