// Datasets of long sequences of numbers, cut into blocks: inputs are a block, labels the same block shifted by one. No
// sample goes from one file into the next.
#pragma once
#include "runtime/train/data/dataset.h"
#include "runtime/train/data/settings.h"
#include <functional>

namespace cleave::runtime {

// As `data.fill` says, else by a name that is exactly one of those in docs/reference/recipe.md.
Content contentOf(const Field &field, const DataSettings &settings);
// Those of data that is one row of tokens, which the only field that nothing is known of takes. Error: there are more.
Result<std::vector<Content>> contentsOf(const DataSettings &settings, const std::vector<Field> &fields);
// Error: it cannot be filled with this content.
Status checkFill(const Field &field, Content content, const DataSettings &settings);
// The fields that the data does not give, for a person: "{attention_mask: ones}"; "": none.
std::string filledText(const std::vector<Field> &fields, const std::vector<Content> &contents);
// What to write for a field that nothing is known of.
std::string fillAdvice(const std::string &name);

// The numbers [begin, end) of the sequence are a file's.
struct SequenceFile {
  std::string path;
  int64_t begin, end;
};

// `stride` is between the beginnings of neighbouring samples (1: CharDataset).
struct SequenceSettings {
  std::vector<SequenceFile> files; // one behind the other
  int64_t block = 0;
  int64_t stride = 1;
  bool shuffle = true;
  std::vector<Content> contents; // by field
};

// Writes the numbers from `first` on; they are of one file.
using TokensAt = std::function<void(int64_t first, std::span<int64_t> out)>;

// Samples of the first `trainSplit` of all numbers to train on, of the rest, if any, to evaluate on. Errors: fields
// that are not [block] integers, no file with block + 1 numbers in one of both.
Status splitSequences(const SequenceSettings &settings, const std::vector<Field> &fields, const TokensAt &tokensAt,
                      double trainSplit, DataSource &source);
// The block length: `settings.block`, which must be the one of the fields; or, if 0, theirs.
Result<int64_t> blockLength(const DataSettings &settings, const std::vector<Field> &fields);

} // namespace cleave::runtime
