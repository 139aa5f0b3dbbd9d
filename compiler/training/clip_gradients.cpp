#include "compiler/training/parameter_names.h"
#include "compiler/training/step_function.h"
#include "compiler/training/training.h"
#include "dialects/onnx/formula.h"

using namespace mlir;
using cleave::onnx::Formula;

namespace cleave::training {
#define GEN_PASS_DEF_CLIPGRADIENTS
#include "compiler/training/Passes.h.inc"

namespace {

class ClipGradients : public impl::ClipGradientsBase<ClipGradients> {
public:
  using Base::Base;
  void runOnOperation() override {
    func::FuncOp final = findFunction(getOperation(), "final", "AccumulateGradients");
    if (!final) return signalPassFailure();
    PhaseBuilder builder(final, Phase::Update);
    Formula f(builder, NameLoc::get(builder.getStringAttr("grad_norm")));
    SymbolTable symbols(getOperation());
    std::vector<recipe::ParameterPatterns> told, clipped;
    for (const recipe::NormGroup &group : recipe.gradNorms) told.emplace_back(group.match);
    for (const recipe::ClipGroup &group : recipe.clipNorms) clipped.emplace_back(group.match);
    std::vector<SmallVector<Value>> squaresTold(told.size()), squaresClipped(clipped.size() + 1); // last: all others
    Type f32 = builder.getF32Type();
    SmallVector<StepResult> results = stepResults(final), finished;
    SmallVector<Value> squares;
    SmallVector<size_t> groupOf; // of clipped ones, by gradient
    for (const StepResult &result : results) {
      if (!result.gradientOf) {
        finished.push_back(result);
        continue;
      }
      Formula at(builder, result.value.getLoc());
      Value grad = at.cast(result.value, f32);
      squares.push_back(at.total(at.mul(grad, grad)));
      if (told.empty() && clipped.empty()) continue;
      auto param = symbols.lookup<onnx::ParamOp>(result.gradientOf.getValue());
      const recipe::ParameterNames names = namesOf(param->getAttrDictionary());
      for (auto [group, own] : llvm::zip_equal(told, squaresTold))
        if (group.match(names)) own.push_back(squares.back());
      std::optional<size_t> group = groupFor(param, clipped);
      if (!group) return signalPassFailure();
      groupOf.push_back(*group);
      squaresClipped[*group].push_back(squares.back());
    }
    if (squares.empty()) {
      final.emitError() << "has no gradients; BuildBackward must run before";
      return signalPassFailure();
    }
    Value norm = f.make<onnx::SqrtOp>(f.sum(squares));
    finished.push_back({"grad_norm", {}, norm});
    for (auto [group, own] : llvm::zip_equal(recipe.gradNorms, squaresTold)) {
      if (own.empty()) {
        final.emitError() << recipe.at("grad_norms") << ": no parameter of the group '" << group.name << "' trains";
        return signalPassFailure();
      }
      finished.push_back({"grad_norm." + group.name, {}, f.make<onnx::SqrtOp>(f.sum(own))});
    }
    // What gradients are multiplied by, of each group and of all others; null: nothing.
    SmallVector<Value> factors;
    for (auto [group, own] : llvm::zip(recipe.clipNorms, squaresClipped))
      factors.push_back(own.empty() ? Value() : factorOf(f, f.make<onnx::SqrtOp>(f.sum(own)), group.norm));
    const bool hasOthers = recipe.clipNorm && !squaresClipped.back().empty();
    Value others = clipped.empty() || !hasOthers ? norm : f.make<onnx::SqrtOp>(f.sum(squaresClipped.back()));
    factors.push_back(hasOthers || (recipe.clipNorm && clipped.empty()) ? factorOf(f, others, *recipe.clipNorm)
                                                                        : Value());
    size_t number = 0;
    for (StepResult &result : results) {
      if (!result.gradientOf) continue;
      Value factor = clipped.empty() ? factors.back() : factors[groupOf[number++]];
      if (factor) {
        Formula at(builder, result.value.getLoc());
        auto type = onnx::tensorType(result.value);
        result.value = at.mul(result.value, at.spread(at.cast(factor, type.getElementType()), type.getShape()));
      }
      if (recipe.clipValue) {
        Formula at(builder, result.value.getLoc());
        Value above = at.make<onnx::MaxOp>(result.value, at.like(result.value, -*recipe.clipValue));
        result.value = at.make<onnx::MinOp>(above, at.like(above, *recipe.clipValue));
      }
      finished.push_back(result);
    }
    setStepResults(final, finished);
  }

private:
  static Value factorOf(Formula f, Value norm, double most) {
    Value ratio = f.div(f.like(norm, most), f.add(norm, f.like(norm, 1e-6)));
    return f.make<onnx::MinOp>(ratio, f.like(norm, 1));
  }

  // The first group of clip_norms that has the parameter, or their number. None with an error: pieces of one tensor are
  // in several.
  static std::optional<size_t> groupFor(onnx::ParamOp param, ArrayRef<recipe::ParameterPatterns> groups) {
    std::optional<size_t> found;
    for (DictionaryAttr piece : piecesOf(param)) {
      const recipe::ParameterNames names = namesOf(piece);
      const size_t own =
          llvm::find_if(groups, [&](const auto &group) { return group.match(names).has_value(); }) - groups.begin();
      if (found && *found != own) {
        param.emitError() << "clip_norms names some of " << param.getSymName()
                          << ", which are one tensor here: name all of them, or none";
        return std::nullopt;
      }
      found = own;
    }
    return found;
  }
};

} // namespace
} // namespace cleave::training
