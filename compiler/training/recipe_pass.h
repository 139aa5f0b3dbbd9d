// Base of module passes that follow the recipe: it is given by the pipeline as a struct, or as YAML text by cleave-opt.
#pragma once
#include "compiler/recipe/recipe.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Pass/Pass.h"

namespace cleave::training {

// "{loss: {kind: mse}}" or the same without the outer braces, which the option parser takes away.
inline Result<recipe::Recipe> parseRecipeOption(const std::string &text) {
  bool braced = !text.empty() && text.front() == '{' && text.back() == '}';
  return recipe::parseRecipeText(braced || text.empty() ? text : "{" + text + "}");
}

template <typename Derived> class RecipePass : public mlir::PassWrapper<Derived, mlir::OperationPass<mlir::ModuleOp>> {
  using Base = mlir::PassWrapper<Derived, mlir::OperationPass<mlir::ModuleOp>>;

public:
  RecipePass() = default;
  explicit RecipePass(recipe::Recipe recipe) : recipe(std::move(recipe)), given(true) {}
  RecipePass(const RecipePass &other) : Base(other), recipe(other.recipe), given(other.given) {}

  mlir::LogicalResult initialize(mlir::MLIRContext *context) override {
    if (given) return mlir::success();
    Result<recipe::Recipe> parsed = parseRecipeOption(text);
    if (!parsed) return mlir::emitError(mlir::UnknownLoc::get(context)) << parsed.status().message();
    recipe = std::move(*parsed);
    return mlir::success();
  }

protected:
  recipe::Recipe recipe;

private:
  bool given = false;
  mlir::Pass::Option<std::string> text{*this, "recipe", llvm::cl::desc("the recipe, as YAML text")};
};

} // namespace cleave::training
