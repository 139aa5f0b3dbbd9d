#include "compiler/names/yaml_end.h"
#include "compiler/recipe/read_data.h"
#include "compiler/recipe/read_eval.h"
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

void readLabels(MapReader &loss, Labels &labels) {
  if (loss.has("labels") && loss.node("labels").IsScalar()) return loss.text("labels", labels.name);
  MapReader reader = loss.map("labels");
  reader.text("name", labels.name);
  if (reader.has("dtype")) reader.text("dtype", labels.dtype.emplace());
  if (reader.has("shape")) reader.texts("shape", labels.shape.emplace());
  if (reader.has("output")) reader.text("output", labels.output.emplace());
  for (const char *key : {"name", "dtype", "shape"})
    if (labels.output && reader.has(key))
      reader.fail(key,
                  fmt::format("'loss.labels.{}' is of an input, and these labels are an output; leave it out", key));
  static const std::vector<std::string> types = {"int64", "int32", "float32", "float64"};
  if (labels.dtype && std::find(types.begin(), types.end(), *labels.dtype) == types.end())
    reader.unknownWord("dtype", *labels.dtype, types);
  reader.finish();
}

// A key that the kind has no use for is an error: numbers would be others than the person means.
void checkUses(MapReader &reader, const std::string &kind, const std::string &except = "") {
  for (const std::string &key : reader.keys())
    if (std::string fault = useFault(reader.dotted(key), kind); !fault.empty() && key != except && reader.has(key))
      reader.fail(key, fault);
}

// What a loss reads: outputs of the graph, and labels.
void readOperands(MapReader &reader, Loss &loss) {
  if (reader.has("output") && reader.node("output").IsScalar())
    reader.text("output", loss.outputs.emplace_back());
  else
    reader.texts("output", loss.outputs);
  const size_t count = outputsOf(loss.kind);
  if (loss.outputs.size() != count && !(loss.outputs.empty() && count == 1))
    reader.fail("output", fmt::format("'loss' of kind {} reads {}", toString(loss.kind),
                                      count == 1   ? "one 'output'"
                                      : count == 2 ? "two outputs: 'output: [NAME, NAME]'"
                                                   : "three outputs: 'output: [ANCHOR, POSITIVE, NEGATIVE]'"));
  readLabels(reader, loss.labels);
  const bool isPlain = !loss.labels.dtype && !loss.labels.shape && !loss.labels.output;
  if (loss.kind == LossKind::Output && !isPlain)
    reader.fail("labels", "'loss.labels' of kind output is the name of the graph's input alone");
  if (loss.kind == LossKind::Ctc && (!loss.labels.shape || loss.labels.output))
    reader.fail("labels", "'loss' of kind ctc needs the shape of its targets, such as labels: {name: targets, shape: "
                          "[batch, 20]}");
  if (loss.kind == LossKind::Ctc && loss.labels.dtype && loss.labels.dtype->starts_with("float"))
    reader.fail("labels", "'loss.labels' of kind ctc are class numbers, integers");
  reader.text("input_lengths", loss.inputLengths);
  reader.text("target_lengths", loss.targetLengths);
}

void readLoss(MapReader reader, Loss &loss) {
  if (!reader.has("kind")) reader.fail("kind", "'loss' needs a 'kind', such as softmax_cross_entropy");
  reader.word("kind", loss.kind);
  loss.where = reader.where("kind");
  checkUses(reader, toString(loss.kind));
  reader.text("name", loss.name);
  if (loss.name.find_first_not_of(nameCharacters) != std::string::npos)
    reader.fail("name", fmt::format("'loss.name' is of letters, digits, '_' and '-', not '{}'", loss.name));
  reader.number("scale", loss.scale);
  readOperands(reader, loss);
  const bool isSoft = loss.labels.dtype && loss.labels.dtype->starts_with("float");
  if (isSoft && reader.has("ignore_index"))
    reader.fail("ignore_index", "'loss.ignore_index' is a class, and these labels are probabilities; leave it out");
  const bool overClasses = useFault("loss.ignore_index", toString(loss.kind)).empty();
  if (overClasses && !isSoft && !reader.isNull("ignore_index")) loss.ignoreIndex = -100;
  if (reader.has("ignore_index")) reader.integer("ignore_index", loss.ignoreIndex.emplace());
  reader.number("label_smoothing", loss.labelSmoothing, {.least = 0, .most = 1});
  reader.word("reduction", loss.reduction);
  reader.integer("axis", loss.axis);
  reader.number("delta", loss.huberDelta, {.above = 0});
  reader.numbers("weight", loss.weight, {.least = 0});
  if (reader.has("pos_weight") && reader.node("pos_weight").IsScalar())
    reader.number("pos_weight", loss.posWeight.emplace_back(), {.least = 0});
  else
    reader.numbers("pos_weight", loss.posWeight, {.least = 0});
  reader.number("z_loss", loss.zLoss, {.least = 0});
  reader.boolean("log_target", loss.logTarget);
  const bool isCosine = loss.kind == LossKind::CosineEmbedding;
  loss.margin = isCosine || loss.kind == LossKind::MarginRanking ? 0 : 1; // PyTorch's
  reader.number("margin", loss.margin, isCosine ? Range{.least = -1, .most = 1} : Range{});
  loss.p = loss.kind == LossKind::MultiMargin ? 1 : 2;
  reader.integer("p", loss.p, {.least = 1, .most = 2});
  reader.number("eps", loss.eps, {.least = 0});
  reader.boolean("swap", loss.swap);
  reader.integer("blank", loss.blank, {.least = 0});
  reader.boolean("zero_infinity", loss.zeroInfinity);
  if (loss.zLoss > 0 && !loss.weight.empty())
    reader.fail("z_loss", "'loss.z_loss' counts all labels alike, and 'loss.weight' does not: leave one out");
  if (loss.reduction == Reduction::BatchMean && loss.kind != LossKind::KlDiv)
    reader.fail("reduction", fmt::format("'loss.reduction' batchmean is for kl_div, this is {}", toString(loss.kind)));
  reader.finish();
}

