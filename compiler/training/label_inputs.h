// What losses compare with, as arguments of @model.
//
//   LabelInputs inputs(model, recipe);
//   Result<Value> t = inputs.add(f, loss.labels, {8, 64}, place, builder.getI64Type());   // [8, 64]
#pragma once
#include "compiler/recipe/recipe.h"
#include "dialects/onnx/formula.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "runtime/base/sharding/samples.h"
#include "llvm/ADT/StringMap.h"

namespace cleave::training {

class LabelInputs {
public:
  LabelInputs(mlir::func::FuncOp model, const recipe::Recipe &recipe) : model(model), recipe(recipe) {}

  // Appends the argument, unless another loss has, and gives it the shape that the loss needs, in which the samples lie
  // at `place`. A given shape may order the same elements otherwise ([batch * 24] for [batch, 24]); a named dimension
  // other than the batch has the value the recipe binds. `fallback`: the element type of labels without a `dtype`.
  // Error: a shape that does not fit, a name that the model or another loss has for something else.
  Result<mlir::Value> add(onnx::Formula f, const recipe::Labels &labels, llvm::ArrayRef<int64_t> needed,
                          std::optional<dist::SamplePlace> place, mlir::Type fallback);

  // The same for labels whose shape follows from the recipe alone: the argument as it is, samples first.
  Result<mlir::Value> add(const recipe::Labels &labels, llvm::ArrayRef<int64_t> shape, mlir::Type fallback);
  Result<llvm::SmallVector<int64_t>> givenShape(const recipe::Labels &labels);

private:
  struct Shape {
    llvm::SmallVector<int64_t> sizes;
    int64_t sampleDim = 0;
  };
  Shape ownShape(llvm::ArrayRef<int64_t> needed, std::optional<dist::SamplePlace> place);
  Result<Shape> givenShape(const recipe::Labels &labels, int64_t samples);
  Result<mlir::Value> addArgument(const recipe::Labels &labels, const Shape &shape, mlir::Type element);

  mlir::func::FuncOp model;
  const recipe::Recipe &recipe;
  llvm::StringMap<mlir::Value> added;
};

} // namespace cleave::training
