// Arrays of numpy as training data: an .npz archive, where the input begins as one, else two .npy files (the parts of
// an input, input_file.h) in a folder; once as samples of one length, once of several, whose offsets are the second
// file. A set that opens gives every sample that it claims.
#include "runtime/train/data/dataset.h"
#include "test/fuzz/input_file.h"
#include "test/fuzz/target.h"

namespace {

using namespace cleave;

struct Way {
  const char *yaml;
  std::vector<runtime::Field> fields;
};

const std::vector<Way> &ways() {
  static const std::vector<Way> known = {
      {"{kind: arrays, train_split: 0.5}", {{"x", plan::F32, {4}}, {"labels", plan::I64, {}, true}}},
      {"{kind: arrays, train_split: 0.5, lengths: [4], pack: true}",
       {{"x", plan::F32, {4, 2}}, {"segment_ids", plan::I64, {4}}, {"labels", plan::I64, {4}, true, 9, {}, {-100}}}}};
  return known;
}

void readSamples(const runtime::Dataset &data) {
  const int64_t last = data.size() - 1;
  for (size_t field = 0; field < data.fields().size(); ++field) {
    std::vector<std::byte> out(size_t(2 * data.fields()[field].bytes()));
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
    folder.write("arrays/offsets.npy", parts[1]);
  }
  int last = 0;
  for (const Way &way : ways()) {
    auto source = runtime::openData(way.yaml, way.fields, {.path = path});
    if (!source) {
      last = fuzz::refused(source.status());
      continue;
    }
    readSamples(*source->train);
    if (source->evaluation) readSamples(*source->evaluation);
  }
  return last;
}
