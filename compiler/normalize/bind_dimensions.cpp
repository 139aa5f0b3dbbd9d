#include "compiler/normalize/normalize.h"
#include "dialects/onnx/Onnx.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include <llvm/ADT/StringExtras.h>
#include <set>

using namespace mlir;
namespace cleave::normalize {
#define GEN_PASS_DEF_BINDDIMENSIONS
#include "compiler/normalize/Passes.h.inc"

namespace {

std::map<std::string, int64_t> parseDims(ArrayRef<std::string> entries) {
  std::map<std::string, int64_t> dims;
  for (StringRef entry : entries) {
    auto [name, text] = entry.rsplit(':');
    int64_t size = -1;
    if (text.getAsInteger(10, size)) size = -1;
    dims[name.str()] = size;
  }
  return dims;
}

struct BindDimensions : impl::BindDimensionsBase<BindDimensions> {
  using Base::Base;
  void runOnOperation() override {
    auto function = getOperation().lookupSymbol<func::FuncOp>("model");
    if (!function) {
      getOperation().emitError("has no function @model");
      return signalPassFailure();
    }
    const auto sizes = parseDims(dims);
    std::string unbound, bad, unknown;
    std::set<std::string> named, known;
    for (BlockArgument argument : function.getArguments()) {
      auto type = dyn_cast<RankedTensorType>(argument.getType());
      auto name = onnx::nameAttr.of(function, argument.getArgNumber());
      std::string input = name ? name->str() : std::to_string(argument.getArgNumber());
      if (!type) {
        function.emitError() << "input '" << input << "' has no rank: export the model with the ranks of its inputs";
        return signalPassFailure();
      }
      const std::vector<std::string> symbols = onnx::dimsAttr.of(function, argument.getArgNumber());
      SmallVector<int64_t> shape(type.getShape());
      for (auto [d, size] : llvm::enumerate(shape)) {
        if (!ShapedType::isDynamic(size)) continue;
        const bool isNamed = d < symbols.size() && !symbols[d].empty();
        const std::string key = isNamed ? symbols[d] : input + "." + std::to_string(d);
        known.insert(key);
        auto found = sizes.find(key);
        if (found == sizes.end()) {
          if (named.insert(key).second) unbound += (unbound.empty() ? "'" : ", '") + key + "'";
        } else if (found->second < 1) {
          if (named.insert(key).second) bad += (bad.empty() ? "'" : ", '") + key + "'";
        } else {
          size = found->second;
        }
      }
      argument.setType(type.clone(shape));
    }
    for (const auto &[name, size] : sizes)
      if (!known.count(name)) unknown += (unknown.empty() ? "'" : ", '") + name + "'";
    if (!unknown.empty()) {
      InFlightDiagnostic error = function.emitError() << "`dims` names " << unknown << ", which ";
      if (known.empty())
        error << "no input has: they have no symbolic dimensions";
      else
        error << "no input has; they have '" << llvm::join(known, "', '") << "'";
    }
    if (!bad.empty()) function.emitError() << "dimensions must be positive: " << bad;
    if (!unbound.empty())
      function.emitError() << "symbolic dimensions without a size: " << unbound << "; give them in the recipe's `dims`";
    if (!bad.empty() || !unbound.empty() || !unknown.empty()) return signalPassFailure();
    function.setType(
        FunctionType::get(&getContext(), function.getBody().getArgumentTypes(), function.getResultTypes()));
  }
};

} // namespace
} // namespace cleave::normalize
