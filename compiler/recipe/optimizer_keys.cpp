#include "compiler/recipe/keys.h"
#include "compiler/recipe/schema.h"
#include <cmath>
#include <limits>

namespace cleave::recipe {
namespace {

void readRate(MapReader &reader, const Key<Optimizer> &key, Optimizer &optimizer) {
  if (!reader.has(key.name)) return;
  if (!reader.node(key.name).IsMap()) return reader.read(key.name, optimizer.lr.peak, {.range = rateRange});
  readValue(reader, key.name, key.rule, optimizer.lr);
}

// The defaults are those of PyTorch's class of that name; Lion's and LAMB's are their papers'.
void startOptimizer(MapReader &reader, Optimizer &optimizer) {
  reader.read("kind", optimizer.kind);
  if (optimizer.kind == OptimizerKind::AdamW) optimizer.weightDecay = 0.01;
  if (optimizer.kind == OptimizerKind::Adagrad) optimizer.eps = 1e-10;
  if (optimizer.kind == OptimizerKind::Lion) optimizer.beta2 = 0.99;
  if (optimizer.kind == OptimizerKind::Lamb) optimizer.eps = 1e-6;
  if (optimizer.kind == OptimizerKind::Adafactor) optimizer.eps = std::numeric_limits<float>::epsilon();
  if (optimizer.kind == OptimizerKind::Muon)
    optimizer.momentum = 0.95, optimizer.nesterov = true, optimizer.weightDecay = 0.1;
  if (optimizer.kind == OptimizerKind::Adadelta) optimizer.eps = 1e-6;
}

void checkGroup(MapReader &reader, OptimizerGroup &group) {
  const OptimizerKind kind = reader.recipe().optimizer.kind;
  if (group.kind && *group.kind != kind && (kind != OptimizerKind::Muon || *group.kind != OptimizerKind::AdamW))
    reader.fail("kind", "a group's 'kind' is the optimizer's, or adamw where that is muon");
}

// A kind that the recipe does not give may be the model's: checkOptimizer follows when that is known.
void checkGivenOptimizer(MapReader &reader, Optimizer &) {
  if (!reader.recipe().gives("optimizer.kind")) return;
  if (Status fits = checkOptimizer(reader.recipe()); !fits) throw Fault{fits.message()};
}

// clang-format off
const Schema<OptimizerGroup> groupRateSchema = {.keys = {
    {"scale", at<&OptimizerGroup::rateScale>, "what all rates of the schedule are multiplied by", "1", {.range = rateRange}},
}};
// clang-format on

// The learning rate of a group: a number, which stands to the peak as all of its rates do, or {scale: ...}.
void readGroupRate(MapReader &reader, const Key<OptimizerGroup> &key, OptimizerGroup &group) {
  if (!reader.has(key.name)) return;
  if (reader.node(key.name).IsMap()) return readMap(reader.map(key.name), groupRateSchema, group);
  double rate = 0;
  reader.read(key.name, rate, {.range = rateRange});
  const double peak = reader.recipe().optimizer.lr.peak;
  if (peak == 0) reader.fail("lr", "'optimizer.lr' is 0: a group has 'lr: {scale: ...}' of it");
  group.rateScale = rate / peak;
  if (!std::isfinite(group.rateScale)) reader.fail("lr", "'lr' of a group is too many times 'optimizer.lr'");
}

Status checkGroupUses(const OptimizerGroup &group, const std::string &kind) {
  for (auto [key, value] : {std::pair("betas", &group.beta1), std::pair("eps", &group.eps),
                            std::pair("weight_decay", &group.weightDecay), std::pair("momentum", &group.momentum)})
    if (*value)
      if (std::string fault = useFault(std::string("optimizer.groups.") + key, kind); !fault.empty())
        return inputError(fmt::format("{}: {}", group.where, fault));
  return Status::ok();
}

} // namespace

// clang-format off
template <> const Schema<OptimizerGroup> Schema<OptimizerGroup>::of = {.keys = {
    {"match", at<&OptimizerGroup::match>, "[globs](#globs)", "required", {.required = "an entry of 'optimizer.groups' needs 'match', globs over parameter names"}},
    {"kind", at<&OptimizerGroup::kind>, "`adamw`, where the optimizer is `muon`", "the optimizer's"},
    {"lr", mapOf<OptimizerGroup, groupRateSchema>.readBy(readGroupRate), "the group's highest rate, whose schedule is the optimizer's, or `{scale: 0.1}` of it", "the optimizer's"},
    {"betas", pairAt<&OptimizerGroup::beta1, &OptimizerGroup::beta2>, "as of `optimizer`", "the optimizer's", {.range = betaRange}},
    {"eps", at<&OptimizerGroup::eps>, "as of `optimizer`", "the optimizer's", {.range = {.min = 0}}},
    {"weight_decay", at<&OptimizerGroup::weightDecay>, "as of `optimizer`; it counts for parameters of `no_decay`, too", "the optimizer's", {.range = {.min = 0}}},
    {"momentum", at<&OptimizerGroup::momentum>, "as of `optimizer`", "the optimizer's", {.range = {.min = 0, .below = 1}}},
}, .check = checkGroup};
template <> const Schema<Optimizer> Schema<Optimizer>::of = {.keys = {
    {"kind", at<&Optimizer::kind>, "`sgd`, `adam`, `adamw`, `adagrad`, `lamb`, `lion`, `adafactor`, `muon`, `rmsprop`, `nadam`, `radam`, `adamax`, `adadelta`. Muon trains the weights of products; other parameters train with `adamw` at the same rate", "`adamw`"},
    {"lr", at<&Optimizer::lr>.readBy(readRate), "a number, or a [schedule](#learning-rate)", "1e-3"},
    {"betas", pairAt<&Optimizer::beta1, &Optimizer::beta2>, "two decays, of the first and the second moment", "as in PyTorch", {.range = betaRange, .kinds = "adam adamw lamb lion muon nadam radam adamax"}},
    {"eps", at<&Optimizer::eps>, "added to the root of the second moment", "1e-8; `adagrad` 1e-10, `lamb` 1e-6, `adafactor` 2⁻²³, `adadelta` 1e-6", {.range = {.min = 0}, .kinds = "adam adamw adagrad lamb adafactor muon rmsprop nadam radam adamax adadelta"}},
    {"weight_decay", at<&Optimizer::weightDecay>, "as in PyTorch", "0; `adamw` 0.01, `muon` 0.1", {.range = {.min = 0}}},
    {"momentum", at<&Optimizer::momentum>, "as in PyTorch", "0; `muon` 0.95", {.range = {.min = 0, .below = 1}, .kinds = "sgd muon rmsprop"}},
    {"dampening", at<&Optimizer::dampening>, "as in PyTorch", "0", {.range = {.min = 0, .max = 1}, .kinds = "sgd"}},
    {"nesterov", at<&Optimizer::nesterov>, "`true`, `false`", "`false`; `muon` `true`", {.kinds = "sgd muon"}},
    {"initial_accumulator", at<&Optimizer::initialAccumulator>, "as in PyTorch", "0", {.range = {.min = 0}, .kinds = "adagrad"}},
    {"lr_decay", at<&Optimizer::lrDecay>, "as in PyTorch", "0", {.range = {.min = 0}, .kinds = "adagrad"}},
    {"eps2", at<&Optimizer::eps2>, "smallest size of a parameter that steps are relative to", "1e-3", {.range = {.min = 0}, .kinds = "adafactor"}},
    {"beta2_decay", at<&Optimizer::beta2Decay>, "decay of the second moment", "-0.8", {.range = {.max = 0}, .kinds = "adafactor"}},
    {"d", at<&Optimizer::clipThreshold>, "largest root mean square of an update", "1", {.range = {.above = 0}, .kinds = "adafactor"}},
    {"ns_steps", at<&Optimizer::newtonSchulzSteps>, "Newton-Schulz steps", "5", {.range = {.min = 1, .max = 100}, .kinds = "muon"}},
    {"form", at<&Optimizer::form>, "`pytorch`, or `onnx`, which adds eps before the bias correction of the second moment and decays after the update (ONNX's Adam, onnxruntime-training, `transformers.AdamW`)", "`pytorch`", {.kinds = "adam adamw muon"}},
    {"bias_correction", at<&Optimizer::biasCorrection>, "t in 1 - beta^t counts this update (`from_one`) or only those before (`from_zero`); `none`: no correction", "`from_one`", {.kinds = "adam adamw muon"}},
    {"no_decay", at<&Optimizer::noDecay>, "[globs](#globs) of parameters without weight decay", "none"},
    {"amsgrad", at<&Optimizer::amsgrad>, "as in PyTorch", "`false`", {.kinds = "adam adamw", .isQuiet = true}},
    {"alpha", at<&Optimizer::alpha>, "decay of the mean of squares", "0.99", {.range = {.min = 0, .below = 1}, .kinds = "rmsprop"}},
    {"centered", at<&Optimizer::centered>, "as in PyTorch", "`false`", {.kinds = "rmsprop"}},
    {"momentum_decay", at<&Optimizer::momentumDecay>, "as in PyTorch", "4e-3", {.range = {.min = 0}, .kinds = "nadam"}},
    {"decoupled_weight_decay", at<&Optimizer::decoupledDecay>, "as in PyTorch", "`false`", {.kinds = "nadam radam", .isQuiet = true}},
    {"rho", at<&Optimizer::rho>, "as in PyTorch", "0.9", {.range = {.min = 0, .max = 1}, .kinds = "adadelta"}},
    {"ns_dtype", at<&Optimizer::newtonSchulzType>, "type of their products: `bf16`, as in PyTorch's class, or the `parameter`'s", "`parameter`", {.kinds = "muon", .isQuiet = true}},
    {"state_dtype", at<&Optimizer::stateType>, "`bf16` or `fp8`: momenta take two bytes a number or one ([8-bit Adam](../guide/optimizers-and-losses.md#optimizer-state-in-8-bits)). Means of squares stay, and updates are computed, in the parameter's type", "`parameter`: the parameter's type", {.kinds = "sgd adam adamw lamb lion muon rmsprop nadam radam adamax", .isQuiet = true}},
    {"layer_decay", at<&Optimizer::layerDecay>, "each layer's rate is that of the layer after it times this ([below](#parameter-groups))", "none", {.range = {.above = 0, .max = 1}}},
    {"groups", at<&Optimizer::groups>, "a list of maps: [parameter groups](#parameter-groups) with numbers of their own; the first that fits counts", "none", {.isQuiet = true, .example = R"({match: ["*.bias"], weight_decay: 0})"}},
}, .start = startOptimizer, .check = checkGivenOptimizer, .kind = [](const Optimizer &to) { return toString(to.kind); }};
// clang-format on

Status checkOptimizer(const Recipe &recipe) {
  const Optimizer &optimizer = recipe.optimizer;
  const std::string prefix = "optimizer.";
  auto fail = [&](const std::string &key, const std::string &message) {
    return inputError(fmt::format("{}: {}", recipe.at(prefix + key), message));
  };
  for (const std::string &path : recipe.given) {
    if (!path.starts_with(prefix) || path.find('.', prefix.size()) != std::string::npos) continue;
    if (std::string fault = useFault(path, toString(optimizer.kind)); !fault.empty())
      return fail(path.substr(prefix.size()), fault);
  }
  for (const OptimizerGroup &group : optimizer.groups)
    CLEAVE_RETURN_IF_ERROR(checkGroupUses(group, toString(group.kind.value_or(optimizer.kind))));
  bool hasMomentum = optimizer.momentum != 0;
  for (const OptimizerGroup &group : optimizer.groups) hasMomentum = hasMomentum || group.momentum.value_or(0) != 0;
  const bool isPlain =
      !hasMomentum && (optimizer.kind == OptimizerKind::Sgd || optimizer.kind == OptimizerKind::RmsProp);
  if (isPlain && optimizer.stateType != StateType::Parameter)
    return fail("state_dtype", "'optimizer.state_dtype' is the type of momenta, and 'momentum' is 0; leave it out");
  if (isPlain && optimizer.dampening != 0)
    return fail("dampening", "'optimizer.dampening' is of the momentum, and 'momentum' is 0; leave it out");
  if (optimizer.amsgrad && optimizer.form == AdamForm::Onnx)
    return fail("amsgrad", "'optimizer.amsgrad' is for form pytorch");
  if (optimizer.kind == OptimizerKind::Sgd && optimizer.nesterov &&
      (optimizer.momentum == 0 || optimizer.dampening != 0))
    return fail("nesterov", "'optimizer.nesterov' needs a momentum above 0 and no dampening");
  return Status::ok();
}

} // namespace cleave::recipe
