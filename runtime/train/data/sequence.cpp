#include "runtime/train/data/sequence.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/float_convert.h"
#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <numeric>

namespace cleave::runtime {

Content contentOf(const Field &field, const DataSettings &settings) {
  static const std::map<std::string, Content> known = {
      {"input_ids", Content::Tokens},       {"attention_mask", Content::Ones},      {"token_type_ids", Content::Zeros},
      {"position_ids", Content::Positions}, {"cache_position", Content::Positions}, {"segment_ids", Content::Segments},
      {"document_ids", Content::Segments},  {"seq_idx", Content::Segments}};
  if (auto told = settings.fill.find(field.name); told != settings.fill.end()) return told->second;
  if (field.label) return Content::NextTokens;
  auto found = known.find(field.name);
  if (found == known.end()) return Content::Given;
  return found->second == Content::Ones && field.lengthDims.size() == 2 ? Content::Mask : found->second;
}

Result<std::vector<Content>> contentsOf(const DataSettings &settings, const std::vector<Field> &fields) {
  std::vector<Content> contents;
  for (const Field &field : fields) {
    contents.push_back(contentOf(field, settings));
    if (settings.lengths.empty()) CLEAVE_RETURN_IF_ERROR(checkFill(field, contents.back(), settings));
  }
  auto unknown = std::ranges::find(contents, Content::Given);
  if (unknown == contents.end()) return contents;
  const std::string &name = fields[static_cast<size_t>(unknown - contents.begin())].name;
  if (std::ranges::count(contents, Content::Tokens) > 0 || std::ranges::count(contents, Content::Given) > 1)
    return inputError(fmt::format("data of kind '{}' is one row of tokens, and does not say what input '{}' takes: {}",
                                  settings.kind, name, fillAdvice(name)));
  *unknown = Content::Tokens;
  return contents;
}

Status checkFill(const Field &field, Content content, const DataSettings &settings) {
  const bool isMask = content == Content::Mask, isRagged = !settings.lengths.empty();
  const size_t dims = isMask ? 2 : 1;
  const int64_t length = field.lengthDims.empty() ? 0 : field.shape[field.lengthDims.front()];
  if (isRagged ? field.lengthDims.size() == dims && field.elements() == (isMask ? length * length : length) : !isMask)
    return Status::ok();
  return inputError(fmt::format(
      "input '{}' is [{}] of a sample: `data` fills {}", field.name, fmt::join(field.shape, ", "),
      isMask ? "a mask of [positions, positions], of data.lengths" : "one number for each position, of data.lengths"));
}

std::string filledText(const std::vector<Field> &fields, const std::vector<Content> &contents) {
  std::vector<std::string> filled;
  for (size_t i = 0; i < fields.size(); ++i)
    for (const auto &[word, content] : contentWords)
      if (content == contents[i] && content != Content::Tokens)
        filled.push_back(fmt::format("{}: {}", fields[i].name, word));
  return filled.empty() ? "" : fmt::format("{{{}}}", fmt::join(filled, ", "));
}

std::string fillAdvice(const std::string &name) {
  std::vector<const char *> words;
  for (const auto &[word, content] : contentWords) words.push_back(word);
  return fmt::format("write `fill: {{{}: WORD}}` into the recipe's `data`, where WORD is one of {}", name,
                     fmt::join(words, ", "));
}

namespace {

// A file's samples, or those of its part that trains or evaluates.
struct SequencePart {
  SequenceFile file;
  int64_t begin;  // of its first sample
  int64_t before; // samples of the parts before it
};

class SequenceDataset : public Dataset {
public:
  SequenceDataset(const SequenceSettings &settings, std::vector<Field> fields, TokensAt tokensAt,
                  std::vector<SequencePart> parts, int64_t samples)
      : Dataset(std::move(fields), settings.shuffle), settings(settings), tokensAt(std::move(tokensAt)),
        parts(std::move(parts)), samples(samples) {}
  int64_t size() const override { return samples; }
  Status fill(size_t field, std::span<const int64_t> indices, std::byte *out) const override {
    const Field &of = fieldList[field];
    const Content content = settings.contents[field];
    const int64_t unit = byteSize(of.dtype);
    const bool isToken = content == Content::Tokens || content == Content::NextTokens;
    std::vector<int64_t> values(static_cast<size_t>(settings.block));
    if (content == Content::Positions)
      std::iota(values.begin(), values.end(), 0);
    else if (!isToken)
      std::ranges::fill(values, content != Content::Zeros);
    for (int64_t index : indices) {
      const SequencePart &part = *std::prev(std::ranges::upper_bound(parts, index, {}, &SequencePart::before));
      const int64_t first =
          part.begin + (index - part.before) * settings.stride + (content == Content::NextTokens ? 1 : 0);
      if (isToken) tokensAt(first, values);
      for (int64_t i = 0; i < settings.block; ++i, out += unit) {
        const int64_t value = values[static_cast<size_t>(i)];
        if (of.upperBound > 0 && (value < 0 || value >= of.upperBound))
          return inputError(fmt::format("{}: {} {} at position {} is outside of the model's {} ({})", part.file.path,
                                        content == Content::Positions ? "number" : "token", value,
                                        isToken ? first + i - part.file.begin : i, of.upperBound, of.name));
        std::memcpy(out, &value, static_cast<size_t>(unit)); // little-endian
      }
    }
    return Status::ok();
  }

private:
  SequenceSettings settings;
  TokensAt tokensAt;
  std::vector<SequencePart> parts;
  int64_t samples;
};

// Samples within [begin, end) of the sequence.
Result<std::unique_ptr<Dataset>> makeSequences(const SequenceSettings &settings, const std::vector<Field> &fields,
                                               const TokensAt &tokensAt, int64_t begin, int64_t end) {
  std::vector<SequencePart> parts;
  int64_t samples = 0, most = 0;
  std::string longest = settings.files.empty() ? "data" : settings.files.front().path;
  for (const SequenceFile &file : settings.files) {
    const int64_t from = std::max(begin, file.begin), to = std::min(end, file.end),
                  room = to - from - settings.block - 1;
    if (to - from > most) most = to - from, longest = file.path;
    if (room < 0) continue;
    parts.push_back({file, from, samples});
    samples += room / settings.stride + 1;
  }
  if (samples == 0)
    return inputError(
        fmt::format("{}: {} symbols are too few for one block of {} and its labels", longest, most, settings.block));
  return std::unique_ptr<Dataset>(
      std::make_unique<SequenceDataset>(settings, fields, tokensAt, std::move(parts), samples));
}

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

Status splitSequences(const SequenceSettings &settings, const std::vector<Field> &fields, const TokensAt &tokensAt,
                      double trainSplit, DataSource &source) {
  const int64_t total = settings.files.empty() ? 0 : settings.files.back().end;
  auto training = static_cast<int64_t>(trainSplit * static_cast<double>(total));
  CLEAVE_ASSIGN_OR_RETURN(source.train, makeSequences(settings, fields, tokensAt, 0, training));
  source.filled = filledText(fields, settings.contents);
  if (training >= total) return Status::ok();
  Result<std::unique_ptr<Dataset>> evaluation = makeSequences(settings, fields, tokensAt, training, total);
  if (!evaluation)
    return inputError(evaluation.status().message() + " (the part that train_split leaves for evaluation)");
  source.evaluation = std::move(*evaluation);
  return Status::ok();
}

} // namespace cleave::runtime
