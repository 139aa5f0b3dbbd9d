// Datasets of one long sequence of numbers, cut into blocks: inputs are a block, labels the same block shifted by one.
#pragma once
#include "runtime/train/data/dataset.h"
#include "runtime/train/data/settings.h"
#include <functional>

namespace cleave::runtime {

// A language model's field, by its name and shape: what stands at a position.
enum class Content {
  Tokens,
  NextTokens, // labels
  Ones,       // attention_mask: this is a token
  Zeros,      // token_type_ids
  Positions,  // position_ids
  Segments,   // segment_ids, document_ids: the number of the sample in its row, from 1
  Mask,       // of [positions, positions]: which ones see each other
};
Content contentOf(const Field &field);

// The content of a language model's fields: "attention_mask" and "position_ids" style inputs are made, the
// rest is tokens. `stride` is between the beginnings of neighbouring samples (1: CharDataset).
struct SequenceSettings {
  std::string path; // for messages
  int64_t block = 0;
  int64_t stride = 1;
  bool shuffle = true;
};

// Number `i` of the sequence.
using TokenAt = std::function<int64_t(int64_t)>;

// Samples within [begin, end) of the sequence. Errors: fields that are not [block] integers, no token input, fewer than
// block + 1 numbers.
Result<std::unique_ptr<Dataset>> makeSequences(const SequenceSettings &settings, const std::vector<Field> &fields,
                                               TokenAt tokenAt, int64_t begin, int64_t end);
// Samples of the first `trainSplit` of the `total` numbers to train on, of the rest, if any, to evaluate on.
Status splitSequences(const SequenceSettings &settings, const std::vector<Field> &fields, const TokenAt &tokenAt,
                      int64_t total, double trainSplit, DataSource &source);
// The block length: `settings.block`, which must be the one of the fields; or, if 0, theirs.
Result<int64_t> blockLength(const DataSettings &settings, const std::vector<Field> &fields);

} // namespace cleave::runtime
