#include "compiler/recipe/parts.h"
#include "runtime/base/names/yaml_end.h"
#include "runtime/base/url.h"
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <sstream>

namespace fs = std::filesystem;

namespace cleave::recipe {
namespace {

void readDims(MapReader reader, std::map<std::string, int64_t> &dims) {
  for (const std::string &key : reader.keys()) {
    if (reader.isNull(key)) reader.fail(key, fmt::format("'dims.{}' needs a size", key));
    reader.integer(key, dims[key], dimRange);
  }
}

// The stages in their order, each smaller than what `dims` has.
void readRamp(MapReader &recipe, Source &source, const std::map<std::string, int64_t> &dims,
              std::vector<RampStage> &ramp) {
  if (!recipe.has("ramp")) return;
  const YAML::Node stages = recipe.node("ramp");
  if (!stages.IsSequence()) recipe.fail("ramp", "'ramp' must be a list of maps such as {until: 100, batch: 16}");
  for (const auto &entry : stages) {
    MapReader of(source, "ramp", entry);
    RampStage &stage = ramp.emplace_back();
    stage.where = of.where("until");
    of.integer("until", stage.until, {.least = 1});
    if (stage.until <= (ramp.size() > 1 ? ramp[ramp.size() - 2].until : 0))
      of.fail("until", "'ramp.until' must be the stage's last step, and after that of the stage before");
    for (const std::string &dim : of.keys()) {
      if (dim == "until") continue;
      auto whole = dims.find(dim);
      if (whole == dims.end()) of.fail(dim, fmt::format("'ramp.{0}' grows to 'dims.{0}': give that, too", dim));
      of.integer(dim, stage.dims[dim], {.least = 1, .most = static_cast<double>(whole->second)});
    }
    if (stage.dims.empty()) of.fail("until", "a stage of 'ramp' needs a dimension, such as {until: 100, batch: 16}");
    of.finish();
  }
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

void readInitRule(MapReader &reader, InitRule &rule) {
  static const std::vector<std::string> kinds = {"normal",        "uniform",        "constant",      "zeros",
                                                 "ones",          "xavier_uniform", "xavier_normal", "kaiming_uniform",
                                                 "kaiming_normal"};
  reader.text("kind", rule.kind);
  if (std::find(kinds.begin(), kinds.end(), rule.kind) == kinds.end()) reader.unknownWord("kind", rule.kind, kinds);
  reader.checkUses(rule.kind);
  reader.numbersOf(rule, initNumbers());
}

void readCheckpoint(MapReader &reader, const std::string &kind, const std::string &recipeFile, Init &init) {
  reader.text("path", init.checkpoint);
  if (kind == "safetensors" && init.checkpoint.empty())
    reader.fail("path", "'init' of kind safetensors needs a 'path': a .safetensors file, an index of such files, or "
                        "the folder of either");
  if (Status file = runtime::refuseUrl(init.checkpoint); !file) reader.fail("path", "'init.path' " + file.message());
  init.checkpoint = absolutePath(init.checkpoint, recipeFile);
  reader.text("optimizer", init.optimizer);
  if (!init.optimizer.empty() && !init.fromModel)
    reader.fail("optimizer",
                "'init.optimizer' continues a training, which begins with its weights and not with kind " + kind);
  init.optimizer = absolutePath(init.optimizer, recipeFile);
  reader.text("prefix", init.prefix);
  reader.word("missing", init.missing);
  std::string names = "pytorch";
  reader.text("names", names);
  if (names != "pytorch" && names != "file") reader.unknownWord("names", names, {"pytorch", "file"});
  init.fileNames = names == "file";
}

void readInit(Source &source, MapReader &recipe, const std::string &recipeFile, Init &init) {
  if (!recipe.has("init")) return;
  std::string word;
  if (recipe.node("init").IsScalar()) {
    recipe.text("init", word);
    if (word != "from_model") recipe.unknownWord("init", word, {"from_model"});
    return;
  }
  MapReader reader = recipe.map("init");
  reader.text("kind", word);
  init.fromModel = word == "from_model" || word == "safetensors" || (word.empty() && reader.has("optimizer"));
  init.base.match = "*";
  if (init.fromModel)
    reader.checkUses(word);
  else
    readInitRule(reader, init.base);
  readCheckpoint(reader, word, recipeFile, init);
  YAML::Node rules = reader.node("rules");
  if (rules.IsDefined() && !rules.IsNull()) {
    if (!rules.IsSequence())
      reader.fail("rules", "'init.rules' must be a list of maps such as {match: \"*.bias\", kind: zeros}");
    for (const auto &entry : rules) {
      MapReader rule(source, "init.rules", entry);
      InitRule &added = init.rules.emplace_back();
      rule.text("match", added.match);
      if (added.match.empty())
        rule.fail("match", "an entry of 'init.rules' needs 'match', a glob over parameter names");
      readInitRule(rule, added);
      rule.finish();
    }
  }
  reader.finish();
}

void readDropout(MapReader &recipe, Dropout &dropout) {
  std::string given;
  recipe.text("dropout", given);
  if (given.empty() || given == "as_exported") return;
  dropout.kind = given == "off" || given == "false" ? Dropout::Kind::Off : Dropout::Kind::Rate;
  if (dropout.kind == Dropout::Kind::Off) return;
  if (given.find_first_not_of("0123456789.eE+-") != std::string::npos)
    recipe.unknownWord("dropout", given, {"as_exported", "off", "0.1"});
  recipe.number("dropout", dropout.rate, {.least = 0, .below = 1});
}

void readLora(MapReader reader, Lora &lora) {
  reader.texts("match", lora.match);
  if (lora.match.empty())
    reader.fail("match", "'lora' needs 'match', globs over the weights that get adapters, such as [\"*q_proj*\"]");
  reader.integer("rank", lora.rank, {.least = 1});
  lora.alpha = static_cast<double>(lora.rank);
  reader.number("alpha", lora.alpha, {.above = 0});
  reader.number("dropout", lora.dropout, {.least = 0, .below = 1});
  reader.finish();
}

void readFp8(MapReader &recipe, Recipe &to) {
  if (to.precision != Precision::Fp8)
    recipe.fail("fp8",
                fmt::format("'fp8' is for precision fp8, this recipe's is {}; leave it out", toString(to.precision)));
  MapReader reader = recipe.map("fp8");
  reader.word("scaling", to.fp8.scaling);
  if (reader.has("history") && to.fp8.scaling == Scaling::Current)
    reader.fail("history", "'history' is for scaling delayed, this recipe's is current; leave it out");
  reader.integer("history", to.fp8.history, {.least = 1, .most = 65536});
  reader.integer("margin", to.fp8.margin, {.least = 0, .most = 8});
  if (reader.has("keep")) reader.texts("keep", to.fp8.keep.emplace());
  reader.finish();
}

Recipe readRecipe(const YAML::Node &root, const std::string &file, Source &source) {
  Recipe recipe;
  recipe.file = source.file;
  source.lines = &recipe.lines;
  source.given = &recipe.given;
  MapReader reader(source, "", root);
  if (reader.has("dims")) readDims(reader.map("dims"), recipe.dims);
  readRamp(reader, source, recipe.dims, recipe.ramp);
  if (reader.has("loss")) readLosses(reader, source, recipe.losses);
  readOptimizer(reader.map("optimizer"), source, recipe.optimizer);
  if (recipe.gives("optimizer.kind")) // else the model may have one
    if (Status fits = checkOptimizer(recipe); !fits) throw Fault{fits.message()};
  if (reader.has("clip_norm")) reader.number("clip_norm", recipe.clipNorm.emplace(), clipNormRange);
  if (reader.has("clip_value")) reader.number("clip_value", recipe.clipValue.emplace(), clipNormRange);
  if (recipe.clipNorm && recipe.clipValue)
    reader.fail("clip_value", "'clip_norm' and 'clip_value' are two ways to clip: leave one out");
  readClipNorms(reader, source, recipe);
  if (reader.has("skip_outliers")) {
    MapReader outliers = reader.map("skip_outliers");
    recipe.skipOutliers.emplace();
    outliers.number("factor", recipe.skipOutliers->factor, {.above = 1});
    outliers.number("decay", recipe.skipOutliers->decay, betaRange);
    outliers.integer("warmup", recipe.skipOutliers->warmup, {.least = 1});
    outliers.finish();
  }
  reader.word("precision", recipe.precision);
  if (reader.has("loss_scale")) {
    if (recipe.precision != Precision::Fp16)
      reader.fail("loss_scale", fmt::format("'loss_scale' is for precision fp16, this recipe's is {}; leave it out",
                                            toString(recipe.precision)));
    MapReader scale = reader.map("loss_scale");
    scale.number("init", recipe.lossScale.init, {.above = 0, .most = 0x1p126});
    scale.number("growth", recipe.lossScale.growth, {.least = 1});
    scale.number("backoff", recipe.lossScale.backoff, {.above = 0, .below = 1});
    scale.integer("interval", recipe.lossScale.interval, {.least = 1});
    scale.finish();
  }
  if (reader.has("fp8")) readFp8(reader, recipe);
  recipe.trainableGiven = reader.has("trainable");
  reader.texts("trainable", recipe.trainable);
  reader.texts("frozen", recipe.frozen);
  for (const std::string &glob : recipe.trainable)
    if (glob.starts_with('!')) recipe.frozen.push_back(glob.substr(1));
  std::erase_if(recipe.trainable, [](const std::string &glob) { return glob.starts_with('!'); });
  if (recipe.trainable.empty()) recipe.trainable = {"*"};
  if (reader.has("roles")) {
    MapReader roles = reader.map("roles");
    for (const std::string &name : roles.keys()) roles.word(name, recipe.roles[name]);
    roles.finish();
  }
  if (reader.has("frozen_rows")) {
    MapReader frozen = reader.map("frozen_rows");
    for (const std::string &match : frozen.keys())
      frozen.integers(match, recipe.frozenRows.emplace_back(FrozenRows{match, {}}).rows);
    frozen.finish();
  }
  if (reader.has("grad_norms")) {
    MapReader groups = reader.map("grad_norms");
    for (const std::string &name : groups.keys()) {
      NormGroup &group = recipe.gradNorms.emplace_back(NormGroup{name, {}});
      groups.texts(name, group.match);
      if (!isPlainName(name))
        groups.fail(name,
                    fmt::format("the group '{}' of 'grad_norms' needs a name of letters, digits, '_' and '-'", name));
      if (group.match.empty())
        groups.fail(name, fmt::format("the group '{}' of 'grad_norms' needs a list of globs over parameters", name));
    }
    groups.finish();
  }
  reader.word("batch_norm", recipe.batchNorm);
  reader.word("attention", recipe.attention);
  reader.word("epilogues", recipe.epilogues);
  reader.word("ties", recipe.ties);
  readDropout(reader, recipe.dropout);
  readInit(source, reader, file, recipe.init);
  if (reader.has("lora")) readLora(reader.map("lora"), recipe.lora.emplace());
  int64_t seed = 0;
  reader.integer("seed", seed, {.least = 0});
  recipe.seed = static_cast<uint64_t>(seed);
  if (reader.has("data")) readData(source, reader.map("data"), file, recipe.data.emplace());
  if (reader.has("ema")) {
    MapReader ema = reader.map("ema");
    recipe.ema.emplace();
    ema.number("decay", recipe.ema->decay, betaRange);
    ema.integer("every", recipe.ema->every, {.least = 1});
    ema.finish();
  }
  if (reader.has("eval")) readEval(source, reader.map("eval"), recipe.losses, recipe.eval.emplace());
  if (recipe.data && !recipe.data->lengths.empty()) findLengthDims(reader, recipe);
  checkRamp(recipe);
  reader.finish();
  recipe.optimizer.where = recipe.at("optimizer");
  if (recipe.data) recipe.data->where = recipe.at("data");
  return recipe;
}

// Puts "optimizer.lr=1e-3" into the tree.
void applyOverride(YAML::Node root, const std::string &text, Source &source) {
  size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0)
    throw Fault{fmt::format("--set {}: must be KEY=VALUE, such as optimizer.lr=1e-3", text)};
  std::string key = text.substr(0, equals);
  source.overridden[key] = "--set " + text;
  YAML::Node value = YAML::Load(text.substr(equals + 1));
  std::vector<std::string> parts;
  std::stringstream split(key);
  for (std::string part; std::getline(split, part, '.');) parts.push_back(part);
  YAML::Node at = root;
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    if (at.IsDefined() && !at.IsNull() && !at.IsMap())
      throw Fault{fmt::format("--set {}: '{}' is not a map in the recipe", text, parts[i - 1])};
    // Symbolic dimensions may hold dots: the rest of the key is one name.
    if (i == 1 && parts[0] == "dims") break;
    YAML::Node next = at[parts[i]];
    if (!next.IsDefined() || next.IsNull()) at[parts[i]] = YAML::Node(YAML::NodeType::Map);
    at.reset(at[parts[i]]);
  }
  if (at.IsDefined() && !at.IsNull() && !at.IsMap())
    throw Fault{fmt::format("--set {}: '{}' is one value in the recipe, not a map", text, key)};
  std::string last = parts.size() > 1 && parts[0] == "dims" ? key.substr(5) : parts.empty() ? key : parts.back();
  at[last] = value;
}

Result<Recipe> parse(const std::string &text, const std::string &name, const std::string &file,
                     const std::vector<std::string> &overrides) {
  Source source{name, {}, nullptr, nullptr};
  try {
    YAML::Node root = YAML::Load(text);
    if (auto line = names::lineBehindFirst(text))
      throw Fault{fmt::format("{}:{}: more stands behind the end of the recipe", name, *line + 1)};
    if (root.IsNull()) root = YAML::Node(YAML::NodeType::Map);
    if (root.IsMap())
      for (const std::string &override : overrides) applyOverride(root, override, source);
    return readRecipe(root, file, source);
  } catch (const Fault &fault) {
    return inputError(fault.message);
  } catch (const YAML::Exception &error) {
    return inputError(error.mark.is_null()
                          ? fmt::format("{}: {}", name, error.msg)
                          : fmt::format("{}:{}: is not YAML: {}", name, error.mark.line + 1, error.msg));
  }
}

} // namespace

std::string Recipe::at(const std::string &key) const {
  for (std::string prefix = key; !prefix.empty();) {
    if (auto found = lines.find(prefix); found != lines.end()) return found->second;
    size_t dot = prefix.rfind('.');
    prefix = dot == std::string::npos ? "" : prefix.substr(0, dot);
  }
  return file;
}

Result<Recipe> parseRecipe(const std::string &path, const std::vector<std::string> &overrides) {
  std::ifstream file(path, std::ios::binary);
  std::error_code failure;
  if (!file || fs::is_directory(path, failure)) return inputError(path + ": the recipe cannot be opened");
  std::stringstream text;
  text << file.rdbuf();
  return parse(text.str(), path, path, overrides);
}

Result<Recipe> parseRecipeText(const std::string &text, const std::string &name,
                               const std::vector<std::string> &overrides) {
  return parse(text, name, "", overrides);
}

} // namespace cleave::recipe
