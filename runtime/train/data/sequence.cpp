#include "runtime/train/data/sequence.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/float_convert.h"
#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>

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

class SequenceDataset : public Dataset {
public:
  SequenceDataset(const SequenceSettings &settings, std::vector<Field> fields, TokenAt tokenAt, int64_t begin,
                  int64_t samples)
      : Dataset(std::move(fields), settings.shuffle), settings(settings), tokenAt(std::move(tokenAt)), begin(begin),
        samples(samples) {}
  int64_t size() const override { return samples; }
  Status fill(size_t field, std::span<const int64_t> indices, std::byte *out) const override {
    const Field &of = fieldList[field];
    const Content content = settings.contents[field];
    int64_t unit = byteSize(of.dtype);
    for (int64_t index : indices)
      for (int64_t i = 0; i < settings.block; ++i, out += unit) {
        int64_t at = begin + index * settings.stride + i;
        int64_t value = content == Content::Tokens       ? tokenAt(at)
                        : content == Content::NextTokens ? tokenAt(at + 1)
                        : content == Content::Positions  ? i
                                                         : content != Content::Zeros;
        if (of.upperBound > 0 && (value < 0 || value >= of.upperBound))
          return inputError(fmt::format("{}: {} {} at position {} is outside of the model's {} ({})", settings.path,
                                        content == Content::Positions ? "number" : "token", value, at, of.upperBound,
                                        of.name));
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
  CLEAVE_ASSIGN_OR_RETURN(source.train, makeSequences(settings, fields, tokenAt, 0, training));
  source.filled = filledText(fields, settings.contents);
  if (training >= total) return Status::ok();
  Result<std::unique_ptr<Dataset>> evaluation = makeSequences(settings, fields, tokenAt, training, total);
  if (!evaluation)
    return inputError(evaluation.status().message() + " (the part that train_split leaves for evaluation)");
  source.evaluation = std::move(*evaluation);
  return Status::ok();
}

} // namespace cleave::runtime
