#include "compiler/names/yaml_end.h"
#include "compiler/recipe/read_data.h"
#include "runtime/base/url.h"
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <sstream>

namespace fs = std::filesystem;

namespace cleave::recipe {
namespace {

constexpr const char *nameCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";

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
  static const std::vector<std::string> types = {"int64", "int32", "float32", "float64"};
  if (labels.dtype && std::find(types.begin(), types.end(), *labels.dtype) == types.end())
    reader.unknownWord("dtype", *labels.dtype, types);
  reader.finish();
}

void readLoss(MapReader reader, Loss &loss) {
  if (!reader.has("kind")) reader.fail("kind", "'loss' needs a 'kind', such as softmax_cross_entropy");
  reader.word("kind", loss.kind);
  if (reader.has("output")) reader.text("output", loss.output.emplace());
  readLabels(reader, loss.labels);
  bool overClasses = loss.kind == LossKind::SoftmaxCrossEntropy || loss.kind == LossKind::Nll;
  if (overClasses && !reader.isNull("ignore_index")) loss.ignoreIndex = -100;
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
  auto isFor = [&](const char *key, bool fits, const char *kinds) {
    if (reader.has(key) && !fits)
      reader.fail(key, fmt::format("'loss.{}' is for {}, this is {}", key, kinds, toString(loss.kind)));
  };
  isFor("weight", overClasses, "softmax_cross_entropy and nll");
  isFor("pos_weight", loss.kind == LossKind::BceWithLogits, "bce_with_logits");
  isFor("z_loss", loss.kind == LossKind::SoftmaxCrossEntropy, "softmax_cross_entropy");
  if (loss.zLoss > 0 && !loss.weight.empty())
    reader.fail("z_loss", "'loss.z_loss' counts all labels alike, and 'loss.weight' does not: leave one out");
  if (loss.reduction == Reduction::BatchMean && loss.kind != LossKind::KlDiv)
    reader.fail("reduction", fmt::format("'loss.reduction' batchmean is for kl_div, this is {}", toString(loss.kind)));
  reader.finish();
}

// A number of steps, or a share of the schedule's: "3%".
void readSteps(MapReader &reader, const std::string &key, int64_t total, int64_t &steps) {
  std::string text;
  if (reader.has(key) && reader.node(key).IsScalar()) text = reader.node(key).Scalar();
  if (!text.ends_with('%')) return reader.integer(key, steps, {.least = 0});
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

// Keys that only some kinds of a schedule have.
void checkScheduleKeys(MapReader &reader, ScheduleKind kind) {
  using K = ScheduleKind;
  static const std::map<std::string, std::vector<K>> owners = {
      {"power", {K::Polynomial}}, {"period", {K::CosineRestarts}},   {"period_factor", {K::CosineRestarts}},
      {"decay_steps", {K::Wsd}},  {"anneal", {K::Wsd, K::OneCycle}}, {"warmup_share", {K::OneCycle}}};
  for (const auto &[key, kinds] : owners)
    if (reader.has(key) && std::ranges::find(kinds, kind) == kinds.end())
      reader.fail(key,
                  fmt::format("'optimizer.lr.{}' is for kind {}, this is {}", key, toString(kinds[0]), toString(kind)));
}

void readSchedule(MapReader &optimizer, Schedule &schedule) {
  if (!optimizer.has("lr")) return;
  if (!optimizer.node("lr").IsMap()) return optimizer.number("lr", schedule.peak, rateRange);
  MapReader reader = optimizer.map("lr");
  if (!reader.has("kind"))
    reader.fail("kind", "'optimizer.lr' as a map needs a 'kind', such as constant, linear, cosine or wsd");
  reader.word("kind", schedule.kind);
  checkScheduleKeys(reader, schedule.kind);
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
    if (schedule.warmupSteps > 0)
      reader.fail("warmup_steps", "'optimizer.lr' of kind one_cycle rises in 'warmup_share' of its steps");
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

// Keys that only some optimizers have.
void checkOptimizerKeys(MapReader &reader, const Optimizer &optimizer) {
  using K = OptimizerKind;
  static const std::map<std::string, std::vector<K>> owners = {{"amsgrad", {K::Adam, K::AdamW}},
                                                               {"alpha", {K::RmsProp}},
                                                               {"centered", {K::RmsProp}},
                                                               {"momentum_decay", {K::NAdam}},
                                                               {"decoupled_weight_decay", {K::NAdam, K::RAdam}},
                                                               {"rho", {K::Adadelta}}};
  for (const auto &[key, kinds] : owners)
    if (reader.has(key) && std::ranges::find(kinds, optimizer.kind) == kinds.end())
      reader.fail(
          key, fmt::format("'optimizer.{}' is for {}, this is {}", key, toString(kinds[0]), toString(optimizer.kind)));
  if (optimizer.amsgrad && optimizer.form == AdamForm::Onnx)
    reader.fail("amsgrad", "'optimizer.amsgrad' is for form pytorch");
  if (optimizer.stateType == StateType::Bf16 &&
      (optimizer.kind == K::Adafactor || optimizer.kind == K::Adagrad || optimizer.kind == K::Adadelta))
    reader.fail("state_dtype", fmt::format("{} keeps no momentum, which 'state_dtype' is the type of; leave it out",
                                           toString(optimizer.kind)));
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
  checkOptimizerKeys(reader, optimizer);
  if (optimizer.kind == OptimizerKind::Sgd && optimizer.nesterov &&
      (optimizer.momentum == 0 || optimizer.dampening != 0))
    reader.fail("nesterov", "'optimizer.nesterov' needs a momentum above 0 and no dampening");
  reader.finish();
}

void readInitRule(MapReader &reader, InitRule &rule) {
  static const std::vector<std::string> kinds = {"normal",        "uniform",        "constant",      "zeros",
                                                 "ones",          "xavier_uniform", "xavier_normal", "kaiming_uniform",
                                                 "kaiming_normal"};
  reader.text("kind", rule.kind);
  if (std::find(kinds.begin(), kinds.end(), rule.kind) == kinds.end()) reader.unknownWord("kind", rule.kind, kinds);
  reader.numbersOf(rule, initNumbers());
}

void readCheckpoint(MapReader &reader, const std::string &kind, const std::string &recipeFile, Init &init) {
  reader.text("path", init.checkpoint);
  if (kind != "safetensors" && !init.checkpoint.empty())
    reader.fail("path", "'init.path' is for kind safetensors, not " + kind);
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
  readCheckpoint(reader, word, recipeFile, init);
  if (!init.fromModel) readInitRule(reader, init.base);
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

void readMetricKind(MapReader &reader, Metric &metric) {
  std::string word;
  reader.text("kind", word);
  if (word.starts_with("top_")) {
    const char *end = word.data() + word.size();
    const auto [rest, failure] = std::from_chars(word.data() + 4, end, metric.k);
    if (failure != std::errc() || rest != end || metric.k < 1)
      reader.fail("kind", fmt::format("the metric '{}' must be top_K with a number, such as top_5", word));
    metric.kind = MetricKind::TopK;
    return;
  }
  reader.word("kind", metric.kind);
}

// Errors: a kind that the loss has no numbers for.
void checkMetric(MapReader &reader, const Metric &metric, const Loss &loss) {
  using M = MetricKind;
  const bool hasClasses = loss.kind == LossKind::SoftmaxCrossEntropy || loss.kind == LossKind::Nll,
             isBinary = loss.kind == LossKind::Bce || loss.kind == LossKind::BceWithLogits;
  auto fail = [&](const std::string &why) {
    reader.fail("kind", fmt::format("the metric '{}' {}; the loss is {}", toString(metric), why, toString(loss.kind)));
  };
  if (metric.kind == M::Mean && !metric.output) reader.fail("output", "the metric 'mean' needs an 'output' of the graph");
  if (metric.kind == M::Mean && metric.labels) reader.fail("labels", "the metric 'mean' reads no labels");
  if (metric.kind == M::Perplexity) {
    if (metric.output || metric.labels)
      reader.fail("kind", "the metric 'perplexity' is the exponential of the loss: it takes no output and no labels");
    if (!hasClasses && loss.kind != LossKind::Output) fail("is the exponential of a cross-entropy");
    if (loss.labelSmoothing != 0 || loss.zLoss != 0 || !loss.weight.empty() || loss.reduction != Reduction::Mean)
      fail("is the exponential of a mean cross-entropy without label_smoothing, z_loss and weight");
  }
  if (metric.labels || metric.kind == M::Mean || metric.kind == M::Perplexity) return;
  if (loss.kind == LossKind::Output) fail("needs 'output' and 'labels': an output of the graph and one of its inputs");
  if (metric.kind == M::MeanAbsoluteError && hasClasses) fail("compares numbers, and labels are classes");
  if (metric.kind == M::TopK && !hasClasses) fail("needs labels that are classes");
  if (metric.kind != M::MeanAbsoluteError && !hasClasses && !isBinary) fail("needs labels that are classes");
}

void readMetric(MapReader reader, const Loss &loss, Metric &metric) {
  if (!reader.has("kind")) reader.fail("kind", "each of 'eval.metrics' is a word, such as accuracy, or a map with a 'kind'");
  readMetricKind(reader, metric);
  for (auto [key, value] : {std::pair("output", &metric.output), std::pair("labels", &metric.labels)})
    if (reader.has(key)) reader.text(key, value->emplace());
  if (metric.labels && !metric.output) reader.fail("labels", "a metric with 'labels' needs the 'output' that it reads");
  metric.name = metric.kind == MetricKind::Mean && metric.output ? *metric.output : toString(metric);
  reader.text("name", metric.name);
  if (metric.name.empty() || metric.name == "loss" || metric.name.find_first_not_of(nameCharacters) != std::string::npos)
    reader.fail("name", fmt::format("the metric '{}' needs a 'name' of letters, digits, '_' and '-', other than loss",
                                    metric.name));
  metric.where = reader.where("kind");
  checkMetric(reader, metric, loss);
  reader.finish();
}

void readEval(Source &source, MapReader reader, const Loss &loss, Eval &eval) {
  reader.integer("every", eval.every, {.least = 0});
  reader.integer("batches", eval.batches, {.least = 1});
  if (reader.has("metrics")) {
    if (!reader.node("metrics").IsSequence()) reader.fail("metrics", "'eval.metrics' must be a list, such as [accuracy]");
    for (YAML::Node entry : reader.node("metrics")) {
      YAML::Node map(YAML::NodeType::Map);
      map["kind"] = entry;
      Metric metric;
      readMetric(MapReader(source, "eval.metrics", entry.IsScalar() ? map : entry), loss, metric);
      if (std::ranges::find(eval.metrics, metric.name, &Metric::name) != eval.metrics.end())
        reader.fail("metrics", fmt::format("two of 'eval.metrics' are called '{}': give one a 'name'", metric.name));
      eval.metrics.push_back(std::move(metric));
    }
  }
  reader.text("monitor", eval.monitor);
  if (eval.monitor != "loss") {
    const auto found = std::ranges::find(eval.metrics, eval.monitor, &Metric::name);
    if (found == eval.metrics.end())
      reader.fail("monitor", fmt::format("'eval.monitor' must be loss or one of 'eval.metrics', is '{}'", eval.monitor));
    if (found->kind == MetricKind::Confusion || found->kind == MetricKind::Mean)
      reader.fail("monitor", fmt::format("'eval.monitor' cannot judge by a metric of kind {}", toString(*found)));
  }
  reader.integer("patience", eval.patience, {.least = 0});
  reader.number("min_delta", eval.minDelta, {.least = 0});
  if (eval.every == 0 && eval.patience > 0) reader.fail("patience", "'eval.patience' needs evaluations: 'eval.every'");
  reader.finish();
}

Recipe readRecipe(const YAML::Node &root, const std::string &file, Source &source) {
  Recipe recipe;
  recipe.file = source.file;
  source.lines = &recipe.lines;
  source.given = &recipe.given;
  MapReader reader(source, "", root);
  if (reader.has("dims")) readDims(reader.map("dims"), recipe.dims);
  if (reader.has("loss")) readLoss(reader.map("loss"), recipe.loss);
  readOptimizer(reader.map("optimizer"), source, recipe.optimizer);
  if (reader.has("clip_norm")) reader.number("clip_norm", recipe.clipNorm.emplace(), clipNormRange);
  if (reader.has("clip_value")) reader.number("clip_value", recipe.clipValue.emplace(), clipNormRange);
  if (recipe.clipNorm && recipe.clipValue)
    reader.fail("clip_value", "'clip_norm' and 'clip_value' are two ways to clip: leave one out");
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
  if (reader.has("eval")) readEval(source, reader.map("eval"), recipe.loss, recipe.eval.emplace());
  if (recipe.data && !recipe.data->lengths.empty()) findLengthDims(reader, recipe);
  reader.finish();
  recipe.loss.where = recipe.at("loss");
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
