#include "compiler/recipe/schema.h"

namespace cleave::recipe {
namespace {

constexpr Range dimRange{.min = 1, .max = 1099511627776}; // above 2^40 products of a few are no 64-bit numbers

void readDims(MapReader &recipe, const Key<Recipe> &key, Recipe &to) {
  MapReader reader = recipe.map(key.name);
  for (const std::string &name : reader.keys())
    if (reader.isNull(name)) reader.fail(name, fmt::format("'dims.{}' needs a size", name));
  readValue(recipe, key.name, key.rule, to.dims);
}

// One map, or a list of maps whose losses are added up.
void readLosses(MapReader &recipe, const Key<Recipe> &key, Recipe &to) {
  if (!recipe.has(key.name)) return;
  if (!recipe.node(key.name).IsSequence()) {
    readValue(recipe, key.name, key.rule, to.losses.front());
    for (const char *one : {"name", "scale"})
      if (to.gives(fmt::format("loss.{}", one)))
        recipe.fail("loss", fmt::format("'loss.{}' is of one in a list of losses: write loss: [{{kind: {}, ...}}]", one,
                                        toString(to.losses.front().kind)));
    return;
  }
  to.losses.clear();
  readValue(recipe, key.name, key.rule, to.losses);
  if (to.losses.empty()) recipe.fail("loss", "'loss' lists none");
  std::set<std::string> names;
  for (Loss &loss : to.losses) {
    if (loss.name.empty()) loss.name = toString(loss.kind);
    if (!names.insert(loss.name).second)
      throw Fault{fmt::format("{}: two losses are called '{}': give each a 'name'", loss.where, loss.name)};
    const bool isGraphs = loss.kind == LossKind::Output;
    if (isGraphs && std::ranges::count(to.losses, LossKind::Output, &Loss::kind) > 1)
      throw Fault{fmt::format("{}: one loss of a list may be of kind output; add up several in the graph", loss.where)};
  }
}

void writeLosses(MapWriter &writer, const Key<Recipe> &key, const Recipe &recipe) {
  if (recipe.sumsLosses()) return writeValue(writer, key.name, key.rule, recipe.losses);
  writeValue(writer, key.name, key.rule, recipe.losses.front());
}

void readInit(MapReader &recipe, const Key<Recipe> &key, Recipe &to) {
  if (!recipe.has(key.name)) return;
  if (!recipe.node(key.name).IsScalar()) return readValue(recipe, key.name, key.rule, to.init);
  std::string word;
  recipe.read(key.name, word, {.words = "from_model"});
}

// The stages in their order, each smaller than what `dims` has.
void readStageDims(MapReader &reader, const Key<RampStage> &, RampStage &stage) {
  for (const std::string &dim : reader.keys()) {
    if (dim == "until") continue;
    const auto &dims = reader.recipe().dims;
    auto whole = dims.find(dim);
    if (whole == dims.end()) reader.fail(dim, fmt::format("'ramp.{0}' grows to 'dims.{0}': give that, too", dim));
    reader.read(dim, stage.dims[dim], {.range = {.min = 1, .max = static_cast<double>(whole->second)}});
  }
}

void writeStageDims(MapWriter &writer, const Key<RampStage> &, const RampStage &stage) {
  for (const auto &[name, size] : stage.dims) writer.write(name, size);
}

void checkStage(MapReader &reader, RampStage &stage) {
  const std::vector<RampStage> &ramp = reader.recipe().ramp;
  if (stage.until <= (ramp.size() > 1 ? ramp[ramp.size() - 2].until : 0))
    reader.fail("until", "'ramp.until' must be the stage's last step, and after that of the stage before");
  if (stage.dims.empty()) reader.fail("until", "a stage of 'ramp' needs a dimension, such as {until: 100, batch: 16}");
}

void checkFp8(MapReader &reader, Fp8 &fp8) {
  if (reader.has("history") && fp8.scaling == Scaling::Current)
    reader.fail("history", "'history' is for scaling delayed, this recipe's is current; leave it out");
}

void checkLora(MapReader &reader, Lora &lora) {
  if (!reader.has("alpha")) lora.alpha = static_cast<double>(lora.rank);
}

// The key is a map from names to lists; its order counts.
template <auto list, auto name, auto values>
constexpr Field<Recipe> namedAt = [] {
  Field<Recipe> field;
  field.read = [](MapReader &recipe, const Key<Recipe> &key, Recipe &to) {
    MapReader entries = recipe.map(key.name);
    for (const std::string &given : entries.keys()) {
      auto &entry = (to.*list).emplace_back();
      entry.*name = given;
      entries.read(given, entry.*values);
    }
  };
  field.write = [](MapWriter &writer, const Key<Recipe> &key, const Recipe &recipe) {
    if ((recipe.*list).empty()) return;
    writer.map(key.name, [&] {
      for (const auto &entry : recipe.*list) writer.write(entry.*name, entry.*values);
    });
  };
  return field;
}();

void readDropout(MapReader &recipe, const Key<Recipe> &, Recipe &to) {
  std::string given;
  recipe.read("dropout", given);
  if (given.empty() || given == "as_exported") return;
  to.dropout.kind = given == "off" || given == "false" ? Dropout::Kind::Off : Dropout::Kind::Rate;
  if (to.dropout.kind == Dropout::Kind::Off) return;
  if (given.find_first_not_of("0123456789.eE+-") != std::string::npos)
    recipe.unknownWord("dropout", given, {"as_exported", "off", "0.1"});
  recipe.read("dropout", to.dropout.rate, {.range = {.min = 0, .below = 1}});
}

void writeDropout(MapWriter &writer, const Key<Recipe> &key, const Recipe &recipe) {
  if (recipe.dropout.kind == Dropout::Kind::Rate) return writer.write(key.name, recipe.dropout.rate);
  const std::string word = recipe.dropout.kind == Dropout::Kind::Off ? "off" : "as_exported";
  writer.write(key.name, word, {.words = "off as_exported"});
}

// Which symbolic dimensions are as long as a sequence is.
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

// Shorter samples are the leading parts of whole ones.
void checkRamp(const Recipe &recipe) {
  for (const RampStage &stage : recipe.ramp) {
    auto fail = [&](const std::string &why) { throw Fault{fmt::format("{}: {}", stage.where, why)}; };
    if (recipe.data && recipe.data->lengths.size() > 1)
      fail("'ramp' and several 'data.lengths' would both choose a step's shape: leave one out");
    const bool isCut = stage.dims.size() > stage.dims.count("batch");
    auto isImages = [](const Data &data) { return data.kind == DataKind::Images || data.kind == DataKind::Cifar10; };
    if (isCut && recipe.data && (isImages(*recipe.data) || std::ranges::any_of(recipe.data->sources, isImages)))
      fail("'ramp' of images takes 'batch' only: other dimensions would cut their corner out");
  }
}

void checkClipping(MapReader &reader, const Recipe &recipe) {
  if (recipe.clipNorm && recipe.clipValue)
    reader.fail("clip_value", "'clip_norm' and 'clip_value' are two ways to clip: leave one out");
  if (recipe.clipValue && !recipe.clipNorms.empty())
    reader.fail("clip_norms", "'clip_norms' and 'clip_value' are two ways to clip: leave one out");
}

void checkNormGroups(MapReader groups, const Recipe &recipe) {
  for (const NormGroup &group : recipe.gradNorms) {
    if (!isPlainName(group.name))
      groups.fail(group.name, fmt::format("the group '{}' of 'grad_norms' needs a name of letters, digits, '_' and '-'",
                                          group.name));
    if (group.match.empty())
      groups.fail(group.name,
                  fmt::format("the group '{}' of 'grad_norms' needs a list of globs over parameters", group.name));
  }
}

void checkRecipe(MapReader &reader, Recipe &recipe) {
  checkClipping(reader, recipe);
  checkNormGroups(reader.map("grad_norms"), recipe);
  for (auto [key, owner] : {std::pair("loss_scale", Precision::Fp16), std::pair("fp8", Precision::Fp8)})
    if (reader.has(key) && recipe.precision != owner)
      reader.fail(key, fmt::format("'{}' is for precision {}, this recipe's is {}; leave it out", key, toString(owner),
                                   toString(recipe.precision)));
  recipe.trainableGiven = reader.has("trainable");
  for (const std::string &glob : recipe.trainable)
    if (glob.starts_with('!')) recipe.frozen.push_back(glob.substr(1));
  std::erase_if(recipe.trainable, [](const std::string &glob) { return glob.starts_with('!'); });
  if (recipe.trainable.empty()) recipe.trainable = {"*"};
  if (recipe.data && !recipe.data->lengths.empty()) findLengthDims(reader, recipe);
  checkRamp(recipe);
  recipe.optimizer.where = recipe.at("optimizer");
  if (recipe.data) recipe.data->where = recipe.at("data");
}

bool writesMap(const Recipe &recipe, std::string_view key) {
  if (key == "loss_scale") return recipe.precision == Precision::Fp16;
  if (key == "fp8") return recipe.precision == Precision::Fp8;
  return key != "trainable" || recipe.trainableGiven;
}

} // namespace

// clang-format off
template <> const Schema<RampStage> Schema<RampStage>::of = {.keys = {
    {"until", at<&RampStage::until>, "the last step of a stage, counted from 1", "required", {.range = {.min = 1}}},
    {"*", {.read = readStageDims, .write = writeStageDims}, "size of a dimension of `dims` in the steps of the stage: `batch`, or another one, whose samples are cut", "that of `dims`"},
}, .check = checkStage};
template <> const Schema<ClipGroup> Schema<ClipGroup>::of = {.keys = {
    {"match", at<&ClipGroup::match>, "[globs](#globs)", "required", {.required = "an entry of 'clip_norms' needs 'match', globs over parameter names"}},
    {"norm", at<&ClipGroup::norm>, "largest L2 norm of the group's gradients", "required", {.range = clipNormRange, .required = "an entry of 'clip_norms' needs 'norm', the largest norm of its gradients"}},
}};
template <> const Schema<SkipOutliers> Schema<SkipOutliers>::of = {.keys = {
    {"factor", at<&SkipOutliers::factor>, "a norm above this times its running mean is unusual", "5", {.range = {.above = 1}}},
    {"decay", at<&SkipOutliers::decay>, "what a step leaves of the mean", "0.99", {.range = betaRange}},
    {"warmup", at<&SkipOutliers::warmup>, "steps, from the first, that are not skipped", "100", {.range = {.min = 1}}},
}};
template <> const Schema<LossScale> Schema<LossScale>::of = {.keys = {
    {"init", at<&LossScale::init>, "scale of the first step", "65536", {.range = {.above = 0, .max = 0x1p126}}},
    {"growth", at<&LossScale::growth>, "what it grows by", "2", {.range = {.min = 1}}},
    {"backoff", at<&LossScale::backoff>, "what an overflow multiplies it by", "0.5", {.range = {.above = 0, .below = 1}}},
    {"interval", at<&LossScale::interval>, "finite steps in a row after which it grows", "2000", {.range = {.min = 1}}},
}};
template <> const Schema<Fp8> Schema<Fp8>::of = {.keys = {
    {"scaling", at<&Fp8::scaling>, "`delayed`: by the largest values of the steps before; `current`: by the tensor's own", "`delayed`"},
    {"history", at<&Fp8::history>, "`delayed`: steps that count", "16", {.range = {.min = 1, .max = 65536}}},
    {"margin", at<&Fp8::margin>, "halvings of every scale, at most 8", "0", {.range = {.min = 0, .max = 8}}},
    {"keep", at<&Fp8::keep>, "[globs](#globs) of weights whose products stay in bf16", "the weights of the last products"},
}, .check = checkFp8, .isWritten = [](const Fp8 &fp8, std::string_view key) {
     return key != "history" || fp8.scaling == Scaling::Delayed;
   }};
template <> const Schema<Lora> Schema<Lora>::of = {.keys = {
    {"match", at<&Lora::match>, "[globs](#globs): each names a weight that MatMul or Gemm multiplies by, and nothing else reads", "required", {.required = "'lora' needs 'match', globs over the weights that get adapters, such as [\"*q_proj*\"]"}},
    {"rank", at<&Lora::rank>, "columns of A and rows of B; at most the smaller side of W", "8", {.range = {.min = 1}}},
    {"alpha", at<&Lora::alpha>, "the adapter's product is multiplied by alpha / rank", "`lora.rank`", {.range = {.above = 0}}},
    {"dropout", at<&Lora::dropout>, "rate before A; `dropout` does not change it", "0", {.range = {.min = 0, .below = 1}}},
}, .check = checkLora};
template <> const Schema<Ema> Schema<Ema>::of = {.keys = {
    {"decay", at<&Ema::decay>, "the part of the average that stays", "0.999", {.range = betaRange}},
    {"every", at<&Ema::every>, "steps from one average to the next", "1", {.range = {.min = 1}}},
}};
template <> const Schema<Recipe> Schema<Recipe>::of = {.keys = {
    {"dims", at<&Recipe::dims>.readBy(readDims), "sizes of symbolic dimensions", "", {.range = dimRange}},
    {"dims.*", {}, "a dimension of this name. `batch` is the global batch, also for a model that was exported with a fixed one ([models.md](models.md#where-samples-lie))"},
    {"ramp", at<&Recipe::ramp>, "a list of maps: the first steps have [smaller batches or shorter samples](#ramps)", "none", {.isQuiet = true, .example = "{until: 100, batch: 16}"}},
    {"loss", at<&Recipe::losses>.readBy(readLosses).writtenBy(writeLosses), "required, unless the [model says](models.md#models-that-say-how-they-train) how it trains. A list of such maps: their [sum](#several-losses)"},
    {"optimizer", at<&Recipe::optimizer>, "how parameters are updated", "`adamw`"},
    {"clip_value", at<&Recipe::clipValue>, "each element of the gradients is clipped to ± this, as by clip_grad_value_; in place of `clip_norm`", "no clipping", {.range = clipNormRange}},
    {"clip_norm", at<&Recipe::clipNorm>, "largest global L2 norm of the gradients", "no clipping", {.range = clipNormRange}},
    {"clip_norms", at<&Recipe::clipNorms>, "a list of maps: groups of parameters whose gradients are clipped by their own L2 norm; the first that fits counts, and all others share `clip_norm`", "none", {.isQuiet = true, .example = R"({match: ["*embed*"], norm: 0.5})"}},
    {"skip_outliers", at<&Recipe::skipOutliers>, "steps with an unusual gradient norm [change nothing](#outliers)", "none"},
    {"precision", at<&Recipe::precision>, "`fp32`, `tf32`, `bf16`, `fp16`, `fp8` ([precision.md](precision.md))", "`fp32`"},
    {"loss_scale", at<&Recipe::lossScale>, "`fp16`: the scale of the loss, as torch's GradScaler adapts it"},
    {"fp8", at<&Recipe::fp8>, "`fp8`: how tensors are scaled ([precision.md](precision.md#fp8))"},
    {"trainable", at<&Recipe::trainable>, "[globs](#globs); all other parameters are frozen; `!glob` freezes", "`[\"*\"]`"},
    {"frozen", at<&Recipe::frozen>, "[globs](#globs) of parameters that do not train, whatever `trainable` says", "none", {.isQuiet = true}},
    {"roles", at<&Recipe::roles>, "what tensors are that the file does not tell: `{mean: buffer, scale: parameter}` ([models.md](models.md#doubts))", "none", {.isQuiet = true}},
    {"roles.*", {}, "`parameter`, `buffer` or `constant`"},
    {"frozen_rows", namedAt<&Recipe::frozenRows, &FrozenRows::match, &FrozenRows::rows>, "rows without gradient: `{\"*embed*\": [0]}` is PyTorch's `padding_idx=0`", "none"},
    {"frozen_rows.*", {}, "rows of the parameters that this glob names"},
    {"grad_norms", namedAt<&Recipe::gradNorms, &NormGroup::name, &NormGroup::match>, "gradients' norms by group, beside the one of all: `{attention: [\"*attn*\"]}` adds `grad_norm.attention` to the metrics", "none"},
    {"grad_norms.*", {}, "[globs](#globs) of the parameters of a group of this name"},
    {"batch_norm", at<&Recipe::batchNorm>, "`as_exported`, `training` (statistics of the global batch), `frozen` (running statistics)", "`as_exported`"},
    {"attention", at<&Recipe::attention>, "on GPUs in 16 bits: `library` (cuDNN), `written` (products and a softmax), `auto` (the library where every supported version can)", "`auto`"},
    {"epilogues", at<&Recipe::epilogues>, "on GPUs: `library` puts biases, tanh GELU and their gradients into the matrix products; `written` keeps kernels of their own", "`library`"},
    {"deterministic", at<&Recipe::deterministic>, "on GPUs: `true` takes only forms of the gradients of attention and of convolutions that give the same bits in every run; attention wants 2 bytes of workspace for each score then", "`false`"},
    {"ties", at<&Recipe::ties>, "which equal initializers are one parameter: `auto`, `as_exported`, `none` ([models.md](models.md#tied-parameters))", "`auto`"},
    {"dropout", {.read = readDropout, .write = writeDropout}, "`as_exported`, one rate for all, or `off`", "`as_exported`"},
    {"init", at<&Recipe::init>.readBy(readInit), "`from_model`, or a map: [weights from elsewhere](#weights-from-elsewhere), or numbers for graphs without weights", "`from_model`"},
    {"lora", at<&Recipe::lora>, "[adapters](#low-rank-adapters) beside weights, which alone train", "none"},
    {"seed", at<&Recipe::seed>, "seed of shuffling, dropout and initial weights", "0", {.range = {.min = 0}}},
    {"data", at<&Recipe::data>, "samples ([below](#data))", "given by `run --data`"},
    {"ema", at<&Recipe::ema>, "a moving average of the weights, as torch's AveragedModel keeps it: evaluated, and written by `cleave export --ema`", "none"},
    {"eval", at<&Recipe::eval>, "evaluation on the samples that `data.train_split` keeps back", "none"},
}, .check = checkRecipe, .isWritten = writesMap};
// clang-format on

} // namespace cleave::recipe
