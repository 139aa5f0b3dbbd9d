// Models: taken, from import to normalize, or refused with a word.
#include "compiler/driver/pass_list.h"
#include "compiler/import/import.h"
#include "compiler/normalize/normalize.h"
#include "dialects/pass_manager.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "onnx/onnx_pb.h"
#include "test/fuzz/input_context.h"
#include "test/fuzz/input_file.h"
#include "test/fuzz/model_words.h"
#include "test/fuzz/target.h"

namespace {

using namespace cleave;

constexpr int64_t size = 4; // of every symbolic dimension

// Every symbolic dimension of the inputs; one without a name has that of its input (import.h).
std::map<std::string, int64_t> sizesOf(mlir::ModuleOp module) {
  std::map<std::string, int64_t> sizes;
  auto model = module.lookupSymbol<mlir::func::FuncOp>("model");
  for (unsigned index = 0; index < model.getNumArguments(); ++index) {
    auto names = model.getArgAttrOfType<mlir::ArrayAttr>(index, "onnx.dims");
    auto input = model.getArgAttrOfType<mlir::StringAttr>(index, "onnx.name");
    for (auto [dim, name] : llvm::enumerate(names ? names.getValue() : llvm::ArrayRef<mlir::Attribute>())) {
      const std::string told = mlir::cast<mlir::StringAttr>(name).str();
      sizes[!told.empty() ? told : (input ? input.str() : "") + "." + std::to_string(dim)] = size;
    }
  }
  return sizes;
}

} // namespace

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  mlir::MLIRContext &context = fuzz::contextOfInput();
  std::string said;
  mlir::ScopedDiagnosticHandler collect(&context, [&](mlir::Diagnostic &diagnostic) {
    said += diagnostic.str();
    return mlir::success();
  });
  auto module = import_::importModel(context, fuzz::fileOf({reinterpret_cast<const char *>(data), size}));
  if (mlir::succeeded(module)) {
    mlir::PassManager passes(&context);
    addNormalizePasses(passes, {.dims = sizesOf(**module)});
    if (mlir::succeeded(configure(passes)) && mlir::succeeded(passes.run(**module))) return 0;
  }
  fuzz::require(!said.empty(), "refused without a word");
  return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t maxSize, unsigned seed) {
  onnx::ModelProto model;
  return fuzz::mutateMessage(model, fuzz::modelChanges(), data, size, maxSize, seed);
}
