#include "compiler/recipe/parts.h"
#include "runtime/base/folder.h"
#include "runtime/base/url.h"
#include <algorithm>
#include <filesystem>
#include <fmt/format.h>

namespace fs = std::filesystem;

namespace cleave::recipe {
namespace {

// A file, what a glob matches, or what the names of a .bin and an .idx begin with.
bool isThere(const std::string &path) {
  std::error_code failure;
  return fs::exists(path, failure) || fs::exists(path + ".idx", failure) || !runtime::matchesOf(path).empty();
}

} // namespace

std::string absolutePath(const std::string &path, const std::string &recipeFile) {
  if (path.empty() || runtime::isUrl(path) || fs::path(path).is_absolute()) return path;
  std::error_code failure;
  fs::path here = fs::absolute(path, failure).lexically_normal();
  if (recipeFile.empty()) return here.string();
  fs::path beside = (fs::absolute(recipeFile, failure).parent_path() / path).lexically_normal();
  return isThere(beside) || !isThere(here) ? beside.string() : here.string();
}

void findLengthDims(MapReader &reader, Recipe &recipe) {
  Data &data = *recipe.data;
  const int64_t longest = data.lengths.back();
  for (const std::string &name : data.lengthDims)
    if (auto dim = recipe.dims.find(name); dim == recipe.dims.end() || dim->second != longest)
      reader.fail("data", fmt::format("'dims.{}' must be {}, the longest of 'data.lengths'", name, longest));
  if (!data.lengthDims.empty()) return;
  for (const auto &[name, size] : recipe.dims)
    if (size == longest && name.find("batch") == std::string::npos) data.lengthDims.push_back(name);
  if (data.lengthDims.empty())
    reader.fail("data", fmt::format("'data.lengths' ends with {}, and no dimension of 'dims' is that long: give the "
                                    "model's dimension of positions that size, such as dims: {{seq: {}}}",
                                    longest, longest));
}

namespace {

// The lengths of a sequence, ascending, and what belongs to them.
void readLengths(MapReader &reader, Data &data) {
  reader.integers("lengths", data.lengths);
  std::ranges::sort(data.lengths);
  data.lengths.erase(std::unique(data.lengths.begin(), data.lengths.end()), data.lengths.end());
  reader.texts("length_dims", data.lengthDims);
  reader.boolean("pack", data.pack);
  if (reader.has("causal")) reader.boolean("causal", data.causal.emplace());
  if (reader.has("separator")) reader.integer("separator", data.separator.emplace(), {.least = 0});
  MapReader pad = reader.map("pad");
  for (const std::string &key : pad.keys()) pad.number(key, data.pad[key]);
  if (data.lengths.empty()) {
    for (const char *key : {"length_dims", "pack", "causal", "separator", "pad"})
      if (reader.has(key)) reader.fail(key, fmt::format("'data.{}' is for samples of several 'lengths'", key));
    return;
  }
  if (data.lengths.front() < 1) reader.fail("lengths", "'data.lengths' must be 1 or more each");
  if (data.kind != DataKind::Arrays && data.kind != DataKind::Tokens && data.kind != DataKind::Synthetic)
    reader.fail("lengths", fmt::format("'data.lengths' is for arrays, tokens and synthetic data, this is {}",
                                       toString(data.kind)));
  if (data.block > 0) reader.fail("block", "'data.block' is one length, and 'data.lengths' are several: leave it out");
  if (data.separator && data.kind != DataKind::Tokens)
    reader.fail("separator", fmt::format("'data.separator' is for tokens, this is {}", toString(data.kind)));
}

// What inputs take that the data does not have (runtime/train/data/settings.h has the words, too).
void readFill(MapReader &reader, Data &data) {
  static const std::vector<std::string> words = {"tokens", "ones", "zeros", "positions", "segments", "mask"};
  MapReader fill = reader.map("fill");
  for (const std::string &key : fill.keys()) {
    fill.text(key, data.fill[key]);
    if (std::ranges::find(words, data.fill[key]) == words.end()) fill.unknownWord(key, data.fill[key], words);
  }
  if (!data.fill.empty() && data.kind != DataKind::Arrays && data.kind != DataKind::Tokens &&
      data.kind != DataKind::Chars)
    reader.fail("fill", fmt::format("'data.fill' is for arrays, tokens and chars, this is {}", toString(data.kind)));
}

// A path, or a list of them.
void readPaths(MapReader &reader, const std::string &recipeFile, Data &data) {
  if (reader.has("path") && reader.node("path").IsSequence())
    reader.texts("path", data.paths);
  else
    reader.text("path", data.paths.emplace_back());
  std::erase(data.paths, "");
  if (data.paths.empty() && data.kind != DataKind::Synthetic)
    reader.fail("path", fmt::format("'data' of kind {} needs a 'path'", toString(data.kind)));
  if (data.paths.size() > 1 && (data.kind == DataKind::Images || data.kind == DataKind::Cifar10))
    reader.fail("path", fmt::format("'data' of kind {} is in one folder, and 'path' lists {}", toString(data.kind),
                                    data.paths.size()));
  for (std::string &path : data.paths) path = absolutePath(path, recipeFile);
}

// Two numbers, the first not above the second.
void readRange(MapReader &reader, const char *key, std::vector<double> &value, Range range) {
  reader.numbers(key, value, range);
  if (value.size() != 2 || value[0] > value[1])
    reader.fail(key, fmt::format("'{}' must list two numbers, the lower one first", reader.dotted(key)));
}

void readAugment(MapReader reader, Data &data) {
  runtime::Augment &augment = data.augment.emplace();
  if (reader.has("random_resized_crop")) {
    MapReader crop = reader.map("random_resized_crop");
    runtime::ResizedCrop &read = augment.resizedCrop.emplace();
    readRange(crop, "scale", read.scale, {.above = 0, .most = 1});
    readRange(crop, "ratio", read.ratio, {.above = 0});
    crop.finish();
    if (data.size > 0)
      reader.fail("random_resized_crop", "'data.size' is of images that are cut out in the middle: leave it out");
  }
  reader.integer("crop_padding", augment.cropPadding, {.least = 1, .most = 1024});
  if (augment.resizedCrop && augment.cropPadding > 0)
    reader.fail("crop_padding", "'crop_padding' and 'random_resized_crop' both cut the image out: leave one out");
  reader.number("flip", augment.flip, {.least = 0, .most = 1});
  MapReader jitter = reader.map("color_jitter");
  for (auto [key, value] : {std::pair("brightness", &augment.brightness), std::pair("contrast", &augment.contrast),
                            std::pair("saturation", &augment.saturation)})
    jitter.number(key, *value, {.least = 0});
  jitter.number("hue", augment.hue, {.least = 0, .most = 0.5});
  jitter.finish();
  reader.finish();
}

// What is changed about images at random.
void readRandomness(MapReader &reader, Data &data) {
  const bool isImages = data.kind == DataKind::Images || data.kind == DataKind::Cifar10;
  if (reader.has("augment")) {
    if (!isImages && (data.kind != DataKind::Arrays || !data.lengths.empty()))
      reader.fail("augment", fmt::format("'data.augment' is for images, cifar10 and arrays of images, this is {}",
                                         toString(data.kind)));
    readAugment(reader.map("augment"), data);
  }
  reader.number("mixup", data.mixup, {.above = 0});
  reader.number("cutmix", data.cutmix, {.above = 0});
  for (const char *key : {"mixup", "cutmix"})
    if (reader.has(key) && ((!isImages && data.kind != DataKind::Arrays) || !data.lengths.empty()))
      reader.fail(key, fmt::format("'data.{}' is for images, cifar10, and arrays of one length, this is {}", key,
                                   toString(data.kind)));
}

void readMap(Source &source, MapReader &reader, const std::string &recipeFile, Data &data);

// A source of a mixture: a `data` map of its own, but for what counts for all of them.
void readSource(Source &source, MapReader reader, const std::string &recipeFile, Data &data) {
  reader.number("weight", data.weight, {.least = 1e-6, .most = 1e6});
  readMap(source, reader, recipeFile, data);
  for (const char *key : {"shuffle", "last_batch", "lengths", "mixup", "cutmix"})
    if (reader.has(key)) reader.fail(key, fmt::format("'{}' is not for one source of a mixture", key));
  if (data.kind != DataKind::Tokens && data.kind != DataKind::Arrays && data.kind != DataKind::Cifar10 &&
      data.kind != DataKind::Synthetic)
    reader.fail("kind", fmt::format("a source of a mixture is tokens, arrays, cifar10 or synthetic, not {}{}",
                                    toString(data.kind),
                                    data.kind == DataKind::Mixture
                                        ? ""
                                        : ", whose numbers of characters or classes would be each source's own"));
  reader.finish();
}

void readMixture(Source &source, MapReader &reader, const std::string &recipeFile, Data &data) {
  const YAML::Node sources = reader.node("sources");
  if (!sources.IsDefined() || !sources.IsSequence() || sources.size() == 0)
    reader.fail("sources", "'data' of kind mixture needs 'sources', a list of maps such as {kind: tokens, path: a.bin, "
                           "weight: 0.7}");
  for (const auto &entry : sources)
    readSource(source, MapReader(source, reader.dotted("sources"), entry), recipeFile, data.sources.emplace_back());
  reader.boolean("shuffle", data.shuffle);
}

void readMap(Source &source, MapReader &reader, const std::string &recipeFile, Data &data) {
  if (!reader.has("kind"))
    reader.fail("kind", "'data' needs a 'kind': arrays, tokens, chars, cifar10, images, mixture or synthetic");
  reader.word("kind", data.kind);
  if (data.kind == DataKind::Mixture) return readMixture(source, reader, recipeFile, data);
  if (reader.has("sources"))
    reader.fail("sources", fmt::format("'data.sources' are of kind mixture, this is {}", toString(data.kind)));
  readPaths(reader, recipeFile, data);
  reader.integer("block", data.block, {.least = 1});
  reader.number("train_split", data.trainSplit, {.above = 0, .most = 1});
  reader.integer("truncate", data.truncate, {.least = 0});
  reader.boolean("shuffle", data.shuffle);
  reader.word("last_batch", data.lastBatch);
  reader.text("dtype", data.dtype);
  reader.integer("samples", data.samples, {.least = 1});
  reader.integer("size", data.size, {.least = 1, .most = 1 << 16});
  reader.numbers("mean", data.mean);
  reader.numbers("std", data.std, {.above = 0});
  MapReader fields = reader.map("fields");
  for (const std::string &key : fields.keys()) fields.text(key, data.fields[key]);
  readFill(reader, data);
  readLengths(reader, data);
  readRandomness(reader, data);
  static const std::vector<std::string> types = {"uint16", "uint32", "int32", "int64"};
  if (!data.dtype.empty() && std::find(types.begin(), types.end(), data.dtype) == types.end())
    reader.unknownWord("dtype", data.dtype, types);
}

} // namespace

void readData(Source &source, MapReader reader, const std::string &recipeFile, Data &data) {
  readMap(source, reader, recipeFile, data);
  reader.finish();
}

} // namespace cleave::recipe
