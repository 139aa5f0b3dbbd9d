#include "runtime/train/data/sequence.h"
#include "runtime/plan/dtype.h"
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::runtime {

Content contentOf(const Field &field) {
  auto has = [&](const char *word) { return field.name.find(word) != std::string::npos; };
  if (field.label) return Content::NextTokens;
  if (field.lengthDims.size() == 2) return Content::Mask;
  if (has("attention_mask")) return Content::Ones;
  if (has("token_type")) return Content::Zeros;
  if (has("position")) return Content::Positions;
  if (has("segment") || has("document") || has("seq_idx")) return Content::Segments;
  return Content::Tokens;
}

namespace {

class SequenceDataset : public Dataset {
public:
  SequenceDataset(const SequenceSettings &settings, std::vector<Field> fields, TokenAt tokenAt, int64_t begin,
                  int64_t samples)
      : Dataset(std::move(fields), settings.shuffle), settings(settings), tokenAt(std::move(tokenAt)), begin(begin),
        samples(samples) {}
  int64_t size() const override { return samples; }
  Status fill(size_t field, std::span<const int64_t> indices, std::byte *out) const override {
    const Field &of = fieldList[field];
    Content content = contentOf(of);
    int64_t unit = byteSize(of.dtype);
    for (int64_t index : indices)
      for (int64_t i = 0; i < settings.block; ++i, out += unit) {
        int64_t at = begin + index * settings.stride + i;
        int64_t value = content == Content::Tokens       ? tokenAt(at)
                        : content == Content::NextTokens ? tokenAt(at + 1)
                        : content == Content::Positions  ? i
                                                         : content != Content::Zeros;
        if (of.upperBound > 0 && (value < 0 || value >= of.upperBound) &&
            (content == Content::Tokens || content == Content::NextTokens))
          return inputError(fmt::format("{}: token {} at position {} is outside of the model's {} ({})", settings.path,
                                        value, at, of.upperBound, of.name));
        std::memcpy(out, &value, static_cast<size_t>(unit)); // little-endian
      }
    return Status::ok();
  }

private:
  SequenceSettings settings;
  TokenAt tokenAt;
  int64_t begin, samples;
};

} // namespace

Result<int64_t> blockLength(const DataSettings &settings, const std::vector<Field> &fields) {
  int64_t block = settings.block;
  for (const Field &field : fields) {
    bool integers = field.dtype == plan::I64 || field.dtype == plan::I32;
    const bool isRow = std::ranges::count_if(field.shape, [](int64_t size) { return size != 1; }) <= 1;
    if (!integers || field.shape.empty() || (field.withoutSamples ? !isRow : field.shape.size() != 1))
      return inputError(
          fmt::format("data of kind '{}' fills integer inputs of shape [batch, block]; '{}' is {} [{}] a sample",
                      settings.kind, field.name, name(field.dtype), fmt::join(field.shape, ", ")));
    if (block == 0) block = field.elements();
    if (field.elements() != block)
      return inputError(
          fmt::format("data: block is {}, but input '{}' takes {} a sample; set block, or the model's dims", block,
                      field.name, field.elements()));
  }
  return block;
}

Result<std::unique_ptr<Dataset>> makeSequences(const SequenceSettings &settings, const std::vector<Field> &fields,
                                               TokenAt tokenAt, int64_t begin, int64_t end) {
  int64_t room = end - begin - settings.block - 1;
  if (room < 0)
    return inputError(fmt::format("{}: {} symbols are too few for one block of {} and its labels", settings.path,
                                  end - begin, settings.block));
  std::unique_ptr<Dataset> dataset =
      std::make_unique<SequenceDataset>(settings, fields, std::move(tokenAt), begin, room / settings.stride + 1);
  return dataset;
}

Status splitSequences(const SequenceSettings &settings, const std::vector<Field> &fields, const TokenAt &tokenAt,
                      int64_t total, double trainSplit, DataSource &source) {
  auto training = static_cast<int64_t>(trainSplit * static_cast<double>(total));
  Result<std::unique_ptr<Dataset>> train = makeSequences(settings, fields, tokenAt, 0, training);
  if (!train) return train.status();
  source.train = std::move(*train);
  if (training >= total) return Status::ok();
  Result<std::unique_ptr<Dataset>> evaluation = makeSequences(settings, fields, tokenAt, training, total);
  if (!evaluation)
    return inputError(evaluation.status().message() + " (the part that train_split leaves for evaluation)");
  source.evaluation = std::move(*evaluation);
  return Status::ok();
}

} // namespace cleave::runtime