// One loss, or a list of losses that are added up.
void readLosses(MapReader &recipe, Source &source, std::vector<Loss> &losses) {
  const YAML::Node node = recipe.node("loss");
  if (!node.IsSequence()) {
    Loss &loss = losses.front();
    readLoss(recipe.map("loss"), loss);
    for (const char *key : {"name", "scale"})
      if (source.given->count(fmt::format("loss.{}", key)))
        recipe.fail("loss", fmt::format("'loss.{}' is of one in a list of losses: write loss: [{{kind: {}, ...}}]", key,
                                        toString(loss.kind)));
    return;
  }
  losses.clear();
  for (const auto &entry : node) readLoss(MapReader(source, "loss", entry), losses.emplace_back());
  if (losses.empty()) recipe.fail("loss", "'loss' lists none");
  std::set<std::string> names;
  for (Loss &loss : losses) {
    if (loss.name.empty()) loss.name = toString(loss.kind);
    if (!names.insert(loss.name).second)
      throw Fault{fmt::format("{}: two losses are called '{}': give each a 'name'", loss.where, loss.name)};
    const bool isGraphs = loss.kind == LossKind::Output;
    if (isGraphs && std::ranges::count(losses, LossKind::Output, &Loss::kind) > 1)
      throw Fault{fmt::format("{}: one loss of a list may be of kind output; add up several in the graph", loss.where)};
  }
}

bool isShare(MapReader &reader, const std::string &key) {
  return reader.has(key) && reader.node(key).IsScalar() && reader.node(key).Scalar().ends_with('%');
}

// A number of steps, or a share of the schedule's: "3%".
void readSteps(MapReader &reader, const std::string &key, int64_t total, int64_t &steps) {
  if (!isShare(reader, key)) return reader.integer(key, steps, {.least = 0});
  const std::string text = reader.node(key).Scalar();
  char *end = nullptr;
  const double share = std::strtod(text.c_str(), &end) / 100;
  if (end != text.c_str() + text.size() - 1 || !Range{.least = 0, .most = 1}.has(share))
    reader.fail(key, fmt::format("'{}' must be a number of steps or a share from 0% to 100%, is '{}'",
                                 reader.dotted(key), text));
  if (total == 0)
    reader.fail(key,
                fmt::format("'{}' is a share of 'optimizer.lr.total_steps', which is not given", reader.dotted(key)));
  steps = std::llround(share * static_cast<double>(total));
}

