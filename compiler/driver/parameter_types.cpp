#include "compiler/driver/parameter_types.h"
#include "dialects/onnx/Onnx.h"
#include <fmt/format.h>

using namespace mlir;
namespace cleave {
namespace {

// "18 parameters are bfloat16 in the file, such as 'wte.weight'"; empty: none is.
std::string countOf(ModuleOp module, const char *name, llvm::function_ref<bool(Type)> isOfType) {
  std::string first;
  int64_t count = 0;
  for (auto param : module.getOps<onnx::ParamOp>()) {
    auto type = dyn_cast<RankedTensorType>(param.getType());
    if (!param.getTrainable() || !type || !isOfType(type.getElementType())) continue;
    if (count++ == 0) first = param.getSymName().str();
  }
  if (count == 0) return "";
  return count == 1 ? fmt::format("parameter '{}' is {} in the file", first, name)
                    : fmt::format("{} parameters are {} in the file, such as '{}'", count, name, first);
}

} // namespace

std::vector<std::string> warningsOfParameterTypes(ModuleOp module) {
  std::vector<std::string> warnings;
  struct SixteenBits {
    const char *name;
    int parts; // of a number: what is smaller is lost when it is added
    bool (*isType)(Type);
  };
  const SixteenBits halves[] = {{"bfloat16", 256, [](Type type) { return type.isBF16(); }},
                                {"float16", 2048, [](Type type) { return type.isF16(); }}};
  for (const auto &[name, parts, isType] : halves)
    if (std::string count = countOf(module, name, isType); !count.empty())
      warnings.push_back(fmt::format("{}: gradients, optimizer state and updated values are {}, too, whatever "
                                     "`precision` says, as of a PyTorch module of that type. A change below 1/{} of a "
                                     "number is lost; export the model in float32 to keep it",
                                     count, name, parts));
  if (std::string count = countOf(module, "float64", [](Type type) { return type.isF64(); }); !count.empty())
    warnings.push_back(fmt::format("{}: what is computed with them is float64, whatever `precision` says; export the "
                                   "model in float32 to lower it",
                                   count));
  return warnings;
}

} // namespace cleave
