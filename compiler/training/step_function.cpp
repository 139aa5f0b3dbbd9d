#include "compiler/training/step_function.h"
#include "dialects/onnx/formula.h"
#include "runtime/plan/master_weights.h"

using namespace mlir;
namespace cleave::training {

SmallVector<StepResult> stepResults(func::FuncOp function) {
  SmallVector<StepResult> results;
  for (auto [i, value] : llvm::enumerate(function.front().getTerminator()->getOperands())) {
    auto name = onnx::nameAttr.ofResult(function, i);
    results.push_back({name ? name->str() : "", onnx::gradientOfAttr.ofResult(function, i), value});
  }
  return results;
}

void setStepResults(func::FuncOp function, ArrayRef<StepResult> results) {
  Builder builder(function.getContext());
  SmallVector<Value> values;
  SmallVector<Type> types;
  SmallVector<DictionaryAttr> attributes;
  for (const StepResult &result : results) {
    values.push_back(result.value);
    types.push_back(result.value.getType());
    attributes.push_back(builder.getDictionaryAttr(
        result.gradientOf ? onnx::gradientOfAttr.named(builder.getContext(), result.gradientOf)
                          : onnx::nameAttr.named(builder.getContext(), result.name)));
  }
  function.front().getTerminator()->setOperands(values);
  function.setType(builder.getFunctionType(function.getArgumentTypes(), types));
  function.setAllResultAttrs(attributes);
}

Value namedResult(ArrayRef<StepResult> results, StringRef name) {
  for (const StepResult &result : results)
    if (result.name == name) return result.value;
  return {};
}

Value lossSum(func::FuncOp function, ArrayRef<StepResult> results) {
  Value sum = namedResult(results, "loss_sum");
  if (!sum) function.emitError() << "has no result loss_sum; AttachLoss must run before";
  return sum;
}

constexpr StringLiteral countPrefix = "accumulator.loss_count.";
std::string countTensor(size_t number) { return (countPrefix + Twine(number)).str(); }
bool isLossCountTensor(StringRef name) { return name.starts_with(countPrefix); }

DenseSet<StringAttr> parametersOf(Value value) {
  DenseSet<StringAttr> found;
  SmallVector<Value> pending{value};
  DenseSet<Operation *> seen;
  while (!pending.empty()) {
    Operation *op = pending.pop_back_val().getDefiningOp();
    if (!op || isa<onnx::StopGradientOp>(op) || !onnx::isFloatTensor(op->getResult(0)) || !seen.insert(op).second)
      continue;
    if (auto read = dyn_cast<onnx::ReadOp>(op)) found.insert(read.getParamAttr().getAttr());
    llvm::append_range(pending, op->getOperands());
  }
  return found;
}

func::FuncOp findFunction(ModuleOp module, StringRef name, StringRef madeBy) {
  auto function = module.lookupSymbol<func::FuncOp>(name);
  if (!function || function.isExternal()) {
    module.emitError() << "there is no func @" << name << " with a body; " << madeBy << " makes it";
    return {};
  }
  return function;
}

Value hostScalar(func::FuncOp function, StringRef kind, std::optional<double> base, int64_t since) {
  Builder builder(function.getContext());
  for (BlockArgument argument : function.getArguments()) {
    auto host = onnx::hostAttr.of(function, argument.getArgNumber());
    auto power = onnx::baseAttr.of(function, argument.getArgNumber());
    if (host && host == kind && (!base || (power && *power == *base)) &&
        onnx::sinceAttr.of(function, argument.getArgNumber()).value_or(0) == since)
      return argument;
  }
  unsigned index = function.getNumArguments();
  // Appending at the end of an existing argument list cannot fail.
  (void)function.insertArgument(index, RankedTensorType::get({}, builder.getF32Type()), DictionaryAttr(),
                                function.getLoc());
  onnx::hostAttr.setArg(function, index, kind);
  if (base) onnx::baseAttr.setArg(function, index, *base);
  if (since > 0) onnx::sinceAttr.setArg(function, index, since);
  return function.getArgument(index);
}

std::string textOf(Type type) {
  std::string text;
  llvm::raw_string_ostream(text) << type;
  return text;
}

PhaseBuilder::PhaseBuilder(func::FuncOp function, Phase phase)
    : OpBuilder(function.getContext()), stamp(phase, place::Stamp::Unplaced) {
  setListener(&stamp);
  setInsertionPoint(function.front().getTerminator());
}

namespace {

// Of a tensor of the optimizer.
int64_t tensorSince(ModuleOp module, StringRef tensor) {
  auto known = onnx::resumedStateAttr.of(module);
  if (!known) return 0;
  if (auto since = known.getAs<IntegerAttr>(tensor)) return since.getInt();
  return *onnx::stepsBeforeAttr.of(module);
}

void noteSince(onnx::ParamOp state) {
  const int64_t since = tensorSince(state->getParentOfType<ModuleOp>(), state.getSymName());
  onnx::sinceAttr.remove(state); // of what it is a copy of
  if (since > 0) onnx::sinceAttr.set(state, since);
}

} // namespace

std::optional<llvm::StringMap<int64_t>> stateSince(ModuleOp module) {
  auto known = onnx::resumedStateAttr.of(module);
  if (!known) return std::nullopt;
  llvm::StringMap<int64_t> since;
  for (NamedAttribute tensor : known) { // of whatever kind of state
    auto [kind, of] = tensor.getName().getValue().split('/');
    if (kind != runtime::averageKind && tensor.getName() != runtime::masterName(of.str()))
      since[of] = cast<IntegerAttr>(tensor.getValue()).getInt();
  }
  return since;
}

onnx::ParamOp addPersistent(func::FuncOp function, SymbolTable &symbols, StringRef name, Type type, StringRef role,
                            double fill, FlatSymbolRefAttr of) {
  OpBuilder builder(function);
  auto param = onnx::ParamOp::create(builder, function.getLoc(), name, type, role, /*trainable=*/false, StringAttr(),
                                     IntegerAttr(), IntegerAttr(), TypeAttr(), builder.getF64FloatAttr(fill),
                                     DictionaryAttr(), DenseI64ArrayAttr(), ArrayAttr(), StringAttr(), of, Attribute());
  symbols.insert(param);
  if (role == "optimizer_state") noteSince(param);
  return param;
}

onnx::ParamOp addCopy(onnx::ParamOp param, SymbolTable &symbols, const std::string &name, Type type) {
  OpBuilder builder(param->getContext());
  builder.setInsertionPointAfter(param);
  auto made = cast<onnx::ParamOp>(builder.clone(*param));
  made.setSymName(name);
  made.setType(type);
  made.setRole("optimizer_state");
  made.setTrainable(false);
  made.setOfAttr(FlatSymbolRefAttr::get(param.getSymNameAttr()));
  made.removeAliasesAttr();
  symbols.insert(made);
  noteSince(made);
  return made;
}

void eraseDeadOps(func::FuncOp function) {
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(function.front())))
    if (isOpTriviallyDead(&op)) op.erase();
}

} // namespace cleave::training
