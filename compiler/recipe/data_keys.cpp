#include "compiler/recipe/schema.h"

namespace cleave::recipe {
namespace {

bool isOf(const Data &data, std::initializer_list<DataKind> kinds) {
  return std::ranges::find(kinds, data.kind) != kinds.end();
}

void startData(MapReader &reader, Data &data) {
  reader.read("kind", data.kind);
  const YAML::Node sources = reader.node("sources");
  if (data.kind != DataKind::Mixture) {
    if (reader.has("sources"))
      reader.fail("sources", fmt::format("'data.sources' are of kind mixture, this is {}", toString(data.kind)));
    return;
  }
  if (!sources.IsDefined() || !sources.IsSequence() || sources.size() == 0)
    reader.fail("sources", "'data' of kind mixture needs 'sources', a list of maps such as {kind: tokens, path: a.bin, "
                           "weight: 0.7}");
  if (data.isSource) return; // refused with a word of its own
  reader.has("shuffle");
  reader.finish(); // all other keys are a source's
}

void readPaths(MapReader &reader, const Key<Data> &key, Data &data) {
  if (data.kind == DataKind::Mixture) return;
  reader.read(key.name, data.paths, key.rule);
  std::erase(data.paths, "");
  if (data.paths.empty() && data.kind != DataKind::Synthetic)
    reader.fail("path", fmt::format("'data' of kind {} needs a 'path'", toString(data.kind)));
  if (data.paths.size() > 1 && isOf(data, {DataKind::Images, DataKind::Cifar10}))
    reader.fail("path", fmt::format("'data' of kind {} is in one folder, and 'path' lists {}", toString(data.kind),
                                    data.paths.size()));
  for (std::string &path : data.paths) path = reader.absolute(path);
}

void readLengths(MapReader &reader, const Key<Data> &key, Data &data) {
  reader.read(key.name, data.lengths);
  std::ranges::sort(data.lengths);
  data.lengths.erase(std::unique(data.lengths.begin(), data.lengths.end()), data.lengths.end());
}

void writeCausal(MapWriter &writer, const Key<Data> &key, const Data &data) {
  writer.write(key.name, data.causal.value_or(data.kind == DataKind::Tokens));
}

// The lengths of a sequence, and what belongs to them.
void checkLengths(MapReader &reader, const Data &data) {
  if (data.lengths.empty()) {
    for (const char *key : {"length_dims", "pack", "causal", "separator", "pad"})
      if (reader.has(key)) reader.fail(key, fmt::format("'data.{}' is for samples of several 'lengths'", key));
    return;
  }
  if (data.lengths.front() < 1) reader.fail("lengths", "'data.lengths' must be 1 or more each");
  if (!isOf(data, {DataKind::Arrays, DataKind::Tokens, DataKind::Synthetic}))
    reader.fail("lengths", fmt::format("'data.lengths' is for arrays, tokens and synthetic data, this is {}",
                                       toString(data.kind)));
  if (data.block > 0) reader.fail("block", "'data.block' is one length, and 'data.lengths' are several: leave it out");
  if (data.separator && data.kind != DataKind::Tokens)
    reader.fail("separator", fmt::format("'data.separator' is for tokens, this is {}", toString(data.kind)));
}

void checkCrop(MapReader &reader, runtime::ResizedCrop &crop) {
  for (auto [key, value] : {std::pair("scale", &crop.scale), std::pair("ratio", &crop.ratio)})
    if (value->size() != 2 || (*value)[0] > (*value)[1])
      reader.fail(key, fmt::format("'{}' must list two numbers, the lower one first", reader.dotted(key)));
}

void checkAugment(MapReader &reader, runtime::Augment &augment) {
  if (augment.resizedCrop && augment.cropPadding > 0)
    reader.fail("crop_padding", "'crop_padding' and 'random_resized_crop' both cut the image out: leave one out");
}

// What is changed about images at random.
void checkRandomness(MapReader &reader, const Data &data) {
  const bool isImages = isOf(data, {DataKind::Images, DataKind::Cifar10});
  const bool isArrays = data.kind == DataKind::Arrays && data.lengths.empty();
  if (data.augment && !isImages && !isArrays)
    reader.fail("augment", fmt::format("'data.augment' is for images, cifar10 and arrays of images, this is {}",
                                       toString(data.kind)));
  if (data.augment && data.augment->resizedCrop && data.size > 0)
    reader.map("augment").fail("random_resized_crop",
                               "'data.size' is of images that are cut out in the middle: leave it out");
  for (const char *key : {"mixup", "cutmix"})
    if (reader.has(key) && ((!isImages && !isArrays) || !data.lengths.empty()))
      reader.fail(key, fmt::format("'data.{}' is for images, cifar10, and arrays of one length, this is {}", key,
                                   toString(data.kind)));
}

void checkData(MapReader &reader, Data &data) {
  checkLengths(reader, data);
  if (!data.fill.empty() && !isOf(data, {DataKind::Arrays, DataKind::Tokens, DataKind::Chars}))
    reader.fail("fill", fmt::format("'data.fill' is for arrays, tokens and chars, this is {}", toString(data.kind)));
  checkRandomness(reader, data);
}

// What counts for all sources stands in the mixture.
void checkSource(MapReader &reader, Data &data) {
  for (const char *key : {"shuffle", "last_batch", "lengths", "mixup", "cutmix"})
    if (reader.has(key)) reader.fail(key, fmt::format("'{}' is not for one source of a mixture", key));
  if (!isOf(data, {DataKind::Tokens, DataKind::Arrays, DataKind::Cifar10, DataKind::Synthetic}))
    reader.fail("kind", fmt::format("a source of a mixture is tokens, arrays, cifar10 or synthetic, not {}{}",
                                    toString(data.kind),
                                    data.kind == DataKind::Mixture
                                        ? ""
                                        : ", whose numbers of characters or classes would be each source's own"));
}

bool writesKey(const Data &data, std::string_view key) {
  if (data.kind == DataKind::Mixture) return key == "kind" || key == "shuffle" || key == "sources";
  if (key == "shuffle" || key == "last_batch") return !data.isSource;
  return !data.lengths.empty() || (key != "length_dims" && key != "pack" && key != "causal");
}

} // namespace

// clang-format off
template <> const Schema<runtime::ResizedCrop> Schema<runtime::ResizedCrop>::of = {.keys = {
    {"scale", at<&runtime::ResizedCrop::scale>, "the part of the image's area, from and to", "`[0.08, 1]`", {.range = {.above = 0, .max = 1}}},
    {"ratio", at<&runtime::ResizedCrop::ratio>, "width to height, from and to", "`[0.75, 1.3333333333333333]`", {.range = {.above = 0}}},
}, .check = checkCrop};
const Schema<runtime::Augment> jitterSchema = {.keys = {
    {"brightness", at<&runtime::Augment::brightness>, "b: a factor from max(0, 1 - b) to 1 + b", "0", {.range = {.min = 0}}},
    {"contrast", at<&runtime::Augment::contrast>, "likewise", "0", {.range = {.min = 0}}},
    {"saturation", at<&runtime::Augment::saturation>, "likewise", "0", {.range = {.min = 0}}},
    {"hue", at<&runtime::Augment::hue>, "h, at most 0.5: a turn of the hue from -h to h", "0", {.range = {.min = 0, .max = 0.5}}},
}};
template <> const Schema<runtime::Augment> Schema<runtime::Augment>::of = {.keys = {
    {"random_resized_crop", at<&runtime::Augment::resizedCrop>, "cuts out a part and scales it to the model's size, in place of scaling and cutting out the middle; `{}`: with torchvision's numbers", "none"},
    {"crop_padding", at<&runtime::Augment::cropPadding>, "black pixels around the image, out of which the model's size is cut", "none", {.range = {.min = 1, .max = 1024}, .isQuiet = true}},
    {"flip", at<&runtime::Augment::flip>, "the chance that left and right are exchanged", "0", {.range = {.min = 0, .max = 1}}},
    {"color_jitter", mapOf<runtime::Augment, jitterSchema>, "changes of colour, as of torchvision's ColorJitter, in a random order", "none"},
}, .check = checkAugment};
const Schema<Data> sourceSchema = {.keys = {
    {"weight", at<&Data::weight>, "the source's part of the samples, to the sum of all weights", "1", {.range = {.min = 1e-6, .max = 1e6}}},
    {"*", mapOf<Data, Schema<Data>::of>, "`kind` and its keys, as of `data`"},
}, .start = [](MapReader &, Data &data) { data.isSource = true; }, .check = checkSource};
template <> const Schema<Data> Schema<Data>::of = {.keys = {
    {"kind", at<&Data::kind>, "`arrays`, `chars`, `tokens`, `cifar10`, `images`, `mixture`, `synthetic`", "required", {.required = "'data' needs a 'kind': arrays, tokens, chars, cifar10, images, mixture or synthetic"}},
    {"path", at<&Data::paths>.readBy(readPaths), "a file, a folder or a glob, or a list of them ([below](#files)); relative to the recipe's folder; in Python also a URL, [fetched](../guide/object-stores.md)", "required, but for `mixture` and `synthetic`", {.isQuiet = true, .takesOne = true}},
    {"block", at<&Data::block>, "`chars`, `tokens`: length of a sample", "the model's input", {.range = {.min = 1}, .isQuiet = true}},
    {"train_split", at<&Data::trainSplit>, "this leading part trains, and the rest evaluates", "1", {.range = {.above = 0, .max = 1}}},
    {"truncate", at<&Data::truncate>, "`chars`, `tokens`: use so many symbols only; 0: all", "0", {.range = {.min = 0}}},
    {"shuffle", at<&Data::shuffle>, "`true`, `false`", "`true`"},
    {"last_batch", at<&Data::lastBatch>, "samples that fill no batch: `repeat` fills it with the epoch's first ones, `drop` leaves them out, `smaller` trains on them alone ([below](#data))", "`repeat`"},
    {"dtype", at<&Data::dtype>, "`tokens`: `uint16`, `uint32`, `int32`, `int64`", "as the file says, else `uint16`", {.words = "uint16 uint32 int32 int64", .isQuiet = true}},
    {"samples", at<&Data::samples>, "`synthetic`: samples of an epoch", "1,024 batches", {.range = {.min = 1}, .isQuiet = true}},
    {"size", at<&Data::size>, "`images`: length of the shorter side before the middle is cut out", "as small as covers the model's input", {.range = {.min = 1, .max = 65536}, .isQuiet = true}},
    {"mean", at<&Data::mean>, "`images`: one number, or one a channel", "0", {.isQuiet = true}},
    {"std", at<&Data::std>, "`images`: likewise", "1", {.range = {.above = 0}, .isQuiet = true}},
    {"fields", at<&Data::fields>, "`arrays`: which array an input takes, where their names differ", "the input's name", {.isQuiet = true}},
    {"fields.*", {}, "name of the array for this input"},
    {"fill", at<&Data::fill>, "`arrays`, `chars`, `tokens`: what inputs take that the data does not have ([below](#inputs-without-data))", "by name", {.words = "tokens ones zeros positions segments mask", .isQuiet = true}},
    {"fill.*", {}, "`tokens`, `ones`, `zeros`, `positions`, `segments` or `mask`"},
    {"lengths", at<&Data::lengths>.readBy(readLengths), "`arrays`, `tokens`, `synthetic`: lengths of sequences, such as `[128, 256, 512]`; a step has the least that its longest sample fits in ([below](#lengths))", "the model's one", {.isQuiet = true}},
    {"length_dims", at<&Data::lengthDims>, "the dimensions of `dims` that are a sequence's length", "those with the size of the longest, but for the batch"},
    {"pack", at<&Data::pack>, "`true`: samples stand side by side in rows of the longest length", "`false`"},
    {"causal", at<&Data::causal>.writtenBy(writeCausal), "`true`: in a mask of [positions, positions] a position sees those before it only", "`tokens`: `true`, `arrays`: `false`"},
    {"separator", at<&Data::separator>, "`tokens` of several lengths: the token that ends a sample", "required, but for files with an `.idx`", {.range = {.min = 0}}},
    {"pad", at<&Data::pad>, "what stands behind a sample's end, by input", "0; for labels a number that the loss ignores", {.isQuiet = true}},
    {"pad.*", {}, "the number for this input"},
    {"augment", at<&Data::augment>, "`images`, `cifar10`, `arrays` of `uint8` images: what is changed at random in images that train ([below](#augmentation))", "none"},
    {"mixup", at<&Data::mixup>, "`images`, `cifar10`, `arrays`: alpha of [mixup](#augmentation)", "none", {.range = {.above = 0}, .isQuiet = true}},
    {"cutmix", at<&Data::cutmix>, "likewise, of CutMix; with both, each batch has one of them", "none", {.range = {.above = 0}, .isQuiet = true}},
    {"sources", listAt<&Data::sources, sourceSchema>, "`mixture`: a list of `data` maps, each with a `weight` ([below](#mixtures))", "required there", {.isQuiet = true}},
}, .start = startData, .check = checkData, .isWritten = writesKey};
// clang-format on

} // namespace cleave::recipe
