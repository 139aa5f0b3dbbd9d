// Files of sequences and records as training data. The input's first byte says how the rest is read: as tokens of a
// type, a row of numpy, characters, CIFAR-10's records, llm.c's tokens, or as the two parts of an input, an .idx of
// Megatron-LM and its .bin.
#include "runtime/train/data/dataset.h"
#include "test/fuzz/input_file.h"
#include "test/fuzz/target.h"

namespace {

using namespace cleave;
using runtime::Field;

struct Way {
  const char *file, *yaml;
  bool isPictures = false, hasIndex = false;
};
constexpr Way ways[] = {{"a.bin", "{kind: tokens, dtype: uint16}"},
                        {"a.bin", "{kind: tokens, dtype: int32, train_split: 0.5}"},
                        {"a.bin", "{kind: tokens, dtype: int64, truncate: 100}"},
                        {"a.npy", "{kind: tokens}"},
                        {"a.txt", "{kind: chars, train_split: 0.9}"},
                        {"a.bin", "{kind: cifar10}", true},
                        {"a.bin", "{kind: tokens, dtype: int32, lengths: [4], separator: 0, train_split: 0.5}"},
                        {"a.npy", "{kind: tokens, lengths: [4], separator: 1, pack: true}"},
                        {"a.bin", "{kind: tokens}"},
                        {"a.bin", "{kind: tokens}", false, true},
                        {"a.bin", "{kind: tokens, lengths: [4]}", false, true}};

std::vector<Field> fieldsOf(const Way &way) {
  if (way.isPictures) return {{"x", plan::F32, {3, 32, 32}}, {"labels", plan::I64, {}, true, 10}};
  return {{"input_ids", plan::I64, {4}, false, 300}, {"labels", plan::I32, {4}, true, 300, {}, {-100}}};
}

void readSamples(const runtime::Dataset &data) {
  const int64_t ends[] = {0, data.size() - 1};
  for (size_t field = 0; field < data.fields().size(); ++field) {
    std::vector<std::byte> out(size_t(2 * data.fields()[field].bytes()));
    Status filled = data.fill(field, ends, out.data());
    if (!filled) fuzz::refused(filled);
  }
}

} // namespace

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static fuzz::InputFolder folder;
  if (size == 0) return -1;
  const Way &way = ways[data[0] % std::size(ways)];
  folder.remove("a.idx");
  if (way.hasIndex) {
    const std::vector<std::string> parts = fuzz::splitParts({data + 1, size - 1}, 2);
    folder.write("a.idx", parts[0]), folder.write(way.file, parts[1]);
  } else {
    folder.write(way.file, fuzz::textOf(data + 1, size - 1));
  }
  auto source = runtime::openData(way.yaml, fieldsOf(way), {.path = folder.path(way.file)});
  if (!source) return fuzz::refused(source.status());
  readSamples(*source->train);
  if (source->evaluation) readSamples(*source->evaluation);
  return 0;
}