void readSchedule(MapReader &optimizer, Schedule &schedule) {
  if (!optimizer.has("lr")) return;
  if (!optimizer.node("lr").IsMap()) return optimizer.number("lr", schedule.peak, rateRange);
  MapReader reader = optimizer.map("lr");
  if (!reader.has("kind"))
    reader.fail("kind", "'optimizer.lr' as a map needs a 'kind', such as constant, linear, cosine or wsd");
  reader.word("kind", schedule.kind);
  checkUses(reader, toString(schedule.kind), isShare(reader, "warmup_steps") ? "total_steps" : "");
  const bool isCycle = schedule.kind == ScheduleKind::OneCycle;
  if (!reader.has("peak")) reader.fail("peak", "'optimizer.lr' as a map needs 'peak', the highest rate");
  reader.number("peak", schedule.peak, rateRange);
  if (isCycle) schedule.start = schedule.peak / 25; // as PyTorch's OneCycleLR
  if (reader.has("start")) reader.number("start", schedule.start.emplace(), rateRange);
  if (isCycle) schedule.min = *schedule.start / 1e4;
  reader.number("min", schedule.min, rateRange);
  reader.integer("total_steps", schedule.totalSteps, {.least = 1});
  readSteps(reader, "warmup_steps", schedule.totalSteps, schedule.warmupSteps);
  readSteps(reader, "decay_steps", schedule.totalSteps, schedule.decaySteps);
  reader.integers("milestones", schedule.milestones);
  reader.number("gamma", schedule.gamma, {.above = 0});
  reader.number("power", schedule.power, {.above = 0});
  reader.integer("period", schedule.period, {.least = 1});
  reader.integer("period_factor", schedule.periodFactor, {.least = 1});
  reader.word("anneal", schedule.anneal);
  reader.number("warmup_share", schedule.warmupShare, {.above = 0, .below = 1});
  if (reader.has("start") && !isCycle && schedule.warmupSteps == 0)
    reader.fail("start", "'optimizer.lr.start' is where the 'warmup_steps' begin, and there are none; leave it out");
  auto needs = [&](const char *key, const char *what) {
    if (!reader.has(key))
      reader.fail(key, fmt::format("'optimizer.lr' of kind {} needs '{}', {}", toString(schedule.kind), key, what));
  };
  switch (schedule.kind) {
  case ScheduleKind::Constant:
    break;
  case ScheduleKind::Step:
    if (schedule.milestones.empty())
      reader.fail("milestones", "'optimizer.lr' of kind step needs 'milestones', a list of steps");
    break;
  case ScheduleKind::Exponential:
    needs("gamma", "what each step multiplies the rate by");
    break;
  case ScheduleKind::CosineRestarts:
    needs("period", "the steps until the first restart");
    break;
  case ScheduleKind::OneCycle:
    needs("total_steps", "the steps of the cycle");
    if (schedule.anneal == Anneal::Sqrt)
      reader.fail("anneal", "'optimizer.lr.anneal' of kind one_cycle is cosine or linear");
    break;
  case ScheduleKind::Wsd:
    needs("decay_steps", "the last steps, in which the rate falls");
    [[fallthrough]];
  case ScheduleKind::Linear:
  case ScheduleKind::Cosine:
  case ScheduleKind::Polynomial:
    if (schedule.totalSteps <= schedule.warmupSteps + schedule.decaySteps - (schedule.decaySteps > 0 ? 1 : 0))
      reader.fail("total_steps",
                  fmt::format("'optimizer.lr.total_steps' must be more than warmup_steps ({}){}, is {}",
                              schedule.warmupSteps,
                              schedule.decaySteps > 0
                                  ? fmt::format(" and at least that and decay_steps ({})", schedule.decaySteps)
                                  : "",
                              schedule.totalSteps));
  }
  reader.finish();
}

// The learning rate of a group: a number, which stands to the peak as all of its rates do, or {scale: ...}.
void readGroupRate(MapReader &reader, const Optimizer &optimizer, double &scale) {
  if (!reader.has("lr")) return;
  if (reader.node("lr").IsMap()) {
    MapReader map = reader.map("lr");
    map.number("scale", scale, rateRange);
    return map.finish();
  }
  double rate = 0;
  reader.number("lr", rate, rateRange);
  if (optimizer.lr.peak == 0) reader.fail("lr", "'optimizer.lr' is 0: a group has 'lr: {scale: ...}' of it");
  scale = rate / optimizer.lr.peak;
  if (!std::isfinite(scale)) reader.fail("lr", "'lr' of a group is too many times 'optimizer.lr'");
}

void readGroups(MapReader &reader, Source &source, Optimizer &optimizer) {
  const YAML::Node groups = reader.node("groups");
  if (!groups.IsDefined() || groups.IsNull()) return;
  if (!groups.IsSequence())
    reader.fail("groups", "'optimizer.groups' must be a list of maps such as {match: [\"*.bias\"], weight_decay: 0}");
  for (const auto &entry : groups) {
    MapReader of(source, "optimizer.groups", entry);
    OptimizerGroup &group = optimizer.groups.emplace_back();
    of.texts("match", group.match);
    group.where = of.where("match");
    if (group.match.empty())
      of.fail("match", "an entry of 'optimizer.groups' needs 'match', globs over parameter names");
    if (of.has("kind")) of.word("kind", group.kind.emplace());
    if (group.kind && *group.kind != optimizer.kind &&
        (optimizer.kind != OptimizerKind::Muon || *group.kind != OptimizerKind::AdamW))
      of.fail("kind", "a group's 'kind' is the optimizer's, or adamw where that is muon");
    readGroupRate(of, optimizer, group.rateScale);
    if (of.has("betas")) {
      std::vector<double> betas;
      of.numbers("betas", betas, betaRange);
      if (betas.size() != 2) of.fail("betas", "'betas' must list two numbers, such as [0.9, 0.999]");
      group.beta1 = betas[0], group.beta2 = betas[1];
    }
    auto readOwn = [&](const char *key, std::optional<double> &value, Range range) {
      if (of.has(key)) of.number(key, value.emplace(), range);
    };
    readOwn("eps", group.eps, {.least = 0});
    readOwn("weight_decay", group.weightDecay, {.least = 0});
    readOwn("momentum", group.momentum, {.least = 0, .below = 1});
    of.finish();
  }
}

