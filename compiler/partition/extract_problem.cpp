// ExtractProblem: the forward operations of @final as the planner's problem. One node an operation; constants and host
// scalars are tensors that every device has.
#include "compiler/partition/chunk_region.h"
#include "compiler/partition/layouts.h"
#include "compiler/partition/partition.h"
#include "compiler/partition/update_memory.h"
#include "compiler/partition/update_work.h"
#include "compiler/training/node_names.h"
#include "dialects/onnx/kinds.h"
#include "dialects/onnx/sample_dim.h"
#include "runtime/plan/master_weights.h"
#include <limits>
#include <llvm/ADT/StringSet.h>

using namespace mlir;

namespace cleave::partition {
namespace {

using planner::Problem;
using planner::TensorKind;

bool readInBackward(Value value) {
  return llvm::any_of(value.getUsers(), [](Operation *user) { return phaseOf(user) == Phase::Backward; });
}

struct Extraction {
  Problem problem;
  DenseMap<Value, int> tensorOf;
  llvm::StringMap<int> parameterOf;
  llvm::StringMap<double> optimizerBytes, masterBytes, meansBytes, updateBytes; // by parameter
  llvm::StringMap<planner::UpdateWork> updates;
  llvm::StringSet<> names;

  DenseMap<Value, int> keptFor; // the tensor that is kept where the backward pass reads the value

  void noteSaved(Value value) {
    planner::Tensor &kept = problem.tensors[keptFor.lookup(value)];
    kept.saved |= kept.kind == TensorKind::Activation && readInBackward(value);
  }
  // An operation scales a tensor of fp8: the planner sees the tensor.
  void passAside(Operation *op, DenseSet<Value> &needsGradient) {
    if (op->getNumOperands() == 0 || op->getNumResults() == 0) return;
    Value from = op->getOperand(0), to = op->getResult(0);
    auto known = tensorOf.find(from);
    if (known == tensorOf.end()) return; // a scale
    const int tensor = known->second;
    tensorOf[to] = tensor;
    if (needsGradient.contains(from)) needsGradient.insert(to);
    auto kept = keptFor.find(from);
    keptFor[to] = kept == keptFor.end() ? tensor : int(kept->second);
    noteSaved(to);
  }

  int addTensor(std::string name, TensorKind kind, Type type) {
    auto ranked = cast<RankedTensorType>(type);
    std::string unique = name;
    for (int number = 2; !names.insert(unique).second; ++number) unique = name + "#" + std::to_string(number);
    planner::Tensor tensor;
    tensor.name = std::move(unique);
    tensor.kind = kind;
    tensor.dims.assign(ranked.getShape().begin(), ranked.getShape().end());
    tensor.elementBytes = onnx::elementBytes(ranked.getElementType());
    problem.tensors.push_back(std::move(tensor));
    return static_cast<int>(problem.tensors.size()) - 1;
  }

  void addArguments(func::FuncOp function) {
    for (BlockArgument argument : function.getArguments()) {
      auto name = onnx::nameAttr.of(function, argument.getArgNumber());
      int id = addTensor(name ? name->str() : "argument" + std::to_string(argument.getArgNumber()),
                         onnx::labelAttr.of(function, argument.getArgNumber())  ? TensorKind::Label
                         : onnx::hostAttr.of(function, argument.getArgNumber()) ? TensorKind::Constant
                                                                                : TensorKind::Input,
                         argument.getType());
      planner::Tensor &tensor = problem.tensors[id];
      const int64_t dim = onnx::hostAttr.of(function, argument.getArgNumber())
                              ? -1
                              : onnx::sampleDim(function, argument.getArgNumber());
      if (dim >= 0 && tensor.dims[size_t(dim)] == problem.samples) tensor.batchDim = dim;
      tensorOf[argument] = id;
    }
  }

