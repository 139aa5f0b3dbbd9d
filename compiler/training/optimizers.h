// Update rules on core ops, one parameter at a time; every formula is that of torch.optim's class of the same name
// (LAMB and Lion, which it lacks: of their papers). Where a parameter is several stacked ones, norms are of each.
//
// State tensors are asked for by name and written back by the rule: `state("exp_avg")` is the old value.
#pragma once
#include "compiler/recipe/recipe.h"
#include "dialects/onnx/formula.h"

namespace cleave::training {

// How a product uses a parameter, as it was exported: which of its dimensions is summed over.
enum class MatrixUse {
  None,         // no product, or an embedding's table
  InputsFirst,  // [in, out], as MatMul has it
  OutputsFirst, // [out, in], as Linear and Conv have it
};

// The values that a rule may use. Parameters of one group have the same numbers in their rule. Scalars are rank 0 and
// float; they depend on the step only and are built once for all parameters.
class OptimizerContext {
public:
  virtual ~OptimizerContext() = default;
  // The learning rate of this step; 1 - base^step, step counted from 1.
  virtual mlir::Value learningRate() = 0;
  virtual mlir::Value oneMinusPower(double base) = 0;
  // Steps done before this one, as a persistent scalar that counts itself.
  virtual mlir::Value stepsBefore() = 0;
  // Those of the training that this one continues, at compile time.
  virtual int64_t stepsDone() = 0;
  // A persistent scalar before this step, one for each `key`, which says what it depends on; `next` makes its new
  // value.
  virtual mlir::Value sharedState(llvm::StringRef key, double fill,
                                  llvm::function_ref<mlir::Value(mlir::Value)> next) = 0;
  // A rank 0 value computed once for all parameters of the group: `build` runs at the first call with `key`.
  virtual mlir::Value shared(llvm::StringRef key, llvm::function_ref<mlir::Value()> build) = 0;
  // The old value of the parameter's state tensor `kind`, filled at the start: of its shape, or of `shape`.
  virtual mlir::Value state(llvm::StringRef kind, double fill) = 0;
  virtual mlir::Value state(llvm::StringRef kind, double fill, llvm::ArrayRef<int64_t> shape) = 0;
  // The same of a mean of gradients or steps, in `state_dtype`, which may be codes with scales of their rows
  // (fp8/quantized_state.h). Means of squares stay in the parameter's type: with a decay of 0.999 a step changes them
  // by less than 16 or 8 bits tell.
  virtual mlir::Value momentum(llvm::StringRef kind) = 0;
  virtual void setState(llvm::StringRef kind, mlir::Value value) = 0;
  // The shape in the model's file, of which the parameter may be a view; behind the number of parameters where several
  // are stacked along dimension 0.
  virtual llvm::ArrayRef<int64_t> exportedShape() = 0;
  virtual bool isStacked() = 0;
  virtual MatrixUse matrixUse() = 0;
};

// The new value of one parameter. `spec`: its group's.
mlir::Value buildUpdate(onnx::Formula f, const recipe::Optimizer &spec, OptimizerContext &context, mlir::Value param,
                        mlir::Value grad);

} // namespace cleave::training