void readOptimizer(MapReader reader, Source &source, Optimizer &optimizer) {
  reader.word("kind", optimizer.kind);
  // The defaults are those of PyTorch's class of that name; Lion's and LAMB's are their papers'.
  if (optimizer.kind == OptimizerKind::AdamW) optimizer.weightDecay = 0.01;
  if (optimizer.kind == OptimizerKind::Adagrad) optimizer.eps = 1e-10;
  if (optimizer.kind == OptimizerKind::Lion) optimizer.beta2 = 0.99;
  if (optimizer.kind == OptimizerKind::Lamb) optimizer.eps = 1e-6;
  if (optimizer.kind == OptimizerKind::Adafactor) optimizer.eps = std::numeric_limits<float>::epsilon();
  if (optimizer.kind == OptimizerKind::Muon)
    optimizer.momentum = 0.95, optimizer.nesterov = true, optimizer.weightDecay = 0.1;
  if (optimizer.kind == OptimizerKind::Adadelta) optimizer.eps = 1e-6;
  readSchedule(reader, optimizer.lr);
  if (reader.has("betas")) {
    std::vector<double> betas;
    reader.numbers("betas", betas, betaRange);
    if (betas.size() != 2) reader.fail("betas", "'optimizer.betas' must list two numbers, such as [0.9, 0.999]");
    optimizer.beta1 = betas[0], optimizer.beta2 = betas[1];
  }
  reader.numbersOf(optimizer, optimizerNumbers());
  reader.boolean("nesterov", optimizer.nesterov);
  reader.integer("ns_steps", optimizer.newtonSchulzSteps, {.least = 1, .most = 100});
  reader.word("form", optimizer.form);
  reader.word("bias_correction", optimizer.biasCorrection);
  reader.texts("no_decay", optimizer.noDecay);
  reader.boolean("amsgrad", optimizer.amsgrad);
  reader.boolean("centered", optimizer.centered);
  reader.boolean("decoupled_weight_decay", optimizer.decoupledDecay);
  reader.word("state_dtype", optimizer.stateType);
  readGroups(reader, source, optimizer);
  if (reader.has("layer_decay")) reader.number("layer_decay", optimizer.layerDecay.emplace(), {.above = 0, .most = 1});
  reader.finish();
}

void readInitRule(MapReader &reader, InitRule &rule) {
  static const std::vector<std::string> kinds = {"normal",        "uniform",        "constant",      "zeros",
                                                 "ones",          "xavier_uniform", "xavier_normal", "kaiming_uniform",
                                                 "kaiming_normal"};
  reader.text("kind", rule.kind);
  if (std::find(kinds.begin(), kinds.end(), rule.kind) == kinds.end()) reader.unknownWord("kind", rule.kind, kinds);
  checkUses(reader, rule.kind);
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
    reader.fail("optimizer", "'init.optimizer' continues a training, which begins with its weights and not with kind " +
                                 kind);
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
    checkUses(reader, word);
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

void readClipNorms(MapReader &recipe, Source &source, Recipe &to) {
  if (!recipe.has("clip_norms")) return;
  const YAML::Node groups = recipe.node("clip_norms");
  if (!groups.IsSequence())
    recipe.fail("clip_norms", "'clip_norms' must be a list of maps such as {match: [\"*embed*\"], norm: 0.5}");
  if (to.clipValue) recipe.fail("clip_norms", "'clip_norms' and 'clip_value' are two ways to clip: leave one out");
  for (const auto &entry : groups) {
    MapReader of(source, "clip_norms", entry);
    ClipGroup &group = to.clipNorms.emplace_back();
    of.texts("match", group.match);
    group.where = of.where("match");
    if (group.match.empty()) of.fail("match", "an entry of 'clip_norms' needs 'match', globs over parameter names");
    if (!of.has("norm")) of.fail("norm", "an entry of 'clip_norms' needs 'norm', the largest norm of its gradients");
    of.number("norm", group.norm, clipNormRange);
    of.finish();
  }
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
      if (name.find_first_not_of(nameCharacters) != std::string::npos)
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
