#include "runtime/plan/dtype.h"
#include "runtime/train/data/array.h"
#include "runtime/train/data/kinds.h"
#include "runtime/train/data/ragged.h"
#include "runtime/train/data/sequence.h"
#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <utility>

namespace cleave::runtime {
namespace {

// Wider numbers than they are read as show: all but every second, or every fourth, are 0.
Status checkWidth(const Array &array, const std::string &path) {
  constexpr int64_t looked = 4096, fewest = 64;
  const int64_t count = std::min(looked, array.shape[0]), unit = byteSize(array.dtype);
  if (count < fewest) return Status::ok();
  for (int64_t step : {8 / unit, 4 / unit}) {
    bool isWider = step > 1, hasTokens = false;
    for (int64_t i = 0; i < count && isWider; ++i) {
      const std::byte *at = array.bytes.data() + i * unit;
      const bool isZero = std::all_of(at, at + unit, [](std::byte byte) { return byte == std::byte(0); });
      hasTokens |= i % step == 0 && !isZero;
      isWider = i % step == 0 || isZero;
    }
    if (isWider && hasTokens)
      return inputError(fmt::format("{}: read as {}, only every {} token is not 0: are they int{} (dtype: int{})?",
                                    path, name(array.dtype), step == 2 ? "second" : "fourth", step * unit * 8,
                                    step * unit * 8));
  }
  return Status::ok();
}

Result<Array> readFile(const DataSettings &settings) {
  CLEAVE_ASSIGN_OR_RETURN(std::shared_ptr<MappedFile> file, MappedFile::open(settings.path));
  std::string_view bytes = file->bytes();
  if (settings.path.ends_with(".npy")) {
    Result<Array> array = parseNpy(bytes, file, settings.path);
    if (array && (array->shape.size() != 1 || isFloat(array->dtype)))
      return inputError(fmt::format("{}: tokens are one row of integers, this is {}", settings.path, describe(*array)));
    return array;
  }
  Array array;
  array.dtype = settings.dtype == "uint32"  ? plan::U32
                : settings.dtype == "int32" ? plan::I32
                : settings.dtype == "int64" ? plan::I64
                                            : plan::U16;
  array.shape = {static_cast<int64_t>(bytes.size()) / byteSize(array.dtype)};
  array.bytes = {reinterpret_cast<const std::byte *>(bytes.data()), bytes.size()};
  array.storage = file;
  CLEAVE_RETURN_IF_ERROR(checkWidth(array, settings.path));
  return array;
}

// As many as the recipe wants.
Result<Array> readTokens(const DataSettings &settings) {
  Result<Array> array = readFile(settings);
  if (array && settings.truncate > 0) array->shape[0] = std::min(array->shape[0], settings.truncate);
  return array;
}

// A sample is what stands up to a separator, with it, and its labels are the tokens behind. One that is longer than the
// longest length becomes several.
Result<DataSource> openDocuments(const DataSettings &settings, const std::vector<Field> &fields,
                                 const std::vector<Content> &contents) {
  if (!settings.separator)
    return inputError("data.lengths of tokens needs data.separator, the token that ends a sample");
  CLEAVE_ASSIGN_OR_RETURN(Array array, readTokens(settings));
  const int64_t total = array.shape[0], longest = settings.lengths.back();
  std::vector<SamplePart> samples;
  auto add = [&](int64_t begin, int64_t end) { // the last token is a label only
    for (; begin + 1 < end; begin += longest) samples.push_back({begin, std::min(longest, end - 1 - begin)});
  };
  constexpr int64_t atOnce = 65536;
  std::vector<int64_t> tokens(atOnce);
  int64_t begin = 0;
  for (int64_t first = 0; first < total; first += atOnce) {
    const int64_t count = std::min(atOnce, total - first);
    CLEAVE_RETURN_IF_ERROR(
        convertElements(array, first, count, plan::I64, reinterpret_cast<std::byte *>(tokens.data())));
    for (int64_t i = 0; i < count; ++i)
      if (tokens[static_cast<size_t>(i)] == *settings.separator)
        add(std::exchange(begin, first + i + 1), first + i + 1);
  }
  if (begin == 0)
    return inputError(
        fmt::format("{}: the separator {} is not among its {} tokens", settings.path, *settings.separator, total));
  add(begin, total);
  std::vector<RaggedSource> sources;
  for (size_t i = 0; i < fields.size(); ++i) {
    const Field &field = fields[i];
    RaggedSource &source = sources.emplace_back(RaggedSource{.content = contents[i]});
    if (source.content == Content::NextTokens) source.shift = 1;
    if (source.content == Content::Tokens || source.content == Content::NextTokens) source.array = array;
    if (source.array && (field.lengthDims.size() != 1 || field.elements() != field.shape[field.lengthDims.front()]))
      return inputError(
          fmt::format("data of kind 'tokens' fills inputs of one number a position; '{}' is [{}] a sample", field.name,
                      fmt::join(field.shape, ", ")));
  }
  return makeRagged(settings, fields, std::move(sources), std::move(samples));
}

} // namespace

Result<DataSource> openTokens(const DataSettings &settings, const std::vector<Field> &fields) {
  CLEAVE_ASSIGN_OR_RETURN(std::vector<Content> contents, contentsOf(settings, fields));
  if (!settings.lengths.empty()) return openDocuments(settings, fields, contents);
  CLEAVE_ASSIGN_OR_RETURN(int64_t block, blockLength(settings, fields));
  CLEAVE_ASSIGN_OR_RETURN(Array array, readTokens(settings));
  TokenAt tokenAt = [tokens = array](int64_t i) {
    int64_t value = 0;
    // The type was checked when the file was opened.
    (void)convertElements(tokens, i, 1, plan::I64, reinterpret_cast<std::byte *>(&value)).isOk();
    return value;
  };
  SequenceSettings sequences{settings.path, block, block, settings.shuffle, contents};
  DataSource source;
  CLEAVE_RETURN_IF_ERROR(splitSequences(sequences, fields, tokenAt, array.shape[0], settings.trainSplit, source));
  return source;
}

} // namespace cleave::runtime
