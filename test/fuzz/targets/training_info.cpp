// Models that say how they train: a recipe takes it from them, or they are refused with a word.
#include "compiler/import/import.h"
#include "onnx/onnx_pb.h"
#include "test/fuzz/input_context.h"
#include "test/fuzz/input_file.h"
#include "test/fuzz/model_words.h"
#include "test/fuzz/target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  using namespace cleave;
  const std::string path = fuzz::fileOf({reinterpret_cast<const char *>(data), size});
  recipe::Recipe recipe;
  std::vector<std::string> notes;
  if (Status whole = import_::completeRecipe(path, recipe, notes); !whole) return fuzz::refused(whole);
  mlir::MLIRContext &context = fuzz::contextOfInput();
  std::string said;
  mlir::ScopedDiagnosticHandler collect(&context, [&](mlir::Diagnostic &diagnostic) {
    said += diagnostic.str();
    return mlir::success();
  });
  auto module = import_::importModel(context, path, import_::ImportOptions::of(recipe));
  fuzz::require(mlir::succeeded(module) || !said.empty(), "refused without a word");
  return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t maxSize, unsigned seed) {
  onnx::ModelProto model;
  return cleave::fuzz::mutateMessage(model, cleave::fuzz::modelChanges(), data, size, maxSize, seed);
}
