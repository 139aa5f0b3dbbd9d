// A step function while the training phase builds it: results that have names or are gradients, ops that belong to a
// phase.
//
//   SmallVector<StepResult> results = stepResults(function);        // loss_sum, loss_weight, gradients ...
//   PhaseBuilder builder(function, Phase::Update);                  // inserts before the return; marks what it inserts
//   results.push_back({"grad_norm", {}, norm});
//   setStepResults(function, results);
#pragma once
#include "dialects/onnx/Onnx.h"
#include "dialects/place/Place.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringMap.h"
#include <optional>

namespace cleave::training {

// A result with a name, or the gradient of a parameter.
struct StepResult {
  std::string name;
  mlir::FlatSymbolRefAttr gradientOf;
  mlir::Value value;
};
llvm::SmallVector<StepResult> stepResults(mlir::func::FuncOp function);
void setStepResults(mlir::func::FuncOp function, llvm::ArrayRef<StepResult> results);
// Null if there is none of that name.
mlir::Value namedResult(llvm::ArrayRef<StepResult> results, llvm::StringRef name);
// The result loss_sum; null with an error where AttachLoss has not run.
mlir::Value lossSum(mlir::func::FuncOp function, llvm::ArrayRef<StepResult> results);

// Of several losses: the results of each, "loss.NAME", and what its mean is divided by, "loss_weight.NAME", which only
// @evaluate keeps.
inline constexpr llvm::StringLiteral lossPrefix = "loss.", lossWeightPrefix = "loss_weight.";

// The tensor in which BuildCount adds up a count of the whole batch that the loss divides by, before its microbatches
// read it. Until then it names one microbatch's part, a result of @model.
std::string countTensor(size_t number);
bool isLossCountTensor(llvm::StringRef name);

// Parameters that `value` is made of through real numbers all along: those that a gradient could pass to, even where
// it is 0 because it passes what is flat (Round, Floor).
llvm::DenseSet<mlir::StringAttr> parametersOf(mlir::Value value);

// The function, or null with an error that says which pass must run before.
mlir::func::FuncOp findFunction(mlir::ModuleOp module, llvm::StringRef name, llvm::StringRef madeBy);

// The function's argument that the host fills with `kind` ("learning_rate", "one_minus_power" of `base` to the steps
// after `since`), appended when it is not there yet.
mlir::Value hostScalar(mlir::func::FuncOp function, llvm::StringRef kind, std::optional<double> base = std::nullopt,
                       int64_t since = 0);

using place::Phase;
// "tensor<8x4xf32>", for messages.
std::string textOf(mlir::Type type);

// Inserts before the function's return and gives every op it inserts that has no phase its own.
class PhaseBuilder : public mlir::OpBuilder {
public:
  PhaseBuilder(mlir::func::FuncOp function, Phase phase);
  PhaseBuilder(const PhaseBuilder &) = delete;
  PhaseBuilder &operator=(const PhaseBuilder &) = delete;

private:
  place::Stamp stamp;
};

// In a training that goes on from a snapshot, the steps after which the state of each parameter began that has some
// there; none in another training.
std::optional<llvm::StringMap<int64_t>> stateSince(mlir::ModuleOp module);

// A persistent tensor that a pass adds before the function: `fill` in every element. `of`: the parameter that it
// belongs to.
onnx::ParamOp addPersistent(mlir::func::FuncOp function, mlir::SymbolTable &symbols, llvm::StringRef name,
                            mlir::Type type, llvm::StringRef role, double fill, mlir::FlatSymbolRefAttr of = {});

// The same as a tensor of the optimizer, with the parameter's first values: `type` in place of its own.
onnx::ParamOp addCopy(onnx::ParamOp param, mlir::SymbolTable &symbols, const std::string &name, mlir::Type type);

// Erases pure ops without uses, last first, in one walk.
void eraseDeadOps(mlir::func::FuncOp function);

} // namespace cleave::training
