#include "compiler/recipe/model_training.h"
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::recipe {
namespace {

// The model's optimizer with the values that the recipe gives.
Optimizer merged(const Recipe &recipe, Optimizer of) {
  const Optimizer &given = recipe.optimizer;
  auto take = [&](const char *key, auto Optimizer::*member) {
    if (recipe.gives(std::string("optimizer.") + key)) of.*member = given.*member;
  };
  take("lr", &Optimizer::lr);
  take("betas", &Optimizer::beta1);
  take("betas", &Optimizer::beta2);
  take("eps", &Optimizer::eps);
  take("weight_decay", &Optimizer::weightDecay);
  take("momentum", &Optimizer::momentum);
  take("dampening", &Optimizer::dampening);
  take("nesterov", &Optimizer::nesterov);
  take("initial_accumulator", &Optimizer::initialAccumulator);
  take("lr_decay", &Optimizer::lrDecay);
  take("form", &Optimizer::form);
  take("bias_correction", &Optimizer::biasCorrection);
  take("no_decay", &Optimizer::noDecay);
  of.where = given.where;
  return of;
}

void takeLoss(Recipe &recipe, const ModelTraining &model, std::vector<std::string> &notes) {
  if (recipe.gives("loss")) {
    if (recipe.loss.kind != LossKind::Output)
      notes.push_back(fmt::format("the recipe's loss is used, not that of {}", model.source));
    return;
  }
  recipe.loss.kind = LossKind::Output;
  recipe.loss.output = model.loss;
  if (model.labels) recipe.loss.labels.name = *model.labels;
  notes.push_back(fmt::format("from {}: the loss is the graph's output '{}'", model.source, model.loss));
}

} // namespace

std::string describe(const Optimizer &optimizer) {
  std::vector<std::string> values;
  auto number = [&](const char *key, double value) { values.push_back(fmt::format("{} {:.7g}", key, value)); };
  switch (optimizer.kind) {
  case OptimizerKind::Sgd:
    if (optimizer.momentum != 0) number("momentum", optimizer.momentum);
    if (optimizer.dampening != 0) number("dampening", optimizer.dampening);
    if (optimizer.nesterov) values.emplace_back("nesterov");
    break;
  case OptimizerKind::Adagrad:
    number("eps", optimizer.eps);
    if (optimizer.lrDecay != 0) number("lr_decay", optimizer.lrDecay);
    if (optimizer.initialAccumulator != 0) number("initial_accumulator", optimizer.initialAccumulator);
    break;
  default:
    values.push_back(fmt::format("betas {:.7g}, {:.7g}", optimizer.beta1, optimizer.beta2));
    number("eps", optimizer.eps);
    if (optimizer.form != AdamForm::Pytorch) values.push_back("form " + toString(optimizer.form));
    if (optimizer.biasCorrection != BiasCorrection::FromOne)
      values.push_back("bias_correction " + toString(optimizer.biasCorrection));
  }
  if (optimizer.weightDecay != 0) number("weight_decay", optimizer.weightDecay);
  std::string kind = toString(optimizer.kind);
  return values.empty() ? kind : fmt::format("{} ({})", kind, fmt::join(values, ", "));
}

std::vector<std::string> whatItSays(const ModelTraining &model) {
  if (!model.fault.empty()) return {model.fault};
  std::vector<std::string> notes = {
      fmt::format("from {}: the loss is the graph's output '{}'", model.source, model.loss),
      fmt::format("from {}: {} parameters train", model.source, model.trained.size())};
  notes.push_back(model.optimizer
                      ? fmt::format("from {}: the optimizer is {}", model.source, describe(*model.optimizer))
                      : model.optimizerFault);
  if (model.clipNorm)
    notes.push_back(fmt::format("from {}: gradients are clipped to the norm {}", model.source, *model.clipNorm));
  notes.insert(notes.end(), model.notes.begin(), model.notes.end());
  return notes;
}

double shortest(float value) { return std::stod(fmt::format("{}", value)); }

Status takeFromModel(Recipe &recipe, const ModelTraining &model, std::vector<std::string> &notes) {
  if (!model.fault.empty()) {
    if (!recipe.gives("loss") || !recipe.gives("optimizer.kind"))
      return inputError(model.fault + "; give the recipe a `loss` and an `optimizer` with its kind");
    notes.push_back(fmt::format("{} is not used: {}", model.source, model.fault));
    return Status::ok();
  }
  takeLoss(recipe, model, notes);
  if (!recipe.trainableGiven) {
    recipe.trainable = model.trained;
    recipe.trainableGiven = true;
    notes.push_back(fmt::format("from {}: {} parameters train", model.source, model.trained.size()));
  }
  if (!recipe.gives("ties")) recipe.ties = Ties::AsExported;
  if (recipe.gives("optimizer.kind")) {
    notes.push_back(fmt::format("the recipe's optimizer is used, not that of {}", model.source));
  } else if (!model.optimizer) {
    return inputError(fmt::format("{}; give the recipe an `optimizer` with its kind", model.optimizerFault));
  } else {
    recipe.optimizer = merged(recipe, *model.optimizer);
    bool setsRate = recipe.gives("optimizer.lr");
    notes.push_back(fmt::format("from {}: the optimizer is {}{}", model.source, describe(recipe.optimizer),
                                setsRate ? ", at the recipe's lr"
                                : model.givesRate
                                    ? fmt::format(" with lr {}", recipe.optimizer.lr.peak)
                                    : fmt::format("; nothing gives its lr, {} is taken", recipe.optimizer.lr.peak)));
  }
  if (!recipe.gives("clip_norm") && model.clipNorm) {
    recipe.clipNorm = model.clipNorm;
    notes.push_back(fmt::format("from {}: gradients are clipped to the norm {}", model.source, *model.clipNorm));
  }
  if (!recipe.gives("init") && !model.initial.empty()) {
    recipe.init.rules = model.initial;
    notes.push_back(fmt::format("from {}: {} parameters whose weights are missing begin as its initialization says",
                                model.source, model.initial.size()));
  }
  notes.insert(notes.end(), model.notes.begin(), model.notes.end());
  return Status::ok();
}

} // namespace cleave::recipe
