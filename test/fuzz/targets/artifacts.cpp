// onnxruntime-training's folders: eval_model.onnx, training_model.onnx, optimizer_model.onnx and the checkpoint (the
// parts of an input, input_file.h). Opened or refused with a word.
#include "compiler/import/artifacts.h"
#include "compiler/import/weights/parameters.h"
#include "test/fuzz/input_file.h"
#include "test/fuzz/model_words.h"
#include "test/fuzz/target.h"

namespace {

using namespace cleave;
constexpr const char *files[] = {"eval_model.onnx", "training_model.onnx", "optimizer_model.onnx", "checkpoint"};
constexpr size_t checkpoint = 3;

} // namespace

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static fuzz::InputFolder folder;
  const std::vector<std::string> parts = fuzz::splitParts({data, size}, std::size(files));
  for (size_t i = 0; i < parts.size(); ++i) folder.write(files[i], parts[i]);
  auto model = import_::openArtifacts(folder.path());
  return model ? 0 : fuzz::refused(model.status());
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t maxSize, unsigned seed) {
  fuzz::Chance chance(uint64_t{seed});
  std::vector<std::string> parts = fuzz::splitParts({data, size}, std::size(files));
  const size_t at = chance.below(parts.size());
  std::string &part = parts[at];
  const size_t before = part.size();
  part.resize(before + 1024);
  auto *bytes = reinterpret_cast<uint8_t *>(part.data());
  onnx::ModelProto model;
  part.resize(at == checkpoint ? LLVMFuzzerMutate(bytes, before, part.size())
                               : fuzz::mutateMessage(model, fuzz::modelChanges(), bytes, before, part.size(), seed));
  const std::string joined = fuzz::joinParts(parts);
  if (joined.size() > maxSize) return LLVMFuzzerMutate(data, size, maxSize);
  std::copy(joined.begin(), joined.end(), data);
  return joined.size();
}