  int addParameter(onnx::ParamOp param) {
    auto [entry, fresh] = parameterOf.try_emplace(param.getSymName(), 0);
    if (fresh) {
      entry->second = addTensor(param.getSymName().str(), TensorKind::Parameter, param.getType());
      planner::Tensor &tensor = problem.tensors[entry->second];
      tensor.trainable = param.getTrainable() && param.getRole() == "parameter";
      auto anElement = [&](const llvm::StringMap<double> &bytes) {
        return tensor.elements() > 0 ? bytes.lookup(param.getSymName()) / static_cast<double>(tensor.elements()) : 0;
      };
      tensor.optimizerBytes = anElement(optimizerBytes);
      tensor.masterBytes = anElement(masterBytes);
      tensor.meansBytes = anElement(meansBytes);
      tensor.updateBytes = anElement(updateBytes);
      tensor.update = updates.lookup(param.getSymName());
    }
    return entry->second;
  }
};

int64_t elementsOf(onnx::ParamOp param) { return cast<RankedTensorType>(param.getType()).getNumElements(); }

// Import names an operation's location by its node, and within by its module.
std::string moduleOf(Location location) {
  auto node = location->findInstanceOf<NameLoc>();
  auto module = node ? dyn_cast<NameLoc>(node.getChildLoc()) : NameLoc();
  return module ? module.getName().str() : "";
}

} // namespace

FailureOr<Problem> extractProblem(ModuleOp module, const ProblemOptions &options) {
  SymbolTable symbols(module);
  auto function = symbols.lookup<func::FuncOp>(options.function);
  if (!function) return module.emitError("has no function @") << options.function, failure();
  Extraction state;
  Problem &problem = state.problem;
  problem.name = options.name;
  problem.batch = options.batch;
  problem.samples = options.samples;
  problem.precision = options.precision;
  problem.meetsAtUpdate = options.meetsAtUpdate;
  problem.writesAttention = options.writesAttention;
  if (auto node = onnx::lossMeetsAtAttr.of(module)) problem.lossMeetsAt = node->str();
  for (auto param : module.getOps<onnx::ParamOp>())
    if (param.getRole() == "optimizer_state" && param.getOf()) {
      state.optimizerBytes[*param.getOf()] += bytesOf(param.getType());
      if (param.getSymName() == runtime::masterName(param.getOf()->str()))
        state.masterBytes[*param.getOf()] += bytesOf(param.getType());
      auto of = symbols.lookup<onnx::ParamOp>(*param.getOf());
      if (of && elementsOf(param) < elementsOf(of)) state.meansBytes[*param.getOf()] += bytesOf(param.getType());
    }
  state.updateBytes = updateMemory(function, symbols);
  state.updates = updateWork(function, symbols);
  state.addArguments(function);

  // A value needs a gradient if a trainable parameter reaches it.
  DenseSet<Value> needsGradient;
  llvm::DenseMap<Operation *, std::string> nameOf;
  for (training::NamedOperation &named : training::forwardOperations(function))
    nameOf[named.op] = std::move(named.name);
  for (Operation &op : function.getBody().front()) {
    if (auto read = dyn_cast<onnx::ReadOp>(op)) {
      auto param = symbols.lookup<onnx::ParamOp>(read.getParam());
      if (!param)
        return op.emitOpError("reads a persistent tensor that does not exist: @") << read.getParam(), failure();
      if (phaseOf(&op) != Phase::Forward && !readInBackward(read.getValue())) continue;
      if (param.getRole() != "parameter" && param.getRole() != "running_statistic") continue;
      int id = state.addParameter(param);
      state.tensorOf[read.getValue()] = id;
      if (problem.tensors[id].trainable) needsGradient.insert(read.getValue());
      continue;
    }
    if (phaseOf(&op) != Phase::Forward) continue;
    if (onnx::fp8ScalingAttr.isOn(&op)) {
      state.passAside(&op, needsGradient);
      continue;
    }
    if (onnx::isConstant(&op)) {
      auto location = op.getLoc()->findInstanceOf<NameLoc>();
      state.tensorOf[op.getResult(0)] = state.addTensor(location ? location.getName().str() : "constant",
                                                        TensorKind::Constant, op.getResult(0).getType());
      continue;
    }
    auto rules = dyn_cast<onnx::FactorRuleOpInterface>(op);
    if (!rules) {
      if (isa<onnx::WriteOp, func::ReturnOp>(op)) continue;
      return op.emitOpError("has no factor rule: it cannot be split, not even over one device"), failure();
    }
    planner::Node node;
    node.name = nameOf[&op];
    node.op = op.getName().stripDialect().str();
    node.module = moduleOf(op.getLoc());
    node.rule = rules.getFactorRule();
    if (auto cost = dyn_cast<onnx::CostOpInterface>(op)) {
      node.flops = cost.getFlops();
      node.kind = cost.getKind();
    }
    node.cheap = !node.kind.isHeavy();
    node.stopsGradient = isa<onnx::StopGradientOp>(op) || !isa<onnx::GradientOpInterface>(op);
    int gradients = 0;
    for (Value operand : op.getOperands()) {
      auto known = state.tensorOf.find(operand);
      if (known == state.tensorOf.end())
        return op.emitOpError("is forward work but reads a value that is not (from another phase)"), failure();
      node.operands.push_back(known->second);
      gradients += needsGradient.contains(operand);
    }
    if (node.stopsGradient) gradients = 0;
    node.backwardFlops = node.kind.isHeavy() ? gradients * node.flops : (gradients ? node.flops : 0);
    for (Value result : op.getResults()) {
      int id = state.addTensor(node.name, TensorKind::Activation, result.getType());
      // A wider copy of a value is made again from it (RematerializeCheap): what is kept is the narrow one.
      state.keptFor[result] = onnx::isWideningCast(&op) ? node.operands[0] : id;
      state.noteSaved(result);
      state.tensorOf[result] = id;
      node.results.push_back(id);
      if (gradients) needsGradient.insert(result);
    }
    problem.nodes.push_back(std::move(node));
  }
  // A device with fewer samples than chunks cuts along the sequence, where it can.
  Block &block = function.getBody().front();
  const std::vector<ChunkRegion> regions = chunkRegions(block, 2);
  problem.chunksSamples = !regions.empty() && chunkRegions(block, std::numeric_limits<int64_t>::max() / 2).empty();
  for (const ChunkRegion &region : regions)
    for (Operation *op : region.members)
      for (Value y : op->getResults()) {
        auto known = state.tensorOf.find(y);
        if (known == state.tensorOf.end() || !region.dims.contains(y)) continue;
        auto isMember = [&](Operation *user) { return region.members.contains(user); };
        problem.tensors[known->second].chunked |= llvm::all_of(y.getUsers(), isMember);
      }
  return std::move(problem);
}

} // namespace cleave::partition
