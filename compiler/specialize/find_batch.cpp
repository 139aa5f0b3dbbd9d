#include "compiler/specialize/find_batch.h"
#include "dialects/onnx/Onnx.h"
#include "mlir/IR/BuiltinTypes.h"
#include <llvm/ADT/STLExtras.h>

using namespace mlir;
namespace cleave {
namespace {

RankedTensorType typeOf(func::FuncOp model, unsigned input) {
  auto type = dyn_cast<RankedTensorType>(model.getArgument(input).getType());
  return type && type.getRank() > 0 ? type : RankedTensorType();
}

std::string symbolOf(func::FuncOp model, unsigned input, int64_t dim) {
  const std::vector<std::string> symbols = onnx::dimsAttr.of(model, input);
  return dim < static_cast<int64_t>(symbols.size()) ? symbols[static_cast<size_t>(dim)] : "";
}

// By input: the first of its dimensions that `counts`.
std::vector<int64_t> places(func::FuncOp model, llvm::function_ref<bool(unsigned, int64_t)> counts) {
  std::vector<int64_t> dims(model.getNumArguments(), -1);
  for (unsigned input = 0; input < model.getNumArguments(); ++input)
    if (RankedTensorType type = typeOf(model, input))
      for (int64_t dim = 0; dim < type.getRank() && dims[input] < 0; ++dim)
        if (counts(input, dim)) dims[input] = dim;
  return dims;
}

// One for each symbol that the recipe binds; those that lead an input first.
std::vector<Batch> bySymbols(func::FuncOp model, const recipe::Recipe &recipe) {
  std::vector<Batch> found;
  auto add = [&](unsigned input, int64_t dim) {
    std::string symbol = symbolOf(model, input, dim);
    auto bound = recipe.dims.find(symbol);
    if (symbol.empty() || bound == recipe.dims.end()) return;
    if (llvm::any_of(found, [&](const Batch &batch) { return batch.symbol == symbol; })) return;
    auto counts = [&](unsigned other, int64_t at) { return symbolOf(model, other, at) == symbol; };
    found.push_back({symbol, bound->second, 1, places(model, counts)});
  };
  int64_t ranks = 0;
  for (unsigned input = 0; input < model.getNumArguments(); ++input)
    if (RankedTensorType type = typeOf(model, input)) ranks = std::max(ranks, type.getRank());
  for (int64_t dim = 0; dim < ranks; ++dim)
    for (unsigned input = 0; input < model.getNumArguments(); ++input) add(input, dim);
  return found;
}

// The number that the first input has in front, or the first that is not 1; and, where the recipe asks for another one
// that an input has elsewhere, that.
std::vector<Batch> bySizes(func::FuncOp model, const recipe::Recipe &recipe) {
  std::vector<Batch> found;
  auto wanted = recipe.dims.find("batch");
  auto add = [&](int64_t size, bool anywhere) {
    auto counts = [&](unsigned input, int64_t dim) {
      return (anywhere || dim == 0) && typeOf(model, input).getDimSize(dim) == size;
    };
    found.push_back({"", wanted == recipe.dims.end() ? size : wanted->second, size, places(model, counts)});
  };
  int64_t leading = 0;
  bool isElsewhere = false;
  for (unsigned input = 0; input < model.getNumArguments(); ++input)
    if (RankedTensorType type = typeOf(model, input)) {
      if (leading <= 1 && !type.isDynamicDim(0)) leading = type.getDimSize(0);
      isElsewhere = isElsewhere || (wanted != recipe.dims.end() && llvm::is_contained(type.getShape(), wanted->second));
    }
  if (leading > 0) add(leading, false);
  if (isElsewhere && wanted->second != leading) add(wanted->second, true);
  return found;
}

} // namespace

Batch findBatch(func::FuncOp model, const recipe::Recipe &recipe, llvm::function_ref<bool(const Batch &)> areApart) {
  std::vector<Batch> found = bySymbols(model, recipe);
  auto isCalled = [](const Batch &batch) { return StringRef(batch.symbol).lower() == "batch"; };
  auto hasInName = [](const Batch &batch) { return StringRef(batch.symbol).contains_insensitive("batch"); };
  if (auto named = llvm::find_if(found, isCalled); named != found.end()) return *named;
  if (auto named = llvm::find_if(found, hasInName); named != found.end()) return *named;
  if (found.empty()) found = bySizes(model, recipe);
  if (found.empty()) return {"", 1, 1, std::vector<int64_t>(model.getNumArguments(), -1)};
  if (found.size() > 1)
    if (auto apart = llvm::find_if(found, areApart); apart != found.end()) return *apart;
  return found.front();
}

std::string describeBatch(func::FuncOp model, const Batch &batch) {
  std::string text;
  for (unsigned input = 0; input < model.getNumArguments(); ++input) {
    if (!typeOf(model, input) || batch.dims[input] == 0) continue;
    auto name = onnx::nameAttr.of(model, input);
    std::string called = name ? "'" + name->str() + "'" : "input " + std::to_string(input);
    text += (text.empty() ? "" : "; ") + called;
    text += batch.dims[input] < 0 ? " has no samples: all read the same values, which are fed once a step"
                                  : " has its samples along dimension " + std::to_string(batch.dims[input]);
  }
  return text;
}

} // namespace cleave
