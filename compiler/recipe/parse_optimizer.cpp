#include "compiler/recipe/parts.h"
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>
#include <limits>

namespace cleave::recipe {
namespace {

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
  reader.checkUses(toString(schedule.kind), isShare(reader, "warmup_steps") ? "total_steps" : "");
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

} // namespace

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
  reader.word("ns_dtype", optimizer.newtonSchulzType);
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

} // namespace cleave::recipe
