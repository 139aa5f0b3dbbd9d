// Arrays of numpy as training data: an .npz archive, where the input begins as one, else two .npy files (the parts of
// an input, input_file.h) in a folder. A set that opens gives every sample that it claims.
#include "runtime/data/dataset.h"
#include "test/fuzz/input_file.h"
#include "test/fuzz/target.h"

namespace {

using namespace cleave;

const std::vector<runtime::Field> &inputs() {
  static const std::vector<runtime::Field> fields = {{"x", plan::F32, {4}}, {"labels", plan::I64, {}, true}};
  return fields;
}

void readSamples(const runtime::Dataset &data) {
  const int64_t last = data.size() - 1;
  for (size_t field = 0; field < inputs().size(); ++field) {
    std::vector<std::byte> out(size_t(2 * inputs()[field].bytes()));
    const int64_t ends[] = {0, last};
    Status filled = data.fill(field, ends, out.data());
    if (!filled) fuzz::refused(filled);
  }
}

} // namespace

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static fuzz::InputFolder folder;
  const std::string bytes = fuzz::textOf(data, size);
  std::string path = folder.path("arrays/");
  if (bytes.starts_with("PK")) {
    folder.write("arrays.npz", bytes);
    path = folder.path("arrays.npz");
  } else {
    const std::vector<std::string> parts = fuzz::splitParts({data, size}, 2);
    folder.write("arrays/x.npy", parts[0]);
    folder.write("arrays/labels.npy", parts[1]);
  }
  auto source = runtime::openData("{kind: arrays, train_split: 0.5}", inputs(), {.path = path});
  if (!source) return fuzz::refused(source.status());
  readSamples(*source->train);
  if (source->evaluation) readSamples(*source->evaluation);
  return 0;
}
